"""Fits win probability: rates of both innings and the recalibration of chases, from simulated and real matches."""

from __future__ import annotations

from typing import Any

import numpy as np

from kibitz.games.cricket.chances.solve import Features, solve_chase
from kibitz.games.cricket.chances.winprob import (
    CHASE_COLUMNS,
    mean_totals,
    recalibration_features,
    uncalibrated_chase,
)
from kibitz.games.cricket.fitting.moments import Moments, moments
from kibitz.games.cricket.fitting.tables import Floats, Tables, column, multinomial
from kibitz.games.cricket.model.calibration import ERAS

LENGTHS_OVERS = (1, 2, 3, 5, 7, 10, 14, 20)  # overs; twenty overs have their own rates, shorter matches share theirs
MATCHES = 8192
SEED = 77
ITERATIONS = 150
At = tuple[int, int]  # overs and era


def fit_winprob(fitted: dict[str, Any], tables: Tables) -> None:
    """Adds `chase` and `first` to the fitted numbers."""
    played = {
        (overs, era): moments(overs, era, MATCHES, SEED, fitted) for overs in LENGTHS_OVERS for era in range(len(ERAS))
    }
    full = {at: balls for at, balls in played.items() if at[0] == 20}
    chases, firsts = (
        {
            "twenty": _rates(fitted, _drawn(full, second, 40_000)),
            "shorter": _rates(fitted, _drawn(played, second, 8_000)),
        }
        for second in (True, False)
    )
    fitted["chase"] = {"rates": chases} | _level(list(full.values()))
    simulated = _drawn(played, True, 8_000)
    fitted["chase"]["recalibration"] = {
        str(overs): _recalibrate_on_real(fitted, tables)
        if overs == 20
        else _recalibrate_on_simulated(fitted, simulated, overs)
        for overs in LENGTHS_OVERS
    }
    fitted["first"] = {"rates": firsts} | _projection(fitted, list(full.values()))


def _drawn(played: dict[At, Moments], second: bool, balls: int) -> dict[At, Moments]:
    """At most `balls` balls of one innings from each era and length."""
    rng = np.random.default_rng(5)
    kept = {at: all_balls.of(second) for at, all_balls in played.items()}
    return {at: x.some(rng.choice(len(x.legal), min(balls, len(x.legal)), replace=False)) for at, x in kept.items()}


def _rates(fitted: dict[str, Any], drawn: dict[At, Moments]) -> Floats:
    """The coefficients of one innings' rates."""
    designs = []
    for (overs, era), ball in drawn.items():
        features = Features(overs, era, fitted)
        chase = features.chase(ball.legal, ball.lost, ball.first + 1 - ball.score, ball.level)
        designs.append(chase if ball.second[0] else features.first(ball.legal, ball.lost, ball.score))
    outcomes = np.concatenate([np.eye(10)[ball.outcome] for ball in drawn.values()])
    return multinomial(np.concatenate(designs), outcomes, np.full(designs[0].shape[1], 3.0), ITERATIONS)


def _level(full: list[Moments]) -> dict[str, Any]:
    """Totals of twenty overs, and the regression of the match level on them."""
    par = [round(float(played.totals.mean()), 2) for played in full]
    opening = [played.some(np.unique(played.match, return_index=True)[1]) for played in full]  # first balls
    x = np.concatenate([np.log(ball.first / p) for ball, p in zip(opening, par, strict=True)])
    y = np.concatenate([ball.level for ball in opening])
    slope = float(x @ y / (x @ x))
    return {
        "par": dict(zip(ERAS, par, strict=True)),
        "par_sd": {era: round(float(played.totals.std()), 2) for era, played in zip(ERAS, full, strict=True)},
        "level_slope": slope,
        "level_rest": float((y - slope * x).std()),
    }


def _recalibrate_on_real(fitted: dict[str, Any], tables: Tables) -> Floats:
    """Three coefficients from the real chases of the calibration half."""
    rows = tables.rows("chase_states_by_over")
    states = {name: column(rows, name) for name in CHASE_COLUMNS}
    eras = np.array([ERAS.index(row["era"]) for row in rows])
    p = uncalibrated_chase(
        [solve_chase(fitted, 20, e) for e in range(3)], fitted["chase"], mean_totals(20, fitted), eras, states
    )
    return _recalibration([(p, states["balls_left"], column(rows, "won"))])


def _recalibrate_on_simulated(fitted: dict[str, Any], drawn: dict[At, Moments], overs: int) -> Floats:
    """The same three coefficients for a length that the data lacks."""
    parts = []
    for era in range(len(ERAS)):
        ball = drawn[overs, era]
        columns = (6 * overs - ball.legal, ball.first + 1 - ball.score, 10 - ball.lost, ball.first)
        states = dict(zip(CHASE_COLUMNS, columns, strict=True))
        eras = np.full(len(ball.legal), era)
        p = uncalibrated_chase(
            [solve_chase(fitted, overs, era)] * 3, fitted["chase"], mean_totals(overs, fitted), eras, states, overs
        )
        parts.append((p, states["balls_left"], ball.won))
    return _recalibration(parts)


def _recalibration(parts: list[tuple[Floats, Any, Any]]) -> Floats:
    p, balls, won = (np.concatenate(column) for column in zip(*parts, strict=True))
    p = np.clip(p, 1e-4, 1 - 1e-4)
    odds = np.log(p / (1 - p))
    return logistic(recalibration_features(odds, balls), won, odds, ridge=20.0)


def logistic(x: Floats, y: Floats, offset: Floats, ridge: float) -> Floats:
    """Coefficients of a ridge logistic regression with a known offset."""
    beta = np.zeros(x.shape[1])
    for _ in range(30):
        p = 1 / (1 + np.exp(-(offset + x @ beta)))
        slope = x.T @ (y - p) - ridge * beta
        beta = beta + np.linalg.solve((x * (p * (1 - p))[:, None]).T @ x + ridge * np.eye(len(beta)), slope)
    return beta


def _projection(fitted: dict[str, Any], full: list[Moments]) -> dict[str, float]:
    """The runs left in a first innings relative to par: a scale, and a slope per excess wicket."""
    lost, left, still = [], [], []
    for era, played in enumerate(full):
        ball, features = played.of(second=False), Features(20, era, fitted)
        lost.append(ball.lost - features.wickets[ball.legal])
        left.append(features.runs_left[ball.legal])
        still.append(ball.first - ball.score)
    excess, par_runs, made = (np.concatenate(parts) for parts in (lost, left, still))
    x = np.stack([np.ones_like(excess), -excess], axis=1)
    weight = par_runs / par_runs.max()
    target = np.log(np.maximum(made, 1) / par_runs)
    _, slope = np.linalg.solve((x * weight[:, None]).T @ x, (x * weight[:, None]).T @ target)
    scale = np.log(made.mean() / (par_runs * np.exp(-slope * excess)).mean())  # unbiased in runs, not in logs
    return {"scale": float(scale), "excess_wickets": float(slope)}
