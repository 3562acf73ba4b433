"""Redis, PostgreSQL and nginx as real servers, on free ports, in temporary folders. They end with the tests."""

from __future__ import annotations

import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

CONFIGURATION = Path(__file__).resolve().parents[2] / "deploy" / "nginx.conf"
VERSIONS = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))


def ends_with_tests(command: list[str], number: str = "KILL") -> list[str]:
    """The kernel sends the program this signal when its parent ends, even by kill -9.

    Not by `preexec_fn`, which forks in Python; JAX warns of that.
    """
    return ["setpriv", "--pdeathsig", number, *command] if shutil.which("setpriv") else command


def missing(reason: str) -> None:
    """Skips the test; fails it on CI."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def free_port() -> int:
    """Below the ports that the system gives to connections, so that none takes it while its server restarts."""
    for port in random.SystemRandom().sample(range(10_000, 32_000), 100):
        with socket.socket() as taken, suppress(OSError):
            taken.bind(("127.0.0.1", port))
            return port
    raise OSError("no port is free")


def wait_until(holds: Callable[[], bool], seconds: float = 60.0, what: str = "it") -> None:
    """Polls; fails after `seconds`."""
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends, f"{what} did not happen within {seconds:g} s"
        time.sleep(0.01)


def answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


class Redis:
    """Can be stopped and started again on the same port."""

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
        command = [
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
        self._process = subprocess.Popen(ends_with_tests(command), stdout=subprocess.DEVNULL)
        wait_until(lambda: answers(self.port), what="redis")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)
            self._process = None


class Postgres:
    """Can be stopped and started again with its data."""

    def __init__(self) -> None:
        if not VERSIONS:
            missing("PostgreSQL is not installed (apt-get install postgresql)")
        # not in pytest's folder, which only its own user may enter
        self._folder = Path(tempfile.mkdtemp(prefix="kibitz-postgres-"))
        self._bin, self._data, self.port = VERSIONS[-1], self._folder / "data", free_port()
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            user = pwd.getpwnam("postgres")
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            shutil.chown(self._folder, "postgres")
        self._process: subprocess.Popen[bytes] | None = None
        command = [
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
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/", **self._as)
        self.start()
        self._made = 0

    def start(self) -> None:
        command = [str(self._bin / "postgres"), "-D", str(self._data), "-p", str(self.port), "-k", str(self._data)]
        settings = ["-c", "fsync=off", "-c", "listen_addresses=127.0.0.1", "-c", "shared_buffers=16MB"]
        with open(self._data.parent / "log", "ab") as log:
            whole = ends_with_tests([*command, *settings], "QUIT")  # which also ends its children
            self._process = subprocess.Popen(whole, stdout=log, stderr=log, cwd="/", **self._as)
        ready = [str(self._bin / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        wait_until(lambda: subprocess.run(ready).returncode == 0, what="postgresql")

    def stop(self) -> None:
        """Immediately, like a crash."""
        pid = self._data / "postmaster.pid"
        if pid.exists():
            command = [str(self._bin / "pg_ctl"), "-D", str(self._data), "-m", "immediate", "-w", "stop"]
            subprocess.run(
                command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", **self._as
            )
        if self._process is not None:
            self._process.wait(60)
            self._process = None

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Accepts connections and requests, but answers none."""
        postmaster = (self._data / "postmaster.pid").read_text().splitlines()[0]
        others = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        pids = [int(pid) for pid in [postmaster, *others]]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
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


class Nginx:
    """The proxy of deploy/nginx.conf, in front of servers on these ports."""

    def __init__(self, folder: Path, ports: list[int]) -> None:
        program = shutil.which("nginx")
        if program is None:
            missing("nginx is not installed (apt-get install nginx-light)")
        self.port = free_port()
        text = CONFIGURATION.read_text(encoding="utf-8")
        for number, port in enumerate(ports, 1):
            text = text.replace(f"server kibitz-{number}:8000", f"server 127.0.0.1:{port}")
        assert "kibitz-" not in text.replace("kibitz-nginx.pid", ""), "the file names more servers than there are"
        text = text.replace("listen 8080", f"listen 127.0.0.1:{self.port}").replace(
            "/tmp/kibitz-nginx.pid", "nginx.pid"
        )
        (folder / "nginx.conf").write_text(text, encoding="utf-8")
        command = [str(program), "-p", str(folder), "-c", "nginx.conf", "-g", "daemon off; master_process off;"]
        self._process = subprocess.Popen(ends_with_tests(command))
        wait_until(lambda: answers(self.port), what="nginx")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)
