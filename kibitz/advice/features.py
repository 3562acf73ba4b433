"""A hint as input features of a network.

For the negotiation these are ten: `act_onehot` (5), `oA_norm` (3, divided by the caps), `confidence` (1),
`h_avail` (1). Other games get the same features from their own heads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from kibitz.core.act import Act, Masks, matter, values
from kibitz.core.game import Game


class Hint(NamedTuple):
    """The advice for one position; games last, or no batch axis."""

    act: Act
    confidence: Any  # f32[...], 0..1
    available: Any  # bool[...]


class HintEncoder:
    """Builds a network's input in JAX: the game's base features, then the hint's. `HintAdapter` does so in NumPy."""

    def __init__(self, game: Game) -> None:
        self.game = game

    @property
    def hint_size(self) -> int:
        return self.game.heads[0].size + len(self.game.heads) - 1 + 2

    def hint_features(self, hint: Hint, masks: Masks) -> Array:
        """f32[hint_size, ...]; zeros without a hint."""
        onehot = (values(masks[0]) == hint.act[0]).astype(jnp.float32)
        parts = [onehot]
        for head in range(1, len(self.game.heads)):
            cap = jnp.max(jnp.where(masks[head], values(masks[head]), 0), axis=0)
            norm = hint.act[head] / jnp.maximum(cap, 1).astype(jnp.float32)
            counts = matter(self.game.matters, hint.act[0], head)
            parts.append(jnp.where(counts, norm, 0.0)[None])
        parts += [jnp.asarray(hint.confidence, jnp.float32)[None], jnp.ones_like(onehot[:1])]
        return jnp.where(hint.available, jnp.concatenate(parts), 0.0)

    def __call__(self, base: Array, hint: Hint, masks: Masks) -> Array:
        """f32[base + hint_size, ...]."""
        return jnp.concatenate([base, self.hint_features(hint, masks)])

    def no_hint(self, like: Array) -> Hint:
        """No hint, in the shape of a batch."""
        zero = jnp.zeros_like(like, jnp.int32)
        return Hint((zero,) * len(self.game.heads), zero.astype(jnp.float32), zero.astype(bool))
