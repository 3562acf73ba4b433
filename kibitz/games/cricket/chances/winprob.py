"""The batting side's chance of winning, and par scores.

A chase is solved backwards with the rates of default captains, on a grid of match levels; the first
innings total shows which level is likely. A first innings is solved backwards from the value of its total
in the chase, so nothing jumps at the break. The rates were fitted to simulated matches of many lengths.
Twenty-over chases were then recalibrated on real ones, and shorter ones, which the data lacks, on
simulated ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kibitz.games.cricket.chances.solve import LEVELS, Floats, solve_chase, solve_first
from kibitz.games.cricket.model.calibration import ERAS, calibration
from kibitz.games.cricket.model.par import MAX_RUNS, par, par_path

CHASE_COLUMNS = ("balls_left", "runs_needed", "wickets_left", "first_innings_total")


@cache
def chase_table(overs: int, era: int, model: int = 0) -> NDArray[np.float32]:
    """f32[balls left, level, wickets left 0..10, runs needed 0..MAX_RUNS], chance of the batting side."""
    return solve_chase(calibration(model), overs, era)


@cache
def first_table(overs: int, era: int, model: int = 0) -> NDArray[np.float32]:
    """f32[balls left, wickets left 0..10, runs below MAX_RUNS], chance of the side that bats first."""
    return solve_first(calibration(model), overs, era, total_worth(overs, era, model))


@cache
def total_worth(overs: int, era: int, model: int = 0) -> Floats:
    """f64[MAX_RUNS + 1], chance of the side that made this total."""
    total = np.minimum(np.arange(MAX_RUNS + 1), MAX_RUNS - 1)
    result: Floats = 1 - chase(6 * overs, total + 1, 10, total, era, overs, model)
    return result


def _lookup(table: NDArray[np.float32], balls: Any, needed: Any, wickets: Any, level: Any) -> Floats:
    """The table, interpolated between its level grid points."""
    b = np.clip(np.asarray(balls), 0, len(table) - 1).astype(int)
    n = np.clip(np.asarray(needed), 0, MAX_RUNS).astype(int)
    w = np.clip(np.asarray(wickets), 0, 10).astype(int)
    at = np.clip((np.asarray(level, np.float64) - LEVELS[0]) / (LEVELS[1] - LEVELS[0]), 0, len(LEVELS) - 1.001)
    low = at.astype(int)
    part = at - low
    result: Floats = (1 - part) * table[b, low, w, n] + part * table[b, low + 1, w, n]
    return result


def uncalibrated_chase(
    tables: list[NDArray[np.float32]],
    chase: dict[str, Any],
    mean_totals: Floats,
    era: Any,
    states: Mapping[str, Any],
    overs: int = 20,
) -> Floats:
    """The chance before recalibration, averaged over the unknown part of the level; `mean_totals` are by era."""
    era = np.asarray(era)
    # the shorter the innings, the less its total says about the level
    slope = chase["level_slope"] / (chase["level_slope"] + (1 - chase["level_slope"]) * 20 / overs)
    rest = chase["level_rest"] * np.sqrt((1 - slope) / (1 - chase["level_slope"]))
    guess = slope * np.log(np.maximum(states["first_innings_total"], 1) / mean_totals[era])
    total = np.zeros(np.shape(guess))
    for shift, weight in zip((-1.5, 0.0, 1.5), (0.22, 0.56, 0.22), strict=True):
        level = guess + shift * rest
        parts = [_lookup(t, states["balls_left"], states["runs_needed"], states["wickets_left"], level) for t in tables]
        total = total + weight * np.choose(era, parts)
    return total


def mean_totals(overs: int, fitted: dict[str, Any]) -> Floats:
    """f64[eras], mean first-innings totals: those of twenty overs, scaled by par."""
    full = np.array([fitted["chase"]["par"][era] for era in ERAS])
    this, twenty = (np.asarray(par(n, fitted).runs_left, np.float64).reshape(3, 121)[:, 0] for n in (overs, 20))
    return np.asarray(full * this / twenty)


@cache
def _mean_totals(overs: int, model: int) -> Floats:
    return mean_totals(overs, calibration(model))


def _recalibrate(p: Floats, balls: Any, coefficients: Any) -> Floats:
    """Applies an offset and slopes in log-odds that fade out towards the last ball."""
    p = np.clip(p, 1e-4, 1 - 1e-4)
    odds = np.log(p / (1 - p))
    result: Floats = 1 / (1 + np.exp(-(odds + recalibration_features(odds, balls) @ np.asarray(coefficients))))
    return result


@cache
def _recalibration(overs: int, model: int) -> tuple[float, ...]:
    """The coefficients, interpolated between the fitted lengths."""
    fitted = calibration(model)["chase"]["recalibration"]
    lengths = [int(length) for length in fitted]
    return tuple(float(np.interp(overs, lengths, column)) for column in zip(*fitted.values(), strict=True))


def recalibration_features(odds: Floats, balls: Any) -> Floats:
    """f64[.., 3], the features that the coefficients of `_recalibrate` multiply."""
    faded = 1 - np.exp(-np.asarray(balls) / 10)
    return np.stack([faded, odds * faded, odds * faded * np.asarray(balls) / 120], axis=-1)


def chase(balls: Any, needed: Any, wickets: Any, first_total: Any, era: Any, overs: int = 20, model: int = 0) -> Floats:
    """The chasing side's chance, elementwise; `era` is an index of ERAS, `model` a `calibration.model_number`."""
    states = {"balls_left": balls, "runs_needed": needed, "wickets_left": wickets, "first_innings_total": first_total}
    arrays = dict(zip(states, np.broadcast_arrays(*(np.asarray(x, np.float64) for x in states.values())), strict=True))
    eras = np.broadcast_to(np.asarray(era), arrays["balls_left"].shape)
    known = np.unique(eras) if eras.size else np.zeros(1, int)
    tables, places = [chase_table(overs, i, model) for i in known.tolist()], np.searchsorted(known, eras)
    p = uncalibrated_chase(
        tables, calibration(model)["chase"], _mean_totals(overs, model)[known], places, arrays, overs
    )
    p = _recalibrate(p, arrays["balls_left"], _recalibration(overs, model))
    p = np.where(arrays["runs_needed"] <= 0, 1.0, p)
    ended = (arrays["runs_needed"] > 0) & ((arrays["balls_left"] <= 0) | (arrays["wickets_left"] <= 0))
    result: Floats = np.where(ended, np.where(arrays["runs_needed"] == 1, 0.5, 0.0), p)
    return result


