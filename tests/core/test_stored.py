"""Traced programs in the cache folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from kibitz.core.registry import is_built_in
from kibitz.core.xla import stored
from kibitz.core.xla.stored import StoredProgram, traced_programs_kept
from kibitz.train.config import Job
from kibitz.train.opponents import game_of, origin_of

TREE = {"x": np.arange(3, dtype=np.float32)}
CALLS: list[Any] = []


def double(tree: Any, count: Any) -> Any:
    CALLS.append(count)
    return {"x": tree["x"] * count}, (jnp.sum(tree["x"]),)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    CALLS.clear()
    with traced_programs_kept():
        yield tmp_path / "kibitz" / "programs"


def test_a_second_process_runs_the_program_without_tracing_it(cache: Path) -> None:
    first = StoredProgram(double, "key")(TREE, 2)
    traced = len(CALLS)
    second = StoredProgram(double, "key")(TREE, 2)
    assert traced and len(CALLS) == traced and len(list(cache.iterdir())) == 1
    np.testing.assert_array_equal(first[0]["x"], [0, 2, 4])
    np.testing.assert_array_equal(second[0]["x"], first[0]["x"])
    assert second[1][0] == 3


def test_every_difference_that_may_change_a_program_traces_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    StoredProgram(double, "key")(TREE, 2)

    def traces(key: str = "key", tree: Any = TREE) -> bool:
        known = len(CALLS)
        StoredProgram(double, key)(tree, 2)
        return len(CALLS) > known

    assert not traces()
    assert (
        traces("another key") and traces(tree={"x": np.zeros(4, np.float32)}) and traces(tree={"x": np.zeros(3, int)})
    )
    monkeypatch.setattr(stored, "_sources", lambda: "edited")
    assert traces()
    monkeypatch.setattr(stored, "version", lambda name: "0.0")
    assert traces()


def test_every_edit_of_kibitz_traces_again_and_a_lock_of_an_editor_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "PACKAGE", tmp_path / "package")
    sources = stored._sources.__wrapped__
    file = tmp_path / "package" / "games" / "rules.py"
    file.parent.mkdir(parents=True)
    file.write_text("PRICE = 1")
    about, before = file.stat(), sources()
    file.write_text("PRICE = 2")
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))  # as unpacking an archive does
    edited = sources()
    assert edited != before
    (file.parent / ".#rules.py").symlink_to("somebody@computer.1:2")
    assert sources() == edited
    file.rename(file.with_name("laws.py"))
    assert sources() != edited


def test_a_damaged_file_is_replaced(cache: Path) -> None:
    StoredProgram(double, "key")(TREE, 2)
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    for damage in (b"", whole[:-9], whole[:99] + bytes([whole[99] ^ 1]) + whole[100:]):
        file.write_bytes(damage)
        np.testing.assert_array_equal(StoredProgram(double, "key")(TREE, 2)[0]["x"], [0, 2, 4])
        assert file.read_bytes() != damage and len(file.read_bytes()) == len(whole)


def test_a_folder_that_cannot_be_written_only_costs_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    np.testing.assert_array_equal(StoredProgram(double, "key")(TREE, 2)[0]["x"], [0, 2, 4])


def test_a_program_in_a_cache_of_another_user_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    StoredProgram(double, "key")(TREE, 2)
    traced = len(CALLS)

    def refuse(*arguments: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(stored.os, "utime", refuse)
    StoredProgram(double, "key")(TREE, 2)
    assert len(CALLS) == traced


def test_a_program_that_no_file_can_hold_runs_all_the_same(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> Any:
        raise ValueError("Cannot serialize code with custom calls")

    monkeypatch.setattr(stored.export, "export", lambda function, **checks: refuse)
    program = StoredProgram(double, "key")
    np.testing.assert_array_equal(program(TREE, 2)[0]["x"], [0, 2, 4])
    assert not cache.exists()


def test_calls_from_python_store_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "_kept", False)
    np.testing.assert_array_equal(StoredProgram(double, "key")(TREE, 2)[0]["x"], [0, 2, 4])
    assert not cache.exists()


def test_without_a_key_nothing_is_stored_and_shapes_are_the_same(cache: Path) -> None:
    plain, kept = StoredProgram(double, None), StoredProgram(double, "key")
    np.testing.assert_array_equal(plain(TREE, 2)[0]["x"], [0, 2, 4])
    assert not cache.exists()
    assert plain.shapes(TREE, 2) == kept.shapes(TREE, 2)


def test_the_least_recently_used_programs_are_removed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "MAX_FILES", 2)
    files: list[Path] = []
    for key in ("one", "two", "one", "three"):
        StoredProgram(double, key).shapes(TREE, 2)
        for file in set(cache.iterdir()) - set(files):
            os.utime(file, (len(files), len(files)))  # seconds after 1970
            files.append(file)
    assert [file.exists() for file in files] == [True, False, True]


def test_only_what_follows_from_kibitz_and_the_job_is_stored(tmp_path: Path) -> None:
    def origin(**values: Any) -> str | None:
        job = Job.read({"env": {"id": "DealOrNoDialog-v0"}, **values})
        return origin_of(job, *game_of(job))

    known = [origin(), origin(opponent="self"), origin(opponent={"heuristic": 1, "random": 2})]
    known += [origin(hints={"mode": "expert"}), origin(env={"id": "DealOrNoDialog-v0", "max_turns": 6})]
    assert None not in known and len(set(known)) == len(known)
    assert origin(opponent="policy:runs/x") is None and origin(opponent={"heuristic": 1, "module:player": 1}) is None
    assert origin(hints={"mode": "expert", "checkpoint": "runs/x"}) is None
    assert is_built_in("deal_or_no_deal") and not is_built_in("another")
