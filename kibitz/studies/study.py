"""A study: cells that are trained one after the other, or by several workers, each committed as it finishes.

The folder holds `study.json` (what was asked for, and every cell's whole config), `cells/NAME/` (a training run, with
`result.json` once it has finished) and the report. A killed study continues: finished cells are kept, the one that
was training goes on from its newest checkpoint, and questions to models are answered from `answers.sqlite`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kibitz.advice.ask import PositionAsker
from kibitz.core.bots import NO_HINTS, seated
from kibitz.core.errors import BadInput
from kibitz.core.play.player import BotPlayer
from kibitz.core.statistics import finite
from kibitz.core.system.paths import write_whole
from kibitz.core.work.executor import Executor, Here, Item, Work
from kibitz.evaluate import match
from kibitz.studies.cells import Cell, hint_cells, sweep_cells
from kibitz.train.config import Job
from kibitz.train.llm_hints.player import HintedPolicy
from kibitz.train.opponents import game_of, policy_of, preset_of, prompt_of
from kibitz.train.phase import EVALUATION_SEED, TrainingPhase, build_phases
from kibitz.train.run import checkpoint
from kibitz.train.run.evaluation import WITHOUT_HINTS
from kibitz.train.run.folder import written_by_us
from kibitz.train.run.logs import read_rows
from kibitz.train.run.run import Run

COSTS = ("asked", "calls", "hits", "failed", "prompt_tokens", "completion_tokens", "money")
Report = Callable[[Cell, dict[str, Any]], None]
MAKERS = {"hints": hint_cells, "sweep": sweep_cells}


@dataclass
class Study:
    folder: Path
    asked: dict[str, Any]
    cells: list[Cell]
    command: list[str]  # that started it, without the program
    report: Report = lambda cell, progress: None

    @classmethod
    def new(cls, folder: Path, asked: dict[str, Any], command: Sequence[str]) -> Study:
        """Checks every cell before anything is written."""
        study = cls(folder, asked, MAKERS[asked["kind"]](asked), list(command))
        try:
            if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
                raise BadInput(f"{folder} is not empty; choose another --out, or --resume the study in it.")
            for cell in study.cells:
                build_phases(cell.job, _devices())
            cells = [
                {"name": cell.name, "labels": cell.labels, "job": cell.job.model_dump(mode="json")}
                for cell in study.cells
            ]
            folder.mkdir(parents=True, exist_ok=True)
            record = {"command": study.command, "asked": asked, "cells": cells}
            write_whole(folder / "study.json", json.dumps(record, indent=1) + "\n")
        except OSError as error:
            raise BadInput(f"{folder} cannot hold a study ({error.strerror}); choose another --out.") from None
        return study

    @classmethod
    def resumed(cls, folder: Path, given: Mapping[str, Any]) -> Study:
        """The study in a folder. Arguments may repeat what it was started with, but not change it."""
        try:
            record = _read(folder / "study.json")
            asked, command = dict(record["asked"]), list(record["command"])
            cells = [
                Cell(cell["name"], cell["labels"], Job.read(cell["job"], "key of the study's config"))
                for cell in record["cells"]
            ]
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, BadInput):
                raise
            raise BadInput(f"There is no study to resume in {folder}; start it without --resume.") from None
        for name, value in given.items():
            if asked.get(name) != value:
                option = f"--{name.replace('_', '-')}" if name != "kind" else "kind"
                raise BadInput(
                    f"{option} is {value!r} here but {asked.get(name)!r} in {folder}; --resume cannot change a study."
                )
        return cls(folder, asked, cells, command)

    def results(self) -> list[dict[str, Any]]:
        """What the finished cells have shown, in their order."""
        return [_read(self._result(cell)) for cell in self.cells if self._finished(cell)]

    def run(self, executor: Executor | None = None) -> bool:
        """Trains every cell that has not finished; False if Ctrl-C stopped it."""
        cells = {cell.name: cell for cell in self.cells if not self._finished(cell)}
        work = Work(opened, _train_cell, {"folder": str(self.folder.resolve())}, trains=True, here=self)
        items = (Item({"name": name, "job": cell.job.model_dump(mode="json")}) for name, cell in cells.items())
        with written_by_us(self.folder):
            trained = (executor or Here()).run(
                work, items, lambda item, progress: self.report(cells[item.arguments["name"]], progress)
            )
            return all(finished for _, finished in trained)

    def _finished(self, cell: Cell) -> bool:
        return self._result(cell).is_file()

    def _result(self, cell: Cell) -> Path:
        return self.folder / "cells" / cell.name / "result.json"

    def train(self, cell: Cell, report: Callable[[dict[str, Any]], None]) -> bool:
        """Trains one cell, from its newest checkpoint if it has one; False if Ctrl-C stopped it."""
        folder = self.folder / "cells" / cell.name
        started = (folder / "config.yaml").is_file()
        if folder.exists() and not started:
            shutil.rmtree(folder)  # killed before its first file was complete
        run = Run(self._job(cell), folder, report)
        summary = run.train(resume=started)
        if not summary["finished"]:
            return False
        result = {"name": cell.name, **cell.labels, "adviser": summary["adviser"]}
        result |= _curves(folder, self._job(cell)) | _costs(folder, summary)
        phase = run.phases[-1][1]
        if phase.job.hints.mode == "llm":
            result |= _heard_from_model(phase, folder, self.asked.get("model_episodes", 0))
        if result["share"] is None:
            result["reference"] = _reference_return(phase)
        write_whole(self._result(cell), json.dumps(finite(result)) + "\n")
        return True

    def _job(self, cell: Cell) -> Job:
        """Answers of models are kept in the study's folder, so that its costs are its own."""
        hints = cell.job.hints
        if hints.cache != "auto":
            return cell.job
        hints = hints.model_copy(update={"cache": str(self.folder / "answers.sqlite")})
        return cell.job.model_copy(update={"hints": hints})