def _era_weights(total: Any, models: Sequence[int]) -> Floats:
    """f64[.., eras]: the probability of each era, given only the first-innings total; `models` are by era."""
    fitted = [calibration(model)["chase"] for model in models]
    mean = np.array([chase["par"][era] for chase, era in zip(fitted, ERAS, strict=True)])
    spread = np.array([chase["par_sd"][era] for chase, era in zip(fitted, ERAS, strict=True)])
    prior = np.array([0.50, 0.26, 0.24])
    z = (np.asarray(total, np.float64)[..., None] - mean) / spread
    weight = prior / spread * np.exp(-0.5 * z * z) + 1e-12
    result: Floats = weight / weight.sum(-1, keepdims=True)
    return result


def first_innings(score: Any, legal: Any, wickets: Any, overs: int, era: int, model: int = 0) -> Floats:
    """The chance of the side that bats first."""
    left = np.clip(6 * overs - np.asarray(legal), 0, 6 * overs).astype(int)
    hands = np.clip(10 - np.asarray(wickets), 0, 10).astype(int)
    below = np.clip(MAX_RUNS - np.asarray(score), 0, MAX_RUNS).astype(int)
    return np.asarray(first_table(overs, era, model)[left, hands, below], np.float64)


def projected(score: Any, legal: Any, wickets: Any, overs: int, era: int, model: int = 0) -> Floats:
    """The expected first-innings total."""
    runs_left, par_wickets = par_path(overs, model)
    at = np.clip(np.asarray(legal), 0, 120).astype(int)
    excess = np.asarray(wickets) - par_wickets[at]
    first = calibration(model)["first"]
    result: Floats = np.asarray(score) + runs_left[era][at] * np.exp(first["scale"] - first["excess_wickets"] * excess)
    return result


def par_score(overs: int, era: int, model: int = 0) -> float:
    """The total that wins half of the matches."""
    worth = total_worth(overs, era, model)
    return float(np.interp(0.5, worth, np.arange(len(worth))))


@lru_cache(4096)  # the position after one ball is the position before the next
def win_probability(
    *,
    second: bool,
    score: int,
    first: int,
    legal: int,
    wickets: int,
    overs: int,
    era: int,
    supers: int = 0,
    model: int = 0,
) -> float:
    """The batting side's chance at any point of a match."""
    if supers:
        left = 6 - legal
        expected = 1.9 * left * (1 - 0.25 * wickets)
        lead = score + expected - (first + 0.5 if second else 11.5)
        return float(1 / (1 + np.exp(-lead / (1.2 * np.sqrt(left + (0 if second else 6) + 0.2) + 0.1))))
    if not second:
        return float(first_innings(score, legal, wickets, overs, era, model))
    return float(chase(6 * overs - legal, first + 1 - score, 10 - wickets, first, era, overs, model))


def score_states(states: Mapping[str, Floats], eras: NDArray[np.int64] | None, models: Sequence[int]) -> Floats:
    """The chance in each chase; without eras, the mean over all three, weighted by their probability.

    `models` are by era (`calibration.models_by_era`).
    """
    balls, needed, wickets, total = (states[name] for name in CHASE_COLUMNS)
    weight = _era_weights(total, models) if eras is None else eras[..., None] == np.arange(len(ERAS))
    each = [weight[..., i] * chase(balls, needed, wickets, total, i, model=model) for i, model in enumerate(models)]
    return np.asarray(each[0] + each[1] + each[2])
