"""Commentary as sound: a line goes in, the address of a WAV file comes out at once.

    speech = open_speech()                    # the best voice that works here, chosen once
    url = speech.say("Four through the covers.")        # "/audio/3f..e1.wav", or None: captions only
    app.include_router(speech.router())       # serves it, and waits while it is still being spoken

The seam: `Telling` leaves `audio` None; whoever passes events on calls `say` before the event is committed
(`BusObserver(tts=speech)` does, `attach(event)` is the same for others). The address is a hash of voice
and text, so the same line has the same address in every process. A voice that fails is a note and a
count; the match goes on with captions.
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
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import FileResponse, JSONResponse

from kibitz.core.paths import cache_folder, write_whole
from kibitz.core.play.events import Event, spoken
from kibitz.live.voice.speakers import CartesiaTTS, Chosen, Speaker, Unspoken, choose, chosen

__all__ = ["CartesiaTTS", "Chosen", "Speaker", "Speech", "choose", "chosen", "open_speech"]

log = logging.getLogger("kibitz.live")

NAME = re.compile(r"[0-9a-f]{32}\.wav")
MOST = 256 << 20  # bytes of the cache
LONGEST = 400  # characters of a line that are spoken
WAITING = 32  # lines not yet spoken; a voice slower than the match leaves some out
PATIENCE, REST = 3, 60.0  # failures in a row, and for how many seconds the voice is then left alone
WAIT = 10.0  # seconds a listener waits for a line


def clean(text: str) -> str:
    """A line as a voice may have it: printable, without what some voices read as instructions, not endless."""
    plain = "".join(c if c.isprintable() else " " for c in text[: 4 * LONGEST])
    plain = plain.encode("utf-8", "ignore").decode()  # a lone half of a character cannot be written
    return " ".join(re.sub(r"[\[\]<>{}|]", " ", plain).split())[:LONGEST]


class Speech:
    """One voice and the folder of what it has said. Safe to call from any thread; never raises, never waits."""

    def __init__(self, speaker: Speaker, folder: str | Path, *, most: int = MOST, why: str = "") -> None:
        self.speaker, self.folder, self.why = speaker, Path(folder), why
        self.counts = {"said": 0, "made": 0, "kept": 0, "failed": 0, "left_out": 0}
        self.note = ""  # of the last failure
        self._most, self._lock = most, threading.Lock()
        self._under_way: dict[str, Future[None]] = {}
        self._failed: OrderedDict[str, str] = OrderedDict()  # name -> why
        self._in_row, self._rest_until = 0, 0.0
        self._worker = ThreadPoolExecutor(1, "kibitz-speech")
        self._silent = not speaker.audible

    def say(self, text: str) -> str | None:
        """Where the line can be heard, or None if it will not be."""
        line = clean(text)
        if self._silent or not any(c.isalnum() for c in line):
            return None
        name = self.name_of(line)
        with self._lock:
            self.counts["said"] += 1
            if name not in self._under_way:
                if self._kept(name):
                    self.counts["kept"] += 1
                elif time.monotonic() < self._rest_until or len(self._under_way) >= WAITING:
                    self.counts["left_out"] += 1
                    return None
                else:
                    try:
                        self._under_way[name] = self._worker.submit(self._make, name, line)
                    except RuntimeError:  # closed
                        return None
        return f"/audio/{name}"

    def attach(self, event: Event) -> Event:
        """The event with the address of its line, for whoever commits it."""
        line = spoken(event)
        return replace(event, payload={**event.payload, "audio": self.say(line)}) if line else event

    def name_of(self, line: str) -> str:
        return hashlib.sha256(f"{self.speaker.voice}\0{line}".encode()).hexdigest()[:32] + ".wav"

    def described(self) -> dict[str, Any]:
        """For people: which voice, why no better one, and how it does."""
        return {"speaker": self.speaker.name, "why": self.why, "counts": dict(self.counts), "note": self.note}

    async def heard(self, name: str, wait: float = WAIT) -> Path | str:
        """The file, or the sentence that says why there is none."""
        if not NAME.fullmatch(name):
            return "There is no such audio; names are 32 hexadecimal digits and .wav."
        with self._lock:
            under_way = self._under_way.get(name)
        if under_way is not None:
            await asyncio.wait([asyncio.wrap_future(under_way)], timeout=wait)
        path = self.folder / name
        if path.is_file():
            return path
        with self._lock:
            late = "It was not spoken in time." if name in self._under_way else "There is no such audio."
            return self._failed.get(name, late)

    def router(self) -> APIRouter:
        """`GET /audio/{name}`."""
        routes = APIRouter(tags=["speech"])

        @routes.get("/audio/{name}", response_class=FileResponse, responses={404: {"description": "not spoken"}})
        async def audio(name: str) -> Response:
            """A spoken line; waits a while if it is still being spoken."""
            found = await self.heard(name)
            if isinstance(found, str):
                return JSONResponse({"error": found}, 404, headers={"Cache-Control": "no-store"})
            kept = {"Cache-Control": "public, max-age=31536000, immutable"}  # the name says all of the content
            return FileResponse(found, media_type="audio/wav", headers=kept)

        return routes

    def close(self) -> None:
        """What waits is dropped; the line being spoken is finished."""
        self._worker.shutdown(wait=True, cancel_futures=True)
        self.speaker.close()

    def _kept(self, name: str) -> bool:
        try:
            os.utime(self.folder / name)  # the least recently said goes first
        except OSError:
            return False
        return True

    def _make(self, name: str, line: str) -> None:
        try:
            sound = self.speaker.speak(line)
            self._write(name, sound)
            made = None
        except Unspoken as failure:
            made = str(failure)
        except Exception as error:  # a voice is somebody else's code, and a disk may be full
            log.debug("the voice %s failed", self.speaker.name, exc_info=True)
            made = f"{self.speaker.name} failed with {type(error).__name__}."
        with self._lock:
            self._under_way.pop(name, None)
            self._count(name, made)

    def _count(self, name: str, failure: str | None) -> None:
        if failure is None:
            self.counts["made"] += 1
            self._in_row = 0
            self._failed.pop(name, None)
            return
        self.counts["failed"] += 1
        self.note, self._failed[name] = failure, failure
        if len(self._failed) > 256:
            self._failed.popitem(last=False)
        self._in_row += 1
        if self._in_row == 1 and self.counts["failed"] == 1:
            log.warning("no speech for a line: %s The match goes on with captions.", failure)
        if self._in_row >= PATIENCE:
            self._rest_until = time.monotonic() + REST
            self._in_row = PATIENCE - 1  # after the rest one try decides

    def _write(self, name: str, sound: bytes) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / name, sound)
        self._trim()

    def _trim(self) -> None:
        """The least recently said lines go until the rest fits; so do parts that a crash left an hour ago."""
        files = []
        for path in self.folder.iterdir():
            with suppress(OSError):
                stat = path.stat()
                if NAME.fullmatch(path.name):
                    files.append((stat.st_mtime_ns, stat.st_size, path))
                elif path.suffix == ".part" and time.time() - stat.st_mtime > 3600:
                    path.unlink()
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files)[:-1]:  # what was just said stays
            if total <= self._most:
                break
            with suppress(OSError):
                path.unlink()
                total -= size


def open_speech(folder: str | Path | None = None, choice: Chosen | None = None) -> Speech:
    """With the voice chosen for this process, in the user's cache folder unless another is given."""
    picked = choice or chosen()
    return Speech(picked.speaker, folder or cache_folder() / "audio", why=picked.why)
