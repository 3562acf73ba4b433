"""`kibitz teach data`: examples from an expert, streamed to a file of JSON Lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from kibitz.advice.ask import Position
from kibitz.advice.judge import judge_prompt
from kibitz.advice.quality import draw_positions, position, regrets
from kibitz.core.act import matter
from kibitz.core.bots import Bot, seated
from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.paths import named
from kibitz.core.play.episode import play_episode
from kibitz.core.play.player import BotPlayer, Choice, Player, Turn
from kibitz.core.play.resolve import bot_for, bot_named, player_named
from kibitz.llm.answers.prompt import Prompt
from kibitz.teach.judging import judgements
from kibitz.teach.play.lockstep import Lockstep
from kibitz.teach.rows import RowWriter
from kibitz.teach.stored import Stored, stored_examples
from kibitz.teach.walk import Example, Source, examples

Row = Mapping[str, Any]
PAIR_BATCH = 1024  # positions per draw of pairs
STUDENT_BATCH = 32  # episodes of a student that PyTorch runs
MAX_EMPTY_BATCHES = 200  # in a row; on a CPU that is 25,600 episodes


@dataclass(frozen=True)
class Lesson:
    """Who teaches, against whom, and from which positions."""

    expert: str | dict[str, float] = ""  # default: the game's reference
    opponents: Mapping[str, float] | None = None  # by weight; default: the game's default opponent
    student: str = ""  # plays in place of the expert; may be a language model
    random_share: float = 0.5  # of seat 0's turns, in every second episode
    min_return: float | None = None  # drops episodes in which seat 0 earned less
    pairs: bool = False  # chosen and rejected acts instead of single answers
    styles: tuple[str, ...] = ()  # judgements of whole episodes instead of acts
    min_margin: float = 0.0  # points between the two; a rejected act that costs no more is no pair
    stored: str = ""  # a store or a file of events, instead of new episodes
    seed: int = 0


def write_rows(
    path: Path,
    game: Game,
    options: Any,
    lesson: Lesson,
    rows: int,
    prompt: Prompt | None = None,
    progress: Callable[[int], None] = lambda count: None,
) -> dict[str, Any]:
    """Writes the rows; after an interrupt the file holds the whole rows written so far."""
    if path.exists():
        raise BadInput(f"{path} exists; name another file or delete it.")
    notes: list[str] = []
    stream = _rows(game, options, lesson, prompt, notes.append)
    path.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    try:
        with path.open("wb") as file:
            for batch in _until_dry(stream, lesson, path):
                taken = batch[: rows - written]
                _append(file, b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in taken))
                written += len(taken)
                progress(len(taken))
                if written >= rows:
                    break
        if not written:
            reason = f" ({notes[0]})" if notes else ""
            raise BadInput(f"No stored episode of {game.name} qualifies{reason}; lower --min-return or ask for others.")
    except BaseException:  # Ctrl-C too: an empty file would only stand in the way of the next attempt
        if not written:
            path.unlink(missing_ok=True)
        raise
    skipped = {"skipped_episodes": len(notes)} if lesson.stored else {}
    return {"file": str(path), "rows": written, "bytes": path.stat().st_size} | skipped


def _until_dry(stream: Iterator[Sequence[Row]], lesson: Lesson, path: Path) -> Iterator[Sequence[Row]]:
    """The stream's batches; BadInput after many empty ones, unless a store ends by itself."""
    empty = written = 0
    for batch in stream:
        yield batch
        written += len(batch)
        empty = 0 if batch or lesson.stored else empty + 1
        if empty == MAX_EMPTY_BATCHES:
            limits = "lower --min-margin, or name another --student" if lesson.pairs else "lower --min-return"
            if lesson.styles:  # its rows need as many episodes with the style as without
                limits = "name another --style or --opponent"
            kept = f" after {written:,} rows, which {path} holds" if written else ""
            raise BadInput(f"No {'episode' if lesson.styles else 'position'} qualifies{kept}; {limits}.")


def _rows(
    game: Game, options: Any, lesson: Lesson, prompt: Prompt | None, skipped: Callable[[str], None]
) -> Iterator[Sequence[Row]]:
    if lesson.styles:
        styles = game.styles.names(lesson.styles, game.name)
        opponent, *others = _shares(game, lesson)
        if others:
            raise BadInput("--style takes one --opponent; write a file for each of them.")
        return judgements(game, options, styles, opponent, lesson.seed, prompt or judge_prompt())
    writer = RowWriter(game, prompt)
    if lesson.stored:
        return _stored(game, lesson, writer, skipped)
    return _pairs(game, options, lesson, writer) if lesson.pairs else _taught(game, options, lesson, writer)


def _append(file: IO[bytes], block: bytes) -> None:
    """Whole blocks only: an interrupt in the middle of one takes it back."""
    before = file.tell()
    try:
        file.write(block)
        file.flush()
    except BaseException:
        file.seek(before)
        file.truncate()
        raise


def _taught(game: Game, options: Any, lesson: Lesson, writer: RowWriter) -> Iterator[list[Row]]:
    """Batches of each opponent in turn, by weight, so that any part of the file holds the same mix."""
    sources = [
        (share, _examples(game, options, lesson, name, number))
        for number, (name, share) in enumerate(_shares(game, lesson).items())
    ]
    given = np.zeros(len(sources))  # rows so far, in units of the share: the smallest is next
    while True:
        chosen = int(given.argmin())
        share, batches = sources[chosen]
        found = [one for one in next(batches) if lesson.min_return is None or one.paid >= lesson.min_return]
        given[chosen] += max(len(found), 1) / share
        yield [writer.taught(one.position, one.act) for one in found]


