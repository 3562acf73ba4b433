"""The demo trains, compares, serves, plays both games live and ends cleanly."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from kibitz.cli.output import curve
from tests.cli.test_commands import AT_A_TERMINAL

SHORT = ("demo", "--no-browser", "--steps", "4096", "--episodes", "64")


@pytest.mark.conformance  # runs the whole demo
def test_ctrl_c_ends_the_demo_and_its_server_cleanly(tmp_path: Path) -> None:
    command = [sys.executable, "-c", AT_A_TERMINAL, *SHORT]
    demo = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert demo.stdout is not None
    shown = []
    try:
        for line in demo.stdout:
            shown.append(line)
            if "Ctrl-C" in line:
                break
        time.sleep(0.5)  # it has printed its last line and now waits
        demo.send_signal(signal.SIGINT)
        _, errors = demo.communicate(timeout=60)
    finally:
        demo.terminate()  # also ends its server
    assert demo.returncode == 130, errors
    assert errors.endswith("kibitz: stopped.\n")
    assert "/e/ep-" in "".join(shown)
    assert "Traceback" not in errors


# the demo's last part, without the training before it
WAITING = """
import sys, time
from pathlib import Path
from kibitz.cli import demo
with demo.interrupted_by_signals():
    try:
        with demo.live_server(Path(sys.argv[1]), True) as url:
            print(url, flush=True)
            time.sleep(120)
    except KeyboardInterrupt:
        print("ended", flush=True)
"""


@pytest.mark.parametrize("kind", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.conformance)])
def test_terminating_the_demo_ends_its_server(tmp_path: Path, kind: signal.Signals) -> None:
    words = [sys.executable, "-c", WAITING, str(tmp_path)]
    demo = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert demo.stdout is not None
    url = demo.stdout.readline().strip()
    assert httpx.get(f"{url}/health").status_code == 200
    demo.send_signal(kind)
    rest, errors = demo.communicate(timeout=30)
    assert (demo.returncode, rest.strip(), errors) == (0, "ended", "")
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health")


def test_the_curve_rises_with_its_points_and_stops_at_the_current_step() -> None:
    drawn = curve([(0.25, 0.6), (0.5, 0.8)], width=8, height=4).splitlines()
    assert len(drawn) == 4 + 2
    bottom = drawn[3][7:]
    assert bottom[0] == " " and bottom[1] != " " and bottom[4:] == "    "
    assert drawn[1][7:][3] != " " and drawn[1][7:][1] == " "
