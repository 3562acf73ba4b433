"""The first state of a match: sides, levels and toss, or a plausible position in mid-match."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from kibitz.core.bots import where
from kibitz.core.chance import pick
from kibitz.games.cricket.laws.state import State, start
from kibitz.games.cricket.laws.step import Settings
from kibitz.games.cricket.model.delivery import LEVELS, NO_PLAYER
from kibitz.games.cricket.teams.ratings import VARIANTS

NEW_UNIFORMS = 9


def new(settings: Settings, u: Array) -> State:
    """Draws two sides (one side plays itself if there is only one), levels and toss; `u` is f32[NEW_UNIFORMS]."""
    count = settings.sides.size
    home, _ = pick(u[0], count)
    away, _ = pick(u[1], max(count - 1, 1))
    away = away + (away >= home) if count > 1 else away
    levels = tuple(pick(u[2 + i], LEVELS)[0] for i in range(3))
    batting = (u[5] >= settings.bats_first).astype(jnp.int32)
    if count == 2:  # two sides keep their seats
        home, away = jnp.int32(0), jnp.int32(1)
    state = start((home, away), (levels[0], levels[1], levels[2]), batting)
    begun: State = where(settings.random_start, _midway(settings, state, u), state)
    return begun


def _midway(settings: Settings, state: State, u: Array) -> State:
    """A state after some overs of either innings, with a typical score and wickets."""
    second, rest = pick(u[6], 2)
    overs, rest = pick(rest, settings.overs)
    balls = 6 * overs
    normal = settings.model.normal
    par_total = settings.par.runs_left[settings.era * 121]
    made = par_total - settings.par.runs_left[settings.era * 121 + balls]
    level = normal[state.levels[0]] * settings.model.level_sd[settings.era, 0]
    luck = 1 + level + 0.15 * normal[pick(u[7], LEVELS)[0]]
    score = jnp.where(balls > 0, jnp.maximum(jnp.round(made * luck), 0), 0).astype(jnp.int32)
    lost, spread = settings.par.wickets[balls], pick(u[8], LEVELS)[0]
    wickets = jnp.clip(jnp.round(lost + jnp.sqrt(lost) * 0.75 * normal[spread]), 0, jnp.minimum(9, balls))
    wickets = wickets.astype(jnp.int32)
    first = jnp.maximum(jnp.round(par_total * (1 + level + 0.12 * normal[pick(rest, LEVELS)[0]])), 1).astype(jnp.int32)
    bowling = jnp.where(state.batting == 0, state.elevens[1], state.elevens[0])
    low, high, last = jnp.int32(0), jnp.int32(0), jnp.int32(NO_PLAYER)
    for i in range(20):
        player = settings.sides.orders[bowling * VARIANTS * 20 + i]
        done = i < overs
        low = low + jnp.where(done & (player < 6), 1 << (4 * jnp.minimum(player, 6)), 0)
        high = high + jnp.where(done & (player >= 6), 1 << (4 * jnp.maximum(player - 6, 0)), 0)
        last = jnp.where(done, player, last)
    mean_stay = (balls // jnp.maximum(wickets + 1, 1)).astype(jnp.int32)
    chasing = second == 1
    return state._replace(
        second=chasing,
        first=jnp.where(chasing, jnp.maximum(first, score), 0),
        first_legal=jnp.where(chasing, 6 * settings.overs, 0),
        first_wickets=jnp.where(chasing, 6, 0),
        score=score,
        wickets=wickets,
        legal=balls,
        striker=jnp.where(wickets > 0, wickets + 1, 0),
        other=jnp.where(wickets > 0, wickets // 2, 1),
        faced=(jnp.minimum(mean_stay // 2, 60), jnp.minimum(mean_stay, 60)),
        batted=(1 << (wickets + 2)) - 1,
        overs=(low, high),
        last_bowler=last,
        deliveries=jnp.where(chasing, 6 * settings.overs, 0) + balls,
    )
