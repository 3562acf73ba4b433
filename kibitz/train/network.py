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
from kibitz.train.config import TrainOptions


class Shape(NamedTuple):
    """What the size of a network depends on, beside its game."""

    hidden: tuple[int, ...]
    autoregressive: bool = False
    critic_features: int = 0  # that only the value sees, and then through a body of its own


DATA_FIELDS = ["body", "out", "links", "critic"]


@partial(jax.tree_util.register_dataclass, data_fields=DATA_FIELDS, meta_fields=["sizes", "matters"])
@dataclass(frozen=True)
class Policy:
    """Features come with games last, f32[features, ...]; so do logits and values.

    Independent heads stay with an act that only a change of two parts together would improve: either part alone makes
    it worse, so neither learns to change. Autoregressive heads see the values chosen before them that matter: an expert
    chooses the others in its own way, which a supervised learner does not learn.

    A critic that sees both seats estimates the value from what the other seat knows, too, which leaves less chance in
    the advantages. Only training asks it: acts depend on the seat's own features alone.
    """

    body: list[tuple[Array, Array]]
    out: tuple[Array, Array]  # all heads and the value in one product
    links: list[Array]  # f32[last width, sizes of all earlier heads] for each head but the first; independent: empty
    critic: list[tuple[Array, Array]]  # of the seat's own features, then the other's; empty: the value is in `out`
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

    def rows(self, x: Array) -> Array:
        """What a learner records of the features, a sample in a row."""
        return x.T

    def play(self, x: Array, masks: Masks, u: Array) -> tuple[Act, Array, Array]:
        """A sampled act, its log-probability, and the value; a head takes its own row of `u`."""
        act, logits, value = self.decide(x, masks, u)
        return act, acts.log_prob(logits, masks, act, np.array(self.matters)), value

    def _heads(self, x: Array, choose: Callable[[int, Array], Array]) -> tuple[Logits, Array]:
        """Logits of the heads in their order, each with the values chosen before it, and the value."""
        features = x[: (self.body[0] if self.body else self.out)[0].shape[1]]
        seen, x, last = x, features, features
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
            fixed = (acts.values(own) == values[head]) & acts.matter(np.array(self.matters), values[0], head)
            chosen.append(jnp.broadcast_to(fixed, own.shape).astype(jnp.float32))
        return tuple(logits), self._value(seen) if len(seen) > len(features) else y[-1]

    def _value(self, x: Array) -> Array:
        for at, (weight, bias) in enumerate(self.critic):
            x = weight @ (jnp.tanh(x) if at else x) + bias.reshape(-1, *[1] * (x.ndim - 1))
        return x[0]


class Flat(NamedTuple):
    """A network as one vector: an optimiser step is then one small kernel, not a dozen."""

    vector: Array
    rebuild: Any  # vector -> Policy


def new_policy(game: Game, features: int, shape: Shape, key: Array) -> Policy:
    matters = tuple(tuple(map(bool, row)) for row in game.matters)
    return _new(features, shape, game.sizes, matters)(key)


@cache
def _new(
    features: int, shape: Shape, sizes: tuple[int, ...], matters: tuple[tuple[bool, ...], ...]
) -> Callable[[Array], Policy]:
    """As one program: otherwise JAX would compile every operation by itself in every run."""

    def new(key: Array) -> Policy:
        hidden = shape.hidden
        keys = jax.random.split(key, len(hidden) + 2)
        widths = [features, *hidden]
        body = [_layer(k, n, m) for k, (m, n) in zip(keys, pairwise(widths), strict=False)]
        heads = _orthogonal(keys[-2], sum(sizes), widths[-1], 0.01)  # nearly uniform acts at the start
        value = _orthogonal(keys[-1], 1, widths[-1], 1.0)
        out = (jnp.concatenate([heads, value]), jnp.zeros(sum(sizes) + 1))
        links = [
            _orthogonal(jax.random.fold_in(key, head), widths[-1], sum(sizes[:head]), 2**0.5)
            for head in (range(1, len(sizes)) if shape.autoregressive else ())
        ]
        critic = []
        if shape.critic_features:
            widths[0] += shape.critic_features
            *below, last = jax.random.split(jax.random.fold_in(key, len(sizes)), len(hidden) + 1)
            critic = [_layer(k, n, m) for k, (m, n) in zip(below, pairwise(widths), strict=True)]
            critic.append((_orthogonal(last, 1, widths[-1], 1.0), jnp.zeros(1)))
        return Policy(body, out, links, critic, sizes, matters)

    return jax.jit(new)


def weight_count(features: int, shape: Shape, sizes: Sequence[int]) -> int:
    """The weights of a policy, without building it."""
    hidden = shape.hidden
    links = sum(hidden[-1] * sum(sizes[:head]) for head in range(1, len(sizes))) if shape.autoregressive else 0
    bodies = [[features, *hidden, sum(sizes) + 1]]
    if shape.critic_features:
        bodies.append([features + shape.critic_features, *hidden, 1])
    return links + sum((columns + 1) * rows for widths in bodies for columns, rows in pairwise(widths))


def flatten(policy: Policy) -> Flat:
    return Flat(*ravel_pytree(policy))


def feature_size(game: Game) -> int:
    """The size of the whole input: base features and hint features."""
    return _base_size(game) + HintEncoder(game).hint_size


def shape_of(config: TrainOptions, game: Game) -> Shape:
    return Shape(config.hidden, config.autoregressive, _base_size(game) if config.critic == "both" else 0)


def _base_size(game: Game) -> int:
    settings = game.default_options.settings()
    base = jax.eval_shape(lambda: game.learning.features(settings, game.rules.view(settings, game.example, 0)))
    return int(base.shape[0])


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


def _layer(key: Array, rows: int, columns: int) -> tuple[Array, Array]:
    return _orthogonal(key, rows, columns, 2**0.5), jnp.zeros(rows)


def _orthogonal(key: Array, rows: int, columns: int, scale: float) -> Array:
    return jax.nn.initializers.orthogonal(scale)(key, (rows, columns))
