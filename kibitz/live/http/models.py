"""What requests may hold and what answers look like: strict, so that `false` is no number."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
EpisodeId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Problem(BaseModel):
    """Every error: one sentence."""

    error: str


class Busy(Problem):
    current: dict[str, Any] | None = None


class Missed(Problem):
    expected: int | None = Field(None, description="seq of the next event, if one was left out")


def _start(schema: dict[str, Any]) -> None:
    from kibitz.live.http.openapi import start_schema  # loads JAX

    start_schema(schema)


class Start(Strict):
    model_config = ConfigDict(json_schema_extra=_start)

    captain_preset: Name = Field("balanced", description="who sits in seat 0")
    opponent_choice: Name = Field("heuristic", description="who sits in seat 1")
    max_overs: int = Field(5, ge=1, le=20, description="of an innings; games without overs ignore it")
    eval_pack_id: Name = Field("default", description="a pack of first positions; default: a fresh match")
    enable_tts: bool = Field(True, description="commentary gets audio where a voice is there")
    game: Name = "cricket"
    seed: int | None = Field(None, ge=0, lt=2**53, description="play this very episode")
    open: bool = Field(False, description="watchers see both sides' secrets from the start")
    adviser: Name | None = Field(None, description="who whispers to seat 0")
    options: dict[str, Any] = Field(default_factory=dict, max_length=50, description="options of the game")
    pace: float | None = Field(None, ge=0, le=60, description="seconds between steps")
    human_seat: int | None = Field(None, ge=0, le=1, description="seat a person takes, in place of its player")


class Started(BaseModel):
    episode_id: str
    game: str
    players: list[str]
    url: str
    seat_token: str | None = Field(None, description="of the person's seat; told to nobody else")


class Stop(Strict):
    episode_id: EpisodeId | None = None


class Stopped(BaseModel):
    stopped: str


def _branch(schema: dict[str, Any]) -> None:
    from kibitz.live.http.openapi import branch_schema  # loads JAX

    branch_schema(schema)


class Branch(Strict):
    model_config = ConfigDict(json_schema_extra=_branch)

    turn: int = Field(ge=0, le=100_000, description="steps that are kept from the record")
    players: list[Name] = Field(min_length=2, max_length=2)
    open: bool = False
    pace: float | None = Field(None, ge=0, le=60)
    enable_tts: bool = True
    adviser: Name | None = None


ONE_OF_TWO: dict[str, JsonValue] = {
    "oneOf": [
        {"required": ["act"], "properties": {"act": {"type": "array"}, "text": {"type": "null"}}},
        {"required": ["text"], "properties": {"text": {"type": "string"}, "act": {"type": "null"}}},
    ]
}


class Act(Strict):
    model_config = ConfigDict(json_schema_extra=ONE_OF_TWO)

    seat_token: str | None = Field(None, max_length=100)
    act: list[Annotated[int, Field(ge=-(2**31), lt=2**31)]] | None = Field(None, min_length=1, max_length=32)
    text: str | None = Field(None, min_length=1, max_length=200)
    turn: int | None = Field(None, ge=0, lt=2**31, description="the turn it is meant for; in another it is refused")


class Acted(BaseModel):
    accepted: str = Field(description="the act in words")


class Meta(BaseModel):
    """One episode as lists show it."""

    episode_id: str
    game: str
    players: list[str]
    status: str
    started_at: float
    ended_at: float | None
    last_seq: int
    returns: list[float] | None
    text: str
    open: bool


class Page(BaseModel):
    episodes: list[Meta]
    next: str | None


class Snapshot(Meta):
    frame: dict[str, Any] | None = Field(description="the whole frame after event `last_seq`")
    about: dict[str, Any]


class Taken(BaseModel):
    next: int = Field(description="seq that the store expects next")
    added: int


class Loaded(BaseModel):
    episode_id: str
    events: int


class Envelope(Strict):
    """One event as a driver sends it."""

    v: int = Field(ge=1, le=1)
    episode_id: EpisodeId
    seq: int = Field(ge=0, lt=1_000_000)
    ts: float
    type: str
    payload: dict[str, Any]
