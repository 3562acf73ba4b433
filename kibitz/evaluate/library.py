"""Evaluation and single episodes from Python: games by name, and players as names, objects or functions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kibitz.core.bots import Bot, seated
from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.play import episode, resolve
from kibitz.core.play.custom import PlayerLike, as_player
from kibitz.core.play.episode import Episode
from kibitz.core.play.player import BotPlayer, Player
from kibitz.core.play.resolve import HintChoice
from kibitz.evaluate import match, packs
from kibitz.evaluate.match import Progress, side_of
from kibitz.games import DEFAULT_GAME, get_game, get_pack

GameLike = str | Game


def evaluate(
    player: str | PlayerLike,
    opponent: str | PlayerLike | None = None,
    *,
    game: GameLike = DEFAULT_GAME,
    episodes: int | None = None,
    pack: str | None = None,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
    hint: HintChoice | None = None,
    styles: bool = False,
    out: str | Path | None = None,
    progress: Progress = lambda count: None,
) -> dict[str, Any]:
    """Plays many episodes and returns what `kibitz evaluate --json` prints.

    A player is a name, a `Bot`, a function of the turn, or an object with `begin` and `choose`. `episodes` is 1,000, or
    the whole pack, unless it is given. Functions are asked one episode at a time; names of bots and policies are
    compiled and play thousands of episodes a second. `out` keeps the episodes.
    """
    record, chosen = _read(game, options)
    one = side_of(record, player, hint)
    other = side_of(record, opponent if opponent is not None else record.default_players[1])
    folder = None if out is None else Path(out)
    if pack is None:
        return match.evaluate(record, chosen, one, other, episodes or 1000, seed, progress, styles, folder)
    if options or styles:
        raise BadInput("pack cannot be combined with options or styles.")
    return packs.evaluate_pack(record, get_pack(record.name, pack), one, other, episodes, seed, progress, folder)


def play_episode(
    player: str | PlayerLike,
    opponent: str | PlayerLike | None = None,
    *,
    game: GameLike = DEFAULT_GAME,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
    number: int = 0,
) -> Episode:
    """Plays one episode: the one that an evaluation of this seed plays under this number.

    The result has `events`, `returns`, `scores` and `steps`. An act that is illegal, or a function that raises, costs
    the turn: the game's fallback bot plays it, and the decision event says why.
    """
    record, chosen = _read(game, options)
    names = (player, opponent if opponent is not None else record.default_players[1])
    players = [player_named(name, record) for name in names]
    bots = {seat: one.bot for seat, one in enumerate(players) if isinstance(one, BotPlayer)}
    return episode.play_episode(record, seated(chosen.settings(), bots), players, seed=seed, number=number)


def player_named(name: str | PlayerLike, game: GameLike = DEFAULT_GAME) -> Player:
    """The player of a name (`bayes`, `policy:RUN`, `llm:PRESET`, `module:NAME`) or of a function, ready to be asked."""
    record = game if isinstance(game, Game) else get_game(game)
    found = resolve.ANY_PATH.find(record, name) if isinstance(name, str) else as_player(record, name)
    return BotPlayer(record, found) if isinstance(found, Bot) else found


def load_policy(run: str | Path, game: GameLike = DEFAULT_GAME, *, hint: HintChoice | None = None) -> Player:
    """The policy of a run's folder or of a checkpoint file; `RUN#2` is the third learner of a run with several seeds.

    `hint` says whether a policy that was trained with hints hears them, as in `evaluate`.
    """
    record = game if isinstance(game, Game) else get_game(game)
    found = resolve.Resolver(hint=hint).find(record, f"policy:{run}")
    return BotPlayer(record, found) if isinstance(found, Bot) else found


def _read(game: GameLike, options: Mapping[str, Any] | None) -> tuple[Game, Any]:
    """The game built for these options, and the options, validated."""
    base = game if isinstance(game, Game) else get_game(game)
    chosen = base.options.read(dict(options or {}), f"option of {base.name}")
    return (base if isinstance(game, Game) and not options else get_game(base.name, chosen)), chosen
