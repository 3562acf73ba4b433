"""Contexts from the data of Lewis et al. (2017), and utilities that meet a points budget.

`formats` parses files, `read` turns them into contexts and games, `hub` downloads them, `budget` adjusts utilities.
"""

from kibitz.games.deal_or_no_deal.contexts.budget import budget_table, fit_budget
from kibitz.games.deal_or_no_deal.contexts.hub import download
from kibitz.games.deal_or_no_deal.contexts.read import (
    Contexts,
    HumanGame,
    dataset_of,
    read_contexts,
    read_human_games,
)

__all__ = [
    "Contexts",
    "HumanGame",
    "budget_table",
    "dataset_of",
    "download",
    "fit_budget",
    "read_contexts",
    "read_human_games",
]
