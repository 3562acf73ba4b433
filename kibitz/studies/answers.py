"""The reports of hint studies and sweeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from kibitz.studies.cells import MODEL
from kibitz.studies.findings import (
    Found,
    PairedComparison,
    Yardstick,
    as_data,
    compared,
    comparison_table,
    corrected,
    cost_table,
    curve_figure,
    final_table,
    found,
    threshold_table,
    verdicts,
    yardstick_of,
)
from kibitz.studies.reports.provenance import provenance, seed_range
from kibitz.studies.reports.report import Report, Verdict
from kibitz.studies.study import Study

ALGORITHMS = {"ppo": "PPO", "reinforce": "REINFORCE"}
FINAL, HEARD, CURVE = "final result alone", "final result with hints heard", "mean of the curve alone"
MAX_CURVES = 8  # in one figure
HINT_NOTES = (
    "Alone: the learner plays without hints in its ear, which shows what it has learnt. Hints heard: it hears its "
    "adviser as in training, which also shows whether it follows.",
    "Seeds are paired: the same seed gives the same first network in every cell, and all cells play the same deals "
    "in their evaluations.",
    "Shuffled hints are the expert's, each given to another game of the batch: as many and as good in sum, but "
    "without meaning for the position.",
)
MODEL_NOTE = (
    "Evaluations along the way do not ask a model. At the end the policies play {episodes} deals with the model in "
    "the ear; the difference from the same deals without it is added to the result alone."
)


def study_report(study: Study) -> Report:
    """The report of the cells that have finished."""
    results = study.results()
    yardstick = yardstick_of(results)
    make = _hints if study.asked["kind"] == "hints" else _sweep
    title, summary, cells, comparisons, made, figures, notes = make(study, results, yardstick)
    if len(results) < len(study.cells):
        summary += f" Only {len(results)} of {len(study.cells)} cells have finished; --resume continues the study."
    parts: list[Any] = [*figures, final_table(cells, yardstick)]
    if yardstick.percent:
        parts.append(threshold_table(cells, yardstick))
    parts += [cost_table(cells), *([comparison_table(comparisons, yardstick)] if comparisons else [])]
    data = {
        "kind": study.asked["kind"],
        "game": study.asked["game"],
        "complete": len(results) == len(study.cells),
        "yardstick": yardstick.name,
        **as_data(cells, comparisons),
    }
    facts = provenance(
        seed_range(study.asked["seed"], study.asked["seeds"]),
        sum(result["seconds"] for result in results),
        study.command,
    )
    return Report(title, summary, facts, made, parts, notes, data)


def _label(result: Mapping[str, Any]) -> str:
    """The source and how often it speaks."""
    cadence = result["cadence"]
    often = "" if cadence is None else ", every step" if cadence == 1 else f", every {cadence} steps"
    return f"{result['source']}{often}"


def _phrase(result: Mapping[str, Any]) -> str:
    source, *often = _label(result).split(", ")
    return " ".join([{"none": "no"}.get(source, source), "hints", *often])


def _hints(study: Study, results: Sequence[Mapping[str, Any]], yardstick: Yardstick) -> Any:
    game, figures, comparisons, everything = study.asked["game"], [], [], list[Found]()
    algos: list[str] = study.asked["algos"]
    for algo in algos:
        own = [result for result in results if result["algorithm"] == algo]
        title = ALGORITHMS.get(algo, algo)
        cells = [found(result, _label(result), result["source"] != "none", yardstick) for result in own]
        if not cells:
            continue
        figures.append(
            curve_figure(f"{title}: alone", cells, yardstick, False, "Mean of the seeds with its 95 % band.")
        )
        heard = [
            cell
            for cell, result in zip(cells, own, strict=True)
            if cell.heard is not None or result["source"] == "none"
        ]
        if len(heard) > 1:
            note = "Mean of the seeds with its 95 % band. Models are not asked along the way."
            figures.append(curve_figure(f"{title}: hints heard", heard, yardstick, True, note))
        for one, other in _pairs(own):
            subject = f"{title}, {_phrase(own[one])} against {_phrase(own[other])}"
            comparisons += _measured(subject, cells[one], cells[other])
        everything += [
            found(result, f"{title}: {_label(result)}", result["source"] != "none", yardstick) for result in own
        ]
    family = corrected(comparisons)
    shown = sum(one.shown for one in family)
    summary = (
        f"{len(results)} cells: algorithm x source of hints x cadence on {game}, trained from the same seeds. "
        f"{shown} of {len(family)} comparisons show a difference after Holm's correction."
    )
    episodes = next((result["heard_episodes"] for result in results if result.get("heard_episodes")), None)
    notes = [*HINT_NOTES, *([MODEL_NOTE.format(episodes=episodes)] if episodes else [])]
    if len({len(cell.seeds) for cell in everything}) > 1:
        notes.append("Some cells have fewer seeds than others; a comparison uses the seeds that both cells have.")
    return (
        f"Do hints help? {game}", summary, everything, family, verdicts(family, yardstick), figures, notes
    )  # fmt: skip


def _pairs(results: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """Every source against none, the expert against its shuffled hints, every model against the one before it."""
    number = {(result["source"], result["cadence"]): i for i, result in enumerate(results)}
    none = number.get(("none", None))
    pairs = [] if none is None else [(i, none) for i in range(len(results)) if i != none]
    pairs += [
        (i, number["shuffled", cadence])
        for (source, cadence), i in number.items()
        if source == "expert" and ("shuffled", cadence) in number
    ]
    for cadence in dict.fromkeys(result["cadence"] for result in results):
        models = [i for (source, often), i in number.items() if source.startswith(MODEL) and often == cadence]
        pairs += [(later, earlier) for earlier, later in pairwise(models)]
    return pairs


def _measured(subject: str, one: Found, other: Found) -> list[PairedComparison]:
    return [
        compared(subject, FINAL, one.final, other.final),
        compared(subject, HEARD, one.final_heard, other.final_heard),
        compared(subject, CURVE, one.curve_mean, other.curve_mean),
    ]


def _sweep(study: Study, results: Sequence[Mapping[str, Any]], yardstick: Yardstick) -> Any:
    game, figures, comparisons, everything = study.asked["game"], [], list[PairedComparison](), list[Found]()
    for algo in study.asked["algos"]:
        own = [result for result in results if result["algorithm"] == algo]
        title = ALGORITHMS.get(algo, algo)
        cells = [found(result, result["setting"], False, yardstick) for result in own]
        if not cells:
            continue
        base, rest = cells[0], cells[1:]
        best = [base, *sorted(rest, key=lambda cell: -cell.final.mean())[: MAX_CURVES - 1]]
        figures.append(curve_figure(f"{title}: the best settings", best, yardstick, False, "Mean with its 95 % band."))
        comparisons += [
            compared(f"{title}, {cell.label} against the config", "final result", cell.final, base.final)
            for cell in rest
        ]
        everything += [found(result, f"{title}: {result['setting']}", False, yardstick) for result in own]
    everything.sort(key=lambda cell: -cell.final.mean())
    family = corrected(comparisons)
    made = [verdict for verdict in verdicts(family, yardstick) if verdict.shown]
    if rest_count := len(family) - len(made):
        made.append(
            Verdict(f"For {rest_count} of {len(family)} settings no difference from the config was shown.", False)
        )
    summary = (
        f"{len(results)} settings on {game}, trained from the same seeds, best first. The best of many settings is "
        "partly lucky: train it again with other seeds before you rely on its figure."
    )
    return f"Sweep: {game}", summary, everything, family, made, figures, ()
