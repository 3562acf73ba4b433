"""Tests that take long or need a quiet machine: restarts, 20,000 events, speed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.browser.conftest import Open
from tests.browser.test_watching import SEQS
from tests.live.conftest import Served, start_server
from tests.live.record import KEY

pytestmark = pytest.mark.conformance
FRAMES = """() => {
  window.slow = []; let last = performance.now();
  const tick = (now) => { window.slow.push(now - last); last = now; requestAnimationFrame(tick); };
  requestAnimationFrame(tick);
}"""


def thread_times(trace: bytes) -> list[float]:
    """Milliseconds of processor time of each task of a page's thread; other load on the machine does not count.

    A virtual machine's thread clock jumps now and then (29 ms of work in 4 ms), so the wall time is the limit.
    """
    events = json.loads(trace)["traceEvents"]
    threads = {
        (one["pid"], one["tid"])
        for one in events
        if one.get("name") == "thread_name" and one["args"].get("name") == "CrRendererMain"
    }
    mine = (one for one in events if "tdur" in one and (one["pid"], one["tid"]) in threads)
    return [min(one["tdur"], one["dur"]) / 1000 for one in mine]


@pytest.fixture
def driver(stage: Served) -> Iterator[Any]:
    """Publishes any number of events of an episode that is played elsewhere."""
    base = {"v": 1, "ts": time.time()}
    template = [event for event in _match() if event["type"] in ("decision", "step", "commentary")]
    reached: dict[str, int] = {}

    def publish(events: list[dict[str, Any]]) -> None:
        lines = [json.dumps({**base, **event, "ts": time.time()}) for event in events]
        answer = httpx.post(f"{stage.url}/custom/events", content="\n".join(lines), headers=KEY, timeout=60)
        assert answer.status_code == 200, answer.text

    def send(episode_id: str, first: int, number: int) -> int:
        events = []
        for seq in range(first, first + number):
            if seq == 0:
                event = _match()[0]
            else:
                event = dict(template[(seq - 1) % len(template)])
                event["payload"] = {**event["payload"], "turn": (seq - 1) // 4}
            events.append({**event, "episode_id": episode_id, "seq": seq})
        publish(events)
        reached[episode_id] = first + number
        return first + number

    yield send
    # otherwise every later page without an episode in its address would show this one
    for episode_id, seq in reached.items():
        publish([{**_match()[-1], "episode_id": episode_id, "seq": seq}])


def _match() -> list[dict[str, Any]]:
    """One whole match, played once."""
    if not _MATCH:
        from kibitz.core.play.episode import play_episode
        from kibitz.games import cricket
        from kibitz.players import player_named

        game, settings = cricket.game(), cricket.CricketOptions(max_overs=5).settings()
        players = [player_named(game, "balanced"), player_named(game, "aggressive")]
        _MATCH.extend(event.as_dict() for event in play_episode(game, settings, players, seed=3).events)
    return _MATCH


_MATCH: list[dict[str, Any]] = []


def test_a_page_reconnects_after_a_server_restart_and_misses_nothing(tmp_path: Path, open_page: Open) -> None:
    store = tmp_path / "kibitz.db"
    first = start_server(store, "--no-warm", "--pace", "0.2")
    port = first.url.rsplit(":", 1)[1]
    answer = httpx.post(f"{first.url}/custom/start_episode", json={"game": "cricket", "max_overs": 5}, timeout=60)
    episode_id = answer.json()["episode_id"]
    page = open_page(f"/e/{episode_id}", served=first)
    page.wait_for_function("() => document.querySelector('kibitz-watch')?.timeline?.last > 20")
    page.evaluate("() => { window.same = true; }")
    first.kill()
    if first.process.stdout:
        first.process.stdout.close()
    page.locator("#connection[data-state=reconnecting]").wait_for()
    second = start_server(store, "--no-warm", "--port", port)
    try:
        page.locator(".status.failed").wait_for(timeout=30_000)
        assert page.evaluate("() => window.same"), "the page was reloaded"
        record = second.events(episode_id)
        assert page.evaluate(SEQS) == [event["seq"] for event in record]
        assert record[-1]["payload"]["kind"] == "interrupted"
    finally:
        second.stop()


@pytest.mark.timed
def test_twenty_thousand_events_neither_grow_the_page_nor_block_a_frame(
    stage: Served, open_page: Open, driver: Any
) -> None:
    episode_id = f"ep-long-{time.time_ns() % 10**9}"
    at = driver(episode_id, 0, 2000)
    page = open_page(f"/e/{episode_id}")
    page.wait_for_function(f"() => document.querySelector('kibitz-watch')?.timeline?.last === {at - 1}")
    session = page.context.new_cdp_session(page)

    def weight() -> tuple[float, int]:
        """Heap in MB and elements, once the page has drawn everything: the list of turns takes several frames."""
        count = "() => document.getElementsByTagName('*').length"
        seen = [page.evaluate(count)]
        while len(seen) < 4 or len(set(seen[-4:])) > 1:
            page.wait_for_timeout(150)
            seen.append(page.evaluate(count))
            assert len(seen) < 200, "the page never stops changing"
        session.send("HeapProfiler.collectGarbage")
        return session.send("Runtime.getHeapUsage")["usedSize"] / 1e6, seen[-1]

    while at < 8000:
        at = driver(episode_id, at, 1000)
        page.wait_for_function(f"() => document.querySelector('kibitz-watch')?.timeline?.last === {at - 1}")
    heap, nodes = weight()
    while at < 18_000:
        at = driver(episode_id, at, 1000)
        page.wait_for_function(f"() => document.querySelector('kibitz-watch')?.timeline?.last === {at - 1}")
    page.context.browser.start_tracing(page=page, categories=["toplevel", "disabled-by-default-lighthouse"])
    while at < 20_000:
        at = driver(episode_id, at, 20)
        page.wait_for_function(f"() => document.querySelector('kibitz-watch')?.timeline?.last === {at - 1}")
    tasks = thread_times(page.context.browser.stop_tracing())
    late_heap, late_nodes = weight()
    assert late_heap < heap * 1.25 + 4, (heap, late_heap)
    assert late_nodes < nodes * 1.2 + 50, (nodes, late_nodes)
    # A virtual machine that stalls lengthens a few tasks (58 elements styled in 102 ms, once in thousands of times). A
    # page that blocks does so with every list that has grown, a hundred times here.
    assert len(tasks) > 1000 and sorted(tasks)[-10] < 50, sorted(tasks)[-12:]
    page.keyboard.press("Home")  # events that are no longer in memory are read again
    page.wait_for_function("() => document.querySelector('kibitz-watch')?.timeline?.shown.seq === 0")


@pytest.mark.timed
def test_twenty_events_a_second_drop_no_frames(stage: Served, open_page: Open, driver: Any) -> None:
    episode_id = f"ep-fast-{time.time_ns() % 10**9}"
    at = driver(episode_id, 0, 1000)
    page = open_page(f"/e/{episode_id}")
    page.wait_for_function(f"() => document.querySelector('kibitz-watch')?.timeline?.last === {at - 1}")
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def cpu() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))

    def dropped() -> float:
        gaps = page.evaluate("() => window.slow.slice(5)")
        return sum(gap > 50 for gap in gaps) / len(gaps)

    def attempt() -> tuple[float, float, float]:
        """Frames dropped at rest, by other load on this machine, and with events; seconds of the thread per event."""
        nonlocal at
        page.evaluate("() => { window.slow.length = 0; }")
        page.wait_for_timeout(2000)
        at_rest = dropped()
        page.evaluate("() => { window.slow.length = 0; }")
        before, began = cpu(), time.monotonic()
        for step in range(100):
            at = driver(episode_id, at, 1)
            time.sleep(max(0.0, began + (step + 1) / 20 - time.monotonic()))
        return at_rest, dropped(), (cpu() - before) / 100

    def holds(at_rest: float, with_events: float, seconds: float) -> bool:
        return with_events <= at_rest + 0.02 and seconds < 0.025  # half of the time between events

    page.evaluate(FRAMES)
    attempts = [attempt()]  # a machine that stalls drops frames in one of them, a slow page in all
    while not holds(*attempts[-1]) and len(attempts) < 3:
        attempts.append(attempt())
    assert holds(*attempts[-1]), attempts
