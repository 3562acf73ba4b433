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
    game: str = Field(description="name of the game")
    version: int = Field(description="version of the game's rules")
    players: list[str] = Field(min_length=2, max_length=2, description="by seat: the player's name")
    frame: Frame = Field(description="complete")
    cast: dict[str, Any] = Field(description="names and other constant facts")
    about: dict[str, Any] = Field(description="how the episode was set up")
    private: Private = Field(description="by seat: visible only to that seat before the end")


class Asked(Payload):
    seat: int = Field(ge=0, le=1, description="the seat that chooses")
    turn: int = Field(ge=0, description="number of the turn, from 0")
    source: str = Field(description="the player that chose")
    latency: float = Field(description="seconds")
    usage: dict[str, float] = Field(description="calls, tokens and money of the answer")
    fallback: str = Field(description="why another player answered instead; empty if none did")
    failure: str = Field("", description="the kind of failure behind `fallback`, such as `transport` or `illegal`")
    private: Private = Field(description="by seat: the reason and other values that only this seat sees")


class TurnRequested(Payload):
    seat: int = Field(ge=0, le=1, description="the seat that chooses")
    turn: int = Field(ge=0, description="number of the turn, from 0")
    seconds: float | None = Field(description="time limit; null: unlimited")
    private: Private = Field(description="for this seat only: what GET /episodes/{id}/turn answers, without the time")


class Decision(Asked):
    act: list[int] = Field(description="one value per head")
    text: str = Field(description="the act in words")
    calls: list[dict[str, Any]] = Field(description="the act as tool calls; empty if the game has none")


class Step(Payload):
    turn: int = Field(ge=0, description="number of the turn, from 0")
    acts: list[list[int] | None] = Field(description="by seat; null: the seat did not act")
    rewards: list[float] = Field([], description="by seat; only in games whose rewards are public")
    frame: Frame = Field(description="only the keys that changed")
    private: Private = Field(
        {}, description="by seat: its `reward`, unless rewards are public, and its private values that changed"
    )


class Commentary(Payload):
    turn: int = Field(ge=0, description="number of the turn, from 0")
    text: str = Field(description="the line, as a caption")
    audio: str | None = Field(description="address of the spoken line; null: silent")


class Ended(Payload):
    text: str = Field(description="the closing line")
    audio: str | None = Field(description="address of the spoken line; null: silent")
    returns: list[float] = Field(description="by seat: the sum of its rewards")
    scores: dict[str, list[float | None]] = Field(description="by measure and seat")
    frame: Frame = Field(description="complete")
    review: dict[str, Any] = Field(description="what the page shows once the episode is over")
    private: Private = Field(description="by seat: what was hidden until now")
    seed: int = Field(description="seed of the episode, published with its end")
    number: int = Field(description="number of the episode under this seed")
    match: int | None = Field(None, description="number in its pack")
    steps: int = Field(description="number of steps")


class Failed(Payload):
    kind: str = Field(pattern="^(stopped|error|shutdown|interrupted)$", description="why it ended early")
    reason: str = Field(description="one sentence")
    frame: Frame | None = Field(description="complete; null: the episode never began")
    private: Private = Field(description="by seat: what was hidden until now")
    steps: int = Field(description="number of steps")
    seed: int | None = Field(None, description="seed of the episode")
    number: int | None = Field(None, description="number of the episode under this seed")
    match: int | None = Field(None, description="number in its pack")


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
            "episode_id": {"type": "string", "description": "the episode"},
            "seq": {"type": "integer", "minimum": 0, "description": "number of the event, from 0, without gaps"},
            "ts": {"type": "number", "description": "seconds since 1970"},
            "type": {"const": kind},
            "payload": payload,
        },
        "required": ["v", "episode_id", "seq", "ts", "type", "payload"],
        "additionalProperties": False,
    }
