"""`BusObserver`: both drivers hand it their events, whether the server runs in this process or elsewhere."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from typing import Any, Protocol

from kibitz.core.play.events import Event
from kibitz.live.store.stored_event import StoredEvent
from kibitz.live.stream.env_recorder import EnvRecorder
from kibitz.live.stream.outlets import HttpOutlet, Outlet


class TextToSpeech(Protocol):
    """Speaks a line in the background; the URL of its audio is known at once. None: captions only."""

    def say(self, text: str) -> str | None: ...


class BusObserver:
    """Receives the events of one episode in order, adds the URLs of spoken lines and passes the events on.

    `play_episode` calls it directly. Code that steps an environment itself calls `start`, then `before_step` and
    `after_step` for each step, then `end`.
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
        game: str = "cricket",
    ) -> None:
        self.episode_id = episode_id or f"ep-{secrets.token_hex(6)}"
        self.about = {"mode": mode, "task": task, "opponent_mode": opponent_mode, "eval_pack_id": eval_pack_id}
        self._tts, self._open = tts, open_table
        self._recorder = EnvRecorder(game, self.episode_id, (mode, opponent_mode), self.about | {"open": open_table})
        self._outlet = outlet or HttpOutlet(base_url, token, http_client)

    async def start(self, obs: Any) -> None:
        """Call after the environment's reset; `obs` is its first observation."""
        await self._send(self._recorder.started(obs))

    async def before_step(self, action: Any, obs: Any, *, turn: int) -> dict[str, Any]:
        """Returns what `after_step` takes as `pre`."""
        await self._send(self._recorder.decision(action, turn))
        return self._recorder.before(obs)

    async def after_step(
        self, action: Any, pre: dict[str, Any], next_obs: Any, reward: float | None, *, turn: int
    ) -> None:
        await self._send(self._recorder.step(pre, next_obs, reward, turn))

    async def end(self, state: Any) -> None:
        """Returns once the server has everything."""
        await self._send(self._recorder.ended(state))
        await asyncio.to_thread(self.close)

    async def _send(self, events: list[Event]) -> None:
        for event in events:
            await asyncio.to_thread(self, event)

    def __call__(self, event: Event) -> None:
        self._outlet.send(StoredEvent(with_audio(event, self._tts), self._open))

    def close(self) -> None:
        """Returns once everything is delivered."""
        self._outlet.close()


def with_audio(event: Event, tts: TextToSpeech | None) -> Event:
    """A commentary event with the URL of its audio, if there is a voice. A foreign driver's event may lack a text."""
    if tts is None or event.type not in ("commentary", "episode.ended") or not event.payload.get("text"):
        return event
    return replace(event, payload={**event.payload, "audio": tts.say(event.payload["text"])})
