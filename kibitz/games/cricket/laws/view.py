"""What a captain may see, and the same as features for a network."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from kibitz.games.cricket.laws.state import Ball, State
from kibitz.games.cricket.laws.step import (
    Settings,
    comes_in,
    in_powerplay,
    may_bowl,
    overs_of,
    twenty_over,
    waiting,
)
from kibitz.games.cricket.model.delivery import FIRST_SPIN, NO_PLAYER, NOTHING, phase_of


class View(NamedTuple):
    """The scoreboard, the players in the middle and the last ball. The levels of match and innings are hidden.

    Nothing here depends on the other captain's choice for the next ball.
    """

    seat: int
    bats: Array  # bool[], whether this seat is batting
    batting_eleven: Array  # i32[], index into `Sides`
    bowling_eleven: Array
    batting_team_id: Array  # i32[], key of `roster`
    bowling_team_id: Array
    second: Array
    supers: Array
    first: Array
    first_wickets: Array
    first_legal: Array
    score: Array
    wickets: Array
    legal: Array
    balls_left: Array
    twenty_over: Array
    powerplay: Array
    striker: Array
    other: Array
    faced: tuple[Array, Array]
    waiting: Array  # i32[], bit i: player i of the batting side has not batted yet
    comes_in: Array  # bool[], whether a batter comes in if a wicket falls
    may_bowl: Array  # i32[], bit i: player i may bowl the next ball
    bowler: Array  # NO_PLAYER before the first delivery of an over
    bowler_type: Array  # of the bowler; of the last bowler before an over starts
    last_bowler: Array
    overs: tuple[Array, Array]
    free_hit: Array
    ball: Ball
    over: Array
    winner: Array


def view(settings: Settings, state: State, seat: int) -> View:
    bats_first = state.batting == 0
    batting = jnp.where(bats_first, state.elevens[0], state.elevens[1])
    bowling = jnp.where(bats_first, state.elevens[1], state.elevens[0])
    shown = jnp.where(state.bowler == NO_PLAYER, state.last_bowler, state.bowler)
    kind = settings.sides.types[bowling * 11 + jnp.minimum(shown, 10)]
    balls = jnp.where(state.supers > 0, 6, 6 * settings.overs)
    return View(
        seat=seat,
        bats=state.batting == seat,
        batting_eleven=batting,
        bowling_eleven=bowling,
        batting_team_id=settings.sides.team_ids[batting],
        bowling_team_id=settings.sides.team_ids[bowling],
        second=state.second,
        supers=state.supers,
        first=state.first,
        first_wickets=state.first_wickets,
        first_legal=state.first_legal,
        score=state.score,
        wickets=state.wickets,
        legal=state.legal,
        balls_left=balls - state.legal,
        twenty_over=twenty_over(settings, state),
        powerplay=in_powerplay(settings, state),
        striker=state.striker,
        other=state.other,
        faced=state.faced,
        waiting=waiting(state),
        comes_in=comes_in(state),
        may_bowl=jnp.where(state.bowler == NO_PLAYER, may_bowl(settings, state), 1 << state.bowler),
        bowler=state.bowler,
        bowler_type=jnp.where(shown == NO_PLAYER, 0, kind),
        last_bowler=state.last_bowler,
        overs=state.overs,
        free_hit=state.free_hit,
        ball=state.ball,
        over=state.over,
        winner=state.winner,
    )


def features(settings: Settings, view: View) -> Array:
    """f32[n], each about -1..1 or 0..1."""
    sides = settings.sides
    runs_left = settings.par.runs_left[settings.era * 121 + view.legal]
    par_total = settings.par.runs_left[settings.era * 121]
    needed = jnp.where(view.second, view.first + 1 - view.score, 0)
    rate = jnp.where(view.second, needed / jnp.maximum(view.balls_left, 1), 0.0)
    log_rate_needed = jnp.where(view.second, jnp.log(jnp.maximum(needed, 1) / jnp.maximum(runs_left, 1.0)), 0.0)
    par_made = par_total - runs_left
    bowler = jnp.minimum(jnp.where(view.bowler == NO_PLAYER, view.last_bowler, view.bowler), 10)
    phase = phase_of(view.twenty_over)
    overs_bowled = [overs_of(view.overs, jnp.int32(i)) / 4 for i in range(11)]
    outcome = view.ball.outcome
    numbers = [
        view.bats,
        view.second,
        view.supers > 0,
        view.balls_left / 120,
        view.balls_left / jnp.maximum(6 * settings.overs, 6),
        settings.overs / 20,
        view.wickets / 10,
        (view.wickets - settings.par.wickets[view.legal]) / 4,
        view.score / 200,
        (view.score - par_made) / 40,
        needed / 200,
        jnp.clip(rate, 0, 4) / 2,
        jnp.clip(log_rate_needed, -1.5, 1.5),
        view.powerplay,
        phase == 1,
        phase == 2,
        view.free_hit,
        (view.legal % 6) / 5,
        view.bowler == NO_PLAYER,
        jnp.exp(-view.faced[0] / 6),
        jnp.exp(-view.faced[1] / 6),
        jnp.minimum(view.faced[0], 60) / 60,
        4 * sides.bat_merit[view.batting_eleven * 11 + view.striker],
        4 * sides.bat_merit[view.batting_eleven * 11 + view.other],
        4 * sides.merit[(view.bowling_eleven * 11 + bowler) * 3 + phase],
        view.bowler_type >= FIRST_SPIN,
        *((view.ball.intent == i) & (outcome != NOTHING) for i in range(5)),
        *((view.ball.plan == i) & (outcome != NOTHING) for i in range(6)),
        *((view.ball.field == i) & (outcome != NOTHING) for i in range(4)),
        *overs_bowled,
    ]
    return jnp.stack([jnp.asarray(x, jnp.float32) for x in numbers])
