"""kibitz: strategy games in which agents learn with an adviser in their ear and anybody can watch.

Importing it is light: environments are registered by name and everything else is loaded when it is
first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import gymnasium

if TYPE_CHECKING:
    from kibitz.core.check import check_game
    from kibitz.core.errors import BadInput
    from kibitz.games import get_game
    from kibitz.games.cricket.envs.tool_env import CricketEnvironment
    from kibitz.games.deal_or_no_deal.envs.gym_env import NegotiationEnv
    from kibitz.hints import HintInjectorEnv

__version__ = "0.1.0"
__all__ = ["BadInput", "CricketEnvironment", "HintInjectorEnv", "NegotiationEnv", "check_game", "get_game"]

_LATE = {
    "BadInput": "kibitz.core.errors",
    "CricketEnvironment": "kibitz.games.cricket.envs.tool_env",
    "HintInjectorEnv": "kibitz.hints",
    "NegotiationEnv": "kibitz.games.deal_or_no_deal.envs.gym_env",
    "check_game": "kibitz.core.check",
    "get_game": "kibitz.games",
}

gymnasium.register(
    id="DealOrNoDialog-v0",
    entry_point="kibitz.games.deal_or_no_deal.envs.gym_env:NegotiationEnv",
    vector_entry_point="kibitz.games.deal_or_no_deal.envs.gym_env:NegotiationVectorEnv",
)
gymnasium.register(
    id="Cricket-v0",
    entry_point="kibitz.games.cricket.envs.gym_env:CricketEnv",
    vector_entry_point="kibitz.games.cricket.envs.gym_env:CricketVectorEnv",
)


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module 'kibitz' has no attribute {name!r}")
    return getattr(import_module(_LATE[name]), name)
