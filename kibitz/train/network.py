"""One policy network for every game: a shared body, a head for each part of an act, a value head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from kibitz.advice.features import Hint, HintEncoder
from kibitz.core import act as acts
from kibitz.core.act import Act, Logits, Masks
from kibitz.core.bots import NO_HINTS, Bot
from kibitz.core.game import Game


class Policy(eqx.Module):
    """Features come with games last, f32[features, ...]; so do logits and values."""

    body: list[tuple[Array, Array]]
    out: tuple[Array, Array]  # all heads and the value in one product
    sizes: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, features: int, hidden: Sequence[int], sizes: tuple[int, ...], key: Array) -> None:
        keys = jax.random.split(key, len(hidden) + 2)
        widths = [features, *hidden]
        self.body = [
            (_orthogonal(k, n, m, 2**0.5), jnp.zeros(n)) for k, m, n in zip(keys, widths, widths[1:], strict=False)
        ]
        heads = _orthogonal(keys[-2], sum(sizes), widths[-1], 0.01)  # nearly uniform acts at the start
        value = _orthogonal(keys[-1], 1, widths[-1], 1.0)
        self.out = (jnp.concatenate([heads, value]), jnp.zeros(sum(sizes) + 1))
        self.sizes = sizes

    def __call__(self, x: Array) -> tuple[Logits, Array]:
        for weight, bias in self.body:
            x = jnp.tanh(weight @ x + bias.reshape(-1, *[1] * (x.ndim - 1)))
        weight, bias = self.out
        y = weight @ x + bias.reshape(-1, *[1] * (x.ndim - 1))
        ends = np.cumsum(self.sizes)
        logits = tuple(y[end - size : end] for size, end in zip(self.sizes, ends, strict=True))
        return logits, y[-1]


class Flat(NamedTuple):
    """A network as one vector: an optimiser step is then one small kernel, not a dozen."""

    vector: Array
    rebuild: Any  # vector -> Policy


def new_policy(game: Game, features: int, hidden: Sequence[int], key: Array) -> Policy:
    return _new(features, tuple(hidden), game.sizes)(key)


@cache
def _new(features: int, hidden: tuple[int, ...], sizes: tuple[int, ...]) -> Callable[[Array], Policy]:
    """As one program: otherwise JAX would compile every operation by itself in every run."""
    return jax.jit(lambda key: Policy(features, hidden, sizes, key))


def weight_count(features: int, hidden: Sequence[int], sizes: Sequence[int]) -> int:
    """The weights of a policy, without building it."""
    widths = [features, *hidden, sum(sizes) + 1]
    return sum((columns + 1) * rows for columns, rows in pairwise(widths))


def flatten(policy: Policy) -> Flat:
    arrays, static = eqx.partition(policy, eqx.is_array)
    vector, unravel = ravel_pytree(arrays)
    return Flat(vector, lambda v: eqx.combine(unravel(v), static))


def feature_size(game: Game) -> int:
    """The size of the whole input: base features and hint features."""
    settings = game.default_options.settings()
    base = jax.eval_shape(lambda: game.learning.features(settings, game.rules.view(settings, game.example, 0)))
    return int(base.shape[0]) + HintEncoder(game).hint_size


def policy_bot(
    game: Game,
    policy: Any,
    name: str,
    adviser: Bot | None = None,
    cadence: int = 1,
    greedy: bool = True,
    heard: Any = True,
    hints_from: str = NO_HINTS,
) -> Bot:
    """A network as a bot: player, opponent or expert. With an adviser it gets hints as in training, if `heard`."""
    adapter = HintEncoder(game)
    adviser_uniforms = adviser.uniforms if adviser else 0

    def start(settings: Any, seat: int, u: Array) -> Any:
        return (jnp.int32(0), adviser.start(settings, seat, u[:adviser_uniforms]) if adviser else ())

    def choose(settings: Any, memory: Any, view: Any, masks: Masks, u: Array) -> tuple[Any, Act]:
        since, adviser_memory = memory
        hint = adapter.no_hint(jnp.int32(0))
        if adviser:
            adviser_memory, advice = adviser.choose(settings, adviser_memory, view, masks, u[:adviser_uniforms])
            hint = Hint(advice, jnp.float32(1.0), (since == 0) & heard)
        logits, _ = policy(adapter(game.learning.features(settings, view), hint, masks))
        act = acts.best(logits, masks) if greedy else acts.sample(logits, masks, u[adviser_uniforms:])
        return ((since + 1) % cadence, adviser_memory), act

    return Bot(
        name=name,
        choose=choose,
        start=start,
        precompute=adviser.precompute if adviser else lambda settings, seat: settings,
        uniforms=adviser_uniforms + (0 if greedy else len(game.heads)),
        bit_widths=(cadence.bit_length(), adviser.bit_widths if adviser else ()),
        hints_from=hints_from,
    )


def _orthogonal(key: Array, rows: int, columns: int, scale: float) -> Array:
    return jax.nn.initializers.orthogonal(scale)(key, (rows, columns))
