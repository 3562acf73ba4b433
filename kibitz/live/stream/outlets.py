"""Where a driver's events go: into the bus of this process, or to a server over HTTP."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

import httpx

from kibitz.core.errors import BadInput
from kibitz.live.store.stored_event import StoredEvent
from kibitz.live.stream.bus import Bus

log = logging.getLogger("kibitz.live")

USUAL_SERVER = "http://127.0.0.1:8000"
SERVER_VARIABLE = "CRICKET_LOCAL_BASE_URL"  # names another server, for every game
GIVE_UP_SECONDS = 30.0  # of unsuccessful retries
REQUEST_SECONDS = 15.0  # for each phase of a request
MAX_QUEUED_EVENTS = 10_000  # while the server is unreachable; beyond that the episode waits too
MAX_REQUEST_EVENTS = 200
RETRY_STATUSES = (429, 500, 502, 503, 504)


class DeliveryRefused(Exception):
    """The server rejects this episode, so retrying would not help."""


def server_address(given: str = "") -> str:
    """A server's address without its final slash; BadInput if it cannot be one. Empty: the usual server."""
    address = given or os.environ.get(SERVER_VARIABLE, "") or USUAL_SERVER
    try:
        url = httpx.URL(address)
    except (httpx.InvalidURL, TypeError):
        url = httpx.URL()
    if url.scheme not in ("http", "https") or not url.host:
        where = "" if given else f" in the variable {SERVER_VARIABLE}"
        raise BadInput(f"{address!r:.80}{where} is not the address of a server; write one such as {USUAL_SERVER}.")
    return address.rstrip("/")


class Outlet(Protocol):
    def send(self, event: StoredEvent) -> None: ...

    def close(self) -> None:
        """Returns once every event is delivered."""


class LocalOutlet:
    """The server runs in this process: commit, then show."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._failure: Exception | None = None

    def send(self, event: StoredEvent) -> None:
        """Once one event could not be stored, refuses all later ones: the record must have no gap."""
        if self._failure is not None:
            raise self._failure
        try:
            self._bus.publish(event)
        except Exception as error:
            self._failure = error
            raise

    def close(self) -> None:
        """Every event is already committed."""


class HttpOutlet:
    """Delivers events in order, without gaps or duplicates, from its own thread; retries while the server is away."""

    def __init__(
        self,
        base_url: str = "",
        token: str = "",
        client: httpx.Client | httpx.AsyncClient | None = None,
        report: Callable[[str], None] = log.warning,
        give_up: float | None = None,
    ) -> None:
        """`report` learns once that the server is away; after `give_up` seconds of retries the delivery fails.

        A given client stays open; an AsyncClient is used on the event loop that runs here.
        """
        self.key = secrets.token_urlsafe(24)  # of this episode; the server accepts its events with this key only
        headers = {"content-type": "application/x-ndjson", "episode-key": self.key}
        if token:
            headers["authorization"] = f"Bearer {token}"
        self.url = server_address(base_url)
        self._own_client = httpx.Client() if client is None else None
        self._post = _poster(self._own_client or client, headers)
        self._report, self._give_up = report, GIVE_UP_SECONDS if give_up is None else give_up
        self._queue: deque[StoredEvent] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._failure: Exception | None = None
        self.retries = 0
        self._worker = threading.Thread(target=self._work, name="http-outlet", daemon=True)
        self._worker.start()

    def send(self, event: StoredEvent) -> None:
        _ = event.body  # serialise in the caller's thread
        with self._changed:
            while len(self._queue) >= MAX_QUEUED_EVENTS and self._failure is None:
                self._changed.wait(1.0)
            if self._failure is not None:
                raise self._failure
            self._queue.append(event)
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._worker.join()
        if self._own_client is not None:
            self._own_client.close()
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._closed:
                    self._changed.wait()
                if not self._queue:
                    return
                batch = [self._queue[i] for i in range(min(MAX_REQUEST_EVENTS, len(self._queue)))]
            try:
                next_seq = self._deliver(batch)
            except Exception as error:  # the thread must not die silently: nothing else would deliver
                refused = isinstance(error, DeliveryRefused)
                with self._changed:
                    self._failure = error if refused else DeliveryRefused(f"{type(error).__name__}: {error}")
                    self._changed.notify_all()
                return
            with self._changed:
                while self._queue and self._queue[0].seq < next_seq:
                    self._queue.popleft()
                self._changed.notify_all()

    def _deliver(self, batch: list[StoredEvent]) -> int:
        """Returns the seq that the server expects next."""
        body = b"\n".join(event.body for event in batch)
        pause, began = 0.05, time.monotonic()
        while True:
            try:
                answer = self._post(f"{self.url}/custom/events", body)
            except (httpx.TransportError, TimeoutError) as error:
                problem = type(error).__name__
            else:
                if answer.status_code == 200:
                    return int(answer.json()["next"])
                problem = f"{answer.status_code}: {_error_text(answer)}"
                if answer.status_code not in RETRY_STATUSES:
                    raise DeliveryRefused(f"The server answered {problem}")
            self.retries += 1
            place = httpx.URL(self.url).netloc.decode()  # without a password
            if time.monotonic() - began > self._give_up:
                raise DeliveryRefused(
                    f"The server at {place} has been unreachable for {self._give_up:g} s ({problem})."
                )
            if self.retries == 1:
                self._report(f"The server at {place} is unreachable ({problem}); events are queued until it returns.")
            time.sleep(pause)
            pause = min(pause * 2, 1.0)


def _poster(client: object, headers: dict[str, str]) -> Callable[[str, bytes], httpx.Response]:
    """Posts a body from any thread but the client's event loop."""
    if isinstance(client, httpx.Client):
        return lambda url, body: client.post(url, content=body, headers=headers, timeout=REQUEST_SECONDS)
    if not isinstance(client, httpx.AsyncClient):
        kind = type(client).__name__
        raise BadInput(f"http_client is of type {kind}; give an httpx.AsyncClient, an httpx.Client or none.")
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise BadInput("An AsyncClient needs the event loop that it runs on; give an httpx.Client here.") from None

    def post(url: str, body: bytes) -> httpx.Response:
        request = client.post(url, content=body, headers=headers, timeout=REQUEST_SECONDS)
        try:
            answer = asyncio.run_coroutine_threadsafe(request, loop)
        except RuntimeError:  # the loop is closed
            request.close()
            raise
        try:
            return answer.result(2 * REQUEST_SECONDS)
        except TimeoutError:  # the loop is blocked
            answer.cancel()
            raise

    return post


def _error_text(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:200]
