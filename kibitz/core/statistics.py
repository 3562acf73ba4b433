"""Estimates with 95 % intervals that hold for small samples, and comparisons of several of them.

One observation has no interval: its limits are NaN. Scores of runs are arrays f64[..., runs, tasks]; the runs of a
task are a stratum, and tasks are fixed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Interval = tuple[float, float]
Statistic = Callable[..., Any]  # arrays [..., runs, tasks], one per sample -> [...]

LEVEL = 0.975  # quantile of the upper limit of a two-sided 95 % interval
NO_INTERVAL: Interval = (math.nan, math.nan)
RESAMPLES = 2000
CHUNK_VALUES = 4_000_000  # resampled numbers held at once: 32 MB


class Difference(NamedTuple):
    """Of paired observations: the first less the second."""

    mean: float
    ci95: Interval
    p: float  # two-sided, of Student's t test for a difference of 0; NaN for one pair


def t_quantile(freedom: float) -> float:
    """Student's t, for the upper limit of a 95 % interval; NaN without degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, LEVEL)) if freedom > 0 else math.nan


def mean_ci95(values: NDArray[np.floating]) -> tuple[float, Interval]:
    """The mean and its t interval; omits NaN."""
    known = np.asarray(values, float)[~np.isnan(values)]
    if not len(known):
        return math.nan, NO_INTERVAL
    mean = float(known.mean())
    if len(known) == 1:
        return mean, NO_INTERVAL
    half = t_quantile(len(known) - 1) * float(known.std(ddof=1)) / math.sqrt(len(known))
    return mean, (mean - half, mean + half)


def band_ci95(curves: Floats) -> tuple[Floats, Floats, Floats]:
    """Mean, lower and upper limit at every point of curves f64[seeds, points]; omits NaN."""
    found = [mean_ci95(column) for column in np.asarray(curves, float).T]
    mean, low, high = (np.array(x, float) for x in ([m for m, _ in found], *zip(*(ci for _, ci in found), strict=True)))
    return mean, low, high


def paired_difference(one: Floats, other: Floats) -> Difference:
    """The mean difference of observations made under the same luck; omits pairs with a NaN."""
    from scipy.special import stdtr

    apart = np.asarray(one, float) - np.asarray(other, float)
    mean, (low, high) = mean_ci95(apart)
    freedom = int((~np.isnan(apart)).sum()) - 1
    if freedom < 1:
        return Difference(mean, NO_INTERVAL, math.nan)
    error = (high - low) / 2 / t_quantile(freedom)
    if error == 0:
        return Difference(mean, (low, high), 0.0 if mean else 1.0)
    return Difference(mean, (low, high), float(2 * stdtr(freedom, -abs(mean) / error)))


def share_ci95(successes: float, trials: float) -> tuple[float, Interval]:
    """A share of independent trials and its Wilson interval."""
    if trials < 1:
        return math.nan, NO_INTERVAL
    return successes / trials, _wilson(successes / trials, trials, t_quantile(math.inf))


def win_share_ci95(values: Floats) -> tuple[float, Interval]:
    """The mean of observations between 0 and 1, such as the points of a pair of games; stays within 0 and 1.

    A Wilson interval with Student's t and as many trials as the spread is worth. Observations that are all equal
    have no spread; each then counts as one trial, because three wins of three do not prove that all will be won.
    """
    known = np.asarray(values, float)[~np.isnan(values)]
    if len(known) < 2:
        return (float(known[0]) if len(known) else math.nan), NO_INTERVAL
    mean, count = float(known.mean()), len(known)
    return mean, _wilson(mean, _worth(mean, float(known.var(ddof=1)) / count, count), t_quantile(count - 1))


def win_share_p(values: Floats) -> float:
    """Two-sided, for a true share of one half: below 0.05 where `win_share_ci95` excludes it; NaN for one pair."""
    from scipy.special import stdtr

    known = np.asarray(values, float)[~np.isnan(values)]
    if len(known) < 2:
        return math.nan
    mean, count = float(known.mean()), len(known)
    trials = _worth(mean, float(known.var(ddof=1)) / count, count)
    return float(2 * stdtr(count - 1, -abs(mean - 0.5) / math.sqrt(0.25 / trials)))


def interquartile_mean(scores: Floats) -> Any:
    """The mean of the middle half of all runs and tasks [..., runs, tasks]; less swayed by outliers than the mean."""
    flat = np.sort(scores.reshape(*scores.shape[:-2], -1), axis=-1)
    cut = flat.shape[-1] // 4
    return flat[..., cut : flat.shape[-1] - cut].mean(axis=-1)


