"""One policy network for every game: a shared body, a head for each part of an act, a value head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

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


@partial(jax.tree_util.register_dataclass, data_fields=["body", "out", "links"], meta_fields=["sizes", "matters"])
@dataclass(frozen=True)
class Policy:
    """Features come with games last, f32[features, ...]; so do logits and values.

    Independent heads stay with an act that only a change of two parts together would improve: either part alone makes
    it worse, so neither learns to change. Autoregressive heads see the values chosen before them that matter: an expert
    chooses the others in its own way, which a supervised learner does not learn.
    """

    body: list[tuple[Array, Array]]
    out: tuple[Array, Array]  # all heads and the value in one product
    links: list[Array]  # f32[last width, sizes of all earlier heads] for each head but the first; independent: empty
    sizes: tuple[int, ...]
    matters: tuple[tuple[bool, ...], ...]  # of the game

    def __call__(self, x: Array, act: Act | None = None) -> tuple[Logits, Array]:
        """Logits and value. The logits of autoregressive heads are given the earlier values of `act`."""
        return self._heads(x, lambda head, logits: jnp.int32(0) if act is None else act[head])

    def decide(self, x: Array, masks: Masks, u: Array | None = None) -> tuple[Act, Logits, Array]:
        """An act, the logits of its heads, and the value: sampled with `u`, f32[heads, ...], or greedy without."""
        act: list[Array] = []

        def choose(head: int, logits: Array) -> Array:
            mask = masks[head]
            act.append(acts.best_of_head(logits, mask) if u is None else acts.sample_head(logits, mask, u[head]))
            return act[-1]

        logits, value = self._heads(x, choose)
        return tuple(act), logits, value

    def _heads(self, x: Array, choose: Callable[[int, Array], Array]) -> tuple[Logits, Array]:
        """Logits of the heads in their order, each with the values chosen before it, and the value."""
        last = x
        for weight, bias in self.body:
            last = weight @ x + bias.reshape(-1, *[1] * (x.ndim - 1))
            x = jnp.tanh(last)
        weight, bias = self.out
        y = weight @ x + bias.reshape(-1, *[1] * (x.ndim - 1))
        logits: list[Array] = []
        values: list[Array] = []
        chosen: list[Array] = []
        for head, (size, end) in enumerate(zip(self.sizes, np.cumsum(self.sizes), strict=True)):
            own = y[end - size : end]
            if self.links and head:
                x = jnp.tanh(last + self.links[head - 1] @ jnp.concatenate(chosen))
                own = weight[end - size : end] @ x + bias[end - size : end].reshape(-1, *[1] * (x.ndim - 1))
            logits.append(own)
            values.append(choose(head, own))
            seen = (acts.values(own) == values[head]) & acts.matter(np.array(self.matters), values[0], head)
            chosen.append(jnp.broadcast_to(seen, own.shape).astype(jnp.float32))
        return tuple(logits), y[-1]


class Flat(NamedTuple):
    """A network as one vector: an optimiser step is then one small kernel, not a dozen."""

    vector: Array
    rebuild: Any  # vector -> Policy


def new_policy(game: Game, features: int, hidden: Sequence[int], key: Array, autoregressive: bool = False) -> Policy:
    matters = tuple(tuple(map(bool, row)) for row in game.matters)
    return _new(features, tuple(hidden), game.sizes, matters, autoregressive)(key)


@cache
def _new(
    features: int,
    hidden: tuple[int, ...],
    sizes: tuple[int, ...],
    matters: tuple[tuple[bool, ...], ...],
    autoregressive: bool,
) -> Callable[[Array], Policy]:
    """As one program: otherwise JAX would compile every operation by itself in every run."""

    def new(key: Array) -> Policy:
        keys = jax.random.split(key, len(hidden) + 2)
        widths = [features, *hidden]
        body = [(_orthogonal(k, n, m, 2**0.5), jnp.zeros(n)) for k, (m, n) in zip(keys, pairwise(widths), strict=False)]
        heads = _orthogonal(keys[-2], sum(sizes), widths[-1], 0.01)  # nearly uniform acts at the start
        value = _orthogonal(keys[-1], 1, widths[-1], 1.0)
        out = (jnp.concatenate([heads, value]), jnp.zeros(sum(sizes) + 1))
        links = [
            _orthogonal(jax.random.fold_in(key, head), widths[-1], sum(sizes[:head]), 2**0.5)
            for head in (range(1, len(sizes)) if autoregressive else ())
        ]
        return Policy(body, out, links, sizes, matters)

    return jax.jit(new)


def weight_count(features: int, hidden: Sequence[int], sizes: Sequence[int], autoregressive: bool = False) -> int:
    """The weights of a policy, without building it."""
    widths = [features, *hidden, sum(sizes) + 1]
    links = sum(widths[-2] * sum(sizes[:head]) for head in range(1, len(sizes))) if autoregressive else 0
    return sum((columns + 1) * rows for columns, rows in pairwise(widths)) + links


def flatten(policy: Policy) -> Flat:
    return Flat(*ravel_pytree(policy))


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
        features = adapter(game.learning.features(settings, view), hint, masks)
        act, _, _ = policy.decide(features, masks, None if greedy else u[adviser_uniforms:])
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
