"""How likely the batting side is to win, and what a par score is.

A chase is solved backwards with the rates of default captains, on a grid of levels of the match; what the
first side made says which level is likely. A first innings is solved backwards too, from what its total is
worth in the chase, so nothing jumps at the break. Rates were fitted on simulated matches of many lengths;
chases of twenty overs were then set straight on real ones, shorter ones, which are not in the data, on
simulated ones.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kibitz.core.errors import BadInput
from kibitz.core.paths import named
from kibitz.games.cricket.chances.solve import LEVELS, MOST, Floats, solve_chase, solve_first
from kibitz.games.cricket.fitting import csv_out as sheet
from kibitz.games.cricket.model.calibration import ERAS, calibration
from kibitz.games.cricket.model.par import course

INPUTS = ("balls_left", "runs_needed", "wickets_left", "first_innings_total")


@cache
def chase_table(overs: int, era: int) -> NDArray[np.float32]:
    """f32[balls left, level, wickets left 0..10, runs needed 0..MOST], chance of the batting side."""
    return solve_chase(calibration(), overs, era)


@cache
def first_table(overs: int, era: int) -> NDArray[np.float32]:
    """f32[balls left, wickets left 0..10, runs below MOST], chance of the side that bats first."""
    return solve_first(calibration(), overs, era, total_worth(overs, era))


@cache
def total_worth(overs: int, era: int) -> Floats:
    """f64[MOST + 1], chance of the side that has made so many runs."""
    total = np.minimum(np.arange(MOST + 1), MOST - 1)
    result: Floats = 1 - chase(6 * overs, total + 1, 10, total, era, overs)
    return result


def lookup(table: NDArray[np.float32], balls: Any, needed: Any, wickets: Any, level: Any) -> Floats:
    """The table at a level between its grid points."""
    b = np.clip(np.asarray(balls), 0, len(table) - 1).astype(int)
    n = np.clip(np.asarray(needed), 0, MOST).astype(int)
    w = np.clip(np.asarray(wickets), 0, 10).astype(int)
    at = np.clip((np.asarray(level, np.float64) - LEVELS[0]) / (LEVELS[1] - LEVELS[0]), 0, len(LEVELS) - 1.001)
    low = at.astype(int)
    part = at - low
    result: Floats = (1 - part) * table[b, low, w, n] + part * table[b, low + 1, w, n]
    return result


def raw(
    tables: list[NDArray[np.float32]],
    chase: dict[str, Any],
    usual: Floats,
    era: Any,
    states: Mapping[str, Any],
    overs: int = 20,
) -> Floats:
    """Before it is set straight. The unknown part of the level is averaged over; `usual` are totals by era."""
    era = np.asarray(era)
    # the fewer the balls, the less a total says of the level
    slope = chase["level_slope"] / (chase["level_slope"] + (1 - chase["level_slope"]) * 20 / overs)
    rest = chase["level_rest"] * np.sqrt((1 - slope) / (1 - chase["level_slope"]))
    guess = slope * np.log(np.maximum(states["first_innings_total"], 1) / usual[era])
    total = np.zeros(np.shape(guess))
    for shift, weight in zip((-1.5, 0.0, 1.5), (0.22, 0.56, 0.22), strict=True):
        level = guess + shift * rest
        parts = [lookup(t, states["balls_left"], states["runs_needed"], states["wickets_left"], level) for t in tables]
        total = total + weight * np.choose(era, parts)
    return total


def usual_totals(overs: int, fitted: dict[str, Any]) -> Floats:
    """f64[eras], of a first innings: what twenty overs make, by what the course of fewer says of them."""
    full = np.array([fitted["chase"]["par"][era] for era in ERAS])
    ours, all_of_it = (np.asarray(course(n, fitted).rest, np.float64).reshape(3, 121)[:, 0] for n in (overs, 20))
    return np.asarray(full * ours / all_of_it)


@cache
def _usual(overs: int) -> Floats:
    return usual_totals(overs, calibration())


def straight(p: Floats, balls: Any, coefficients: Any) -> Floats:
    """Set right: offset and slopes in log-odds that fade out towards the last ball."""
    p = np.clip(p, 1e-4, 1 - 1e-4)
    odds = np.log(p / (1 - p))
    result: Floats = 1 / (1 + np.exp(-(odds + straightening(odds, balls) @ np.asarray(coefficients))))
    return result


@cache
def _straight(overs: int) -> tuple[float, ...]:
    """Between the lengths that were fitted."""
    fitted = calibration()["chase"]["straight"]
    lengths = [int(length) for length in fitted]
    return tuple(float(np.interp(overs, lengths, column)) for column in zip(*fitted.values(), strict=True))


def straightening(odds: Floats, balls: Any) -> Floats:
    """f64[.., 3], what the coefficients of `straight` multiply."""
    faded = 1 - np.exp(-np.asarray(balls) / 10)
    return np.stack([faded, odds * faded, odds * faded * np.asarray(balls) / 120], axis=-1)


def chase(balls: Any, needed: Any, wickets: Any, first_total: Any, era: Any, overs: int = 20) -> Floats:
    """Chance of the side that chases, elementwise; `era` is an index of ERAS."""
    states = {"balls_left": balls, "runs_needed": needed, "wickets_left": wickets, "first_innings_total": first_total}
    arrays = dict(zip(states, np.broadcast_arrays(*(np.asarray(x, np.float64) for x in states.values())), strict=True))
    eras = np.broadcast_to(np.asarray(era), arrays["balls_left"].shape)
    known = np.unique(eras) if eras.size else np.zeros(1, int)
    tables, places = [chase_table(overs, i) for i in known.tolist()], np.searchsorted(known, eras)
    p = raw(tables, calibration()["chase"], _usual(overs)[known], places, arrays, overs)
    p = straight(p, arrays["balls_left"], _straight(overs))
    p = np.where(arrays["runs_needed"] <= 0, 1.0, p)
    ended = (arrays["runs_needed"] > 0) & ((arrays["balls_left"] <= 0) | (arrays["wickets_left"] <= 0))
    result: Floats = np.where(ended, np.where(arrays["runs_needed"] == 1, 0.5, 0.0), p)
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
    left = np.clip(6 * overs - np.asarray(legal), 0, 6 * overs).astype(int)
    hands = np.clip(10 - np.asarray(wickets), 0, 10).astype(int)
    below = np.clip(MOST - np.asarray(score), 0, MOST).astype(int)
    return np.asarray(first_table(overs, era)[left, hands, below], np.float64)


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
    worth = total_worth(overs, era)
    return float(np.interp(0.5, worth, np.arange(len(worth))))


@cache
def path_of(overs: int) -> tuple[Floats, Floats]:
    path = course(overs, calibration())
    return np.asarray(path.rest, np.float64).reshape(3, 121), np.asarray(path.wickets, np.float64)


@lru_cache(4096)  # what a ball left is what the next one finds
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
    return float(chase(6 * overs - legal, first + 1 - score, 10 - wickets, first, era, overs))


def read_states(path: str | Path) -> tuple[list[str], list[list[str]], dict[str, Floats], NDArray[np.int64] | None]:
    """Header, rows, INPUTS as numbers, and eras where there is such a column."""
    try:
        with named(path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            (_, header), *lines = [(reader.line_num, row) for row in reader]
    except BadInput:
        raise
    except (OSError, ValueError, csv.Error):
        raise BadInput(f"The states {str(path)!r} cannot be read; give a CSV with {', '.join(INPUTS)}.") from None
    missing = [name for name in INPUTS if name not in header]
    if missing:
        raise BadInput(f"{str(path)!r} has no column {missing[0]!r}; it needs {', '.join(INPUTS)}.")
    while lines and not lines[-1][1]:  # blank lines at the end
        lines.pop()
    for line, row in lines:
        if len(row) != len(header):
            raise BadInput(
                f"Line {line} of {str(path)!r} has {len(row)} fields; it should have {len(header)}, as the first has."
            )
    rows = [row for _, row in lines]
    numbers = {}
    for name in INPUTS:
        at = header.index(name)
        try:
            numbers[name] = np.array([float(row[at]) for row in rows])
            np.asarray_chkfinite(numbers[name])
        except ValueError:
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
    lines = ([*(row[i] for i in kept), f"{p:.5f}"] for row, p in zip(rows, chances, strict=True))
    sheet.write(out, [*(header[i] for i in kept), "p_win"], lines)
    return len(rows)
