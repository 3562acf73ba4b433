"""A real browser and a real server. Without Chromium these tests are skipped; under CI they fail."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kibitz.studies.reports.report import Report, Verdict
from tests.live.conftest import Served, start_server
from tests.live.test_tournaments import written
from tests.llm.fake_server import FakeServer

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP kibitz.lan 127.0.0.1",  # a name that browsers do not trust as they trust localhost
]
Open = Callable[..., Any]


def chromium() -> str:
    """Its headless build where that is installed: the same engine without windows, in a quarter of the time."""
    found = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "chromium-browser"))), None)
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("chromium is not installed; `make browser` installs it on Debian")
        pytest.skip("chromium is not installed; `make browser` installs it on Debian")
    return found


@contextmanager
def ended_within(seconds: float) -> Iterator[None]:
    """Kills a browser that does not close in time: it would hang the whole run."""

    def end() -> None:
        print(f"chromium did not close within {seconds:g} s and was killed", file=sys.__stderr__)
        for child in descendants(os.getpid()):
            with suppress(OSError):
                if "chrom" in Path(f"/proc/{child}/comm").read_text():
                    os.kill(child, signal.SIGKILL)

    timer = threading.Timer(seconds, end)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def descendants(pid: int) -> list[int]:
    """The processes that this one started, directly or indirectly."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents.setdefault(int(entry.read_text().rpartition(")")[2].split()[1]), []).append(int(entry.parent.name))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found[1:]


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """One browser for these tests, with a fresh profile; each page gets a context of its own.

    Not one per session: Playwright's event loop runs as long as the browser lives, and other tests in
    the same process need one of their own.
    """
    if os.environ.get("CI") != "true":
        pytest.importorskip("playwright", reason="the extra `browser` is not installed")
    from playwright.sync_api import sync_playwright

    path = chromium()
    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        with ended_within(30):
            started.close()


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with the usual limit of one episode at a time, and `llm:muse`, a model that answers at random."""
    folder = tmp_path_factory.mktemp("stage")
    points = [f"{step},{seed},{0.9 - 0.5 / (1 + step / 1000)}" for step in range(0, 9000, 1000) for seed in (0, 1)]
    for name, seed in (("second-try", 7), ("first-try", 0)):
        run = folder / "runs" / name
        run.mkdir(parents=True)
        about = {
            "game": "deal_or_no_deal",
            "seed": seed,
            "advisers": ["none"],
            "evaluation_hints_from": ["none", "the reference player"],
        }
        (run / "run.json").write_text(json.dumps(about), encoding="utf-8")
        (run / "evaluations.csv").write_text("\n".join(["step,seed,share_of_ceiling", *points]), encoding="utf-8")
    made = Report("Do hints help?", "Two cells.", {"command": "x"}, [Verdict("It rose.", True), Verdict("No.", False)])
    made.write(folder / "runs" / "study")
    written(folder / "runs", "cup", game="cricket")
    models = FakeServer()
    muse = {"provider": "openai", "base_url": models.url, "model": "obliging", "structure": "schema"}
    (folder / "presets.yaml").write_text(json.dumps({"presets": {"muse": muse}}), encoding="utf-8")
    env = {"KIBITZ_SPEECH": "espeak", "KIBITZ_LLM_PRESETS": str(folder / "presets.yaml")}  # the fastest voice
    one = start_server(folder / "kibitz.db", "--no-warm", "--pace", "0.05", "--runs", str(folder / "runs"), env=env)
    yield one
    assert one.stop() == 0
    models.stop()


@pytest.fixture(scope="session")
def played(stage: Served) -> dict[str, str]:
    """A finished episode of each game."""
    requests = {
        "cricket": {"max_overs": 1, "seed": 4},
        "deal_or_no_deal": {"captain_preset": "bayes", "opponent_choice": "heuristic", "seed": 3},
    }
    found = {}
    for game, request in requests.items():
        found[game] = stage.start(game=game, **request)
        stage.wait_for_end(found[game])
    return found


@pytest.fixture
def open_page(browser: Any, stage: Served) -> Iterator[Open]:
    """Opens an address of the server; an uncaught error in the page fails the test."""
    contexts: list[Any] = []
    wrong: list[str] = []

    def run(address: str, width: int = 1280, height: int = 900, served: Served = stage, **more: Any) -> Any:
        init = more.pop("init", None)
        context = browser.new_context(viewport={"width": width, "height": height}, **more)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(180_000)  # with empty caches the first match compiles
        page.on("pageerror", lambda error: wrong.append(str(error)))
        if init:
            page.add_init_script(init)
        page.goto(served.url + address)
        return page

    yield run
    for context in contexts:
        for page in context.pages:  # none if the test has closed it
            page.unroute_all(behavior="ignoreErrors")  # a page keeps sending requests until it is closed
        context.close()
    assert not wrong, wrong


@pytest.fixture(autouse=True)
def stop_episodes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Stops the episodes that a test leaves running, so that the next test can start one."""
    yield
    if "stage" not in request.fixturenames:
        return
    import httpx

    stage: Served = request.getfixturevalue("stage")
    for one in stage.get("/custom/status")["running"]:
        httpx.post(f"{stage.url}/custom/stop_episode", json={"episode_id": one["episode_id"]})
        stage.wait_for_end(one["episode_id"])


def load(served: Served, lines: list[str]) -> None:
    """Imports a whole episode into the store."""
    import httpx

    answer = httpx.post(f"{served.url}/episodes", content="\n".join(lines), timeout=30)
    assert answer.status_code == 201, answer.text


def start_from_page(page: Any, game: str, **chosen: str) -> None:
    """Fills the start panel by its labels and presses Start."""
    page.get_by_role("radio", name=game).check(force=True)
    page.get_by_label("Pace").select_option("0")
    page.get_by_text("Research options").click()
    for label, value in chosen.items():
        box = page.get_by_label(label.replace("_", " "), exact=False).first
        if box.evaluate("node => node.tagName") == "SELECT":
            box.select_option(value)
        else:
            box.fill(value)
    page.get_by_role("button", name="Start", exact=True).click()


PACKAGE = Path(__file__).resolve().parents[2] / "kibitz"
STATIC = PACKAGE / "live" / "static"
GAME_PAGES = sorted(PACKAGE.glob("games/*/ui"))
