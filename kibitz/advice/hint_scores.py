"""The quality of hints: scores a source on a fixed set of positions, beside the game's reference player."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import jax
import numpy as np
from numpy.typing import NDArray

from kibitz.advice.ask import Advice, PositionAsker
from kibitz.advice.quality import Drawn, agrees, draw_positions, follower, mattering, position
from kibitz.advice.source import expert_bot
from kibitz.core.bots import Bot
from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.play.resolve import bot_named, pinned
from kibitz.core.statistics import mean_ci95
from kibitz.core.system.interrupt import finishing
from kibitz.core.work.executor import Executor, Here, Work
from kibitz.core.work.parts import game_spec, in_parts, spec_game
from kibitz.llm.answers.prompt import Prompt

NO_COST = {"prompt_tokens": 0, "completion_tokens": 0, "money": 0.0}
BOT_PART = 1024  # positions, about a second of a slow reference player
MODEL_PART = 64  # positions: enough to keep a model's connections busy


def evaluate_hints(
    game: Game,
    options: Any,
    source: str,
    states: int = 200,
    opponent: str = "heuristic",
    seed: int = 0,
    *,
    checkpoint: str | None = None,
    prompt: Prompt | None = None,
    progress: Callable[[int], None] = lambda count: None,
    executor: Executor | None = None,
) -> dict[str, Any]:
    """How good, how confident and how expensive a source's hints are."""
    if states < 1:
        raise BadInput(f"states is {states}; it must be at least 1.")
    with ScoredSource(game, options, source, states, opponent, seed, checkpoint, prompt) as own:
        if executor is None or isinstance(executor, Here):
            scored = own.score(range(states), progress)
        else:
            work = Work(_source_of, _score_part, own.spec())
            largest = MODEL_PART if own.asker else BOT_PART
            size = max(1, min(largest, states // (2 * executor.workers)))
            scored = joined(in_parts(executor, work, states, size, progress)[0])
        drawn: Drawn = jax.tree.map(lambda leaf: leaf[scored.rows], own.drawn)
    name = f"expert:{own.adviser.name}" if own.source == "expert" else own.source
    count = len(scored.rows)
    about = {"game": game.name, "source": name, "states": count, "opponent": opponent, "seed": seed}
    about |= {"reference": game.reference, "interrupted": count < states}
    return about | _scores(game, drawn, scored.answers, scored.lost)


class Answers(NamedTuple):
    acts: NDArray[np.int64]  # i64[n, heads]; the reference's act where there is no hint
    available: NDArray[np.bool_]
    confidence: NDArray[np.float64]
    likelihood: NDArray[np.float64] | None  # of a model's whole acts, before calibration; None for a bot
    latency: NDArray[np.float64] | None  # seconds, of the questions that the model answered; None for a bot
    failures: dict[str, int]
    cost: dict[str, float]


class Scored(NamedTuple):
    """The positions that were answered, which are all of them unless Ctrl-C comes."""

    rows: NDArray[np.int64]
    answers: Answers
    lost: NDArray[np.float64]  # by following the hints


class ScoredSource:
    """A source of hints and the positions in which it is scored."""

    def __init__(
        self,
        game: Game,
        options: Any,
        source: str,
        states: int,
        opponent: str,
        seed: int,
        checkpoint: str | None = None,
        prompt: Prompt | None = None,
    ) -> None:
        reference = game.bot(game.reference)
        if bot_named(game, opponent) is None:
            raise BadInput(f"{opponent!r} cannot be compiled; name a bot of {game.name} as the opponent.")
        self.game, self.options, self.states, self.opponent, self.seed = game, options, states, opponent, seed
        self.checkpoint, self.prompt, self.asker = checkpoint, prompt, None
        if source == "llm" or source.startswith("llm:"):
            preset = source.removeprefix("llm").removeprefix(":") or "auto"
            self.asker = PositionAsker(game, preset, settings=options.settings(), prompt=prompt)
            source = f"llm:{self.asker.preset.name}"
        self.source = source
        try:
            self.adviser = reference if self.asker else _adviser(game, source, checkpoint)
            self.settings, self.drawn = draw_positions(game, options, states, opponent, seed, self.adviser)
        except BaseException:
            self.__exit__()
            raise
        self._follow = follower(game, opponent, reference, self.adviser)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.asker:
            self.asker.close()

    def spec(self) -> dict[str, Any]:
        """From which a worker builds the same source and positions."""
        return game_spec(self.game, self.options) | {
            "source": pinned(self.game, self.source) if self.source != "expert" else "expert",
            "states": self.states,
            "opponent": pinned(self.game, self.opponent),
            "seed": self.seed,
            "checkpoint": self.checkpoint,
            "prompt": None if self.prompt is None else [self.prompt.text, self.prompt.where],
        }

    def score(self, rows: Sequence[int], progress: Callable[[int], None]) -> Scored:
        """The hints in these positions, and what following them costs."""
        chosen = np.array(rows)
        drawn: Drawn = jax.tree.map(lambda leaf: leaf[chosen], self.drawn)
        best = self._follow(self.settings, drawn, drawn.best)  # compiled before the first question, for Ctrl-C
        if self.asker:
            kept, answers = _ask(self.game, self.asker, self.settings, drawn, progress)
            drawn, best = jax.tree.map(lambda leaf: leaf[kept], (drawn, best))
            chosen = chosen[kept]
        else:
            answers = _bot_answers(drawn, len(chosen))
            progress(len(chosen))
        acts = tuple(answers.acts[:, head].astype(np.int32) for head in range(len(self.game.heads)))
        return Scored(chosen, answers, best - self._follow(self.settings, drawn, acts))


def _adviser(game: Game, source: str, checkpoint: str | None) -> Bot:
    if source == "expert":
        return expert_bot(game, checkpoint)
    bot = bot_named(game, source)
    if bot is None:
        raise BadInput(f"There is no hint source {source!r}; use random, expert, llm, llm:PRESET or any bot.")
    return bot


def _bot_answers(drawn: Drawn, states: int) -> Answers:
    acts = np.stack([np.asarray(head) for head in drawn.advice], axis=1).astype(np.int64)
    return Answers(acts, np.ones(states, bool), np.ones(states), None, None, {}, NO_COST)


def _ask(
    game: Game, asker: PositionAsker, settings: Any, drawn: Drawn, progress: Callable[[int], None]
) -> tuple[NDArray[np.int64], Answers]:
    """The positions that were answered, which are all of them unless Ctrl-C comes, and their answers."""
    began, arrived, shown = time.perf_counter(), dict[int, Advice](), 0

    def waiting(answered: int) -> None:
        nonlocal shown
        progress(answered - shown)
        shown = answered

    rows = list(range(len(drawn.alive)))
    try:
        advice = asker.ask((position(game, settings, drawn, i) for i in rows), arrived=arrived, waiting=waiting)
    except KeyboardInterrupt:
        if not arrived:
            raise
        finishing()
        rows = sorted(arrived)
        advice = [arrived[i] for i in rows]
    seconds = time.perf_counter() - began
    waiting(len(rows))
    best = np.stack([np.asarray(head)[rows] for head in drawn.best], axis=1).astype(np.int64)
    there = np.array([one.act is not None for one in advice])
    acts = np.array([best[i] if one.act is None else one.act for i, one in enumerate(advice)])
    latency = np.array([one.reply.latency for one in advice if one.reply.attempts and one.reply.source == "model"])
    usage = asker.ledger.as_dict()
    failures = dict(Counter(str(one.reply.failure.kind) for one in advice if one.reply.failure is not None))
    cost = {
        "prompt_tokens": usage["prompt_tokens"],
        "completion_tokens": usage["completion_tokens"],
        "money": usage["money"],
        "calls": usage["calls"],
        "shared": usage["shared"],
        "seconds": round(seconds, 3),
    }
    confidence = np.array([one.confidence for one in advice])
    measured = [math.prod(one.reply.likelihood.values()) for one in advice if one.reply.likelihood]
    likelihood = np.array(measured) if asker.calibration and len(measured) == there.sum() else None
    return np.array(rows), Answers(acts, there, confidence, likelihood, latency, failures, cost)


def _source_of(spec: Mapping[str, Any]) -> ScoredSource:
    """In a worker: the source of `ScoredSource.spec`."""
    game, options = spec_game(spec)
    prompt = None if spec["prompt"] is None else Prompt(*spec["prompt"])
    words = (spec["source"], spec["states"], spec["opponent"], spec["seed"], spec["checkpoint"])
    return ScoredSource(game, options, *words, prompt)


def _score_part(source: ScoredSource, part: Mapping[str, int], report: Callable[[Any], None]) -> Scored:
    """An item of work. A worker's client counts all of its questions, so an item reports the difference."""
    before = source.asker.ledger.as_dict() if source.asker else {}
    scored = source.score(range(part["start"], part["start"] + part["count"]), lambda count: None)
    counted = scored.answers.cost
    cost = {name: counted[name] - (0 if name == "seconds" else before.get(name, 0)) for name in counted}
    return scored._replace(answers=scored.answers._replace(cost=cost))


def joined(parts: Sequence[Scored]) -> Scored:
    answers = [part.answers for part in parts]

    def stacked(name: str) -> Any:
        pieces = [getattr(one, name) for one in answers]
        return None if any(piece is None for piece in pieces) else np.concatenate(pieces)

    failures: Counter[str] = Counter()
    for one in answers:
        failures.update(one.failures)
    whole = answers[0]._replace(
        **{name: stacked(name) for name in ("acts", "available", "confidence", "likelihood", "latency")},
        failures=dict(failures),
        cost={name: sum(one.cost[name] for one in answers) for name in answers[0].cost},
    )
    return Scored(np.concatenate([part.rows for part in parts]), whole, np.concatenate([part.lost for part in parts]))


def _scores(game: Game, drawn: Drawn, asked: Answers, regret: NDArray[np.float64]) -> dict[str, Any]:
    best = np.stack([np.asarray(head) for head in drawn.best], axis=1)
    count = len(best)
    mine, theirs = mattering(game, asked.acts), mattering(game, best)
    apart = np.abs(asked.acts - best)
    same = agrees(game, asked.acts, best)
    both = (mine & theirs)[:, 1:]
    offers = asked.available & both.any(axis=1)  # only two offers have a distance
    there, latency = asked.available, asked.latency
    regrets = regret[there]
    _, (low, high) = mean_ci95(regrets)
    return {
        "legal_share": float(there.mean()),
        "agreement": _mean(same[there]),
        "agreement_or_same_return": _mean((same | (regret == 0))[there]),
        "agreement_on_the_first_head": _mean(apart[there, 0] == 0),
        "hint_regret_mean": _mean(regrets),
        "hint_regret_half_ci95": (high - low) / 2 if len(regrets) > 1 else None,
        "distance": _mean(np.where(both, apart[:, 1:], 0).sum(axis=1)[offers]),
        "distance_states": int(offers.sum()),
        "confidence_mean": _mean(asked.confidence[there]),
        "brier": _mean((asked.confidence - same)[there] ** 2),
        "brier_uncalibrated": None if asked.likelihood is None else _mean((asked.likelihood - same[there]) ** 2),
        "latency_median_s": None if latency is None or not len(latency) else float(np.median(latency)),
        "latency_p95_s": None if latency is None or not len(latency) else float(np.percentile(latency, 95)),
        "failed": count - int(there.sum()),
        "failures": asked.failures,
        **asked.cost,
    }


def _mean(values: NDArray[Any]) -> float | None:
    return float(values.mean()) if len(values) else None
