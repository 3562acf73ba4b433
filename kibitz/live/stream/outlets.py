"""`BusObserver`: what both drivers hand their events to, whether the server is in this process or elsewhere."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import httpx

from kibitz.core.play.events import Event
from kibitz.live.store.stored_event import StoredEvent
from kibitz.live.stream.bus import Bus
from kibitz.live.stream.env_recorder import EnvRecorder

BUFFER = 10_000  # events that wait while the server is away; then the match waits too
BATCH = 200  # events in one request


class Speech(Protocol):
    """Turns a line into audio in its own time; the address is known at once."""

    def say(self, text: str) -> str | None: ...


class Outlet(Protocol):
    def send(self, event: StoredEvent) -> None: ...

    def close(self) -> None: ...


class Refused(Exception):
    """The server will not take this episode; trying again would not help."""


class BusObserver:
    """Called with each event of an episode, in order; adds the audio's address and passes it on."""

    def __init__(
        self,
        http_client: Any = None,
        base_url: str = "",
        episode_id: str = "",
        mode: str = "",
        task: str = "custom_episode",
        opponent_mode: str = "heuristic",
        eval_pack_id: str = "default",
        tts: Speech | None = None,
        *,
        token: str = "",
        outlet: Outlet | None = None,
        open_table: bool = False,
        game: str = "cricket",
    ) -> None:
        self.episode_id = episode_id or f"ep-{secrets.token_hex(6)}"
        self.about = {"mode": mode, "task": task, "opponent_mode": opponent_mode, "eval_pack_id": eval_pack_id}
        self._tts, self._open = tts, open_table
        self._told = EnvRecorder(game, self.episode_id, (mode, opponent_mode), self.about | {"open": open_table})
        self._outlet = outlet or HttpOutlet(base_url, token, http_client)

    async def start(self, obs: Any) -> None:
        """An environment driven by hand has been reset; `obs` is what it showed."""
        await self._pass_on(self._told.started(obs))

    async def before_step(self, action: Any, obs: Any, *, turn: int) -> dict[str, Any]:
        """What `after_step` needs to know of the moment before."""
        await self._pass_on(self._told.decision(action, turn))
        return self._told.moment(obs)

    async def after_step(
        self, action: Any, pre: dict[str, Any], next_obs: Any, reward: float | None, *, turn: int
    ) -> None:
        await self._pass_on(self._told.step(pre, next_obs, reward, turn))

    async def end(self, state: Any) -> None:
        """Returns once the server has everything."""
        await self._pass_on(self._told.ended(state))
        await asyncio.to_thread(self.close)

    async def _pass_on(self, events: list[Event]) -> None:
        for event in events:
            await asyncio.to_thread(self, event)

    def __call__(self, event: Event) -> None:
        self._outlet.send(StoredEvent(with_audio(event, self._tts), self._open))

    def close(self) -> None:
        """Returns once everything is delivered."""
        self._outlet.close()


def with_audio(event: Event, tts: Speech | None) -> Event:
    """A line of commentary with the address of its audio, if there is a voice."""
    if tts is None or event.type not in ("commentary", "episode.ended") or not event.payload.get("text"):
        return event
    return replace(event, payload={**event.payload, "audio": tts.say(event.payload["text"])})


class LocalOutlet:
    """The server is in this process: commit, then show."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._broken: Exception | None = None

    def send(self, event: StoredEvent) -> None:
        """After one event could not be stored none may follow: there would be a hole."""
        if self._broken is not None:
            raise self._broken
        try:
            self._bus.publish(event)
        except Exception as error:
            self._broken = error
            raise

    def close(self) -> None:
        """Everything is committed already."""


class HttpOutlet:
    """Delivers in order, without gaps or doubles, from a thread of its own; waits while the server is away."""

    def __init__(
        self,
        base_url: str,
        token: str = "",
        client: httpx.Client | None = None,
        say: Callable[[str], None] = lambda line: None,
        give_up: float = float("inf"),
    ) -> None:
        self._url = base_url.rstrip("/") + "/custom/events"
        self._client = client if isinstance(client, httpx.Client) else httpx.Client(timeout=15.0)
        self._headers = {"content-type": "application/x-ndjson"}
        if token:
            self._headers["authorization"] = f"Bearer {token}"
        self._say, self._give_up = say, give_up
        self._waiting: deque[StoredEvent] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._refused: Exception | None = None
        self.retries = 0
        self._worker = threading.Thread(target=self._work, name="publisher", daemon=True)
        self._worker.start()

    def send(self, event: StoredEvent) -> None:
        _ = event.body  # serialised in the thread that made it
        with self._changed:
            while len(self._waiting) >= BUFFER and self._refused is None:
                self._changed.wait(1.0)
            if self._refused is not None:
                raise self._refused
            self._waiting.append(event)
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._worker.join()
        self._client.close()
        if self._refused is not None:
            raise self._refused

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if not self._waiting:
                    return
                batch = [self._waiting[i] for i in range(min(BATCH, len(self._waiting)))]
            try:
                upto = self._deliver(batch)
            except Exception as error:  # without this thread nothing would be delivered, and nobody would know
                with self._changed:
                    self._refused = error if isinstance(error, Refused) else Refused(f"{type(error).__name__}: {error}")
                    self._changed.notify_all()
                return
            with self._changed:
                while self._waiting and self._waiting[0].seq < upto:
                    self._waiting.popleft()
                self._changed.notify_all()

    def _deliver(self, batch: list[StoredEvent]) -> int:
        """Seq up to which the server has everything."""
        body = b"\n".join(event.body for event in batch)
        pause, began = 0.05, time.monotonic()
        while True:
            try:
                answer = self._client.post(self._url, content=body, headers=self._headers)
            except httpx.TransportError as error:
                problem = f"{type(error).__name__}"
            else:
                if answer.status_code == 200:
                    return int(answer.json()["next"])
                if answer.status_code not in (429, 500, 502, 503, 504):
                    raise Refused(f"The server answered {answer.status_code}: {_sentence(answer)}")
                problem = f"{answer.status_code}: {_sentence(answer)}"
            self.retries += 1
            if time.monotonic() - began > self._give_up:
                raise Refused(f"The server has been away for {self._give_up:g} s ({problem}).")
            if self.retries == 1:
                self._say(f"The server is away ({problem}); events wait for it.")
            time.sleep(pause)
            pause = min(pause * 2, 1.0)


def _sentence(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:200]
