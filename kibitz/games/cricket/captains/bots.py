"""Captains as pure functions, so that whole matches run inside one compiled program.

`balanced` is the default: the ball model is centred on its shares of intents, plans and fields. The
others are the same captain with another style.
"""

from __future__ import annotations

from functools import cache, partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kibitz.core.act import Act, Masks
from kibitz.core.bots import Bot, random_bot
from kibitz.core.chance import pick
from kibitz.games.cricket.laws.step import HEADS, Settings, first_of, last_of
from kibitz.games.cricket.laws.view import View
from kibitz.games.cricket.model import tactics
from kibitz.games.cricket.model.delivery import FIRST_SPIN, phase_of
from kibitz.games.cricket.model.tactics import FIELDS, INTENTS, PLANS
from kibitz.games.cricket.teams.ratings import VARIANTS

# risk by over of a twenty-over innings: the field is up for six overs, and wickets in hand are spent at the end
STAGE = (0.1, 0.2, 0.25, 0.25, 0.25, 0.25, -0.1, -0.05, 0.0, 0.0, 0.05, 0.1, 0.2, 0.25, 0.35, 0.5, 0.65, 0.8, 0.95, 1.1)
CAUTION = 0.11  # risk avoided per wicket lost beyond par
CHASE = 0.9  # risk added per unit of log(runs needed / par runs): the slope of the observed frontier
CHASE_LIMITS = (-0.7, 0.7)
URGENCY = 1.0  # risk added in short innings, which have wickets to spare: an assumption, the data has none
SPREAD = 0.45  # standard deviation of intents around the target risk


class Style(NamedTuple):
    """How a captain differs from the balanced one."""

    risk: float = 0.0  # added to the target risk when batting
    caution: float = CAUTION
    chase: float = CHASE
    plans: tuple[float, ...] = (0.0,) * len(PLANS)  # log-odds added to the default plans
    fields: tuple[float, ...] = (0.0,) * len(FIELDS)


def target_risk(settings: Settings, view: View, style: Style) -> Array:
    """The risk that the position demands of the batters, in units of `tactics.intent_risks`."""
    stage = jnp.asarray(STAGE, jnp.float32)[view.twenty_over]
    par_wickets = settings.par.wickets[view.legal]
    is_super = view.supers > 0
    excess = jnp.where(is_super, 0, jnp.clip(view.wickets - par_wickets, -4, 5))
    runs_left = jnp.where(is_super, 12.0, settings.par.runs_left[settings.era * 121 + view.legal])
    needed = jnp.maximum(view.first + 1 - view.score, 1)
    log_rate_needed = jnp.clip(jnp.log(needed / jnp.maximum(runs_left, 1.0)), *CHASE_LIMITS)
    urgency = URGENCY * (1 - settings.overs / 20)
    chase = jnp.where(view.second, style.chase * log_rate_needed, 0)
    return stage + urgency + style.risk - style.caution * excess + chase


RISK_STEPS = 64  # rows of the table of intents
MIN_RISK, MAX_RISK = -1.5, 1.3


@cache
def intents() -> NDArray[np.float32]:
    """f32[RISK_STEPS * 4]: cumulative shares of intents for each target risk."""
    risk = np.linspace(MIN_RISK, MAX_RISK, RISK_STEPS)
    gaps = (tactics.intent_risks() - risk[:, None]) / SPREAD
    share = np.exp(-0.5 * gaps * gaps)
    return np.cumsum(share / share.sum(1, keepdims=True), axis=1)[:, :-1].astype(np.float32).reshape(-1)


