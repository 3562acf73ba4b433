"""`kibitz serve` in its own process, without importing everything again.

Imports take a second per server, and a test run starts about a hundred. So one process imports what `kibitz serve`
needs, and each server is a fork of it that runs the command as usual. Nothing is compiled before the fork and JAX
has no backend there, so the fork loses no threads.
"""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

ROOT = Path(__file__).resolve().parents[2]
IMPORTED = ["kibitz.cli", "kibitz.live.serve", "kibitz.live.episodes.prepare", "kibitz.live.voice.commentator",
            "kibitz.games.cricket", "kibitz.games.deal_or_no_deal"]  # fmt: skip
_FORKS = multiprocessing.get_context("forkserver")


class Child:
    """One command, with those methods of `subprocess.Popen` that tests use."""

    def __init__(self, words: list[str], env: dict[str, str]) -> None:
        _FORKS.set_forkserver_preload(IMPORTED)
        reading, writing = _FORKS.Pipe(duplex=False)
        self._process = _FORKS.Process(target=_run, args=(words, env, writing), daemon=True)
        with _no_main():
            self._process.start()
        writing.close()
        self.stdout: IO[str] = os.fdopen(os.dup(reading.fileno()), encoding="utf-8")
        reading.close()

    @property
    def pid(self) -> int:
        return int(self._process.pid or 0)

    def first_line(self, seconds: float) -> str:
        """The first line of output; empty if the process ended or printed nothing in time."""
        ready, _, _ = select.select([self.stdout], [], [], seconds)
        return self.stdout.readline() if ready else ""

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("kibitz", timeout)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@contextmanager
def _no_main() -> Iterator[None]:
    """Hides pytest's main module, which a child would import first."""
    main = sys.modules["__main__"]
    names = ("__spec__", "__file__")
    kept = {name: vars(main)[name] for name in names if name in vars(main)}
    vars(main).update(dict.fromkeys(names))
    try:
        yield
    finally:
        for name in names:  # an attribute that was absent stays absent: Ray takes a main file of None for a name
            del vars(main)[name]
        vars(main).update(kept)


def _run(words: list[str], env: dict[str, str], writing: Connection) -> None:
    """In the fork: runs the command as if a shell had started it."""
    from kibitz.__main__ import main

    tests = multiprocessing.parent_process()
    assert tests is not None
    threading.Thread(target=lambda: wait([tests.sentinel]) and os._exit(1), daemon=True).start()  # ends with the tests
    os.dup2(writing.fileno(), 1)
    writing.close()
    os.environ.update(env)
    os.chdir(ROOT)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.argv = ["kibitz", *words]
    main()
