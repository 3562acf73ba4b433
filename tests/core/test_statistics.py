"""Estimates and intervals, held against SciPy and against simulated experiments whose truth is known."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy  # its parts load when they are first used: `stats` takes a second of every worker's time

from kibitz.core.statistics import (
    band_ci95,
    bootstrap_ci95,
    holm,
    improvement_ci95,
    interquartile_mean,
    mean_ci95,
    paired_difference,
    probability_of_improvement,
    share_ci95,
    stratified_bootstrap,
    win_share_ci95,
    win_share_p,
)

EXPERIMENTS = 2000


def test_the_interval_of_a_mean_is_students() -> None:
    values = np.array([1.0, 2.0, 3.0, 7.0, np.nan])
    mean, interval = mean_ci95(values)
    wanted = scipy.stats.t.interval(0.95, 3, loc=values[:4].mean(), scale=scipy.stats.sem(values[:4]))
    assert mean == pytest.approx(3.25) and interval == pytest.approx(wanted)


def test_two_observations_have_an_interval_six_times_the_normal_one_and_one_has_none() -> None:
    _, (low, high) = mean_ci95(np.array([0.0, 2.0]))
    assert (high - low) / 2 == pytest.approx(12.706, abs=1e-3)
    assert np.isnan([*mean_ci95(np.array([4.0]))[1], *mean_ci95(np.array([np.nan]))[1]]).all()
    assert mean_ci95(np.array([4.0]))[0] == 4.0


def test_a_band_is_the_interval_at_every_point() -> None:
    curves = np.random.default_rng(1).normal(size=(5, 3))
    mean, low, high = band_ci95(curves)
    for point in range(3):
        assert (mean[point], (low[point], high[point])) == mean_ci95(curves[:, point])


def test_a_paired_difference_agrees_with_scipys_test() -> None:
    rng = np.random.default_rng(2)
    one, other = rng.normal(0.4, 1, 12), rng.normal(0, 1, 12)
    wanted = scipy.stats.ttest_rel(one, other)
    found = paired_difference(one, other)
    assert found.p == pytest.approx(wanted.pvalue)
    assert found.ci95 == pytest.approx(tuple(wanted.confidence_interval(0.95)))
    assert math.isnan(paired_difference(one[:1], other[:1]).p)
    assert paired_difference(one, one).p == 1 and paired_difference(one + 1, one).p < 1e-12


@pytest.mark.parametrize(("successes", "trials"), [(0, 1), (3, 3), (7, 20), (0, 50), (500, 1000)])
def test_the_interval_of_a_share_is_wilsons(successes: int, trials: int) -> None:
    wanted = scipy.stats.binomtest(successes, trials).proportion_ci(0.95, method="wilson")
    share, interval = share_ci95(successes, trials)
    assert share == successes / trials and interval == pytest.approx((wanted.low, wanted.high))


def test_a_win_share_stays_within_its_bounds_and_three_of_three_prove_little() -> None:
    share, (low, high) = win_share_ci95(np.ones(3))
    assert share == 1 and low < 0.3 and high == pytest.approx(1)
    many = np.random.default_rng(3).binomial(2, 0.6, 4000) / 2
    assert win_share_ci95(many)[1] == pytest.approx(mean_ci95(many)[1], abs=1e-4)
    assert np.isnan(win_share_ci95(np.ones(1))[1]).all()


@pytest.mark.parametrize("wins", [[1, 1], [1] * 6, [1, 1, 1, 0.5], [0.5, 0.5], [0, 0, 0.5, 0, 0, 0, 0], [1, 0, 1, 1]])
def test_a_win_share_differs_from_a_half_exactly_where_its_interval_excludes_it(wins: list[float]) -> None:
    values = np.array(wins, float)
    (low, high), p = win_share_ci95(values)[1], win_share_p(values)
    assert (p < 0.05) == (not low <= 0.5 <= high) and 0 <= p <= 1
    many = np.random.default_rng(3).binomial(2, 0.51, 4000) / 2
    assert win_share_p(many) == pytest.approx(scipy.stats.ttest_1samp(many, 0.5).pvalue, rel=0.01)
    assert math.isnan(win_share_p(values[:1]))


@pytest.mark.parametrize("shape", [(5, 1), (10, 3), (7, 2)])
def test_the_interquartile_mean_is_scipys_trimmed_mean(shape: tuple[int, int]) -> None:
    scores = np.random.default_rng(4).normal(size=shape)
    assert interquartile_mean(scores) == pytest.approx(scipy.stats.trim_mean(scores, 0.25, axis=None))


def test_holm_adjusts_the_smallest_most_and_never_changes_the_order() -> None:
    assert holm([0.01, 0.04, 0.03, math.nan]) == pytest.approx([0.03, 0.06, 0.06, math.nan], nan_ok=True)
    assert holm([0.6, 0.7]) == [1.0, 1.0] and holm([]) == []


def test_the_bootstrap_interval_of_a_mean_is_students() -> None:
    values = np.random.default_rng(5).normal(size=(6, 1))
    value, interval = bootstrap_ci95(lambda scores: scores.mean(axis=(-2, -1)), values, resamples=20_000)
    mean, wanted = mean_ci95(values[:, 0])
    assert value == pytest.approx(mean) and interval == pytest.approx(wanted, abs=0.02)
    assert np.isnan(bootstrap_ci95(interquartile_mean, values[:1])[1]).all()


def test_a_bootstrap_resamples_runs_within_tasks() -> None:
    scores = np.array([[0.0, 10.0], [1.0, 11.0]])
    means = stratified_bootstrap(lambda drawn: drawn.mean(axis=-2), scores, resamples=50)
    assert set(means[:, 0]) == {0.0, 0.5, 1.0} and set(means[:, 1]) == {10.0, 10.5, 11.0}


def _coverage(truth: float, intervals: list[tuple[float, float]]) -> float:
    return float(np.mean([low <= truth <= high for low, high in intervals]))


@pytest.mark.parametrize("runs", [5, 10, 30])
def test_intervals_of_means_and_differences_hold_the_truth_in_95_percent_of_experiments(runs: int) -> None:
    rng = np.random.default_rng(runs)
    luck = rng.normal(0, 3, (EXPERIMENTS, runs))
    one, other = (luck + rng.normal(mean, 1, luck.shape) for mean in (1.5, 1.0))
    assert 0.93 < _coverage(1.5, [mean_ci95(row)[1] for row in one]) < 0.97
    paired = [paired_difference(*rows).ci95 for rows in zip(one, other, strict=True)]
    assert 0.93 < _coverage(0.5, paired) < 0.97
    won = rng.binomial(1, 0.6, luck.shape)
    assert 0.92 < _coverage(0.6, [share_ci95(row.sum(), runs)[1] for row in won]) < 0.99  # steps: a share is discrete


def _wins(truth: float, runs: int, rng: np.random.Generator) -> np.ndarray:
    """Points of pairs of games with the seats swapped: 0, 1/4 (a tie and a loss), 1/2, 3/4 or 1."""
    skill = rng.beta(4 * truth, 4 * (1 - truth), (EXPERIMENTS, runs))  # the deal favours one of the players
    return rng.binomial(4, skill) / 4


@pytest.mark.parametrize("truth", [0.5, 0.7])
@pytest.mark.parametrize("runs", [5, 10, 30, 100])
def test_intervals_of_win_shares_hold_the_truth_in_95_percent_of_experiments(runs: int, truth: float) -> None:
    won = _wins(truth, runs, np.random.default_rng(runs))
    coverage = _coverage(truth, [win_share_ci95(row)[1] for row in won])
    assert 0.93 < coverage < (0.99 if runs == 5 else 0.97)  # cautious with five pairs, whose mean moves in steps


def _experiments(runs: int, tasks: int, draw: Callable[..., np.ndarray]) -> np.ndarray:
    return draw(size=(EXPERIMENTS, runs, tasks)) + np.linspace(0, 1, tasks)


@pytest.mark.conformance
@pytest.mark.parametrize("runs", [5, 10, 30])
@pytest.mark.parametrize("tasks", [1, 4])
def test_bootstrap_intervals_hold_the_truth_in_95_percent_of_experiments(runs: int, tasks: int) -> None:
    rng = np.random.default_rng(100 * runs + tasks)
    scores = _experiments(runs, tasks, rng.normal)
    truth = 0.5 if tasks > 1 else 0.0  # symmetrical, so the middle half has the mean of all
    found = [bootstrap_ci95(interquartile_mean, sample, resamples=200)[1] for sample in scores]
    assert 0.93 < _coverage(truth, found) < (0.98 if (runs, tasks) == (5, 1) else 0.97)  # 97.1 % there: cautious
    other = _experiments(runs, tasks, rng.normal)
    better = [improvement_ci95(*pair) for pair in zip(scores + 1, other, strict=True)]
    assert _coverage(scipy.stats.norm.cdf(1 / math.sqrt(2)), [ci for _, ci in better]) > 0.93  # cautious with few runs


@pytest.mark.conformance
def test_estimates_agree_with_rliable_and_statsmodels(monkeypatch: pytest.MonkeyPatch) -> None:
    decorators = pytest.importorskip("pandas.util._decorators")
    # rliable needs arch below 8, whose use of this decorator fails with pandas 3
    monkeypatch.setattr(decorators, "deprecate_kwarg", lambda *args, **kwargs: lambda function: function)
    library = pytest.importorskip("rliable.library")
    metrics = pytest.importorskip("rliable.metrics")
    multipletests = pytest.importorskip("statsmodels.stats.multitest").multipletests
    rng = np.random.default_rng(6)
    one, other = rng.normal(0.5, 1, (8, 3)), rng.normal(0, 1, (6, 3))
    assert interquartile_mean(one) == pytest.approx(metrics.aggregate_iqm(one))
    assert probability_of_improvement(one, other) == pytest.approx(metrics.probability_of_improvement(one, other))
    p_values = [0.01, 0.2, 0.03, 0.011]
    assert holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1])
    np.random.seed(0)  # rliable draws from the global generator
    _, theirs = library.get_interval_estimates({"one": one}, lambda x: np.array([metrics.aggregate_iqm(x)]), reps=4000)
    ours = np.percentile(stratified_bootstrap(interquartile_mean, one, resamples=4000), [2.5, 97.5])
    assert ours == pytest.approx(theirs["one"][:, 0], abs=0.03)
