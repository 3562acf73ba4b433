"""The models of `CricketEnvironment`: action, observation, state and options of `reset`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_serializer

from kibitz.core.envs.tool_env import METADATA
from kibitz.core.options import Options


class CricketAction(BaseModel):
    """One tool call. Every observation lists the legal tools and their arguments."""

    model_config = ConfigDict(extra="forbid")

    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    metadata: dict[str, Any] = Field(
        default_factory=dict, description="the caller's own; the next observation repeats it"
    )


class CricketObservation(BaseModel):
    """Everything the captain in seat 0 may see. It is independent of the other's choice for the next ball."""

    done: bool = False
    reward: float = Field(
        0.0, description="paid with the last ball: win 1, tie 0.5, loss 0; with shaping, paid ball by ball"
    )
    reward_range: tuple[float, float] = (0.0, 1.0)
    episode_id: str = ""
    turn: int = Field(0, description="deliveries so far")
    role: Literal["batting", "bowling"] = "batting"
    calls_left: int = Field(3, description="calls left before the ball is played on the standing plan")
    tools: list[dict[str, Any]] = Field(default_factory=list, description="legal now, with argument schemas")
    error: str | None = Field(None, description="why the call was refused, and which calls are legal")
    message: str = Field("", description="what the call did")
    scoreboard: dict[str, Any] = Field(default_factory=dict)
    batters: list[dict[str, Any]] = Field(default_factory=list, description="the striker, then the non-striker")
    bowler: dict[str, Any] | None = Field(None, description="with figures; null before an over starts")
    field: str = Field("balanced", description="for the last ball")
    last_balls: list[str] = Field(default_factory=list, description="up to twelve, oldest first")
    partnership: dict[str, int] = Field(default_factory=dict)
    required_rate: float | None = None
    plans: dict[str, str | None] = Field(default_factory=dict, description="standing plans")
    players: dict[str, Any] = Field(default_factory=dict, description="both sides with known skills and figures")
    analysis: dict[str, Any] | None = Field(None, description="the result of analyze_situation")
    text: str = Field("", description="the position in a few sentences")
    frame: dict[str, Any] = Field(default_factory=dict, description="what a page draws")
    metadata: dict[str, Any] = Field(default_factory=dict, description=METADATA)

    turn_data: dict[str, Any] | None = Field(None, description="the turn as numbers, for `pick_action` elsewhere")

    _turn: Any = PrivateAttr(None)  # kibitz.core.play.player.Turn, for captains in this process
    _turn_data: Callable[[], dict[str, Any] | None] | None = PrivateAttr(None)  # most observations never travel

    @field_serializer("turn_data")
    def _serialize_turn(self, known: dict[str, Any] | None) -> dict[str, Any] | None:
        return known if self._turn_data is None else self._turn_data()


class CricketState(BaseModel):
    """The state of the match. It reveals the seed only at the end, because the seed determines the pitch."""

    episode_id: str | None = None
    step_count: int = 0  # tool calls
    deliveries: int = 0
    match_over: bool = False
    winner: int | Literal["tie"] | None = Field(None, description="the winning seat; the captain is seat 0")
    total_reward: float = 0.0
    returns: tuple[float, float] | None = Field(None, description="of both captains, at the end")
    refused_calls: int = 0
    opponent: str = ""
    opponent_fallbacks: int = Field(0, description="balls on which the heuristic replaced the opponent")
    last_fallback: str = ""
    options: dict[str, Any] = Field(default_factory=dict)
    pack_match: int | None = None
    seed: int | None = None

    @property
    def done(self) -> bool:
        return self.match_over


class ResetOptions(Options):
    """Options of `reset`."""

    random_start: bool = Field(False, description="start in a plausible position in mid-match")
    opponent_mode: str = Field("heuristic", description="the name of any player: heuristic, llm:PRESET, policy:RUN")
    eval_pack_id: str | None = Field(
        None, description="a pack: the match whose number is `seed`; without a seed, a fresh match of its kind"
    )
    max_overs: int = Field(5, ge=1, le=20, description="overs of an innings")
    seed: int | None = Field(None, ge=0, lt=2**63, description="of sides and luck; drawn at random by default")
    captain_side: Literal["toss", "bat", "bowl"] = Field("toss", description="what the captain does first")
    era: Literal["pre2018", "2018-2022", "2023+"] = "2023+"


def read_observation(obs: CricketObservation | Mapping[str, Any]) -> CricketObservation:
    """The observation itself, or the one that went through JSON."""
    return obs if isinstance(obs, CricketObservation) else CricketObservation.model_validate(obs)


def to_ui_frame(obs: CricketObservation | Mapping[str, Any], episode_id: str = "") -> dict[str, Any]:
    """The observation as plain data for the page and for `HeuristicCaptain`: the frame and the legal tools."""
    obs = read_observation(obs)
    return obs.frame | {
        "episode_id": episode_id or obs.episode_id,
        "turn": obs.turn,
        "role": obs.role,
        "tools": obs.tools,
        "plans": obs.plans,
        "calls_left": obs.calls_left,
        "players": obs.players,
        "phase": obs.scoreboard.get("phase"),
        "text": obs.text,
        "message": obs.message,
        "error": obs.error,
        "analysis": obs.analysis,
        "done": obs.done,
    }
