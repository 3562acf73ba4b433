"""Many episodes between two players, summarised."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kibitz.core.bots import NO_HINTS, Bot, seated
from kibitz.core.chance import seed_key
from kibitz.core.errors import BadInput
from kibitz.core.game import SEATS, Game
from kibitz.core.play.custom import PlayerLike, as_player
from kibitz.core.play.episode import play_episode
from kibitz.core.play.player import BotPlayer, Player
from kibitz.core.play.resolve import HintChoice, Resolver, pinned, player_and_bot
from kibitz.core.statistics import finite, mean_ci95
from kibitz.core.system.interrupt import finishing
from kibitz.core.work.executor import Executor, Work
from kibitz.core.work.parts import game_spec, in_parts, spec_game
from kibitz.core.xla.jit import jit_batch
from kibitz.evaluate import parts
from kibitz.evaluate.host_games import host_games
from kibitz.evaluate.loop import match_program
from kibitz.evaluate.record import EvaluationRecord, KeptEpisode, ListeningPlayer, recorded
from kibitz.evaluate.tally import Tallies

CHUNK = 128  # episodes per compiled call: a smooth progress bar, and tables that stay in the processor's cache

Progress = Callable[[int], None]  # called with the number of episodes just finished


class Played(NamedTuple):
    """Results of many episodes, in their order."""

    returns: NDArray[np.float64]  # f64[episodes, 2]
    scores: dict[str, NDArray[np.float64]]  # f64[episodes, 2] each
    tallies: Tallies  # bots in compiled batches cost nothing and never fail
    interrupted: bool = False  # Ctrl-C came before the last episode


def play_bots(
    game: Game,
    settings: Any,
    bots: tuple[Bot, Bot],
    episodes: int,
    seed: int,
    progress: Progress,
    styles: bool = False,
    start: int = 0,
    keep: bool = False,
) -> Played:
    """Episodes from number `start` on between two bots, in compiled batches; identical to those of `play_episode`.

    With `styles`, the scores include which styles each seat showed. With `keep`, Ctrl-C keeps the batches that have
    ended.
    """
    program = _program(game, bots, styles)
    key = seed_key(seed)
    batches, interrupted = list[Played](), False
    try:
        for first in range(start, start + episodes, CHUNK):
            count = min(CHUNK, start + episodes - first)
            paid, score = program(settings, key, jnp.arange(first, first + CHUNK, dtype=jnp.int32))
            scores = {name: np.asarray(value, float)[:count] for name, value in score.items()}
            batches.append(Played(np.asarray(paid, float)[:count], scores, Tallies()))
            progress(count)
    except KeyboardInterrupt:
        if not keep or not batches:
            raise
        finishing()
        interrupted = True
    played: Played = parts.joined(batches)
    return played._replace(interrupted=interrupted)


def play_hosts(
    game: Game,
    settings: Any,
    players: Sequence[Player],
    episodes: int,
    seed: int,
    progress: Progress,
    record: EvaluationRecord | None = None,
    about: Mapping[str, Any] | None = None,
    start: int = 0,
) -> Played:
    """Episodes with at least one player on the host. Ctrl-C keeps those that have ended.

    Episodes that the record has are not played again.
    """
    returns, scores = [], []
    tallies, interrupted = Tallies(), False

    def play(number: int, seats: Sequence[ListeningPlayer], more: dict[str, Any]) -> KeptEpisode:
        episode = play_episode(game, settings, seats, seed=seed, number=number, about=about, **more)
        return KeptEpisode.of(number, episode, seats)

    try:
        with closing(host_games(range(start, start + episodes), players, play, tallies, record)) as ended:
            for kept in ended:
                returns.append(kept.returns)
                scores.append(kept.scores)
                progress(1)
    except KeyboardInterrupt:
        if not scores:
            raise
        finishing()
        interrupted = True
    stacked = {name: np.array([score[name] for score in scores], float) for name in scores[0]}
    return Played(np.array(returns[: len(scores)], float), stacked, tallies, interrupted)


@lru_cache(maxsize=32)
def _program(game: Game, bots: tuple[Bot, Bot], styles: bool) -> Any:
    return jit_batch(match_program(game, bots, styles))


class Side(NamedTuple):
    """A player of an evaluation, resolved once: a run that continues training would become another player."""

    name: str
    player: Player
    bot: Bot | None  # None: it only exists on the host
    hint: HintChoice | None = None
    pinned: str = ""  # the name under which another process finds it; empty: `name`

    @property
    def checkpoint(self) -> str | None:
        """The file behind a run's name: once the run has trained on, another policy plays under that name."""
        return None if self.pinned in ("", self.name) else self.pinned.rpartition("/")[2]

    @property
    def about(self) -> dict[str, Any]:
        """Its name, whose hints it hears and, if a model gives them, how many it has asked for."""
        counts: dict[str, Any] = getattr(self.player, "hint_counts", dict)()
        return {"player": self.name, "hints_from": getattr(self.bot or self.player, "hints_from", NO_HINTS)} | counts


