"""Players' records: wins and form only in games that somebody wins."""

from __future__ import annotations

import re
from typing import Any

from tests.browser.conftest import Open
from tests.live.conftest import Served


def columns(page: Any, name: str) -> list[str]:
    return page.get_by_role("region", name=name, exact=True).locator("thead th").all_inner_texts()


def test_a_negotiation_has_no_winner_because_each_side_counts_its_own_points(
    stage: Served, open_page: Open, played: dict[str, str]
) -> None:
    stage.wait_for_end(stage.start(game="deal_or_no_deal", players=["bayes", "partner:stubborn"], seed=5))
    page = open_page("/leaderboard")
    page.get_by_role("region", name="deal or no deal", exact=True).wait_for()
    assert {"Wins", "Draws", "Mean return"} <= set(columns(page, "cricket"))
    talk = columns(page, "deal or no deal")
    assert "Mean return" in talk and not {"Wins", "Draws"} & set(talk)
    for name in ("bayes", "heuristic"):  # one negotiates only, the other plays both games
        page.goto(f"{stage.url}/players/{name}")
        record = page.get_by_role("region", name="Record", exact=True)
        record.get_by_text("A game in which both sides can gain has no winner").wait_for()
        talks = [line for line in record.locator("tbody tr").all_inner_texts() if "deal or no deal" in line]
        if name == "bayes":
            assert not {"Won", "Ahead"} & set(columns(page, "Record")) and record.get_by_text("Form:").count() == 0
        else:
            assert {"Won", "Drawn", "Lost"} <= set(columns(page, "Record"))
            assert talks and not any(re.search(r"\d", "".join(line.split("\t")[3:6])) for line in talks), talks
