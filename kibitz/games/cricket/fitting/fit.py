"""Fits a model to the calibration tables: numbers only, with source and date.

`from_tables` reads what the tables state directly. Simulation fits the base rates: default captains play
thousands of matches, and the base rates move until the shares by over match the smoothed real ones. The
numbers are few and smooth because other matches judge the fit.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from kibitz.core.errors import BadInput
from kibitz.core.system.paths import write_whole
from kibitz.games.cricket.fitting.fit_winprob import fit_winprob
from kibitz.games.cricket.fitting.from_tables import TAIL_CARE, from_tables
from kibitz.games.cricket.fitting.simulate import POOL, deliveries, innings
from kibitz.games.cricket.fitting.tables import PHASES, RATE_BINS, Floats, Tables, number, shares
from kibitz.games.cricket.model.calibration import ERAS, TAIL_WICKETS, calibration, load, model_file
from kibitz.games.cricket.model.delivery import phase_of
from kibitz.games.cricket.options import CricketOptions

Report = Callable[[str], None]


def plain(value: Any) -> Any:
    """Arrays as rounded lists, for JSON."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return round(value, 4) if isinstance(value, float) else value


def new_file(name: str) -> Path:
    """The file of a new model, checked before the work starts: a name keeps its meaning, so none is replaced."""
    file = model_file(name)
    if file.exists():
        raise BadInput(f"There is already a model {name!r}; choose another --name, or delete {str(file)!r} first.")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_write(file, error) from None
    return file


def save(fitted: dict[str, Any], file: Path) -> None:
    """Writes one line per innermost list, for readable diffs."""
    text = json.dumps(plain(fitted), indent=1)
    text = re.sub(r"\[\s+((?:[-\d.e]+,\s+)*[-\d.e]+)\s+\]", lambda m: "[" + re.sub(r"\s+", " ", m[1]) + "]", text)
    try:
        write_whole(file, text + "\n")
    except OSError as error:
        raise _cannot_write(file, error) from None
    load.cache_clear()


def _cannot_write(file: Path, error: OSError) -> BadInput:
    folder = str(file.parent)
    return BadInput(f"Cannot write to {folder!r} ({error.strerror}); set XDG_CACHE_HOME to choose another folder.")


