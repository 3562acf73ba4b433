"""The negotiation with both seats free, as PettingZoo environments.

Actions are indices into `flat_acts`: AGREE, DISAGREE, then every offer and selection. What an action keeps,
the seat that plays it keeps. Infos hold the entries of `DealOrNoDialog-v0`'s observation and info.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jax import Array

from kibitz.core.act import Masks
from kibitz.core.envs import pettingzoo_env as generic
from kibitz.core.envs.both_seats import AGENTS, SeatsForm
from kibitz.core.errors import BadInput
from kibitz.games.deal_or_no_deal.envs.gym_env import first_state, observe
from kibitz.games.deal_or_no_deal.envs.wrappers import flat_acts
from kibitz.games.deal_or_no_deal.words import share

WAIT = 1  # DISAGREE: the one legal action of a seat that is not to act


def named(settings: Any, view: Any, masks: Masks) -> dict[str, Array]:
    observation, info = observe(settings, view, masks)
    # PettingZoo expects a mask of flat actions under the name action_mask
    return observation | {name: value for name, value in info.items() if name != "action_mask"}


def end_info(scores: Mapping[str, Any], seat: int) -> dict[str, Any]:
    """The same for both seats. The ceiling is missing: it is about the heuristic partner, who does not play here."""
    return {
        "payoffs": scores["payoff"].astype(np.float64),
        "agreement": bool(scores["agreement"][0]),
        "pareto": bool(scores["pareto"][0] == 1),
        "nash_product": float(scores["nash_product"][0]),
        "welfare": float(scores["welfare"][0]),
    }


def given_state(options: Any, settings: Any, given: Mapping[str, Any]) -> Any:
    """`context` and `agent_starts` as in `NegotiationEnv`; agent_0 is the agent."""
    if "context" in given:
        return first_state(options, settings, given["context"], given.get("agent_starts", True))
    if "agent_starts" in given:
        raise BadInput("reset takes 'agent_starts' only together with 'context'.")
    return None


def text(frame: Mapping[str, Any]) -> str:
    lines = [f"Pool: {share(frame['counts'])}. Turns remaining: {frame['turns_left']}."]
    for agent, act, claim in zip(AGENTS, frame["last_acts"], frame["claims"], strict=True):
        lines.append(f"{agent} {'has not spoken' if act is None else f'said {act}, keeps {share(claim)}'}.")
    return "\n".join(lines)


FORM = SeatsForm(
    flat_acts=lambda game: flat_acts(game.sizes[1] - 1),
    wait=WAIT,
    feature_range=lambda options: (0.0, max(1.0, options.max_count / 4)),
    named=named,
    end_info=end_info,
    given_state=given_state,
    text=text,
)


def aec_env(**options: Any) -> Any:
    """Seats take turns; who starts is drawn unless `agent_starts` fixes it. Options: `NegotiationOptions`."""
    return generic.aec_env("deal_or_no_deal", form=FORM, **options)


def parallel_env(**options: Any) -> generic.GameParallel:
    """Both seats act at every step, but only the one to move counts."""
    return generic.parallel_env("deal_or_no_deal", form=FORM, **options)