def side_of(game: Game, name: str | Side | PlayerLike, hint: HintChoice | None = None) -> Side:
    """Raises BadInput before anything is played. `hint` says whether a policy hears the hints of its training."""
    if isinstance(name, Side):
        return name
    if not isinstance(name, str):
        found = as_player(game, name)
        if isinstance(found, Bot):
            return Side(found.name, BotPlayer(game, found), found, pinned=found.pinned)
        bot = found.bot if isinstance(found, BotPlayer) else None
        return Side(found.name, found, bot, pinned=getattr(bot or found, "pinned", ""))
    if name == "human":
        raise BadInput("evaluate cannot ask a person; use `kibitz play`, or name another player.")
    player, bot = player_and_bot(game, name, Resolver(hint=hint))
    side = Side(name, player, bot, hint, getattr(bot or player, "pinned", "") or pinned(game, name))
    if hint == "own" and side.about["hints_from"] == NO_HINTS:
        raise BadInput(f"{name} was not trained with hints, so it cannot hear its own; omit --hint own.")
    return side


def evaluate(
    game: Game,
    options: Any,
    player: str | Side | PlayerLike,
    opponent: str | Side | PlayerLike,
    episodes: int,
    seed: int = 0,
    progress: Progress = lambda count: None,
    styles: bool = False,
    out: Path | None = None,
    executor: Executor | None = None,
) -> dict[str, Any]:
    """How both players did, beside the reference player in the same seats; with `styles`, the styles they showed.

    `out` is a folder that keeps every episode with its questions and answers. If it has some already, the evaluation
    continues after them.
    """
    if episodes < 1:
        raise BadInput(f"episodes is {episodes}; it must be at least 1.")
    sides = (side_of(game, player), side_of(game, opponent))
    if styles:
        game.styles.names(game=game.name)
        if slow := [side.name for side in sides if side.bot is None]:
            raise BadInput(f"--styles needs players that can be compiled, which {slow[0]} is not; omit one of them.")
        if out is not None:
            raise BadInput("--styles cannot be combined with --out; evaluate twice.")
    parts.check_out(out, executor)
    with recorded(out, lambda: about_evaluation(game, options, sides, seed)) as record:
        found = _Evaluation(game, options, sides, episodes, seed, progress, styles, record, executor).result()
        if record:
            record.finish(found)
    return found


def about_evaluation(
    game: Game, options: Any, sides: tuple[Side, Side], seed: int, pack: str | None = None
) -> dict[str, Any]:
    """What an evaluation that continues another must have in common with it."""
    return {
        "game": game.name,
        "game_version": game.version,
        "players": [side.name for side in sides],
        "checkpoints": [side.checkpoint for side in sides],
        "hints_from": [side.about["hints_from"] for side in sides],
        "options": options.model_dump(mode="json"),
        "pack": pack,
        "seed": seed,
    }