def _over_shares(balls: Any, second: int) -> Floats:
    """f64[20, outcomes] of simulated twenty-over matches."""
    here = (balls.live == 1) & (balls.supers == 0) & (balls.second == second)
    cells = (balls.legal[here] // 6).astype(int) * 10 + balls.outcome[here]
    table = np.bincount(cells, minlength=200).reshape(20, 10) + 1e-3
    result: Floats = table / table.sum(1, keepdims=True)
    return result


COMMON = np.array([1, 0, 1, 0, 1, 1, 1, 0, 0, 0])  # outcomes common enough to fit slopes
RATE_EDGES = (4, 6, 7, 8, 9, 10, 11, 12, 14, 17, 22)  # required rates, in runs per over


def _chase_cells(balls: Any, runs_left: Floats) -> tuple[Floats, Floats]:
    """Counts of outcomes in simulated chases [phase, rate, outcome], and summed hinges [phase, rate, 2]."""
    here = (balls.live == 1) & (balls.supers == 0) & (balls.second == 1)
    legal, needed = balls.legal[here].astype(int), balls.needed[here].astype(float)
    over = legal // 6
    cell = phase_of(over) * 12 + np.digitize(6 * needed / (120 - legal), RATE_EDGES)
    log_rate_needed = np.clip(np.log(np.maximum(needed, 1) / np.maximum(runs_left[legal], 1)), -1.2, 1.2)
    hinges = np.minimum(log_rate_needed, 0), np.maximum(log_rate_needed - 0.3, 0)
    tally = np.bincount(cell * 10 + balls.outcome[here], minlength=360).reshape(3, 12, 10)
    sums = [np.bincount(cell, h, minlength=36) for h in hinges]
    return np.asarray(tally, np.float64), np.asarray(np.stack(sums, axis=-1).reshape(3, 12, 2), np.float64)


def calibrate(fitted: dict[str, Any], tables: Tables, rounds: int, matches: int, report: Report) -> None:
    """Moves the base rates until default captains reproduce the smoothed shares by over.

    All eras share the effects of a chase: an offset in each phase, and two hinges of pressure,
    regressed on the outcomes by required rate.
    """
    seen = {(row["phase"], row["rrrb"]): row for row in tables.rows("outcome_chase_by_phase_rrr")}
    real = np.zeros((3, 12, 10))
    for (phase, rate), row in seen.items():
        real[PHASES.index(phase), RATE_BINS.index(rate)] = shares(row) * number(row, "deliveries")
    real_down = np.zeros((3, 9, 10))
    for row in tables.rows("outcome_by_phase_wickets"):
        real_down[PHASES.index(row["phase"]), int(row["wkb"][0])] = shares(row) * number(row, "deliveries")
    played = [sum(row["era"] == era for row in tables.rows("innings_rows")) / 2 for era in ERAS]
    for turn in range(rounds):
        pace = 1.0 if turn < rounds // 2 else 0.5  # smaller steps at the end average out the noise
        ours, hinges = np.zeros((3, 12, 10)), np.zeros((3, 12, 2))
        down, excess = np.zeros((3, 9, 10)), np.zeros((3, 9, 1))
        for era, weight in zip(ERAS, played, strict=True):
            settings, balls, final, change = _match_overs(fitted, era, turn, matches, pace)
            runs_left = np.asarray(settings.par.runs_left).reshape(3, 121)[ERAS.index(era)]
            cells, sums = _chase_cells(balls, runs_left)
            ours, hinges = ours + cells * weight, hinges + sums * weight
            cells, sums = _wicket_cells(balls, np.asarray(settings.par.wickets))
            down, excess = down + cells * weight, excess + sums * weight
            rows = innings(balls, final, 36, 20)
            first = rows["inn"] == 1
            report(
                f"round {turn}, {era}: first innings {rows['total'][first].mean():.1f} "
                f"+- {rows['total'][first].std():.1f}, wickets {rows['wkts'][first].mean():.2f}, "
                f"all out {(rows['wkts'][first] == 10).mean():.3f}, chases won {rows['won'][~first].mean():.3f}, "
                f"largest change {change:.3f}"
            )
        offsets, slopes = _step(real, ours, hinges, 30.0)
        per_wicket = _step(real_down, down, excess, 30.0)[1][0]
        fitted["excess_wickets"] = np.asarray(fitted["excess_wickets"]) + pace * per_wicket * COMMON
        fitted["pressure"] = np.asarray(fitted["pressure"]) + pace * slopes * COMMON
        for era in ERAS:
            fitted["eras"][era]["second"] = np.asarray(fitted["eras"][era]["second"]) + pace * offsets


def _match_overs(fitted: dict[str, Any], era: str, turn: int, matches: int, pace: float) -> tuple[Any, Any, Any, float]:
    """Moves an era's base rates towards the real shares by over: settings, balls and final states before, change."""
    mine = fitted["eras"][era]
    settings = CricketOptions.read({"max_overs": 20, "era": era, "pool": POOL, "seed": 1}).settings(fitted)
    balls, final = deliveries(settings, matches, 1000 + turn)
    ratio = np.log(np.asarray(mine["share"]) / _over_shares(balls, 0))
    change = ratio - ratio[:, 1:2]
    mine["base"] = np.asarray(mine["base"]) + pace * change
    return settings, balls, final, float(np.abs(change[:, [0, 4, 5, 6]]).max())


def settle_tail(fitted: dict[str, Any], rounds: int, matches: int, report: Report) -> None:
    """Gives each era its careful tail, then moves the base rates until the shares by over match again.

    The effects of a chase and of excess wickets keep their values: fitted again, they would undo the care,
    because the tables do not contain all matches that it comes from.
    """
    for era, care in TAIL_CARE.items():
        fitted["eras"][era]["tail"] = [care ** (k + 1) for k in range(10 - TAIL_WICKETS)]
        for turn in range(rounds if care != 1 else 0):
            *_, change = _match_overs(fitted, era, turn, matches, 1.0 if turn < rounds // 2 else 0.5)
            report(f"tail, round {turn}, {era}: largest change {change:.3f}")


def _wicket_cells(balls: Any, par_wickets: Floats) -> tuple[Floats, Floats]:
    """Counts of outcomes in simulated innings [phase, wickets down, outcome], and summed excess wickets."""
    here = (balls.live == 1) & (balls.supers == 0)
    legal, wickets = balls.legal[here].astype(int), balls.wickets[here].astype(int)
    over = legal // 6
    cell = phase_of(over) * 9 + np.minimum(wickets, 8)
    excess = np.clip(wickets - par_wickets[legal], -3, 4)
    tally = np.bincount(cell * 10 + balls.outcome[here], minlength=270).reshape(3, 9, 10)
    return np.asarray(tally, np.float64), np.asarray(
        np.bincount(cell, excess, minlength=27).reshape(3, 9, 1), np.float64
    )


def _step(real: Floats, ours: Floats, sums: Floats, ridge: float) -> tuple[Floats, Floats]:
    """Offsets by phase and slopes of features that move simulated cells [phase, .., outcome] to the real ones."""
    total = ours.sum(-1).reshape(-1)
    keep = (real.sum(-1).reshape(-1) > 200) & (total > 200)
    mean = sums.reshape(len(total), -1)[keep] / total[keep, None]
    a, b = real.reshape(-1, 10)[keep], ours.reshape(-1, 10)[keep]
    b = b * (a.sum(1) / b.sum(1))[:, None]
    pad = 20 * b / b.sum(1, keepdims=True) + 0.5  # half a ball: a cell may lack a rare outcome
    ratio = np.log((a + pad) / (b + pad))
    ratio = ratio - ratio[:, 1:2]
    phase = np.repeat(np.arange(3), real.shape[1])[keep]
    design = np.concatenate([np.eye(3)[phase], mean], axis=1)
    weight = a.sum(1)
    normal = (design * weight[:, None]).T @ design + np.diag([1.0] * 3 + [ridge] * mean.shape[1])
    beta = np.linalg.solve(normal, (design * weight[:, None]).T @ ratio)
    return beta[:3], beta[3:]


def fit_rates(tables: Tables, rounds: int, matches: int, report: Report) -> dict[str, Any]:
    """Everything but win probability. Starts from the shipped rates, from which a few rounds converge."""
    fitted, shipped = from_tables(tables), calibration()
    for name in ("pressure", "excess_wickets"):
        fitted[name] = np.array(shipped[name])
    for era in ERAS:
        for name in ("base", "second"):
            fitted["eras"][era][name] = np.array(shipped["eras"][era][name])
    calibrate(fitted, tables, rounds, matches, report)
    settle_tail(fitted, rounds, matches, report)
    return fitted


def fit(
    tables: Tables, name: str, rounds: int = 8, matches: int = 8192, report: Report = print, *, ball_model: bool = True
) -> Path:
    """Writes a new model into the user's folder; takes a few minutes on two cores.

    `ball_model=False` keeps the shipped ball model and fits only win probability.
    """
    file = new_file(name)
    fitted = fit_rates(tables, rounds, matches, report) if ball_model else copy.deepcopy(calibration())
    fit_winprob(fitted, tables)
    save(fitted, file)
    return file