def opened(spec: Mapping[str, Any]) -> Study:
    """In a worker, which must see the study's folder under the same path."""
    return Study.resumed(Path(spec["folder"]), {})


def _train_cell(study: Study, item: Mapping[str, Any], report: Callable[[Any], None]) -> bool:
    """An item of work."""
    return study.train(next(cell for cell in study.cells if cell.name == item["name"]), report)


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _devices() -> tuple[Any, ...]:
    return tuple(jax.local_devices())


def _curves(folder: Path, job: Job) -> dict[str, Any]:
    """Evaluations over the steps, [seeds][evaluations]: as heard in training, and without hints."""
    rows = read_rows(folder / "evaluations.csv", "step", "seed", "return_mean")
    seeds = list(range(job.seed, job.seed + job.seeds))
    steps = sorted({int(float(row["step"])) for row in rows})
    at = {(int(float(row["seed"])), int(float(row["step"]))): row for row in rows}
    heard = rows[0]["hints_from"] != NO_HINTS

    def table(name: str) -> list[list[float]] | None:
        return [[float(at[seed, step][name]) for step in steps] for seed in seeds] if name in rows[0] else None

    alone = WITHOUT_HINTS if heard else ""
    return {
        "seeds": seeds,
        "steps": steps,
        "return": table(f"{alone}return_mean"),
        "share": table(f"{alone}share_of_ceiling"),
        "heard_return": table("return_mean") if heard else None,
        "heard_share": table("share_of_ceiling") if heard else None,
    }


def training_seconds(folder: Path) -> float:
    """Of a run, with all of its resumptions."""
    return max(float(row["seconds"]) for row in read_rows(folder / "timing.csv", "seconds"))


def _costs(folder: Path, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds of all parts of the run, and what its questions cost."""
    usage = summary.get("hints")
    cost = {name: usage[name] for name in COSTS} if usage else None
    return {"seconds": training_seconds(folder), "cost": cost}


def _heard_from_model(phase: TrainingPhase, folder: Path, episodes: int) -> dict[str, Any]:
    """The final policies with the model in the ear, on the first deals of the evaluation; asks the model.

    So few deals would add their own luck, so only the difference from the same deals without hints is used.
    """
    if not episodes:
        return {}
    job, game, hints = phase.job, phase.game, phase.job.hints
    saved = checkpoint.find(str(folder))
    returns, scores = phase.judge(jnp.asarray(saved.leaves["weights"]), heard=False)
    alone = np.asarray(returns, float)[:, :episodes, 0].mean(1)
    ceiling = np.asarray(scores["ceiling"], float)[:, :episodes, 0].mean(1) if "ceiling" in scores else None
    opponent = BotPlayer(game, phase.compiled.opponent or game.bot(game.fallback))
    gains = []
    with PositionAsker(
        game, preset_of(hints), prompt=prompt_of(hints, game), cache=hints.cache, budget=hints.budget
    ) as asker:
        for seed in range(job.seeds):
            learner = HintedPolicy(game, policy_of(saved, game, seed), "learner", asker, hints.cadence_k, phase.advice)
            played = match.play_hosts(
                game, phase.settings, [learner, opponent], episodes, EVALUATION_SEED + job.seed, lambda count: None
            )
            if played.interrupted:
                raise KeyboardInterrupt
            gains.append(float(played.returns[:, 0].mean() - alone[seed]))
        cost = asker.ledger.as_dict()
    shares = None if ceiling is None else [gain / worth for gain, worth in zip(gains, ceiling, strict=True)]
    return {
        "heard_gain": gains,
        "heard_gain_share": shares,
        "heard_episodes": episodes,
        "heard_cost": {name: cost[name] for name in COSTS},
    }


def _reference_return(phase: TrainingPhase) -> float:
    """What the game's reference player earns on the evaluation's deals."""
    game, job = phase.game, phase.job
    bots = (game.bot(game.reference), phase.compiled.opponent or game.bot(game.fallback))
    settings = seated(game_of(job)[1].settings(), dict(enumerate(bots)))
    played = match.play_bots(
        game, settings, bots, job.logging.eval_episodes, EVALUATION_SEED + job.seed, lambda count: None
    )
    return float(played.returns[:, 0].mean())
