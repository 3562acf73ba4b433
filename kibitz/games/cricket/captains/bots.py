"""Captains that are pure functions, so that whole matches run inside one compiled program.

`balanced` is the default on both sides: its shares of intents, plans and fields are what the ball
model is centred on. Others are the same captain with another temper.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kibitz.core.act import Act, Masks, sample
from kibitz.core.bots import Bot
from kibitz.core.chance import pick
from kibitz.games.cricket.laws.step import Settings, first_of, last_of
from kibitz.games.cricket.laws.view import View
from kibitz.games.cricket.model import tactics
from kibitz.games.cricket.model.delivery import FIRST_SPIN, phase_of
from kibitz.games.cricket.model.par import resembles
from kibitz.games.cricket.model.tactics import FIELDS, INTENTS, PLANS
from kibitz.games.cricket.teams.ratings import VARIANTS
from kibitz.games.cricket.teams.roster import Eleven

# risk by over of twenty: the field is up for six overs, wickets in hand are spent at the end
STAGE = (0.1, 0.2, 0.25, 0.25, 0.25, 0.25, -0.1, -0.05, 0.0, 0.0, 0.05, 0.1, 0.2, 0.25, 0.35, 0.5, 0.65, 0.8, 0.95, 1.1)
CAUTION = 0.11  # risk given up for a wicket more than usual
CHASE = 0.9  # risk taken on for each unit of log(runs needed / runs usual): slope of the observed frontier
CHASE_LIMITS = (-0.7, 0.7)
URGENCY = 1.0  # a short innings has wickets to spare; an assumption, there are no such matches in the data
SPREAD = 0.45  # of intents around the wanted risk
SPIN_SHARE = (
    0.137, 0.110, 0.129, 0.171, 0.229, 0.266, 0.597, 0.577, 0.626, 0.602,
    0.582, 0.557, 0.501, 0.496, 0.432, 0.389, 0.270, 0.182, 0.116, 0.107,
)  # fmt: skip
"""Of overs bowled, by over of twenty (bowler_usage.json)."""
BOWLERS_USED = {5: 0.21, 6: 0.65, 7: 0.14}  # in an innings of twenty overs (bowler_usage.json)


class Temper(NamedTuple):
    """How a captain differs from the balanced one."""

    risk: float = 0.0  # added to the wanted risk with the bat
    caution: float = CAUTION
    chase: float = CHASE
    plans: tuple[float, ...] = (0.0,) * len(PLANS)  # log-odds added to the usual plans
    fields: tuple[float, ...] = (0.0,) * len(FIELDS)


def wanted_risk(settings: Settings, view: View, temper: Temper) -> Array:
    """In units of `tactics.levels`: what the moment asks of the batters."""
    stage = jnp.asarray(STAGE, jnp.float32)[view.twenty_over]
    usual = settings.course.wickets[view.legal]
    is_super = view.supers > 0
    worn = jnp.where(is_super, 0, jnp.clip(view.wickets - usual, -4, 5))
    rest = jnp.where(is_super, 12.0, settings.course.rest[settings.era * 121 + view.legal])
    needed = jnp.maximum(view.first + 1 - view.score, 1)
    behind = jnp.clip(jnp.log(needed / jnp.maximum(rest, 1.0)), *CHASE_LIMITS)
    hurry = URGENCY * (1 - settings.overs / 20)
    return stage + hurry + temper.risk - temper.caution * worn + jnp.where(view.second, temper.chase * behind, 0)


STEPS = 64  # of wanted risk in the table of intents
LOWEST, HIGHEST = -1.5, 1.3


@cache
def intents() -> NDArray[np.float32]:
    """f32[STEPS * 4]: cumulative shares of intents around each wanted risk."""
    risk = np.linspace(LOWEST, HIGHEST, STEPS)
    gaps = (tactics.levels() - risk[:, None]) / SPREAD
    share = np.exp(-0.5 * gaps * gaps)
    return np.cumsum(share / share.sum(1, keepdims=True), axis=1)[:, :-1].astype(np.float32).reshape(-1)


@cache
def bowling(temper: Temper) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Cumulative shares of plans f32[pace or spin * phase * 5] and of fields f32[phase * 3]."""

    def tilted(shares: NDArray[np.float32], odds: tuple[float, ...]) -> NDArray[np.float32]:
        weight = shares * np.exp(np.array(odds))
        return np.cumsum(weight / weight.sum(-1, keepdims=True), axis=-1)[..., :-1].astype(np.float32).reshape(-1)

    return tilted(tactics.default_plans(), temper.plans), tilted(tactics.default_fields(), temper.fields)


