"""A limited-overs match between two captains, ball by ball. One match, no batch axis.

Every step is one delivery. Both captains choose at the same time: the batting side its intent and the
next batter if a wicket falls, the bowling side its plan and field and, on the first delivery of an
over, the bowler. Scalars and bit masks let a batch of matches pack into a few words
(`kibitz.core.xla.packing`).
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from kibitz.core.act import Act, Head, Masks
from kibitz.core.bots import where
from kibitz.games.cricket.laws.shaping import Potential, chance
from kibitz.games.cricket.laws.state import TIE, UNDECIDED, Ball, State
from kibitz.games.cricket.model.delivery import (
    BYE,
    FIRST_SPIN,
    NO_BALL,
    NO_PLAYER,
    WIDE,
    Model,
    Situation,
    bowl,
    phase_of,
)
from kibitz.games.cricket.model.par import Par
from kibitz.games.cricket.model.tactics import ACCUMULATE, BALANCED, FIELDS, GOOD, INTENTS, PLANS, open_in_powerplay
from kibitz.games.cricket.teams.ratings import Sides

HEADS = (
    Head("intent", len(INTENTS)),
    Head("plan", len(PLANS)),
    Head("field", len(FIELDS)),
    Head("bowler", 11),
    Head("next_batter", 11),
)
STEP_UNIFORMS = 1
ALL_PLAYERS = (1 << 11) - 1  # one bit per player
OPEN_IN_POWERPLAY = sum(int(is_open) << i for i, is_open in enumerate(open_in_powerplay()))


class Settings(NamedTuple):
    overs: Array  # i32[]
    era: Array  # i32[]
    powerplay: Array  # i32[], length in balls
    bats_first: Array  # f32[], probability that seat 0 bats first
    random_start: Array  # bool[]
    model: Model
    sides: Sides
    par: Par
    potential: Potential
    fitted: Array  # i32[], the number of the fitted model, for code on the host


def _max_deliveries(settings: Settings) -> Array:
    """Deliveries after which a match is a tie: the laws allow endless wides, an episode must end."""
    return 18 * settings.overs + 200


def max_steps(settings: Settings) -> int:
    return 18 * int(np.max(np.asarray(settings.overs))) + 200


def in_powerplay(settings: Settings, state: State) -> Array:
    return (state.legal < settings.powerplay) & (state.supers == 0)


def twenty_over(settings: Settings, state: State) -> Array:
    """The equivalent over of a twenty-over innings; a super over counts as the last."""
    return jnp.where(state.supers > 0, 19, settings.par.over[state.legal])


def log_rate_needed(settings: Settings, state: State) -> Array:
    """log(runs needed / par runs from here), clipped to -1.2..1.2; 0 outside a chase."""
    par_runs = settings.par.runs_left[settings.era * 121 + state.legal]
    needed = jnp.maximum(state.first + 1 - state.score, 1)
    ratio = jnp.clip(jnp.log(needed / jnp.maximum(par_runs, 1.0)), -1.2, 1.2)
    return jnp.where(state.second & (state.supers == 0), ratio, 0.0)


def excess_wickets(settings: Settings, state: State) -> Array:
    """Wickets lost beyond par, clipped to -3..4."""
    excess = jnp.clip(state.wickets - settings.par.wickets[state.legal], -3.0, 4.0)
    return jnp.where(state.supers > 0, 0.0, excess)


def overs_of(overs: tuple[Array, Array], player: Array) -> Array:
    """i32[], overs the player has started."""
    low = player < 6
    return (jnp.where(low, overs[0], overs[1]) >> (4 * jnp.where(low, player, player - 6))) & 15


def may_bowl(settings: Settings, state: State) -> Array:
    """i32[], bit i: player i may bowl an over that starts now.

    A bowler may not bowl two overs in a row, nor two super overs in a row. The limit is a fifth of the
    overs; if five does not divide them, as many bowlers as the remainder may bowl one more. The keeper
    does not bowl.
    """
    eleven = jnp.where(state.batting == 0, state.elevens[1], state.elevens[0])
    is_super = state.supers > 0
    limit = jnp.where(is_super, 1, settings.overs // 5)
    spare = jnp.where(is_super, 0, settings.overs % 5)
    # all counts at once: adding 8 - x to a four-bit count sets its top bit if the count is at least x
    tops, ones = (0x888888, 0x88888), (0x111111, 0x11111)
    beyond = [(n + (7 - limit) * one) & top for n, one, top in zip(state.overs, ones, tops, strict=True)]
    full = [(n + (8 - limit) * one) & top for n, one, top in zip(state.overs, ones, tops, strict=True)]
    used = lax.population_count(beyond[0]) + lax.population_count(beyond[1])
    closed = [jnp.where(used < spare, above, at) for above, at in zip(beyond, full, strict=True)]
    closed_bits = _top_bits(closed[0]) | (_top_bits(closed[1]) << 6)
    barred = jnp.where(state.batting == 0, state.super_bowlers[1], state.super_bowlers[0])
    shut = (1 << settings.sides.keeper[eleven]) | (1 << state.last_bowler) | jnp.where(is_super, 1 << barred, 0)
    return jnp.asarray(ALL_PLAYERS & ~(closed_bits | shut))


def _top_bits(nibbles: Array) -> Array:
    """The top bits of six nibbles, in adjacent bits."""
    bits = jnp.int32(0)
    for i in range(6):
        bits = bits | ((nibbles >> (3 * i + 3)) & (1 << i))
    return jnp.asarray(bits)


def waiting(state: State) -> Array:
    """i32[], bit i: player i has not batted yet."""
    return ALL_PLAYERS & ~state.batted


def first_of(bits: Array) -> Array:
    """Index of the lowest set bit, 0 if there is none."""
    return jnp.where(bits == 0, 0, lax.population_count(~bits & (bits - 1)))


def last_of(bits: Array) -> Array:
    """Index of the highest set bit, 0 if there is none."""
    return jnp.where(bits == 0, 0, 31 - lax.clz(bits))


def comes_in(state: State) -> Array:
    """Whether a batter comes in if a wicket falls now."""
    return state.wickets + 1 < jnp.where(state.supers > 0, 2, 10)


def to_act(state: State) -> Array:
    return jnp.stack([~state.over, ~state.over])


def legal(settings: Settings, state: State, seat: int) -> Masks:
    """The batting side chooses intent and next batter, the bowling side the rest.

    A head that the seat does not choose has one open value: the neutral choice, the bowler of the
    current over, or 0.
    """
    bats = (state.batting == seat) & ~state.over
    bowls = (state.batting != seat) & ~state.over

    def only(size: int, value: int) -> Array:
        return jnp.arange(size) == value

    fields = jnp.where(in_powerplay(settings, state), jnp.asarray(open_in_powerplay()), jnp.ones(len(FIELDS), bool))
    players = jnp.arange(11)
    new_over = state.bowler == NO_PLAYER
    bowlers = jnp.where(new_over, may_bowl(settings, state), 1 << state.bowler)
    return (
        jnp.where(bats, True, only(len(INTENTS), ACCUMULATE)),
        jnp.where(bowls, True, only(len(PLANS), GOOD)),
        jnp.where(bowls, fields, only(len(FIELDS), BALANCED)),
        jnp.where(bowls, bowlers, 1) >> players & 1 == 1,
        jnp.where(bats & comes_in(state), waiting(state), 1) >> players & 1 == 1,
    )


def situation(settings: Settings, state: State, bowler: Array, intent: Array, plan: Array, field: Array) -> Situation:
    """Everything that the weights of the next ball depend on, once both captains have chosen."""
    eleven = where(state.batting == 0, state.elevens, state.elevens[::-1])  # of batters, of bowlers
    over = twenty_over(settings, state)
    kind = settings.sides.types[eleven[1] * 11 + bowler]
    innings_level = jnp.where(state.second, state.levels[2], state.levels[1])
    sd = settings.model.level_sd
    level = (
        settings.model.normal[state.levels[0]] * sd[settings.era, 0]
        + settings.model.normal[innings_level] * sd[settings.era, 1]
    )
    return Situation(
        era=settings.era,
        second=state.second,
        over=over,
        faced=state.faced[0],
        level=level,
        free_hit=state.free_hit,
        log_rate_needed=log_rate_needed(settings, state),
        excess_wickets=excess_wickets(settings, state),
        wickets=state.wickets,
        batter=(eleven[0] * 11 + state.striker) * 6 + kind,
        bowler=(eleven[1] * 11 + bowler) * 3 + phase_of(over),
        spin=(kind >= FIRST_SPIN).astype(jnp.int32),
        powerplay=in_powerplay(settings, state).astype(jnp.int32),
        intent=intent,
        plan=plan,
        field=field,
    )


def step(settings: Settings, state: State, acts: tuple[Act, Act], u: Array) -> tuple[State, Array, Array]:
    """Plays one delivery. A neutral or the first legal choice replaces an illegal one.

    The last ball pays 1 to the winner, 0 to the loser, or a half to each in a tie. With `shaping`, each
    ball pays a share of that as win probability changes, between -1 and 1.
    """
    batting_first = state.batting == 0
    bat, field_side = where(batting_first, acts[0], acts[1]), where(batting_first, acts[1], acts[0])
    intent = _inside(bat[0], len(INTENTS), ACCUMULATE)
    plan = _inside(field_side[1], len(PLANS), GOOD)
    powerplay = in_powerplay(settings, state)
    field = _inside(field_side[2], len(FIELDS), BALANCED)
    field = jnp.where(powerplay & ((OPEN_IN_POWERPLAY >> field) & 1 == 0), BALANCED, field)
    new_over = state.bowler == NO_PLAYER
    bowler = jnp.where(new_over, _one_of(may_bowl(settings, state), field_side[3]), state.bowler)
    next_batter = _one_of(waiting(state), bat[4])

    at = situation(settings, state, bowler, intent, plan, field)
    result = bowl(settings.model, settings.sides.batters, settings.sides.bowlers, at, u[0])

    wide, no_ball = result.outcome == WIDE, result.outcome == NO_BALL
    counts = ~(wide | no_ball)
    out = result.how > 0
    score = state.score + result.runs
    wickets = state.wickets + out
    legal_balls = state.legal + counts
    over_ends = counts & (legal_balls % 6 == 0)

    # the new batter replaces the one who is out, then the batters run
    enters = out & comes_in(state)
    gone = jnp.where(result.striker_out, state.striker, state.other)
    striker = jnp.where(enters & result.striker_out, next_batter, state.striker)
    other = jnp.where(enters & ~result.striker_out, next_batter, state.other)
    faced = jnp.minimum(state.faced[0] + ~wide, 255)
    faced_striker = jnp.where(enters & result.striker_out, 0, faced)
    faced_other = jnp.where(enters & ~result.striker_out, 0, state.faced[1])
    cross = (result.crossings % 2 == 1) ^ over_ends
    striker, other = jnp.where(cross, other, striker), jnp.where(cross, striker, other)
    faced_striker, faced_other = (
        jnp.where(cross, faced_other, faced_striker),
        jnp.where(cross, faced_striker, faced_other),
    )

    low = bowler < 6
    added = jnp.where(new_over, 1 << (4 * jnp.where(low, bowler, bowler - 6)), 0)
    after = state._replace(
        score=score,
        wickets=wickets,
        legal=legal_balls,
        striker=striker,
        other=other,
        faced=(faced_striker, faced_other),
        batted=jnp.where(enters, state.batted | (1 << next_batter), state.batted),
        bowler=jnp.where(over_ends, NO_PLAYER, bowler),
        last_bowler=jnp.where(over_ends, bowler, state.last_bowler),
        overs=(state.overs[0] + jnp.where(low, added, 0), state.overs[1] + jnp.where(low, 0, added)),
        free_hit=no_ball | (state.free_hit & wide),
        deliveries=state.deliveries + 1,
        ball=Ball(
            outcome=result.outcome,
            runs=result.runs,
            how=result.how,
            out=jnp.where(out, gone, NO_PLAYER),
            leg_bye=result.leg_bye,
            batter=state.striker,
            bowler=bowler,
            intent=intent,
            plan=plan,
            field=field,
        ),
    )
    after = where(state.over, state, _close(settings, after))
    return after, _rewards(settings, state, after), after.over


def _rewards(settings: Settings, before: State, after: State) -> Array:
    """f32[2]. The shaped part pays each change in win probability, so it sums to the result less the first chance."""
    ended = after.over & ~before.over
    won = jnp.stack([after.winner == 0, after.winner == 1])
    rewards = jnp.where(ended, jnp.where(after.winner == TIE, 0.5, won), 0.0).astype(jnp.float32)
    if not settings.potential.chances.shape[0]:
        return rewards
    weight = settings.potential.weight
    gain = jnp.where(before.over, 0.0, chance(settings, after) - chance(settings, before))
    return (1 - weight) * rewards + weight * jnp.stack([gain, -gain])


def _close(settings: Settings, state: State) -> State:
    """Ends the innings or the match if this ball ended it, and starts the next innings."""
    is_super = state.supers > 0
    balls = jnp.where(is_super, 6, 6 * settings.overs)
    all_out = state.wickets >= jnp.where(is_super, 2, 10)
    passed = state.second & (state.score > state.first)
    ended = all_out | passed | (state.legal >= balls)
    level = state.score == state.first
    # the side that batted second in a tie bats first in the super over
    tied = ended & state.second & level
    decided = ended & state.second & ~level
    spent = (state.deliveries >= _max_deliveries(settings)) & ~decided
    turns = ended & ~state.second
    opens = turns | tied
    batting = jnp.where(turns, 1 - state.batting, state.batting)
    supers = jnp.minimum(state.supers + tied, 31)
    eleven = jnp.where(batting == 0, state.elevens[0], state.elevens[1])
    hitters = settings.sides.hitters
    striker = jnp.where(supers > 0, hitters[2 * eleven], 0)
    other = jnp.where(supers > 0, hitters[2 * eleven + 1], 1)
    bowled = jnp.where(ended & is_super, state.ball.bowler, NO_PLAYER)
    by_first = ended & is_super & (state.batting == 1)  # seat 0 bowled
    by_second = ended & is_super & (state.batting == 0)
    no_player = jnp.int32(NO_PLAYER)
    winner = jnp.where(state.score > state.first, state.batting, 1 - state.batting)
    return state._replace(
        batting=batting,
        second=jnp.where(opens, turns, state.second),
        supers=supers,
        first=jnp.where(opens, jnp.where(turns, state.score, 0), state.first),
        first_wickets=jnp.where(opens, state.wickets, state.first_wickets),
        first_legal=jnp.where(opens, state.legal, state.first_legal),
        score=jnp.where(opens, 0, state.score),
        wickets=jnp.where(opens, 0, state.wickets),
        legal=jnp.where(opens, 0, state.legal),
        striker=jnp.where(opens, striker, state.striker),
        other=jnp.where(opens, other, state.other),
        faced=(jnp.where(opens, 0, state.faced[0]), jnp.where(opens, 0, state.faced[1])),
        batted=jnp.where(opens, (1 << striker) | (1 << other), state.batted),
        bowler=jnp.where(opens, no_player, state.bowler),
        last_bowler=jnp.where(opens, no_player, state.last_bowler),
        overs=(jnp.where(opens, 0, state.overs[0]), jnp.where(opens, 0, state.overs[1])),
        super_bowlers=(
            jnp.where(by_first, bowled, state.super_bowlers[0]),
            jnp.where(by_second, bowled, state.super_bowlers[1]),
        ),
        free_hit=state.free_hit & ~opens,
        over=decided | spent,
        winner=jnp.where(decided, winner, jnp.where(spent, TIE, UNDECIDED)),
    )


def _inside(choice: Array, size: int, neutral: int) -> Array:
    return jnp.where((choice >= 0) & (choice < size), choice, neutral).astype(jnp.int32)


def _one_of(open_bits: Array, choice: Array) -> Array:
    """The choice if it is open, else the first open one."""
    fits = (choice >= 0) & (choice < 11) & ((open_bits >> jnp.clip(choice, 0, 10)) & 1 == 1)
    return jnp.where(fits, choice, first_of(open_bits)).astype(jnp.int32)


def extras(ball: Ball) -> Array:
    """Runs of a ball that are not credited to a batter."""
    all_extras = (ball.outcome == WIDE) | (ball.outcome == BYE)
    return jnp.where(all_extras, ball.runs, (ball.outcome == NO_BALL).astype(jnp.int32))
