"""One delivery: the probability of each outcome, and the outcome that a uniform number selects.

Log-weights are sums of effects: era, innings and over; balls faced by the batter; the two players; the
level of the match and of the innings; both captains' choices. A single is the reference outcome, so a
sum of 0.1 makes an outcome ten per cent more likely relative to a single.
"""

from __future__ import annotations

from functools import reduce
from statistics import NormalDist
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from kibitz.core.chance import happens
from kibitz.games.cricket.model import tactics
from kibitz.games.cricket.model.calibration import ERAS, TAIL_WICKETS
from kibitz.games.cricket.model.tactics import FIELDS, INTENTS, OUTCOMES, PLANS

DOT, ONE, TWO, THREE, FOUR, SIX, WICKET, WIDE, NO_BALL, BYE = range(10)
NOTHING = 15  # outcome before the first ball
NO_PLAYER = 15  # player index when there is no player
RUNS = (0, 1, 2, 3, 4, 6)  # off the bat, for outcomes DOT to SIX
HOWS = ("", "caught", "bowled", "lbw", "stumped", "caught and bowled", "hit wicket", "run out")
RUN_OUT = HOWS.index("run out")
TYPES = ("pace_right", "pace_left", "spin_off", "spin_leg", "spin_left_orth", "spin_left_wrist")
FIRST_SPIN = 2  # TYPES from this index on are spin
LEVELS = 256  # a level is stored as one of this many equally likely steps
# computed on the host: eager JAX would compile thirty kernels for it in every process
NORMAL = np.array([NormalDist().inv_cdf((step + 0.5) / LEVELS) for step in range(LEVELS)], np.float32)
K = len(OUTCOMES)


class Model(NamedTuple):
    """f32 tables, flat because gathering from a flat table is cheapest."""

    base: Array  # [era, innings, over of twenty, outcome]
    settle: Array  # [2, outcome]: new to the crease, and settled
    free_hit: Array  # [outcome]
    pressure: Array  # [2, outcome]: per unit of log rate ahead of par, and behind it
    excess_wickets: Array  # [outcome], per wicket lost beyond par
    tail: Array  # [era, wickets down 0 to 9], factor of a wicket's weight
    tactics: Array  # [pace or spin, later or powerplay, intent, plan, field, outcome]
    level: Array  # [outcome], per unit of level; one unit is about one unit of log runs
    level_sd: Array  # [era, 2]: of the match, of the innings
    normal: Array  # [LEVELS], normal quantiles
    run_out: Array  # [era, over], share of wickets
    how: Array  # [era, phase, pace or spin, 6], cumulative shares of dismissals credited to the bowler
    wide_runs: Array  # [5], cumulative shares of 1, 2, 3, 4, 5 runs
    no_ball_runs: Array  # [6], cumulative shares of 0, 1, 2, 3, 4, 6 off the bat
    bye_runs: Array  # [4], cumulative shares of 1 to 4
    run_out_runs: Array  # [3], cumulative shares of 0 to 2 completed runs
    leg_bye: Array  # [], share of byes that are leg byes
    striker_out: Array  # [], share of run outs in which the striker is out


class Situation(NamedTuple):
    """Everything that the weights of a ball depend on."""

    era: Array
    second: Array  # bool[], whether this is the chase
    over: Array  # i32[], the equivalent over of a twenty-over innings
    faced: Array  # i32[], balls faced by the striker
    level: Array  # f32[], of match and innings together
    free_hit: Array  # bool[]
    log_rate_needed: Array  # f32[], log(runs needed / par runs from here); 0 outside a chase
    excess_wickets: Array  # f32[], wickets lost beyond par
    wickets: Array  # i32[], wickets down
    batter: Array  # i32[], row of `Sides.batters`
    bowler: Array  # i32[], row of `Sides.bowlers`
    spin: Array  # bool[]
    powerplay: Array  # bool[]
    intent: Array
    plan: Array
    field: Array


