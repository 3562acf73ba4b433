"""What each seat did in recorded episodes: those of `kibitz evaluate --out`, or of a live server's store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kibitz.advice.ask import Position
from kibitz.core.bots import Bot, seated
from kibitz.core.chance import episode_luck, seed_key
from kibitz.core.errors import BadInput
from kibitz.core.game import SEATS, Game
from kibitz.core.play.episode import table_for
from kibitz.core.play.replay import Acts, replay
from kibitz.evaluate.record import AskedQuestion, KeptEpisode, read_about, read_episodes
from kibitz.games import get_game, get_pack
from kibitz.teach.examples.stored import episodes


@dataclass(frozen=True)
class RecordedTurn:
    act: tuple[int, ...]
    decision: Mapping[str, Any] = field(default_factory=dict)  # the event's payload, where the source has it
    position: Position | None = None
    asked: AskedQuestion | None = None  # the question to a model, where the source keeps it


@dataclass(frozen=True)
class SeatRecord:
    """One seat of one episode."""

    game: Game
    episode_id: str
    seat: int
    players: tuple[str, str]
    returns: tuple[float, float]
    turns: Sequence[RecordedTurn]

    @property
    def paid(self) -> float:
        return self.returns[self.seat]


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation's folder says about all of its episodes."""

    game: Game
    version: int | None  # of the game, when it was played
    options: Any
    pack: str | None
    players: tuple[str, str]

    @staticmethod
    def read(folder: Path) -> Evaluated:
        about = read_about(folder)
        try:
            game = get_game(about["game"])
            options = game.options.read_recorded(about["options"], f"option of {game.name}")
            game, names = get_game(game.name, options), about["players"]
            players = (str(names[0]), str(names[1]))
            return Evaluated(game, about.get("game_version"), options, about["pack"], players)
        except (KeyError, TypeError, IndexError):
            raise BadInput(f"{folder} holds no evaluation that this version can read; evaluate again.") from None

    @property
    def bots(self) -> dict[int, Bot]:
        """By seat; other players are missing."""
        return {seat: self.game.bots[name] for seat, name in enumerate(self.players) if name in self.game.bots}


def seats_of_folder(folder: Path, positions: bool) -> Iterator[SeatRecord]:
    """Both seats of each episode of an evaluation; `positions` also replays what the seats saw."""
    about = Evaluated.read(folder)
    game, players = about.game, about.players
    if positions and about.version != game.version:
        raise BadInput(
            f"{folder} is of another version of {game.name}, so it can only be exported as jsonl or parquet."
        )
    matches = get_pack(game.name, about.pack) if about.pack is not None else None
    for kept in read_episodes(folder):
        seen = _positions(game, matches, about.bots, kept) if positions else {}
        asked = {(one.turn, one.seat): one for one in kept.asked}
        for seat in SEATS:
            turns = [
                RecordedTurn(tuple(made["act"]), made, seen.get((made["turn"], seat)), asked.get((made["turn"], seat)))
                for made in kept.decisions
                if made["seat"] == seat
            ]
            yield SeatRecord(game, kept.events[0]["episode_id"], seat, players, kept.returns, turns)


def steps_of(kept: KeptEpisode) -> list[Acts]:
    """What both seats did in each step."""
    return [
        tuple(None if act is None else tuple(act) for act in event["payload"]["acts"])
        for event in kept.events
        if event["type"] == "step"
    ]


def _positions(game: Game, pack: Any, bots: Mapping[int, Bot], kept: KeptEpisode) -> dict[tuple[int, int], Position]:
    """What each seat saw, by turn and seat."""
    first, last = kept.events[0]["payload"], kept.events[-1]["payload"]
    options = game.options.read_recorded(first["about"]["options"])  # a pack's may have other defaults today
    steps = steps_of(kept)
    scenario = None if pack is None else pack.scenario(last["match"])
    # the reference has to be able to say what it would have done
    experts = dict.fromkeys(SEATS, game.bot(game.reference))
    settings = seated(options.settings(), bots, experts)
    found: dict[tuple[int, int], Position] = {}
    history: list[Mapping[str, Any]] = []
    table = table_for(game)

    def seen(number: int, state: Any, acts: Acts) -> None:
        for seat, act in enumerate(acts):
            if act is not None:
                view, masks = table.observe(settings, state, seat)
                found[number, seat] = Position(settings, view, masks, list(history))
        history.extend({"seat": seat, "act": act} for seat, act in enumerate(acts) if act is not None)

    luck = episode_luck(seed_key(last["seed"]), last["number"])
    replay(game, settings, None if scenario is None else scenario.state, luck, steps, seen)
    return found


def seats_of_store(source: str, name: str) -> Iterator[SeatRecord]:
    """Both seats of each ended episode of a game, without positions."""
    game = get_game(name)
    for events in episodes(source, name):
        first, last = events[0].payload, events[-1].payload
        names = first.get("players", ())
        if events[-1].type != "episode.ended" or first.get("game") != name or len(names) != len(SEATS):
            continue
        decisions = [event.payload for event in events if event.type == "decision"]
        earned = (float(last["returns"][0]), float(last["returns"][1]))
        for seat in SEATS:
            turns = [RecordedTurn(tuple(made["act"]), made) for made in decisions if made.get("seat") == seat]
            yield SeatRecord(game, events[0].episode_id, seat, (str(names[0]), str(names[1])), earned, turns)
