"""JSON schemas of every event type. The server publishes them at /custom/schema; tests check real episodes."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from kibitz.core.play.events import VERSION

Private = dict[str, dict[str, Any]]
Frame = dict[str, Any]


class Payload(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Started(Payload):
    game: str
    version: int
    players: list[str] = Field(min_length=2, max_length=2)
    frame: Frame = Field(description="complete")
    cast: dict[str, Any] = Field(description="names and other constant facts")
    about: dict[str, Any] = Field(description="how the episode was set up")
    private: Private = Field(description="by seat: visible only to that seat before the end")


class Asked(Payload):
    seat: int = Field(ge=0, le=1)
    turn: int = Field(ge=0)
    source: str = Field(description="the player that chose")
    latency: float = Field(description="seconds")
    usage: dict[str, float]
    fallback: str = Field(description="why another player answered instead; empty if none did")
    failure: str = Field("", description="the kind of failure behind `fallback`, such as `transport` or `illegal`")
    private: Private


class TurnRequested(Payload):
    seat: int = Field(ge=0, le=1)
    turn: int = Field(ge=0)
    seconds: float | None = Field(description="time limit; null: unlimited")
    private: Private = Field(description="for this seat only: what GET /episodes/{id}/turn answers, without the time")


class Decision(Asked):
    act: list[int]
    text: str
    calls: list[dict[str, Any]] = Field(description="the act as tool calls; empty if the game has none")


class Step(Payload):
    turn: int = Field(ge=0)
    acts: list[list[int] | None]
    rewards: list[float] = Field([], description="by seat; only in games whose rewards are public")
    frame: Frame = Field(description="only the keys that changed")
    private: Private = Field(
        {}, description="by seat: its `reward`, unless rewards are public, and its private values that changed"
    )


class Commentary(Payload):
    turn: int = Field(ge=0)
    text: str
    audio: str | None


class Ended(Payload):
    text: str = Field(description="the closing line")
    audio: str | None
    returns: list[float]
    scores: dict[str, list[float | None]]
    frame: Frame
    review: dict[str, Any]
    private: Private
    seed: int
    number: int
    match: int | None = Field(None, description="number in its pack")
    steps: int


class Failed(Payload):
    kind: str = Field(pattern="^(stopped|error|shutdown|interrupted)$")
    reason: str
    frame: Frame | None
    private: Private
    steps: int
    seed: int | None = None
    number: int | None = None
    match: int | None = None


PAYLOADS: dict[str, type[Payload]] = {
    "episode.started": Started,
    "hint": Asked,
    "turn.requested": TurnRequested,
    "decision": Decision,
    "step": Step,
    "commentary": Commentary,
    "episode.ended": Ended,
    "episode.failed": Failed,
}


@cache
def event_schemas() -> dict[str, Any]:
    """By event type: the complete envelope."""
    return {kind: _envelope(kind, payload.model_json_schema()) for kind, payload in PAYLOADS.items()}


def _envelope(kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "v": {"const": VERSION},
            "episode_id": {"type": "string"},
            "seq": {"type": "integer", "minimum": 0},
            "ts": {"type": "number", "description": "seconds since 1970"},
            "type": {"const": kind},
            "payload": payload,
        },
        "required": ["v", "episode_id", "seq", "ts", "type", "payload"],
        "additionalProperties": False,
    }
