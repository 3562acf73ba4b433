"""Fits `calibration.json` to the calibration tables: numbers only, with source and date.

Settling in, positions, bowling types, extras and dismissals come directly from the tables. Simulation
fits the base rates: default captains play thousands of matches, and the base rates move until the shares
by over match the smoothed real ones. The numbers are few and smooth because other matches judge the fit.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from kibitz.games.cricket.fitting.tables import PHASES, Floats, Tables, column, counts, multinomial, number, shares
from kibitz.games.cricket.model.calibration import ERAS, FILE
from kibitz.games.cricket.model.delivery import HOWS, TYPES, phase_of

SOURCE = "T20 matches of one league, 2008 to May 2026: Cricsheet (licence believed to be ODC-BY)"
PHASE = np.array([phase_of(over) for over in range(20)])
FACED = {"0": 0, "1": 1, "2": 2, "3-5": 4, "6-9": 7.5, "10-14": 12, "15-19": 17, "20-29": 24.5, "30-44": 36, "45+": 52}
GROUPS = {"1-2": 1.5, "3-4": 3.5, "5-6": 5.5, "7-8": 7.5, "9-11": 9.55}  # mean positions
LEVEL = {"dot": -0.9, "two": 0.2, "three": 0.2, "four": 0.9, "six": 1.5, "wicket": -0.25}
"""The effect of good batting conditions: an assumption, scaled so that one unit is one unit of log runs."""
LEVEL_SD = {"pre2018": (0.082, 0.03), "2018-2022": (0.082, 0.03), "2023+": (0.082, 0.03)}
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


def bowling_types(tables: Tables) -> tuple[Floats, Floats]:
    """f64[phase, type, outcomes] relative to the mean of the phase, and f64[type, hand] in log runs."""
    effects = np.zeros((3, len(TYPES), 10))
    for p, phase in enumerate(PHASES):
        rows = {row["btype"]: row for row in tables.rows("outcome_by_phase_bowltype", phase=phase)}
        observed = counts([rows[kind] for kind in TYPES])
        mean = observed.sum(0) / observed.sum()
        # effects with few balls shrink towards zero
        padded = observed + 800 * mean
        ratio = np.log(padded / padded.sum(1, keepdims=True) / mean)
        effects[p] = ratio - ratio[:, 1:2]
    hands = np.zeros((len(TYPES), 2))
    by_hand = tables.rows("outcome_by_bowltype_hand")
    for t, kind in enumerate(TYPES):
        pair = [next(r for r in by_hand if r["btype"] == kind and r["hand"] == hand) for hand in "RL"]
        balls = np.array([number(row, "legal_balls") for row in pair])
        runs = np.log(np.array([number(row, "runs_per_legal_ball") for row in pair]))
        hands[t] = (runs - np.average(runs, weights=balls)) * balls / (balls + 3000)
    return effects, hands


def dismissals(tables: Tables) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """By era: shares of the bowlers' dismissals [phase, pace or spin, 6], and run outs' share of wickets [over]."""
    names = HOWS[1:-1]
    by_kind = np.stack([column(tables.rows("dismissal_by_pacespin"), n) for n in names], axis=1)
    overall = column(tables.rows("dismissal_types"), "share")
    total = {row["kind"]: x for row, x in zip(tables.rows("dismissal_types"), overall, strict=True)}
    every = np.array([total[n] for n in names])
    how = {}
    for row in tables.rows("dismissal_by_era"):
        later = np.array([number(row, n) for n in names]) / every
        table = np.zeros((3, 2, 6))
        for p, phase in enumerate(PHASES):
            seen = tables.rows("dismissal_by_phase", phase=phase)[0]
            both = np.array([number(seen, n) for n in names]) * by_kind / every * later  # pace, spin
            table[p] = both / both.sum(1, keepdims=True)
        how[row["era"]] = table
    rows = tables.rows("outcome_by_over")
    over_share = column(rows, "runout_per_legal") * column(rows, "legal_balls")
    over_share = over_share / (column(rows, "p_wicket") * column(rows, "deliveries"))
    smooth = np.array([np.mean(over_share[max(0, o - 2) : o + 3]) for o in range(19)] + [over_share[19]])
    eras = {row["era"]: number(row, "run out") for row in tables.rows("dismissal_by_era")}
    return how, {era: smooth * eras[era] / total["run out"] for era in ERAS}


def static(tables: Tables) -> dict[str, Any]:
    """Everything that comes directly from the tables; the base rates are an initial guess."""
    extras = tables.numbers("extras_detail")
    smooth = by_over(tables)
    settle, positions, skills = settling(tables)
    types, hands = bowling_types(tables)
    how, run_out = dismissals(tables)
    free = {row["fh"]: shares(row) for row in tables.rows("outcome_free_hit")}
    free_hit = np.log(free["True"] / free["False"])
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
    from kibitz.games.cricket.model.tactics import row

    direction = row(LEVEL).astype(np.float64)

    def log_runs(scale: float) -> float:
        p = typical * np.exp(scale * direction)
        return float(np.log(p @ MEAN_RUNS / p.sum()))

    slope: Floats = direction / ((log_runs(0.05) - log_runs(-0.05)) / 0.1)
    return slope


def plain(value: Any) -> Any:
    """Arrays as rounded lists, for JSON."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return round(value, 4) if isinstance(value, float) else value


