"""The shipped adapter: small, exact to 8 bits, and refused when it or its result is damaged."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kibitz.core.errors import BadInput
from kibitz.llm.presets import get_preset
from kibitz.llm.providers import gguf, taught, weights
from kibitz.llm.providers.embedded import Embedded
from kibitz.llm.providers.gguf import LowRank

MAX_BYTES = 6_000_000


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache with a stand-in for the embedded weights."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    file = weights.installed_path()
    file.parent.mkdir(parents=True)
    with file.open("wb") as stream:
        stream.truncate(weights.SIZE_BYTES)
    return file


def test_the_adapter_is_small_and_has_its_hash() -> None:
    assert taught.FILE.stat().st_size <= MAX_BYTES
    assert weights.sha256(taught.FILE) == weights.ADAPTER_SHA256
    assert len(taught.read()) == 7 * 30  # every matrix of thirty layers


def test_eight_bits_keep_an_adapter(tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    up, down = (chance.normal(size=shape).astype(np.float32) for shape in ((64, 4), (4, 32)))
    taught.write({"blk.0.attn_q.weight": LowRank(up, down)}, tmp_path / "a")
    (read,) = taught.read(tmp_path / "a").values()
    assert np.abs(read.up @ read.down - up @ down).max() < 0.02 * np.abs(up @ down).max()


def test_a_damaged_adapter_is_refused(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taught, "FILE", tmp_path / "half")
    taught.FILE.write_bytes(b"half")
    with pytest.raises(BadInput, match="damaged or missing"):
        weights.install_taught(lambda line: None)


def test_a_wrong_base_model_is_refused(base: Path) -> None:
    with pytest.raises(BadInput, match=r"is not the model that the adapter was made for; run `kibitz llm install`\."):
        weights.install_taught(lambda line: None)
    assert list(base.parent.iterdir()) == [base]


def test_taught_weights_with_a_wrong_hash_are_refused(base: Path) -> None:
    file = weights.installed_path(weights.TAUGHT)
    file.write_bytes(b"short")
    with pytest.raises(BadInput, match="not installed; run `kibitz llm install`"):
        weights.locate(weights.TAUGHT)
    with file.open("wb") as stream:
        stream.truncate(weights.TAUGHT_SIZE_BYTES)
    with pytest.raises(BadInput, match=r"are damaged \(wrong SHA-256\); run `kibitz llm install`\."):
        Embedded(get_preset("taught"))


def test_a_wrong_result_is_not_installed(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def merge(source: Path, target: Path, *rest: Any) -> None:
        target.write_bytes(b"something else")

    monkeypatch.setattr(gguf, "merge", merge)
    with pytest.raises(BadInput, match="nothing was installed"):
        weights.install_taught(lambda line: None)
    assert list(base.parent.iterdir()) == [base]


def test_a_full_disk_is_one_sentence(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def merge(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(gguf, "merge", merge)
    with pytest.raises(BadInput, match=r"Cannot write the weights to .*: No space left on device"):
        weights.install_taught(lambda line: None)


def test_without_the_merged_weights_the_preset_says_what_to_run(base: Path) -> None:
    with pytest.raises(BadInput, match="kibitz llm install"):
        weights.locate(get_preset("taught").model)


@pytest.mark.conformance
def test_merging_gives_the_expected_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = weights.locate()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    weights.installed_path().parent.mkdir(parents=True)
    weights.installed_path().symlink_to(plain)
    assert weights.sha256(weights.install_taught(lambda line: None)) == weights.TAUGHT_SHA256