def choose(temper: Temper, settings: Settings, variant: Array, view: View, masks: Masks, u: Array) -> tuple[Array, Act]:
    """An act for a batting or a bowling captain; `u` is f32[2].

    The shares of `tactics.yaml` leave alone what the law closes, so the masks matter for players only.
    """
    risk = (wanted_risk(settings, view, temper) - LOWEST) * ((STEPS - 1) / (HIGHEST - LOWEST))
    step = jnp.clip(jnp.round(risk), 0, STEPS - 1).astype(jnp.int32)
    intent = _draw(jnp.asarray(intents()), step * (len(INTENTS) - 1), len(INTENTS) - 1, u[0])
    phase = phase_of(view.twenty_over)
    kind = (view.bowler_type >= FIRST_SPIN) * 3 + phase
    plans, fields = (jnp.asarray(table) for table in bowling(temper))
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
    """As prepared if the law allows it, else the last in the order who may; the best for a super over."""
    order = (view.bowling_eleven * VARIANTS + variant) * 20
    prepared = settings.sides.orders[order + jnp.minimum(view.legal // 6, 19)]
    closers = settings.sides.closers
    first, second = closers[2 * view.bowling_eleven], closers[2 * view.bowling_eleven + 1]
    closer = jnp.where((view.may_bowl >> first) & 1 == 1, first, second)
    wanted = jnp.where(view.supers > 0, closer, prepared)
    return jnp.where((view.may_bowl >> wanted) & 1 == 1, wanted, last_of(view.may_bowl))


def start(settings: Settings, seat: int, u: Array) -> Array:
    return pick(u[0], VARIANTS)[0]


def bot(name: str, temper: Temper) -> Bot:
    return Bot(name, partial(choose, temper), start=start, uniforms=2, bit_widths=3)


def at_random(settings: Any, memory: Any, view: Any, masks: Masks, u: Array) -> tuple[Any, Act]:
    return memory, sample(tuple(jnp.zeros(mask.shape) for mask in masks), masks, u)


TEMPERS = {
    "balanced": Temper(),
    "aggressive": Temper(0.45, 0.06, 1.1, plans=(0.2, 0.5, 0, 0.4, -0.6, 0.3), fields=(1.0, 0.0, -1.0, -0.6)),
    "defensive": Temper(-0.45, 0.16, 0.8, plans=(0.3, -0.5, 0.4, -0.4, 0.5, 0), fields=(-1.2, -0.2, 0.9, 0.3)),
    # knows the tables of tactics.yaml: beats `balanced` (0.54 of matches), as a trained captain should
    "shrewd": Temper(0.1, 0.2, 1.3, plans=(0.5, -1.2, 0.3, -0.8, 0.2, 0.7), fields=(0.3, -0.2, 0.0, 0.6)),
}
BALANCED, AGGRESSIVE, DEFENSIVE, SHREWD = (bot(name, temper) for name, temper in TEMPERS.items())
RANDOM = Bot("random", at_random, uniforms=5)
HEURISTIC = bot("heuristic", Temper())
CAPTAINS = {bot.name: bot for bot in (BALANCED, AGGRESSIVE, DEFENSIVE, SHREWD, RANDOM, HEURISTIC)}


def orders(elevens: list[Eleven], overs: int, seed: int) -> NDArray[np.int32]:
    """i32[eleven, VARIANTS, 20]: who bowls which over, prepared before the match.

    Shares of overs and of spin by over follow the real game; an annealed search places each side's
    overs so that nobody bowls twice running. Rows beyond `overs` repeat a legal bowler.
    """
    rng = np.random.default_rng([seed, 0x0BD])
    over = resembles(overs)[np.arange(20) * 6]
    share = np.array(SPIN_SHARE)[over]
    rows = np.concatenate([_quota(side, overs, rng) for side in elevens for _ in range(VARIANTS)])
    rows = rows.reshape(-1, overs)
    spin = np.array([[p.bowls.startswith("spin") for p in side.players] for side in elevens])
    spin = np.repeat(spin, VARIANTS, axis=0)
    lines = np.arange(len(rows))
    spin_worth = np.log(share / (1 - share))[:overs]  # what a spinner in this over is worth

    def running(table: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray((table[:, 1:] == table[:, :-1]).sum(1))

    repeats = running(rows)
    for heat in np.linspace(1.5, 0.3, 60 * overs):
        i, j = rng.integers(overs, size=(2, len(rows)))
        trial = rows.copy()
        trial[lines, i], trial[lines, j] = rows[lines, j], rows[lines, i]
        gain = (spin[lines, rows[lines, i]] * 1.0 - spin[lines, rows[lines, j]]) * (spin_worth[j] - spin_worth[i])
        trial_repeats = running(trial)
        gain = gain - 6.0 * (trial_repeats - repeats)
        accept = np.log(rng.random(len(rows))) < gain / heat
        rows[accept], repeats[accept] = trial[accept], trial_repeats[accept]
    padded = np.concatenate([rows, np.repeat(rows[:, -1:], 20 - overs, axis=1)], axis=1)
    return padded.reshape(len(elevens), VARIANTS, 20).astype(np.int32)


def _quota(side: Eleven, overs: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The bowler of each over, in no order yet, within the law's limits."""
    merit = np.array([p.economy + 0.5 * p.threat + 0.3 * p.control + rng.normal(0, 6) for p in side.players])
    merit[side.keeper] = -1e9
    best = np.argsort(-merit)
    limit, spare = divmod(overs, 5)
    used = int(rng.choice(list(BOWLERS_USED), p=list(BOWLERS_USED.values())))
    # the most each may bowl, best first; then overs move from the last of them to the others
    most = [limit + 1] * spare + [limit] * (11 - spare)
    counts, left = [0] * 11, overs
    for i in range(used if limit else 10):
        keep = max(0, used - i - 1) if limit > 1 else 0
        counts[i] = max(0, min(most[i], left - keep))
        left -= counts[i]
    for i in range(10):
        add = min(most[i] - counts[i], left)
        counts[i], left = counts[i] + add, left - add
    return np.repeat(best[:10], counts[:10])
