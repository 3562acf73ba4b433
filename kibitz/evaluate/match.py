"""Many episodes between two players, summarised."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kibitz.core.bots import Bot, seated
from kibitz.core.chance import seed_key
from kibitz.core.errors import BadInput
from kibitz.core.game import SEATS, Game
from kibitz.core.play.episode import play_episode
from kibitz.core.play.player import BotPlayer, Player
from kibitz.core.play.resolve import bot_named
from kibitz.core.xla.jit import jit_batch
from kibitz.evaluate.loop import match_program
from kibitz.evaluate.statistics import mean_ci95
from kibitz.evaluate.tally import Tallies
from kibitz.players import player_named

CHUNK = 128  # episodes per compiled call: a smooth progress bar, and tables that stay in the processor's cache

Progress = Callable[[int], None]  # called with the number of episodes just finished


class Played(NamedTuple):
    """Results of many episodes, in their order."""

    returns: NDArray[np.float64]  # f64[episodes, 2]
    scores: dict[str, NDArray[np.float64]]  # f64[episodes, 2] each
    tallies: Tallies  # bots in compiled batches cost nothing and never fail
    interrupted: bool = False  # Ctrl-C came before the last episode


def play_bots(game: Game, settings: Any, bots: tuple[Bot, Bot], episodes: int, seed: int, progress: Progress) -> Played:
    """Episodes between two bots, in compiled batches; identical to those of `play_episode`."""
    program = _program(game, bots)
    key = seed_key(seed)
    returns, scores = [], []
    for first in range(0, episodes, CHUNK):
        count = min(CHUNK, episodes - first)
        paid, score = program(settings, key, jnp.arange(first, first + CHUNK, dtype=jnp.int32))
        returns.append(np.asarray(paid, float)[:count])
        scores.append({name: np.asarray(value, float)[:count] for name, value in score.items()})
        progress(count)
    stacked = {name: np.concatenate([score[name] for score in scores]) for name in scores[0]}
    return Played(np.concatenate(returns), stacked, Tallies())


def play_hosts(
    game: Game, settings: Any, players: Sequence[Player], episodes: int, seed: int, progress: Progress
) -> Played:
    """Episodes with at least one player on the host, one after the other. Ctrl-C keeps those that have ended."""
    returns, scores = [], []
    tallies, interrupted = Tallies(), False
    try:
        for number in range(episodes):
            episode = play_episode(game, settings, players, seed=seed, number=number, observers=(tallies.observe,))
            returns.append(episode.returns)
            scores.append(episode.scores)
            progress(1)
    except KeyboardInterrupt:
        if not scores:
            raise
        interrupted = True
    stacked = {name: np.array([score[name] for score in scores], float) for name in scores[0]}
    return Played(np.array(returns[: len(scores)], float), stacked, tallies, interrupted)


@lru_cache(maxsize=32)
def _program(game: Game, bots: tuple[Bot, Bot]) -> Any:
    return jit_batch(match_program(game, bots))


def evaluate(
    game: Game,
    options: Any,
    player: str,
    opponent: str,
    episodes: int,
    seed: int = 0,
    progress: Progress = lambda count: None,
) -> dict[str, Any]:
    """How both players did, beside the reference player in the same seats."""
    if episodes < 1:
        raise BadInput(f"episodes is {episodes}; it must be at least 1.")
    names = (player, opponent)
    check_players(game, names)
    began = time.perf_counter()
    # resolved once: a run that continues training would become another player
    bots = {name: bot_named(game, name) for name in (*names, game.reference)}
    played = _play(game, options, names, bots, episodes, seed, progress)
    seconds = time.perf_counter() - began
    sides = []
    for seat in SEATS:
        reference = _reference(game, options, names, bots, seat, episodes, seed, played, progress)
        sides.append(_summary(game, played, seat, reference))
    result: dict[str, Any] = {
        "game": game.name,
        "player": player,
        "episodes": len(played.returns),
        "seed": seed,
        "seconds": round(seconds, 3),
        "episodes_per_s": round(len(played.returns) / seconds, 1),
        "interrupted": played.interrupted,
    }
    return result | sides[0] | {"opponent": {"player": opponent} | sides[1]}


def check_players(game: Game, names: tuple[str, str]) -> None:
    """Raises BadInput before anything is played."""
    for name in names:
        if name == "human":
            raise BadInput("evaluate cannot ask a person; use `kibitz play`, or name another player.")
        player_named(game, name)


def runs_of(game: Game, player: str, opponent: str) -> int:
    """How many times the episodes are played, including those of the reference player."""
    hosts = [bot_named(game, name) is None for name in (player, opponent)]
    return 1 + (player != game.reference and not hosts[1]) + (opponent != game.reference and not hosts[0])


def _play(
    game: Game,
    options: Any,
    names: tuple[str, str],
    known: Mapping[str, Bot | None],
    episodes: int,
    seed: int,
    progress: Progress,
) -> Played:
    bots = [known[name] for name in names]
    settings = seated(options.settings(), {seat: bot for seat, bot in enumerate(bots) if bot is not None})
    if bots[0] is None or bots[1] is None:
        players = [
            player_named(game, name) if bot is None else BotPlayer(game, bot)
            for name, bot in zip(names, bots, strict=True)
        ]
        return play_hosts(game, settings, players, episodes, seed, progress)
    return play_bots(game, settings, (bots[0], bots[1]), episodes, seed, progress)


def _reference(
    game: Game,
    options: Any,
    names: tuple[str, str],
    bots: Mapping[str, Bot | None],
    seat: int,
    episodes: int,
    seed: int,
    played: Played,
    progress: Progress,
) -> NDArray[np.float64] | None:
    """The reference player's returns in this seat of the same episodes; None if the other player is slow to ask."""
    if names[seat] == game.reference:
        return played.returns[:, seat]
    if bots[names[1 - seat]] is None or played.interrupted:
        return None
    instead = (game.reference, names[1]) if seat == 0 else (names[0], game.reference)
    return _play(game, options, instead, bots, episodes, seed, progress).returns[:, seat]


def _summary(game: Game, played: Played, seat: int, reference: NDArray[np.float64] | None) -> dict[str, Any]:
    returns, ceilings = played.returns[:, seat], played.scores.get("ceiling")
    ceiling = None if ceilings is None else ceilings[:, seat]
    mean, interval = mean_ci95(returns)
    summary: dict[str, Any] = {
        "return_mean": mean,
        "return_ci95": list(interval),
        "share_of_ceiling": None if ceiling is None else _share(mean, float(ceiling.mean())),
        f"share_of_{game.reference}": None if reference is None else _share(mean, float(reference.mean())),
        "ceiling_gap": None if ceiling is None else float((ceiling - returns).mean()),
    }
    for name, values in played.scores.items():
        if name not in ("ceiling", "payoff"):
            summary[name] = mean_ci95(values[:, seat])[0]
    return {name: nan_to_none(value) for name, value in (summary | played.tallies.seats[seat].as_dict()).items()}


def _share(part: float, whole: float) -> float | None:
    """None where the whole is a loss: 60 % of it would be better than all of it."""
    return part / whole if whole > 0 else None


def nan_to_none(value: Any) -> Any:
    """NaN as None, because JSON has no NaN."""
    if isinstance(value, list):
        return [nan_to_none(x) for x in value]
    return None if isinstance(value, float) and math.isnan(value) else value
