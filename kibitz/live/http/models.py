"""Bodies of the cockpit's routes, beside `EpisodeRequest` and `BranchRequest`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from kibitz.live.bodies import Problem, Strict

EpisodeId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]


class ConflictProblem(Problem):
    current: dict[str, Any] | None = Field(None, description="the running episode that blocks the request")


class GapProblem(Problem):
    expected: int | None = Field(None, description="seq of the next event, if an event is missing")


class SeatLink(BaseModel):
    seat: int
    token: str = Field(description="secret of this seat: its holder sees the seat's private values and plays it")
    url: str = Field(description="the page of this seat, with the token behind #, which browsers do not send")


class StartAnswer(BaseModel):
    episode_id: str
    game: str
    players: list[str]
    url: str
    note: str | None = Field(None, description="how the episode differs from the request, if it does")
    seats: list[SeatLink] = Field(description="one for each person")
    seat_token: str | None = Field(None, description="the token of the first of `seats`")


class StopRequest(Strict):
    episode_id: EpisodeId | None = Field(None, description="omitted: the newest episode")


class StopAnswer(BaseModel):
    stopped: str


ONE_OF_TWO: dict[str, JsonValue] = {
    "oneOf": [
        {"required": ["act"], "properties": {"act": {"type": "array"}, "text": {"type": "null"}}},
        {"required": ["text"], "properties": {"text": {"type": "string"}, "act": {"type": "null"}}},
    ]
}


class ActRequest(Strict):
    model_config = ConfigDict(json_schema_extra=ONE_OF_TWO)

    seat_token: str | None = Field(None, max_length=100)
    act: list[Annotated[int, Field(ge=-(2**31), lt=2**31)]] | None = Field(None, min_length=1, max_length=32)
    text: str | None = Field(None, min_length=1, max_length=200)
    turn: int | None = Field(None, ge=0, lt=2**31, description="the turn the act is for; it is refused in any other")


class ActAnswer(BaseModel):
    accepted: str = Field(description="the act in words")


class OutlineInfo(BaseModel):
    """An episode in a line. It contains only what every watcher may see."""

    sides: list[str] | None = Field(description="names of the sides, where they have names beside their players'")
    score: list[str] | None = Field(description="by seat, as people write it")
    levels: list[float] = Field(description="seat 0's standing after each step, from 0 to 1, thinned out")
    level_name: str = Field(description="what the levels are")
    turns: int
    watchers: int = Field(description="that watch the running episode on this server")


class EpisodeInfo(BaseModel):
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
    origin: str = Field(description="played by a `server`, by a `driver` elsewhere, or loaded by an `import`")
    verified: bool = Field(
        description="played by a server, or confirmed by replay: counts on the leaderboard, unless it is a branch"
    )
    outline: OutlineInfo | None = Field(None, description="with `outline=true`")


class EpisodePage(BaseModel):
    episodes: list[EpisodeInfo]
    next: str | None


class EpisodeSnapshot(EpisodeInfo):
    frame: dict[str, Any] | None = Field(description="the whole frame after event `last_seq`")
    about: dict[str, Any]
    cast: dict[str, Any] = Field(description="names and other facts that stay the same")


class EventsAnswer(BaseModel):
    next: int = Field(description="seq that the store expects next")
    added: int
    key: str | None = Field(None, description="the new episode's key, if the request sent none; later requests need it")


class LoadAnswer(BaseModel):
    episode_id: str
    events: int
    verified: bool = Field(description="whether a replay confirmed the result")


class Envelope(BaseModel):
    """One event as a driver sends it; the store keeps its payload unchanged."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    v: int = Field(ge=1, le=1)
    episode_id: EpisodeId
    seq: int = Field(ge=0, lt=1_000_000)
    ts: float
    type: str
    payload: dict[str, Any]


class TournamentRecord(BaseModel):
    """Games of one player, against all others or one of them. Reads files that anyone may have written."""

    model_config = ConfigDict(allow_inf_nan=False)

    games: int = Field(ge=0)
    win_share: float | None = Field(description="a tie counts half")
    win_share_ci95: tuple[float | None, float | None]
    return_mean: float | None


class TournamentPlayer(TournamentRecord):
    name: str = Field(max_length=200)
    rating: float | None = Field(description="on Elo's scale; null if the player is not rated")
    rating_ci95: tuple[float | None, float | None] | None
    rated: bool = Field(description="false: the fallback mostly played for it")
    illegal_share: float
    fallback_share: float
    tokens: int
    money: float
    seconds: float


class Tournament(BaseModel):
    game: str = Field(max_length=64)
    episodes: int = Field(description="games of every pairing")
    seed: int
    pack: str | None = Field(None, max_length=200, description="the scenarios, if they were fixed ones")
    unfinished: str = Field(max_length=500, description="why games are missing")
    players: list[TournamentPlayer] = Field(max_length=64, description="best first")
    matrix: dict[str, dict[str, TournamentRecord]] = Field(description="by player and opponent")


class ListedTournament(Tournament):
    name: str = Field(description="its folder")
    changed: float = Field(description="seconds since 1970")


class TournamentList(BaseModel):
    tournaments: list[ListedTournament] = Field(description="newest first")


class ReplayedSeat(BaseModel):
    returns: tuple[float, float] | None = Field(description="what both seats get with the reference in this one")
    why: str = Field(description="why there are no returns; empty if there are")


class ReferenceReplay(BaseModel):
    reference: str = Field(description="the game's reference player")
    seats: list[ReplayedSeat] = Field(min_length=2, max_length=2)


class OpponentRecord(BaseModel):
    game: str
    opponent: str
    episodes: int = Field(description="that count: finished, verified, and not mostly played by the fallback")
    mean_return: float | None
    wins: int | None = Field(description="episodes with a higher return than the opponent's; null: no game is won")
    draws: int | None
    fallback_episodes: int


class PlayerRating(TournamentPlayer):
    tournament: str = Field(description="its folder")
    game: str
    place: int
    changed: float = Field(description="seconds since 1970")


class PlayerPage(BaseModel):
    name: str
    kind: str = Field(description="bot, human, policy, llm, ...; empty: not known here")
    why: str = Field(description="why it cannot play here; empty if it can")
    about: str = Field(description="the model or run behind the name")
    opponents: list[OpponentRecord]
    ratings: list[PlayerRating] = Field(description="in the newest tournaments")
    run: dict[str, Any] | None = Field(description="a policy's training run with its learning curve")
