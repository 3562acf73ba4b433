"""Deal or No Deal: `game()` is the record, `NegotiationOptions` what may be set."""

from __future__ import annotations

from functools import cache, partial
from importlib import import_module
from typing import Any

import numpy as np

from kibitz.core.game import Game, Rule
from kibitz.games.deal_or_no_deal import contexts, rules, view, words
from kibitz.games.deal_or_no_deal import yardsticks as reference
from kibitz.games.deal_or_no_deal.bots import bayes, partner
from kibitz.games.deal_or_no_deal.drawing import frame, review
from kibitz.games.deal_or_no_deal.options import NegotiationOptions

# the counts of AGREE and DISAGREE do not matter
MATTERS = np.array([[True, *[act_type in (rules.PROPOSE, rules.INSIST, rules.END)] * 3] for act_type in range(5)])


def contexts_options(name: str) -> dict[str, Any]:
    """`uniform`, or a file of contexts."""
    if name == "uniform":
        return {}
    return {"use_dataset": True, "dataset": contexts.dataset_of(name), "dataset_path": name}


@cache
def build(max_count: int = 4, revealed: bool = False, past_offers: int = 0) -> Game:
    """The record for head sizes up to `max_count`, and features with what a learner may also see."""
    players: list[Rule] = [
        partner.HEURISTIC,
        partner.RANDOM,
        bayes.rule(max_count),
        *(partner.kind_rule(kind) for kind in partner.KINDS),
    ]
    return Game(
        name="deal_or_no_deal",
        version=1,
        heads=rules.heads(max_count),
        matters=MATTERS,
        simultaneous=False,
        options=NegotiationOptions,
        new=rules.new,
        new_uniforms=rules.NEW_UNIFORMS,
        to_act=rules.to_act,
        legal=partial(rules.legal, max_count=max_count),
        step=rules.step,
        step_uniforms=0,
        longest=rules.longest,
        view=view.view,
        features=partial(view.features, revealed=revealed, max_count=max_count),
        widths=rules.widths(past_offers),
        built_for=NegotiationOptions(max_count=max_count, reveal_partner_utilities=revealed, past_offers=past_offers),
        rules={rule.name: rule for rule in players},
        scale=rules.scale,
        reference="bayes",
        score=partial(reference.score, max_count=max_count),
        fields=words.fields,
        describe=words.describe,
        frame=frame.frame,
        tell=frame.tell,
        say=words.say,
        parse=words.parse,
        brief=words.brief,
        legal_text=words.legal_text,
        contexts=contexts_options,
        private=frame.private,
        review=partial(review.review, max_count=max_count),
    )


def game(options: NegotiationOptions | None = None) -> Game:
    """The record that fits the options."""
    chosen: Any = options or NegotiationOptions()
    return build(chosen.max_count, chosen.reveal_partner_utilities, chosen.past_offers)


def environment() -> Any:
    """The game for agents that call tools."""
    return import_module("kibitz.games.deal_or_no_deal.envs.tool_env").NegotiationEnvironment
