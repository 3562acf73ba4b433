"""The commands as people and machines use them, through the entry point; exit codes and signals in real processes."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from kibitz.cli import app, output
from kibitz.core.errors import BadInput
from kibitz.live.store.base import open_store
from tests.conftest import Finished

Command = Callable[..., Finished]

# A test run in the background inherits an ignored SIGINT; a command at a terminal does not.
AT_A_TERMINAL = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from kibitz.__main__ import main
main()
"""


def test_evaluate_prints_one_object_with_everything(kibitz: Command) -> None:
    done = kibitz("evaluate", "--game", "deal_or_no_deal", "--player", "heuristic", "--opponent", "heuristic",
                  "--episodes", "64", "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    names = ("return_mean", "return_ci95", "share_of_ceiling", "share_of_bayes", "ceiling_gap", "agreement", "pareto",
             "nash_product", "welfare", "turns")  # fmt: skip
    for name in names:
        assert name in found
        assert name in found["opponent"]
    assert done.stdout.count("\n") == 1


def test_evaluate_prints_a_table_for_people(kibitz: Command) -> None:
    done = kibitz("evaluate", "--player", "heuristic", "--opponent", "heuristic", "--episodes", "64")
    assert done.returncode == 0, done.stderr
    assert "share of ceiling" in done.stdout
    assert "heuristic" in done.stdout


