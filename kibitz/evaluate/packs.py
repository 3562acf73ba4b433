"""How well a player does on a pack: every scenario twice with the sides swapped, a pair being one observation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from kibitz.core.bots import Bot, seated
from kibitz.core.chance import episode_luck, seed_key
from kibitz.core.errors import BadInput
from kibitz.core.game import SEATS, Game
from kibitz.core.play.episode import play_episode, table_for
from kibitz.core.play.packs import Pack, Regret, Scenario
from kibitz.core.statistics import finite, mean_ci95, win_share_ci95
from kibitz.core.system.interrupt import finishing
from kibitz.core.work.executor import Executor, Work
from kibitz.core.work.parts import game_spec, in_parts, spec_game
from kibitz.core.xla.jit import jit_batch
from kibitz.evaluate import parts
from kibitz.evaluate.host_games import host_games
from kibitz.evaluate.loop import pack_program
from kibitz.evaluate.match import CHUNK, Progress, Side, about_evaluation, side_of
from kibitz.evaluate.record import EvaluationRecord, KeptEpisode, ListeningPlayer, recorded
from kibitz.evaluate.tally import Tallies
from kibitz.games import get_pack

Floats = NDArray[np.float64]


class Results(NamedTuple):
    """One row per match, in the pack's order; f64[matches, 2] each."""

    returns: Floats
    scores: dict[str, Floats]
    lost: Floats  # regret, by the pack's judge
    turns: Floats
    tallies: Tallies  # bots in compiled batches cost nothing and never fail
    interrupted: bool = False  # Ctrl-C came before the last match

    def first(self, count: int) -> Results:
        """The first matches of an interrupted evaluation; the tallies also cover the last, unfinished one."""
        scores = {name: values[:count] for name, values in self.scores.items()}
        return Results(self.returns[:count], scores, self.lost[:count], self.turns[:count], self.tallies, True)


def evaluate_pack(
    game: Game,
    pack: Pack,
    player: str | Side,
    opponent: str | Side,
    episodes: int | None = None,
    seed: int = 0,
    progress: Progress = lambda count: None,
    out: Path | None = None,
    executor: Executor | None = None,
) -> dict[str, Any]:
    """How both players did.

    Plays `episodes` matches of the pack, by default all of them. Matches beyond the pack's number repeat
    it with new luck; another `seed` has new luck too. `out` keeps the matches, as in `match.evaluate`.
    """
    count = pack.matches if episodes is None else episodes
    if count < 2 or count % 2:
        raise BadInput(
            f"episodes is {count}; with a pack it must be even, because every scenario is played from both sides."
        )
    sides = (side_of(game, player), side_of(game, opponent))
    parts.check_out(out, executor)
    with recorded(out, lambda: about_evaluation(game, game.default_options, sides, seed, pack.name)) as record:
        began = time.perf_counter()
        if executor is None or not parts.can_share(executor, sides):
            results = play_range(game, pack, sides, count, seed, progress, record, keep=True)
        else:
            chosen = {"sides": parts.found_as(sides), "pack": pack.name, "seed": seed}
            work = Work(_range_of, _play_part, game_spec(game) | chosen)
            played, interrupted = in_parts(executor, work, count, parts.size_of(executor, sides, count), progress)
            results = parts.joined(played)._replace(interrupted=interrupted)
        seconds, count = time.perf_counter() - began, len(results.returns)
        one, other = (sides[seat].about | _summary(results, seat, pack.regret) for seat in SEATS)
        found = {
            "game": game.name,
            "pack": pack.name,
            "episodes": count,
            "pairs": count // 2,
            "seed": seed,
            "seconds": round(seconds, 3),
            "episodes_per_s": round(count / seconds, 1),
            "interrupted": results.interrupted,
            **one,
            "opponent": other,
        }
        if record:
            record.finish(found)
    return found


def play_range(
    game: Game,
    pack: Pack,
    sides: tuple[Side, Side],
    count: int,
    seed: int,
    progress: Progress,
    record: EvaluationRecord | None = None,
    start: int = 0,
    keep: bool = False,
) -> Results:
    """Matches from number `start` on, in this process; with `keep`, after Ctrl-C the pairs that have ended."""
    one, other = (side.bot for side in sides)
    if one is None or other is None or record is not None:
        return play_hosts(game, pack, sides, count, seed, progress, record, start)
    return play_bots(game, pack, (one, other), count, seed, progress, start, keep)


