"""Damaged and hostile files in a run's folder, a full disk, and two trainings in one folder."""

from __future__ import annotations

import json
import os
import resource
import shutil
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from kibitz.core.errors import BadInput, NotFound
from kibitz.core.play.resolve import Resolver
from kibitz.live.http.catalogue import reports_in, run_named, runs_in, tournaments_in
from kibitz.train import network
from kibitz.train.opponents import bot_of_run
from kibitz.train.run import checkpoint
from kibitz.train.run.run import Run
from tests.train import toy
from tests.train.conftest import last_checkpoint, tiny_job

TOY = toy.build(False)
SHORT = {"train": {"num_train_steps": 64}, "logging": {"eval_every": 64, "save_every": 64, "log_every": 32}}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    toy.register()
    folder = tmp_path_factory.mktemp("runs") / "finished"
    Run(tiny_job(**SHORT), folder).train()
    return folder


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def rewrite(folder: Path, about: dict[str, str] | None = None, **changed: Any) -> Path:
    """The last checkpoint with other metadata or arrays."""
    path = last_checkpoint(folder)
    with safe_open(path, "np") as file:
        leaves = {name: file.get_tensor(name) for name in file.keys()} | changed  # noqa: SIM118
        metadata = dict(file.metadata())
    save_file(leaves, path, metadata | (about or {}))
    return path


def job_with(folder: Path, hidden: list[int]) -> dict[str, str]:
    with safe_open(last_checkpoint(folder), "np") as file:
        job = json.loads(file.metadata()["job"])
    job["train"]["hidden"] = hidden
    return {"job": json.dumps(job), "sha256": "{}"}


@pytest.mark.parametrize("hidden", [[4] * 3000, [60_000] * 8, [10**9]])
def test_a_header_that_asks_for_a_huge_network_is_refused_before_it_is_built(
    copy: Path, hidden: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network.Policy, "__init__", lambda *_: pytest.fail("it was built"))
    rewrite(copy, job_with(copy, hidden))
    tracemalloc.start()
    try:
        with pytest.raises(BadInput, match=r"hidden|weights where"):
            bot_of_run(str(copy), TOY)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_the_counted_weights_are_those_of_the_network() -> None:
    shape = network.Shape((5, 3))
    policy = network.new_policy(TOY, 7, shape, network.jax.random.key(0))
    assert network.flatten(policy).vector.shape == (network.weight_count(7, shape, TOY.sizes),)


def changed_bit(folder: Path) -> None:
    """Changes the file's last byte, which belongs to an array."""
    path = last_checkpoint(folder)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def diverged(folder: Path) -> None:
    weights = checkpoint.find(str(folder)).leaves["weights"].copy()
    weights[0, 0] = np.nan
    rewrite(folder, {"sha256": "{}"}, weights=weights)


def pipe(folder: Path) -> None:
    path = last_checkpoint(folder)
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (changed_bit, "damaged"),
        (diverged, "not finite"),
        (pipe, "not a file"),
        (lambda folder: rewrite(folder, {"job": '{"a":' * 5000 + "1" + "}" * 5000}), "not a kibitz checkpoint"),
        (lambda folder: rewrite(folder, {"job": "[]"}), "not a kibitz checkpoint"),
        (lambda folder: rewrite(folder, {"step": "-1"}), "not a kibitz checkpoint"),
        (lambda folder: rewrite(folder, weights=np.zeros((1, 3), np.float16)), "not a kibitz checkpoint"),
    ],
    ids=["bit", "nan", "pipe", "deep", "list", "step", "dtype"],
)
def test_a_damaged_checkpoint_is_a_sentence(copy: Path, damage: Callable[[Path], Any], sentence: str) -> None:
    damage(copy)
    with pytest.raises(BadInput, match=sentence):
        checkpoint.read(last_checkpoint(copy)) if sentence == "damaged" else bot_of_run(str(copy), TOY)


def test_a_damaged_newest_checkpoint_is_replaced_by_the_one_before(copy: Path) -> None:
    newest = last_checkpoint(copy)
    shutil.copy(newest, newest.with_name("step_000000000099.safetensors"))
    changed_bit(copy)
    saved, refused = checkpoint.newest(copy / "checkpoints")
    assert saved is not None and saved.path == newest
    assert len(refused) == 1 and "checksum" in refused[0]