@pytest.mark.optimised
@pytest.mark.conformance  # compiles an evaluation for thousands of contexts
def test_evaluate_reads_contexts_from_a_file(kibitz: Command, selfplay: Path) -> None:
    done = kibitz("evaluate", "--player", "bayes", "--episodes", "400", "--contexts", str(selfplay), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["share_of_ceiling"] > 0.97
    assert found["return_mean"] < 10


def test_a_person_plays_a_whole_game_and_invalid_input_costs_nothing(kibitz: Command) -> None:
    typed = "hello\npropose\npropose 9 9 9\nagree 1 2\n\ninsist 0 0 0\nagree\nagree\n"
    done = kibitz("play", "--seed", "3", typed=typed)
    assert done.returncode == 0, done.stderr
    shown = " ".join(done.stdout.split())  # lines wrap at the width of the terminal
    assert "'hello' is not an act" in shown
    assert "needs three numbers" in shown
    assert "cannot keep 9 books" in shown
    assert "takes no numbers" in shown
    assert "You scored" in shown


def test_play_prints_the_result_as_json(kibitz: Command) -> None:
    done = kibitz("play", "--seed", "3", "--json", typed="insist 0 0 0\nagree\n")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["players"] == ["human", "heuristic"]
    assert found["scores"]["agreement"] == [1.0, 1.0]


def test_the_other_sides_values_are_not_shown_before_the_end(kibitz: Command, tmp_path: Path) -> None:
    """Only the partner's values differ, and `random` ignores them: nothing but the final score may change."""
    shown = []
    for name, partner in (("a", "1 1 2 0 3 3"), ("b", "1 10 2 0 3 0")):
        path = tmp_path / name
        path.write_text(f"1 4 2 3 3 0\n{partner}\n")
        words = ("play", "--seed", "3", "--opponent", "random", "--contexts", str(path), "--set", "agent_starts=true")
        shown.append(kibitz(*words, typed="propose 1 1 1\npropose 1 2 1\n").stdout)
    (before, end), (other_before, other_end) = (text.split("It is a deal.") for text in shown)
    assert before.count("Random") == 2  # it has made an offer, and accepted one
    assert before == other_before
    assert "random takes 6" in end and "random takes 0" in other_end


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
        (("evaluate", "--player", "bayes", "--contexts", "~nosuchuser/x"), "'~nosuchuser/x'"),
        (("evaluate", "--player", "bayes", "--contexts", "a" * 300), "File name too long"),
        (("evaluate", "--player", "bayes", "--contexts", ""), "empty path"),
        (("evaluate", "--player", "bayes", "--seed", str(2**64)), f"less than or equal to {2**63 - 1}. Try --help."),
        (("play", "--opponent", "human"), "Only seat 0 can be human"),
        (("train", "--config", "~nosuchuser/x"), "'~nosuchuser/x'"),
        (("train", "--config", "/"), "'/' is a folder"),
        (("cricket", "simulate", "--out", "a" * 300), "File name too long"),
        (("cricket", "fit", "--report", "--tables", "~nosuchuser/x"), "'~nosuchuser/x'"),
        (("cricket", "simulate", "--out", "rows.csv", "--model", "nosuch"), "There is no fitted model 'nosuch'"),
        (("cricket", "simulate", "--out", "rows.csv", "--era", "2023"), "'era'"),
        (("nothing",), "nothing"),
    ],
)
def test_a_mistake_prints_one_sentence_and_exits_with_2(kibitz: Command, words: tuple[str, ...], sentence: str) -> None:
    done = kibitz(*words)
    assert done.returncode == 2, done.stdout + done.stderr
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_process_prints_one_sentence_and_exits_with_2() -> None:
    words = [sys.executable, "-m", "kibitz", "evaluate", "--player", "bayes", "--game", "chess"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("kibitz: There is no game 'chess'")
    assert done.stderr.count("\n") == 1


def test_an_interrupted_process_says_so_and_exits_with_130() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", AT_A_TERMINAL, "play", "--seed", "3"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        assert running.stdout is not None and running.stderr is not None
        assert "Setting up" in running.stdout.readline()
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 130
        assert running.stderr.read() == "kibitz: stopped.\n"


def test_a_bad_line_of_contexts_is_named_by_its_number(kibitz: Command, tmp_path: Path) -> None:
    path = tmp_path / "contexts.txt"
    path.write_text("1 0 1 1 3 3\n1 1 1 0 3 3\n1 0 1 1 3 x\n1 1 1 3 3 2\n")
    done = kibitz("evaluate", "--player", "bayes", "--contexts", str(path))
    assert done.returncode == 2
    assert "line 3" in done.stderr


def test_input_that_ends_early_is_reported(kibitz: Command) -> None:
    done = kibitz("play", "--seed", "3", typed="insist 4 1 2\n")
    assert done.returncode == 2
    assert "input ended" in done.stderr


@pytest.mark.conformance  # compiles everything it measures
def test_bench_env_prints_its_rates(kibitz: Command) -> None:
    done = kibitz("bench", "env", "--seconds", "0.3", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found["steps_per_s"]) >= {"single", "batched_4096", "open_spiel"}
    # The real figures are far better; these bounds only catch a fall by an order of magnitude.
    assert found["ratio_batched_to_single"] > 20
    assert found["single_step_us"] < 600


@pytest.mark.parametrize(
    "words", ["", "evaluate", "play", "train", "demo", "serve", "watch", "bench", "bench env", "bench train", "cricket"]
)
def test_every_command_has_help(words: str) -> None:
    done = CliRunner().invoke(app, [*words.split(), "--help"])
    assert done.exit_code == 0
    assert "Usage" in done.stdout


@pytest.mark.parametrize("words", [(), ("bench",)])
def test_a_command_without_arguments_prints_only_its_help(kibitz: Command, words: tuple[str, ...]) -> None:
    done = kibitz(*words)
    assert "Usage" in done.stdout
    assert done.stderr == ""


LONG = "a rather long name that must not wrap at eighty columns, because people copy it"


def test_facts_and_tables_print_names_verbatim_on_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Square brackets are not markup, colons are not emoji, and a pipe has no columns."""
    output.facts({"out": f"[/b][red]{LONG}.csv", "matches": 3}, as_json=False)
    assert capsys.readouterr().out == f"out: [/b][red]{LONG}.csv\nmatches: 3\n"
    side = {"player": f"policy:[/b][red]{LONG}", "return_mean": 1.0, "return_ci95": [0.5, 1.5]}
    path = f"/a[/b] :smile: [red] {LONG}.txt"
    about = {"game": "g", "episodes": 2, "contexts": path, "seed": 0, "episodes_per_s": 1.0}
    output.result(side | about | {"opponent": side}, False, output.evaluation_table)
    shown = capsys.readouterr().out
    assert f"policy:[/b][red]{LONG}" in shown
    assert f"{path} contexts" in shown
    terminal = Console(file=io.StringIO(), force_terminal=True)
    monkeypatch.setattr(output, "err", terminal)
    with output.progress("policy:[/b]", 1, quiet=False) as advance:
        advance(1)
    assert "policy:[/b]" in terminal.file.getvalue()  # type: ignore[attr-defined]


def test_a_progress_bar_prints_nothing_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadInput), output.progress("anything", 1, quiet=False):
        raise BadInput("It was wrong.")
    assert capsys.readouterr() == ("", "")


def test_a_store_in_an_unknown_users_home_is_refused() -> None:
    with pytest.raises(BadInput, match="~nosuchuser"):
        open_store("~nosuchuser/x.db")
