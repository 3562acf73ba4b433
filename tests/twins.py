"""Compares a vector environment of ours with Gymnasium's, made of our single ones, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv


def assert_same(ours: Any, theirs: Any, where: str = "") -> None:
    """Trees of dicts, arrays and numbers: the same keys, shapes, types and values.

    Real numbers may differ in the last bit: two programs may round differently.
    """
    if isinstance(theirs, dict):
        assert isinstance(ours, dict) and set(ours) == set(theirs), where
        for name in theirs:
            assert_same(ours[name], theirs[name], f"{where}.{name}")
    elif isinstance(theirs, np.ndarray) and theirs.dtype == object:
        assert ours.dtype == object and ours.shape == theirs.shape, where
        for i in range(len(theirs)):
            assert_same(ours[i], theirs[i], f"{where}[{i}]")
    elif theirs is None:
        assert ours is None, where
    else:
        assert np.asarray(ours).dtype == np.asarray(theirs).dtype, where
        if np.asarray(theirs).dtype == np.float32:
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6, err_msg=where)
        else:
            np.testing.assert_array_equal(ours, theirs, err_msg=where)


def play_beside(
    ours: Any,
    make: Callable[[], Any],
    choose: Callable[[np.random.Generator, dict[str, Any]], Any],
    info_names: tuple[str, ...],
    steps: int,
) -> int:
    """Returns the number of finished episodes; `choose` receives the current infos with these names."""
    mode: AutoresetMode = ours.autoreset_mode
    theirs = SyncVectorEnv([make for _ in range(ours.num_envs)], autoreset_mode=mode)
    rng = np.random.default_rng(5)
    (seen, infos), (expected, expected_infos) = ours.reset(seed=11), theirs.reset(seed=11)
    assert_same(seen, expected, "first reset")
    assert_same(infos, expected_infos, "info of the first reset")
    finished, now = 0, {name: infos[name].copy() for name in info_names}
    for number in range(steps):
        actions = choose(rng, now)
        a, b = ours.step(actions), theirs.step(actions)
        for name, x, y in zip(("obs", "reward", "terminated", "truncated", "info"), a, b, strict=True):
            assert_same(x, y, f"step {number} {name}")
        now = {name: a[4][name].copy() for name in info_names}
        finished += int(a[2].sum())
        if mode is AutoresetMode.DISABLED and a[2].any():
            over = a[2]
            a2, b2 = ours.reset(options={"reset_mask": over}), theirs.reset(options={"reset_mask": over})
            assert_same(a2[0], b2[0], f"reset after step {number}")
            assert_same(a2[1], b2[1], f"info of the reset after step {number}")
            for name in info_names:
                now[name][over] = a2[1][name][over]
    ours.close()
    theirs.close()
    return finished
