"""Batches of games as a learner plays them, and the learner: everything that the algorithms share.

Arrays have games last where they are read as numbers (features, masks), so that a network is one
matrix product and everything else a vector loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from kibitz.advice.features import Hint, HintEncoder
from kibitz.core.act import Act, Masks
from kibitz.core.bots import BATCH, Bot, where
from kibitz.core.chance import block
from kibitz.core.game import SEATS, Game, game_over
from kibitz.core.solo import Against, OpponentReply, Solo, against
from kibitz.train.config import TrainOptions

if TYPE_CHECKING:
    import optax


class Games(NamedTuple):
    """A batch of games between two steps; every leaf has games first, as `vmap` leaves them."""

    solo: Any  # packed
    hint: Any  # Hint; without an adviser (), because each array that a loop carries costs a kernel
    adviser_memory: Any
    since: Any  # i32[n], steps since the last hint; () without an adviser
    returned: Array  # f32[n], the episode's rewards so far
    steps: Array  # i32[n], the learner's steps in this episode
    notes: Any = ()  # on the episodes, for the reward of a style


class Learner(NamedTuple):
    """Everything that changes during training; saved whole, it resumes bit for bit."""

    weights: Array  # f32[parameters]
    moments: Any  # the optimiser's
    games: Games
    key: Array  # u32[2]
    updates: Array  # i32[], so far
    pool: Array  # f32[selves, parameters], earlier selves as opponents; no rows without self-play


class Stepped(NamedTuple):
    """What a step paid and ended."""

    reward: Array  # f32[n]
    over: Array  # bool[n]: terminated; no game truncates
    returned: Array  # f32[n], the whole episode's return where it is over
    steps: Array  # i32[n], and its length


class Placed(NamedTuple):
    """One game after a step: the same game or a new one."""

    solo: Solo
    reply: OpponentReply  # the opponent's act that led here
    returned: Array  # f32[]
    steps: Array  # i32[]
    notes: Any


class Past(NamedTuple):
    """What an adviser may know of the step that led to a position."""

    over: Array  # bool[]: the position begins a new game
    act: Act  # the learner's
    adviser_memory: Any


@dataclass(frozen=True)
class StyleReward:
    """Pays 1 for an episode that shows the style, else 0; and a share of what the game pays, if asked."""

    style: str
    payoff_weight: float = 0.0  # per point of the game


@dataclass(frozen=True, eq=False)
class Practice:
    """What a learner plays: a game, an opponent, and an adviser or None."""

    game: Game
    opponent: Bot
    adviser: Bot | None = None
    cadence: int = 1  # a hint on reset and after every `cadence` steps
    reward: StyleReward | None = None  # None: the game's own
    both_seats: bool = False  # features of the other seat follow the learner's own, for the critic

    @cached_property
    def play(self) -> Against:
        return against(self.game, self.opponent)

    @cached_property
    def adapter(self) -> HintEncoder:
        return HintEncoder(self.game)

    @property
    def advised(self) -> bool:
        return self.adviser is not None

    @property
    def begin_uniforms(self) -> int:
        return self.play.new_uniforms + self.advice_uniforms

    @property
    def advice_uniforms(self) -> int:
        return 2 * self.adviser.uniforms if self.adviser else 0

    @property
    def step_uniforms(self) -> int:
        return self.play.step_uniforms + self.begin_uniforms

    def begin(self, settings: Any, u: Array) -> Games:
        """New games; `u` is f32[begin_uniforms, games]."""

        def one(u: Array) -> Games:
            since = jnp.int32(0) if self.advised else ()
            return self._enter(settings, self._deal(settings, u), None, since, u[self.play.new_uniforms :])

        return jax.vmap(one, in_axes=-1, axis_name=BATCH)(u)

    def unpack(self, games: Games) -> Solo:
        solo: Solo = jax.vmap(self.play.layout.unpack)(games.solo)
        return solo

    def observe(self, settings: Any, solo: Solo, hint: Any) -> tuple[Array, Masks]:
        """f32[features, games] and masks with games last; `hint` is that of `Games`."""

        def one(state: Any) -> tuple[list[Array], Masks]:
            views = [self.game.rules.view(settings, state, seat) for seat in (SEATS if self.both_seats else (0,))]
            return [self.game.learning.features(settings, view) for view in views], self.game.rules.legal(
                settings, state, 0
            )

        (base, *other), masks = jax.vmap(one, out_axes=-1)(solo.state)
        own = self.adapter(base, hint or self.adapter.no_hint(base[0]), masks)
        return jnp.concatenate([own, *other]), masks

    def step(self, settings: Any, games: Games, solo: Solo, act: Act, u: Array) -> tuple[Games, Stepped]:
        """`solo` is `unpack(games)`, `u` f32[step_uniforms, games]; a game that is over begins again at once."""

        def one(games: Games, solo: Solo, act: Act, u: Array) -> tuple[Games, Stepped]:
            return self._step(settings, games, solo, act, u)

        return jax.vmap(one, in_axes=(0, 0, 0, -1), axis_name=BATCH)(games, solo, act, u)

    def _step(self, settings: Any, games: Games, solo: Solo, act: Act, u: Array) -> tuple[Games, Stepped]:
        play = self.play
        after, rewards, over, reply = play.step(settings, solo, act, u[: play.step_uniforms])
        fresh = self._deal(settings, u[play.step_uniforms :])
        notes = self._watch(settings, games.notes, solo.state, act, reply)
        paid = self._reward(settings, rewards[0], notes, after.state, over)
        returned, steps = games.returned + paid, games.steps + 1
        placed = where(over, fresh, Placed(after, reply, returned, steps, notes))
        past = Past(over, act, games.adviser_memory)
        since = jnp.where(over, 0, games.since + 1) if self.advised else ()
        rest = u[play.step_uniforms + play.new_uniforms :]
        stepped = self._stepped(Stepped(paid, over, returned, steps), notes, after)
        return self._enter(settings, placed, past, since, rest), stepped

    def _deal(self, settings: Any, u: Array) -> Placed:
        """A new game. If the opening act ends it, the step that clears it away does not count."""
        solo, paid, reply = self.play.opening(settings, self.play.first_state(settings, u), u)
        notes, none = self._first_notes(settings, reply), jnp.bool_(False)
        first = self._reward(settings, paid[0], notes, solo.state, none)
        return Placed(solo, reply, first, -game_over(self.game, solo.state).astype(jnp.int32), notes)

    def _first_notes(self, settings: Any, reply: OpponentReply) -> Any:
        """The notes on an episode that begins; `reply` is the opponent's opening act."""
        return self.game.styles.start(settings, 0) if self.reward else ()

    def _watch(self, settings: Any, notes: Any, state: Any, act: Act, reply: OpponentReply) -> Any:
        """The notes after the learner's act in `state` and the opponent's reply."""
        if self.reward is None:
            return ()
        rules = self.game.rules
        seen = self.game.styles.watch(settings, notes, rules.view(settings, state, 0), act)
        return where(rules.to_act(state)[0], seen, notes)  # the opponent's opening act may have ended the game

    def _reward(self, settings: Any, payoff: Array, notes: Any, state: Any, over: Array) -> Array:
        """What the learner is paid for a step that led to `state`."""
        if self.reward is None:
            return payoff
        shown = self.game.styles.shown(settings, notes, state, 0)[self.reward.style]
        return (over & shown).astype(jnp.float32) + self.reward.payoff_weight * payoff

    def _stepped(self, stepped: Stepped, notes: Any, after: Solo) -> Any:
        """What a rollout records of a step: its notes and the position it led to are for those who need more."""
        return stepped

    def _enter(self, settings: Any, placed: Placed, past: Past | None, since: Any, u: Array) -> Games:
        """Puts a position into the batch, with a hint if one is due."""
        hint, memory = self._advise(settings, placed, past, since, u)
        return Games(
            self.play.layout.pack(placed.solo), hint, memory, since, placed.returned, placed.steps, placed.notes
        )

    def _advise(self, settings: Any, placed: Placed, past: Past | None, since: Any, u: Array) -> tuple[Any, Any]:
        """The hint for a position and the adviser's memory."""
        if self.adviser is None:
            return (), ()
        adviser, n, state = self.adviser, self.adviser.uniforms, placed.solo.state
        memory = adviser.start(settings, 0, u[:n])
        if past is not None:
            memory = where(past.over, memory, past.adviser_memory)
        view, masks = self.game.rules.view(settings, state, 0), self.game.rules.legal(settings, state, 0)
        memory, act = adviser.choose(settings, memory, view, masks, u[n:])
        return Hint(act, jnp.float32(1.0), since % self.cadence == 0), memory


