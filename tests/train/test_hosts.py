"""Training across hosts: two processes train what two devices of one process train, and process 0 writes the run."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from kibitz.core.errors import BadInput
from kibitz.core.xla.hosts import place_among
from tests.live.machines import free_port
from tests.train.conftest import TINY, TWO_DEVICES, Command, assert_same_run, merged, row_count


def test_the_place_of_a_host_is_that_of_its_own_name() -> None:
    own = {"two", "two.example.org", "10.0.0.2"}
    assert place_among(["one", "two"], own) == ("one:8476", 2, 1)
    assert place_among(["10.0.0.2:99", "10.0.0.3"], own) == ("10.0.0.2:99", 2, 0)
    for hosts in (["one", "three"], ["two", "10.0.0.2"], ["two", ""]):
        with pytest.raises(BadInput, match="JAX_PROCESS_ID"):
            place_among(hosts, own)


def _start(command: Command, out: Path, *words: str) -> list[subprocess.Popen[str]]:
    shared = {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{free_port()}", "JAX_NUM_PROCESSES": "2"}
    outs = (out, out.parent / "others")
    return [
        command.start(*words, "--out", str(outs[number]), **shared, JAX_PROCESS_ID=str(number)) for number in range(2)
    ]


def _words(folder: Path, steps: int) -> tuple[str, ...]:
    path = folder / "tiny.yaml"
    changes = {
        "train": {"num_train_steps": steps},
        "logging": {"log_every": 32, "save_every": steps, "eval_every": steps},
    }
    path.write_text(yaml.safe_dump(merged(TINY, changes)), encoding="utf-8")
    return ("train", "--config", str(path), "--json")


def _ended(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    outputs = [process.communicate(timeout=240) for process in processes]
    return [(process.returncode, *output) for process, output in zip(processes, outputs, strict=True)]


@pytest.mark.conformance
def test_two_processes_train_what_two_devices_train_also_after_an_interruption(
    command: Command, tmp_path: Path
) -> None:
    words = _words(tmp_path, 12800)
    alone = command(*words, "--out", str(tmp_path / "devices"), XLA_FLAGS=TWO_DEVICES)
    assert alone.returncode == 0, alone.stderr
    folder = tmp_path / "hosts"
    processes = _start(command, folder, *words)
    late = time.monotonic() + 120
    while row_count(folder) < 2 and time.monotonic() < late:
        time.sleep(0.005)
    processes[1].send_signal(signal.SIGINT)  # the other one stops with it
    stopped = _ended(processes)
    assert [code for code, *_ in stopped] == [130, 130], stopped
    assert row_count(folder) < row_count(tmp_path / "devices")
    resumed = _ended(_start(command, folder, *words, "--resume"))
    assert [code for code, *_ in resumed] == [0, 0], resumed
    assert json.loads(resumed[0][1])["finished"] and not resumed[1][1], "only process 0 prints"
    assert_same_run(folder, tmp_path / "devices")
    assert not (tmp_path / "others").exists()


@pytest.mark.conformance
def test_all_hosts_refuse_what_the_first_one_refuses(command: Command, tmp_path: Path) -> None:
    ended = _ended(_start(command, tmp_path, *_words(tmp_path, 64)))
    assert [code for code, *_ in ended] == [2, 2], ended
    assert "is not empty" in ended[0][2] and "Another host refused" in ended[1][2]
