"""A user's mistake is one sentence on standard error, exit code 2, and nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from kibitz import cli
from tests.train.conftest import TINY, Command

CASES = {
    "unknown key": (["--set", "train.learning_rate=0.1"], "learning_rate"),
    "unknown group": (["--set", "trian.lr=0.1"], "trian"),
    "unknown game option": (["--set", "env.roundz=3"], "rounds"),
    "wrong type": (["--set", "train.num_envs=many"], "num_envs"),
    "a yes for a number": (["--set", "train.num_envs=true"], "num_envs"),
    "a group given as a number": (["--set", "train=5", "--steps", "64"], "train"),
    "not name=value": (["--set", "train.lr"], "name=value"),
    "minibatch larger than a batch": (["--set", "train.minibatch=64"], "minibatch is 64"),
    "minibatch that does not divide": (["--set", "train.minibatch=15"], "does not divide"),
    "cadence 0": (["--set", "hints.cadence_k=0"], "cadence_k"),
    "no games": (["--set", "train.num_envs=0"], "num_envs"),
    "no steps": (["--steps", "0"], "--steps"),
    "a layer of no width": (["--set", "train.hidden=[8, 0]"], "hidden"),
    "an infinite learning rate": (["--set", "train.lr=.inf"], "lr"),
    "negative learning rate": (["--set", "train.lr=-0.1"], "lr"),
    "save cadence 0": (["--set", "logging.save_every=0"], "save_every"),
    "unknown algorithm": (["--algo", "ppoo"], "ppo"),
    "unknown hint mode": (["--hint", "expart"], "expert"),
    "unknown opponent": (["--opponent", "nobody"], "nobody"),
    "unknown game": (["--game", "chess"], "chess"),
    "an option of another game": (["--set", "env.max_turns=4"], "use --game deal_or_no_deal or remove the key"),
    "unknown environment": (["--set", "env.id=Chess-v0"], "Chess-v0"),
    "missing checkpoint of the expert": (["--hint", "expert", "--set", "hints.checkpoint=/nowhere"], "/nowhere"),
    "expert without its checkpoint": (
        ["--hint", "expert", "--set", "hints.expert=checkpoint"],
        "hints.checkpoint names none",
    ),
    "checkpoint that the expert ignores": (
        ["--hint", "expert", "--set", "hints.expert=greedy", "--set", "hints.checkpoint=runs/x"],
        "would ignore it",
    ),
    "unknown expert": (["--hint", "expert", "--set", "hints.expert=best"], "'hints.expert' is 'best'"),
    "missing checkpoint of the opponent": (["--opponent", "policy:/nowhere"], "/nowhere"),
    "a name that is too long for a file": (["--opponent", "policy:" + "x" * 5000], "too long"),
    "earlier selves in a mix": (["--set", "opponent={self: 1, heuristic: 1}"], "curriculum"),
    "a mix without players": (["--set", "opponent={heuristic: 0}"], "not all of them 0"),
    "a mix with an invalid weight": (["--set", "opponent={heuristic: much}"], "heuristic"),
    "a curriculum out of order": (["--set", "curriculum=[{until: 64}, {until: 32}]"], "later"),
    "a curriculum with a wrong key": (["--set", "curriculum=[{until: 64, hints: {cadense_k: 2}}]"], "cadence_k"),
    "a curriculum with an empty mix": (["--set", "curriculum=[{until: 64, opponent: {}}]"], "1 to 16"),
    "a curriculum with a wrong game option": (["--set", "curriculum=[{env: {roundz: 2}}]"], "rounds"),
    "a seed that is too large": (["--seed", "36893488147419103232"], "seed"),
    "a supervised learner of random acts": (["--algo", "supervised", "--hint", "random"], "--hint expert"),
    "resume without out": (["--resume"], "--out"),
}


def refused(words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs the command in this process; gives its only sentence."""
    monkeypatch.setattr("sys.argv", ["kibitz", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    assert ended.value.code == 2
    assert out == ""
    assert err.startswith("kibitz: ")
    assert err.count("\n") == 1, "one sentence"
    return err


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(TINY), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("case", list(CASES))
def test_a_bad_argument_is_refused_in_one_sentence(
    case: str, config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words, names = CASES[case]
    monkeypatch.chdir(tmp_path)
    out = [] if "--resume" in words else ["--out", "run"]
    assert names in refused(["train", "--config", config, *out, *words], capsys, monkeypatch)
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.yaml"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "bad.yaml"),
        (b"train: {lr: 0.1", "not valid YAML"),
        (b"- train\n- lr\n", "table of keys"),
        (b"\xff\xfe\x00\x01", "YAML"),
        (b"train:\n", "train"),
        (b"1: 2\n", "1"),
    ],
    ids=["missing", "broken", "a list", "not text", "an empty group", "a number as a key"],
)
def test_a_config_that_cannot_be_used_is_refused(
    content: bytes | None,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "bad.yaml"
    if content is not None:
        path.write_bytes(content)
    summary = refused(["train", "--config", str(path), "--out", str(tmp_path / "run")], capsys, monkeypatch)
    assert words in summary
    assert not (tmp_path / "run").exists()


def test_a_folder_with_another_run_stays_unchanged(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text("algo: ppo\n")
    assert "is not empty" in refused(["train", "--config", config, "--out", str(folder)], capsys, monkeypatch)
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"config.yaml": "algo: ppo\n"}


def test_an_output_folder_that_is_a_file_stays_unchanged(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"
    path.write_text("mine")
    assert str(path) in refused(["train", "--config", config, "--out", str(path)], capsys, monkeypatch)
    assert path.read_text() == "mine"


@pytest.mark.parametrize("out", ["/dev/null/run", "/proc/run", f"/tmp/{'long' * 100}"], ids=lambda out: out[:9])
def test_an_output_folder_that_cannot_be_created_is_refused(
    out: str, config: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = refused(["train", "--config", config, "--out", out], capsys, monkeypatch)
    assert f"{out} cannot hold a run" in summary


@pytest.mark.parametrize("content", [None, "", "algo: [", "algo: pppo\n"])
def test_resume_refuses_a_folder_without_a_run(
    content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    if content is not None:
        folder.mkdir()
        (folder / "config.yaml").write_text(content)
    refused(["train", "--resume", "--out", str(folder)], capsys, monkeypatch)
    assert folder.exists() == (content is not None)


def test_resume_refuses_arguments_that_change_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump(TINY))
    words = ["train", "--resume", "--out", str(folder)]
    summary = refused([*words, "--steps", "320"], capsys, monkeypatch)
    assert "num_train_steps is 320 here but 640" in summary
    summary = refused([*words, "--steps", "9999", "--set", "train.lr=0.5"], capsys, monkeypatch)
    assert "train.lr is 0.5 here but 0.01" in summary


def test_the_example_of_the_help_is_a_number(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """--help shows `--set train.lr=1e-3`. YAML reads 1e-3 as a string, but the error must be about num_envs."""
    words = ["--set", "train.lr=1e-3", "--set", "train.num_envs=0"]
    assert "num_envs" in refused(["train", "--config", config, "--out", "run", *words], capsys, monkeypatch)


def test_the_command_prints_the_same_sentence(command: Command, config: str, tmp_path: Path) -> None:
    done = command("train", "--config", config, "--out", str(tmp_path / "run"), "--set", "train.minibatch=1000")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("kibitz: minibatch is 1000")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_config_for_another_game_is_refused_with_the_flag_to_use(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "cricket.yaml"
    path.write_text("env: {id: Cricket-v0, max_overs: 5}\n")
    sentence = refused(["train", "--config", str(path), "--game", "deal_or_no_deal"], capsys, monkeypatch)
    assert f"{path} sets env.max_overs, which deal_or_no_deal does not have; use --game cricket or remove" in sentence


def test_a_config_without_a_game_is_refused_with_the_games_there_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "any.yaml"
    path.write_text("algo: ppo\n")
    sentence = refused(["train", "--config", str(path)], capsys, monkeypatch)
    assert "names no game; use --game " in sentence
    assert "deal_or_no_deal" in sentence
