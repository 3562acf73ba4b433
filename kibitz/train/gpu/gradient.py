"""The gradient of PPO's loss in one GPU kernel, which keeps a sample's activations on the chip.

Forward pass, loss and backward pass of `ppo.loss` otherwise write every activation to the GPU's memory and read it
back, some thirty passes for each minibatch. Here every program of the grid takes blocks of samples, gathers them by
their shuffled rows, and adds to its own share of the gradient; the shares are summed at the end, in a fixed order.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kibitz.core.act import matter
from kibitz.train.gpu.network import (
    ALL,
    GAIN,
    LIKELY,
    Heads,
    KernelNetwork,
    Tiles,
    bend,
    dot,
    exact_product,
    flags_of,
    half,
    head_columns,
    head_matrices,
    interpreted,
    total,
)
from kibitz.train.gpu.plan import MIN_TILE, KernelPlan
from kibitz.train.rollout import pack_masks

if TYPE_CHECKING:
    from kibitz.train.ppo import Batch

METRICS = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_share")


class Samples(NamedTuple):
    """A batch as the kernel gathers it."""

    features: Array  # f16[samples, features padded to whole tiles]
    bits: Array  # u32[3 * words, samples]: columns that are legal, chosen where they matter, of heads that matter
    log_prob: Array  # f32[samples], and so on as in a Batch
    advantage: Array
    target: Array


def gatherable(batch: Batch, plan: KernelPlan) -> Samples:
    """The features of the batch are those that `FusedPolicy.rows` recorded."""
    table = np.array(plan.matters)
    first = batch.act[0]
    matters = [jnp.broadcast_to(matter(table, first, h), (n, *first.shape)) for h, n in enumerate(plan.sizes)]
    chosen = [
        of_head & (jnp.arange(n, dtype=jnp.int32)[:, None] == choice)
        for of_head, n, choice in zip(matters, plan.sizes, batch.act, strict=True)
    ]
    bits = jnp.concatenate([batch.masks, pack_masks(tuple(chosen)), pack_masks(tuple(matters))])
    return Samples(batch.features, bits, batch.log_prob, batch.advantage, batch.target)


class Part(NamedTuple):
    """One minibatch, or several with a leading axis."""

    rows: Array  # i32[minibatch], of the batch
    scalars: Array  # f32[3]: mean of the advantages, inverse of their deviation, weight of the entropy


def parts(batch: Batch, order: Array, block: int, count: int, ent: Array) -> Part:
    """The minibatches of one epoch from an order of blocks of consecutive samples."""
    rows = (order[:, None] * block + jnp.arange(block, dtype=jnp.int32)).reshape(count, -1)
    advantage = batch.advantage[rows]
    scale = 1 / (jnp.std(advantage, axis=1) + 1e-8)
    return Part(rows, jnp.stack([jnp.mean(advantage, axis=1), scale, jnp.full(count, ent)], axis=1))


def gradient(
    vector: Array, samples: Samples, part: Part, plan: KernelPlan, interpret: bool | None = None
) -> tuple[Array, Array]:
    """The gradient of `ppo.loss` over one minibatch, and its metrics in one array, which `named` takes apart."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    interpret = interpreted(interpret)
    blocks = pl.cdiv(plan.minibatch, plan.block)
    programs = min(plan.programs, blocks)
    width = plan.parameters + 1 + plan.columns(plan.layers)
    shares = pl.pallas_call(
        partial(_kernel, plan=plan, steps=pl.cdiv(blocks, programs), interpret=interpret),
        grid=(programs,),
        out_shape=jax.ShapeDtypeStruct((programs, width), jnp.float32),
        out_specs=pl.BlockSpec((None, width), lambda i: (i, 0)),
        compiler_params=triton.CompilerParams(num_warps=plan.warps, num_stages=1),
        interpret=interpret,
        name="ppo_gradient",
    )(vector, *samples, *part, head_matrices(plan))
    total = jnp.sum(shares, axis=0) / plan.minibatch
    return total[: plan.parameters], total[plan.parameters + 1 :]


def named(sums: Array, plan: KernelPlan) -> dict[str, Array]:
    """The metrics from those of `gradient`; see `_loss`."""
    value = plan.widths[-1] - 1
    policy_loss, divergence, clipped = sums[value + 1 : value + 4]
    metrics = (policy_loss, sums[value], jnp.sum(sums[:value]), divergence, clipped)
    return dict(zip(METRICS, metrics, strict=True))


class Block(NamedTuple):
    """The samples that a program works on at once."""

    features: list[Array]  # tiles
    words: list[Array]  # i32[block] each, of `Samples.bits`
    log_prob: Array  # f32[block]
    advantage: Array
    target: Array


