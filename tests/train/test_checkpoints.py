"""A checkpoint as a player, an expert and an opponent; one that does not fit is refused with a reason."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from kibitz.cli import app
from kibitz.core.bots import seated
from kibitz.core.errors import BadInput
from kibitz.core.play.resolve import bot_for
from kibitz.evaluate.match import play_bots
from kibitz.train import opponents as advisers
from kibitz.train.opponents import bot_of_run, policy_of
from kibitz.train.run import checkpoint
from kibitz.train.run.run import Run
from tests.train import toy
from tests.train.conftest import last_checkpoint, merged, tiny_job

TOY = toy.build(False)
SMALL = {"train": {"num_train_steps": 320}, "logging": {"eval_every": 320, "save_every": 160}}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two learners of the toy, with the oracle in their ear."""
    toy.register()
    folder = tmp_path_factory.mktemp("runs") / "trained"
    Run(tiny_job(seeds=2, hints={"mode": "expert"}, **SMALL), folder).train()
    return folder


def test_a_run_plays_with_the_adviser_it_was_trained_with(trained: Path) -> None:
    """As a player it earns what the run's own evaluation reported, up to the choice of episodes."""
    bot = bot_of_run(str(trained))
    settings = seated(toy.ToyOptions().settings(), {0: bot})
    played = play_bots(TOY, settings, (bot, TOY.bot("heuristic")), 128, 0, lambda count: None)
    share = played.returns[:, 0].mean() / played.scores["ceiling"][:, 0].mean()
    with open(trained / "evaluations.csv", encoding="utf-8") as file:
        *_, row = [line.split(",") for line in file.read().splitlines() if line.split(",")[1] == "0"]
    assert share == pytest.approx(float(row[3]), abs=0.08)


def test_a_number_picks_one_of_the_learners_trained_together(trained: Path) -> None:
    saved = checkpoint.find(str(trained))
    vectors = [jax.flatten_util.ravel_pytree(policy_of(saved, TOY, seed))[0] for seed in (0, 1)]
    np.testing.assert_array_equal(np.sort(vectors[1]), np.sort(saved.leaves["weights"][1]))
    assert not np.array_equal(vectors[0], vectors[1])
    assert bot_of_run(f"{trained}#1").name == f"policy:{trained}#1"
    wrong = dict.fromkeys(("#x", "#²", "#" + "9" * 5000), "number of a learner") | {"#2": "learners 0 to 1"}
    for number, words in wrong.items():
        with pytest.raises(BadInput, match=words):
            bot_of_run(f"{trained}{number}")


def test_the_command_evaluates_a_run_and_a_file(trained: Path) -> None:
    def words(name: str) -> list[str]:
        return ["evaluate", "--game", toy.NAME, "--player", f"policy:{name}", "--episodes", "64", "--json"]

    for name in (str(trained), str(last_checkpoint(trained))):
        done = CliRunner().invoke(app, words(name))
        assert done.exit_code == 0, done.output
        summary = json.loads(done.stdout)
        assert summary["player"] == f"policy:{name}"
        assert 0.3 < summary["share_of_ceiling"] <= 1


@pytest.mark.conformance
def test_a_run_can_be_expert_and_opponent_at_once(trained: Path, train: Callable[..., Any]) -> None:
    hints = {"mode": "expert", "checkpoint": str(trained)}
    folder, summary = train("pupil", opponent=f"policy:{trained}#1", hints=hints, **SMALL)
    assert summary["finished"]
    assert str(trained) in summary["adviser"]
    assert json.loads((folder / "run.json").read_text())["advisers"] == [summary["adviser"]]


@pytest.mark.conformance
def test_opponents_can_be_mixed_and_the_run_resumed(trained: Path, train: Callable[..., Any]) -> None:
    mix = {f"policy:{trained}#1": 1.0, "heuristic": 1.0, "expert": 2.0}
    whole, summary = train("whole", opponent=mix, **SMALL)
    assert summary["finished"]
    half, _ = train("half", opponent=mix, **merged(SMALL, {"train": {"num_train_steps": 160}}))
    shutil.copytree(half, half.with_name("rest"))
    rest, _ = train("rest", opponent=mix, resume=True, **SMALL)
    np.testing.assert_array_equal(*(load_file(last_checkpoint(one))["weights"] for one in (whole, rest)))
    assert bot_of_run(str(whole)).name == f"policy:{whole}"


def test_a_run_that_continued_is_another_player(trained: Path, tmp_path: Path) -> None:
    """A server outlives a training run; an unchanged policy keeps its compiled programs."""
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    first = last_checkpoint(run)
    first.rename(run / "later")
    name = f"policy:{run}"
    before = bot_for(TOY, name)
    assert bot_for(TOY, name) is before
    (run / "later").rename(first)
    after = bot_for(TOY, name)
    assert after is not before and bot_for(TOY, name) is after


@pytest.mark.conformance
def test_a_policy_whose_adviser_continued_is_another_player(
    trained: Path, train: Callable[..., Any], tmp_path: Path
) -> None:
    expert = tmp_path / "expert"
    shutil.copytree(trained, expert)
    pupil, _ = train("pupil", hints={"mode": "expert", "checkpoint": str(expert)}, **SMALL)
    before = bot_for(TOY, f"policy:{pupil}")
    assert bot_for(TOY, f"policy:{pupil}") is before
    last_checkpoint(expert).unlink()  # has the same effect as a new checkpoint
    assert bot_for(TOY, f"policy:{pupil}") is not before


