"""Requests from one server to another, over Redis publish/subscribe: for what only the other can do.

Redis keeps nothing of them. A call to a server that is gone fails at once, because no one receives it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import orjson

log = logging.getLogger("kibitz.live")
CHANNEL = "kibitz:server:{}"
EVERY_SERVER = "kibitz:servers"
CALL_SECONDS = 5.0  # for an answer
POLL_SECONDS = 2.0  # less than the connection's own timeout
RETRY_SECONDS = 0.25
Answer = dict[str, Any]


class PeerUnavailable(Exception):
    """The server that plays an episode cannot be asked."""

    def __init__(self) -> None:
        super().__init__("The server that plays this episode does not answer; try again in a few seconds.")


async def _no_answer(request: Answer) -> Answer:
    return {}


class Calls:
    """`answer` handles the other servers' requests; both are JSON objects."""

    def __init__(self, redis: Any, error: type[Exception]) -> None:
        self._redis, self._errors = redis, (error, OSError)
        self.answer: Callable[[Answer], Awaitable[Answer]] = _no_answer
        self.heard: Callable[[str, Answer], None] = lambda server, news: None  # what another server tells every server
        self._me = ""
        self._waiting: dict[str, asyncio.Future[Answer]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def call(self, server: str, request: Answer) -> Answer:
        """The other server's answer; PeerUnavailable if none comes."""
        call_id = secrets.token_hex(8)
        answered = self._waiting[call_id] = asyncio.get_running_loop().create_future()
        try:
            if not await self._send(server, {"id": call_id, "from": self._me, "request": request}):
                raise PeerUnavailable
            return await asyncio.wait_for(answered, CALL_SECONDS)
        except (*self._errors, TimeoutError):
            raise PeerUnavailable from None
        finally:
            del self._waiting[call_id]

    async def tell(self, news: Answer) -> None:
        """Sends news to every server. They are lost while Redis is unreachable."""
        with suppress(*self._errors):
            await self._redis.publish(EVERY_SERVER, orjson.dumps({"from": self._me, "news": news}))

    async def _send(self, server: str, message: Answer) -> int:
        """How many received it."""
        return int(await self._redis.publish(CHANNEL.format(server), orjson.dumps(message)))

    async def run(self, me: str) -> None:
        """Receives requests and answers for the server `me`, until cancelled."""
        self._me = me
        while True:
            try:
                async with self._redis.pubsub(ignore_subscribe_messages=True) as channel:
                    await channel.subscribe(CHANNEL.format(me), EVERY_SERVER)
                    while True:
                        if received := await channel.get_message(timeout=POLL_SECONDS):
                            self._receive(orjson.loads(received["data"]))
            except self._errors:  # RedisLink logs the outage
                await asyncio.sleep(RETRY_SECONDS)
            except Exception:
                log.exception("cannot read another server's request")
                await asyncio.sleep(RETRY_SECONDS)

    def _receive(self, message: Answer) -> None:
        if "news" in message:
            if message["from"] != self._me:
                self.heard(message["from"], message["news"])
            return
        if "answer" in message:
            answered = self._waiting.get(message["id"])
            if answered is not None and not answered.done():
                answered.set_result(message["answer"])
            return
        task = asyncio.create_task(self._respond(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _respond(self, message: Answer) -> None:
        try:
            answer = await self.answer(message["request"])
            await self._send(message["from"], {"id": message["id"], "answer": answer})
        except Exception:  # the caller gives up by itself
            log.exception("cannot answer another server's request")
