"""The client without an event loop, and lazy imports."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kibitz.core.errors import BadInput
from kibitz.llm.answers.answer import Answer
from kibitz.llm.client.blocking import BlockingClient
from kibitz.llm.client.client import Client, connect
from kibitz.llm.presets import Preset
from tests.llm.conftest import questions, words
from tests.llm.test_client import PRESET, Scripted, numbers


def test_many_threads_share_one_client(answer: Answer) -> None:
    provider = Scripted()
    with BlockingClient(lambda: Client(PRESET, provider)) as client, ThreadPoolExecutor(8) as threads:
        batches = list(threads.map(lambda _: numbers(client.ask_many(questions(20, answer))), range(8)))
    assert batches == [list(range(20))] * 8
    assert len(provider.asked) < 8 * 20  # identical questions shared a call


def _threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "kibitz-llm"}


def test_closing_twice_is_allowed_and_leaves_no_thread(answer: Answer) -> None:
    before = _threads()
    client = BlockingClient(lambda: Client(PRESET, Scripted()))
    assert client.ask(words(), answer).ok
    client.close()
    client.close()
    assert _threads() <= before


def test_a_client_that_fails_to_start_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    before = _threads()
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    preset = Preset(provider="groq", model="x", key_env="NO_SUCH_KEY")
    with pytest.raises(BadInput, match="NO_SUCH_KEY is not set"):
        BlockingClient(lambda: connect(preset))
    assert _threads() <= before


def test_heavy_libraries_load_only_when_a_provider_is_asked() -> None:
    modules = "kibitz.llm.client.client, kibitz.llm.client.blocking, kibitz.llm.answers.prompt"
    code = f"import sys, {modules}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "transformers", "xgrammar", "xllamacpp", "openai", "httpx"} & set(loaded)
