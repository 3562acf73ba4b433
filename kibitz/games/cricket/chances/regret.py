"""The win probability that a choice gave away, one ball ahead.

For every intent, plan and field the ball model gives the probability of every outcome, and the win
probability table gives its value. A captain does not see the other's choice, so its own is valued against
a `balanced` captain and compared with the best alternative. Bowlers and next batters are not judged: one
ball cannot show their value.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kibitz.core.act import Act
from kibitz.core.bots import where
from kibitz.core.play.packs import Regret
from kibitz.games.cricket.captains import bots
from kibitz.games.cricket.chances import potential
from kibitz.games.cricket.laws import step as laws
from kibitz.games.cricket.laws.shaping import Potential, chance
from kibitz.games.cricket.laws.state import State
from kibitz.games.cricket.laws.step import Settings
from kibitz.games.cricket.laws.view import view
from kibitz.games.cricket.model import tactics
from kibitz.games.cricket.model.calibration import ERAS, model_number
from kibitz.games.cricket.model.delivery import BYE, NO_BALL, NO_PLAYER, RUNS, WICKET, WIDE, phase_of, weights
from kibitz.games.cricket.model.tactics import ACCUMULATE, BALANCED, FIELDS, GOOD, INTENTS, PLANS


class Values(NamedTuple):
    potential: Potential  # win probability
    effects: Array  # f32[4, intents, plans, fields, outcomes], factors; the first axis is spin * 2 + powerplay
    plans: Array  # f32[pace or spin, phase, plans], shares of the balanced captain
    fields: Array  # f32[phase, fields]


def tables(options: Any) -> Values:
    effects = np.exp(tactics.effects()).reshape(4, len(INTENTS), len(PLANS), len(FIELDS), -1)
    return Values(
        potential=potential.build(1.0, options.max_overs, ERAS.index(options.era), model_number(options.model)),
        effects=jnp.asarray(effects),
        plans=jnp.asarray(tactics.default_plans()),
        fields=jnp.asarray(tactics.default_fields()),
    )


def worth(settings: Settings, state: State, more: Array) -> Array:
    """The batting side's chance after `more`, i32[3]: runs, wickets and legal balls."""
    after = state._replace(
        score=state.score + more[0],
        wickets=state.wickets + more[1],
        legal=state.legal + more[2],
        batting=jnp.zeros_like(state.batting),
    )
    return chance(settings, after)


LEGAL, EXTRA, WICKETS = 0, 7, 15  # where each kind starts in EVENTS
EVENTS = [(r, 0, 1) for r in range(7)] + [(r, 0, 0) for r in range(8)] + [(r, 1, 1) for r in range(3)]


def _outcome_worths(settings: Settings, state: State) -> Array:
    """f32[outcomes]: the batting side's chance after each outcome."""
    after = jax.vmap(lambda more: worth(settings, state, more))(jnp.array(EVENTS, jnp.int32))

    def mean(cumulative: Array, first: int) -> Array:
        return jnp.sum(jnp.diff(cumulative, prepend=0.0) * after[first : first + cumulative.shape[0]])

    model = settings.model
    hits = after[jnp.array(RUNS)]
    struck = jnp.sum(jnp.diff(model.no_ball_runs, prepend=0.0) * after[EXTRA + 1 + jnp.array(RUNS)])
    run_out = jnp.where(state.free_hit, 1.0, model.run_out[settings.era, laws.twenty_over(settings, state)])
    wicket = (1 - run_out) * after[WICKETS] + run_out * mean(model.run_out_runs, WICKETS)
    rest = [wicket, mean(model.wide_runs, EXTRA + 1), struck, mean(model.bye_runs, LEGAL + 1)]
    return jnp.concatenate([hits, jnp.stack(rest)])


assert (WICKET, WIDE, NO_BALL, BYE) == (6, 7, 8, 9)  # the order of `_outcome_worths`


def lost(values: Values, settings: Settings, state: State, acts: tuple[Act, Act]) -> Array:
    """f32[2], the win probability that each seat's choice for this ball gave away; 0 in a super over."""
    settings = settings._replace(potential=values.potential)
    bats_first = state.batting == 0
    bat, bowl = where(bats_first, acts[0], acts[1]), where(bats_first, acts[1], acts[0])
    bowler = jnp.where(state.bowler == NO_PLAYER, bowl[3], state.bowler)
    neutral = [jnp.int32(x) for x in (ACCUMULATE, GOOD, BALANCED)]
    at = laws.situation(settings, state, bowler, *neutral)
    kind = at.spin * 2 + at.powerplay
    factors = values.effects[kind]
    row = jnp.stack(weights(settings.model, settings.sides.batters, settings.sides.bowlers, at))
    weight = row / factors[ACCUMULATE, GOOD, BALANCED] * factors
    value = weight @ _outcome_worths(settings, state) / jnp.sum(weight, axis=-1)  # [intents, plans, fields]

    phase = phase_of(at.over)
    plans, fields = values.plans[at.spin, phase], values.fields[phase]
    by_intent = jnp.einsum("ipf,p,f->i", value, plans, fields)
    by_bowling = jnp.einsum("ipf,i->pf", value, intent_shares(settings, state))
    is_open = jnp.asarray(tactics.open_in_powerplay()) | (at.powerplay == 0)
    batting = jnp.max(by_intent) - by_intent[bat[0]]
    bowling = by_bowling[bowl[1], bowl[2]] - jnp.min(jnp.where(is_open, by_bowling, 1.0))
    judged = ~state.over & (state.supers == 0)
    given = jnp.where(judged, jnp.maximum(jnp.stack([batting, bowling]), 0.0), 0.0)
    return jnp.where(bats_first, given, given[::-1])


def intent_shares(settings: Settings, state: State) -> Array:
    """f32[intents], the shares of a balanced captain in this position."""
    risk = bots.target_risk(settings, view(settings, state, 0), bots.Style())
    gaps = (jnp.asarray(tactics.intent_risks()) - jnp.clip(risk, bots.MIN_RISK, bots.MAX_RISK)) / bots.SPREAD
    share = jnp.exp(-0.5 * gaps * gaps)
    return share / jnp.sum(share)


REGRET = Regret(tables, lost)
