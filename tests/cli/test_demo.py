"""Parts of the demo; tests/test_packaging.py runs the whole of it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from kibitz.cli.output import curve

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