def save(fitted: dict[str, Any], path: Path = FILE) -> None:
    """Writes one line per innermost list, for readable diffs."""
    import re

    text = json.dumps(plain(fitted), indent=1)
    text = re.sub(r"\[\s+((?:[-\d.e]+,\s+)*[-\d.e]+)\s+\]", lambda m: "[" + re.sub(r"\s+", " ", m[1]) + "]", text)
    path.write_text(text + "\n", encoding="utf-8")


Report = Callable[[str], None]


def over_shares(balls: Any, second: int) -> Floats:
    """f64[20, outcomes] of simulated twenty-over matches."""
    here = (balls.live == 1) & (balls.supers == 0) & (balls.second == second)
    cells = (balls.legal[here] // 6).astype(int) * 10 + balls.outcome[here]
    table = np.bincount(cells, minlength=200).reshape(20, 10) + 1e-3
    result: Floats = table / table.sum(1, keepdims=True)
    return result


COMMON = np.array([1, 0, 1, 0, 1, 1, 1, 0, 0, 0])  # outcomes common enough to fit slopes
RATE_EDGES = (4, 6, 7, 8, 9, 10, 11, 12, 14, 17, 22)  # required rates, in runs per over
RATE_BINS = ("<4", "4-6", "6-7", "7-8", "8-9", "9-10", "10-11", "11-12", "12-14", "14-17", "17-22", "22+")


def chase_cells(balls: Any, runs_left: Floats) -> tuple[Floats, Floats]:
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
    from kibitz.games.cricket.fitting.simulate import POOL, deliveries, innings
    from kibitz.games.cricket.options import CricketOptions

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
            mine = fitted["eras"][era]
            settings = CricketOptions.read({"max_overs": 20, "era": era, "pool": POOL, "seed": 1}).settings(fitted)
            balls, final = deliveries(settings, matches, 1000 + turn)
            ratio = np.log(np.asarray(mine["share"]) / over_shares(balls, 0))
            change = ratio - ratio[:, 1:2]
            mine["base"] = np.asarray(mine["base"]) + pace * change
            runs_left = np.asarray(settings.par.runs_left).reshape(3, 121)[ERAS.index(era)]
            cells, sums = chase_cells(balls, runs_left)
            ours, hinges = ours + cells * weight, hinges + sums * weight
            cells, sums = wicket_cells(balls, np.asarray(settings.par.wickets))
            down, excess = down + cells * weight, excess + sums * weight
            rows = innings(balls, final, 36, 20)
            first = rows["inn"] == 1
            report(
                f"round {turn}, {era}: first innings {rows['total'][first].mean():.1f} "
                f"+- {rows['total'][first].std():.1f}, wickets {rows['wkts'][first].mean():.2f}, "
                f"all out {(rows['wkts'][first] == 10).mean():.3f}, chases won {rows['won'][~first].mean():.3f}, "
                f"largest change {np.abs(change[:, [0, 4, 5, 6]]).max():.3f}"
            )
        offsets, slopes = _step(real, ours, hinges, 30.0)
        per_wicket = _step(real_down, down, excess, 30.0)[1][0]
        fitted["excess_wickets"] = np.asarray(fitted["excess_wickets"]) + pace * per_wicket * COMMON
        fitted["pressure"] = np.asarray(fitted["pressure"]) + pace * slopes * COMMON
        for era in ERAS:
            fitted["eras"][era]["second"] = np.asarray(fitted["eras"][era]["second"]) + pace * offsets


def wicket_cells(balls: Any, par_wickets: Floats) -> tuple[Floats, Floats]:
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
    pad = 20 * b / b.sum(1, keepdims=True)
    ratio = np.log((a + pad) / (b + pad))
    ratio = ratio - ratio[:, 1:2]
    phase = np.repeat(np.arange(3), real.shape[1])[keep]
    design = np.concatenate([np.eye(3)[phase], mean], axis=1)
    weight = a.sum(1)
    normal = (design * weight[:, None]).T @ design + np.diag([1.0] * 3 + [ridge] * mean.shape[1])
    beta = np.linalg.solve(normal, (design * weight[:, None]).T @ ratio)
    return beta[:3], beta[3:]


def fit(
    folder: str | Path, out: Path = FILE, rounds: int = 8, matches: int = 8192, report: Report = print
) -> dict[str, Any]:
    """Writes `calibration.json` from the tables; takes a few minutes on two cores."""
    tables = Tables(folder)
    fitted = static(tables)
    if out.is_file():
        # start from the last fit
        last = json.loads(out.read_text(encoding="utf-8"))
        for name in ("pressure", "excess_wickets"):
            fitted[name] = np.array(last[name])
        for era in ERAS:
            for name in ("base", "second"):
                fitted["eras"][era][name] = np.array(last["eras"][era][name])
    calibrate(fitted, tables, rounds, matches, report)
    return _with_winprob(fitted, tables, out)


def refit_winprob(folder: str | Path, out: Path = FILE) -> dict[str, Any]:
    """Refits win probability to the current ball model; takes a minute on two cores."""
    return _with_winprob(json.loads(out.read_text(encoding="utf-8")), Tables(folder), out)


def _with_winprob(fitted: dict[str, Any], tables: Tables, out: Path) -> dict[str, Any]:
    from kibitz.games.cricket.fitting.fit_winprob import fit_winprob
    from kibitz.games.cricket.model.calibration import calibration

    fit_winprob(fitted, tables)
    save(fitted, out)
    calibration.cache_clear()
    return fitted
