"""What each choice risks, for the person who makes it: runs and wickets to expect, and the players' styles."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kibitz.games.cricket.captains import bots
from kibitz.games.cricket.laws.step import excess_wickets, log_rate_needed
from kibitz.games.cricket.model.delivery import FIRST_SPIN, NO_PLAYER, WICKET, Situation, phase_of, weights
from kibitz.games.cricket.model.tactics import FIELDS, INTENTS, PLANS, default_fields, default_plans
from kibitz.games.cricket.teams import roster
from kibitz.games.cricket.words.reason import intent_shares

STYLES = {
    "pace_right": "right-arm pace",
    "pace_left": "left-arm pace",
    "spin_off": "off spin",
    "spin_leg": "leg spin",
    "spin_left_orth": "left-arm spin",
    "spin_left_wrist": "left-arm wrist spin",
}
MEAN_RUNS = np.array([0, 1, 2, 3, 4, 6, 0, 1.1, 2.3, 1.4], np.float32)  # by outcome


def choice_notes(settings: Any, view: Any, masks: Any) -> dict[str, list[str]]:
    """By answer field: a note on each value that is open now.

    The other captain is taken to choose as the reference does, and the pitch to be an ordinary one.
    """
    opened = [np.flatnonzero(np.asarray(mask)).tolist() for mask in masks]
    table, risk = jax.device_get(_expected(settings, view))
    phase = int(phase_of(int(view.twenty_over)))
    spin = int(int(view.bowler_type) >= FIRST_SPIN)
    plans, fields = default_plans()[spin, phase], default_fields()[phase]
    may_bowl = [i for i in range(11) if int(view.may_bowl) >> i & 1] or [min(int(view.last_bowler), 10)]
    if bool(view.bats):
        faced = np.einsum("bipfx,p,f->ix", table[may_bowl] / len(may_bowl), plans, fields)
        people = roster.side(view.batting_team_id).players
        batters = [f"{people[i].hand}-hander, power {people[i].power}, safety {people[i].safety}" for i in opened[4]]
        return {"intent": [_risk(faced[i]) for i in opened[0]], "next_batter": batters}
    shares = intent_shares(float(risk))
    bowled = np.einsum("bipfx,i->bpfx", table[may_bowl], shares)
    by_plan = np.einsum("bpfx,f->px", bowled / len(may_bowl), fields)
    by_field = np.einsum("bpfx,p->fx", bowled / len(may_bowl), plans)
    found = {"plan": [_risk(by_plan[i]) for i in opened[1]], "field": [_risk(by_field[i]) for i in opened[2]]}
    if int(view.bowler) == NO_PLAYER:
        risks = dict(zip(may_bowl, np.einsum("bpfx,p,f->bx", bowled, plans, fields), strict=True))
        found["bowler"] = [_bowler(settings, view, i, risks[i]) for i in opened[3]]
    return found


def _risk(expected: NDArray[Any]) -> str:
    runs, wicket = expected.tolist()
    return f"{runs:.1f} runs, {wicket:.0%} out"


def _bowler(settings: Any, view: Any, place: int, expected: NDArray[Any]) -> str:
    style = STYLES[roster.side(view.bowling_team_id).players[place].bowls]
    left = _overs_left(settings, view, place)
    return f"{style} · {left} over{'s' * (left != 1)} left · {_risk(expected)}"


def _overs_left(settings: Any, view: Any, place: int) -> int:
    """Overs that a player who may bowl now has left, by the laws' limit."""
    if int(view.supers):
        return 1
    limit, spare = divmod(int(settings.overs), 5)
    started = [int(view.overs[i // 6]) >> 4 * (i % 6) & 15 for i in range(11)]
    extra = started[place] > limit or sum(count > limit for count in started) < spare
    return limit + bool(extra) - started[place]


@jax.jit
def _expected(settings: Any, view: Any) -> tuple[Array, Array]:
    """f32[bowler, intent, plan, field, 2]: runs and the chance of a wicket; and the risk that the position demands."""
    bowler, intent, plan, field = jnp.meshgrid(
        jnp.arange(11), jnp.arange(len(INTENTS)), jnp.arange(len(PLANS)), jnp.arange(len(FIELDS)), indexing="ij"
    )
    kind = settings.sides.types[view.bowling_eleven * 11 + bowler]
    at = Situation(
        era=settings.era,
        second=view.second,
        over=view.twenty_over,
        faced=view.faced[0],
        level=jnp.float32(0),
        free_hit=view.free_hit,
        log_rate_needed=log_rate_needed(settings, view),
        excess_wickets=excess_wickets(settings, view),
        wickets=view.wickets,
        batter=(view.batting_eleven * 11 + view.striker) * 6 + kind,
        bowler=(view.bowling_eleven * 11 + bowler) * 3 + phase_of(view.twenty_over),
        spin=(kind >= FIRST_SPIN).astype(jnp.int32),
        powerplay=jnp.asarray(view.powerplay).astype(jnp.int32),
        intent=intent,
        plan=plan,
        field=field,
    )
    row = jnp.stack(weights(settings.model, settings.sides.batters, settings.sides.bowlers, at), axis=-1)
    share = row / row.sum(-1, keepdims=True)
    expected = jnp.stack([share @ MEAN_RUNS, share[..., WICKET]], axis=-1)
    return expected, bots.target_risk(settings, view, bots.Style())