@dataclass(frozen=True)
class _Evaluation:
    """What is played. `record` keeps the episodes, `executor` shares them among workers."""

    game: Game
    options: Any
    sides: tuple[Side, Side]
    episodes: int
    seed: int
    progress: Progress = lambda count: None
    styles: bool = False
    record: EvaluationRecord | None = None
    executor: Executor | None = None

    def result(self) -> dict[str, Any]:
        began = time.perf_counter()
        played = self.play()
        seconds = time.perf_counter() - began
        references, interrupted = self._references(played)
        one, other = (self.sides[seat].about | _summary(self.game, played, seat, references[seat]) for seat in SEATS)
        result: dict[str, Any] = {
            "game": self.game.name,
            "episodes": len(played.returns),
            "seed": self.seed,
            "seconds": round(seconds, 3),
            "episodes_per_s": round(len(played.returns) / seconds, 1),
            "interrupted": interrupted,
        }
        return result | one | {"opponent": other}

    def play(self) -> Played:
        if self.executor is None or not parts.can_share(self.executor, self.sides):
            return self.play_range(keep=True)
        chosen = {"sides": parts.found_as(self.sides), "seed": self.seed, "styles": self.styles}
        work = Work(_in_worker, _play_part, game_spec(self.game, self.options) | chosen)
        size = parts.size_of(self.executor, self.sides, self.episodes)
        played, interrupted = in_parts(self.executor, work, self.episodes, size, self.progress)
        joined: Played = parts.joined(played)
        return joined._replace(interrupted=interrupted)

    def play_range(self, start: int = 0, keep: bool = False) -> Played:
        """Episodes from number `start` on, in this process; with `keep`, after Ctrl-C those that have ended."""
        game, episodes, seed, progress = self.game, self.episodes, self.seed, self.progress
        one, other = (side.bot for side in self.sides)
        bots = {seat: side.bot for seat, side in enumerate(self.sides) if side.bot is not None}
        settings = seated(self.options.settings(), bots)
        if one is None or other is None or self.record is not None:
            about = {"task": "evaluation", "options": self.options.model_dump(mode="json")}
            players = [side.player for side in self.sides]
            return play_hosts(game, settings, players, episodes, seed, progress, self.record, about, start)
        return play_bots(game, settings, (one, other), episodes, seed, progress, self.styles, start, keep)

    def _references(self, played: Played) -> tuple[list[NDArray[np.float64] | None], bool]:
        """The reference player's returns in each seat of the same episodes, and whether Ctrl-C came before they ended.

        None where the other player is slow to ask, and after Ctrl-C.
        """
        found: list[NDArray[np.float64] | None] = []
        reference, interrupted = self.game.reference, played.interrupted
        for seat in SEATS:
            if self.sides[seat].name == reference:
                found.append(played.returns[:, seat])
            elif interrupted or self.sides[1 - seat].bot is None:
                found.append(None)
            else:
                ours = side_of(self.game, reference)
                instead = (ours, self.sides[1]) if seat == 0 else (self.sides[0], ours)
                again = replace(self, sides=instead, styles=False, record=None)._play_all()
                interrupted = again is None
                found.append(None if again is None else again.returns[:, seat])
        return found, interrupted

    def _play_all(self) -> Played | None:
        """All episodes; None after Ctrl-C."""
        try:
            played = self.play()
        except KeyboardInterrupt:
            finishing()
            return None
        return None if played.interrupted else played


def _in_worker(spec: dict[str, Any]) -> _Evaluation:
    game, options = spec_game(spec)
    one, other = spec["sides"]
    sides = side_of(game, *one), side_of(game, *other)
    return _Evaluation(game, options, sides, 0, spec["seed"], styles=spec["styles"])


def _play_part(evaluation: _Evaluation, part: dict[str, int], report: Callable[[Any], None]) -> Played:
    """An item of work."""
    return replace(evaluation, episodes=part["count"]).play_range(part["start"])


def runs_of(game: Game, player: str | Side, opponent: str | Side) -> int:
    """How many times the episodes are played, including those of the reference player."""
    one, other = side_of(game, player), side_of(game, opponent)
    return 1 + sum(
        side.name != game.reference and facing.bot is not None for side, facing in ((one, other), (other, one))
    )


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
    found: dict[str, Any] = finite(summary | played.tallies.seats[seat].as_dict())
    return found


def _share(part: float, whole: float) -> float | None:
    """None where the whole is a loss: 60 % of it would be better than all of it."""
    return part / whole if whole > 0 else None
