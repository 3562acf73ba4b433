"""Other trainers learn with hints: the examples, for a few steps each."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # TorchRL's, at its import
]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def example(name: str) -> Any:
    spec = spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_stable_baselines_learns_with_hints() -> None:
    model = example("hints_sb3").main("random", steps=64, games=2, rollout=32)
    assert model.num_timesteps == 64
    assert model.observation_space.shape == (15 + 10,)


def test_a_loop_in_the_style_of_cleanrl_learns_with_hints() -> None:
    means = example("hints_cleanrl").main("random", steps=64, games=4, rollout=8)
    assert len(means) == 2 and np.isfinite(means).any()


def test_torchrl_learns_with_hints() -> None:
    means = example("hints_torchrl").main("random", steps=64, rollout=32)
    assert len(means) == 2 and np.isfinite(means).all()