class BallOutcome(NamedTuple):
    """The outcome of a delivery."""

    outcome: Array  # i32[]
    runs: Array  # i32[], added to the score
    crossings: Array  # i32[], how often the batters changed ends; even for a boundary
    how: Array  # i32[], index of HOWS, 0 when no batter is out
    striker_out: Array  # bool[]
    leg_bye: Array  # bool[]


def model(fitted: dict[str, Any], overs: int = 20) -> Model:
    """The tables for every era. In short matches batters settle faster: an assumption, not data."""
    settling = np.array([[1 - 0.7 * (1 - overs / 20)], [1.0]])
    first = np.array([fitted["eras"][era]["base"] for era in ERAS], np.float32)  # [era, over, outcome]
    later = np.array([fitted["eras"][era]["second"] for era in ERAS], np.float32)  # [era, phase, outcome]
    phase = np.array([phase_of(over) for over in range(20)])
    base = np.stack([first, first + later[:, phase]], axis=1)
    extras = fitted["extras"]
    upper = (1.0,) * TAIL_WICKETS

    def cumulative(shares: Any) -> Array:
        return jnp.asarray(np.cumsum(np.asarray(shares, np.float64), axis=-1).astype(np.float32))

    return Model(
        base=jnp.asarray(base.reshape(-1)),
        settle=jnp.asarray(np.asarray(fitted["settle"]) * settling, jnp.float32),
        free_hit=jnp.asarray(fitted["free_hit"], jnp.float32),
        pressure=jnp.asarray(fitted["pressure"], jnp.float32),
        excess_wickets=jnp.asarray(fitted["excess_wickets"], jnp.float32),
        tail=jnp.asarray([factor for era in ERAS for factor in (*upper, *fitted["eras"][era]["tail"])], jnp.float32),
        tactics=jnp.asarray(tactics.effects().reshape(-1)),
        level=jnp.asarray(fitted["level"], jnp.float32),
        level_sd=jnp.asarray([fitted["eras"][era]["level_sd"] for era in ERAS], jnp.float32),
        normal=jnp.asarray(NORMAL),
        run_out=jnp.asarray([fitted["eras"][era]["run_out"] for era in ERAS], jnp.float32),
        how=cumulative([fitted["eras"][era]["how"] for era in ERAS]),
        wide_runs=cumulative(extras["wide"]),
        no_ball_runs=cumulative(extras["no_ball"]),
        bye_runs=cumulative(extras["bye"]),
        run_out_runs=cumulative(extras["run_out"]),
        leg_bye=jnp.float32(extras["leg_bye_share"]),
        striker_out=jnp.float32(extras["striker_out_share"]),
    )


def phase_of(over: Any) -> Any:
    """0 powerplay, 1 middle, 2 death, for an over of a twenty-over innings."""
    return (over >= 6) * 1 + (over >= 15) * 1


def hinges(log_rate_needed: Any) -> tuple[Any, Any]:
    """How far a chase is ahead of par, and how far behind it, in log runs."""
    return jnp.minimum(log_rate_needed, 0.0), jnp.maximum(log_rate_needed - 0.3, 0.0)


def weights(model: Model, batters: Array, bowlers: Array, at: Situation) -> tuple[Array, ...]:
    """f32[] for each outcome, unnormalised."""
    base = ((at.era * 2 + at.second) * 20 + at.over) * K
    choice = (at.spin * 2 + at.powerplay) * len(INTENTS) + at.intent
    choice = ((choice * len(PLANS) + at.plan) * len(FIELDS) + at.field) * K
    fresh = jnp.exp(at.faced * jnp.float32(-0.25))
    settled = jnp.minimum(at.faced, 60) * jnp.float32(1 / 30)
    ahead, behind = hinges(at.log_rate_needed)
    row = []
    for k in range(K):
        logit = (
            model.base[base + k]
            + model.tactics[choice + k]
            + batters[at.batter * K + k]
            + bowlers[at.bowler * K + k]
            + model.settle[0, k] * fresh
            + model.settle[1, k] * settled
            + model.level[k] * at.level
            + model.pressure[0, k] * ahead
            + model.pressure[1, k] * behind
            + model.excess_wickets[k] * at.excess_wickets
            + jnp.where(at.free_hit, model.free_hit[k], 0)
        )
        row.append(jnp.exp(logit))
    # only a run out can dismiss a batter on a free hit; a single product leaves the other eras' sums as they were
    share = model.run_out[at.era, at.over]
    row[WICKET] = row[WICKET] * (jnp.where(at.free_hit, share, 1) * model.tail[at.era * 10 + at.wickets])
    return tuple(row)