def _stored(game: Game, lesson: Lesson, writer: RowWriter, skipped: Callable[[str], None]) -> Iterator[list[Row]]:
    """The acts of the player whom `expert` names, or of both seats."""
    if not isinstance(lesson.expert, str) or lesson.student or lesson.pairs:
        raise BadInput("--from-store takes one --expert at most, and neither --student nor --pairs.")
    asked = Stored(lesson.stored, lesson.expert, frozenset(lesson.opponents or {}))
    for found in stored_examples(game.name, asked, skipped):
        kept = [one for one in found if lesson.min_return is None or one.paid >= lesson.min_return]
        yield [writer.taught(one.position, one.act) for one in kept]


def _examples(game: Game, options: Any, lesson: Lesson, opponent: str, number: int) -> Iterator[list[Example]]:
    """The opponents share a seed; each has its own part of its episodes."""
    other = _compiled(game, opponent, "an opponent")
    expert = bot_for(game, lesson.expert or game.reference)
    start = number << 26
    if not lesson.student or (student := bot_named(game, lesson.student)) is not None:
        source = Source(expert, other, student if lesson.student else None, lesson.random_share)
        return examples(game, options, source, lesson.seed, start)
    if named(lesson.student).is_dir():
        return _model_play(game, options, expert, other, lesson, start)
    return _shadowed(game, options, expert, other, player_named(game, lesson.student), lesson.seed, start)


def _model_play(
    game: Game, options: Any, expert: Bot, opponent: Bot, lesson: Lesson, number: int
) -> Iterator[list[Example]]:
    """Episodes of a folder of transformers or of `kibitz teach`, which plays its most likely legal acts."""
    from kibitz.teach.play.sampler import Sampler

    sampler = Sampler.of(game, lesson.student, RowWriter(game))
    table = Lockstep(game, options, opponent, expert)
    while True:
        numbers = range(number, number + STUDENT_BATCH)
        played = table.play(lesson.seed, numbers, lambda asked: [one.act for one in sampler.answer(asked, None)])
        decisions = sorted(played.decisions, key=lambda decision: decision.episode)  # stable: turns stay in order
        yield [
            Example(one.position, one.label, float(played.returns[one.episode, 0]))
            for one in decisions
            if one.label is not None
        ]
        number += STUDENT_BATCH


def _shadowed(
    game: Game, options: Any, expert: Bot, opponent: Bot, student: Player, seed: int, number: int
) -> Iterator[list[Example]]:
    """Episodes of a student that only exists on the host, one at a time."""
    settings = seated(options.settings(), {1: opponent}, {0: expert})
    while True:
        seat = Shadow(student, BotPlayer(game, expert))
        episode = play_episode(game, settings, [seat, BotPlayer(game, opponent)], seed=seed, number=number)
        yield [Example(position, act, episode.returns[0]) for position, act in seat.seen]
        number += 1


class Shadow:
    """Plays the student's acts and notes what the expert would have done."""

    def __init__(self, student: Player, expert: BotPlayer) -> None:
        self.name, self.student, self.expert = student.name, student, expert
        self.seen: list[tuple[Position, tuple[int, ...]]] = []

    def begin(self, settings: Any, seat: int, luck: Any) -> None:
        self.student.begin(settings, seat, luck)
        self.expert.begin(settings, seat, luck)

    def choose(self, turn: Turn) -> Choice:
        advised = self.expert.choose(turn).act
        self.seen.append((Position(turn.settings, turn.view, turn.masks, turn.history), advised))
        return self.student.choose(turn)


def _pairs(game: Game, options: Any, lesson: Lesson, writer: RowWriter) -> Iterator[list[Row]]:
    """The expert's act is chosen; the student's, or a random one, is rejected where it costs more than `min_margin`."""
    worse = _compiled(game, lesson.student or "random", "a student for pairs")
    shares, seed = _shares(game, lesson), lesson.seed
    expert = bot_for(game, lesson.expert or game.reference)
    while True:
        for name, share in shares.items():
            count = max(1, round(PAIR_BATCH * share))
            settings, drawn = draw_positions(game, options, count, name, seed, worse, expert)
            lost = regrets(game, settings, drawn, name, worse, expert)
            best, other = (np.stack([np.asarray(x) for x in act], 1) for act in (drawn.best, drawn.advice))
            counts = np.stack([np.asarray(matter(game.matters, best[:, 0], h)) for h in range(len(game.heads))], 1)
            differs = ((best != other) & counts).any(1) | (best[:, 0] != other[:, 0])
            yield [
                dict(writer.preferred(position(game, settings, drawn, int(i)), _act(best[i]), _act(other[i])))
                | {"margin": round(float(lost[i]), 4)}
                for i in np.flatnonzero(differs & (lost > lesson.min_margin))
            ]
        seed += 1_000_003  # draw_positions counts episodes from 0


def _act(row: Any) -> tuple[int, ...]:
    return tuple(int(x) for x in row)


def _shares(game: Game, lesson: Lesson) -> dict[str, float]:
    given = dict(lesson.opponents or {game.default_players[1]: 1.0})
    if min(given.values()) < 0 or not 0 < sum(given.values()) < float("inf"):
        raise BadInput("Opponents need weights of at least 0, not all of them 0.")
    return {name: share / sum(given.values()) for name, share in given.items() if share}


def _compiled(game: Game, name: str, role: str) -> Bot:
    bot = bot_named(game, name)
    if bot is None:
        raise BadInput(f"{name!r} cannot be compiled; name a bot of {game.name} or policy:RUN as {role}.")
    return bot
