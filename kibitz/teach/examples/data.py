"""`kibitz teach data`: examples from an expert, streamed to a file of JSON Lines."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
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
from kibitz.core.play.episode import play_episode
from kibitz.core.play.player import BotPlayer, Choice, Player, Turn
from kibitz.core.play.resolve import bot_for, bot_named, pinned, player_named
from kibitz.core.system.paths import named
from kibitz.core.work.executor import Executor, Here, Item, Work
from kibitz.core.work.parts import game_spec, spec_game
from kibitz.llm.answers.prompt import Prompt
from kibitz.teach.examples.judging import judgements
from kibitz.teach.examples.rows import RowWriter
from kibitz.teach.examples.stored import Stored, stored_examples
from kibitz.teach.examples.walk import Example, LessonSource, batch_size, examples
from kibitz.teach.play.lockstep import Lockstep

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
    executor: Executor | None = None,
) -> dict[str, Any]:
    """Writes the rows; after an interrupt the file holds the whole rows written so far."""
    if path.exists():
        raise BadInput(f"{path} exists; name another file or delete it.")
    notes: list[str] = []
    stream = _rows(game, options, lesson, prompt, notes.append, executor or Here())
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
    game: Game,
    options: Any,
    lesson: Lesson,
    prompt: Prompt | None,
    skipped: Callable[[str], None],
    executor: Executor,
) -> Iterator[Sequence[Row]]:
    if (lesson.styles or lesson.stored) and not isinstance(executor, Here):
        raise BadInput("--style and --from-store read episodes in one process; omit --workers and --ray.")
    if lesson.styles:
        styles = game.styles.names(lesson.styles, game.name)
        opponent, *others = _shares(game, lesson)
        if others:
            raise BadInput("--style takes one --opponent; write a file for each of them.")
        return judgements(game, options, styles, opponent, lesson.seed, prompt or judge_prompt(taught=True))
    writer = RowWriter(game, prompt)
    if lesson.stored:
        return _stored(game, lesson, writer, skipped)
    shares, teacher = _shares(game, lesson), Teacher(game, options, lesson, writer)
    weights = [1.0] if lesson.pairs else list(shares.values())
    if isinstance(executor, Here):
        streams = [teacher.batches(number) for number in range(len(weights))]
    else:
        streams = _Ahead(executor, Work(_teacher_of, _teach_batch, teacher.spec()), weights).streams()
    return _mixed(weights, streams)


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


def _mixed(weights: Sequence[float], streams: Sequence[Iterator[list[Row]]]) -> Iterator[list[Row]]:
    """Batches of each opponent in turn, by weight, so that any part of the file holds the same mix."""
    given = np.zeros(len(streams))  # rows so far, in units of the weight: the smallest is next
    while True:
        chosen = int(given.argmin())
        rows = next(streams[chosen])
        given[chosen] += max(len(rows), 1) / weights[chosen]
        yield rows


class Teacher:
    """Batches of rows, each found by the number of its stream and its place there: pairs, or one opponent's rows."""

    def __init__(self, game: Game, options: Any, lesson: Lesson, writer: RowWriter, size: int | None = None) -> None:
        self.game, self.options, self.lesson, self.writer = game, options, lesson, writer
        self.size = size or batch_size()

    def batches(self, stream: int, first: int = 0) -> Iterator[list[Row]]:
        """From a place on, without end."""
        if self.lesson.pairs:
            yield from _pairs(self.game, self.options, self.lesson, self.writer, first)
        opponent = list(_shares(self.game, self.lesson))[stream]
        least = self.lesson.min_return
        for found in _examples(self.game, self.options, self.lesson, opponent, stream, first, self.size):
            yield [self.writer.taught(one.position, one.act) for one in found if least is None or one.paid >= least]

    def spec(self) -> dict[str, Any]:
        """From which a worker makes the same teacher."""
        lesson, game, prompt = self.lesson, self.game, self.writer.prompt
        student = named(lesson.student)
        return game_spec(game, self.options) | {
            "prompt": [prompt.text, prompt.where],
            "size": self.size,
            "lesson": asdict(lesson)
            | {
                "expert": _pinned(game, lesson.expert),
                "opponents": _pinned(game, dict(lesson.opponents or {})) or None,
                "student": str(student.resolve())
                if lesson.student and student.is_dir()
                else pinned(game, lesson.student),
            },
        }


