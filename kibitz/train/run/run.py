"""A training run: one job and its folder.

The folder holds `config.yaml` and `run.json` (the job, versions and devices), `metrics.csv` and `evaluations.csv`
(identical for the same seed; an evaluation names the source of its hints), `timing.csv`, `tensorboard/`,
`checkpoints/` and `learning_curve.png`; with hints or judgements of a language model also `prompt.txt`.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax
import numpy as np
import yaml
from numpy.typing import NDArray

from kibitz.core.bots import NO_HINTS
from kibitz.core.errors import BadInput
from kibitz.core.statistics import finite
from kibitz.core.system import interrupt
from kibitz.core.system.paths import write_whole
from kibitz.core.xla import hosts
from kibitz.llm.client.limits import TooManyFailures
from kibitz.train.config import Job
from kibitz.train.llm_hints.accounting import NOTE, ModelAccounting
from kibitz.train.llm_hints.plan import fitted
from kibitz.train.phase import TrainingPhase, build_phases
from kibitz.train.run import checkpoint
from kibitz.train.run.evaluation import measures
from kibitz.train.run.folder import new_folder, written_by_us
from kibitz.train.run.logs import CsvRows, LearningCurve, Tensorboard, read_rows
from kibitz.train.run.progress import Progress, StopOnInterrupt, stoppable

TABLES = ("metrics.csv", "evaluations.csv", "timing.csv")
Report = Callable[[dict[str, Any]], None]


@dataclass
class Run:
    """A job with its folder."""

    job: Job
    folder: Path
    report: Report = lambda progress: None
    notes: list[str] = field(default_factory=list)
    _last_report: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.job, why = fitted(self.job)
        self.notes += why

    def train(self, resume: bool = False) -> dict[str, Any]:
        """Trains to the end, or until Ctrl-C, and returns a summary."""
        self.check(resume)
        with written_by_us(self.folder):
            self._check_folder(resume)  # another training may have ended since
            return self._train(resume)

    def _train(self, resume: bool) -> dict[str, Any]:
        began = time.perf_counter()
        learner, first_step = self._start(self.phases[0][1], resume)
        before = self._seconds_before(first_step)
        progress = Progress(learner, first_step, lambda: before + time.perf_counter() - began)
        self._describe()
        with (
            closing(self._logs(first_step)) as logs,
            self.models.recording(self._describe),
            interrupt.rescue(lambda: self._rescue(progress, first_step)),
            stoppable() as stop,
        ):
            for number in range(len(self.phases)):
                if not hosts.any_of(stop.asked):
                    self._train_phase(number, progress, logs, stop)
            if stop.asked:
                interrupt.finishing()
            phase, finished = self._phase_at(progress.step), progress.step >= self._total_steps
            self._save(progress.learner, progress.step)
            if not progress.evaluation and finished:  # a run resumed at its end
                progress.evaluation = self._evaluate(phase, progress.learner)
        if finished:
            self._draw()
        self._describe()
        trained = (progress.step - first_step) * self.job.seeds
        return {
            "run": str(self.folder),
            "finished": finished,
            "steps": progress.step,
            "seconds": round(time.perf_counter() - began, 3),
            "compile_seconds": round(progress.compile_seconds, 3),
            "train_seconds": round(progress.train_seconds, 3),
            "steps_per_s": round(trained / max(progress.train_seconds, 1e-9), 1),
            "seeds": self.job.seeds,
            **finite(progress.evaluation),
            "adviser": self.phases[-1][1].advice,
            "hints_from": phase.hints_from,
            **self.models.record(),
            "notes": self.notes,
        }

    def _train_phase(self, number: int, progress: Progress, logs: Logs, stop: StopOnInterrupt) -> None:
        end, phase = self.phases[number]
        start = self.phases[number - 1][0] if number else 0
        if progress.step >= end:
            return
        progress.keep(phase.host is not None)  # before the new games: they cannot be resumed before an update
        if number and progress.step <= _round_up(start, self._batch):
            progress.learner = phase.deal_again(progress.learner)
        called = time.perf_counter()
        if phase.host is not None:
            phase.host.report = lambda asked: self._report_asking(progress.step, asked)
        progress.learner, _ = phase.advance(progress.learner, phase.settings, 0)
        progress.compile_seconds += time.perf_counter() - called
        if hosts.any_of(stop.asked):
            progress.go_back()
        while progress.step < end and not hosts.any_of(stop.asked):
            goal = min(self._next_stop(progress.step), _round_up(end, self._batch))
            called = time.perf_counter()
            try:
                with stop.raising(phase.host is not None):  # it asks a language model, for minutes between two rows
                    metrics = self._advance(phase, progress, (goal - progress.step) // self._batch)
            except KeyboardInterrupt:
                progress.go_back()
                return
            seconds = time.perf_counter() - called
            rate = (goal - progress.step) / seconds
            progress.step, progress.train_seconds = goal, progress.train_seconds + seconds
            if self._due(self.job.logging.eval_every, goal) or goal >= self._total_steps:
                progress.evaluation = self._evaluate(phase, progress.learner)
                self._record(logs, goal, phase.hints_from, progress.evaluation)
            self._write(logs, goal, metrics, rate, progress.clock())
            if self._due(self.job.logging.save_every, goal):
                self._save(progress.learner, goal)
                self._describe()
            progress.keep(phase.host is not None)
            means = {name: float(value.mean()) for name, value in metrics.items()}
            self._last_report = {"step": goal, "steps_per_s": rate, **means, **_means(progress.evaluation)}
            self._last_report |= {"hints_from": phase.hints_from, "notes": self.notes}
            if self.models:
                about = self.models.about
                self._last_report[f"{about}_per_s"] = float(metrics[f"{about}_given"].sum()) / seconds
            self.report(self._last_report)

    def _report_asking(self, step: int, asked: Mapping[str, float]) -> None:
        self.report({**self._last_report, **asked, "step": step + asked.get("updates", 0) * self._batch})

    def _advance(self, phase: TrainingPhase, progress: Progress, updates: int) -> dict[str, NDArray[np.float64]]:
        try:
            progress.learner, metrics = phase.advance(progress.learner, phase.settings, updates)
        except TooManyFailures as failure:
            progress.go_back()
            self._save(progress.learner, progress.step)
            raise BadInput(
                f"{failure} The run in {self.folder} is saved at step {progress.step}; --resume continues it "
                f"with the same config, so another failure_policy needs a new run."
            ) from None
        found = {name: np.asarray(value, float) for name, value in metrics.items()}
        # every row of a table has the same columns, also in phases without hints
        return found | {name: np.zeros(self.job.seeds) for name in self.models.columns if name not in found}

    @cached_property
    def phases(self) -> list[tuple[int, TrainingPhase]]:
        phases = build_phases(self.job, tuple(jax.devices()))
        for _, phase in phases:
            for note in phase.notes:
                self._note(note)
        return phases

    @cached_property
    def models(self) -> ModelAccounting:
        models = ModelAccounting([phase.host for _, phase in self.phases if phase.host is not None], self.folder)
        if models and models.about == "hints":
            self._note(NOTE)
        return models

    @property
    def _batch(self) -> int:
        """Steps of an update."""
        return self.phases[0][1].config.batch

    @property
    def _total_steps(self) -> int:
        return _round_up(self.job.train.num_train_steps, self._batch)

    def check(self, resume: bool) -> None:
        """Raises BadInput for what would stop the run at its start; writes nothing but the empty folder."""
        self._check_folder(resume)
        models = self.models
        if resume:
            models.check()
            models.resume()
        with new_folder(self.folder):  # whether a folder can be made is only known by trying
            self.folder.mkdir(parents=True, exist_ok=True)

    def _check_folder(self, resume: bool) -> None:
        folder = self.folder
        with new_folder(folder):
            if folder.exists() and not folder.is_dir():
                raise BadInput(f"{folder} is a file; --out must name a folder.")
            if resume and not (folder / "config.yaml").is_file():
                raise BadInput(f"There is no run to resume in {folder}; start it without --resume.")
            if not resume and folder.exists() and any(folder.iterdir()):
                raise BadInput(f"{folder} is not empty; choose another --out, or --resume the run in it.")
        for name in TABLES if resume else ():
            if (folder / name).exists():
                read_rows(folder / name, "step")

    def _start(self, phase: TrainingPhase, resume: bool) -> tuple[Any, int]:
        """The learner and its step: new, or from the newest complete checkpoint."""
        if not resume:  # a resumed run needs no new learners, and perhaps no longer the first phase
            phase.compile_ahead()
        learner, step = self._restored(phase) if resume else (phase.begin(), 0)
        with new_folder(self.folder):  # also when a run is resumed: it may have been given more steps
            text = yaml.safe_dump(self.job.model_dump(mode="json"), sort_keys=False)
            write_whole(self.folder / "config.yaml", text)
        return learner, step

    def _restored(self, phase: TrainingPhase) -> tuple[Any, int]:
        saved, refused = checkpoint.newest(self.folder / "checkpoints")
        self.notes += refused
        if saved is None:
            return phase.begin(), 0
        checkpoint.check_fits(saved, phase.game)
        then = self._phase_at(saved.step)
        return then.compiled.placed(checkpoint.restore(saved, then.shapes())), saved.step

    def _phase_at(self, step: int) -> TrainingPhase:
        """The phase whose games a checkpoint of this step holds; at a boundary the phase that ends there."""
        phases = self.phases
        return next((phase for end, phase in phases if step <= _round_up(end, self._batch)), phases[-1][1])

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _seconds_before(self, step: int) -> float:
        """The seconds that an interrupted run took to this step, from its timing.csv."""
        file = self.folder / "timing.csv"
        rows = read_rows(file, "step", "seconds") if file.exists() else []
        return max((float(row["seconds"]) for row in rows if float(row["step"]) <= step), default=0.0)

    def _describe(self) -> None:
        phases = self.phases
        about: dict[str, Any] = {
            "kibitz": _version("kibitz"),
            "jax": _version("jax"),
            "optax": _version("optax"),
            "python": platform.python_version(),
            "devices": [str(device) for device in phases[0][1].compiled.devices],
            "seed": self.job.seed,
            "game": phases[0][1].game.name,
            "game_version": phases[0][1].game.version,
            "advisers": [phase.advice for _, phase in phases],
            "evaluation_hints_from": [phase.hints_from for _, phase in phases],
            "notes": self.notes,
        }
        write_whole(self.folder / "run.json", json.dumps(about | self.models.record(), indent=2) + "\n")

    def _logs(self, step: int) -> Logs:
        logging = self.job.logging
        rows = [CsvRows(self.folder / name, step) if logging.csv else None for name in TABLES]
        board = Tensorboard(self.folder / "tensorboard", self.notes) if logging.tensorboard else None
        return Logs(rows[0], rows[1], rows[2], board)

    def _write(self, logs: Logs, step: int, metrics: Mapping[str, Any], rate: float, seconds: float) -> None:
        for seed in range(self.job.seeds):
            row = {"step": step, "seed": self.job.seed + seed} | {k: float(v[seed]) for k, v in metrics.items()}
            if logs.metrics:
                logs.metrics.add(row)
            if logs.board:
                logs.board.add(f"train/seed_{self.job.seed + seed}", row, step)
        if logs.timing:
            logs.timing.add({"step": step, "seconds": round(seconds, 3), "steps_per_s": round(rate, 1)})

    def _evaluate(self, phase: TrainingPhase, learner: Any) -> dict[str, list[float]]:
        return measures(
            phase, hosts.on_host(learner.weights), alone=any(other.hints_from != NO_HINTS for _, other in self.phases)
        )

    def _record(self, logs: Logs, step: int, hints_from: str, evaluation: Mapping[str, list[float]]) -> None:
        for seed in range(self.job.seeds):
            own = {name: values[seed] for name, values in evaluation.items()}
            row = {"step": step, "seed": self.job.seed + seed}
            if logs.evaluations:
                logs.evaluations.add(row | own | {"hints_from": hints_from})
            if logs.board:
                logs.board.add(f"evaluation/seed_{self.job.seed + seed}", row | own, step)

    def _save(self, learner: Any, step: int) -> None:
        game = self.phases[0][1].game
        learner = hosts.gathered(learner)
        checkpoint.write(self.folder / "checkpoints", learner, step, game, self.job.model_dump(mode="json"))

    def _rescue(self, progress: Progress, first_step: int) -> None:
        """Saves what was done, in another thread, when Ctrl-C comes while the main thread compiles or computes."""
        if progress.kept is not None and progress.kept[1] > first_step:
            self._save(*progress.kept)
            self._describe()

    def _draw(self) -> None:
        if self.job.logging.csv:
            LearningCurve(self.folder, self.notes).draw(self.phases[0][1].game.name)

    def _every(self, steps: int | None, parts: int = 10) -> int:
        """A cadence in steps, a whole number of updates."""
        return _round_up(steps or max(1, self.job.train.num_train_steps // parts), self._batch)

    def _due(self, cadence: int | None, step: int) -> bool:
        return step % self._every(cadence) == 0

    def _next_stop(self, step: int) -> int:
        """Where the host is next needed: for a row, an evaluation, a checkpoint or the end."""
        options = self.job.logging
        cadences = self._every(options.log_every, 200), self._every(options.eval_every), self._every(options.save_every)
        return min(*((step // every + 1) * every for every in cadences), self._total_steps)


@dataclass
class Logs:
    metrics: CsvRows | None
    evaluations: CsvRows | None
    timing: CsvRows | None
    board: Tensorboard | None

    def close(self) -> None:
        with ExitStack() as stack:  # closes all of them, even if one fails on a full disk
            for log in (self.metrics, self.evaluations, self.timing, self.board):
                if log is not None:
                    stack.callback(log.close)


def _means(evaluation: Mapping[str, list[float]]) -> dict[str, float]:
    return {f"eval_{name}": float(np.mean(values)) for name, values in evaluation.items()}


def _round_up(steps: int, batch: int) -> int:
    return -(-steps // batch) * batch


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