def _range_of(spec: dict[str, Any]) -> Callable[..., Results]:
    """In a worker: plays some of the matches."""
    game, _ = spec_game(spec)
    one, other = spec["sides"]
    sides = (side_of(game, *one), side_of(game, *other))
    return partial(play_range, game, get_pack(game.name, spec["pack"]), sides, seed=spec["seed"])


def _play_part(play: Callable[..., Results], part: dict[str, int], report: Callable[[Any], None]) -> Results:
    """An item of work."""
    return play(count=part["count"], progress=lambda count: None, start=part["start"])


def play_bots(
    game: Game,
    pack: Pack,
    bots: tuple[Bot, Bot],
    count: int,
    seed: int,
    progress: Progress,
    start: int = 0,
    keep: bool = False,
) -> Results:
    """Compiled batches, one group for each set of options; identical to the matches of `play_hosts`.

    With `keep`, Ctrl-C keeps the pairs that have ended, wherever they are in the pack.
    """
    numbers, rows, interrupted = list(range(start, start + count)), dict[int, tuple[Any, ...]](), False
    try:
        for ended in _batches(game, pack, bots, numbers, seed):
            rows |= ended
            progress(len(ended))
    except KeyboardInterrupt:
        numbers = [i for i in numbers if i in rows and i ^ 1 in rows]
        if not keep or not numbers:
            raise
        finishing()
        interrupted = True
    returns, scores, steps, lost = zip(*(rows[i] for i in numbers), strict=True)
    return Results(
        returns=np.array(returns, float),
        scores={name: np.array([score[name] for score in scores], float) for name in scores[0]},
        lost=np.array(lost, float),
        turns=np.repeat(np.array(steps, float)[:, None], 2, axis=1),
        tallies=Tallies(),
        interrupted=interrupted,
    )


def _batches(
    game: Game, pack: Pack, bots: tuple[Bot, Bot], numbers: Sequence[int], seed: int
) -> Iterator[dict[int, tuple[Any, ...]]]:
    """What `pack_program` returns for each match, by its number, a batch at a time."""
    program = _program(game, bots, pack.regret)
    matches = {at: pack.scenario(at) for at in sorted({i % pack.matches for i in numbers})}
    groups: dict[Any, list[int]] = {}
    for i in numbers:
        groups.setdefault(matches[i % pack.matches].options, []).append(i)
    for options, members in groups.items():
        settings = seated(matches[members[0] % pack.matches].settings, dict(enumerate(bots)))
        distinct = sorted({i % pack.matches for i in members})
        place = {at: row for row, at in enumerate(distinct)}
        firsts = jax.tree.map(lambda *x: np.stack(x), *(matches[at].state for at in distinct))
        tables = pack.regret.tables(options) if pack.regret else None
        for first in range(0, len(members), CHUNK):
            part = members[first : first + CHUNK]
            full = part + [part[-1]] * (CHUNK - len(part))  # one shape, so one program
            at = np.array([place[i % pack.matches] for i in full])
            drawn = [luck_of(pack, i, seed) for i in full]
            seeds = np.array([key for key, _ in drawn], np.uint64)
            keys = np.stack([seeds >> 32, seeds & 0xFFFFFFFF], axis=1).astype(np.uint32)  # as seed_key has it
            played = np.array([number for _, number in drawn], np.int32)
            states = jax.tree.map(lambda x, at=at: x[at], firsts)
            ended = jax.device_get(program(settings, tables, keys, played, np.array(full) % 2 == 1, states))
            yield {i: tuple(jax.tree.map(lambda x, row=row: x[row], ended)) for row, i in enumerate(part)}


