"""Times what a newcomer does first, from the wheel alone: `python tools/first_hour.py dist/kibitz-*.whl`.

Everything happens in a temporary folder: a virtual environment, a home folder without caches, the runs. It prints a
table in Markdown with the seconds on the clock and of the processor, and the load before each step.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

EXTRAS = "live,logs,embedded,studies"
TRAIN = "train --steps 3000000 --out runs/alone"
STUDY = "study hints --sources none,shuffled,expert --algos ppo --seeds 3 --steps 300000 --out runs/study"
WAIT_SECONDS = 900.0


class Newcomer:
    """An empty home folder and a virtual environment."""

    def __init__(self, home: Path) -> None:
        self.home = home
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "PYTHON", "KIBITZ"))}
        self.variables = {**kept, "HOME": str(home)}

    def start(self, *words: str, **more: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(words, cwd=self.home, env=self.variables, text=True, **more)

    def run(self, *words: str) -> None:
        with self.start(*words, stdout=subprocess.DEVNULL) as process:
            if process.wait():
                sys.exit(f"{' '.join(words)} failed with exit code {process.returncode}")

    def kibitz(self, line: str) -> tuple[str, ...]:
        return str(self.home / "venv" / "bin" / "kibitz"), *line.split()


def timed(step: str, command: str, work: Callable[[], None]) -> None:
    load, began, used = os.getloadavg()[0], time.monotonic(), processor_seconds()
    work()
    seconds, cpu = time.monotonic() - began, processor_seconds() - used
    print(f"| {step} | `{command}` | {seconds:.0f} | {load:.1f} | {cpu:.0f} |", flush=True)


def processor_seconds() -> float:
    """Of all processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def install(newcomer: Newcomer, wheel: Path) -> None:
    newcomer.run(sys.executable, "-m", "venv", "venv")
    newcomer.run("venv/bin/python", "-m", "pip", "install", "-q", f"{wheel}[{EXTRAS}]")


def begin_study(newcomer: Newcomer) -> None:
    """Ends it at the first row of its metrics."""
    with newcomer.start(*newcomer.kibitz(STUDY), stdout=subprocess.DEVNULL) as process:
        cells = newcomer.home / "runs" / "study" / "cells"
        wait_until(
            lambda: any(path.read_text(encoding="utf-8").count("\n") > 1 for path in cells.glob("*/metrics.csv"))
        )
        process.terminate()


def take_a_seat(newcomer: Newcomer) -> None:
    """Until the home page is there and it is a person's turn."""
    line = "serve --port 0 --store evening.db --json"
    with newcomer.start(*newcomer.kibitz(line), stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        address = re.search(r"http://[\w.]+:\d+", server.stdout.readline())
        assert address, "the server printed no address"
        assert b"<title>" in urllib.request.urlopen(address[0], timeout=WAIT_SECONDS).read()
        body = json.dumps({"game": "deal_or_no_deal", "players": ["human", "bayes"]}).encode()
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{address[0]}/custom/start_episode", body, headers)
        started = json.load(urllib.request.urlopen(request, timeout=WAIT_SECONDS))
        turn = f"{address[0]}/episodes/{started['episode_id']}/turn?seat_token={started['seat_token']}"
        wait_until(lambda: json.load(urllib.request.urlopen(turn, timeout=WAIT_SECONDS))["your_turn"])
        server.terminate()


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not holds():
        if time.monotonic() > end:
            sys.exit(f"nothing within {WAIT_SECONDS:.0f} seconds")
        time.sleep(0.1)


def main() -> None:
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_file():
        sys.exit("Name the wheel: python tools/first_hour.py dist/kibitz-VERSION-py3-none-any.whl")
    wheel = Path(sys.argv[1]).resolve()
    print("| step | command | seconds | load | processor seconds |\n| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as home:
        newcomer = Newcomer(Path(home))
        timed("install", f'pip install "kibitz[{EXTRAS}]"', lambda: install(newcomer, wheel))
        timed("a trained policy", f"kibitz {TRAIN}", lambda: newcomer.run(*newcomer.kibitz(TRAIN)))
        timed("a running study, at the first row of its metrics", f"kibitz {STUDY}", lambda: begin_study(newcomer))
        timed("a person's first turn", "kibitz serve", lambda: take_a_seat(newcomer))
        timed("the embedded model", "kibitz llm install", lambda: newcomer.run(*newcomer.kibitz("llm install")))


if __name__ == "__main__":
    main()