@pytest.fixture
def hostile(copy: Path) -> Path:
    """A folder with one good run among hostile ones."""
    runs = copy.parent
    good = json.loads((copy / "run.json").read_text())
    for name, text in {
        "deep": "[" * 100_000,
        "large": json.dumps(good | {"notes": "x" * 2_000_000}),
        "list": "[]",
        "numbers": json.dumps(good | {"seed": float("nan"), "advisers": {"a": [1]}, "game": toy.NAME}),
        "text": json.dumps(good | {"game": "\ud800\x00<b>"}),
    }.items():
        (runs / name).mkdir()
        (runs / name / "run.json").write_text(text, encoding="utf-8")
    (runs / "pipe").mkdir()
    os.mkfifo(runs / "pipe" / "run.json")
    for name in (b"\xff\xfe", b"new\nline"):
        bad = os.path.join(os.fsencode(runs), name)
        os.mkdir(bad)
        shutil.copy(copy / "run.json", os.path.join(bad, b"run.json"))
    for name in ("record/run.json", "weights/checkpoints"):
        (runs / name).parent.mkdir()
        (runs / name).symlink_to("a" * 300)  # longer than a name may be
    shutil.copy(copy / "run.json", runs / "weights")
    (runs / "endless").symlink_to("a" * 300)
    return runs


def test_a_folder_with_hostile_runs_shows_the_others(hostile: Path) -> None:
    found = {run["name"]: run for run in runs_in(hostile)}
    json.dumps(list(found.values()), allow_nan=False).encode()
    assert set(found) == {"copy", "numbers", "text", "weights"}
    assert (found["numbers"]["seed"], found["numbers"]["advisers"]) == (None, [])
    assert found["text"]["game"].isprintable()
    listed = {player.name: player.why_not for player in Resolver(hostile).players(TOY) if player.kind == "policy"}
    missing = "It has no checkpoint yet."
    assert listed == {"policy:copy": "", "policy:numbers": missing, "policy:weights": missing}
    assert reports_in(hostile) == tournaments_in(hostile) == []
    for name in ("endless", "weights"):
        with pytest.raises(NotFound, match="There is no"):
            Resolver(hostile).find(TOY, f"policy:{name}")


@pytest.mark.parametrize(
    "content", [b"\xff\xfe\x00", b"step,return_mean\n" + b"1" * 200_000 + b",2\n", b"a\n\x00\n", b""]
)
def test_a_damaged_curve_is_empty(copy: Path, content: bytes) -> None:
    assert run_named(copy.parent, "copy")["curve"]  # type: ignore[index]
    (copy / "evaluations.csv").write_bytes(content)
    run = run_named(copy.parent, "copy")
    assert run is not None
    assert not any(run["curve"])


def test_a_curve_that_is_a_pipe_is_empty(copy: Path) -> None:
    (copy / "evaluations.csv").unlink()
    os.mkfifo(copy / "evaluations.csv")
    assert run_named(copy.parent, "copy")["curve"] == []  # type: ignore[index]


@pytest.mark.parametrize("name", ["metrics.csv", "evaluations.csv", "timing.csv"])
@pytest.mark.parametrize(
    "content", [b"\xff\xfe\x00\n1\n", b"step,seconds\nx,y\n", b"other\n1\n"], ids=["bytes", "words", "columns"]
)
def test_resuming_with_a_damaged_table_is_a_sentence(copy: Path, name: str, content: bytes) -> None:
    (copy / name).write_bytes(content)
    with pytest.raises(BadInput, match=f"{name} is damaged; delete it"):
        Run(tiny_job(**SHORT), copy).train(resume=True)


def test_a_damaged_record_does_not_prevent_a_resume(copy: Path) -> None:
    (copy / "run.json").write_text('{"hints": [' * 2000)
    assert Run(tiny_job(**SHORT), copy).train(resume=True)["finished"]


def test_a_second_training_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    refused: list[str] = []

    def report(progress: dict[str, Any]) -> None:
        if refused:
            return
        for resume in (True, False):
            try:
                Run(tiny_job(**SHORT), folder).train(resume=resume)
            except BadInput as error:
                refused.append(str(error))

    late = Run(tiny_job(**SHORT), folder)
    late.check(resume=False)
    assert Run(tiny_job(**SHORT), folder, report).train()["finished"]
    assert "Another training writes to" in refused[0] and "is not empty" in refused[1]
    with pytest.raises(BadInput, match="is not empty"):
        late.train()


@pytest.fixture
def small_files() -> Iterator[Callable[[int], None]]:
    """Limits the size of files that this process can write, as a full disk would."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # tensorboardX does not close its file
@pytest.mark.parametrize("size", [100, 1000, 3000])
def test_a_full_disk_is_a_sentence_and_the_run_can_be_resumed(
    tmp_path: Path, small_files: Callable[[int], None], size: int
) -> None:
    """The config, the log for TensorBoard and a checkpoint do not fit."""
    pytest.importorskip("tensorboardX")
    job = tiny_job(train={"num_train_steps": 640}, logging={"tensorboard": True, "log_every": 32})
    run = Run(job, tmp_path / "run", lambda progress: small_files(size) if size == 3000 else None)
    if size < 3000:
        small_files(size)
    with pytest.raises(BadInput, match=r"can(not| no longer be) .*File too large"):
        run.train()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    if (tmp_path / "run" / "config.yaml").exists():
        assert Run(job, tmp_path / "run").train(resume=True)["finished"]
    assert not list(tmp_path.rglob("*.part"))
