"""Ctrl-C ends real processes promptly, with exit code 130 and what was done saved."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kibitz.evaluate.match import CHUNK
from tests.llm.fake_server import FakeServer
from tests.train.conftest import last_checkpoint, row_count

# A test run in the background inherits an ignored SIGINT; a command at a terminal does not.
COMMAND = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from kibitz.__main__ import main
main()
"""
COMPILED_SOONER = {"XLA_FLAGS": "--xla_backend_optimization_level=0"}  # what is stopped need not be fast
LIMIT_SECONDS = 5.0  # a second on a quiet machine; saving and ending need a processor

STUCK = """
import signal, sys, time
from kibitz.core.system import interrupt
interrupt.watch()
signal.signal(signal.SIGINT, lambda *_: None)  # as if the main thread could not react
with interrupt.rescue(lambda: print("saved")):
    print("ready", flush=True)
    while True:
        time.sleep(60)
"""
FINISHING = """
import signal, sys, time
from kibitz.core.system import interrupt
interrupt.watch()
noticed = []
signal.signal(signal.SIGINT, lambda *_: noticed.append(interrupt.finishing()))
print("ready", flush=True)
while not noticed:
    time.sleep(0.01)
time.sleep(1)
print("ended by itself", flush=True)
interrupt.exit_now(7)
"""
DISGUISED = """
import os, signal, sys, time, types
signal.signal(signal.SIGINT, signal.default_int_handler)

def run():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    except KeyboardInterrupt:
        raise ImportError("Encountered an error while initializing the extension.")

sys.modules["kibitz.cli"] = types.SimpleNamespace(main=run)
from kibitz.__main__ import main
main()
"""
PLAYING = """
import os, signal
from contextlib import contextmanager
from kibitz.cli import output
signal.signal(signal.SIGINT, signal.default_int_handler)

@contextmanager
def progress(*_, **more):
    batches = []

    def advance(count):
        batches.append(count)
        if len(batches) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    yield advance

output.progress = progress
from kibitz.__main__ import main
main()
"""


class Process:
    """A process, and how it ends after a signal."""

    def __init__(self, script: str, *words: str, cwd: Path | None = None, **env: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, *words], cwd=cwd, env={**os.environ, **COMPILED_SOONER, **env}, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def wait_until(self, ready: Callable[[], Any], seconds: float = 600.0) -> None:
        late = time.monotonic() + seconds
        while not ready():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < late
            time.sleep(0.01)

    def stop(self, kind: signal.Signals = signal.SIGINT, limit: float = LIMIT_SECONDS) -> tuple[int, str, str]:
        """Exit code, output, errors, after a signal to the whole group, as a terminal sends it."""
        began = time.monotonic()
        os.killpg(self.process.pid, kind)
        out, err = self.process.communicate(timeout=60)
        seconds = time.monotonic() - began
        assert seconds < limit, f"{seconds:.1f} s, {err}"
        assert "Traceback" not in err
        return self.process.returncode, out, err


def running_below(ancestors: set[int]) -> set[int]:
    """Processes that these have started, and those started by them, that have not ended."""
    found = set[int]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent = path.read_text(encoding="utf-8").rpartition(")")[2].split()[:2]
            if int(parent) in ancestors and state != "Z":
                found.add(int(path.parent.name))
    return found | running_below(found) if found else found


