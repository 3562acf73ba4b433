"""How likely the batting side is to win, and what a par score is.

A chase is solved backwards over (balls left, runs needed, wickets left) with the rates of default
captains, on a grid of levels of the match; what the first side made says which level is likely. A
first innings is projected with what is left of it. Both were fitted on simulated matches and then
set straight on real chases.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kibitz.core.errors import BadInput
from kibitz.games.cricket.calibration import ERAS, calibration
from kibitz.games.cricket.course import course

Floats = NDArray[np.float64]
MOST = 300  # runs needed beyond which a chase is as good as lost
LEVELS = np.array([-0.18, -0.09, 0.0, 0.09, 0.18])  # of the match, in log runs
INPUTS = ("balls_left", "runs_needed", "wickets_left", "first_innings_total")
FEATURES = 30  # overs 20, eras 2, ahead, behind, worn, level, and 6, 7, 8, 9 wickets down


def ball_features(over: Any, era: Any, behind: Any, worn: Any, level: Any, down: Any) -> Floats:
    """f64[.., FEATURES] of a ball in a chase, as broadcast."""
    over, era, behind, worn, level, down = np.broadcast_arrays(over, era, behind, worn, level, down)
    columns = [over == i for i in range(20)] + [era == 1, era == 2]
    columns += [np.minimum(behind, 0), np.maximum(behind - 0.3, 0), worn, level]
    columns += [down >= 6, down >= 7, down >= 8, down >= 9]
    return np.stack([np.asarray(c, np.float64) for c in columns], axis=-1)


@cache
def chase_table(era: int) -> NDArray[np.float32]:
    """f32[level, balls left 0..120, wickets left 0..10, runs needed 0..MOST], chance of the batting side."""
    return solve(calibration(), era)


def solve(fitted: dict[str, Any], era: int) -> NDArray[np.float32]:
    beta = np.asarray(fitted["chase"]["rates"])
    path = course(20, fitted)
    rest = np.asarray(path.rest, np.float64).reshape(3, 121)[era]
    usual = np.asarray(path.wickets, np.float64)
    needed = np.arange(MOST + 1)
    left = np.arange(11)[:, None]  # wickets
    table = np.zeros((len(LEVELS), 121, 11, MOST + 1), np.float32)
    table[..., 0] = 1
    for n, level in enumerate(LEVELS):
        for balls in range(1, 121):
            legal = 120 - balls
            behind = np.clip(np.log(np.maximum(needed, 1) / max(rest[legal], 1.0)), -1.2, 1.2)[None, :]
            worn = np.clip(10 - left - usual[legal], -3, 4)
            design = ball_features(legal // 6, era, behind, worn, level, 10 - left)
            logits = design @ beta
            p = np.exp(logits - logits.max(-1, keepdims=True))
            p /= p.sum(-1, keepdims=True)
            table[n, balls] = _back(p, table[n, balls - 1].astype(np.float64))
            table[n, balls, 0] = 0
            table[n, balls, :, 0] = 1
    return table


def _back(p: Floats, after: Floats) -> Floats:
    """One ball back: `p` is [wickets, needed, outcome], `after` the values with a ball less."""

    def less(values: Floats, runs: int) -> Floats:
        moved = np.ones_like(values)
        moved[:, runs:] = values[:, : values.shape[1] - runs]
        return moved

    fallen = np.concatenate([np.zeros_like(after[:1]), after[:-1]])
    legal = sum(p[..., k] * less(after, runs) for k, runs in ((0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 6)))
    legal = legal + p[..., 6] * fallen + p[..., 9] * (0.85 * less(after, 1) + 0.15 * less(after, 4))
    # wides and no-balls leave the ball to be bowled again; three rounds are exact to a thousandth
    now = legal / (1 - p[..., 7] - p[..., 8])
    for _ in range(3):
        again = p[..., 7] * (0.96 * less(now, 1) + 0.04 * less(now, 5))
        again = again + p[..., 8] * (
            0.45 * less(now, 1) + 0.35 * less(now, 2) + 0.13 * less(now, 5) + 0.07 * less(now, 7)
        )
        now = legal + again
    return np.asarray(np.clip(now, 0, 1))


def lookup(table: NDArray[np.float32], balls: Any, needed: Any, wickets: Any, level: Any) -> Floats:
    """The table at a level between its grid points."""
    b = np.clip(np.asarray(balls), 0, 120).astype(int)
    n = np.clip(np.asarray(needed), 0, MOST).astype(int)
    w = np.clip(np.asarray(wickets), 0, 10).astype(int)
    at = np.clip((np.asarray(level, np.float64) - LEVELS[0]) / (LEVELS[1] - LEVELS[0]), 0, len(LEVELS) - 1.001)
    low = at.astype(int)
    part = at - low
    result: Floats = (1 - part) * table[low, b, w, n] + part * table[low + 1, b, w, n]
    return result


def raw(tables: list[NDArray[np.float32]], fitted: dict[str, Any], era: Any, states: Mapping[str, Any]) -> Floats:
    """Before it is set straight. The unknown part of the level is averaged over."""
    chase = fitted["chase"]
    era = np.asarray(era)
    pars = np.array([chase["par"][name] for name in ERAS])[era]
    guess = chase["level_slope"] * np.log(np.maximum(states["first_innings_total"], 1) / pars)
    total = np.zeros(np.shape(guess))
    for shift, weight in zip((-1.5, 0.0, 1.5), (0.22, 0.56, 0.22), strict=True):
        level = guess + shift * chase["level_rest"]
        parts = [lookup(t, states["balls_left"], states["runs_needed"], states["wickets_left"], level) for t in tables]
        total = total + weight * np.choose(era, parts)
    return total


def straight(p: Floats, balls: Any, coefficients: Any) -> Floats:
    """Set right on real chases: offset and slopes in log-odds that fade out towards the last ball."""
    p = np.clip(p, 1e-4, 1 - 1e-4)
    odds = np.log(p / (1 - p))
    result: Floats = 1 / (1 + np.exp(-(odds + straightening(odds, balls) @ np.asarray(coefficients))))
    return result


def straightening(odds: Floats, balls: Any) -> Floats:
    """f64[.., 3], what the coefficients of `straight` multiply."""
    faded = 1 - np.exp(-np.asarray(balls) / 10)
    return np.stack([faded, odds * faded, odds * faded * np.asarray(balls) / 120], axis=-1)


def chase(balls: Any, needed: Any, wickets: Any, first_total: Any, era: Any) -> Floats:
    """Chance of the side that chases, elementwise; `era` is an index of ERAS, `first_total` of twenty overs."""
    states = {"balls_left": balls, "runs_needed": needed, "wickets_left": wickets, "first_innings_total": first_total}
    arrays = dict(zip(states, np.broadcast_arrays(*(np.asarray(x, np.float64) for x in states.values())), strict=True))
    eras = np.broadcast_to(np.asarray(era), arrays["balls_left"].shape)
    tables = [chase_table(i) if np.any(eras == i) else chase_table(int(eras.reshape(-1)[0])) for i in range(3)]
    fitted = calibration()
    p = straight(raw(tables, fitted, eras, arrays), arrays["balls_left"], fitted["chase"]["straight"])
    p = np.where(arrays["runs_needed"] <= 0, 1.0, p)
    lost = (arrays["runs_needed"] > 0) & ((arrays["balls_left"] <= 0) | (arrays["wickets_left"] <= 0))
    result: Floats = np.where(lost, 0.0, p)
    return result


def era_weights(total: Any) -> Floats:
    """f64[.., eras]: how likely each era is, knowing only what the first side made."""
    fitted = calibration()["chase"]
    par = np.array([fitted["par"][era] for era in ERAS])
    spread = np.array([fitted["par_sd"][era] for era in ERAS])
    prior = np.array([0.50, 0.26, 0.24])
    z = (np.asarray(total, np.float64)[..., None] - par) / spread
    weight = prior / spread * np.exp(-0.5 * z * z) + 1e-12
    result: Floats = weight / weight.sum(-1, keepdims=True)
    return result


def first_innings(score: Any, legal: Any, wickets: Any, overs: int, era: int) -> Floats:
    """Chance of the side that bats first."""
    fitted = calibration()
    shape = fitted["first"]
    total = projected(score, legal, wickets, overs, era)
    par = par_score(overs, era)
    done = np.asarray(legal) / (6 * overs)
    width = shape["width_start"] + (shape["width_end"] - shape["width_start"]) * done
    z = np.log(np.maximum(total, 1) / par) / width * np.sqrt(overs / 20)
    result: Floats = 1 / (1 + np.exp(-z))
    return result


def projected(score: Any, legal: Any, wickets: Any, overs: int, era: int) -> Floats:
    """What the first side may expect to make."""
    fitted = calibration()
    path = path_of(overs)
    at = np.clip(np.asarray(legal), 0, 120).astype(int)
    rest = np.asarray(path[0])[era][at]
    worn = np.asarray(wickets) - np.asarray(path[1])[at]
    first = fitted["first"]
    result: Floats = np.asarray(score) + rest * np.exp(first["scale"] - first["worn"] * worn)
    return result


def par_score(overs: int, era: int) -> float:
    """What wins half of the matches."""
    fitted = calibration()
    return float(np.asarray(path_of(overs)[0])[era][0] * np.exp(fitted["first"]["par_shift"]))


@cache
def path_of(overs: int) -> tuple[Floats, Floats]:
    path = course(overs, calibration())
    return np.asarray(path.rest, np.float64).reshape(3, 121), np.asarray(path.wickets, np.float64)


def win_probability(
    *, second: bool, score: int, first: int, legal: int, wickets: int, overs: int, era: int, supers: int = 0
) -> float:
    """Chance of the side that is batting, at any moment of a match."""
    if supers:
        left = 6 - legal
        expected = 1.9 * left * (1 - 0.25 * wickets)
        lead = score + expected - (first + 0.5 if second else 11.5)
        return float(1 / (1 + np.exp(-lead / (1.2 * np.sqrt(left + (0 if second else 6) + 0.2) + 0.1))))
    if not second:
        return float(first_innings(score, legal, wickets, overs, era))
    like_twenty = first * calibration()["chase"]["par"][ERAS[era]] / par_score(overs, era)
    return float(chase(6 * overs - legal, first + 1 - score, 10 - wickets, like_twenty, era))


def read_states(path: str | Path) -> tuple[list[str], list[list[str]], dict[str, Floats], NDArray[np.int64] | None]:
    """Header, rows, INPUTS as numbers, and eras where there is such a column."""
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            header, *rows = list(csv.reader(file))
    except (OSError, ValueError, UnicodeDecodeError):
        raise BadInput(f"The states {str(path)!r} cannot be read; give a CSV with {', '.join(INPUTS)}.") from None
    missing = [name for name in INPUTS if name not in header]
    if missing:
        raise BadInput(f"{str(path)!r} has no column {missing[0]!r}; it needs {', '.join(INPUTS)}.")
    numbers = {}
    for name in INPUTS:
        at = header.index(name)
        try:
            numbers[name] = np.array([float(row[at]) for row in rows])
        except (ValueError, IndexError):
            raise BadInput(f"The column {name!r} of {str(path)!r} should hold a number in every row.") from None
    eras = None
    if "era" in header and all(row[header.index("era")] in ERAS for row in rows):
        eras = np.array([ERAS.index(row[header.index("era")]) for row in rows])
    return header, rows, numbers, eras


def score_states(states: Mapping[str, Floats], eras: NDArray[np.int64] | None) -> Floats:
    """The chance of each chase; without an era, of all three by how likely they are."""
    balls, needed, wickets, total = (states[name] for name in INPUTS)
    if eras is not None:
        return chase(balls, needed, wickets, total, eras)
    weight = era_weights(total)
    each = [weight[..., i] * chase(balls, needed, wickets, total, i) for i in range(3)]
    return np.asarray(each[0] + each[1] + each[2])


def write_winprob(states: str | Path, out: str | Path) -> int:
    """Copies the CSV with a column p_win; answers how many rows there were."""
    header, rows, numbers, eras = read_states(states)
    chances = score_states(numbers, eras)
    kept = [i for i, name in enumerate(header) if name != "p_win"]
    with Path(out).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*(header[i] for i in kept), "p_win"])
        writer.writerows([*(row[i] for i in kept), f"{p:.5f}"] for row, p in zip(rows, chances, strict=True))
    return len(rows)
