"""The negotiation for agents that call tools: the generic environment with its own models and tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, WithJsonSchema

from kibitz.core.envs.game_tool_env import GameEnvironment, GameState
from kibitz.core.envs.tool_env import METADATA, Tool
from kibitz.core.errors import BadInput
from kibitz.games.deal_or_no_deal.drawing.frame import ints
from kibitz.games.deal_or_no_deal.envs.gym_env import first_state
from kibitz.games.deal_or_no_deal.options import NegotiationOptions
from kibitz.games.deal_or_no_deal.rules import ACT_NAMES, AGREE, DISAGREE, SILENT
from kibitz.games.deal_or_no_deal.words import history_line

Count = Annotated[int, Field(ge=-99, le=99)]  # a count outside the pool is an illegal act, not a malformed one


class NegotiationAction(BaseModel):
    """`oA` is what you keep; AGREE and DISAGREE ignore it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    act_type: int = Field(ge=0, le=4, description=", ".join(f"{i} {name}" for i, name in enumerate(ACT_NAMES)))
    oA: list[Count] = Field(default=[0, 0, 0], min_length=3, max_length=3, description="books, hats, balls you keep")
    metadata: dict[str, Any] = Field(
        default_factory=dict, description="the caller's own; the next observation repeats it"
    )


class Result(BaseModel):
    """The outcome of a finished episode."""

    payoffs: list[float]  # yours, the partner's
    ceiling: float  # the most that this partner would have accepted
    agreement: bool
    pareto: bool  # no other division is better for one seat and no worse for the other
    nash_product: float
    welfare: float


class NegotiationObservation(BaseModel):
    """Everything that seat 0 may know. Lists of three are books, hats, balls."""

    counts: list[int]
    my_utilities: list[int]
    partner_utilities: list[int] = Field(description="zeros unless reveal_partner_utilities is set")
    last_partner_act: int = Field(description="DISAGREE before the partner has spoken")
    last_partner_offer_for_me: list[int]
    turns_remaining: int
    action_mask: list[int] = Field(description="1 for each legal act type")
    oA_max: list[int]
    partner_has_spoken: bool
    budget_is_exact: bool
    legal_acts: list[str] = Field(description="legal acts in words, with the counts you may keep")
    history: list[str] = Field(description="every act so far, oldest first")
    text: str = Field(description="the position in two sentences")
    error: str | None = Field(None, description="why the last act was rejected, which leaves the position unchanged")
    played_for_you: str | None = Field(None, description="the heuristic's act after three illegal ones in a row")
    result: Result | None = Field(None, description="at the end")
    done: bool = False
    reward: float = Field(0.0, description="points, paid when a deal closes")
    metadata: dict[str, Any] = Field(default_factory=dict, description=METADATA)


class NegotiationState(GameState):
    """The state of the episode. It shows the seed only after the end, because the seed reveals the utilities."""


DATA_SET_OPTIONS = ("use_dataset", "dataset", "dataset_path", "past_offers")
CONTEXT: dict[str, JsonValue] = {
    "type": "object",
    "description": "a first position instead of a drawn one; counts from min_count to max_count",
    "properties": {
        name: {
            "type": "array",
            "items": {"type": "integer", "minimum": low, "maximum": high},
            "minItems": 3,
            "maxItems": 3,
        }
        for name, low, high in (("counts", 1, 7), ("my_utilities", 0, 10), ("partner_utilities", 0, 10))
    },
    "required": ["counts", "my_utilities", "partner_utilities"],
    "additionalProperties": False,
}


def _hide_data_sets(schema: dict[str, Any]) -> None:
    for name in DATA_SET_OPTIONS:
        del schema["properties"][name]


class ToolOptions(NegotiationOptions):
    """Options of `reset`. Callers cannot read data sets, which are files; they may give a `context`."""

    model_config = ConfigDict(json_schema_extra=_hide_data_sets)

    seed: int | None = Field(None, ge=0, lt=2**64)
    opponent: str = Field("heuristic", description="any player by name: bayes, llm:PRESET, policy:RUN")
    context: Annotated[dict[str, Any], WithJsonSchema(CONTEXT)] | None = None

    @classmethod
    def read(cls, values: Mapping[str, Any], where: str = "option of reset") -> ToolOptions:
        for name in DATA_SET_OPTIONS:
            if name in values:
                raise BadInput(f"reset has no option {name!r} here; give a context.")
        return super().read(values, where)


