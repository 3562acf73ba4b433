"""Commentary as sound: `say` takes a line and returns the URL of its sound at once.

    speech = open_speech()                           # the best speaker that works here
    url = speech.say("Four through the covers.")     # "/audio/3f..e1.opus", or None: captions only
    app.include_router(speech.router())              # serves the file and waits while it is being made

A recorder leaves an event's `audio` None; `bus_observer.with_audio` fills it in before the event is committed. The URL
is a hash of voice and text, so a line has the same URL in every process. When a speaker fails, the server notes and
counts it, and the match continues with captions.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import FileResponse, JSONResponse

from kibitz.core.system.paths import cache_folder, write_whole
from kibitz.live.public_text import public_text
from kibitz.live.voice.opus import opus_of
from kibitz.live.voice.speakers import Cartesia, ChosenSpeaker, Speaker, SpeechError, default_speaker

log = logging.getLogger("kibitz.live")

FILE_NAME = re.compile(r"[0-9a-f]{32}\.(opus|wav)")  # stored episodes may still name a WAV file
TYPES = {".opus": "audio/ogg", ".wav": "audio/wav"}
MAX_CACHE_BYTES = 256 << 20
MAX_LINE_CHARACTERS = 400
MAX_QUEUED_LINES = 32  # a speaker slower than the match skips lines
MAX_FAILURES = 3  # in a row; then the speaker pauses
PAUSE_SECONDS = 60.0
LISTENER_SECONDS = 10.0  # that a request waits for a line
FOREIGN_SECONDS = 3.0  # that a request waits for a line that another process may be making
POLL_SECONDS = 0.1
FLUSH_SECONDS = 10.0  # that `aclose` waits for queued lines
MAX_REMEMBERED_FAILURES = 256
STALE_PART_SECONDS = 3600  # after which a crash must have left a temporary file


def clean(text: str) -> str:
    """Printable text of limited length, without the characters that some speakers read as instructions."""
    plain = "".join(c if c.isprintable() else " " for c in text[: 4 * MAX_LINE_CHARACTERS])
    plain = plain.encode("utf-8", "ignore").decode()  # a lone surrogate cannot be encoded
    return " ".join(re.sub(r"[\[\]<>{}|]", " ", plain).split())[:MAX_LINE_CHARACTERS]


class Speech:
    """One speaker and its cache of sound files, as `bus_observer.TextToSpeech` describes it.

    `say` works from any thread; it never raises and never waits.
    """

    def __init__(
        self,
        speaker: Speaker,
        folder: str | Path,
        *,
        max_bytes: int = MAX_CACHE_BYTES,
        why: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.speaker, self.folder, self.why = speaker, Path(folder), why
        self.counts = {"said": 0, "made": 0, "kept": 0, "failed": 0, "left_out": 0}
        self.note = ""  # the last failure
        self._max_bytes, self._clock, self._lock = max_bytes, clock, threading.Lock()
        self._queued: dict[str, Future[None]] = {}
        self._failed: OrderedDict[str, str] = OrderedDict()  # file name -> reason
        self._failures_in_row, self._paused_until = 0, 0.0
        self._worker = ThreadPoolExecutor(1, "kibitz-speech")
        self._silent = not speaker.audible

    @property
    def enabled(self) -> bool:
        return self.speaker.audible and not self.speaker.why_not()

    async def start(self) -> None:
        """Loads the voice now. If that fails, the first line says why."""
        with suppress(SpeechError):
            await asyncio.to_thread(self.speaker.prepare)

    async def aclose(self) -> None:
        """Waits for queued lines, for a limited time, and closes."""
        with self._lock:
            queued = [asyncio.wrap_future(future) for future in self._queued.values()]
        if queued:
            await asyncio.wait(queued, timeout=FLUSH_SECONDS)
        await asyncio.to_thread(self.close)

    def say(self, text: str) -> str | None:
        """The URL of the line's sound, or None if it will have none."""
        line = clean(text)
        if self._silent or not any(c.isalnum() for c in line):
            return None
        name = self.file_name(line)
        with self._lock:
            self.counts["said"] += 1
            if name not in self._queued:
                if self._cached(name):
                    self.counts["kept"] += 1
                elif self._clock() < self._paused_until or len(self._queued) >= MAX_QUEUED_LINES:
                    self.counts["left_out"] += 1
                    return None
                else:
                    try:
                        self._queued[name] = self._worker.submit(self._make, name, line)
                    except RuntimeError:  # closed
                        return None
        return f"/audio/{name}"

    def file_name(self, line: str) -> str:
        return hashlib.sha256(f"{self.speaker.voice}\0{line}".encode()).hexdigest()[:32] + ".opus"

    def described(self) -> dict[str, Any]:
        """Which speaker, what better ones lack, and how it performs."""
        why, note = public_text(self.why), public_text(self.note)
        return {"speaker": self.speaker.name, "why": why, "counts": dict(self.counts), "note": note}

    async def find(self, name: str, wait: float = LISTENER_SECONDS) -> Path | str:
        """The file, or the reason why there is none."""
        if not FILE_NAME.fullmatch(name):
            return "There is no such audio; names are 32 hexadecimal digits and .opus."
        with self._lock:
            queued = self._queued.get(name)
        path = self.folder / name
        if queued is not None:
            await asyncio.wait([asyncio.wrap_future(queued)], timeout=wait)
        elif name not in self._failed:
            await _appears(path, FOREIGN_SECONDS)
        if path.is_file():
            return path
        with self._lock:
            late = "The line was not spoken in time." if name in self._queued else "There is no such audio."
            return self._failed.get(name, late)

    def router(self) -> APIRouter:
        """`GET /audio/{name}`."""
        routes = APIRouter(tags=["speech"])

        @routes.get("/audio/{name}", response_class=FileResponse, responses={404: {"description": "not spoken"}})
        async def audio(name: str) -> Response:
            """A spoken line; waits while it is being made."""
            found = await self.find(name)
            if isinstance(found, str):
                return JSONResponse({"error": found}, 404, headers={"Cache-Control": "no-store"})
            cached = {"Cache-Control": "public, max-age=31536000, immutable"}  # the name is a hash of the content
            return FileResponse(found, media_type=TYPES[found.suffix], headers=cached)

        return routes

    def close(self) -> None:
        """Drops queued lines; finishes the current one."""
        self._worker.shutdown(wait=True, cancel_futures=True)
        self.speaker.close()

    def _cached(self, name: str) -> bool:
        try:
            os.utime(self.folder / name)  # the cache deletes the least recently used file first
        except OSError:
            return False
        return True

    def _make(self, name: str, line: str) -> None:
        try:
            self._write(name, opus_of(self.speaker.speak(line)))
            failure = None
        except SpeechError as error:
            failure = str(error)
        except Exception as error:  # a speaker is foreign code, and a disk may be full
            log.debug("the speaker %s failed", self.speaker.name, exc_info=True)
            failure = f"{self.speaker.name} failed with {type(error).__name__}."
        with self._lock:
            self._queued.pop(name, None)
            self._count(name, failure)

    def _count(self, name: str, failure: str | None) -> None:
        if failure is None:
            self.counts["made"] += 1
            self._failures_in_row = 0
            self._failed.pop(name, None)
            return
        self.counts["failed"] += 1
        self.note, self._failed[name] = failure, failure
        if len(self._failed) > MAX_REMEMBERED_FAILURES:
            self._failed.popitem(last=False)
        self._failures_in_row += 1
        if self.counts["failed"] == 1:
            log.warning("a line was not spoken: %s The match continues with captions.", failure)
        if self._failures_in_row >= MAX_FAILURES:
            self._paused_until = self._clock() + PAUSE_SECONDS
            self._failures_in_row = MAX_FAILURES - 1  # after the pause a single failure starts the next one

    def _write(self, name: str, sound: bytes) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / name, sound)
        self._trim()

    def _trim(self) -> None:
        """Deletes the least recently used files until the rest fits, and temporary files that a crash left."""
        files = []
        for path in self.folder.iterdir():
            with suppress(OSError):
                stat = path.stat()
                if FILE_NAME.fullmatch(path.name):
                    files.append((stat.st_mtime_ns, stat.st_size, path))
                elif path.suffix == ".part" and time.time() - stat.st_mtime > STALE_PART_SECONDS:
                    path.unlink()
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files)[:-1]:  # the newest stays
            if total <= self._max_bytes:
                break
            with suppress(OSError):
                path.unlink()
                total -= size


async def _appears(path: Path, seconds: float) -> None:
    """Returns once the file exists, or after `seconds`."""
    deadline = time.monotonic() + seconds
    while not path.is_file() and time.monotonic() < deadline:
        await asyncio.sleep(POLL_SECONDS)


class CartesiaTTS(Speech):
    """Cartesia's voice for a driver of its own; `enabled` with a key in CARTESIA_API_KEY.

    The sound goes into the user's cache folder, from which a server on the same machine serves it.
    """

    def __init__(self, api_key: str | None = None, *, base_url: str | None = None, timeout: float = 8.0) -> None:
        super().__init__(Cartesia(api_key, base_url=base_url, timeout=timeout), cache_folder() / "audio")


def open_speech(folder: str | Path | None = None, choice: ChosenSpeaker | None = None) -> Speech:
    """Uses this process's default speaker and the user's cache folder unless others are given."""
    chosen = choice or default_speaker()
    return Speech(chosen.speaker, folder or cache_folder() / "audio", why=chosen.why)
