"""A branch: a recorded episode, replayed up to a turn and continued by other players."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kibitz.core.errors import NotFound
from kibitz.core.play.events import Event
from kibitz.core.registry import import_jax
from kibitz.live.episodes.request import BranchRequest, EpisodeRequest
from kibitz.live.store.base import Row
from kibitz.live.store.sql import Store
from kibitz.live.store.stored_event import decode_event

if TYPE_CHECKING:
    from kibitz.core.play.player import Choice

DRAWN = ("seed", "number", "match")  # what an episode's chance comes from


class NotReplayable(Exception):
    """The record lacks something that a replay needs, or is of another version of the game."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"That record {problem}, so it cannot be replayed.")


@dataclass(frozen=True)
class BranchPoint:
    """Where a branch leaves its record."""

    episode_id: str
    turn: int
    script: tuple[tuple[Choice | None, Choice | None], ...]  # both seats' choices of the steps that are kept
    seed: int
    number: int = 0  # of the episode among those of its seed
    match: int | None = None  # of a pack

    @property
    def source(self) -> dict[str, Any]:
        return {"episode_id": self.episode_id, "turn": self.turn}


def read_branch(store: Store, row: Row, asked: BranchRequest) -> tuple[EpisodeRequest, BranchPoint]:
    """The request and the record that start the branch."""
    steps, drawn = _read(store, row)
    if asked.turn > len(steps):
        raise NotFound(f"Turn {asked.turn} is not in that episode; it has {len(steps)} steps.")
    return _branch(row, asked, steps[: asked.turn], drawn)


def read_whole(store: Store, row: Row) -> tuple[EpisodeRequest, BranchPoint]:
    """The request and the record that repeat the whole episode; the game's fallback bot stands in for both players."""
    import_jax()
    from kibitz.games import get_game

    stand_in = get_game(row.game).fallback
    if not isinstance(row.about.get("options"), dict):  # spares reading a record that may have megabytes
        raise NotReplayable("does not contain its options")
    steps, drawn = _read(store, row)
    return _branch(row, BranchRequest.model_construct(turn=len(steps), players=[stand_in] * 2), steps, drawn)


def _branch(
    row: Row, asked: BranchRequest, kept: list[tuple[Choice | None, Choice | None]], drawn: dict[str, int]
) -> tuple[EpisodeRequest, BranchPoint]:
    pack = row.about.get("eval_pack_id")
    if (None, None) in kept:
        raise NotReplayable("does not contain the acts of every step")
    if not isinstance(row.about.get("options"), dict):
        raise NotReplayable("does not contain its options")
    if "seed" not in drawn:
        raise NotReplayable("does not contain its seed")
    from kibitz.games import get_game

    options = get_game(row.game).options.read_recorded(row.about["options"], f"option of {row.game}")
    request = EpisodeRequest.read(
        game=row.game, players=asked.players, options=options.model_dump(mode="json"), eval_pack_id=pack,
        open=asked.open, pace=asked.pace, enable_tts=asked.enable_tts, adviser=asked.adviser,
    )  # fmt: skip
    point = BranchPoint(
        row.episode_id, asked.turn, tuple(kept), drawn["seed"], drawn.get("number", 0), drawn.get("match")
    )
    return request, point


def _read(store: Store, row: Row) -> tuple[list[tuple[Choice | None, Choice | None]], dict[str, int]]:
    """Both seats' choices at each step, and what the chance was drawn from."""
    import_jax()
    from kibitz.games import get_game

    current = get_game(row.game).version
    steps: list[tuple[Choice | None, Choice | None]] = []
    drawn = {key: value for key, value in row.secret.items() if key in DRAWN and value is not None}
    decisions: dict[int, Mapping[str, Any]] = {}  # of the current step, by seat
    try:
        for event in _events(store, row.episode_id):
            payload = event.payload
            if event.type == "decision":
                decisions[payload["seat"]] = payload
            elif event.type == "step":
                first, second = payload["acts"]
                steps.append((_choice(row, 0, first, decisions), _choice(row, 1, second, decisions)))
                decisions = {}
            else:
                if payload.get("version", current) != current:
                    raise NotReplayable(f"is of another version of {row.game} than the current {current}")
                drawn |= {key: int(payload[key]) for key in DRAWN if payload.get(key) is not None}
    except (KeyError, TypeError, ValueError, AttributeError):  # a foreign driver wrote the record
        raise NotReplayable("does not contain its steps in kibitz's format") from None
    return steps, drawn


def _events(store: Store, episode_id: str) -> Iterator[Event]:
    since = -1
    while bodies := store.events(episode_id, since):
        yield from map(decode_event, bodies)
        since += len(bodies)


def _choice(row: Row, seat: int, act: list[int] | None, decisions: Mapping[int, Mapping[str, Any]]) -> Choice | None:
    """The act of the step; its source and reason come from the seat's decision, if there is one."""
    from kibitz.core.play.player import Choice

    if act is None:
        return None
    numbers, made = tuple(map(int, act)), decisions.get(seat)
    if made is None:
        return Choice(numbers, row.players[seat])
    reason = made["private"].get(str(seat), {}).get("reason", "")
    why, kind = made["fallback"], made.get("failure", "")
    return Choice(numbers, made["source"], reason, made["latency"], made["usage"], why, failure=kind)