def test_only_the_weights_of_a_checkpoint_stay_in_memory(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint may hold millions of games, and a server caches many policies."""
    monkeypatch.setattr(advisers, "_bot_of", lambda named: (named, []))
    kept: Any = bot_of_run(str(trained))
    assert list(kept.saved.leaves) == ["weights"]


def test_another_version_of_the_game_is_refused(trained: Path) -> None:
    newer = dataclasses.replace(TOY, version=2)
    with pytest.raises(BadInput, match=r"two_arms version 1; it does not fit two_arms version 2"):
        bot_of_run(str(trained), newer)


def test_another_size_of_network_is_refused(trained: Path) -> None:
    with pytest.raises(BadInput, match=r"weights where two_arms with these options needs"):
        bot_of_run(str(trained), toy.build(True))


@pytest.mark.parametrize("kind", ["garbage", "half", "empty", "foreign", "nothing"])
def test_a_file_that_is_not_a_checkpoint_is_refused(trained: Path, tmp_path: Path, kind: str) -> None:
    path, whole = tmp_path / "x.safetensors", last_checkpoint(trained)
    half = whole.read_bytes()[: whole.stat().st_size // 2]
    content = {"garbage": b"not a checkpoint" * 50, "half": half, "empty": b""}
    if kind in content:
        path.write_bytes(content[kind])
    elif kind == "foreign":
        save_file({"weights": np.zeros((1, 3), np.float32)}, path)
    with pytest.raises(BadInput, match=r"checkpoint") as refused:
        bot_of_run(str(path))
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "wrong", [{"step": None}, {"step": "x"}, {"version": "x"}, {"game": None}, {"job": "{"}, {}], ids=str
)
def test_a_checkpoint_with_invalid_metadata_is_skipped(tmp_path: Path, wrong: dict[str, str | None]) -> None:
    about = {"format": "1", "step": "64", "game": toy.NAME, "version": "1", "job": "{}"}
    good, bad = tmp_path / "step_000000000064.safetensors", tmp_path / "step_000000000096.safetensors"
    weights = np.zeros((1, 3), np.float32)
    save_file({"weights": weights}, good, about)
    said = {name: value for name, value in (about | wrong).items() if value is not None}
    save_file({"weights": weights if wrong else weights[0]}, bad, said)
    saved, refused = checkpoint.newest(tmp_path)
    assert saved is not None
    assert saved.path == good
    assert refused == [f"{bad} is not a kibitz checkpoint; name one from a run's checkpoints folder."]


def test_an_expert_that_does_not_fit_stops_before_anything_is_written(
    trained: Path, train: Callable[..., Any], tmp_path: Path
) -> None:
    hints = {"mode": "expert", "checkpoint": str(trained)}
    with pytest.raises(BadInput, match="weights where"):
        train("misfit", env={"wide": True}, hints=hints)
    with pytest.raises(BadInput, match="no checkpoint in"):
        train("misfit", hints={"mode": "expert", "checkpoint": str(tmp_path / "nowhere")})
    with pytest.raises(BadInput, match="no checkpoint in"):
        train("misfit", opponent=f"policy:{tmp_path / 'nowhere'}")
    assert not (tmp_path / "misfit").exists()


def test_a_checkpoint_of_another_shape_is_not_resumed(train: Callable[..., Any]) -> None:
    job: dict[str, Any] = {"seeds": 2, "hints": {"mode": "expert"}}
    folder, _ = train("shape", **job, **SMALL)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(BadInput, match="another configuration"):
        train("shape", resume=True, **job, train={"hidden": [4]}, logging=SMALL["logging"])
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_checkpoint_is_written_atomically(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = checkpoint.find(str(trained))

    class Learner(tuple[Any, ...]):
        weights = saved.leaves["weights"]

    learner = Learner([saved.leaves["weights"]])
    path = checkpoint.write(tmp_path, learner, 32, TOY, saved.job)
    before = path.read_bytes()

    def cut(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", cut)
    with pytest.raises(OSError, match="No space"):
        checkpoint.write(tmp_path, Learner([saved.leaves["weights"] + 1]), 32, TOY, saved.job)
    assert path.read_bytes() == before
    assert load_file(path)["weights"].tobytes() == saved.leaves["weights"].tobytes()


def test_a_truncated_newest_checkpoint_is_skipped_with_a_warning(
    trained: Path, train: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(trained, copy)
    newest = copy / "checkpoints" / "step_000000000480.safetensors"
    newest.write_bytes(last_checkpoint(copy).read_bytes()[:1000])
    hints = {"mode": "expert", "checkpoint": str(copy)}
    folder, summary = train("pupil", hints=hints, **SMALL)
    said = [record.message for record in caplog.records if newest.name in record.message]
    assert len(said) == 1
    assert said[0] in summary["notes"]
    assert said[0] in json.loads((folder / "run.json").read_text())["notes"]
