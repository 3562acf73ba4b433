"""Label accuracy: how often a judge's yes or no agrees with the true style of an episode."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kibitz.advice.judge import EpisodeJudge, Judgement
from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.statistics import share_ci95
from kibitz.core.system.interrupt import finishing
from kibitz.evaluate.judges.classifier import Classifier
from kibitz.evaluate.judges.episodes import Labelled, finished
from kibitz.llm.answers.prompt import Prompt
from kibitz.llm.client.limits import Budget
from kibitz.llm.client.usage import UsageLedger
from kibitz.llm.presets import Preset, get_preset, why_not

QUESTIONS_PER_BATCH = 32  # between two moves of the progress bar
COSTS = ("calls", "prompt_tokens", "completion_tokens", "money")


class Judged(NamedTuple):
    """A judge's answers about one style."""

    yes: NDArray[np.bool_]
    answered: NDArray[np.bool_]  # where false, `yes` is meaningless
    ledger: UsageLedger | None = None


def evaluate_judge(
    game: Game,
    episodes: Labelled,
    judge: str,
    styles: Sequence[str] = (),
    *,
    prompt: Prompt | None = None,
    cache: str | Path | None = None,
    budget: Budget | None = None,
    progress: Callable[[int], None] = lambda count: None,
) -> dict[str, Any]:
    """`judge` is `llm:PRESET` or `classifier:FILE`; the same episodes are judged for each style.

    Ctrl-C keeps what was answered.
    """
    chosen, named = game.styles.names(styles, game.name), judge_named(judge)
    found: list[dict[str, Any]] = []
    interrupted = False
    for style in chosen:
        began = time.perf_counter()
        judged = Judged(np.zeros(len(episodes), bool), np.zeros(len(episodes), bool))
        try:
            if isinstance(named, Classifier):
                judged = Judged(named.judge(game, episodes, style), np.ones(len(episodes), bool))
                progress(len(episodes))
            else:
                with EpisodeJudge(game, style, named, prompt=prompt, cache=cache, budget=budget) as asker:
                    judged = judged._replace(ledger=asker.ledger)
                    _ask(game, asker, episodes, judged, progress)
        except KeyboardInterrupt:
            if not found and not judged.answered.any():
                raise
            finishing()
            interrupted = True
        if not interrupted or judged.answered.any():
            found.append({"style": style} | _scores(episodes.shown[style], judged) | _cost(judged, began))
        if interrupted:
            break
    about = {"game": game.name, "judge": judge, "episodes": len(episodes), "interrupted": interrupted}
    return about | {"styles": found}


def judge_named(judge: str) -> Classifier | Preset:
    """Raises BadInput for what cannot judge, before any episode is played."""
    kind, _, name = judge.partition(":")
    if kind not in ("llm", "classifier") or not name:
        raise BadInput(f"There is no judge {judge!r}; use llm:PRESET or classifier:FILE.")
    if kind == "classifier":
        return Classifier.read(Path(name))
    preset = get_preset(name)
    if reason := why_not(preset):
        raise BadInput(f"The preset {name} cannot be used: {reason}")
    return preset


def _ask(game: Game, asker: EpisodeJudge, episodes: Labelled, judged: Judged, progress: Callable[[int], None]) -> None:
    """Writes the answers into `judged`, so that Ctrl-C leaves there what has arrived."""
    for start in range(0, len(episodes), QUESTIONS_PER_BATCH):
        numbers = range(start, min(start + QUESTIONS_PER_BATCH, len(episodes)))
        arrived: dict[int, Judgement] = {}
        try:
            arrived |= enumerate(asker.ask((finished(game, episodes, i) for i in numbers), arrived=arrived))
        finally:
            for place, one in arrived.items():
                judged.yes[start + place], judged.answered[start + place] = bool(one.yes), one.yes is not None
        progress(len(numbers))


def _scores(truth: NDArray[np.bool_], judged: Judged) -> dict[str, Any]:
    """Accuracy over the answered episodes, beside what always giving the more frequent answer would reach."""
    there = judged.answered
    right, count = int((judged.yes == truth)[there].sum()), int(there.sum())
    accuracy, interval = share_ci95(right, count) if count else (None, (None, None))
    base = float(truth.mean())
    return {
        "accuracy": accuracy,
        "accuracy_ci95": list(interval),
        "base_rate": base,
        "majority": max(base, 1 - base),
        "yes_share": float(judged.yes[there].mean()) if count else None,
        "recall": _mean(judged.yes[there & truth]),
        "specificity": _mean(~judged.yes[there & ~truth]),
        "answered": count,
    }


def _mean(values: NDArray[np.bool_]) -> float | None:
    return float(values.mean()) if len(values) else None


def _cost(judged: Judged, began: float) -> dict[str, Any]:
    seconds = {"seconds": round(time.perf_counter() - began, 3)}
    if judged.ledger is None:
        return seconds
    usage = judged.ledger.as_dict()
    failures = {kind: count for kind, count in usage["failures"].items() if count}
    return {name: usage[name] for name in COSTS} | {"failures": failures} | seconds
