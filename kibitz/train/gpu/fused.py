"""The gradient of PPO's loss in one GPU kernel, which keeps a sample's activations on the chip.

Forward pass, loss and backward pass of `ppo.loss` otherwise write every activation to the GPU's memory and read it
back, some thirty passes for each minibatch. Here every program of the grid takes blocks of samples, gathers them by
their shuffled rows, and adds to its own share of the gradient; the shares are summed at the end, in a fixed order.

Matrix products take 16-bit floats, which have the mantissa of TF32, and accumulate in 32 bits. Activations are lists of
tiles of at most `KernelPlan.tile` columns, because a Triton tensor cannot be sliced; its sizes are powers of two.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kibitz.core.act import CLOSED, matter
from kibitz.core.game import Game
from kibitz.train.config import TrainOptions
from kibitz.train.rollout import pack_masks

if TYPE_CHECKING:
    from kibitz.train.ppo import Batch

MIN_TILE = 16  # the smallest side of a product on tensor cores
MAX_WIDTH = 256  # of a layer; beyond it arithmetic, not memory, limits the plain path
FAST_WIDTH = 64  # of a layer
MAX_LAYERS = 3
MAX_OUTPUTS = 128  # acts of all heads and the value, which share one tile
MAX_HALF = 65504.0  # the largest 16-bit float
REGISTER_FLOATS = 40_000  # of the gradient that one program can keep in registers
SAME_HEAD, LIKELY, GAIN = range(3)  # see _head_matrices
METRICS = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_share")


@dataclass(frozen=True)
class KernelPlan:
    """How the work is cut; everything that the kernel is compiled for."""

    widths: tuple[int, ...]  # features, hidden layers, outputs
    sizes: tuple[int, ...]  # of the heads
    matters: tuple[tuple[bool, ...], ...]  # [size of the first head][heads]
    minibatch: int
    clip: float
    vf: float
    block: int = 64  # samples at once in one program
    programs: int = 256
    warps: int = 4
    tile: int = 64  # columns

    @property
    def layers(self) -> int:
        return len(self.widths) - 1

    @property
    def parameters(self) -> int:
        return self.offset(self.layers)

    def offset(self, layer: int) -> int:
        """Where a layer's weights begin in the network's vector: rows of inputs, then the biases."""
        return sum((n + 1) * m for n, m in zip(self.widths[:layer], self.widths[1 : layer + 1], strict=True))

    def tiles(self, level: int) -> list[tuple[int, int]]:
        """The first column and the number of columns of each tile; level 0 is the features."""
        width = self.widths[level]
        if level == self.layers or width <= self.tile:
            return [(0, max(MIN_TILE, 1 << (width - 1).bit_length()))]
        return [(start, self.tile) for start in range(0, width, self.tile)]

    @property
    def always(self) -> bool:
        """Whether every head matters for every act."""
        return all(all(row) for row in self.matters)

    @property
    def in_registers(self) -> bool:
        pairs = ((level, level + 1) for level in range(self.layers))
        return sum(_columns(self.tiles(a)) * _columns(self.tiles(b)) for a, b in pairs) <= REGISTER_FLOATS


def unsupported(game: Game, config: TrainOptions, device: Any) -> str | None:
    """What the kernel lacks for this, in words, or None if it can learn it."""
    outputs = sum(game.sizes) + 1
    if device.platform != "gpu":
        return "a CPU"
    major = str(getattr(device, "compute_capability", "")).partition(".")[0]
    if not major.isdecimal() or int(major) < 8:
        return f"a GPU such as {device.device_kind}; NVIDIA's have supported it since Ampere"
    if not 1 <= len(config.hidden) <= MAX_LAYERS:
        return f"{len(config.hidden)} hidden layers; it takes one to {MAX_LAYERS}"
    if max(config.hidden) > MAX_WIDTH:
        return f"a layer of {max(config.hidden)}; it takes at most {MAX_WIDTH}"
    if config.autoregressive and len(game.heads) > 1:
        return "autoregressive heads"
    if outputs > MAX_OUTPUTS:
        return f"a game with {outputs} outputs; it takes at most {MAX_OUTPUTS}"
    return None


def make_plan(game: Game, features: int, config: TrainOptions) -> KernelPlan:
    widths = (features, *config.hidden, sum(game.sizes) + 1)
    matters = tuple(tuple(bool(x) for x in row) for row in game.matters)
    warps = 8 if max(config.hidden) > 64 else 4
    return KernelPlan(widths, game.sizes, matters, config.minibatch, config.clip, config.vf, warps=warps)


def faster(plan: KernelPlan) -> bool:
    """Whether the kernel is worth its compilation: an H200 learns 2.7 times as fast with layers of 64, 1.1 with 128.

    No GPU has measured a gradient that leaves the registers, as that of a game with a thousand features does.
    """
    return max(plan.widths[1:-1]) <= FAST_WIDTH and plan.in_registers


class Samples(NamedTuple):
    """A batch as the kernel gathers it."""

    features: Array  # f16[samples, features padded to whole tiles]
    bits: Array  # u32[3 * words, samples]: columns that are legal, chosen where they matter, of heads that matter
    log_prob: Array  # f32[samples], and so on as in a Batch
    advantage: Array
    target: Array


def gatherable(batch: Batch, plan: KernelPlan) -> Samples:
    padded = _columns(plan.tiles(0)) - batch.features.shape[1]
    features = _half(jnp.pad(batch.features, ((0, 0), (0, padded))))
    table = np.array(plan.matters)
    first = batch.act[0]
    matters = [jnp.broadcast_to(matter(table, first, h), (n, *first.shape)) for h, n in enumerate(plan.sizes)]
    chosen = [
        of_head & (jnp.arange(n, dtype=jnp.int32)[:, None] == choice)
        for of_head, n, choice in zip(matters, plan.sizes, batch.act, strict=True)
    ]
    bits = jnp.concatenate([batch.masks, pack_masks(tuple(chosen)), pack_masks(tuple(matters))])
    return Samples(features, bits, batch.log_prob, batch.advantage, batch.target)


class Part(NamedTuple):
    """One minibatch, or several with a leading axis."""

    rows: Array  # i32[minibatch], of the batch
    mean: Array  # f32[], of the advantages
    scale: Array  # f32[], the inverse of their deviation


def parts(batch: Batch, order: Array, block: int, count: int) -> Part:
    """The minibatches of one epoch from an order of blocks of consecutive samples."""
    rows = (order[:, None] * block + jnp.arange(block, dtype=jnp.int32)).reshape(count, -1)
    advantage = batch.advantage[rows]
    return Part(rows, jnp.mean(advantage, axis=1), 1 / (jnp.std(advantage, axis=1) + 1e-8))


def gradient(
    vector: Array, samples: Samples, part: Part, ent: Array, plan: KernelPlan, interpret: bool | None = None
) -> tuple[Array, dict[str, Array]]:
    """The gradient of `ppo.loss` and its metrics over one minibatch.

    `interpret` runs the kernel as ordinary JAX operations, as a test on a CPU does.
    """
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    if interpret is None:
        interpret = jax.default_backend() == "cpu"
    blocks = pl.cdiv(plan.minibatch, plan.block)
    programs = min(plan.programs, blocks)
    shares, sums = pl.pallas_call(
        partial(_kernel, plan=plan, steps=pl.cdiv(blocks, programs), interpret=interpret),
        grid=(programs,),
        out_shape=(
            jax.ShapeDtypeStruct((programs, plan.parameters + 1), jnp.float32),
            jax.ShapeDtypeStruct((programs, len(METRICS)), jnp.float32),
        ),
        out_specs=(
            pl.BlockSpec((None, plan.parameters + 1), lambda i: (i, 0)),
            pl.BlockSpec((None, len(METRICS)), lambda i: (i, 0)),
        ),
        compiler_params=triton.CompilerParams(num_warps=plan.warps, num_stages=1),
        interpret=interpret,
        name="ppo_gradient",
    )(
        vector, *samples, part.rows, jnp.stack([part.mean, part.scale, ent]), _head_matrices(plan)
    )  # fmt: skip
    totals = jnp.sum(sums, axis=0) / plan.minibatch
    return jnp.sum(shares[:, :-1], axis=0) / plan.minibatch, dict(zip(METRICS, totals, strict=True))


def _kernel(
    vector: Any,
    features: Any,
    bits: Any,
    log_prob: Any,
    advantage: Any,
    target: Any,
    rows: Any,
    scalars: Any,
    head_matrices: Any,
    share: Any,
    sums: Any,
    *,
    plan: KernelPlan,
    steps: int,
    interpret: bool,
) -> None:
    """One program: `steps` blocks of samples."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    program, approx = pl.program_id(0), Approximate(interpret)
    tiles = [plan.tiles(level) for level in range(plan.layers + 1)]

    def slot(index: Array, exists: Array) -> tuple[Array, Array]:
        """Interpreted stores write what was there under a closed mask, so padding needs a slot of its own."""
        return (jnp.where(exists, index, plan.parameters) if interpret else index), exists

    def place(layer: int, i: int, j: int, flip: bool = False) -> tuple[Array, Array]:
        """Where the weights of a tile are in the vector, as [outputs, inputs], and which of them exist."""
        (first_in, n_in), (first_out, n_out) = tiles[layer][i], tiles[layer + 1][j]
        shape, out_axis = ((n_in, n_out), 1) if flip else ((n_out, n_in), 0)
        o = first_out + jax.lax.broadcasted_iota(jnp.int32, shape, out_axis)
        k = first_in + jax.lax.broadcasted_iota(jnp.int32, shape, 1 - out_axis)
        ins, outs = plan.widths[layer], plan.widths[layer + 1]
        return slot(plan.offset(layer) + o * ins + k, (o < outs) & (k < ins))

    def bias_place(layer: int, j: int) -> tuple[Array, Array]:
        first, n = tiles[layer + 1][j]
        o = first + jnp.arange(n, dtype=jnp.int32)
        ins, outs = plan.widths[layer], plan.widths[layer + 1]
        return slot(plan.offset(layer) + ins * outs + o, o < outs)

    def read(where: tuple[Array, Array]) -> Array:
        return triton.load(vector.at[where[0]], mask=where[1], other=0.0)

    def weights(layer: int, i: int, j: int) -> Array:
        return _half(read(place(layer, i, j)))

    pairs = [(at, i, j) for at in range(plan.layers) for i in range(len(tiles[at])) for j in range(len(tiles[at + 1]))]
    outs = [(at, j) for at in range(plan.layers) for j in range(len(tiles[at + 1]))]
    flips = {(at, i, j): tiles[at][i][1] > tiles[at + 1][j][1] for at, i, j in pairs}
    kept: dict[Any, Array] = {}
    if plan.in_registers:  # then the weights fit into shared memory, too
        kept = {pair: weights(*pair) for pair in pairs}
    biases = {out: read(bias_place(*out)) for out in outs}
    heads = [head_matrices[kind] for kind in range(3)]
    ones = jnp.ones((MIN_TILE, plan.block), jnp.float16)
    mean, scale, ent = scalars[0], scalars[1], scalars[2]

    def weight(*pair: int) -> Array:
        return kept[pair] if pair in kept else weights(*pair)

    def slopes_of(step: Any) -> tuple[dict[Any, Array], dict[Any, Array], list[Array]]:
        """The gradient over one block: of weights and of biases, and the sums of the metrics."""
        position = (program * steps + step) * plan.block + jnp.arange(plan.block, dtype=jnp.int32)
        inside = position < plan.minibatch
        row = triton.load(rows.at[position], mask=inside, other=0)
        levels = [[features[row, pl.ds(first, n)] for first, n in tiles[0]]]
        bends = []  # the derivatives of tanh
        for at in range(plan.layers):
            x = levels[at]
            y = [
                _sum(_dot(x[i], weight(at, i, j), trans_b=True) for i in range(len(x))) + biases[at, j][None]
                for j in range(len(tiles[at + 1]))
            ]
            if at + 1 < plan.layers:
                h = [approx.tanh(part) for part in y]
                levels.append([part.astype(jnp.float16) for part in h])
                bends.append([(1 - part * part).astype(jnp.float16) for part in h])
        count = bits.shape[0] // 3
        words = [triton.load(bits.at[word, row], mask=inside, other=0).astype(jnp.int32) for word in range(3 * count)]

        def flags(kind: int, column: Array) -> Array:
            of_column = words[kind * count][:, None]
            for word in range(1, count):
                of_column = jnp.where(column // 32 == word, words[kind * count + word][:, None], of_column)
            found: Array = (of_column >> (column % 32)) & 1 == 1
            return found

        normal = (advantage[row] - mean) * scale
        deltas, metrics = _loss(y[0], flags, log_prob[row], normal, target[row], inside, ent, heads, plan, approx)
        d = [deltas]
        of_weights, of_biases = {}, {}
        for at in reversed(range(plan.layers)):
            half = [_half(part) for part in d]
            for j in range(len(d)):
                of_biases[at, j] = _dot(ones, half[j])
                for i, x_tile in enumerate(levels[at]):
                    a, b = (x_tile, half[j]) if flips[at, i, j] else (half[j], x_tile)
                    of_weights[at, i, j] = _dot(a, b, trans_a=True)
            if at:
                back = [_sum(_dot(half[j], weight(at, i, j)) for j in range(len(d))) for i in range(len(tiles[at]))]
                d = [part * bend.astype(jnp.float32) for part, bend in zip(back, bends[at - 1], strict=True)]
        return of_weights, of_biases, metrics

    def write(where: tuple[Array, Array], value: Array) -> None:
        triton.store(share.at[where[0]], value, mask=where[1])

    nothing = [jnp.zeros(plan.block, jnp.float32) for _ in METRICS]
    no_bias = {(at, j): jnp.zeros((MIN_TILE, tiles[at + 1][j][1]), jnp.float32) for at, j in outs}

    def add(old: Any, new: Any) -> Any:
        return jax.tree.map(jnp.add, old, new)

    if plan.in_registers:
        shapes = {pair: place(*pair, flip=flips[pair])[1].shape for pair in pairs}
        start = ({pair: jnp.zeros(shapes[pair], jnp.float32) for pair in pairs}, no_bias, nothing)
        of_weights, of_biases, totals = jax.lax.fori_loop(0, steps, lambda i, sofar: add(sofar, slopes_of(i)), start)
        for pair in pairs:
            write(place(*pair, flip=flips[pair]), of_weights[pair])
    else:

        def accumulate(step: Any, sofar: Any) -> Any:
            of_weights, *rest = slopes_of(step)
            for pair in pairs:  # the program's own share of the gradient, which stays in the GPU's cache
                at = place(*pair, flip=flips[pair])
                before = triton.load(share.at[at[0]], mask=at[1] & (step > 0), other=0.0)
                write(at, before + of_weights[pair])
            if not interpret:
                triton.debug_barrier()
            return add(sofar, tuple(rest))

        of_biases, totals = jax.lax.fori_loop(0, steps, accumulate, (no_bias, nothing))
    for out in outs:
        write(bias_place(*out), jnp.sum(of_biases[out], axis=0) / MIN_TILE)  # its rows are equal
    for index, total in enumerate(totals):
        sums[index] = jnp.sum(total)


def _loss(
    y: Array,
    bits: Callable[[int, Array], Array],
    old_log_prob: Array,
    advantage: Array,
    target: Array,
    inside: Array,
    ent: Array,
    heads: Any,
    plan: KernelPlan,
    approx: Approximate,
) -> tuple[Array, list[Array]]:
    """The derivative of each sample's loss by its outputs `y`, f32[block, outputs], and the metrics f32[block].

    A column of `y` belongs to a head, to the value, or to padding. Products with constant matrices sum over a head's
    columns: tensor cores do so in a fraction of the instructions that masks and shuffles take.
    """
    column = jax.lax.broadcasted_iota(jnp.int32, y.shape, 1)
    legal, chosen, matters = (bits(kind, column) for kind in range(3))

    def per_head(x: Array, kind: int = SAME_HEAD) -> Array:
        return _dot(x.astype(jnp.float16), heads[kind])

    def row_sum(x: Array, where: Array) -> Array:
        return jnp.sum(jnp.where(where, x, 0.0), axis=1)

    open_y = jnp.where(legal, y, CLOSED)
    top = jnp.zeros(y.shape, jnp.float32)
    end = 0
    for size in plan.sizes:
        mine = (column >= end) & (column < end + size)
        end += size
        highest = jnp.max(jnp.where(mine, open_y, CLOSED / 10), axis=1)  # above CLOSED: the exponential stays zero
        top = jnp.where(mine, highest[:, None], top)
    weight = approx.exp(open_y - top)
    rest = weight - weight.astype(jnp.float16).astype(jnp.float32)  # two terms make the sum as good as with 32 bits
    total = jnp.maximum(per_head(weight) + per_head(rest), 1e-30)
    prob = weight * approx.inverse(total)
    log_prob = jnp.where(legal, y - top - approx.log(total), 0.0)

    change = jnp.where(inside, row_sum(log_prob, chosen) - old_log_prob, 0.0)
    ratio = approx.exp(change)
    clipped = jnp.clip(ratio, 1 - plan.clip, 1 + plan.clip)
    held = clipped * advantage < ratio * advantage  # the clipped term is the smaller one: no gradient
    by_log_prob = jnp.where(held, 0.0, -ratio * advantage)

    spread = -prob * log_prob
    surprise = log_prob + per_head(spread)  # the derivative of a head's entropy is -prob * surprise
    if plan.always:  # every head matters for every act
        entropy = jnp.sum(spread, axis=1)
        by_entropy = -prob * surprise
    else:
        likely = per_head(prob, LIKELY)
        entropy = jnp.sum(spread * likely, axis=1)
        gain = jnp.where(column < plan.sizes[0], per_head(spread, GAIN) - entropy[:, None], 0.0)
        by_entropy = prob * (gain - likely * surprise)

    error = jnp.where((column == plan.widths[-1] - 1) & inside[:, None], y - target[:, None], 0.0)
    by_choice = chosen.astype(jnp.float32) - jnp.where(matters, prob, 0.0)
    slope = by_log_prob[:, None] * by_choice - ent * by_entropy
    metrics = [
        -jnp.minimum(ratio * advantage, clipped * advantage),
        0.5 * jnp.sum(error * error, axis=1),
        entropy,
        (ratio - 1) - change,
        (jnp.abs(ratio - 1) > plan.clip).astype(jnp.float32),
    ]
    return jnp.where(legal, slope, plan.vf * error), [jnp.where(inside, x, 0.0) for x in metrics]


def _head_matrices(plan: KernelPlan) -> Array:
    """f16[3, outputs, outputs]: what to multiply rows of outputs with.

    The sum over a column's own head; how likely its head is to matter; the sum over the heads that matter for a value
    of the first head.
    """
    width = plan.tiles(plan.layers)[0][1]
    head_of = np.full(width, -1)
    head_of[: sum(plan.sizes)] = np.repeat(np.arange(len(plan.sizes)), plan.sizes)
    matrices = np.zeros((3, width, width), np.float16)
    matrices[SAME_HEAD] = (head_of[:, None] == head_of) & (head_of >= 0)
    first = plan.sizes[0]
    for column in np.flatnonzero(head_of >= 0):
        matrices[LIKELY, :first, column] = [row[head_of[column]] for row in plan.matters]
        matrices[GAIN, column, :first] = [row[head_of[column]] for row in plan.matters]
    return jnp.asarray(matrices)


class Approximate(NamedTuple):
    """Functions of 32-bit floats that take one special instruction each, exact to about six digits.

    The library's own are exact to the last digit and cost up to twenty instructions.
    """

    interpret: bool

    def inverse(self, x: Array) -> Array:
        return 1 / x if self.interpret else self._asm("rcp", x)

    def exp(self, x: Array) -> Array:
        x = x * math.log2(math.e)
        return jnp.exp2(x) if self.interpret else self._asm("ex2", x)

    def log(self, x: Array) -> Array:
        return (jnp.log2(x) if self.interpret else self._asm("lg2", x)) * math.log(2)

    def tanh(self, x: Array) -> Array:
        return 1 - 2 * self.inverse(1 + self.exp(2 * x))

    def _asm(self, name: str, x: Array) -> Array:
        from jax.experimental.pallas import triton

        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        asm = f"{name}.approx.ftz.f32 $0, $1;"
        return triton.elementwise_inline_asm(asm, args=[x], constraints="=f,f", pack=1, result_shape_dtypes=[shape])[0]


def _dot(a: Array, b: Array, trans_a: bool = False, trans_b: bool = False) -> Array:
    contract = ((0 if trans_a else 1,), (1 if trans_b else 0,))
    return jax.lax.dot_general(a, b, (contract, ((), ())), preferred_element_type=jnp.float32)


def _half(x: Array) -> Array:
    """Saturates: an overflow would become NaN."""
    return jnp.clip(x, -MAX_HALF, MAX_HALF).astype(jnp.float16)


def _sum(terms: Iterable[Array]) -> Array:
    """Without a zero to begin with, which would cost an addition."""
    return reduce(operator.add, terms)


def _columns(tiles: list[tuple[int, int]]) -> int:
    return sum(n for _, n in tiles)
