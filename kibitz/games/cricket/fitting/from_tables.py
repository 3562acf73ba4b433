"""The numbers that come directly from the calibration tables: settling in, positions, types, extras, dismissals."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np

from kibitz.games.cricket.fitting.tables import PHASES, Floats, Tables, column, counts, multinomial, number, shares
from kibitz.games.cricket.model.calibration import ERAS, TAIL_WICKETS
from kibitz.games.cricket.model.delivery import HOWS, TYPES, phase_of
from kibitz.games.cricket.model.tactics import outcome_row

SOURCE = "T20 matches of one league, 2008 to May 2026: Cricsheet (licence believed to be ODC-BY)"
PHASE = np.array([phase_of(over) for over in range(20)])
FACED = {"0": 0, "1": 1, "2": 2, "3-5": 4, "6-9": 7.5, "10-14": 12, "15-19": 17, "20-29": 24.5, "30-44": 36, "45+": 52}
GROUPS = {"1-2": 1.5, "3-4": 3.5, "5-6": 5.5, "7-8": 7.5, "9-11": 9.55}  # mean positions
LEVEL = {"dot": -0.9, "two": 0.2, "three": 0.2, "four": 0.9, "six": 1.5, "wicket": -0.25}
"""The effect of good batting conditions: an assumption, scaled so that one unit is one unit of log runs."""
LEVEL_SD = {"pre2018": (0.082, 0.03), "2018-2022": (0.082, 0.03), "2023+": (0.082, 0.03)}
TAIL_CARE = {"pre2018": 0.85, "2018-2022": 0.85, "2023+": 1.0}
"""The factor of a wicket's weight for each wicket down from the seventh on.