def _pinned(game: Game, player: Any) -> Any:
    if isinstance(player, str):
        return pinned(game, player)
    return {pinned(game, name): weight for name, weight in player.items()}


def _teacher_of(spec: Mapping[str, Any]) -> Teacher:
    """In a worker."""
    game, options = spec_game(spec)
    lesson = Lesson(**(spec["lesson"] | {"styles": tuple(spec["lesson"]["styles"])}))
    return Teacher(game, options, lesson, RowWriter(game, Prompt(*spec["prompt"])), spec["size"])


def _teach_batch(teacher: Teacher, item: Mapping[str, int], report: Callable[[Any], None]) -> list[Row]:
    """An item of work."""
    return next(teacher.batches(item["stream"], item["place"]))


class _Ahead:
    """Batches that workers make ahead of time, in about the proportion in which they will be read."""

    def __init__(self, executor: Executor, work: Work, weights: Sequence[float]) -> None:
        self.weights = weights
        self.sent = [0] * len(weights)
        self.rows = [1.0] * len(weights)  # of the newest batch
        self.ready: dict[tuple[int, int], list[Row]] = {}
        self.results = executor.run(work, self._items())

    def _items(self) -> Iterator[Item]:
        while True:
            made = [sent * rows / weight for sent, rows, weight in zip(self.sent, self.rows, self.weights, strict=True)]
            stream = made.index(min(made))
            yield Item({"stream": stream, "place": self.sent[stream]})
            self.sent[stream] += 1

    def streams(self) -> list[Iterator[list[Row]]]:
        return [self._stream(number) for number in range(len(self.weights))]

    def _stream(self, number: int) -> Iterator[list[Row]]:
        for place in itertools.count():
            while (number, place) not in self.ready:
                item, rows = next(self.results)
                self.rows[item.arguments["stream"]] = max(1.0, len(rows))
                self.ready[item.arguments["stream"], item.arguments["place"]] = rows
            yield self.ready.pop((number, place))


def _stored(game: Game, lesson: Lesson, writer: RowWriter, skipped: Callable[[str], None]) -> Iterator[list[Row]]:
    """The acts of the player whom `expert` names, or of both seats."""
    if not isinstance(lesson.expert, str) or lesson.student or lesson.pairs:
        raise BadInput("--from-store takes one --expert at most, and neither --student nor --pairs.")
    asked = Stored(lesson.stored, lesson.expert, frozenset(lesson.opponents or {}))
    for found in stored_examples(game.name, asked, skipped):
        kept = [one for one in found if lesson.min_return is None or one.paid >= lesson.min_return]
        yield [writer.taught(one.position, one.act) for one in kept]


def _examples(
    game: Game, options: Any, lesson: Lesson, opponent: str, number: int, first: int, size: int
) -> Iterator[list[Example]]:
    """Batches from place `first` on. The opponents share a seed; each has its own part of its episodes."""
    other = _compiled(game, opponent, "an opponent")
    expert = bot_for(game, lesson.expert or game.reference)
    start = number << 26
    if not lesson.student or (student := bot_named(game, lesson.student)) is not None:
        source = LessonSource(expert, other, student if lesson.student else None, lesson.random_share)
        return examples(game, options, source, lesson.seed, start + first * size, size)
    if named(lesson.student).is_dir():
        return _model_play(game, options, expert, other, lesson, start + first * STUDENT_BATCH)
    return _shadowed(game, options, expert, other, player_named(game, lesson.student), lesson.seed, start + first)


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


def _pairs(game: Game, options: Any, lesson: Lesson, writer: RowWriter, first: int = 0) -> Iterator[list[Row]]:
    """The expert's act is chosen; the student's, or a random one, is rejected where it costs more than `min_margin`."""
    worse = _compiled(game, lesson.student or "random", "a student for pairs")
    shares = list(_shares(game, lesson).items())
    expert = bot_for(game, lesson.expert or game.reference)
    for place in itertools.count(first):
        name, share = shares[place % len(shares)]
        seed = lesson.seed + place // len(shares) * 1_000_003  # draw_positions counts episodes from 0
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
