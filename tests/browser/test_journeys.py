"""The three journeys of docs/journeys.md: a visitor plays, a researcher finds out why, a teacher shares a moment."""

from __future__ import annotations

import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pytest

from tests.browser.conftest import Open
from tests.browser.test_home import CUT_OFF
from tests.live.conftest import Served, start_server

FIRST_MOVE_MS = 15_000
FRAMES = """() => document.querySelector('kibitz-compare').boards.map(({ timeline: { shown } }) =>
  shown.turn === 0 ? JSON.stringify(shown.frame) : Math.random())"""
LOG = "() => JSON.stringify(document.querySelector('kibitz-embed').board.timeline.log)"


@pytest.mark.conformance
@pytest.mark.timed
def test_a_first_time_visitor_plays_within_fifteen_seconds_of_opening_the_page(stage: Served, open_page: Open) -> None:
    stage.wait_for_end(stage.start(game="cricket", max_overs=1))  # a server compiles before its first visitor comes
    page = open_page("/")
    page.get_by_role("button", name="Play two overs").click()
    page.locator(".seat.mine").wait_for()
    page.locator(".seat.mine .primary").first.click()
    page.wait_for_function("() => document.querySelector('kibitz-watch').timeline.live.turn >= 0")
    assert page.evaluate("() => performance.now()") < FIRST_MOVE_MS


def test_a_researcher_finds_out_why_a_model_lost(stage: Served, open_page: Open) -> None:
    lost = stage.start(game="deal_or_no_deal", players=["llm:muse", "bayes"], seed=13)
    stage.wait_for_end(lost)
    page = open_page("/leaderboard")
    page.get_by_role("link", name="model muse").first.click()
    page.get_by_role("heading", name="Model muse").wait_for()
    page.get_by_text("obliging on an OpenAI-compatible server").wait_for()
    page.get_by_role("region", name="Record").get_by_role("link", name="bayes").wait_for()
    page.locator(f"a.episode[href='/e/{lost}']").click()
    page.locator(".score .side.seat1.won").wait_for()
    # the card says what a better player would have got and on which turn it would first have acted otherwise
    better = re.compile(r"In model muse.s place, .* the Bayesian player would have taken .* On turn \d+ it would ")
    page.locator(".endcard", has_text=better).wait_for()
    page.get_by_role("tab", name="Thinking").click()
    answer = page.locator(".note", has_text="model muse").first
    assert "320 tokens" in answer.inner_text()
    said = answer.locator("blockquote").inner_text()
    assert re.fullmatch(r"\d+% sure", said), "the fields in words; the act itself stands beside them"
    answer.get_by_text("The answer as sent").click()
    assert '"act_type": ' in answer.locator("details code").inner_text()
    page.set_viewport_size({"width": 390, "height": 844})
    page.locator(".meta", has_text=re.compile(r"tokens")).wait_for()
    assert not page.evaluate(CUT_OFF), "on a phone the facts are shown whole or not at all"
    # the same game from its second turn, with other players: what is kept is there at once, whatever the pace
    asked = {"turn": 2, "players": ["bayes", "bayes"], "pace": 60}
    branch = httpx.post(f"{stage.url}/episodes/{lost}/branch", json=asked, timeout=60).json()["episode_id"]
    page.goto(f"{stage.url}/e/{branch}")
    page.wait_for_function("() => document.querySelector('kibitz-watch')?.timeline?.live.turn === 1")
    page.get_by_role("link", name="compare with the original").click()
    page.get_by_text("The branch keeps the first 2 turns.").wait_for()  # it has played no other yet
    page.wait_for_function("() => document.querySelectorAll('.boards .boardscore .side').length === 4")
    page.get_by_role("slider", name="Turn of both games").fill("1")
    page.get_by_text(re.compile("turn 1 of")).wait_for()
    page.wait_for_function(f"() => new Set(({FRAMES})()).size === 1 && ({FRAMES})().length === 2")  # the same position


