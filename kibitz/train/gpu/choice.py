"""The choices of a rollout's step in one GPU kernel: from features to acts, their log-probabilities, and values.

The plain path takes some thirty small kernels for it, and the GPU spends most of its time between them.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from kibitz.core.act import Act, Masks
from kibitz.core.game import Game
from kibitz.train.config import TrainOptions
from kibitz.train.gpu.network import (
    LIKELY,
    UP_TO,
    Heads,
    KernelNetwork,
    dot,
    exact_product,
    flags_of,
    half,
    head_columns,
    head_matrices,
    interpreted,
)
from kibitz.train.gpu.plan import KernelPlan, make_plan
from kibitz.train.network import Flat, Policy, feature_size
from kibitz.train.rollout import pack_masks


def actor(vector: Array, flat: Flat, game: Game, config: TrainOptions) -> Policy | FusedPolicy:
    """What chooses the acts of a rollout: the network, or the kernel if the learner has one."""
    if config.fused:
        return FusedPolicy(vector, make_plan(game, feature_size(game), config))
    policy: Policy = flat.rebuild(vector)
    return policy


class FusedPolicy(NamedTuple):
    """Plays like `Policy.play`, for a whole batch of games."""

    vector: Array
    plan: KernelPlan
    interpret: bool | None = None

    def rows(self, features: Array) -> Array:
        """f16[games, features padded to whole tiles]: a sample in a row, as both kernels read it."""
        return half(jnp.pad(features, ((0, self.plan.columns(0) - features.shape[0]), (0, 0))).T)

    def play(self, features: Array, masks: Masks, u: Array) -> tuple[Act, Array, Array]:
        from jax.experimental import pallas as pl
        from jax.experimental.pallas import triton

        plan, games, interpret = self.plan, features.shape[1], interpreted(self.interpret)
        programs = pl.cdiv(games, plan.games)
        count = programs * plan.games

        def padded(x: Array) -> Array:
            return jnp.pad(x, ((0, 0), (0, count - games)))

        act, log_prob, value = pl.pallas_call(
            partial(_kernel, plan=plan, interpret=interpret),
            grid=(programs,),
            out_shape=(
                jax.ShapeDtypeStruct((len(plan.sizes), count), jnp.int32),
                jax.ShapeDtypeStruct((count,), jnp.float32),
                jax.ShapeDtypeStruct((count,), jnp.float32),
            ),
            compiler_params=triton.CompilerParams(num_warps=plan.warps, num_stages=1),
            interpret=interpret,
            name="ppo_choice",
        )(
            self.vector, self.rows(padded(features)), padded(pack_masks(masks)), padded(u), head_matrices(plan)
        )  # fmt: skip
        return tuple(act[:, :games]), log_prob[:games], value[:games]


def _kernel(
    vector: Any,
    features: Any,
    bits: Any,
    u: Any,
    constants: Any,
    act: Any,
    log_prob: Any,
    value: Any,
    *,
    plan: KernelPlan,
    interpret: bool,
) -> None:
    """One program: `plan.games` games."""
    from jax.experimental import pallas as pl

    network = KernelNetwork(vector, plan, interpret)
    games = pl.ds(pl.program_id(0) * plan.games, plan.games)
    sums = [constants[kind] for kind in range(5)]
    levels, last = network.body([features[games, pl.ds(first, n)] for first, n in plan.tiles(0)])
    y = network.outputs(levels[-1])
    column = jax.lax.broadcasted_iota(jnp.int32, y.shape, 1)
    legal = flags_of([bits[word, games].astype(jnp.int32) for word in range(plan.words)], column)
    place = jax.lax.broadcasted_iota(jnp.int32, (plan.games, plan.earlier), 1)
    earlier, chosen = jnp.zeros(place.shape, bool), jnp.zeros(y.shape, bool)
    log_probs, matters, start = jnp.zeros(y.shape, jnp.float32), jnp.ones(y.shape, jnp.float32), 0

    def distribution(y: Array) -> tuple[Heads, Array]:
        """With the cumulative sums within each head."""
        heads = Heads.of(y, legal, sums, network.approx)
        return heads, exact_product(heads.prob, sums[UP_TO])

    heads, ends = distribution(y)
    for head, mine in enumerate(head_columns(column, plan)):
        if head in plan.links:
            x = network.linked(head, last, earlier.astype(jnp.float16))
            heads, ends = distribution(network.outputs(x))
        below = mine & (ends <= u[head, games][:, None])
        final = jnp.max(jnp.where(mine & legal, column, start), axis=1)
        choice = jnp.minimum(start + jnp.sum(below.astype(jnp.int32), axis=1), final)
        act[head, games] = choice - start
        if head == 0 and not plan.always:
            matters = dot((column == choice[:, None]).astype(jnp.float16), sums[LIKELY])
        here = (column == choice[:, None]) & (matters > 0.5)
        chosen, log_probs = chosen | here, jnp.where(mine, heads.log_prob, log_probs)
        if plan.links:
            counts = jnp.max(here.astype(jnp.int32), axis=1) > 0
            earlier = earlier | ((place == choice[:, None]) & counts[:, None])
        start += plan.sizes[head]
    log_prob[games] = jnp.sum(jnp.where(chosen, log_probs, 0.0), axis=1)
    value[games] = jnp.sum(jnp.where(column == plan.widths[-1] - 1, y, 0.0), axis=1)
