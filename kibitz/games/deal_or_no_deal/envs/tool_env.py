"""The negotiation for agents that call tools: `NegotiationEnvironment`, in the shape of `kibitz.core.envs.tool_env`.

It plays the very episodes that `play_episode` plays under the same seed, with the caller in seat 0.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, JsonValue, WithJsonSchema

from kibitz.core.bots import Bot, seated
from kibitz.core.chance import episode_luck, seat_luck, seed_key
from kibitz.core.envs.tool_env import Tool
from kibitz.core.errors import BadInput
from kibitz.core.play.episode import ask, table_for
from kibitz.core.play.player import BotPlayer, Player, Turn
from kibitz.core.play.resolve import player_and_bot
from kibitz.games.deal_or_no_deal import game as game_for
from kibitz.games.deal_or_no_deal.drawing.frame import ints
from kibitz.games.deal_or_no_deal.envs.gym_env import first_state
from kibitz.games.deal_or_no_deal.options import NegotiationOptions
from kibitz.games.deal_or_no_deal.rules import ACT_NAMES, AGREE, DISAGREE, SILENT
from kibitz.games.deal_or_no_deal.words import history_line

Acts = list[list[int] | None]  # of one step, by seat
PATIENCE = 3  # illegal acts in a row, the last of which is replaced


Kept = Annotated[int, Field(ge=-99, le=99)]  # what is out of the pool's reach is an illegal act, not a malformed one


class NegotiationAction(BaseModel):
    """`oA` is what you keep; AGREE and DISAGREE do not look at it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    act_type: int = Field(ge=0, le=4, description=", ".join(f"{i} {name}" for i, name in enumerate(ACT_NAMES)))
    oA: list[Kept] = Field(default=[0, 0, 0], min_length=3, max_length=3, description="books, hats, balls you keep")
    metadata: dict[str, Any] = Field(default_factory=dict, description="of the caller; not looked at")


class Result(BaseModel):
    """What can be said once it is over."""

    payoffs: list[float]  # yours, the partner's
    ceiling: float  # the most this partner would have let you take
    agreement: bool
    pareto: bool  # no other division would have been better for one and no worse for the other
    nash_product: float
    welfare: float


class NegotiationObservation(BaseModel):
    """All that seat 0 may know. Lists of three are books, hats, balls."""

    counts: list[int]
    my_utilities: list[int]
    partner_utilities: list[int] = Field(description="zeros unless reveal_partner_utilities was asked for")
    last_partner_act: int = Field(description="DISAGREE before the partner has spoken")
    last_partner_offer_for_me: list[int]
    turns_remaining: int
    action_mask: list[int] = Field(description="1 for each act type that is open now")
    oA_max: list[int]
    partner_has_spoken: bool
    budget_is_exact: bool
    legal_acts: list[str] = Field(description="the same in words, with what may be kept")
    history: list[str] = Field(description="everything said so far, oldest first")
    text: str = Field(description="the position in two sentences")
    error: str | None = Field(None, description="why the last act was refused; nothing has changed then")
    played_for_you: str | None = Field(None, description="what the heuristic did after three illegal acts in a row")
    result: Result | None = Field(None, description="at the end")
    done: bool = False
    reward: float = Field(0.0, description="points, paid when a deal closes")
    metadata: dict[str, Any] = Field(default_factory=dict, description="the acts since the last one; first: options")


class NegotiationState(BaseModel):
    """Where the episode stands. The seed is not told before the end: it deals the hidden utilities again."""

    episode_id: str | None = None
    step_count: int = 0
    done: bool = False
    illegal_acts: int = 0
    played_for_you: int = 0  # acts of the heuristic in place of yours
    total_reward: float = 0.0
    opponent: str = ""
    seed: int | None = None