def play_hosts(
    game: Game,
    pack: Pack,
    sides: tuple[Side, Side],
    count: int,
    seed: int,
    progress: Progress,
    record: EvaluationRecord | None = None,
    start: int = 0,
) -> Results:
    """Matches with at least one player on the host. Ctrl-C keeps the pairs that have ended.

    Matches that the record has are not played again.
    """
    bots = {seat: side.bot for seat, side in enumerate(sides) if side.bot is not None}
    prepared: dict[Any, tuple[Any, Any]] = {}
    results, ended = _empty_results(count), 0

    def prepare(options: Any, settings: Any) -> tuple[Any, Any]:
        if options not in prepared:
            prepared[options] = (seated(settings, bots), pack.regret.tables(options) if pack.regret else None)
        return prepared[options]

    def play(i: int, players: Sequence[ListeningPlayer], more: dict[str, Any]) -> KeptEpisode:
        at = (start + i) % pack.matches
        scenario, (drawn, number) = pack.scenario(at), luck_of(pack, start + i, seed)
        settings, tables = prepare(scenario.options, scenario.settings)
        about = {"task": "evaluation", "options": scenario.options.model_dump(mode="json"), "eval_pack_id": pack.name}
        episode = play_episode(
            game, settings, players, seed=drawn, number=number, state=scenario.state, match=at, about=about, **more
        )
        kept = KeptEpisode.of(i, episode, players)
        if pack.regret:
            luck = episode_luck(seed_key(drawn), number)
            begun = scenario._replace(settings=settings)
            first, second = _lost(game, pack.regret, tables, begun, kept, luck).tolist()
            kept = replace(kept, lost=(first, second))
        return kept

    def count_in(i: int, kept: KeptEpisode) -> None:
        results.returns[i], results.lost[i] = kept.returns, kept.lost
        for name, pair in kept.scores.items():
            results.scores.setdefault(name, np.zeros((count, 2)))[i] = pair
        seats = [decision["seat"] for decision in kept.decisions]
        results.turns[i] = [seats.count(seat) for seat in SEATS]

    try:
        games = host_games(range(count), [side.player for side in sides], play, results.tallies, record)
        with closing(games):
            for i, kept in enumerate(games):
                count_in(i, kept)
                ended += 1
                progress(1)
    except KeyboardInterrupt:
        if ended < 2:
            raise
        finishing()
        return results.first(ended - ended % 2)
    return results


def luck_of(pack: Pack, i: int, seed: int) -> tuple[int, int]:
    """Seed and number of the i-th match's luck; bits beyond the 31 of a number go into the seed."""
    high, number = divmod(seed + i // pack.matches, 2**31)
    return pack.seed(i % pack.matches) ^ (high % 2**32 << 32), number


def _empty_results(count: int) -> Results:
    def zeros() -> Floats:
        return np.zeros((count, 2))

    return Results(zeros(), {}, zeros(), zeros(), Tallies())


def _lost(game: Game, regret: Regret, tables: Any, begun: Scenario, kept: KeptEpisode, luck: Any) -> Floats:
    """Replays the episode step by step for the judge."""
    acts: dict[int, dict[int, Any]] = {}
    for decision in kept.decisions:
        acts.setdefault(decision["turn"], {})[decision["seat"]] = tuple(decision["act"])
    judge, state, total = _judge(regret), begun.state, np.zeros(2)
    for number, chosen in sorted(acts.items()):
        given = tuple(chosen.get(seat, chosen.get(1 - seat)) for seat in SEATS)
        total += np.asarray(judge(tables, begun.settings, state, given), float)
        state = table_for(game).step(begun.settings, state, given, luck, number)[0]
    return total


@lru_cache(maxsize=16)
def _judge(regret: Regret) -> Any:
    return jax.jit(regret.lost)


@lru_cache(maxsize=32)
def _program(game: Game, bots: tuple[Bot, Bot], regret: Regret | None) -> Any:
    return jit_batch(pack_program(game, bots, regret))


def _summary(results: Results, seat: int, regret: Regret | None) -> dict[str, Any]:
    mine, theirs = results.returns[:, seat], results.returns[:, 1 - seat]
    won = np.where(mine == theirs, 0.5, mine > theirs)
    summary: dict[str, Any] = {}
    for name, ci, (mean, interval) in (
        ("win_share", "win_share_ci95", win_share_ci95(paired(won))),
        ("return_mean", "return_ci95", mean_ci95(paired(mine))),
    ):
        summary |= {name: mean, ci: list(interval)}
    ceilings = results.scores.get("ceiling")
    ceiling = None if ceilings is None else float(ceilings[:, seat].mean())
    summary["share_of_ceiling"] = summary["return_mean"] / ceiling if ceiling else None
    for name, scores in results.scores.items():
        if name != "ceiling":
            summary[name] = mean_ci95(paired(scores[:, seat]))[0]
    if regret is not None:
        mean, interval = mean_ci95(paired(results.lost[:, seat]))
        turns = float(results.turns[:, seat].sum())
        summary |= {"regret": mean, "regret_ci95": list(interval)}
        summary["regret_per_turn"] = float(results.lost[:, seat].sum()) / turns if turns else None
    found: dict[str, Any] = finite(summary | results.tallies.seats[seat].as_dict())
    return found


def paired(values: Floats) -> Floats:
    """The mean of each pair, in which luck cancels."""
    return np.asarray(values.reshape(-1, 2).mean(axis=1))
