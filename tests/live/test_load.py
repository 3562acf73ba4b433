"""The load benchmark, and the server's promises under load."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest

from kibitz.bench.live import Load
from tests.live import record
from tests.live.conftest import Serve


def test_a_stalled_watcher_costs_the_others_nothing() -> None:
    found = Load(watchers=31, rate=50, seconds=1, stalled=1, processes=2).run()
    assert (found["lost"], found["doubles"]) == (0, 0)
    assert 0 < found["p50_ms"] <= found["p99_ms"]


def test_no_delay_of_an_event_from_before_its_watcher_counts(tmp_path: Path) -> None:
    for number, seconds in enumerate([[9, 9, 0.25], [9, 0.5, 0.75]]):
        np.array(seconds, np.float32).tofile(tmp_path / f"{number}.f32")
    assert Load(watchers=3, rate=1, seconds=1, processes=2).delays_ms(tmp_path).tolist() == [250, 500, 750]


def test_batched_watchers_get_every_event() -> None:
    found = Load(watchers=30, rate=50, seconds=1, batch=200).run()
    assert (found["lost"], found["doubles"]) == (0, 0)
    assert found["p99_ms"] > 50, "the events were not batched"


@pytest.mark.conformance
@pytest.mark.timed
def test_500_watchers_get_20_events_a_second_within_100_ms() -> None:
    for _ in range(8):  # the best of eight: other processes may use this machine
        found = Load(500, 20, 5).run()
        assert (found["lost"], found["doubles"]) == (0, 0)
        if found["p99_ms"] < 100:
            return
    pytest.fail(f"p99 was never below 100 ms: {found}")


@pytest.mark.conformance
@pytest.mark.timed
def test_2000_watchers_get_20_events_a_second_within_half_a_second() -> None:
    for _ in range(5):  # the best of five: other processes may use this machine, and this takes most of two cores
        found = Load(2000, 20, 5).run()
        assert (found["lost"], found["doubles"]) == (0, 0)
        if found["p99_ms"] < 500:
            return
    pytest.fail(f"p99 was never below 500 ms: {found}")


@pytest.mark.conformance
@pytest.mark.timed
def test_the_server_answers_within_200_ms_during_an_import_of_24_mb(serve: Serve) -> None:
    served = serve("--no-warm")
    small = record.lines(record.events("ep-small"))  # imports JAX, to verify it
    assert httpx.post(f"{served.url}/episodes", content=small, timeout=120).status_code == 201
    frame = {"list": [{"a": i, "b": [1, 2, 3], "c": "text"} for i in range(70)]}
    waits: list[float] = []
    for attempt in range(3):  # the best of three: other processes may use this machine
        sent = record.events(f"ep-{attempt}", steps=9000)
        for event in sent[1:-1]:
            event["payload"]["frame"] = frame
        body = record.lines(sent)
        assert len(body) > 24e6
        before, waited = served.memory(), []
        with ThreadPoolExecutor(1) as pool, httpx.Client(base_url=served.url, timeout=60) as http:
            imported = pool.submit(httpx.post, f"{served.url}/episodes", content=body, timeout=120)
            while not imported.done():
                began = time.monotonic()
                assert http.get("/health").status_code == 200
                waited.append(time.monotonic() - began)
        assert imported.result().status_code == 201
        assert served.memory() - before < 4 * len(body)
        waits.append(max(waited))
        if waits[-1] < 0.2:
            return
    pytest.fail(f"the longest waits were {waits} s")


@pytest.mark.conformance
def test_memory_stays_flat_under_a_flood_of_events(serve: Serve) -> None:
    """Half an hour at 20 events a second is 36,000 events; here they come as fast as possible."""
    served = serve("--no-warm", "--connections", "1000")

    def post(episodes: range) -> None:
        with httpx.Client(timeout=60) as client:
            for i in episodes:
                body = record.lines(record.events(f"ep-{i}", steps=398, pad="x" * 300))
                assert client.post(f"{served.url}/custom/events", content=body).status_code == 200

    post(range(10))
    before = served.memory()
    post(range(10, 100))
    time.sleep(0.1)
    assert served.memory() - before < 20e6
