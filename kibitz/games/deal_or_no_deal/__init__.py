"""Deal or No Deal: `game()` returns the record for a set of `NegotiationOptions`. The rules are in `rules`."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from kibitz.core.bots import Bot
from kibitz.core.game import Drawing, Game, Learning, Measures, Page, QuickStart, Rules
from kibitz.core.words import Words
from kibitz.games.deal_or_no_deal import contexts, rules, styles, view, words, yardsticks
from kibitz.games.deal_or_no_deal.bots import bayes, detective, partner
from kibitz.games.deal_or_no_deal.drawing import frame, reason, review
from kibitz.games.deal_or_no_deal.options import NegotiationOptions

# the counts of AGREE and DISAGREE do not matter
MATTERS = np.array([[True, *[act_type in (rules.PROPOSE, rules.INSIST, rules.END)] * 3] for act_type in range(5)])


def _contexts_options(name: str) -> dict[str, Any]:
    """Options for `uniform` contexts, or for those of a file."""
    if name == "uniform":
        return {}
    return {"use_dataset": True, "dataset": contexts.dataset_of(name), "dataset_path": name}


@cache
def build(max_count: int = 4, revealed: bool = False, past_offers: int = 0) -> Game:
    """The record for pools up to `max_count`; features include revealed utilities and past offers on request."""
    bots: list[Bot] = [
        partner.HEURISTIC,
        partner.RANDOM,
        bayes.bot(max_count),
        detective.bot(max_count),
        *(partner.kind_bot(kind) for kind in partner.KINDS),
    ]
    return Game(
        name="deal_or_no_deal",
        title="Deal or No Deal",
        heads=rules.heads(max_count),
        options=NegotiationOptions,
        rules=Rules(
            new=rules.new,
            to_act=rules.to_act,
            legal=partial(rules.legal, max_count=max_count),
            step=rules.step,
            view=view.view,
            max_steps=rules.max_steps,
            takes_illegal_acts=True,
            new_uniforms=rules.NEW_UNIFORMS,
        ),
        learning=Learning(
            features=partial(view.features, revealed=revealed, max_count=max_count),
            matters=MATTERS,
            bit_widths=rules.bit_widths(past_offers),
            scale=rules.scale,
        ),
        bots={bot.name: bot for bot in bots},
        reference="bayes",
        greedy="partner:heuristic",
        measures=Measures(score=partial(yardsticks.score, max_count=max_count)),
        words=Words(
            prompt_variables=words.prompt_variables,
            answer_fields=words.answer_fields,
            act_text=words.act_text,
            parse=words.parse,
            position_text=words.position_text,
            choices_text=words.choices_text,
            reason=partial(reason.reason, max_count=max_count),
            prompt="configs/llm_prompt.txt",
            taught_prompt="configs/llm_prompt_taught.txt",
        ),
        drawing=Drawing(
            frame=frame.frame,
            commentary=frame.commentary,
            private=frame.private,
            review=partial(review.review, max_count=max_count),
            summary=frame.summary,
            level="share of the items in the last offer",
            page=Page(Path(__file__).parent / "ui", "deal_or_no_deal.js"),
        ),
        styles=styles.play_styles(max_count),
        contexts=_contexts_options,
        tool_env=_tool_env,
        starts=(
            QuickStart("Bargain with Bayes", ("human", "bayes")),
            QuickStart("Model against model", ("llm:auto", "llm:embedded")),
        ),
        default_options=NegotiationOptions(
            max_count=max_count, reveal_partner_utilities=revealed, past_offers=past_offers
        ),
    )


def game(options: NegotiationOptions | None = None) -> Game:
    """The record that fits the options."""
    chosen: Any = options or NegotiationOptions()
    return build(chosen.max_count, chosen.reveal_partner_utilities, chosen.past_offers)


def _tool_env() -> type[Any]:
    """Loaded when first used: it needs pydantic models that nothing else does."""
    from kibitz.games.deal_or_no_deal.envs.tool_env import NegotiationEnvironment

    return NegotiationEnvironment
