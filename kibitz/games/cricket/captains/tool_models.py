"""What goes into `CricketEnvironment` and what comes out."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from kibitz.core.options import Options


class CricketAction(BaseModel):
    """One call of a tool; which are legal, and with which arguments, is in every observation."""

    model_config = ConfigDict(extra="forbid")

    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    metadata: dict[str, Any] = Field(default_factory=dict, description="of the caller; not looked at")


class CricketObservation(BaseModel):
    """All that the captain in seat 0 may know. Nothing here depends on the other captain's choice for the ball."""

    done: bool = False
    reward: float = Field(0.0, description="paid with the last ball: win 1, tie 0.5, loss 0; more often with shaping")
    reward_range: tuple[float, float] = (0.0, 1.0)
    episode_id: str = ""
    turn: int = Field(0, description="deliveries so far")
    role: Literal["batting", "bowling"] = "batting"
    calls_left: int = Field(3, description="calls without a ball before the ball is played on the standing plan")
    tools: list[dict[str, Any]] = Field(default_factory=list, description="legal now, with argument schemas")
    error: str | None = Field(None, description="why the call was refused, and what would be right")
    message: str = Field("", description="what the call did")
    scoreboard: dict[str, Any] = Field(default_factory=dict)
    batters: list[dict[str, Any]] = Field(default_factory=list, description="the striker, then the other")
    bowler: dict[str, Any] | None = Field(None, description="with his figures; none before an over begins")
    field: str = Field("balanced", description="for the last ball")
    last_balls: list[str] = Field(default_factory=list, description="up to twelve, oldest first")
    partnership: dict[str, int] = Field(default_factory=dict)
    required_rate: float | None = None
    plans: dict[str, str | None] = Field(default_factory=dict, description="what stands until it is changed")
    players: dict[str, Any] = Field(default_factory=dict, description="both sides with known skills and figures")
    analysis: dict[str, Any] | None = Field(None, description="the answer of analyze_situation")
    text: str = Field("", description="the position in a few sentences")
    frame: dict[str, Any] = Field(default_factory=dict, description="what a page draws")
    metadata: dict[str, Any] = Field(default_factory=dict, description="of a ball: both captains' acts; first: options")

    _turn: Any = PrivateAttr(None)  # kibitz.core.play.player.Turn, for captains that live in this process


class CricketState(BaseModel):
    """Where the match stands. The seed is told at the end: it would say how good the pitch is."""

    episode_id: str | None = None
    step_count: int = 0  # calls
    deliveries: int = 0
    match_over: bool = False
    winner: int | Literal["tie"] | None = Field(None, description="seat 0 is the captain's")
    total_reward: float = 0.0
    refused_calls: int = 0
    opponent: str = ""
    opponent_fallbacks: int = Field(0, description="balls at which the heuristic stood in for the opponent")
    last_fallback: str = ""
    options: dict[str, Any] = Field(default_factory=dict)
    pack_match: int | None = None
    seed: int | None = None

    @property
    def done(self) -> bool:
        return self.match_over


class ResetOptions(Options):
    """Options of `reset`."""

    random_start: bool = Field(False, description="begin in a plausible position in the middle of a match")
    opponent_mode: str = Field("heuristic", description="any player by name: heuristic, llm:PRESET, policy:RUN")
    eval_pack_id: str | None = Field(None, description="a pack; `seed` then counts its matches")
    max_overs: int = Field(5, ge=1, le=20, description="overs of an innings")
    seed: int | None = Field(None, ge=0, lt=2**63, description="of sides and luck; one is drawn where none is given")
    captain_side: Literal["toss", "bat", "bowl"] = Field("toss", description="what the captain does first")
    era: Literal["pre2018", "2018-2022", "2023+"] = "2023+"