def test_a_comparison_says_once_how_long_both_games_are_the_same(stage: Served, open_page: Open) -> None:
    """The branch goes on like the original for a turn after those that it kept: seat 0 has the same player."""

    def acts(episode_id: str) -> list[list[int]]:
        return [one["payload"]["acts"] for one in stage.events(episode_id) if one["type"] == "step"]

    players, options = ["partner:conceder", "partner:stubborn"], {"agent_starts": True}
    first = stage.start(game="deal_or_no_deal", players=players, seed=3, options=options)
    stage.wait_for_end(first)
    asked = {"turn": 2, "players": ["partner:conceder", "partner:conceder"], "pace": 0}
    branch = httpx.post(f"{stage.url}/episodes/{first}/branch", json=asked, timeout=60).json()["episode_id"]
    stage.wait_for_end(branch)
    same = next(i for i, (one, other) in enumerate(zip(acts(first), acts(branch), strict=False)) if one != other)
    assert same > 2, "the games part after the turns that the branch kept"
    page = open_page(f"/compare?a={first}&b={branch}")
    page.get_by_text(f"First difference, turn {same + 1}: ").wait_for()
    kept = f"The branch keeps the first 2 turns; both games are the same for the first {same} turns."
    page.get_by_text(kept, exact=True).wait_for()


def test_a_teacher_shares_a_key_moment(stage: Served, open_page: Open, played: dict[str, str]) -> None:
    episode_id = played["cricket"]
    page = open_page(f"/e/{episode_id}")
    page.locator(".status.ended").wait_for()
    page.keyboard.press("Shift+ArrowLeft")
    page.wait_for_function("() => !document.querySelector('kibitz-watch').timeline.following")
    page.get_by_role("button", name="Share this moment").click()
    dialog = page.get_by_role("dialog", name="Share this moment")
    link = dialog.locator("code").first.inner_text()
    card = dialog.get_by_role("img", name="The card of this moment")
    page.wait_for_function("() => document.querySelector('.sharecard')?.naturalWidth === 1200")
    with page.expect_download() as download:
        dialog.get_by_role("button", name="Save the picture").click()
    assert download.value.path().read_bytes().startswith(b"\x89PNG")
    assert card.get_attribute("src").endswith(link.rpartition("?")[2]), "link and card are of the same moment"
    assert dialog.get_by_text("Code for another site").count() == 0, "this server allows no frames"
    shared = open_page(link.removeprefix(stage.url))
    shared.wait_for_function("() => document.querySelector('kibitz-watch')?.timeline?.following === false")
    wanted = int(link.rpartition("=")[2])
    shared.wait_for_function(f"() => document.querySelector('kibitz-watch').timeline.shown.seq === {wanted}")
    page_text = httpx.get(link, headers={"Accept": "text/html"}).text
    assert f"card.png?seq={wanted}" in page_text and 'property="og:title"' in page_text


@pytest.mark.conformance
def test_another_site_shows_an_episode_in_a_frame_only_where_the_operator_allows_it(
    open_page: Open, tmp_path: Path
) -> None:
    """During a person's game the frame and the card show no private values."""
    server = start_server(tmp_path / "kibitz.db", "--no-warm", "--embed", "*")
    request = {"game": "deal_or_no_deal", "players": ["human", "bayes"]}
    started = httpx.post(f"{server.url}/custom/start_episode", json=request, timeout=60).json()
    address = f"/embed/{started['episode_id']}"

    class OtherSite(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(f'<iframe src="{server.url}{address}" width="560" height="560"></iframe>'.encode())

        def log_message(self, *ignored: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), OtherSite) as site:
        Thread(target=site.serve_forever, daemon=True).start()
        page = open_page(f":{site.server_port}/", served=Served("http://127.0.0.1", server.process))
        frame = page.frame_locator("iframe")
        frame.locator(".boardscore .side").first.wait_for()
        seen = page.frames[1].evaluate(
            "() => JSON.stringify(document.querySelector('kibitz-embed').board.timeline.log)"
        )
        site.shutdown()
    assert len(json.loads(seen)) >= 1 and '"utilities"' not in seen
    card = httpx.get(f"{server.url}/episodes/{started['episode_id']}/card.png")
    assert card.headers["content-type"] == "image/png" and card.content.startswith(b"\x89PNG")
    policy = httpx.get(server.url + address).headers["content-security-policy"]
    assert policy.endswith("frame-ancestors *")
    assert httpx.get(f"{server.url}/").headers["content-security-policy"].endswith("frame-ancestors 'none'")
    page.context.close()
    server.stop()
