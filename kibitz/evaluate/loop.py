"""Many episodes between two bots as one compiled program, each from its first state to its end."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from kibitz.core.bots import BATCH, Bot, where
from kibitz.core.chance import episode_luck, seat_luck, uniforms
from kibitz.core.game import SEATS, Game, blank
from kibitz.core.play.packs import Regret
from kibitz.core.styles import style_scores, watched
from kibitz.core.xla.packing import Layout, fusion_barrier

COUNT_BITS = 16  # of the number of steps


class Lucks(NamedTuple):
    """u32[n, 2] each: the keys from which the game and each seat draw."""

    game: Array
    seats: tuple[Array, Array]


class EndedMatches(NamedTuple):
    returns: Array  # f32[n, 2]
    scores: dict[str, Array]  # f32[n, 2] each
    steps: Array  # i32[n]
    lost: Array  # f32[n, 2], total regret by the pack's judge; zeros without one


class Moment(NamedTuple):
    """One episode between two steps."""

    state: Any
    memories: tuple[Any, Any]
    number: Array  # i32[], steps so far


def match_program(game: Game, bots: tuple[Bot, Bot], styles: bool = False) -> Any:
    """settings, key, episode numbers -> returns f32[n, 2] and scores, with those of styles if asked; to be compiled."""
    play = Loop(game, bots, styles=styles)

    def run(settings: Any, key: Array, numbers: Array) -> tuple[Array, dict[str, Array]]:
        lucks = lucks_of(jnp.broadcast_to(key, (len(numbers), 2)), numbers, jnp.zeros(len(numbers), bool))
        states = jax.vmap(lambda luck: game.rules.new(settings, uniforms(luck, 0, game.rules.new_uniforms)))(lucks.game)
        ended = play(settings, lucks, states, (numbers[0] >= 0).astype(jnp.int32))
        return ended.returns, ended.scores

    return run


def pack_program(game: Game, bots: tuple[Bot, Bot], regret: Regret | None) -> Any:
    """settings, judge's tables, keys u32[n, 2], numbers, swapped bool[n], first positions -> Ended; to be compiled."""
    play = Loop(game, bots, regret)

    def run(settings: Any, tables: Any, keys: Array, numbers: Array, swapped: Array, states: Any) -> EndedMatches:
        lucks = lucks_of(keys, numbers, swapped)
        return play(settings, lucks, states, (numbers[0] >= 0).astype(jnp.int32), tables)

    return run


def lucks_of(keys: Array, numbers: Array, swapped: Array) -> Lucks:
    """The keys of episode `number`; where `swapped`, each seat draws from the other's."""

    def one(key: Array, number: Array, exchanged: Array) -> Lucks:
        luck = episode_luck(key, number)
        mine = (seat_luck(luck, 0), seat_luck(luck, 1))
        return Lucks(luck, where(exchanged, mine[::-1], mine))

    return jax.vmap(one)(keys, numbers, swapped)


