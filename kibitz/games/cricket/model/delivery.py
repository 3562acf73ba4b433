"""One delivery: how likely each outcome is, and what a uniform makes of it.

Log-weights are sums: era, innings and over; how long the batter has been in; the two players; the
level of the match and of the innings; the choices of both captains. A single is the yardstick, so a
sum of 0.1 means ten per cent more likely against a single.
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
from kibitz.games.cricket.model.calibration import ERAS
from kibitz.games.cricket.model.tactics import FIELDS, INTENTS, OUTCOMES, PLANS

DOT, ONE, TWO, THREE, FOUR, SIX, WICKET, WIDE, NO_BALL, BYE = range(10)
NOTHING = 15  # in place of an outcome: no ball yet
RUNS = (0, 1, 2, 3, 4, 6)  # off the bat, by outcome
HOWS = ("", "caught", "bowled", "lbw", "stumped", "caught and bowled", "hit wicket", "run out")
RUN_OUT = HOWS.index("run out")
TYPES = ("pace_right", "pace_left", "spin_off", "spin_leg", "spin_left_orth", "spin_left_wrist")
FIRST_SPIN = 2  # types from here on are spin
LEVELS = 256  # a level is kept as one of so many equally likely steps
# on the host: operation by operation JAX compiles thirty kernels for it, in every process anew
NORMAL = np.array([NormalDist().inv_cdf((step + 0.5) / LEVELS) for step in range(LEVELS)], np.float32)
K = len(OUTCOMES)


class Model(NamedTuple):
    """Tables, flat because a gather from a flat table is the cheapest; f32."""

    base: Array  # [era, innings, over of twenty, outcome]
    settle: Array  # [2, outcome]: just in, and long in
    free_hit: Array  # [outcome]
    pressure: Array  # [2, outcome]: a chase well ahead of the usual rate, and well behind it
    worn: Array  # [outcome], for each wicket lost more than usual
    tactics: Array  # [pace or spin, later or powerplay, intent, plan, field, outcome]
    level: Array  # [outcome], what one unit of level adds: about one unit of log runs
    level_sd: Array  # [era, 2]: of a match, of an innings
    normal: Array  # [LEVELS], normal quantiles
    run_out: Array  # [era, over], share of wickets
    how: Array  # [era, phase, pace or spin, 6], cumulative shares of the bowler's dismissals
    wide_runs: Array  # [5], cumulative shares of 1, 2, 3, 4, 5 runs
    no_ball_runs: Array  # [6], of 0, 1, 2, 3, 4, 6 off the bat
    bye_runs: Array  # [4], of 1 to 4
    run_out_runs: Array  # [3], of 0 to 2 completed
    leg_bye: Array  # []
    striker_out: Array  # [], share of run outs


class Situation(NamedTuple):
    """What the weights of a ball depend on."""

    era: Array
    second: Array  # bool[], the innings of the chase
    over: Array  # i32[], of twenty
    faced: Array  # i32[], balls the striker has had
    level: Array  # f32[], of match and innings together
    free_hit: Array  # bool[]
    behind: Array  # f32[], log(runs needed / runs usual from here); 0 outside a chase
    worn: Array  # f32[], wickets lost more than usual
    batter: Array  # i32[], row of `Sides.batters`
    bowler: Array  # i32[], row of `Sides.bowlers`
    spin: Array  # bool[]
    powerplay: Array  # bool[]
    intent: Array
    plan: Array
    field: Array


class Result(NamedTuple):
    """What came of it."""

    outcome: Array  # i32[]
    runs: Array  # i32[], to the score
    run: Array  # i32[], times the batters crossed for good; a boundary counts none of them
    how: Array  # i32[], index of HOWS, 0 when nobody is out
    striker_out: Array  # bool[]
    leg_bye: Array  # bool[]


def model(fitted: dict[str, Any], overs: int = 20) -> Model:
    """The arrays for every era. In a short match batters do not take their time: an assumption."""
    hurry = np.array([[1 - 0.7 * (1 - overs / 20)], [1.0]])
    first = np.array([fitted["eras"][era]["base"] for era in ERAS], np.float32)  # [era, over, outcome]
    later = np.array([fitted["eras"][era]["second"] for era in ERAS], np.float32)  # [era, phase, outcome]
    phase = np.array([phase_of(over) for over in range(20)])
    base = np.stack([first, first + later[:, phase]], axis=1)
    extras = fitted["extras"]

    def cumulative(shares: Any) -> Array:
        return jnp.asarray(np.cumsum(np.asarray(shares, np.float64), axis=-1).astype(np.float32))

    return Model(
        base=jnp.asarray(base.reshape(-1)),
        settle=jnp.asarray(np.asarray(fitted["settle"]) * hurry, jnp.float32),
        free_hit=jnp.asarray(fitted["free_hit"], jnp.float32),
        pressure=jnp.asarray(fitted["pressure"], jnp.float32),
        worn=jnp.asarray(fitted["worn"], jnp.float32),
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
    """0 powerplay, 1 middle, 2 death, of an over of twenty."""
    return (over >= 6) * 1 + (over >= 15) * 1


def hinges(behind: Any) -> tuple[Any, Any]:
    """How far a chase is ahead of the usual rate, and how far behind it, in log runs."""
    return jnp.minimum(behind, 0.0), jnp.maximum(behind - 0.3, 0.0)


def weights(model: Model, batters: Array, bowlers: Array, at: Situation) -> tuple[Array, ...]:
    """f32[] for each outcome, not normalised."""
    base = ((at.era * 2 + at.second) * 20 + at.over) * K
    choice = (at.spin * 2 + at.powerplay) * len(INTENTS) + at.intent
    choice = ((choice * len(PLANS) + at.plan) * len(FIELDS) + at.field) * K
    fresh = jnp.exp(at.faced * jnp.float32(-0.25))
    settled = jnp.minimum(at.faced, 60) * jnp.float32(1 / 30)
    ease, strain = hinges(at.behind)
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
            + model.pressure[0, k] * ease
            + model.pressure[1, k] * strain
            + model.worn[k] * at.worn
            + jnp.where(at.free_hit, model.free_hit[k], 0)
        )
        row.append(jnp.exp(logit))
    # only a run out counts on a free hit
    share = model.run_out[at.era, at.over]
    row[WICKET] = row[WICKET] * jnp.where(at.free_hit, share, 1)
    return tuple(row)


def bowl(model: Model, batters: Array, bowlers: Array, at: Situation, u: Array) -> Result:
    """The delivery: one uniform decides everything, each choice using up some of its bits."""
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
    # the penalty run of a wide or no-ball is not run; the run that failed was crossed on
    ran = runs - ((outcome == WIDE) | (outcome == NO_BALL)) + run_out
    return Result(
        outcome=outcome.astype(jnp.int32),
        runs=runs.astype(jnp.int32),
        run=ran.astype(jnp.int32),
        how=how,
        striker_out=striker_out,
        leg_bye=(outcome == BYE) & (left < model.leg_bye),
    )


def _index(u: Array, cumulative: Array) -> Array:
    """By cumulative shares."""
    index = jnp.int32(0)
    for j in range(cumulative.shape[0] - 1):
        index = index + (u >= cumulative[j])
    return jnp.asarray(index)


def _pick(u: Array, cumulative: Array) -> tuple[Array, Array]:
    """An index by cumulative shares, and what is left of `u`."""
    last = cumulative.shape[0] - 1
    index, edge, width = jnp.int32(0), jnp.float32(0), cumulative[0]
    for j in range(last):
        beyond = u >= cumulative[j]
        index = index + beyond
        edge = jnp.where(beyond, cumulative[j], edge)
        width = jnp.where(beyond, cumulative[j + 1] - cumulative[j], width)
    return index, jnp.clip((u - edge) / jnp.maximum(width, 1e-9), 0, 1 - 2**-24)
