"""What win probability needs: rates of a chase and the shape of a first innings, from simulated matches."""

from __future__ import annotations

from typing import Any

import numpy as np

from kibitz.games.cricket.ball import LEVELS
from kibitz.games.cricket.calibration import ERAS
from kibitz.games.cricket.course import course
from kibitz.games.cricket.settings import CricketOptions
from kibitz.games.cricket.simulate import POOL, deliveries, innings
from kibitz.games.cricket.tables import Floats, Tables, column, multinomial
from kibitz.games.cricket.winprob import FEATURES, INPUTS, ball_features, raw, solve, straightening

MATCHES = 8192
CELLS = 40_000  # balls of a chase the rates are regressed on, from each era


def quantiles() -> Floats:
    from statistics import NormalDist

    return np.array([NormalDist().inv_cdf((i + 0.5) / LEVELS) for i in range(LEVELS)])


def fit_winprob(fitted: dict[str, Any], tables: Tables) -> None:
    """Adds `chase` and `first` to the fitted numbers."""
    path = course(20, fitted)
    rests = np.asarray(path.rest, np.float64).reshape(3, 121)
    usual = np.asarray(path.wickets, np.float64)
    rng = np.random.default_rng(5)
    designs, outcomes, levels, log_totals, first = [], [], [], [], []
    par, par_sd = {}, {}
    for e, era in enumerate(ERAS):
        settings = CricketOptions.read({"max_overs": 20, "era": era, "pool": POOL, "seed": 3}).settings(fitted)
        balls, final = deliveries(settings, MATCHES, 77)
        rows = innings(balls, final, 36, 20)
        total = rows["total"][0::2].astype(np.float64)
        par[era], par_sd[era] = round(float(total.mean()), 2), round(float(total.std()), 2)
        level = quantiles()[np.asarray(final.levels[0])] * fitted["eras"][era]["level_sd"][0]
        levels.append(level)
        log_totals.append(np.log(total / par[era]))
        here = (balls.live == 1) & (balls.supers == 0)
        i, j = np.nonzero(here & (balls.second == 1))
        some = rng.choice(len(i), CELLS, replace=False)
        i, j = i[some], j[some]
        legal, lost = balls.legal[i, j].astype(int), balls.wickets[i, j].astype(int)
        behind = np.clip(np.log(np.maximum(balls.needed[i, j], 1) / np.maximum(rests[e][legal], 1)), -1.2, 1.2)
        worn = np.clip(lost - usual[legal], -3, 4)
        designs.append(ball_features(legal // 6, e, behind, worn, level[i], lost))
        outcomes.append(np.eye(10)[balls.outcome[i, j]])
        first.append(_first_states(balls, rows, rests[e], usual))
    rates = multinomial(np.concatenate(designs), np.concatenate(outcomes), np.full(FEATURES, 3.0), 150)
    x, y = np.concatenate(log_totals), np.concatenate(levels)
    slope = float(x @ y / (x @ x))
    fitted["chase"] = {
        "rates": rates,
        "par": par,
        "par_sd": par_sd,
        "level_slope": slope,
        "level_rest": float((y - slope * x).std()),
        "straight": [0.0, 0.0, 0.0],
    }
    _set_straight(fitted, tables)
    _fit_first(fitted, first, rests)


def _set_straight(fitted: dict[str, Any], tables: Tables) -> None:
    """Three numbers, on the real chases of the calibration half."""
    rows = tables.rows("chase_states_by_over")
    states = {name: column(rows, name) for name in INPUTS}
    eras = np.array([ERAS.index(row["era"]) for row in rows])
    p = np.clip(raw([solve(fitted, e) for e in range(3)], fitted, eras, states), 1e-4, 1 - 1e-4)
    odds = np.log(p / (1 - p))
    x = straightening(odds, states["balls_left"])
    fitted["chase"]["straight"] = logistic(x, column(rows, "won"), odds, ridge=20.0)


def logistic(x: Floats, y: Floats, offset: Floats, ridge: float) -> Floats:
    """Coefficients drawn towards nothing, beside a known offset."""
    beta = np.zeros(x.shape[1])
    for _ in range(30):
        p = 1 / (1 + np.exp(-(offset + x @ beta)))
        slope = x.T @ (y - p) - ridge * beta
        beta = beta + np.linalg.solve((x * (p * (1 - p))[:, None]).T @ x + ridge * np.eye(len(beta)), slope)
    return beta


def _first_states(balls: Any, rows: Any, rest: Floats, usual: Floats) -> Floats:
    """f64[n, 6]: legal, score, worn, rest, what was still made, whether the side won; at overs' ends."""
    made = np.cumsum(balls.runs * ((balls.live == 1) & (balls.second == 0) & (balls.supers == 0)), axis=1)
    total, won = rows["total"][0::2], rows["won"][0::2]
    out = []
    for over in range(0, 20, 2):
        here = (balls.live == 1) & (balls.second == 0) & (balls.supers == 0) & (balls.legal == 6 * over)
        i = np.nonzero(here.any(1))[0]
        j = here[i].argmax(1)
        score = made[i, j] - balls.runs[i, j]
        legal = np.full(len(i), 6 * over)
        worn = balls.wickets[i, j] - usual[legal]
        out.append(np.stack([legal, score, worn, rest[legal], total[i] - score, won[i]], axis=1))
    return np.concatenate(out).astype(np.float64)


def _fit_first(fitted: dict[str, Any], states: list[Floats], rests: Floats) -> None:
    table = np.concatenate(states)
    pars = np.repeat(rests[:, 0], [len(s) for s in states])
    legal, score, worn, rest, still, won = table.T
    x = np.stack([np.ones_like(worn), -worn], axis=1)
    weight = rest / rest.max()
    target = np.log(np.maximum(still, 1) / rest)
    scale, slope = np.linalg.solve((x * weight[:, None]).T @ x, (x * weight[:, None]).T @ target)
    scale = np.log(still.mean() / (rest * np.exp(-slope * worn)).mean())  # right on average, not in logs
    ratio = np.log((score + rest * np.exp(scale - slope * worn)) / pars)
    best = (9.9, 0.0, 0.0, 0.0)
    for shift in np.linspace(-0.06, 0.06, 13):
        for start in np.linspace(0.08, 0.24, 9):
            for end in np.linspace(0.06, 0.2, 8):
                p = 1 / (1 + np.exp(-(ratio - shift) / (start + (end - start) * legal / 120)))
                best = min(best, (float(((p - won) ** 2).mean()), float(shift), float(start), float(end)))
    _, shift, start, end = best
    fitted["first"] = {
        "scale": float(scale), "worn": float(slope), "par_shift": shift, "width_start": start, "width_end": end,
    }  # fmt: skip
