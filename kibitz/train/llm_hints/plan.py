"""What a language model will be asked in a run: limited by the number of steps, and known before the first question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kibitz.train.config import Job
from kibitz.train.llm_hints.loop import HostHintLoop
from kibitz.train.opponents import game_of
from kibitz.train.rollout import max_learner_steps

if TYPE_CHECKING:
    from kibitz.train.phase import TrainingPhase

SHORT_ROLLOUT = 8  # steps; before a rollout becomes shorter, fewer games play at once


def fitted(job: Job) -> tuple[Job, list[str]]:
    """A job whose updates end at its number of steps where a language model gives hints, and what was changed.

    Without this, 64 steps would play, and pay for, a whole update: 8,192 steps of 64 games.
    """
    parts = [part for _, part in job.phases()]
    if all(part.hints.mode != "llm" for part in parts):
        return job, []
    train, steps = job.train, job.train.num_train_steps
    games, rollout = train.num_envs, _rollout(job)
    if steps % (games * rollout) == 0:
        return job, []
    updates = -(-steps // (games * rollout))
    share = steps // updates  # steps of an update
    if job.algo == "reinforce":
        games = max(1, share // rollout)
    else:
        rollout = max(share // games, min(SHORT_ROLLOUT, rollout, share))
        games = min(games, share // rollout)
    changed: dict[str, Any] = {"num_envs": games, "num_train_steps": updates * games * rollout}
    if job.algo != "reinforce":
        changed["rollout"] = rollout
    batch = games * changed.get("rollout", train.rollout)
    changed["minibatch"] = next(size for size in range(min(train.minibatch, batch), 0, -1) if batch % size == 0)
    why = f"an update has {games:,} games x {rollout:,} steps, so that the run ends after {steps:,} steps or earlier"
    return job.model_copy(update={"train": train.model_copy(update=changed)}), [why]


def whole_updates(job: Job) -> Job:
    """The job with as many steps as its updates have in all, which `fitted` does not change: to compare with others."""
    batch = job.train.num_envs * _rollout(job)
    return job.with_steps(-(-job.train.num_train_steps // batch) * batch)


def _rollout(job: Job) -> int:
    """Steps of every game between updates."""
    if job.algo != "reinforce":
        return job.train.rollout
    games = (game_of(part) for _, part in job.phases())  # its updates play episodes to their end
    return max(max_learner_steps(game, options.settings()) for game, options in games)


def announcement(phases: Sequence[tuple[int, TrainingPhase]]) -> str:
    """What the language models that advise will be asked, and its price where it is known; empty without one."""
    lines, start = [], 0
    for end, phase in phases:
        if isinstance(phase.host, HostHintLoop):
            lines.append(_of_phase(phase, phase.host, -(-(end - start) // phase.config.batch)))
        start = end
    return "\n".join(lines)


def _of_phase(phase: TrainingPhase, host: HostHintLoop, updates: int) -> str:
    config = phase.config
    every, games = phase.job.hints.cadence_k, phase.job.seeds * config.num_envs
    total = games * (config.rollout * updates + 1)  # an update begins with the hints that the last one ended with
    sizes = f"{games:,} games x {config.rollout:,} steps" + (f", a hint every {every} steps" if every > 1 else "")
    text = (
        f"Hints of {phase.advice}: at most {host.max_hints:,} questions per update ({sizes}) and {total:,} in all; "
        "a position that was asked about before costs nothing."
    )
    if money := host.source.max_usage().money:
        text += f" At the preset's prices, that is at most {host.max_hints * money:,.2f} per update"
        text += f" and {total * money:,.2f} in all."
    return text
