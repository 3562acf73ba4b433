"""Why an act: the win probability, and how often the reference captain chooses this in such a position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kibitz.games.cricket.captains import bots
from kibitz.games.cricket.model import tactics
from kibitz.games.cricket.model.delivery import FIRST_SPIN, phase_of
from kibitz.games.cricket.model.tactics import FIELDS, INTENTS, PLANS
from kibitz.games.cricket.words.prompt import chance


def reason(settings: Any, view: Any, history: list[Mapping[str, Any]], act: Any) -> str:
    """A sentence or two for the captain of the view; `act` is legal there."""
    intent, plan, field, *_ = (int(x) for x in act)
    batting_chance = chance(settings, view)
    if bool(view.bats):
        shares = intent_shares(float(bots.target_risk(settings, view, bots.Style())))
        best = int(np.argmax(shares))
        often = f"the reference chooses {INTENTS[intent]} in {shares[intent]:.0%} of such positions"
        mostly = "" if best == intent else f" and {INTENTS[best]} in {shares[best]:.0%}"
        return f"You win with probability {batting_chance:.2f}; {often}{mostly}."
    phase = int(phase_of(int(view.twenty_over)))
    plans = tactics.default_plans()[int(int(view.bowler_type) >= FIRST_SPIN), phase]
    fields = tactics.default_fields()[phase]
    often = f"the reference bowls {PLANS[plan]} in {plans[plan]:.0%} of such positions"
    return (
        f"You win with probability {1 - batting_chance:.2f}; {often} "
        f"and sets the {FIELDS[field]} field in {fields[field]:.0%}."
    )


def intent_shares(target_risk: float) -> NDArray[Any]:
    """Shares of the reference's intents."""
    risk = np.clip(target_risk, bots.MIN_RISK, bots.MAX_RISK)
    weight = np.exp(-0.5 * ((tactics.intent_risks() - risk) / bots.SPREAD) ** 2)
    shares: NDArray[Any] = weight / weight.sum()
    return shares
