"""Episodes of `kibitz evaluate --out` with their true styles, for judges."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import jax
import numpy as np

from kibitz.core.bots import seated
from kibitz.core.chance import episode_luck, seed_key
from kibitz.core.errors import BadInput
from kibitz.core.game import SEATS, Game
from kibitz.core.play.episode import table_for
from kibitz.core.play.replay import Acts, replay
from kibitz.evaluate.judges.episodes import Labelled
from kibitz.evaluate.record import KeptEpisode, read_episodes
from kibitz.teach.records.seats import Evaluated, steps_of


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
    found = [_replayed(game, settings, kept) for kept in islice(read_episodes(folder), episodes)]
    if not found:
        raise BadInput(f"{folder} holds no finished episode; let `kibitz evaluate` finish one.")
    states, firsts, acts, returns, shown = zip(*found, strict=True)
    turns = np.array([[len(own) for own in pair] for pair in acts], np.int32)
    lines = np.zeros((len(found), len(SEATS), max(1, int(turns.max())), len(game.heads)), np.int16)
    for number, pair in enumerate(acts):
        for seat, own in enumerate(pair):
            lines[number, seat, : len(own)] = np.array(own, np.int16).reshape(-1, len(game.heads))
    state = jax.tree.map(lambda *leaves: np.stack(leaves), *states)
    truth = {name: np.array([one[name] for one in shown]) for name in game.styles.questions}
    returned = np.array(returns, np.float32)
    return game, Labelled(jax.device_get(settings), state, np.array(firsts), lines, turns, returned, truth)


def _replayed(game: Game, settings: Any, kept: KeptEpisode) -> tuple[Any, bool, Any, tuple[float, float], Any]:
    """The final state, whether seat 0 acted first, the acts of both seats, their returns, and seat 0's styles."""
    table, styles, last = table_for(game), game.styles, kept.events[-1]["payload"]
    steps, notes, final = steps_of(kept), styles.start(settings, 0), None

    def seen(number: int, state: Any, acts: Acts) -> None:
        nonlocal notes
        if acts[0] is not None:
            view, _ = table.observe(settings, state, 0)
            notes = styles.watch(settings, notes, view, tuple(np.int32(value) for value in acts[0]))

    def ended(state: Any) -> None:
        nonlocal final
        final = jax.device_get(state)

    luck = episode_luck(seed_key(last["seed"]), last["number"])
    returns = replay(game, settings, None, luck, steps, seen, ended)
    shown = {name: bool(value) for name, value in styles.shown(settings, notes, final, 0).items()}
    made = [[acts[seat] for acts in steps if acts[seat] is not None] for seat in SEATS]
    return final, steps[0][0] is not None, made, returns, shown