def roll_out(
    policy: Any, practice: Practice, settings: Any, games: Games, key: Array, steps: int, unroll: int = 1
) -> tuple[Games, dict[str, Array]]:
    """Plays `steps` steps of every game; what was seen and done has time first."""

    def one(games: Games, key: Array) -> tuple[Games, dict[str, Array]]:
        return play_step(policy, practice, settings, games, key)

    return lax.scan(one, games, jax.random.split(key, steps), unroll=unroll)


def play_step(
    policy: Any, practice: Practice, settings: Any, games: Games, key: Array
) -> tuple[Games, dict[str, Array]]:
    """One step of every game: what was seen, done and paid."""
    heads = len(practice.game.heads)
    u = block(key, (heads + practice.step_uniforms, games.steps.shape[0]))
    solo = practice.unpack(games)
    features, masks = practice.observe(settings, solo, games.hint)
    act, log_prob, value = policy.play(features, masks, u)
    after, stepped = practice.step(settings, games, solo, act, u[heads:])
    return after, {
        "features": policy.rows(features),
        "masks": pack_masks(masks),
        "act": jnp.stack(act),
        "log_prob": log_prob,
        "value": value,
        **stepped._asdict(),
    }


def optimiser(config: TrainOptions) -> optax.GradientTransformation:
    import optax  # only to trace: the import would delay every start

    rate: Any = config.lr
    if config.lr_final is not None:
        rate = optax.linear_schedule(config.lr, config.lr_final, config.updates * config.gradient_steps)
    return optax.chain(optax.clip_by_global_norm(config.grad_norm), optax.adam(rate, eps=1e-5))


