"""`kibitz llm` and `kibitz hints` as people and machines use them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from kibitz.cli import app
from kibitz.core.errors import BadInput
from tests.advice.conftest import KEY
from tests.conftest import Finished

Command = Callable[..., Finished]


@pytest.mark.usefixtures("presets")
def test_list_says_which_presets_work_and_why_the_others_do_not() -> None:
    done = CliRunner().invoke(app, ["llm", "list", "--json"])
    rows = {row["preset"]: row for row in json.loads(done.stdout)["presets"]}
    assert rows["fake-good"]["usable"] is True
    assert rows["keyless"]["why_not"] == "NO_SUCH_KEY is not set."
    assert "embedded" in rows
    assert KEY not in done.output
    table = CliRunner().invoke(app, ["llm", "list"])
    assert "NO_SUCH_KEY" in table.stdout


@pytest.mark.usefixtures("presets")
def test_list_with_a_probe_notices_a_server_that_is_not_there() -> None:
    rows = json.loads(CliRunner().invoke(app, ["llm", "list", "--probe", "20", "--json"]).stdout)["presets"]
    found = {row["preset"]: row for row in rows}
    assert found["fake-good"]["usable"] is True
    assert found["refused"]["usable"] is False


@pytest.mark.usefixtures("presets")
def test_ask_prints_prompt_answer_and_latency() -> None:
    done = CliRunner().invoke(app, ["llm", "ask", "--preset", "fake-prose", "--json"])
    found = json.loads(done.stdout)
    assert "Your values" in found["prompt"]
    assert found["latency_s"] > 0
    assert found["attempts"] == 1
    assert (found["act"] is None) == (found["failure"] is not None)
    shown = CliRunner().invoke(app, ["llm", "ask", "--preset", "fake-401"])
    assert shown.exit_code == 0
    assert "refused" in shown.stdout
    assert KEY not in shown.output


@pytest.mark.usefixtures("embedded")
def test_install_reports_its_steps_and_does_nothing_twice() -> None:
    CliRunner().invoke(app, ["llm", "install", "--json"])
    found = json.loads(CliRunner().invoke(app, ["llm", "install", "--json"]).stdout)
    assert found["weights"].endswith(".gguf")
    assert found["said"] == [
        f"The SmolLM2 weights are in {found['weights']}.",
        f"The taught weights are in {found['taught']}.",
    ]


@pytest.mark.usefixtures("presets")
def test_a_prompt_is_refused_for_a_source_that_uses_none() -> None:
    done = CliRunner().invoke(app, ["hints", "evaluate", "--source", "random", "--prompt", "configs/llm_prompt.txt"])
    assert isinstance(done.exception, BadInput)
    assert "reads no prompt" in str(done.exception)


@pytest.mark.conformance  # twenty seconds, nearly all of it compiling
def test_hints_evaluate_prints_one_object() -> None:
    done = CliRunner().invoke(app, ["hints", "evaluate", "--source", "random", "--states", "16", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    for name in ("legal_share", "agreement", "hint_regret_mean", "distance", "brier", "latency_median_s", "money"):
        assert name in found
    assert done.stdout.count("\n") == 1


@pytest.mark.usefixtures("presets")
def test_a_person_plays_against_a_model_and_hears_another(kibitz: Command) -> None:
    typed = "insist 0 0 0\nagree\nend 0 0 0\n"
    players = ("--opponent", "llm:fake-good", "--adviser", "llm:fake-good")
    done = kibitz("play", "--seed", "3", *players, "--json", typed=typed)
    assert done.returncode == 0, done.stderr
    assert "Your adviser: " in done.stderr
    assert json.loads(done.stdout)["players"] == ["human", "llm:fake-good"]
    assert KEY not in done.stdout + done.stderr