class Loop:
    """Carries episodes packed, with a `fusion_barrier` after each half of a turn."""

    def __init__(self, game: Game, bots: tuple[Bot, Bot], regret: Regret | None = None, styles: bool = False) -> None:
        bots = (watched(game, bots[0]), watched(game, bots[1])) if styles else bots
        self.game, self.bots, self.regret, self.styles = game, bots, regret, styles
        zero: Any = np.int32(0)
        luck: Any = np.zeros(2, np.uint32)
        first, second = (
            blank(lambda settings, seat=seat: self._first_memory(settings, seat, luck), game.default_settings)
            for seat in SEATS
        )
        widths = (bots[0].bit_widths, bots[1].bit_widths)
        bits_of_moment: Any = (game.bit_widths, widths, COUNT_BITS)
        self.moments = Layout(Moment(*bits_of_moment), Moment(game.example, (first, second), zero))
        bits = tuple(max(1, (size - 1).bit_length()) for size in game.sizes)
        act = (zero,) * len(bits)
        self.choices = Layout(((bits, bits), widths), ((act, act), (first, second)))

    def __call__(self, settings: Any, lucks: Lucks, states: Any, one: Array, tables: Any = None) -> EndedMatches:
        """`one` is the number 1, unknown to the compiler; `tables` are the judge's."""
        last, returns, lost = self.play(settings, lucks, states, one, tables)
        scores = dict(jax.vmap(lambda state: self.game.measures.score(settings, state))(last.state))
        if self.styles:
            notes = tuple(memory[1] for memory in last.memories)
            scores |= jax.vmap(lambda own, state: style_scores(self.game, settings, own, state))(notes, last.state)
        return EndedMatches(returns, scores, last.number, lost)

    def play(
        self, settings: Any, lucks: Lucks, states: Any, one: Array, tables: Any = None
    ) -> tuple[Moment, Array, Array]:
        """The last moment of every episode, what both seats earned, and their regret."""
        moments = jax.vmap(lambda luck, state: self._begin(settings, luck, state))(lucks, states)
        count = lucks.game.shape[0]

        def turn(carry: Any) -> Any:
            for seats in (SEATS,) if self.game.rules.simultaneous else ((0,), (1,)):
                carry = self._turn(settings, tables, lucks, carry, seats, one)
            return carry

        def running(carry: Any) -> Array:
            return jnp.any(jax.vmap(lambda m: self.game.rules.to_act(self.moments.unpack(m).state))(carry[0]))

        nothing = jnp.zeros((count, 2))
        packed, returns, lost = lax.while_loop(running, turn, (moments, nothing, nothing))
        return jax.vmap(self.moments.unpack)(packed), returns, lost

    def _first_memory(self, settings: Any, seat: int, luck: Array) -> Any:
        bot = self.bots[seat]
        return bot.start(settings, seat, uniforms(luck, 0, bot.uniforms))

    def _begin(self, settings: Any, luck: Lucks, state: Any) -> Any:
        memories = (self._first_memory(settings, 0, luck.seats[0]), self._first_memory(settings, 1, luck.seats[1]))
        return self.moments.pack(Moment(state, memories, jnp.int32(0)))

    def _turn(self, settings: Any, tables: Any, lucks: Lucks, carry: Any, seats: tuple[int, ...], one: Array) -> Any:
        packed, returns, lost = carry
        choose: Any = jax.vmap(lambda luck, m: self._choose(settings, luck, m, seats), axis_name=BATCH)
        chosen = fusion_barrier(one, lambda: choose(lucks, packed))
        regret = self.regret
        if regret is not None:
            judge = regret.lost

            def given(m: Any, words: Any) -> Array:
                return judge(tables, settings, self.moments.unpack(m).state, self.choices.unpack(words)[0])

            lost = fusion_barrier(one, lambda: lost + jax.vmap(given)(packed, chosen))
        packed, returns = fusion_barrier(
            one,
            lambda: jax.vmap(lambda luck, m, words, paid: self._step(settings, luck, m, words, paid, seats))(
                lucks.game, packed, chosen, returns
            ),
        )
        return packed, returns, lost

    def _choose(self, settings: Any, luck: Lucks, packed: Any, seats: tuple[int, ...]) -> Any:
        """The seats choose at once; a seat that is not to act keeps its memory."""
        moment: Moment = self.moments.unpack(packed)
        turn = self.game.rules.to_act(moment.state)
        memories: list[Any] = list(moment.memories)
        acts: list[Any] = [None, None]
        for seat in seats:
            bot = self.bots[seat]
            view, masks = (
                self.game.rules.view(settings, moment.state, seat),
                self.game.rules.legal(settings, moment.state, seat),
            )
            u = uniforms(luck.seats[seat], moment.number + 1, bot.uniforms)
            memory, acts[seat] = bot.choose(settings, memories[seat], view, masks, u)
            memories[seat] = where(turn[seat], memory, memories[seat])
        given = tuple(act if act is not None else acts[1 - seat] for seat, act in enumerate(acts))
        return self.choices.pack((given, (memories[0], memories[1])))

    def _step(
        self, settings: Any, luck: Array, packed: Any, words: Any, returns: Array, seats: tuple[int, ...]
    ) -> tuple[Any, Array]:
        """Leaves the state unchanged unless one of the seats is to act."""
        game = self.game
        moment: Moment = self.moments.unpack(packed)
        acts, memories = self.choices.unpack(words)
        u = uniforms(luck, moment.number + 1, game.rules.step_uniforms)
        state, rewards, _ = game.rules.step(settings, moment.state, acts, u)
        turn = game.rules.to_act(moment.state)
        acted = jnp.any(jnp.stack([turn[seat] for seat in seats]))
        after = Moment(state, memories, moment.number + 1)
        kept = moment._replace(memories=memories)
        moved, paid = where(acted, (after, returns + rewards), (kept, returns))
        return self.moments.pack(moved), paid
