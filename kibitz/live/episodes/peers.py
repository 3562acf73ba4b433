"""What only the server that plays an episode can do: a person's seat, and stopping it.

A request may reach any of the servers that share a store; this passes it on to the right one.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kibitz.core.errors import BadInput
from kibitz.live.episodes.runner import NotYours, Runner
from kibitz.live.store.base import Query, Row
from kibitz.live.store.stored_event import ID

Answer = dict[str, Any]
MAX_RUNNING = 200  # listed


class Peers:
    """Requests and answers are JSON objects, whether they stay here or go to another server."""

    def __init__(self, runner: Runner) -> None:
        self._runner, self._bus = runner, runner.bus
        if self._bus.link is not None:
            self._bus.link.calls.answer = self.answer

    async def join(self, episode_id: str, token: str) -> Answer:
        """The `seat` that this token opens, whose person has joined; `wrong_token` if the episode runs without it."""
        return await self.ask(episode_id, "join", token=token)

    async def stop(self, episode_id: str | None, only_of: str | None) -> str | None:
        """Stops this episode, or the newest one; returns its id, or None if it is not running.

        `only_of`: raises NotYours unless this is who started it.
        """
        if episode_id is None and not self._runner.running:
            episode_id = next((row.episode_id for row in await self._elsewhere()), None)
        answer = await self.ask(episode_id or next(reversed(self._runner.running), ""), "stop", only_of=only_of)
        if answer.get("not_yours"):
            raise NotYours
        stopped: str | None = answer.get("stopped")
        return stopped

    async def running(self) -> list[Answer]:
        """Metadata of the episodes that any server plays."""
        here = [episode.meta() for episode in list(self._runner.running.values())]
        known = {meta["episode_id"] for meta in here}
        return here + [_meta(row) for row in await self._elsewhere() if row.episode_id not in known]

    async def _elsewhere(self) -> list[Row]:
        if not self._bus.store.shared:
            return []
        rows = await asyncio.to_thread(self._bus.store.episodes, Query(status="running", limit=MAX_RUNNING))
        return [row for row in rows if row.origin == "server" and row.owner != self._bus.store.owner]

    async def ask(self, episode_id: str, do: str, **more: Any) -> Answer:
        """Passes the request on to the server that plays the episode; an empty answer if none does."""
        request = {"episode_id": episode_id, "do": do, **more}
        link, store = self._bus.link, self._bus.store
        if episode_id in self._runner.running or link is None:
            return await self.answer(request)
        row = await asyncio.to_thread(store.episode, episode_id) if ID.fullmatch(episode_id) else None
        if row is None or row.status != "running" or row.origin != "server" or row.owner == store.owner:
            return {}
        return await link.calls.call(row.owner, request)

    async def answer(self, request: Answer) -> Answer:
        """Does what is asked of an episode that this server plays."""
        from kibitz.live.episodes.human_seat import NotYourTurn

        episode_id, do = request["episode_id"], request["do"]
        if do == "stop":
            try:
                return {"stopped": self._runner.stop(episode_id, request["only_of"])}
            except NotYours:
                return {"not_yours": True}
        found = self._runner.seat_of(episode_id, request["token"])
        if found is None:
            return {"wrong_token": episode_id in self._runner.running}
        seat, person = found
        if do == "turn":
            return {"seat": seat, "turn": await asyncio.to_thread(person.asked)}
        if do == "act":
            try:
                act, text, turn = request["act"], request["text"], request["turn"]
                return {"seat": seat, "accepted": await asyncio.to_thread(person.submit, act, text, turn)}
            except NotYourTurn as problem:
                return {"seat": seat, "conflict": str(problem)}
            except BadInput as problem:
                return {"seat": seat, "invalid": str(problem)}
        return {"seat": seat}


def _meta(row: Row) -> Answer:
    first, second = row.players
    return {
        "episode_id": row.episode_id,
        "game": row.game,
        "players": [first, second],
        "captain": first,
        "opponent": second,
        "started_at": row.started_at,
    }
