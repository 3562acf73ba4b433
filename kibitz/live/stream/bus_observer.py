"""`BusObserver`: both drivers hand it their events, whether the server runs in this process or elsewhere."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from dataclasses import replace
from functools import cache
from typing import Any, Protocol

from kibitz.core.errors import BadInput
from kibitz.core.play.events import LAST, Event
from kibitz.live.public_text import public_text
from kibitz.live.store.stored_event import StoredEvent
from kibitz.live.stream.env_recorder import EnvRecorder
from kibitz.live.stream.outlets import HttpOutlet, Outlet, server_address

LEVEL_VARIABLE = "EPISODE_LOG_LEVEL"


class TextToSpeech(Protocol):
    """The protocol of every speech object: `CartesiaTTS`, and what `open_speech` returns."""

    @property
    def enabled(self) -> bool:
        """Whether lines can be spoken here."""

    async def start(self) -> None:
        """Prepares the voice, so that the first line does not wait for it."""

    def say(self, text: str) -> str | None:
        """Speaks a line in the background and returns the URL of its audio at once. None: captions only."""

    async def aclose(self) -> None:
        """Finishes the lines that wait, within limits."""


class BusObserver:
    """Receives the events of one episode in order, adds the URLs of spoken lines and passes the events on.

    `play_episode` calls it directly. Code that steps an environment itself calls `start`, then `before_step` and
    `after_step` for each step, then `end`. An empty `base_url` means the usual server: the address in the variable
    CRICKET_LOCAL_BASE_URL, or else port 8000 of this machine. Without `game`, the first observation names the game.
    """

    def __init__(
        self,
        http_client: Any = None,
        base_url: str = "",
        episode_id: str = "",
        mode: str = "",
        task: str = "custom_episode",
        opponent_mode: str = "heuristic",
        eval_pack_id: str = "default",
        tts: TextToSpeech | None = None,
        *,
        token: str = "",
        outlet: Outlet | None = None,
        open_table: bool = False,
        game: str = "",
    ) -> None:
        self.episode_id = episode_id or f"ep-{secrets.token_hex(6)}"
        self.about = {"mode": mode, "task": task, "opponent_mode": opponent_mode, "eval_pack_id": eval_pack_id}
        self._tts, self._open = tts, open_table
        self._recorder = EnvRecorder(self.episode_id, (mode, opponent_mode), self.about | {"open": open_table}, game)
        self._outlet = outlet
        self._server = () if outlet is not None else (server_address(base_url), token, http_client)
        self._log = episode_log()

    async def start(self, obs: Any) -> None:
        """Call after the environment's reset; `obs` is its first observation."""
        events = self._recorder.started(obs)
        self._connected()  # here, where the event loop of an AsyncClient runs
        await self._send(events)

    async def before_step(self, action: Any, obs: Any, *, turn: int) -> dict[str, Any]:
        """Returns what `after_step` takes as `pre`.

        The decision is published with its step: the other side may choose meanwhile, and must not see it.
        """
        return self._recorder.before(obs)

    async def after_step(
        self, action: Any, pre: dict[str, Any], next_obs: Any, reward: float | None, *, turn: int
    ) -> None:
        await self._send(self._recorder.step(action, pre, next_obs, reward, turn))

    async def end(self, state: Any) -> None:
        """Returns once the server has everything; DeliveryRefused if it is away for too long."""
        await self._send(self._recorder.ended(state))
        await asyncio.to_thread(self.close)

    async def _send(self, events: list[Event]) -> None:
        for event in events:
            await asyncio.to_thread(self, event)

    def __call__(self, event: Event) -> None:
        if event.type == "episode.started":
            self._log.info("started ep=%s captain=%s opponent=%s", self.episode_id, *event.payload["players"])
        self._connected().send(StoredEvent(with_audio(_published(event), self._tts), self._open))
        if event.type in LAST:
            ended = "finished" if event.type == "episode.ended" else f"failed ({event.payload['reason']})"
            self._log.info("%s ep=%s steps=%s", ended, self.episode_id, event.payload["steps"])

    def close(self) -> None:
        """Returns once everything is delivered."""
        if self._outlet is not None:
            self._outlet.close()

    def _connected(self) -> Outlet:
        if self._outlet is None:
            self._outlet = HttpOutlet(*self._server)
        return self._outlet


@cache
def episode_log() -> logging.Logger:
    """Says when episodes start and finish.

    EPISODE_LOG_LEVEL sets its level, and also shows the lines in a program that has not set up logging.
    """
    log = logging.getLogger("kibitz.live.episode")
    if level := os.environ.get(LEVEL_VARIABLE, "").upper():
        if level not in logging.getLevelNamesMapping():
            raise BadInput(f"{LEVEL_VARIABLE} is {level!r:.80}; use DEBUG, INFO, WARNING or ERROR.")
        log.setLevel(level)
        if not log.hasHandlers():
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter("%(asctime)s [episode] %(message)s", datefmt="%H:%M:%S"))
            log.addHandler(handler)
    return log


def _published(event: Event) -> Event:
    """Without what an error of a player, of a provider for example, says about other machines."""
    why = event.payload.get("fallback")
    return replace(event, payload={**event.payload, "fallback": public_text(why)}) if why else event


def with_audio(event: Event, tts: TextToSpeech | None) -> Event:
    """A commentary event with the URL of its audio, if there is a voice. A foreign driver's event may lack a text."""
    if tts is None or event.type not in ("commentary", "episode.ended") or not event.payload.get("text"):
        return event
    return replace(event, payload={**event.payload, "audio": tts.say(event.payload["text"])})
