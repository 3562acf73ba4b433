"""Redis and PostgreSQL as real servers, on free ports, in temporary folders."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

RECENT = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))


def missing(reason: str) -> None:
    """Skips, but under CI=true what is missing is a failure."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def wait_until(holds: Callable[[], bool], seconds: float = 20.0, what: str = "it") -> None:
    """Asks again and again; fails once it has waited for so long."""
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends, f"{what} did not come in {seconds:g} s"
        time.sleep(0.01)


def answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


class Redis:
    """Can be taken away and brought back at the same port."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("redis-server")
        if program is None:
            missing("redis-server is not installed (apt-get install redis-server)")
        self.port, self._folder, self._program = free_port(), folder, str(program)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        words = [
            self._program,
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            str(self._folder),
        ]
        self._process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        wait_until(lambda: answers(self.port), what="redis")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None


class Postgres:
    """Can be taken away and brought back with what it had."""

    def __init__(self) -> None:
        if not RECENT:
            missing("PostgreSQL is not installed (apt-get install postgresql)")
        # not in pytest's folder: pytest closes that to everybody but its own user again and again
        self._folder = Path(tempfile.mkdtemp(prefix="kibitz-postgres-"))
        self._bin, self._data, self.port = RECENT[-1], self._folder / "data", free_port()
        self._as: list[str] = []
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            self._as = ["runuser", "-u", "postgres", "--"]
            shutil.chown(self._folder, "postgres")
        self._process: subprocess.Popen[bytes] | None = None
        words = [
            str(self._bin / "initdb"),
            "-D",
            str(self._data),
            "-A",
            "trust",
            "-U",
            "kibitz",
            "--no-sync",
            "-E",
            "UTF8",
        ]
        subprocess.run([*self._as, *words], check=True, stdout=subprocess.DEVNULL, cwd="/")
        self.start()
        self._made = 0

    def start(self) -> None:
        words = [str(self._bin / "postgres"), "-D", str(self._data), "-p", str(self.port), "-k", str(self._data)]
        quick = ["-c", "fsync=off", "-c", "listen_addresses=127.0.0.1", "-c", "shared_buffers=16MB"]
        with open(self._data.parent / "log", "ab") as log:
            self._process = subprocess.Popen([*self._as, *words, *quick], stdout=log, stderr=log, cwd="/")
        ready = [str(self._bin / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        wait_until(lambda: subprocess.run(ready).returncode == 0, what="postgresql")

    def stop(self) -> None:
        """At once, as if it had crashed."""
        pid = self._data / "postmaster.pid"
        if pid.exists():
            words = [str(self._bin / "pg_ctl"), "-D", str(self._data), "-m", "immediate", "-w", "stop"]
            subprocess.run(
                [*self._as, *words], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/"
            )
        if self._process is not None:
            self._process.wait(20)
            self._process = None

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It takes connections and requests, and does nothing."""
        first = (self._data / "postmaster.pid").read_text().splitlines()[0]
        others = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        everyone = [int(pid) for pid in [first, *others]]
        for pid in everyone:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            # runuser stops itself when its child is stopped
            for pid in [*everyone, *([self._process.pid] if self._process else [])]:
                os.kill(pid, signal.SIGCONT)

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def fresh(self) -> str:
        """The address of an empty database."""
        import psycopg

        self._made += 1
        with psycopg.connect(self.url("postgres"), autocommit=True) as db:
            db.execute(f"create database fresh{self._made}")  # type: ignore[call-overload]
        return self.url(f"fresh{self._made}")

    def url(self, name: str) -> str:
        return f"postgresql://kibitz@127.0.0.1:{self.port}/{name}"