def running(process: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    return False


def test_a_main_thread_that_cannot_react_is_ended_and_its_work_saved() -> None:
    with Process(STUCK) as process:
        assert process.process.stdout is not None
        assert process.process.stdout.readline() == "ready\n"
        assert process.stop(limit=60) == (130, "saved\n", "kibitz: stopped.\n")


def test_ctrl_c_in_the_initialisation_of_an_extension_is_not_an_error() -> None:
    with Process(DISGUISED) as process:
        assert process.process.communicate(timeout=60) == ("", "kibitz: stopped.\n")
        assert process.process.returncode == 130


@pytest.mark.conformance
def test_a_command_that_has_noticed_ctrl_c_ends_in_its_own_way() -> None:
    with Process(FINISHING) as process:
        assert process.process.stdout is not None
        assert process.process.stdout.readline() == "ready\n"
        process.process.send_signal(signal.SIGINT)
        assert process.process.communicate(timeout=60)[0] == "ended by itself\n"
        assert process.process.returncode == 7


@pytest.mark.conformance
@pytest.mark.timed
@pytest.mark.parametrize(
    ("words", "seconds"), [("evaluate --player bayes --episodes 20000", 4.0), ("train --steps 100000000", 1.5)]
)
def test_a_process_ends_while_it_imports_and_compiles(words: str, seconds: float, tmp_path: Path) -> None:
    with Process(COMMAND, *words.split(), cwd=tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache")) as process:
        time.sleep(seconds)
        code, out, err = process.stop()
        assert code == 130 and err.endswith("kibitz: stopped.\n")
        assert not out or "episodes before Ctrl-C" in out, "a quick machine has played some"


@pytest.mark.conformance
@pytest.mark.timed
@pytest.mark.parametrize(
    "words",
    [
        "bench live --watchers 20 --seconds 60",
        "study hints --sources none,expert --algos ppo --steps 30000000 --out study --workers 2",
        "teach data --rows 500000 --out rows.jsonl --workers 2",
        "tournament --players bayes,heuristic --episodes 200000 --out rated --workers 2",
    ],
)
def test_a_command_ends_with_every_process_that_it_started(words: str, tmp_path: Path) -> None:
    with Process(COMMAND, *words.split(), cwd=tmp_path) as process:
        process.wait_until(lambda: running_below({process.process.pid}))
        time.sleep(2)  # they import and compile now
        started = running_below({process.process.pid})
        code, _, err = process.stop()
        assert code == 130 and err.endswith("kibitz: stopped.\n")
        late = time.monotonic() + 60
        while any(map(running, started)):
            assert time.monotonic() < late, "a process outlived the command that started it"
            time.sleep(0.01)


@pytest.mark.conformance
@pytest.mark.timed
@pytest.mark.parametrize(("kind", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_server_ends_during_its_warm_up(kind: signal.Signals, code: int, tmp_path: Path) -> None:
    words = ("serve", "--port", "0", "--json", "--store", "episodes.db")
    with Process(COMMAND, *words, cwd=tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache")) as process:
        assert process.process.stdout is not None
        assert json.loads(process.process.stdout.readline())["url"]
        time.sleep(2)  # its warm-up thread compiles now
        assert process.stop(kind)[0] == code


@pytest.mark.conformance
@pytest.mark.timed
def test_training_is_saved_in_the_middle_of_a_long_program(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    # seconds for each row, whatever recipe is the default
    long = ("train.num_envs=512", "train.minibatch=8192", "train.epochs=1", "train.hidden=[16]",
            "logging.log_every=1000000", "logging.eval_every=600000000", "logging.tensorboard=false")  # fmt: skip
    options = [word for value in long for word in ("--set", value)]
    with Process(COMMAND, "train", "--steps", "600000000", "--out", str(folder), *options, cwd=tmp_path) as process:
        process.wait_until(lambda: row_count(folder) > 0)
        time.sleep(0.3)  # the next rows are being computed
        assert process.stop()[0] == 130
        first = int(float((folder / "metrics.csv").read_text().splitlines()[1].split(",")[0]))
        assert int(last_checkpoint(folder).stem.removeprefix("step_")) >= first


@pytest.mark.conformance
@pytest.mark.timed
def test_an_evaluation_stopped_between_questions_reports_what_it_has(presets: FakeServer, tmp_path: Path) -> None:
    with Process(
        COMMAND, "evaluate", "--player", "llm:fake-slow", "--episodes", "500", "--json", cwd=tmp_path
    ) as process:
        process.wait_until(lambda: len(presets.of("slow")) > 160)  # of sixteen games at a time
        code, out, err = process.stop()
        found = json.loads(out)
        assert (code, err) == (130, "kibitz: stopped.\n")
        assert found["interrupted"] and 0 < found["episodes"] < 500
        assert found["prompt_tokens"] >= 300 * (len(presets.of("slow")) - 17)


@pytest.mark.conformance
def test_a_compiled_evaluation_reports_the_batches_that_have_ended(tmp_path: Path) -> None:
    words = ("evaluate", "--player", "random", "--opponent", "random", "--episodes", "5000", "--json")
    with Process(PLAYING, *words, cwd=tmp_path) as process:
        out, err = process.process.communicate(timeout=600)
        found = json.loads(out)
        assert (process.process.returncode, err) == (130, "kibitz: stopped.\n")
        assert found["interrupted"] and found["episodes"] == 3 * CHUNK


@pytest.mark.conformance
@pytest.mark.timed
def test_an_evaluation_of_hints_stopped_between_questions_reports_what_it_has(
    presets: FakeServer, tmp_path: Path
) -> None:
    words = ("hints", "evaluate", "--source", "llm:fake-slow", "--states", "2000", "--json")
    with Process(COMMAND, *words, cwd=tmp_path) as process:
        process.wait_until(lambda: len(presets.of("slow")) > 60)
        code, out, err = process.stop(limit=10)  # scoring what has arrived takes 0.4 s of a processor
        found = json.loads(out)
        assert (code, err) == (130, "kibitz: stopped.\n")
        assert found["interrupted"] and 30 < found["states"] < 2000
        assert found["legal_share"] > 0.3 and found["hint_regret_mean"] is not None
        assert found["failed"] == sum(found["failures"].values()) < found["states"]


@pytest.mark.conformance
@pytest.mark.timed
def test_training_stopped_between_questions_is_saved_and_can_be_resumed(presets: FakeServer, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    options = ("hints.provider=fake-slow", "hints.cache=null", "train.rollout=8", "train.minibatch=64",
               "logging.log_every=64", "logging.eval_every=640", "logging.tensorboard=false")  # fmt: skip
    words = ["train", "--hint", "llm", "--steps", "6400", "--out", str(folder), "--json"]
    words += [word for value in options for word in ("--set", value)]
    with Process(COMMAND, *words, cwd=tmp_path) as process:
        process.wait_until(lambda: row_count(folder) > 1)
        asked = len(presets.of("slow"))
        process.wait_until(lambda: len(presets.of("slow")) > asked)
        code, out, err = process.stop()
        assert code == 130, err
        found = json.loads(out)
        assert not found["finished"] and found["steps"] >= 128
        assert last_checkpoint(folder).stem == f"step_{found['steps']:012d}"
        assert json.loads((folder / "run.json").read_text())["hints"]["calls"] >= asked