EPISODE_MEANS = ("return", "length")  # means over episodes; every other metric is a mean over updates


def episode_sums(seen: dict[str, Array], axis: str | None) -> dict[str, Array]:
    """Sums over the episodes that ended in this rollout, on all devices, and their number."""
    ended = seen["over"].astype(jnp.float32)
    sums = {
        "return": jnp.sum(seen["returned"] * ended),
        "length": jnp.sum(seen["steps"] * ended),
        "episodes": jnp.sum(ended),
    }
    return sums if axis is None else lax.psum(sums, axis)


def mean_metrics(sums: dict[str, Any], updates: Any) -> dict[str, Any]:
    """Metrics of several updates from their sums. If no episode ended, the return is NaN."""
    episodes = sums["episodes"]
    means = {name: sums[name] / episodes for name in EPISODE_MEANS}
    return {name: value / updates for name, value in sums.items()} | means | {"episodes": episodes}


def mean_over_devices(tree: Any, axis: str | None) -> Any:
    return tree if axis is None else lax.pmean(tree, axis)


def device_key(key: Array, axis: str | None) -> Array:
    return key if axis is None else jax.random.fold_in(key, lax.axis_index(axis))


def max_learner_steps(game: Game, settings: Any) -> int:
    """Steps of the learner after which every episode is over."""
    steps = game.rules.max_steps(settings)
    return steps if game.rules.simultaneous else steps // 2 + 1


def pack_masks(masks: Masks) -> Array:
    """u32[words, games]: the masks of all heads as bits, which take a thirtieth of the memory."""
    flat = jnp.concatenate(masks).astype(jnp.uint32)
    words = -(-flat.shape[0] // 32)
    padded = jnp.concatenate([flat, jnp.zeros((32 * words - flat.shape[0], *flat.shape[1:]), jnp.uint32)])
    shifts = jnp.arange(32, dtype=jnp.uint32).reshape(1, 32, *[1] * (flat.ndim - 1))
    return jnp.sum(padded.reshape(words, 32, *flat.shape[1:]) << shifts, axis=1)


def unpack_masks(bits: Array, sizes: tuple[int, ...]) -> Masks:
    shifts = jnp.arange(32, dtype=jnp.uint32).reshape(1, 32, *[1] * (bits.ndim - 1))
    flat = ((bits[:, None] >> shifts) & 1).astype(bool).reshape(-1, *bits.shape[1:])
    masks, start = [], 0
    for size in sizes:
        masks.append(flat[start : start + size])
        start += size
    return tuple(masks)
