"""Episodes of `kibitz evaluate --out`, or of a server's store, with their true styles, for judges."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jax import Array

from kibitz.core.bots import seated
from kibitz.core.chance import episode_luck, seed_key
from kibitz.core.errors import BadInput
from kibitz.core.game import SEATS, Game
from kibitz.core.play.episode import table_for
from kibitz.core.play.events import Event
from kibitz.core.play.replay import Act, Acts, replay
from kibitz.core.system.paths import named
from kibitz.evaluate.judges.episodes import Labelled
from kibitz.evaluate.record import KeptEpisode, read_episodes
from kibitz.teach.examples.stored import each_ended, recorded
from kibitz.teach.records.seats import Evaluated, steps_of

if TYPE_CHECKING:
    from kibitz.live.episodes.prepare import PreparedEpisode


class _Replayed(NamedTuple):
    state: Any  # the final one
    first: bool  # seat 0 acted first
    acts: Sequence[Sequence[Act]]  # of both seats
    returns: tuple[float, float]
    shown: dict[str, bool]  # by seat 0


def labelled_folder(folder: Path, episodes: int) -> tuple[Game, Labelled]:
    """The game and the first episodes of an evaluation; the evaluated player (seat 0) is judged."""
    about = Evaluated.read(folder)
    game = about.game
    game.styles.names(game=game.name)
    if about.pack is not None:
        raise BadInput(f"{folder} holds matches of a pack, whose settings differ; evaluate without --pack.")
    if about.version != game.version:
        raise BadInput(f"{folder} is of another version of {game.name}; evaluate again.")
    settings = seated(about.options.settings(), about.bots)
    found = [_kept(game, settings, kept) for kept in islice(read_episodes(folder), episodes)]
    if not found:
        raise BadInput(f"{folder} holds no finished episode; let `kibitz evaluate` finish one.")
    return game, _labelled(game, settings, found)


def labelled_store(source: str, game: Game, episodes: int) -> tuple[Game, Labelled, int]:
    """The first ended episodes with the options of the first of them, and how many others were skipped."""
    game.styles.names(game=game.name)
    skipped: list[str] = []
    played: PreparedEpisode | None = None

    def read(events: list[Event], names: list[str]) -> _Replayed:
        nonlocal played
        whole = recorded(game.name, events, names)
        if whole.state is not None or (played is not None and whole.options != played.options):
            raise BadInput("It was played with other options, or from a pack.")
        assert whole.branch is not None
        luck = episode_luck(seed_key(whole.seed), whole.number)
        steps = [[None if choice is None else choice.act for choice in choices] for choices in whole.branch.script]
        found = _replayed(whole.game, whole.settings, luck, steps)
        played = played or whole
        return found

    found = list(islice(each_ended(source, game.name, read, skipped.append), episodes))
    if played is None:
        reason = f" ({skipped[0]})" if skipped else ""
        raise BadInput(f"The store holds no ended episode of {game.name} that can be replayed{reason}; play one.")
    return played.game, _labelled(played.game, played.settings, found), len(skipped)


def is_store(place: str) -> bool:
    """Whether this is a server's store rather than a folder."""
    return place.startswith(("postgresql://", "postgres://", "sqlite:///")) or named(place).is_file()


def _labelled(game: Game, settings: Any, found: Sequence[_Replayed]) -> Labelled:
    states, firsts, acts, returns, shown = zip(*found, strict=True)
    turns = np.array([[len(own) for own in pair] for pair in acts], np.int32)
    lines = np.zeros((len(found), len(SEATS), max(1, int(turns.max())), len(game.heads)), np.int16)
    for number, pair in enumerate(acts):
        for seat, own in enumerate(pair):
            lines[number, seat, : len(own)] = np.array(own, np.int16).reshape(-1, len(game.heads))
    state = jax.tree.map(lambda *leaves: np.stack(leaves), *states)
    truth = {name: np.array([one[name] for one in shown]) for name in game.styles.questions}
    returned = np.array(returns, np.float32)
    return Labelled(jax.device_get(settings), state, np.array(firsts), lines, turns, returned, truth)


def _kept(game: Game, settings: Any, kept: KeptEpisode) -> _Replayed:
    last = kept.events[-1]["payload"]
    return _replayed(game, settings, episode_luck(seed_key(last["seed"]), last["number"]), steps_of(kept))


def _replayed(game: Game, settings: Any, luck: Array, steps: Sequence[Acts]) -> _Replayed:
    table, styles = table_for(game), game.styles
    notes, final = styles.start(settings, 0), None

    def seen(number: int, state: Any, acts: Acts) -> None:
        nonlocal notes
        if acts[0] is not None:
            view, _ = table.observe(settings, state, 0)
            notes = styles.watch(settings, notes, view, tuple(np.int32(value) for value in acts[0]))

    def ended(state: Any) -> None:
        nonlocal final
        final = jax.device_get(state)

    returns = replay(game, settings, None, luck, steps, seen, ended)
    shown = {name: bool(value) for name, value in styles.shown(settings, notes, final, 0).items()}
    made = [[act for acts in steps if (act := acts[seat]) is not None] for seat in SEATS]
    return _Replayed(final, steps[0][0] is not None, made, returns, shown)
