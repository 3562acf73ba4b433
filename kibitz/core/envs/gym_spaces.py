"""Acts as MultiDiscrete actions: the form every game has, and the one others' trainers understand."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from kibitz.core.errors import BadInput


class Masked(Protocol):
    """An environment that knows what is open."""

    @property
    def begun(self) -> bool: ...

    def masks(self) -> NDArray[np.bool_]:
        """The heads' masks one after the other, of the present state."""

    def first_masks(self) -> NDArray[np.bool_]:
        """The same, of what is open in every first position."""


class OpenNow:
    """Which masks a sample should fit.

    Some seed a space, sample and only then reset: the first sample after a seed is legal in every
    first position, all others in the present one.
    """

    def __init__(self, env: Masked) -> None:
        self._env, self._seeded = env, False

    def seeded(self) -> None:
        self._seeded = True

    def __call__(self) -> NDArray[np.int8]:
        first = self._seeded or not self._env.begun
        self._seeded = False
        return (self._env.first_masks() if first else self._env.masks()).astype(np.int8)


class OpenActs(spaces.MultiDiscrete):
    """MultiDiscrete whose samples are legal, so `env.step(env.action_space.sample())` works as people expect."""

    def __init__(self, env: Masked, sizes: tuple[int, ...]) -> None:
        self._open = OpenNow(env)
        super().__init__(list(sizes))

    def seed(self, seed: Any = None) -> Any:
        self._open.seeded()
        return super().seed(seed)

    def sample(self, mask: Any = None, probability: Any = None) -> NDArray[Any]:
        if mask is None and probability is None:
            mask = tuple(np.split(self._open(), np.cumsum(self.nvec)[:-1]))
        return super().sample(mask, probability)

    def __reduce__(self) -> Any:
        """A copy, as vector environments and checkpoints make them, leaves the environment behind."""
        return spaces.MultiDiscrete, (self.nvec,)


def act_of(action: Any, sizes: tuple[int, ...]) -> list[int]:
    """A MultiDiscrete action as an act; BadInput if it is none."""
    try:
        values = np.asarray(action)
    except ValueError:  # ragged
        values = np.zeros(0)
    if values.shape != (len(sizes),) or values.dtype.kind not in "iu":
        raise BadInput(f"The action is {action!r}; it should be {len(sizes)} whole numbers.")
    act: list[int] = values.tolist()
    return act


def acts_of(actions: Any, sizes: tuple[int, ...], count: int) -> NDArray[np.int64]:
    """i64[heads, count] of a batch of them."""
    try:
        values = np.asarray(actions)
    except ValueError:  # ragged
        values = np.zeros(0)
    if values.shape != (count, len(sizes)) or values.dtype.kind not in "iu":
        raise BadInput(f"Actions should be whole numbers of shape ({count}, {len(sizes)}).")
    return values.T.astype(np.int64)