Before 2023 the tables alone prefer 0.9 to 1, 0.85 and 0.8, whichever season is left out. The shares of chases all
out in matches that they do not contain, 8.5 % before 2018 and 4.5 % in 2018-2022, ask for a lower factor.
"""
MEAN_RUNS = np.array([0, 1, 2, 3, 4, 6, 0.35, 1.16, 2.3, 1.4])  # by outcome


def by_over(tables: Tables) -> dict[str, Floats]:
    """f64[20, outcomes] for each era, first innings, smoothed.

    All eras share one shape, a parabola within each phase; each era has an offset in each phase.
    """
    rows = [row for row in tables.rows("outcome_by_era_innings_over") if row["inn"] == "1"]
    over = np.array([int(number(row, "over1")) - 1 for row in rows])
    era = np.array([ERAS.index(row["era"]) for row in rows])
    phase = PHASE[over]
    within = (over - np.array([2.5, 10.0, 17.0])[phase]) / np.array([2.5, 4.0, 2.0])[phase]
    parts = []
    for p in range(3):
        here = phase == p
        parts += [here, here * within, here * (within**2 - 0.5)]
        parts += [here & (era == e) for e in range(3)]
    parts += [over == 0, over == 19, over == 6]  # first, last, and first after the powerplay
    design = np.stack([np.asarray(part, np.float64) for part in parts], axis=1)
    ridge = np.array(([1.0] * 3 + [4.0] * 3) * 3 + [8.0] * 3)
    beta = multinomial(design, counts(rows), ridge, 400)
    logits = design @ beta
    rates = np.exp(logits)
    rates /= rates.sum(1, keepdims=True)
    smooth = {}
    for e, name in enumerate(ERAS):
        here = era == e
        smooth[name] = rates[here][np.argsort(over[here])]
    return smooth


def settling(tables: Tables) -> tuple[Floats, dict[str, list[float]], dict[str, Any]]:
    """Effects of balls faced, mean ratings by position, and effects of a rating point."""
    rows = tables.rows("outcome_by_phase_posgroup_balls_faced")
    faced = np.array([FACED[row["fb"]] for row in rows])
    phase = np.array([PHASES.index(row["phase"]) for row in rows])
    group = np.array([list(GROUPS).index(row["posg"]) for row in rows])
    design = np.concatenate(
        [np.eye(3)[phase], np.exp(-faced / 4)[:, None], np.minimum(faced, 60)[:, None] / 30, np.eye(5)[group]], axis=1
    )
    beta = multinomial(design, counts(rows), np.array([0.1] * 3 + [1.0] * 2 + [5.0] * 5), 400)
    settle, groups = beta[3:5], beta[5:]
    groups = groups - np.average(groups[:3], axis=0, weights=[2, 2, 2])
    spread = tables.numbers("skill_spread")
    top, ball = spread["batter"]["all_positions"], spread["bowler"]["all"]
    dot, four, six, out = (top[k]["tau_ratio"] for k in ("dot", "four", "six", "out"))
    skills = {
        "strike": {"dot": -dot, "two": 0.05, "four": four},
        "power": {"six": six},
        "safety": {"wicket": -out},
        "economy": {"dot": ball["dot"]["tau_ratio"], "four": -ball["bd"]["tau_ratio"], "six": -ball["bd"]["tau_ratio"]},
        # the spread of wickets is uncertain (0.04 overall, 0.14 at the death)
        "threat": {"wicket": 0.07},
        "control": {"wide": -ball["wd"]["tau_ratio"]},
        "versus_spin_sd": spread["batter"]["pace_minus_spin_run_ratio_tau"]["tau"],
    }
    strike = (groups[:, 4] * four - groups[:, 0] * dot) / (four**2 + dot**2)
    at = np.arange(1, 12)

    def ratings(z: Floats) -> list[float]:
        known = np.array(list(GROUPS.values()))
        inner = np.interp(at, known, z)
        slope = (z[-1] - z[-2]) / (known[-1] - known[-2])
        return [round(float(x), 1) for x in 50 + 10 * np.where(at > known[-1], z[-1] + slope * (at - known[-1]), inner)]

    positions = {
        "strike": ratings(strike),
        "power": ratings(groups[:, 5] / six),
        "safety": ratings(-groups[:, 6] / out),
    }
    return settle, positions, skills


def _bowling_types(tables: Tables) -> tuple[Floats, Floats]:
    """f64[phase, type, outcomes] relative to the mean of the phase, and f64[type, hand] in log runs."""
    effects = np.zeros((3, len(TYPES), 10))
    for p, phase in enumerate(PHASES):
        observed = counts([tables.rows("outcome_by_phase_bowltype", phase=phase, btype=kind)[0] for kind in TYPES])
        mean = observed.sum(0) / observed.sum()
        # effects with few balls shrink towards zero
        padded = observed + 800 * mean
        ratio = np.log(padded / padded.sum(1, keepdims=True) / mean)
        effects[p] = ratio - ratio[:, 1:2]
    hands = np.zeros((len(TYPES), 2))
    for t, kind in enumerate(TYPES):
        pair = [tables.rows("outcome_by_bowltype_hand", btype=kind, hand=hand)[0] for hand in "RL"]
        balls = np.array([number(row, "legal_balls") for row in pair])
        runs = np.log(np.array([number(row, "runs_per_legal_ball") for row in pair]))
        hands[t] = (runs - np.average(runs, weights=balls)) * balls / (balls + 3000)
    return effects, hands


def dismissals(tables: Tables) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """By era: shares of the bowlers' dismissals [phase, pace or spin, 6], and run outs' share of wickets [over]."""
    names = HOWS[1:-1]
    by_kind = np.stack([column(tables.rows("dismissal_by_pacespin"), n) for n in names], axis=1)
    every = np.array([number(tables.rows("dismissal_types", kind=n)[0], "share") for n in names])
    run_outs = number(tables.rows("dismissal_types", kind="run out")[0], "share")
    how = {}
    eras = {}
    for era in ERAS:
        row = tables.rows("dismissal_by_era", era=era)[0]
        eras[era] = number(row, "run out") / run_outs
        later = np.array([number(row, n) for n in names]) / every
        table = np.zeros((3, 2, 6))
        for p, phase in enumerate(PHASES):
            seen = tables.rows("dismissal_by_phase", phase=phase)[0]
            both = np.array([number(seen, n) for n in names]) * by_kind / every * later  # pace, spin
            table[p] = both / both.sum(1, keepdims=True)
        how[era] = table
    rows = tables.rows("outcome_by_over")
    over_share = column(rows, "runout_per_legal") * column(rows, "legal_balls")
    over_share = over_share / (column(rows, "p_wicket") * column(rows, "deliveries"))
    smooth = np.array([np.mean(over_share[max(0, o - 2) : o + 3]) for o in range(19)] + [over_share[19]])
    return how, {era: smooth * eras[era] for era in ERAS}


def from_tables(tables: Tables) -> dict[str, Any]:
    """Everything that comes directly from the tables; the base rates are an initial guess."""
    extras = tables.numbers("extras_detail")
    smooth = by_over(tables)
    settle, positions, skills = settling(tables)
    types, hands = _bowling_types(tables)
    how, run_out = dismissals(tables)
    free, usual = (shares(tables.rows("outcome_free_hit", fh=label)[0]) for label in ("True", "False"))
    free_hit = np.log(free / usual)
    free_hit = (free_hit - free_hit[1]) * np.array([1, 0, 1, 0, 1, 1, 0, 1, 1, 1])
    # the laws already reduce the weight of a wicket to run outs
    typical = np.mean([smooth[era].mean(0) for era in ERAS], axis=0)
    level = _level(typical)

    def listed(table: dict[str, float], keys: str) -> list[float]:
        values = np.array([table.get(key, 0.0) for key in keys])
        return [round(float(x), 4) for x in values / values.sum()]

    wickets = tables.rows("outcome_by_over")
    return {
        "source": SOURCE,
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "eras": {
            era: {
                "base": np.log(smooth[era] / smooth[era][:, 1:2]),
                "second": np.zeros((3, 10)),
                "share": smooth[era],
                "level_sd": list(LEVEL_SD[era]),
                "tail": [1.0] * (10 - TAIL_WICKETS),  # `fit.settle_tail` replaces it
                "run_out": run_out[era],
                "how": how[era],
                "runs": smooth[era] @ MEAN_RUNS / (1 - smooth[era][:, 7] - smooth[era][:, 8]),
            }
            for era in ERAS
        },
        "wickets": column(wickets, "p_wicket") * column(wickets, "deliveries") / column(wickets, "legal_balls"),
        "settle": settle,
        "positions": positions,
        "skills": skills,
        "types": types,
        "match_ups": hands,
        "level": level,
        "pressure": np.zeros((2, 10)),
        "excess_wickets": np.zeros(10),
        "free_hit": free_hit,
        "extras": {
            "wide": listed(extras["wide_runs_dist"], "12345"),
            "no_ball": listed(extras["noball_bat_runs_dist"], "012346"),
            "bye": listed(extras["byelb_runs_dist"], "1234"),
            "run_out": listed(extras["runout_completed_runs_dist"], "012"),
            "leg_bye_share": round(extras["legbye_share"], 4),
            "striker_out_share": round(extras["runout_striker_out_share"], 4),
        },
    }


def _level(typical: Floats) -> Floats:
    direction = outcome_row(LEVEL).astype(np.float64)

    def log_runs(scale: float) -> float:
        p = typical * np.exp(scale * direction)
        return float(np.log(p @ MEAN_RUNS / p.sum()))

    slope: Floats = direction / ((log_runs(0.05) - log_runs(-0.05)) / 0.1)
    return slope