@cache
def bowling(style: Style) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Cumulative shares of plans f32[pace or spin * phase * 5] and of fields f32[phase * 3]."""

    def tilted(shares: NDArray[np.float32], odds: tuple[float, ...]) -> NDArray[np.float32]:
        weight = shares * np.exp(np.array(odds))
        return np.cumsum(weight / weight.sum(-1, keepdims=True), axis=-1)[..., :-1].astype(np.float32).reshape(-1)

    return tilted(tactics.default_plans(), style.plans), tilted(tactics.default_fields(), style.fields)


def choose(style: Style, settings: Settings, variant: Array, view: View, masks: Masks, u: Array) -> tuple[Array, Act]:
    """An act for the batting or the bowling captain; `u` is f32[2].

    The shares of `tactics.yaml` are zero where the laws forbid a choice, so only bowlers and batters need masks.
    """
    risk = (target_risk(settings, view, style) - MIN_RISK) * ((RISK_STEPS - 1) / (MAX_RISK - MIN_RISK))
    step = jnp.clip(jnp.round(risk), 0, RISK_STEPS - 1).astype(jnp.int32)
    intent = _draw(jnp.asarray(intents()), step * (len(INTENTS) - 1), len(INTENTS) - 1, u[0])
    phase = phase_of(view.twenty_over)
    kind = (view.bowler_type >= FIRST_SPIN) * 3 + phase
    plans, fields = (jnp.asarray(table) for table in bowling(style))
    plan = _draw(plans, kind * (len(PLANS) - 1), len(PLANS) - 1, u[0])
    field = _draw(fields, phase * (len(FIELDS) - 1), len(FIELDS) - 1, u[1])
    return variant, (
        jnp.where(view.bats, intent, tactics.ACCUMULATE),
        jnp.where(view.bats, tactics.GOOD, plan),
        jnp.where(view.bats, tactics.BALANCED, field),
        jnp.where(view.bats, 0, _bowler(settings, variant, view)),
        jnp.where(view.bats & view.comes_in, first_of(view.waiting), 0),
    )


def _draw(cumulative: Array, row: Array, size: int, u: Array) -> Array:
    index = jnp.int32(0)
    for i in range(size):
        index = index + (u >= cumulative[row + i])
    return jnp.asarray(index)


def _bowler(settings: Settings, variant: Array, view: View) -> Array:
    """The prepared bowler if the laws allow it, else the last player who may bowl; the best for a super over."""
    order = (view.bowling_eleven * VARIANTS + variant) * 20
    prepared = settings.sides.orders[order + jnp.minimum(view.legal // 6, 19)]
    closers = settings.sides.closers
    first, second = closers[2 * view.bowling_eleven], closers[2 * view.bowling_eleven + 1]
    closer = jnp.where((view.may_bowl >> first) & 1 == 1, first, second)
    wanted = jnp.where(view.supers > 0, closer, prepared)
    return jnp.where((view.may_bowl >> wanted) & 1 == 1, wanted, last_of(view.may_bowl))


def start(settings: Settings, seat: int, u: Array) -> Array:
    return pick(u[0], VARIANTS)[0]


def bot(name: str, style: Style) -> Bot:
    return Bot(name, partial(choose, style), start=start, uniforms=2, bit_widths=3)


STYLES = {
    "balanced": Style(),
    "aggressive": Style(0.45, 0.06, 1.1, plans=(0.2, 0.5, 0, 0.4, -0.6, 0.3), fields=(1.0, 0.0, -1.0, -0.6)),
    "defensive": Style(-0.45, 0.16, 0.8, plans=(0.3, -0.5, 0.4, -0.4, 0.5, 0), fields=(-1.2, -0.2, 0.9, 0.3)),
    # uses the counters in tactics.yaml: wins 0.54 of matches against `balanced`, as a trained captain should
    "shrewd": Style(0.1, 0.2, 1.3, plans=(0.5, -1.2, 0.3, -0.8, 0.2, 0.7), fields=(0.3, -0.2, 0.0, 0.6)),
}
BALANCED, AGGRESSIVE, DEFENSIVE, SHREWD = (bot(name, style) for name, style in STYLES.items())
RANDOM = random_bot(tuple(head.size for head in HEADS))
HEURISTIC = bot("heuristic", Style())
CAPTAINS = {bot.name: bot for bot in (BALANCED, AGGRESSIVE, DEFENSIVE, SHREWD, RANDOM, HEURISTIC)}