def bowl(model: Model, batters: Array, bowlers: Array, at: Situation, u: Array) -> BallOutcome:
    """Bowls the delivery. One uniform decides everything; each decision consumes some of its bits."""
    row = weights(model, batters, bowlers, at)
    place = u * reduce(lambda a, b: a + b, row)
    passed, outcome, edge, width = jnp.float32(0), jnp.int32(0), jnp.float32(0), row[0]
    for k in range(K - 1):
        passed = passed + row[k]
        beyond = place >= passed
        outcome = outcome + beyond
        edge = jnp.where(beyond, passed, edge)
        width = jnp.where(beyond, row[k + 1], width)
    rest = jnp.clip((place - edge) / width, 0, 1 - 2**-24)

    out = outcome == WICKET
    share = jnp.where(at.free_hit, 1.0, model.run_out[at.era, at.over])
    run_out, detail = happens(rest, share)
    kinds = ((at.era * 3 + phase_of(at.over)) * 2 + at.spin) * 6
    flat = model.how.reshape(-1)
    kind = 1 + sum((detail >= flat[kinds + j]).astype(jnp.int32) for j in range(5))
    how = jnp.where(out, jnp.where(run_out, RUN_OUT, kind), 0).astype(jnp.int32)
    completed, detail = _pick(detail, model.run_out_runs)
    striker_out = (how != RUN_OUT) | (detail < model.striker_out)

    wide = 1 + _index(rest, model.wide_runs)
    struck = _index(rest, model.no_ball_runs)
    struck = struck + (struck == 5)
    byes, left = _pick(rest, model.bye_runs)
    byes = byes + 1
    bat = jnp.where(outcome == SIX, 6, outcome)
    run_out = out & run_out
    runs = jnp.where(outcome < WICKET, bat, 0)
    runs = jnp.where(run_out, completed, runs)
    runs = jnp.where(outcome == WIDE, wide, runs)
    runs = jnp.where(outcome == NO_BALL, 1 + struck, runs)
    runs = jnp.where(outcome == BYE, byes, runs)
    # the batters do not run the penalty of a wide or no-ball; they crossed on the run that failed
    crossings = runs - ((outcome == WIDE) | (outcome == NO_BALL)) + run_out
    return BallOutcome(
        outcome=outcome.astype(jnp.int32),
        runs=runs.astype(jnp.int32),
        crossings=crossings.astype(jnp.int32),
        how=how,
        striker_out=striker_out,
        leg_bye=(outcome == BYE) & (left < model.leg_bye),
    )


def _index(u: Array, cumulative: Array) -> Array:
    """The index that `u` selects from cumulative shares."""
    index = jnp.int32(0)
    for j in range(cumulative.shape[0] - 1):
        index = index + (u >= cumulative[j])
    return jnp.asarray(index)


def _pick(u: Array, cumulative: Array) -> tuple[Array, Array]:
    """The index that `u` selects from cumulative shares, and a fresh uniform from what remains of `u`."""
    last = cumulative.shape[0] - 1
    index, edge, width = jnp.int32(0), jnp.float32(0), cumulative[0]
    for j in range(last):
        beyond = u >= cumulative[j]
        index = index + beyond
        edge = jnp.where(beyond, cumulative[j], edge)
        width = jnp.where(beyond, cumulative[j + 1] - cumulative[j], width)
    return index, jnp.clip((u - edge) / jnp.maximum(width, 1e-9), 0, 1 - 2**-24)
