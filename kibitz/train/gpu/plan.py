"""How the GPU kernels cut their work, and where they run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

from kibitz.core.game import Game
from kibitz.train.config import TrainOptions

MIN_TILE = 16  # the smallest side of a product on tensor cores
MAX_WIDTH = 256  # of a layer; beyond it arithmetic, not memory, limits the plain path
FAST_WIDTH = 128  # of a layer
MAX_LAYERS = 3
MAX_OUTPUTS = 128  # acts of all heads and the value, which share one tile
METRIC_COLUMNS = 3  # behind the outputs
REGISTER_FLOATS = 40_000  # of the gradient that one program can keep in registers


Tile = tuple[int, int]  # the first column, and the number of columns


class Matrix(NamedTuple):
    """The weights between two levels of the network: rows of inputs in its vector, one row per output."""

    offset: int  # of the first weight in the vector
    ins: int
    outs: int
    in_tiles: list[Tile]
    out_tiles: list[Tile]


@dataclass(frozen=True)
class KernelPlan:
    """Everything that the kernels are compiled for."""

    widths: tuple[int, ...]  # features, hidden layers, outputs
    sizes: tuple[int, ...]  # of the heads
    matters: tuple[tuple[bool, ...], ...]  # [size of the first head][heads]
    minibatch: int
    clip: float
    vf: float
    autoregressive: bool = False
    block: int = 64  # samples at once in one program
    programs: int = 256
    warps: int = 4
    tile: int = 64  # columns
    games: int = 64  # of a rollout's step in one program

    @property
    def layers(self) -> int:
        """Hidden layers and the outputs."""
        return len(self.widths) - 1

    @property
    def links(self) -> list[int]:
        """The heads that see the values chosen before them."""
        return list(range(1, len(self.sizes))) if self.autoregressive else []

    @cached_property
    def matrices(self) -> list[Matrix]:
        """Of the layers, each with its biases behind it, then of the links."""
        found, offset = [], 0
        for level, (ins, outs) in enumerate(pairwise(self.widths)):
            found.append(Matrix(offset, ins, outs, self.tiles(level), self.tiles(level + 1)))
            offset += (ins + 1) * outs
        for head in self.links:
            ins, outs = sum(self.sizes[:head]), self.widths[-2]
            found.append(Matrix(offset, ins, outs, [(0, self.earlier)], self.tiles(self.layers - 1)))
            offset += ins * outs
        return found

    @property
    def parameters(self) -> int:
        last = self.matrices[-1]
        return last.offset + (last.ins + (not self.links)) * last.outs

    @property
    def earlier(self) -> int:
        """Columns for the values of all heads but the last."""
        return _padded(sum(self.sizes[:-1]))

    def tiles(self, level: int) -> list[Tile]:
        """Level 0 is the features."""
        width = self.widths[level]
        if level == self.layers:  # in one tile, with columns for metrics
            return [(0, _padded(width + METRIC_COLUMNS))]
        if width <= self.tile:
            return [(0, _padded(width))]
        return [(start, self.tile) for start in range(0, width, self.tile)]

    def columns(self, level: int) -> int:
        """With those that fill up the last tile."""
        return sum(n for _, n in self.tiles(level))

    @property
    def words(self) -> int:
        """Of 32 bits, for the masks of all heads."""
        return -(-sum(self.sizes) // 32)

    @property
    def always(self) -> bool:
        """Whether every head matters for every act."""
        return all(all(row) for row in self.matters)

    @property
    def in_registers(self) -> bool:
        """Whether a program can keep its share of the gradient there."""
        pairs = ((a, b) for one in self.matrices for _, a in one.in_tiles for _, b in one.out_tiles)
        return sum(a * b for a, b in pairs) <= REGISTER_FLOATS


def _padded(columns: int) -> int:
    return max(MIN_TILE, 1 << (columns - 1).bit_length())


def unsupported(game: Game, config: TrainOptions, device: Any) -> str | None:
    """What the kernels lack for this, in words, or None if they can learn it."""
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
    if config.critic != "own":
        return "a critic that sees both seats"
    if outputs > MAX_OUTPUTS:
        return f"a game with {outputs} outputs; it takes at most {MAX_OUTPUTS}"
    return None


def make_plan(game: Game, features: int, config: TrainOptions) -> KernelPlan:
    widths = (features, *config.hidden, sum(game.sizes) + 1)
    matters = tuple(tuple(bool(x) for x in row) for row in game.matters)
    linked = config.autoregressive and len(game.heads) > 1
    plan = KernelPlan(widths, game.sizes, matters, config.minibatch, config.clip, config.vf, linked)
    wide = replace(
        plan, block=32, programs=128, warps=8, tile=128, games=128
    )  # the fastest of 28 plans for layers of 128
    if max(config.hidden) <= plan.tile:
        return plan
    return wide if max(config.hidden) <= wide.tile and wide.in_registers else replace(plan, warps=8)


def faster(plan: KernelPlan) -> bool:
    """Whether the kernels are worth their compilation: an H200 learns 2.7 times as fast with layers of 64.

    No GPU has measured a gradient that leaves the registers, as that of a game with a thousand features does.
    """
    return max(plan.widths[1:-1]) <= FAST_WIDTH and plan.in_registers
