"""Acts as MultiDiscrete actions, which every game has and other trainers understand."""

from __future__ import annotations

from typing import Any, Protocol

import jax
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from kibitz.core.errors import BadInput
from kibitz.core.game import Game

MAX_FLAT_ACTIONS = 4096  # games with more acts have no flat action space


class Masked(Protocol):
    """An environment with masks."""

    @property
    def begun(self) -> bool: ...

    def action_masks(self) -> NDArray[np.bool_]:
        """The heads' masks in the current position, concatenated."""

    def first_masks(self) -> NDArray[np.bool_]:
        """The same for what is legal in every first position."""


class SampleMasks:
    """The masks that a sample should fit.

    Some callers seed a space, sample and only then reset: the first sample after a seed is legal in
    every first position, all others in the current one.
    """

    def __init__(self, env: Masked) -> None:
        self._env, self._seeded = env, False

    def seeded(self) -> None:
        self._seeded = True

    def __call__(self) -> NDArray[np.int8]:
        first = self._seeded or not self._env.begun
        self._seeded = False
        return (self._env.first_masks() if first else self._env.action_masks()).astype(np.int8)


class MaskableMultiDiscrete(spaces.MultiDiscrete):
    """MultiDiscrete whose `sample` also takes `action_masks()`: the heads' masks, concatenated."""

    def sample(self, mask: Any = None, probability: Any = None) -> NDArray[Any]:
        if isinstance(mask, np.ndarray):
            mask = split_mask(mask, tuple(self.nvec.tolist()))
        return super().sample(mask, probability)


class MaskableBatch(spaces.Box):
    """The actions of many environments, as Gymnasium batches MultiDiscrete; `sample` takes their `action_masks()`."""

    def __init__(self, sizes: tuple[int, ...], count: int) -> None:
        highest = np.tile(np.array(sizes, np.int64) - 1, (count, 1))
        super().__init__(np.zeros_like(highest), highest, dtype=np.int64)

    def sample(self, mask: Any = None, probability: Any = None) -> NDArray[Any]:
        if mask is None:
            return super().sample(None, probability)
        return draw_legal(mask, tuple((self.high[0] + 1).tolist()), self.np_random)

    def __reduce__(self) -> Any:
        return MaskableBatch, (tuple((self.high[0] + 1).tolist()), len(self.high))


class LegalActs(MaskableMultiDiscrete):
    """MultiDiscrete whose samples are legal, so `env.step(env.action_space.sample())` works."""

    def __init__(self, env: Masked, sizes: tuple[int, ...]) -> None:
        self._masks = SampleMasks(env)
        super().__init__(list(sizes))

    def seed(self, seed: Any = None) -> Any:
        self._masks.seeded()
        return super().seed(seed)

    def sample(self, mask: Any = None, probability: Any = None) -> NDArray[Any]:
        return super().sample(self._masks() if mask is None and probability is None else mask, probability)

    def __reduce__(self) -> Any:
        """Copies, as vector environments and checkpoints make them, do not hold the environment."""
        return MaskableMultiDiscrete, (self.nvec,)


def draw_legal(masks: NDArray[Any], sizes: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.int64]:
    """i64[n, heads]: one legal value of every head, drawn uniformly; `masks` are the heads' [n, sum of sizes]."""
    columns = []
    for head in split_mask(masks, sizes):
        ends = np.cumsum(head, axis=1, dtype=np.int64)
        columns.append((ends <= (rng.random(len(head)) * ends[:, -1])[:, None]).sum(axis=1))
    return np.stack(columns, axis=1)


def split_mask(masks: NDArray[Any], sizes: tuple[int, ...]) -> tuple[NDArray[np.int8], ...]:
    """Each head's part of concatenated masks."""
    if masks.shape[-1] != sum(sizes):
        raise BadInput(f"The mask has {masks.shape[-1]} values; it should have {sum(sizes)}, as action_masks() has.")
    return tuple(np.split(masks.astype(np.int8), np.cumsum(sizes)[:-1], axis=-1))


def act_of(action: Any, sizes: tuple[int, ...]) -> list[int]:
    """A MultiDiscrete action as an act; BadInput if it is not one."""
    try:
        values = np.asarray(action)
    except ValueError:  # ragged
        values = np.zeros(0)
    if values.shape != (len(sizes),) or values.dtype.kind not in "iu":
        raise BadInput(f"The action is {action!r}; it should be {len(sizes)} whole numbers.")
    act: list[int] = values.tolist()
    return act


def as_array(values: Any) -> Any:
    """A JAX array, which stays on its device, or a NumPy array of anything else."""
    return values if isinstance(values, jax.Array) else np.asarray(values)


def batched_heads(actions: Any, sizes: tuple[int, ...], count: int) -> tuple[Any, ...]:
    """A batch of them: the values of each head, [count]."""
    try:
        values: Any = as_array(actions)
    except ValueError:  # ragged
        values = np.zeros(0)
    if values.shape != (count, len(sizes)) or values.dtype.kind not in "iu":
        raise BadInput(f"Actions should be whole numbers of shape ({count}, {len(sizes)}).")
    return tuple(values.T)


def flat_acts(game: Game) -> NDArray[np.int64] | None:
    """i64[acts, heads]: every act once, with zeros for heads that do not matter; None if there are too many."""
    sizes = [[size if matters else 1 for size, matters in zip(game.sizes, row, strict=True)] for row in game.matters]
    counts = [int(np.prod(row[1:])) for row in sizes]  # by the first head's value; a game with one head has 1 each
    if sum(counts) > MAX_FLAT_ACTIONS:
        return None
    blocks = [
        np.insert(np.indices(row[1:]).reshape(len(row) - 1, count), 0, first, axis=0)
        for first, (row, count) in enumerate(zip(sizes, counts, strict=True))
    ]
    return np.concatenate(blocks, axis=1).T.astype(np.int64)


def flat_mask(acts: NDArray[np.int64], masks: NDArray[np.bool_], game: Game) -> NDArray[np.bool_]:
    """bool[acts]: which flat acts are legal, from the heads' concatenated masks."""
    starts = np.cumsum([0, *game.sizes[:-1]])
    return np.asarray((masks[starts + acts] | ~game.matters[acts[:, 0]]).all(axis=1))
