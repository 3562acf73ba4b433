"""The demo does its whole journey: train, compare, serve, play both games live, end cleanly."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from kibitz.cli.output import curve

Command = Callable[..., subprocess.CompletedProcess[str]]
SHORT = ("demo", "--no-browser", "--steps", "20000", "--episodes", "64")


@pytest.mark.conformance  # a minute with every cache empty
def test_the_demo_for_machines_plays_both_games_to_the_end(
    kibitz: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # its run lands here
    done = kibitz(*SHORT, "--exit", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found["players"]) == {"random", "heuristic", "trained", "bayes"}
    assert found["players"]["bayes"]["return_mean"] > found["players"]["random"]["return_mean"]
    cricket, negotiation = found["live"]["episodes"]
    assert (cricket["game"], cricket["status"]) == ("cricket", "ended")
    assert (negotiation["game"], negotiation["status"]) == ("deal_or_no_deal", "ended")
    assert negotiation["players"][0].startswith("policy:")


# the command at a terminal: whoever runs these tests in the background may have told them to ignore the key
INTERRUPTED = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from kibitz.cli import main
main()
"""


@pytest.mark.conformance  # the same minute once more
def test_ctrl_c_ends_the_demo_and_its_server_cleanly(tmp_path: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTED, *SHORT]
    demo = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert demo.stdout is not None
    shown = []
    try:
        for line in demo.stdout:
            shown.append(line)
            if "Ctrl-C" in line:
                break
        time.sleep(0.5)  # it waits for the key now
        demo.send_signal(signal.SIGINT)
        rest, complaints = demo.communicate(timeout=60)
    finally:
        demo.terminate()  # it takes its server with it
    assert demo.returncode == 0, complaints
    assert "The demo ends." in rest
    assert "/e/ep-" in "".join(shown)
    assert "Traceback" not in complaints


# what the demo does while it waits for somebody to end it, without the minute of training before
WAITING = """
import sys, time
from pathlib import Path
from kibitz import demo
with demo.ended_by_signals():
    try:
        with demo._server(Path(sys.argv[1]), True) as url:
            print(url, flush=True)
            time.sleep(120)
    except KeyboardInterrupt:
        print("ended", flush=True)
"""


@pytest.mark.parametrize("kind", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.conformance)])
def test_a_demo_that_is_terminated_takes_its_server_with_it(tmp_path: Path, kind: signal.Signals) -> None:
    words = [sys.executable, "-c", WAITING, str(tmp_path)]
    demo = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert demo.stdout is not None
    url = demo.stdout.readline().strip()
    assert httpx.get(f"{url}/health").status_code == 200
    demo.send_signal(kind)
    rest, complaints = demo.communicate(timeout=30)
    assert (demo.returncode, rest.strip(), complaints) == (0, "ended", "")
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health")


def test_the_curve_rises_with_its_points_and_stops_where_training_is() -> None:
    drawn = curve([(0.25, 0.6), (0.5, 0.8)], width=8, height=4).splitlines()
    assert len(drawn) == 4 + 2
    bottom = drawn[3][7:]
    assert bottom[0] == " " and bottom[1] != " " and bottom[4:] == "    "
    assert drawn[1][7:][3] != " " and drawn[1][7:][1] == " "
