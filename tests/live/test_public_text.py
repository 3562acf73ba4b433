"""Answers and events do not reveal hosts or folders of the server; the catalogue is computed once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from kibitz.core.play.events import Event
from kibitz.live.app import create_app
from kibitz.live.config import LiveConfig
from kibitz.live.http import catalogue, openapi
from kibitz.live.public_text import public_text
from kibitz.live.store.stored_event import StoredEvent
from kibitz.live.stream.bus_observer import BusObserver
from tests.live.openenv_server import serving


@pytest.mark.parametrize(
    ("sentence", "public"),
    [
        ("HTTP 500 from http://10.0.0.5:8000/v1: boom", "HTTP 500 from a server: boom"),
        ("No reply from https://user:secret@llm.internal/v1.", "No reply from a server."),
        ('reach "10.1.2.3", db.internal:5432 or [fd00::1]:5432', 'reach "a server", a server or a server'),
        ("There is no run in '/srv/my/runs/first'; name one.", "There is no run in 'first'; name one."),
        ("Cannot read ~/.config/kibitz/llm.yaml: bad.", "Cannot read llm.yaml: bad."),
        ("xllamacpp cannot load /home/me/a.gguf; check it.", "xllamacpp cannot load a.gguf; check it."),
        ("There is no model 'org/name' and/or n/a at 12:30.", "There is no model 'org/name' and/or n/a at 12:30."),
        ("See /openapi.json; 3/4 of policy:1234.", "See /openapi.json; 3/4 of policy:1234."),
    ],
)  # fmt: skip
def test_addresses_and_folders_are_removed_and_words_stay(sentence: str, public: str) -> None:
    assert public_text(sentence) == public


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("secret-place")
    broken = folder / "runs" / "broken" / "checkpoints"
    broken.mkdir(parents=True)
    (broken.parent / "run.json").write_text(json.dumps({"game": "deal_or_no_deal", "seed": 1}), encoding="utf-8")
    (broken / "000000000001.safetensors").write_bytes(b"no checkpoint")
    return folder


@pytest.fixture(scope="module")
def base(folder: Path) -> Iterator[str]:
    app = create_app(LiveConfig(store=str(folder / "a.db"), warm=False, runs=folder / "runs", max_episodes=8))
    with serving(app) as url:
        yield url
    app.state.bus.store.close()


def test_no_answer_names_a_folder_of_the_server(base: str, folder: Path) -> None:
    with httpx.Client(base_url=base, timeout=60) as client:
        start = {"game": "deal_or_no_deal"}
        answers = [
            client.get("/custom/presets"),
            client.get("/runs/broken.json"),
            client.get("/runs/none.json"),
            client.post("/custom/start_episode", json=start | {"players": ["policy:broken", "heuristic"]}),
            client.post("/custom/start_episode", json=start | {"players": ["policy:none", "heuristic"]}),
            client.post("/custom/start_episode", json=start | {"options": {"dataset_path": str(folder)}}),
            client.post("/envs/deal_or_no_deal/reset", json={"opponent": "policy:broken"}),
            client.post("/envs/cricket/reset", json={"elevens": str(folder / "none.yaml")}),
        ]
    assert {answer.status_code for answer in answers} >= {200, 404, 422}
    for answer in answers:
        assert str(folder) not in answer.text and "secret-place" not in answer.text, answer.request.url


def test_a_players_error_names_no_address_in_public_events() -> None:
    sent: list[StoredEvent] = []

    class Kept:
        def send(self, event: StoredEvent) -> None:
            sent.append(event)

        def close(self) -> None: ...

    observer = BusObserver(episode_id="ep-1", outlet=Kept())
    why = "PlayerFailed: HTTP 500 from http://10.0.0.5:8000/v1"
    observer(Event("ep-1", 3, 1.0, "decision", {"seat": 0, "fallback": why, "act": [1]}))
    observer(Event("ep-1", 4, 1.0, "decision", {"seat": 0, "fallback": "", "act": [1]}))
    assert [one.event.payload["fallback"] for one in sent] == ["PlayerFailed: HTTP 500 from a server", ""]


def test_the_catalogue_and_the_openapi_document_are_computed_once(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[str] = []

    def counting(name: str, known: Any) -> Any:
        return lambda *values: (computed.append(name), known(*values))[1]

    monkeypatch.setattr(catalogue, "REFRESH_SECONDS", 60.0)
    monkeypatch.setattr(catalogue, "games", counting("games", catalogue.games))
    monkeypatch.setattr(openapi, "describe_games", counting("openapi", openapi.describe_games))
    with httpx.Client(base_url=base, timeout=60) as client, ThreadPoolExecutor(8) as pool:
        for path in ("/custom/presets", "/openapi.json"):
            answers = list(pool.map(client.get, [path] * 20))
            assert {answer.status_code for answer in answers} == {200}
        tag = client.get("/openapi.json").headers["etag"]
        assert client.get("/openapi.json", headers={"if-none-match": tag}).status_code == 304
        assert client.get("/envs/cricket/openapi.json").json()["paths"]["/reset"]
    assert computed.count("games") <= 1 and computed.count("openapi") <= 1


def test_a_new_run_is_listed_after_a_few_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "games", lambda runs, default: {"runs": len(list(runs.iterdir()))})
    now = [100.0]
    # the catalogue's clock only: the event loop of the server above would sleep until its own one came back
    monkeypatch.setattr(catalogue, "time", SimpleNamespace(monotonic=lambda: now[0]))
    kept = catalogue.Catalogue(tmp_path)

    async def ask() -> list[int]:
        found = [(await kept.games())["runs"]]
        (tmp_path / "new").mkdir()
        for seconds in (0.0, catalogue.REFRESH_SECONDS):
            now[0] += seconds
            found.append((await kept.games())["runs"])
        return found

    assert asyncio.run(ask()) == [0, 0, 1]
