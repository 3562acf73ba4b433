"""Figures have units, and nothing on the page is written for programs."""

from __future__ import annotations

import re

import httpx

from tests.browser.conftest import Open
from tests.live.conftest import Served

ANSWERS = """answers => import('/static/episode/thoughts.js').then(part => answers.map(part.answerWords))"""


def test_the_win_bar_has_units_and_nothing_is_projected_before_the_first_ball(
    stage: Served, open_page: Open, played: dict[str, str]
) -> None:
    first = next(one["seq"] for one in stage.events(played["cricket"]) if one["type"] == "step")
    for width in (390, 1280):
        page = open_page(f"/e/{played['cricket']}?seq=0", width=width)
        page.locator(".score .need", has_text="6 balls left").wait_for()
        assert "run rate" not in page.locator(".score").inner_text()
        figures = page.locator(".winbar b")
        assert sum(int(re.fullmatch(r"(\d+)%", line)[1]) for line in figures.all_inner_texts()) == 100
        figures.first.evaluate("node => { node.textContent = '100%'; }")
        assert figures.first.evaluate("node => node.scrollWidth <= node.clientWidth"), "it fits at its longest"
        page.goto(f"{stage.url}/e/{played['cricket']}?seq={first}")
        page.locator(".score .need", has_text="Projected ").wait_for()


def test_a_bowlers_card_has_a_line_for_each_fact(stage: Served, open_page: Open) -> None:
    request = {
        "game": "cricket",
        "players": ["human", "heuristic"],
        "options": {"max_overs": 2, "captain_side": "bowl"},
    }
    started = httpx.post(f"{stage.url}/custom/start_episode", json=request, timeout=60).json()
    page = open_page(f"{started['url']}#seat={started['seat_token']}")
    cards = page.locator(".seat .cards label")
    cards.first.wait_for()
    for card in cards.all():
        style, left, risk = card.locator("small").all_inner_texts()
        assert re.fullmatch(r"\d overs? left", left.replace("\u00a0", " ")) and "out" in risk and "·" not in style


def test_a_models_answer_is_shown_in_words_even_while_it_is_being_written(
    open_page: Open, played: dict[str, str]
) -> None:
    page = open_page("/")
    whole = '{"plan": "wide_of_off", "why": "He \\"slogs\\"", "oA": [1, 2], "act_type": 0, "confidence": 0.7} (from x)'
    answers = ["Let me think.", "Let me think. {", '{"plan": "yor', whole, "a {{7*7}} b"]
    assert page.evaluate(ANSWERS, answers) == [
        "Let me think.",
        "Let me think.",
        "Plan: yor",
        'Plan: wide of off\nWhy: He "slogs"\n70% sure',
        "a {{7*7}} b",
    ]


def test_home_says_that_two_models_are_models(open_page: Open) -> None:
    start = open_page("/").get_by_role("button", name="Model against model")
    start.wait_for()
    said = start.inner_text()
    assert "Two language models: auto and embedded" in said or "Not available here" in said
