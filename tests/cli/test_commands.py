"""The command as people and machines use it, in a process of its own; its help in this one."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from kibitz.cli import app, main
from kibitz.cli import output as show
from kibitz.core.errors import BadInput
from kibitz.live.store.base import open_store

Command = Callable[..., "subprocess.CompletedProcess[str]"]


def test_evaluate_prints_one_object_with_everything(kibitz: Command) -> None:
    done = kibitz("evaluate", "--game", "deal_or_no_deal", "--player", "bayes", "--opponent", "heuristic",
                  "--episodes", "300", "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    names = ("return_mean", "return_ci95", "share_of_ceiling", "share_of_bayes", "regret", "agreement", "pareto",
             "nash_product", "welfare", "turns")  # fmt: skip
    for name in names:
        assert name in found
        assert name in found["opponent"]
    assert done.stdout.count("\n") == 1


def test_evaluate_for_people_is_a_table(kibitz: Command) -> None:
    done = kibitz("evaluate", "--player", "bayes", "--opponent", "bayes", "--episodes", "64")
    assert done.returncode == 0, done.stderr
    assert "share of ceiling" in done.stdout
    assert "bayes" in done.stdout


def test_evaluate_plays_on_a_file_of_contexts(kibitz: Command, selfplay: Path) -> None:
    done = kibitz("evaluate", "--player", "bayes", "--episodes", "400", "--contexts", str(selfplay), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["share_of_ceiling"] > 0.97
    assert found["return_mean"] < 10


def test_a_person_plays_a_whole_game_and_typing_errors_cost_nothing(kibitz: Command) -> None:
    typed = "hello\npropose\npropose 9 9 9\nagree 1 2\n\ninsist 0 0 0\nagree\nagree\n"
    done = kibitz("play", "--seed", "3", given=typed)
    assert done.returncode == 0, done.stderr
    assert "'hello' is not an act" in done.stdout
    assert "needs three numbers" in done.stdout
    assert "cannot keep 9 books" in done.stdout
    assert "takes no numbers" in done.stdout
    assert "You made" in done.stdout


def test_play_for_machines_gives_the_result_as_json(kibitz: Command) -> None:
    done = kibitz("play", "--seed", "3", "--json", given="insist 0 0 0\nagree\n")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["players"] == ["human", "heuristic"]
    assert found["scores"]["agreement"] == [1.0, 1.0]


def test_the_other_sides_values_are_not_shown_before_the_end(kibitz: Command) -> None:
    shown = [kibitz("play", "--seed", str(seed), given="").stdout for seed in (3, 3)]
    assert shown[0] == shown[1]
    assert "utilities" not in shown[0]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("evaluate",), "Missing option '--player'"),
        (("evaluate", "--player", "nobody"), "There is no player 'nobody'"),
        (("evaluate", "--player", "bayes", "--game", "chess"), "There is no game 'chess'"),
        (("evaluate", "--player", "bayes", "--episodes", "0"), "'--episodes'"),
        (("evaluate", "--player", "bayes", "--set", "max_turn=3"), "did you mean 'max_turns'?"),
        (("evaluate", "--player", "bayes", "--set", "max_turns"), "name=value"),
        (("evaluate", "--player", "bayes", "--set", "max_turns=many"), "max_turns"),
        (("evaluate", "--player", "bayes", "--set", "min_count=0"), "min_count"),
        (("evaluate", "--player", "bayes", "--contexts", "nowhere.txt"), "nowhere.txt"),
        (("evaluate", "--player", "policy:nowhere"), "nowhere"),
        (("play", "--opponent", "human"), "one terminal has one keyboard"),
        (("nothing",), "nothing"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(kibitz: Command, words: tuple[str, ...], sentence: str) -> None:
    done = kibitz(*words)
    assert done.returncode == 2, done.stdout + done.stderr
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_bad_line_of_contexts_is_named_by_its_number(kibitz: Command, tmp_path: Path) -> None:
    path = tmp_path / "contexts.txt"
    path.write_text("1 0 1 1 3 3\n1 1 1 0 3 3\n1 0 1 1 3 x\n1 1 1 3 3 2\n")
    done = kibitz("evaluate", "--player", "bayes", "--contexts", str(path))
    assert done.returncode == 2
    assert "line 3" in done.stderr


def test_leaving_a_game_half_way_is_said_and_not_a_crash(kibitz: Command) -> None:
    done = kibitz("play", "--seed", "3", given="insist 4 1 2\n")
    assert done.returncode == 2
    assert "input ended" in done.stderr


@pytest.mark.conformance  # it compiles all that it measures
def test_bench_env_prints_its_rates(kibitz: Command) -> None:
    done = kibitz("bench", "env", "--seconds", "0.3", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found["steps_per_s"]) >= {"single", "batched_4096", "open_spiel"}
    # the real figures are far above; this only guards against a fall by an order of magnitude
    assert found["ratio_batched_to_single"] > 20
    assert found["single_step_us"] < 600


@pytest.mark.parametrize(
    "words", ["", "evaluate", "play", "train", "demo", "serve", "watch", "bench", "bench env", "bench train", "cricket"]
)
def test_every_command_explains_itself(words: str) -> None:
    done = CliRunner().invoke(app, [*words.split(), "--help"])
    assert done.exit_code == 0
    assert "Usage" in done.stdout


LONG = "a rather long name that is not to be folded where eighty columns end, since people copy it"


def test_names_are_shown_as_they_are_and_on_one_line(tmp_path: Path) -> None:
    """Square brackets are no markup, colons no emoji, and a pipe has no columns."""
    path = tmp_path / "a[" / f"b] :smile: [red] {LONG}.txt"
    path.parent.mkdir()
    path.write_text("1 4 2 3 3 0\n1 1 2 0 3 3\n")
    done = subprocess.run(
        [sys.executable, "-m", "kibitz", "evaluate", "--player", "heuristic", "--episodes", "4",
         "--contexts", str(path)],
        capture_output=True, text=True, timeout=240, env={**os.environ, "COLUMNS": "80"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"{path} contexts" in done.stdout


def test_facts_and_tables_take_no_markup_from_names(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    show.facts({"out": f"[/b][red]{LONG}.csv", "matches": 3}, as_json=False)
    assert capsys.readouterr().out == f"out: [/b][red]{LONG}.csv\nmatches: 3\n"
    side = {"player": f"policy:[/b][red]{LONG}", "return_mean": 1.0, "return_ci95": [0.5, 1.5]}
    about = {"game": "g", "episodes": 2, "contexts": "[/b]", "seed": 0, "episodes_per_s": 1.0}
    show.result(side | about | {"opponent": side}, False, show.evaluation_table)
    assert f"policy:[/b][red]{LONG}" in capsys.readouterr().out
    window = Console(file=io.StringIO(), force_terminal=True)
    monkeypatch.setattr(show, "err", window)
    with show.progress("policy:[/b]", 1, quiet=False) as advance:
        advance(1)
    assert "policy:[/b]" in window.file.getvalue()  # type: ignore[attr-defined]


def test_a_bar_leaves_nothing_where_there_is_no_window(capsys: pytest.CaptureFixture[str]) -> None:
    """A sentence about what was wrong stands alone."""
    with pytest.raises(BadInput), show.progress("anything", 1, quiet=False):
        raise BadInput("It was wrong.")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("evaluate", "--player", "bayes", "--contexts", "~nosuchuser/x"), "'~nosuchuser/x' begins with a user"),
        (("evaluate", "--player", "bayes", "--contexts", "a" * 300), "File name too long"),
        (("evaluate", "--player", "bayes", "--contexts", ""), "An empty name is not a file"),
        (("evaluate", "--player", "bayes", "--seed", str(2**64)), f"less than or equal to {2**63 - 1}. Try --help."),
        (("train", "--config", "~nosuchuser/x"), "'~nosuchuser/x' begins with a user"),
        (("train", "--config", "/"), "'/' is a folder; name a file in it."),
        (("cricket", "simulate", "--out", "a" * 300), "File name too long"),
        (("cricket", "fit", "--report", "--tables", "~nosuchuser/x"), "'~nosuchuser/x' begins with a user"),
    ],
)
def test_a_name_that_no_file_can_have_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["kibitz", *words])
    with pytest.raises(SystemExit) as left:
        main()
    told = capsys.readouterr()
    assert left.value.code == 2
    assert sentence in told.err
    assert told.err.strip().count("\n") == 0


def test_a_store_in_the_home_of_nobody_is_refused_with_a_sentence() -> None:
    with pytest.raises(BadInput, match="begins with a user who is not known"):
        open_store("~nosuchuser/x.db")


@pytest.mark.parametrize("words", [(), ("bench",)])
def test_a_command_alone_prints_its_help_and_nothing_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(sys, "argv", ["kibitz", *words])
    with pytest.raises(SystemExit):
        main()
    told = capsys.readouterr()
    assert "Usage" in told.out
    assert told.err == ""


def test_a_command_that_is_stopped_says_so() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "kibitz", "play", "--seed", "3"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        assert running.stdout is not None and running.stderr is not None
        assert "Setting up" in running.stdout.readline()
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 130
        assert running.stderr.read() == "kibitz: stopped.\n"