NOT_HERE = ("use_dataset", "dataset", "dataset_path", "past_offers")
CONTEXT: dict[str, JsonValue] = {
    "type": "object",
    "description": "a first position in place of a drawn one; counts from min_count to max_count",
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


def _without_data_sets(schema: dict[str, Any]) -> None:
    for name in NOT_HERE:
        del schema["properties"][name]


class ToolOptions(NegotiationOptions):
    """Options of `reset`. Data sets are files and are not read for callers; give a `context` instead."""

    model_config = ConfigDict(json_schema_extra=_without_data_sets)

    seed: int | None = Field(None, ge=0, lt=2**64)
    opponent: str = Field("heuristic", description="any player by name: bayes, llm:PRESET, policy:RUN")
    context: Annotated[dict[str, Any], WithJsonSchema(CONTEXT)] | None = None

    @classmethod
    def given(cls, options: Mapping[str, Any]) -> ToolOptions:
        for name in NOT_HERE:
            if name in options:
                raise BadInput(f"reset has no option {name!r} here; give a context.")
        return cls.read(options, "option of reset")

    def rules(self) -> NegotiationOptions:
        own = {name: getattr(self, name) for name in NegotiationOptions.model_fields}
        return NegotiationOptions(**own)


@lru_cache(maxsize=64)
def _settings(rules_json: str, bot: Bot | None) -> Any:
    """The arrays, studied by the opponent once."""
    settings = NegotiationOptions.model_validate_json(rules_json).settings()
    return seated(settings, {1: bot} if bot is not None else {})


class NegotiationEnvironment:
    """A caller in seat 0 bargains with any player in seat 1."""

    options: ClassVar[type[ToolOptions]] = ToolOptions
    title: ClassVar[str] = "Deal or No Deal: divide books, hats and balls with a partner who values them differently."
    reward_range: ClassVar[tuple[float, float]] = (0.0, 210.0)  # 7 of each, 10 points an item

    def __init__(self) -> None:
        self._state: Any = None

    def reset(self, options: Mapping[str, Any] | None = None) -> NegotiationObservation:
        """A new episode. Without a seed one is drawn."""
        chosen = ToolOptions.given(options or {})
        game = game_for(chosen.rules())
        opponent, bot = player_and_bot(game, chosen.opponent)
        settings = _settings(chosen.rules().model_dump_json(), bot)
        first = None
        if chosen.context is not None:
            first = first_state(chosen.rules(), settings, chosen.context, chosen.agent_starts is not False)
        seed = uuid.uuid4().int % 2**63 if chosen.seed is None else chosen.seed
        self._game, self._settings, self._table = game, settings, table_for(game)
        self._luck = episode_luck(seed_key(seed), 0)
        self._lucks = [seat_luck(self._luck, seat) for seat in (0, 1)]
        self._players: list[Player] = [BotPlayer(game, game.bot("heuristic")), opponent]
        for seat, player in enumerate(self._players):
            player.begin(settings, seat, self._lucks[seat])
        self._state = self._table.new(settings, self._luck) if first is None else first
        self._seed, self._number, self._wrong = seed, 0, 0
        self._history: list[dict[str, Any]] = []
        self._told = NegotiationState(episode_id=f"ep-{uuid.uuid4().hex[:12]}", opponent=chosen.opponent)
        self._acts: list[Acts] = []
        # an opening act of the partner can end the game: its points belong to this reward
        seen = self._look(self._partner())
        if first is None:  # what was dealt can be dealt again
            seen.metadata["options"] = chosen.rules().model_dump(mode="json")
        return seen

    def step(self, action: NegotiationAction) -> NegotiationObservation:
        """Your act, then the partner's. An illegal act changes nothing; the third in a row is the heuristic's."""
        if self._state is None:
            raise BadInput("No episode has begun; call reset first.")
        if self._told.done:
            raise BadInput("The episode is over; call reset for a new one.")
        act = (action.act_type, *action.oA)
        self._acts = []
        wrong = self._why_illegal(act)
        if wrong:
            self._told.illegal_acts += 1
            self._wrong += 1
            if self._wrong < PATIENCE:
                return self._look(0.0, error=wrong)
            self._told.played_for_you += 1
        usual = self._players[0].choose(self._turn(0)).act  # asked every turn: it may remember what it saw
        act = usual if wrong else act
        self._wrong = 0
        self._told.step_count += 1
        reward = self._play(0, act) + self._partner()
        return self._look(reward, error=wrong or None, played=self._game.words.act_text(act) if wrong else None)

    @property
    def state(self) -> NegotiationState:
        return NegotiationState() if self._state is None else self._told.model_copy()

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
            Tool("insist", "The same, and say that it is your last word: the partner may take less.", keeps),
            Tool("agree", "Take the partner's offer. Only while one is on the table.", nothing),
            Tool("disagree", "Refuse; by default this ends the talk with nothing for both.", nothing),
            Tool("end", "End the talk and select these. It pays if both selections add up to the pool.", keeps),
        ]

    @classmethod
    def action_of(cls, tool: str, arguments: Mapping[str, Any]) -> NegotiationAction:
        act_type = ACT_NAMES.index(tool.upper())
        if act_type in (AGREE, DISAGREE):
            return NegotiationAction.model_validate({"act_type": act_type, **arguments})
        return NegotiationAction(act_type=act_type, oA=_Keep.model_validate(dict(arguments)).as_list())

    def _turn(self, seat: int) -> Turn:
        view, masks = self._table.observe(self._settings, self._state, seat)
        return Turn(self._settings, seat, self._number, view, masks, list(self._history), self._lucks[seat])

    def _partner(self) -> float:
        """Its act if it is its turn; what that pays seat 0."""
        turn = np.asarray(self._table.to_act(self._state))
        return self._play(1, ask(self._table, self._players[1], self._turn(1)).act) if turn[1] else 0.0

    def _play(self, seat: int, act: tuple[int, ...]) -> float:
        self._state, rewards, over = self._table.step(self._settings, self._state, (act, act), self._luck, self._number)
        self._number += 1
        self._acts.append([list(act), None] if seat == 0 else [None, list(act)])
        self._history.append({"seat": seat, "act": act})
        self._told.done = bool(over)
        self._told.total_reward += float(rewards[0])
        return float(rewards[0])

    def _why_illegal(self, act: tuple[int, ...]) -> str:
        view, masks = self._table.observe(self._settings, self._state, 0)
        within = all(0 <= value < len(mask) for value, mask in zip(act, masks, strict=True))
        if act[0] in (AGREE, DISAGREE):
            act, within = (act[0], 0, 0, 0), True
        if within and self._table.is_legal(masks, act):
            return ""
        words = self._game.words
        return f"{words.act_text(act)} is not possible now; open are {words.choices_text(view, masks)}."

    def _look(self, reward: float, error: str | None = None, played: str | None = None) -> NegotiationObservation:
        view, masks = self._table.observe(self._settings, self._state, 0)
        spoken = int(view.other_act) != SILENT
        budget = int(self._settings.budget)
        pool = sum(int(n) * int(u) for n, u in zip(view.counts, view.my_utilities, strict=True))
        done = self._told.done
        if done:
            self._told.seed = self._seed
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
            budget_is_exact=budget in (0, pool),
            legal_acts=[] if done else self._game.words.choices_text(view, masks).split(", "),
            history=[history_line(entry, 0) for entry in self._history],
            text=self._game.words.position_text(view),
            error=error,
            played_for_you=played,
            result=self._result() if done else None,
            done=done,
            reward=reward,
            metadata={"acts": self._acts},
        )

    def _result(self) -> Result:
        scores = {name: np.asarray(x) for name, x in self._table.score(self._settings, self._state).items()}
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

    books: Kept
    hats: Kept
    balls: Kept

    def as_list(self) -> list[int]:
        return [self.books, self.hats, self.balls]
