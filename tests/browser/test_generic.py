"""A game without a page: the generic page draws whatever its frame holds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Open, load, start_from_page
from tests.browser.test_access import check_accessibility
from tests.browser.test_watching import ended
from tests.live.conftest import Served

NONE = "\N{EN DASH}"  # how the page shows a missing value
LONG = "an_unbroken_name_that_is_longer_than_a_phone_is_wide_" * 3


def frame(turn: int) -> dict[str, Any]:
    """One value of each kind that a frame may hold."""
    bids = [[3 * k + 1, 2 * k + 4] for k in range(turn)]
    return {
        "round": turn + 1,
        "rounds": 5,
        "open": turn < 5,
        "share": 1 / 3,
        "phase": "secret_offers",
        "nothing": None,
        "budget": [20 - turn, 20 - 2 * turn],
        "names": ["north", None],
        "hands": [[1, 2, 3], [4, 5]],
        "players": [{"wins": turn, "mood": "calm"}, {"wins": 1, "mood": LONG}],
        "bids": bids,
        "lots": [{"lot": "vase", "price": 12.5, "sold": True}, {"lot": "lamp", "price": None}, {"lot": "rug"}],
        "market": {"demand": {"high": 4, "low": [1, 2]}, "note": LONG},
        "board": [[0, 1, 0], [1, 0, 1], [0, 0, 1]],
        "empty": {},
    }


def episode(episode_id: str, turns: int = 5) -> list[str]:
    """An auction that was played elsewhere. Its rewards and its values, which change, are private to their seats."""
    started = {"game": "an_auction", "version": 1, "players": ["heuristic", "random"], "frame": frame(0), "cast": {}}
    events: list[tuple[str, dict[str, Any]]] = [("episode.started", started | {"about": {}, "private": {}})]
    for turn in range(turns):
        for seat in (0, 1):
            asked = {"seat": seat, "turn": turn, "source": started["players"][seat], "latency": 0.0, "usage": {}}
            act = {"act": [turn], "text": f"bids {3 * turn + 1 + seat}", "calls": [], "fallback": "", "private": {}}
            events.append(("decision", asked | act))
        private = {"0": {"reward": float(turn), "value": 21 - turn}, "1": {"reward": 1.5, "value": 15 - turn}}
        step = {"turn": turn, "acts": [[turn], [turn]], "frame": frame(turn + 1), "private": private}
        events.append(("step", step))
        events.append(("commentary", {"turn": turn, "text": f"{turn + 1} lots are gone.", "audio": None}))
    private = {"0": {"value": 17, "limits": [3, 9]}, "1": {"value": 11, "limits": [2, 8]}}
    last = {"text": "The auction is over.", "audio": None, "returns": [10.0, 7.5], "scores": {"profit": [4.0, None]}}
    last |= {"frame": frame(turns), "review": {"best": "vase"}, "private": private, "seed": 1, "number": 0}
    events.append(("episode.ended", last | {"match": None, "steps": turns}))
    head = {"v": 1, "episode_id": episode_id}
    return [
        json.dumps(head | {"seq": seq, "ts": 1.0 + seq, "type": kind, "payload": payload})
        for seq, (kind, payload) in enumerate(events)
    ]


def table(page: Any, card: str, row: str) -> list[str]:
    """The cells of a row of a card."""
    found = (
        page.get_by_role("region", name=card, exact=True)
        .get_by_role("row")
        .filter(has=page.get_by_role("rowheader", name=row, exact=True))
    )
    return [str(cell) for cell in found.first.get_by_role("cell").all_inner_texts()]


@pytest.fixture
def auction(stage: Served) -> str:
    import httpx

    if httpx.get(f"{stage.url}/episodes/ep-auction").status_code == 404:
        load(stage, episode("ep-auction"))
    return "/e/ep-auction"


def test_a_game_without_a_page_is_drawn_from_its_frame(auction: str, open_page: Open) -> None:
    page = open_page("/lobby")
    refused: list[str] = []
    page.on("console", lambda line: refused.append(line.text) if line.type == "error" else None)
    page.goto(page.url.replace("/lobby", auction))
    ended(page)
    assert page.locator(".who b").all_inner_texts() == ["heuristic", "random"]
    assert page.locator(".score .main").all_inner_texts() == ["10", "7.5"]
    assert table(page, "Position", "Round") == ["6"]
    assert table(page, "Position", "Open") == ["no"]
    assert table(page, "Position", "Share") == ["0.333"]
    assert table(page, "Position", "Phase") == ["secret offers"]
    assert table(page, "Position", "Nothing") == [NONE]
    assert table(page, "Position", "Budget") == ["15", "10"]
    assert table(page, "Position", "Names") == ["north", NONE]
    assert table(page, "Position", "Hands") == ["1, 2, 3", "4, 5"]
    assert table(page, "Position", "Wins") == ["5", "1"]
    assert table(page, "Position", "Low") == ["1", "2"]
    lots = page.get_by_role("group", name="Lots").get_by_role("row").all_inner_texts()
    assert [line.split("\t") for line in lots][1] == ["1", "vase", "12.5", "yes"]
    bids = page.get_by_role("group", name="Bids").get_by_role("row").all_inner_texts()
    assert bids[1:] == [f"{k + 1}\t{3 * k + 1}\t{2 * k + 4}" for k in range(5)]
    assert table(page, "Last acts", "seat 0 heuristic") == ["bids 13", "turn 5"]
    assert table(page, "Private values", "Value") == ["17", "11"]
    assert table(page, "Result", "Profit") == ["4", NONE]
    assert "2 lots are gone." in page.locator(".turns").inner_text()
    curve = page.get_by_role("img", name="Running score")
    assert "After turn 5: heuristic 10, random 7.5." in curve.get_attribute("aria-label")
    assert not refused


@pytest.mark.conformance
def test_the_generic_page_follows_the_replay(auction: str, open_page: Open) -> None:
    page = open_page(f"{auction}?seq=8")
    page.wait_for_function("() => document.querySelector('kibitz-watch')?.timeline?.shown.seq === 8")
    page.get_by_role("row", name="Round 3", exact=True).wait_for()  # drawn in a frame after the seek
    assert table(page, "Position", "Round") == ["3"]
    assert page.locator(".changed").first.is_visible()
    assert page.locator(".score .main").all_inner_texts() == ["1", "3"]
    assert table(page, "Private values", "Value") == ["20", "14"]
    assert page.get_by_role("region", name="Result").count() == 0


@pytest.mark.parametrize(
    ("width", "theme"), [pytest.param(1440, "light", marks=pytest.mark.conformance), (390, "dark")]
)
def test_the_generic_page_is_accessible_and_fits_the_screen(
    auction: str, open_page: Open, width: int, theme: str
) -> None:
    page = open_page(auction, width=width, color_scheme=theme, bypass_csp=True, reduced_motion="reduce")
    ended(page)
    check_accessibility(page, width)


@pytest.fixture
def toy_server(tmp_path: Path) -> Iterator[Served]:
    """A server that also offers the toy game, which has neither a page nor words."""
    command = [sys.executable, "-m", "tests.train.toy", "serve", "--port", "0", "--no-warm", "--json"]
    process = subprocess.Popen([*command, "--store", str(tmp_path / "toy.db")], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    served = Served(json.loads(process.stdout.readline())["url"], process)  # type: ignore[arg-type]
    yield served
    served.stop()


def test_a_person_plays_a_third_game_on_the_generic_page(toy_server: Served, open_page: Open) -> None:
    page = open_page("/custom", served=toy_server)
    start_from_page(page, "Two arms", Seat_0="human", Seat_1="oracle", Rounds="3")
    for turn in range(3):
        page.locator(".seat.mine").wait_for()
        page.get_by_role("radio", name="1").first.check(force=True)
        page.get_by_role("button", name="Play", exact=True).click()
        page.wait_for_function(f"() => document.querySelector('kibitz-watch').timeline.live.turn >= {turn}")
    ended(page)
    record = toy_server.events(page.url.split("/e/")[1].split("?")[0])
    mine = [event["payload"] for event in record if event["type"] == "decision" and event["payload"]["seat"] == 0]
    assert [one["act"][0] for one in mine] == [1, 1, 1]
    assert page.locator(".who b").all_inner_texts() == ["You", "oracle"]
    returns = record[-1]["payload"]["returns"]
    assert page.locator(".score .main").all_inner_texts() == [f"{paid:g}" for paid in returns]
    assert table(page, "Position", "Won") == [f"{paid:g}" for paid in returns]
    assert page.get_by_text("Two arms", exact=True).is_visible()


def test_only_files_of_a_games_page_are_served(stage: Served) -> None:
    import httpx

    def status(path: str) -> int:
        return httpx.get(f"{stage.url}/static/games/{path}").status_code

    assert status("cricket.js") == status("cricket/cricket.css") == status("no_such_game.js") == 200
    for path in (
        "cricket/..%2f__init__.py",
        "cricket/%2e%2e/__init__.py",
        "cricket",
        "no_such_game/page.js",
        "..%2fx.js",
    ):
        assert status(path) == 404, path


def test_data_never_becomes_properties_of_an_element(open_page: Open) -> None:
    page = open_page("/lobby")
    page.locator(".page .card").wait_for()
    found = page.evaluate(
        """async () => {
          const { h, seatClass, text } = await import('/static/dom.js');
          const refused = (props) => { try { h('a', JSON.parse(props)); return false; } catch { return true; } };
          return {
            text: text('b', JSON.parse('{"title": "x", "onclick": "steal()"}')).outerHTML,
            refused: ['{"onclick": "steal()"}', '{"srcdoc": "x"}', '{"style": "x"}', '{"src": "//x"}',
              '{"href": "javascript:steal()"}', '{"href": "//elsewhere"}', '{"href": "https://elsewhere/"}'].map(refused),
            kept: h('a', { href: '/lobby', title: 'yes', hidden: false }, 'words').outerHTML,
            child: h('b', null, JSON.parse('{"class": "sr", "vars": {}}'), 7, [JSON.parse('[1]')]).outerHTML,
            value: h('b', { vars: JSON.parse('{"--part": "url(//elsewhere)"}'), class: seatClass('0 sr') }).outerHTML,
          };
        }"""
    )
    assert found["text"] == '<b>{"title":"x","onclick":"steal()"}</b>'
    assert found["refused"] == [True] * 7
    assert found["child"] == '<b>{"class":"sr","vars":{}}7[1]</b>'
    assert found["value"] == '<b class="seat0" style="--part: NaN;"></b>'
    assert found["kept"] == '<a href="/lobby" title="yes">words</a>'