def _kernel(
    vector: Any,
    features: Any,
    bits: Any,
    log_prob: Any,
    advantage: Any,
    target: Any,
    rows: Any,
    scalars: Any,
    constants: Any,
    share: Any,
    *,
    plan: KernelPlan,
    steps: int,
    interpret: bool,
) -> None:
    """One program: `steps` blocks of samples."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    program, network = pl.program_id(0), KernelNetwork(vector, plan, interpret)
    matrices, pairs, outs, top = plan.matrices, network.pairs, network.outs, plan.layers - 1
    flips = {(at, i, j): matrices[at].in_tiles[i][1] > matrices[at].out_tiles[j][1] for at, i, j in pairs}
    head_sums = [constants[kind] for kind in range(5)]
    ones = jnp.ones((MIN_TILE, plan.block), jnp.float16)
    mean, scale, ent = scalars[0], scalars[1], scalars[2]

    def inside(step: Any) -> tuple[Array, Array]:
        """Where the rows of a block are, and which of them exist."""
        position = (program * steps + step) * plan.block + jnp.arange(plan.block, dtype=jnp.int32)
        return position, position < plan.minibatch

    def rows_of(step: Any) -> Array:
        position, exist = inside(step)
        return triton.load(rows.at[position], mask=exist, other=0)

    def gather(row: Array) -> Block:
        words = [bits[word, row].astype(jnp.int32) for word in range(3 * plan.words)]
        x = [features[row, pl.ds(first, n)] for first, n in plan.tiles(0)]
        return Block(x, words, log_prob[row], advantage[row], target[row])

    def by_weights(at: int, x: Tiles, d: Tiles) -> dict[Any, Array]:
        """The gradient of a matrix from its inputs and the derivatives by its outputs, both in 16 bits."""
        return {
            (at, i, j): dot(*((x[i], d[j]) if flips[at, i, j] else (d[j], x[i])), trans_a=True)
            for i in range(len(x))
            for j in range(len(d))
        }

    def by_inputs(at: int, x: Tiles, d: Tiles) -> Tiles:
        """The derivatives by a layer's inputs `x` before their tanh."""
        back = (total(dot(d[j], network.weight(at, i, j)) for j in range(len(d))) for i in range(len(x)))
        return [part * bend(value) for part, value in zip(back, x, strict=True)]

    def slopes_of(step: Any, block: Block) -> tuple[dict[Any, Array], dict[Any, Array], Array]:
        """The gradient over one block: of weights and of biases, and the samples' metrics."""
        levels, last = network.body(block.features)
        y = network.outputs(levels[-1])
        column = jax.lax.broadcasted_iota(jnp.int32, y.shape, 1)
        mine = head_columns(column, plan)
        seen = [levels[-1]]  # the last hidden layer, as each head sees it
        if plan.links:
            place = jax.lax.broadcasted_iota(jnp.int32, (plan.block, plan.earlier), 1)
            earlier = flags_of(block.words[plan.words : 2 * plan.words], place).astype(jnp.float16)
            seen += [network.linked(head, last, earlier) for head in plan.links]
            for head in plan.links:
                y = jnp.where(mine[head], network.outputs(seen[head]), y)
        normal = block._replace(advantage=(block.advantage - mean) * scale)
        slope, metrics = _loss(y, column, normal, inside(step)[1], ent, head_sums, network)
        of_biases = {(top, 0): dot(ones, half(slope))}
        of_weights: dict[Any, Array] = {}
        d: Tiles = []
        for head, x in enumerate(seen):
            own = slope
            if plan.links:  # the value belongs to the first head
                own = jnp.where(mine[head] if head else mine[0] | (column >= sum(plan.sizes)), slope, 0.0)
            halves = [half(own)]
            of_weights = _added(of_weights, by_weights(top, x, halves))
            by_last = by_inputs(top, x, halves)
            if head:
                of_weights |= by_weights(top + head, [earlier], [half(part) for part in by_last])
            d = [a + b for a, b in zip(d, by_last, strict=True)] if d else by_last
        for at in reversed(range(top)):
            halves = [half(part) for part in d]
            of_weights |= by_weights(at, levels[at], halves)
            of_biases |= {(at, j): dot(ones, part) for j, part in enumerate(halves)}
            if at:
                d = by_inputs(at, levels[at], halves)
        return of_weights, of_biases, metrics

    def write(where: tuple[Array, Array], value: Array) -> None:
        triton.store(share.at[where[0]], value, mask=where[1])

    def accumulate(step: Any, old: Any, new: Any) -> Any:
        """Adds a block's gradient to what the program has so far."""
        if plan.in_registers:
            return jax.tree.map(jnp.add, old, new)
        of_weights, *rest = new
        for pair in pairs:  # the program's own share of the gradient, which stays in the GPU's cache
            at = network.place(*pair, flip=flips[pair])
            before = triton.load(share.at[at[0]], mask=at[1] & (step > 0), other=0.0)
            write(at, before + of_weights[pair])
        if not interpret:
            triton.debug_barrier()
        return ({}, *jax.tree.map(jnp.add, tuple(old[1:]), tuple(rest)))

    def one(step: Any, carry: Any) -> Any:
        """Loads the next block while it computes this one: a gather takes as long as a layer."""
        sofar, block, next_rows = carry
        ahead = gather(next_rows), rows_of(step + 2)
        return accumulate(step, sofar, slopes_of(step, block)), *ahead

    nothing = jnp.zeros((plan.block, plan.columns(plan.layers)), jnp.float32)
    no_biases = {(at, j): jnp.zeros((MIN_TILE, matrices[at].out_tiles[j][1]), jnp.float32) for at, j in outs}
    shapes = {pair: network.place(*pair, flip=flips[pair])[1].shape for pair in pairs if plan.in_registers}
    no_weights = {pair: jnp.zeros(shape, jnp.float32) for pair, shape in shapes.items()}
    start = (no_weights, no_biases, nothing)
    (of_weights, of_biases, totals), *_ = jax.lax.fori_loop(0, steps, one, (start, gather(rows_of(0)), rows_of(1)))
    for pair in shapes:
        write(network.place(*pair, flip=flips[pair]), of_weights[pair])
    for out in outs:
        write(network.bias_place(*out), jnp.sum(of_biases[out], axis=0) / MIN_TILE)  # its rows are equal
    place = plan.parameters + 1 + jnp.arange(plan.columns(plan.layers), dtype=jnp.int32)
    share[place] = jnp.sum(totals, axis=0)