def probability_of_improvement(one: Floats, other: Floats) -> Any:
    """How likely a run of the first beats one of the second [..., runs, tasks], averaged over tasks; a tie is half."""
    mine, theirs = one[..., :, None, :], other[..., None, :, :]
    return ((mine > theirs) + 0.5 * (mine == theirs)).mean(axis=(-3, -2, -1))


def improvement_ci95(one: Floats, other: Floats) -> tuple[float, Interval]:
    """The probability of improvement of f64[runs, tasks] over the same tasks; the interval stays within 0 and 1.

    The variance is DeLong's: how much the runs of either side differ in the share of the other's runs they beat.
    """
    value = float(probability_of_improvement(one, other))
    (runs, tasks), others = one.shape, len(other)
    if min(runs, others) < 2:
        return value, NO_INTERVAL
    beats = (one[:, None] > other[None]) + 0.5 * (one[:, None] == other[None])  # [runs, other runs, tasks]
    spread = beats.mean(axis=1).var(axis=0, ddof=1) / runs + beats.mean(axis=0).var(axis=0, ddof=1) / others
    trials = _worth(value, float(spread.sum()) / tasks**2, min(runs, others) * tasks)
    return value, _wilson(value, trials, t_quantile((runs + others - 2) * tasks))


def stratified_bootstrap(
    statistic: Statistic, *samples: Floats, resamples: int = RESAMPLES, seed: int = 0
) -> NDArray[Any]:
    """The statistic of resampled runs, drawn with replacement within each task of each sample f64[runs, tasks]."""
    rng = np.random.default_rng(seed)
    at_once = max(1, CHUNK_VALUES // max(1, sum(sample.size for sample in samples)))
    found = []
    for first in range(0, resamples, at_once):
        count = min(at_once, resamples - first)
        drawn = []
        for sample in samples:
            rows = rng.integers(0, len(sample), (count, *sample.shape))
            drawn.append(np.take_along_axis(sample[None], rows, axis=1))
        found.append(statistic(*drawn))
    return np.concatenate(found)


def bootstrap_ci95(
    statistic: Statistic, *samples: Floats, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[float, Interval]:
    """A statistic with Student's t times its stratified bootstrap's standard error.

    Percentiles of the bootstrap are too narrow for a few runs: with 5 of them, "95 %" limits of a mean hold the
    truth 85 % of the time. For a mean this is the t interval, up to the chance of the resampling; for an
    interquartile mean it holds the truth 95 to 97 % of the time.
    """
    value = float(np.asarray(statistic(*(sample[None] for sample in samples)))[0])
    runs = sum(map(len, samples))
    freedom = sum((len(sample) - 1) * sample.shape[1] for sample in samples)
    if min(map(len, samples)) < 2:
        return value, NO_INTERVAL
    resampled = stratified_bootstrap(statistic, *samples, resamples=resamples, seed=seed)
    half = t_quantile(freedom) * bootstrap_error(resampled, runs, len(samples))
    return value, (value - half, value + half)


def bootstrap_error(resampled: NDArray[Any], runs: int, samples: int) -> float:
    """The standard error of a resampled statistic.

    Resampling n values understates their variance by (n - 1) / n; `runs` counts those of all samples.
    """
    return float(np.std(resampled)) * math.sqrt(runs / (runs - samples))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values of a family of comparisons, adjusted by Holm's step-down method; NaN is no comparison and stays."""
    p = np.asarray(p_values, float)
    order = [i for i in np.argsort(p) if not np.isnan(p[i])]
    adjusted, highest = [math.nan] * len(p), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * float(p[i])))
        adjusted[i] = highest
    return adjusted


def finite(value: Any) -> Any:
    """NaN and infinity as None, because JSON has neither; also inside lists, tuples and dicts."""
    if isinstance(value, dict):
        return {str(key): finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _worth(share: float, variance: float, count: float) -> float:
    """How many independent trials would have this variance of the share; `count` where there is none."""
    return share * (1 - share) / variance if variance > 0 and 0 < share < 1 else count


def _wilson(share: float, trials: float, quantile: float) -> Interval:
    square = quantile**2
    centre = (share + square / (2 * trials)) / (1 + square / trials)
    half = quantile / (1 + square / trials) * math.sqrt(share * (1 - share) / trials + square / (4 * trials**2))
    return max(0.0, centre - half), min(1.0, centre + half)