class NegotiationEnvironment(GameEnvironment):
    """A caller in seat 0 bargains with any player in seat 1."""

    game = "deal_or_no_deal"
    options: ClassVar[type[ToolOptions]] = ToolOptions
    title: ClassVar[str] = "Deal or No Deal: divide books, hats and balls with a partner who values them differently."
    reward_range: ClassVar[tuple[float, float]] = (0.0, 210.0)  # 7 of each, 10 points an item

    def reset(self, options: Mapping[str, Any] | None = None) -> NegotiationObservation:
        observation: NegotiationObservation = super().reset(options)
        return observation

    def step(self, action: NegotiationAction) -> NegotiationObservation:
        observation: NegotiationObservation = super().step(action)
        return observation

    @property
    def state(self) -> NegotiationState:
        return NegotiationState(**super().state.model_dump())

    @classmethod
    def tools(cls) -> list[Tool]:
        keeps = {
            "type": "object",
            "properties": {name: {"type": "integer", "minimum": 0} for name in ("books", "hats", "balls")},
            "required": ["books", "hats", "balls"],
            "additionalProperties": False,
        }
        nothing = {"type": "object", "properties": {}, "additionalProperties": False}
        return [
            Tool("propose", "Offer a division: you keep these, the partner gets the rest.", keeps),
            Tool("insist", "Offer a division as your last word: the partner may accept less.", keeps),
            Tool("agree", "Accept the partner's offer. Only while one is on the table.", nothing),
            Tool("disagree", "Refuse; by default this ends the talk with nothing for both.", nothing),
            Tool("end", "End the talk and select these. It pays if both selections add up to the pool.", keeps),
        ]

    @classmethod
    def action_of(cls, tool: str, arguments: Mapping[str, Any]) -> NegotiationAction:
        act_type = ACT_NAMES.index(tool.upper())
        if act_type in (AGREE, DISAGREE):
            return NegotiationAction.model_validate({"act_type": act_type, **arguments})
        return NegotiationAction(act_type=act_type, oA=_Keep.model_validate(dict(arguments)).as_list())

    def given_state(self, chosen: ToolOptions, settings: Any) -> Any:
        if chosen.context is None:
            return None
        return first_state(chosen, settings, chosen.context, chosen.agent_starts is not False)

    def act_of(self, action: NegotiationAction, view: Any, masks: Any) -> tuple[tuple[int, ...], str]:
        act = (action.act_type, *(action.oA if action.act_type not in (AGREE, DISAGREE) else (0, 0, 0)))
        inside = all(0 <= value < len(mask) for value, mask in zip(act, masks, strict=True))
        if inside and self._table.is_legal(masks, act):
            return (action.act_type, *action.oA), ""
        words = self._game.words
        return act, f"{words.act_text(act)} is illegal now; legal choices: {words.choices_text(view, masks)}."

    def observation(self, view: Any, masks: Any, **common: Any) -> NegotiationObservation:
        spoken = int(view.other_act) != SILENT
        pool = sum(int(n) * int(u) for n, u in zip(view.counts, view.my_utilities, strict=True))
        done, words = common["done"], self._game.words
        return NegotiationObservation(
            counts=ints(view.counts),
            my_utilities=ints(view.my_utilities),
            partner_utilities=ints(view.other_utilities),
            last_partner_act=int(view.other_act) if spoken else DISAGREE,
            last_partner_offer_for_me=ints(view.offer_for_me),
            turns_remaining=int(view.turns_left),
            action_mask=[int(x) for x in masks[0]],
            oA_max=ints(view.counts),
            partner_has_spoken=spoken,
            budget_is_exact=int(self._settings.budget) in (0, pool),
            legal_acts=[] if done else words.choices_text(view, masks).split(", "),
            text=words.position_text(view),
            result=self._result() if done else None,
            **common | {"history": [history_line(entry, 0) for entry in common["history"]]},
        )

    def _result(self) -> Result:
        scores = self.scores()
        return Result(
            payoffs=[float(x) for x in scores["payoff"]],
            ceiling=float(scores["ceiling"][0]),
            agreement=bool(scores["agreement"][0]),
            pareto=bool(scores["pareto"][0] == 1),
            nash_product=float(scores["nash_product"][0]),
            welfare=float(scores["welfare"][0]),
        )


class _Keep(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    books: Count
    hats: Count
    balls: Count

    def as_list(self) -> list[int]:
        return [self.books, self.hats, self.balls]