def _added(old: dict[Any, Array], new: dict[Any, Array]) -> dict[Any, Array]:
    return old | {key: old[key] + value if key in old else value for key, value in new.items()}


def _loss(
    y: Array, column: Array, block: Block, inside: Array, ent: Array, sums: list[Array], network: KernelNetwork
) -> tuple[Array, Array]:
    """The derivative of each sample's loss by its outputs `y`, f32[block, outputs], and its metrics in that shape.

    Those are the terms of the entropy in the columns of the heads, the value loss in that of the value, and behind it
    the policy loss, the divergence and whether the ratio was clipped.
    """
    plan, approx, inside = network.plan, network.approx, inside[:, None]
    legal, chosen, matters = (
        flags_of(block.words[kind * plan.words : (kind + 1) * plan.words], column) for kind in range(3)
    )
    heads = Heads.of(y, legal, sums, approx)
    prob, log_prob, advantage = heads.prob, heads.log_prob, block.advantage[:, None]

    # of the whole act, in every column; a head's sum is exact, and so are the sums of few heads
    own = exact_product(jnp.where(chosen, log_prob, 0.0), sums[ALL])
    change = jnp.where(inside, own - block.log_prob[:, None], 0.0)
    ratio = approx.exp(change)
    clipped = jnp.clip(ratio, 1 - plan.clip, 1 + plan.clip)
    held = clipped * advantage < ratio * advantage  # the clipped term is the smaller one: no gradient
    by_log_prob = jnp.where(held, 0.0, -ratio * advantage)

    spread = -prob * log_prob
    surprise = log_prob + heads.per_head(spread)  # the derivative of a head's entropy is -prob * surprise
    if plan.links:  # of the act that was chosen: a head counts if it matters for it
        entropies = jnp.where(matters, spread, 0.0)
        by_entropy = jnp.where(matters, -prob * surprise, 0.0)
    elif plan.always:  # every head matters for every act
        entropies = spread
        by_entropy = -prob * surprise
    else:
        likely = heads.per_head(prob, LIKELY)
        entropies = spread * likely
        of_value = heads.per_head(spread, GAIN)  # of the heads that matter for a value of the first
        gain = of_value - heads.per_head(jnp.where(column < plan.sizes[0], prob * of_value, 0.0))
        by_entropy = prob * (jnp.where(column < plan.sizes[0], gain, 0.0) - likely * surprise)

    error = jnp.where(column == plan.widths[-1] - 1, y - block.target[:, None], 0.0)
    by_choice = chosen.astype(jnp.float32) - jnp.where(matters, prob, 0.0)
    slope = by_log_prob * by_choice - ent * by_entropy
    metrics = jnp.where(legal, entropies, 0.5 * error * error)
    of_act = (
        -jnp.minimum(ratio * advantage, clipped * advantage),
        (ratio - 1) - change,
        (jnp.abs(ratio - 1) > plan.clip).astype(jnp.float32),
    )
    for place, value in enumerate(of_act, plan.widths[-1]):  # the same in every column, so each gets a column
        metrics = jnp.where(column == place, value, metrics)
    slope = jnp.where(legal, slope, plan.vf * error)
    return jnp.where(inside, slope, 0.0), jnp.where(inside, metrics, 0.0)
