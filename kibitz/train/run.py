"""One training job from its configuration to its folder.

A run's folder holds `config.yaml` and `run.json` (what was asked for and by what), `metrics.csv` and
`evaluations.csv` (the same for the same seed), `timing.csv` (not the same), `tensorboard/`,
`checkpoints/` and `learning_curve.png`; with hints of a language model also `prompt.txt`.
"""

from __future__ import annotations

import json
import platform
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax
import numpy as np
import yaml

from kibitz.advice.batch import COLUMNS
from kibitz.core.errors import BadInput
from kibitz.core.paths import write_whole
from kibitz.evaluate.statistics import mean_ci95
from kibitz.llm.client.limits import TooManyFailures
from kibitz.train import checkpoint
from kibitz.train.config import Job
from kibitz.train.llm_hints.accounting import NOTE, Whispers
from kibitz.train.logs import Curve, Rows, Tensorboard, read_rows
from kibitz.train.program import Program, build_phases

Report = Callable[[dict[str, Any]], None]


@dataclass
class Run:
    """A job with its folder."""

    job: Job
    folder: Path
    report: Report = lambda told: None
    notes: list[str] = field(default_factory=list)
    _last: dict[str, Any] = field(default_factory=dict)  # what was last reported

    def train(self, resume: bool = False) -> dict[str, Any]:
        """Trains to the end, or until Ctrl-C, and says how it went."""
        phases = self.phases
        program = phases[0][1]
        self.check(resume)
        learner, step = self._start(program, resume)
        whispers = self.whispers
        self._describe()
        batch = program.config.batch
        began, first, before = time.perf_counter(), step, self._seconds_before(step)
        compiling = training = 0.0
        evaluation: dict[str, Any] = {}
        with closing(self._logs(step)) as logs, whispers.at_work(self._describe), _stoppable() as stopped:
            for number, (end, program) in enumerate(phases):
                start = phases[number - 1][0] if number else 0
                if step >= end:
                    continue
                whole = learner  # what can be resumed: before its first update a phase's new games cannot
                if number and step <= _round(start, batch):
                    learner = program.deal_again(learner)
                called = time.perf_counter()
                self._say_life(program, step)
                learner, _ = program.advance(learner, program.settings, 0)
                compiling += time.perf_counter() - called
                while step < end:
                    goal = min(self._next(step, batch), _round(end, batch))
                    called = time.perf_counter()
                    try:
                        learner, metrics = program.advance(learner, program.settings, (goal - step) // batch)
                    except TooManyFailures as failure:
                        self._save(program, whole, step)
                        raise BadInput(
                            f"{failure} The run in {self.folder} is saved at step {step}; --resume goes on with it "
                            f"as it was begun, so another failure_policy needs a new run."
                        ) from None
                    whole = learner
                    told = {name: np.asarray(value, float) for name, value in metrics.items()}
                    if whispers:  # every row of a table has the same columns
                        told |= {name: np.zeros(self.job.seeds) for name in COLUMNS if name not in told}
                    spent = time.perf_counter() - called
                    rate, training = (goal - step) / spent, training + spent
                    hints_rate = float(told["hints_given"].sum()) / spent if whispers else None
                    step = goal
                    if step % self._every(self.job.logging.eval_every, batch) == 0 or step >= self._total(batch):
                        evaluation = self._evaluate(program, learner)
                        self._record(logs, step, evaluation)
                    self._write(logs, step, told, rate, before + time.perf_counter() - began)
                    if step % self._every(self.job.logging.save_every, batch) == 0:
                        self._save(program, learner, step)
                        self._describe()
                    mean = {name: float(value.mean()) for name, value in told.items()}
                    self._last = {"step": step, "steps_per_s": rate, **mean, **_means(evaluation), "notes": self.notes}
                    self._last |= {} if hints_rate is None else {"hints_per_s": hints_rate}
                    self.report(self._last)
                    if stopped():
                        break
                if stopped():
                    break
            finished = step >= self._total(batch)
            self._save(program, learner, step)
            if not evaluation or not finished:  # told, but no row: a run never stopped has none here
                evaluation = self._evaluate(program, learner)
        self._draw(program)
        self._describe()
        seconds = time.perf_counter() - began
        return {
            "run": str(self.folder),
            "finished": finished,
            "steps": step,
            "seconds": round(seconds, 3),
            "compile_seconds": round(compiling, 3),
            "train_seconds": round(training, 3),
            "steps_per_s": round((step - first) * self.job.seeds / max(training, 1e-9), 1),
            "seeds": self.job.seeds,
            **{name: _plain(values) for name, values in evaluation.items()},
            "adviser": phases[-1][1].advice,
            **({"hints": whispers.book()} if whispers else {}),
            "notes": self.notes,
        }

    @cached_property
    def phases(self) -> list[tuple[int, Program]]:
        phases = build_phases(self.job, tuple(jax.local_devices()))
        for _, program in phases:
            for note in program.notes:
                self._note(note)
        return phases

    @cached_property
    def whispers(self) -> Whispers:
        whispers = Whispers((program for _, program in self.phases), self.folder)
        if whispers:
            self._note(NOTE)
        return whispers

    def check(self, resume: bool) -> None:
        """BadInput for whatever would stop the run at its start; nothing is written but the empty folder."""
        folder = self.folder
        with _refused(folder):
            if folder.exists() and not folder.is_dir():
                raise BadInput(f"{folder} is a file; --out should be the run's folder.")
            if resume and not (folder / "config.yaml").is_file():
                raise BadInput(f"There is no run to resume in {folder}; start it without --resume.")
            if not resume and folder.exists() and any(folder.iterdir()):
                raise BadInput(f"{folder} already holds something; choose another --out, or --resume the run in it.")
        whispers = self.whispers
        if resume:
            whispers.check()
            whispers.remember()
        with _refused(folder):  # some folders can only be tried
            folder.mkdir(parents=True, exist_ok=True)

    def _start(self, program: Program, resume: bool) -> tuple[Any, int]:
        """A fresh folder, or the newest whole checkpoint of an old one."""
        if not resume:
            text = yaml.safe_dump(self.job.model_dump(mode="json"), sort_keys=False)
            with _refused(self.folder):
                write_whole(self.folder / "config.yaml", text)
            return program.begin(), 0
        saved, refused = checkpoint.newest(self.folder / "checkpoints")
        self.notes += refused
        if saved is None:
            return program.begin(), 0
        checkpoint.check_fits(saved, program.game)
        step_program = self._program_at(saved.step)
        return step_program.compiled.placed(checkpoint.restore(saved, jax.eval_shape(step_program.begin))), saved.step

    def _program_at(self, step: int) -> Program:
        """Whose games a checkpoint of this step holds: at a border, those of the phase that ends there."""
        phases = self.phases
        return next((p for end, p in phases if step <= _round(end, p.config.batch)), phases[-1][1])

    def _say_life(self, program: Program, step: int) -> None:
        if program.host is not None:
            program.host.pulse = lambda told: self.report({"step": step, **self._last, **told})

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _seconds_before(self, step: int) -> float:
        """What timing.csv says an earlier life took to this step."""
        file = self.folder / "timing.csv"
        rows = read_rows(file) if file.is_file() else []
        return max((float(row["seconds"]) for row in rows if int(float(row["step"])) <= step), default=0.0)

    def _describe(self) -> None:
        phases = self.phases
        about: dict[str, Any] = {
            "kibitz": _version("kibitz"),
            "jax": _version("jax"),
            "equinox": _version("equinox"),
            "optax": _version("optax"),
            "python": platform.python_version(),
            "devices": [str(device) for device in phases[0][1].compiled.devices],
            "seed": self.job.seed,
            "game": phases[0][1].game.name,
            "game_version": phases[0][1].game.version,
            "advisers": [program.advice for _, program in phases],
            "notes": self.notes,
        }
        if self.whispers:
            about["hints"] = self.whispers.book()
        write_whole(self.folder / "run.json", json.dumps(about, indent=2) + "\n")

    def _logs(self, step: int) -> Logs:
        wanted = self.job.logging
        rows = [
            Rows(self.folder / name, step) if wanted.csv else None
            for name in ("metrics.csv", "evaluations.csv", "timing.csv")
        ]
        board = Tensorboard(self.folder / "tensorboard", self.notes) if wanted.tensorboard else None
        return Logs(rows[0], rows[1], rows[2], board)

    def _write(self, logs: Logs, step: int, told: Mapping[str, Any], rate: float, seconds: float) -> None:
        for seed in range(self.job.seeds):
            row = {"step": step, "seed": self.job.seed + seed} | {k: float(v[seed]) for k, v in told.items()}
            if logs.metrics:
                logs.metrics.add(row)
            if logs.board:
                logs.board.add(f"train/seed_{self.job.seed + seed}", row, step)
        if logs.timing:
            logs.timing.add({"step": step, "seconds": round(seconds, 3), "steps_per_s": round(rate, 1)})

    def _evaluate(self, program: Program, learner: Any) -> dict[str, list[float]]:
        """Measures by name, one number for each seed; NaN where a measure does not exist."""
        returns, scores = program.judge(learner.weights)
        paid = np.asarray(returns, float)[:, :, 0]  # f64[seeds, episodes]
        measures = {"return_mean": paid.mean(1)}
        if "ceiling" in scores:
            most = np.asarray(scores["ceiling"], float)[:, :, 0].mean(1)
            measures["share_of_ceiling"] = paid.mean(1) / np.where(most == 0, np.nan, most)
        for name, value in scores.items():
            if name not in ("ceiling", "payoff"):
                measures[name] = np.array([mean_ci95(row)[0] for row in np.asarray(value, float)[:, :, 0]])
        return {name: [float(x) for x in value] for name, value in measures.items()}

    def _record(self, logs: Logs, step: int, evaluation: Mapping[str, list[float]]) -> None:
        for seed in range(self.job.seeds):
            row = {"step": step, "seed": self.job.seed + seed} | {k: v[seed] for k, v in evaluation.items()}
            if logs.evaluations:
                logs.evaluations.add(row)
            if logs.board:
                logs.board.add(f"evaluation/seed_{self.job.seed + seed}", row, step)

    def _save(self, program: Program, learner: Any, step: int) -> None:
        checkpoint.write(self.folder / "checkpoints", learner, step, program.game, self.job.model_dump(mode="json"))

    def _draw(self, program: Program) -> None:
        if self.job.logging.csv:
            Curve(self.folder, self.notes).draw(program.game.name)

    def _total(self, batch: int) -> int:
        return _round(self.job.train.num_train_steps, batch)

    def _every(self, asked: int | None, batch: int, parts: int = 10) -> int:
        """A cadence in steps, a whole number of updates."""
        return _round(asked or max(1, self.job.train.num_train_steps // parts), batch)

    def _next(self, step: int, batch: int) -> int:
        """Where the host next wants to look: a row, an evaluation, a checkpoint or the end."""
        wanted = self.job.logging
        cadences = (
            self._every(wanted.log_every, batch, 200),
            self._every(wanted.eval_every, batch),
            self._every(wanted.save_every, batch),
        )
        return min(*((step // every + 1) * every for every in cadences), self._total(batch))


@dataclass
class Logs:
    metrics: Rows | None
    evaluations: Rows | None
    timing: Rows | None
    board: Tensorboard | None

    def close(self) -> None:
        for log in (self.metrics, self.evaluations, self.timing, self.board):
            if log is not None:
                log.close()


def _plain(values: list[float]) -> list[float | None]:
    """JSON has no NaN: a number that does not exist is null."""
    return [None if np.isnan(value) else value for value in values]


def _means(evaluation: Mapping[str, list[float]]) -> dict[str, float]:
    return {f"eval_{name}": float(np.mean(values)) for name, values in evaluation.items()}


def _round(steps: int, batch: int) -> int:
    return -(-steps // batch) * batch


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


@contextmanager
def _refused(folder: Path) -> Iterator[None]:
    """Whatever the system has against a run's folder is the user's to change."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"{folder} cannot be a run's folder ({error.strerror}); choose another --out.") from None


@contextmanager
def _stoppable() -> Iterator[Callable[[], bool]]:
    """Ctrl-C ends the run after the present step and saves it; a second one ends it at once."""
    asked: list[int] = []

    def stop(number: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    with suppress(ValueError):  # not the main thread: nobody can press Ctrl-C here
        old = signal.signal(signal.SIGINT, stop)
    try:
        yield lambda: bool(asked)
    finally:
        with suppress(ValueError, UnboundLocalError):
            signal.signal(signal.SIGINT, old)
