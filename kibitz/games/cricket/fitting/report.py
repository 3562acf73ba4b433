"""The accuracy of the simulator: our figure, the real one and its standard error, for each era."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kibitz.games.cricket.chances import winprob
from kibitz.games.cricket.fitting import moments
from kibitz.games.cricket.fitting.simulate import POOL, Record, deliveries, innings
from kibitz.games.cricket.fitting.tables import PHASES, Floats, TableRow, Tables, column, number, shares
from kibitz.games.cricket.model.calibration import ERAS, calibration, models_by_era
from kibitz.games.cricket.model.delivery import BYE, HOWS, NO_BALL, RUN_OUT, TYPES, WICKET, WIDE, phase_of
from kibitz.games.cricket.model.tactics import OUTCOMES
from kibitz.games.cricket.options import CricketOptions

WINPROB_OVERS, WINPROB_MATCHES = (5, 7, 10, 20), 4096  # the matches that judge win probability
FACED_EDGES = (1, 2, 3, 6, 10, 15, 20, 30, 45)


class StatisticLine(NamedTuple):
    """One statistic. `within` is the tolerance, twice as large for the older eras."""

    era: str
    name: str
    ours: float
    real: float
    error: float  # standard error of the real figure
    within: float | None

    @property
    def holds(self) -> bool:
        return self.within is None or abs(self.ours - self.real) <= self.within


class Play:
    """A simulation of one era, with the statistics of the tables."""

    def __init__(self, era: str, matches: int, seed: int, fitted: dict[str, Any] | None = None) -> None:
        options = CricketOptions.read({"max_overs": 20, "era": era, "pool": POOL, "seed": seed})
        balls, final = deliveries(options.settings(fitted), matches, seed)
        self.era = era
        self.balls = balls
        self.rows = innings(balls, final, 36, 20)
        self.ties = float(np.mean(np.asarray(final.supers) > 0))
        self.there = (balls.live == 1) & (balls.supers == 0)
        self.phase = phase_of(balls.legal // 6)

    def share(self, here: NDArray[np.bool_]) -> Floats:
        """f64[outcomes] of the selected balls."""
        tally = np.bincount(self.balls.outcome[here & self.there], minlength=10).astype(np.float64)
        result: Floats = tally / max(tally.sum(), 1)
        return result


def lines(tables: Tables, play: Play) -> Iterator[StatisticLine]:
    """The statistics of one era; `shapes` has those over all eras."""
    era = play.era
    slack = 1 if era == "2023+" else 2
    real = [row for row in tables.rows("innings_rows") if row["era"] == era]
    for inn in (1, 2):
        mine = {name: values[play.rows["inn"] == inn] for name, values in play.rows.items()}
        theirs = {
            n: column([r for r in real if r["inn"] == str(inn)], n)
            for n in ("total", "wkts", "legal", "fours", "sixes", "pp", "mid_", "death")
        }
        n = len(theirs["total"])
        root = np.sqrt(n)
        for name, within in (("total", 3.0), ("wkts", 0.35)):
            mean, sd = theirs[name].mean(), theirs[name].std(ddof=1)
            asked = within * slack if inn == 1 or name == "wkts" else None
            yield StatisticLine(era, f"innings {inn} {name}, mean", mine[name].mean(), mean, sd / root, asked)
            wanted = 3.0 * slack if (inn == 1 and name == "total") else None
            yield StatisticLine(era, f"innings {inn} {name}, SD", mine[name].std(), sd, sd / np.sqrt(2 * n), wanted)
        if inn == 1:
            grid = np.arange(0, 400)
            ours = np.searchsorted(np.sort(mine["total"]), grid, "right") / len(mine["total"])
            theirs_cdf = np.searchsorted(np.sort(theirs["total"]), grid, "right") / n
            yield StatisticLine(
                era, "innings 1 total, KS distance", np.abs(ours - theirs_cdf).max(), 0.0, 0.87 / root, 0.08 * slack
            )
        out = (theirs["wkts"] == 10).mean()
        yield StatisticLine(
            era,
            f"innings {inn} all out, share",
            (mine["wkts"] == 10).mean(),
            out,
            np.sqrt(out * (1 - out) / n),
            0.03 * slack,
        )
        for name in ("pp", "mid_", "death", "fours", "sixes", "legal"):
            yield StatisticLine(
                era,
                f"innings {inn} {name}, mean",
                mine[name].mean(),
                theirs[name].mean(),
                theirs[name].std() / root,
                None,
            )
    results = tables.numbers("match_results")[era]
    chase = play.rows["won"][play.rows["inn"] == 2].mean()
    yield StatisticLine(
        era, "chases won, share", chase, results["chase_success_pct_ex_ties"] / 100, results["se"] / 100, 0.04 * slack
    )
    yield StatisticLine(era, "ties, share", play.ties, results["tie_pct"] / 100, 0.01, None)
    first, second = (play.rows["total"][play.rows["inn"] == i] for i in (1, 2))
    yield StatisticLine(
        era,
        "totals of both innings, correlation",
        float(np.corrcoef(first, second)[0, 1]),
        results["corr_inn1_inn2_total"],
        0.05,
        None,
    )
    target = play.rows["target"][play.rows["inn"] == 2]
    won = play.rows["won"][play.rows["inn"] == 2]
    for band, seen in results["chase_win_by_target"].items():
        low, high = (int(x) for x in band[1:-1].split(","))
        here = (target >= low) & (target < high)
        p = seen["pct"] / 100
        error = np.sqrt(max(p * (1 - p), 0.04) / seen["n"])
        yield StatisticLine(
            era, f"chases won, target {low}-{high - 1}", float(won[here].mean()) if here.any() else p, p, error, None
        )
    yield from _phases(tables, play, slack)


def _phases(tables: Tables, play: Play, slack: int) -> Iterator[StatisticLine]:
    rows = tables.rows("outcome_by_era_phase_innings", era=play.era)
    for p, phase in enumerate(PHASES):
        pair = [row for row in rows if row["phase"] == phase]
        size = np.array([number(row, "deliveries") for row in pair])
        both = np.average([shares(row) for row in pair], axis=0, weights=size)
        ours = play.share(play.phase == p)
        for k, name in enumerate(OUTCOMES):
            error = float(np.sqrt(both[k] * (1 - both[k]) / size.sum()))
            yield StatisticLine(play.era, f"{phase} {name}, share", ours[k], both[k], error, 0.012 * slack)
        for row in pair:
            ours = play.share((play.phase == p) & (play.balls.second == int(number(row, "inn")) - 1))
            theirs, n = shares(row), number(row, "deliveries")
            for k in (0, 1, 4, 5, 6):
                error = float(np.sqrt(theirs[k] * (1 - theirs[k]) / n))
                yield StatisticLine(
                    play.era, f"{phase} innings {row['inn']} {OUTCOMES[k]}, share", ours[k], theirs[k], error, None
                )


def shapes(tables: Tables, plays: list[Play]) -> Iterator[StatisticLine]:
    """Settling in, positions, types, dismissals and extras, over all eras like the tables."""
    weight = [sum(row["era"] == play.era for row in tables.rows("innings_rows")) for play in plays]

    def mixed(pick: Any) -> Floats:
        counts = [np.bincount(p.balls.outcome[pick(p) & p.there], minlength=10) / len(p.balls.live) for p in plays]
        total = np.average(counts, axis=0, weights=weight)
        result: Floats = total / total.sum()
        return result

    def compare(label: str, row: TableRow, pick: Any) -> Iterator[StatisticLine]:
        ours, real, n = mixed(pick), shares(row), number(row, "deliveries")
        for k in (0, 1, 4, 5, 6, 7):
            error = float(np.sqrt(real[k] * (1 - real[k]) / n))
            yield StatisticLine("all", f"{label} {OUTCOMES[k]}, share", ours[k], real[k], error, 0.03)

    for i, row in enumerate(tables.rows("outcome_by_balls_faced")):
        low = (0, *FACED_EDGES)[i]
        high = (*FACED_EDGES, 999)[i]
        yield from compare(
            f"faced {row['fb']}", row, lambda p, lo=low, hi=high: (p.balls.faced >= lo) & (p.balls.faced < hi)
        )
    for row in tables.rows("outcome_by_position"):
        at = int(number(row, "posb")) - 1
        yield from compare(f"position {row['posb']}", row, lambda p, at=at: p.balls.striker == at)
    for row in tables.rows("outcome_by_bowltype"):
        kind = TYPES.index(row["btype"])
        yield from compare(row["btype"], row, lambda p, kind=kind: p.balls.bowler_type == kind)
    for row in tables.rows("outcome_by_phase_wickets"):
        w, ph = row["wkb"], PHASES.index(row["phase"])
        top = 9 if "-" in w else int(w)
        low = int(w.split("-")[0])
        yield from (
            x._replace(within=None)
            for x in compare(
                f"{row['phase']} {w} down",
                row,
                lambda p, lo=low, hi=top, ph=ph: (p.balls.wickets >= lo) & (p.balls.wickets <= hi) & (p.phase == ph),
            )
        )
    yield from _kinds(tables, plays)


def _kinds(tables: Tables, plays: list[Play]) -> Iterator[StatisticLine]:
    for play in plays:
        row = tables.rows("dismissal_by_era", era=play.era)[0]
        out = play.there & (play.balls.how > 0) & (play.balls.outcome == WICKET)
        tally = np.bincount(play.balls.how[out], minlength=8) / out.sum()
        for how in range(1, RUN_OUT + 1):
            real, n = number(row, HOWS[how]), number(row, "n")
            yield StatisticLine(
                play.era,
                f"{HOWS[how]}, share of dismissals",
                tally[how],
                real,
                float(np.sqrt(max(real, 0.001) / n)),
                0.03,
            )
        extras = _extras(play.balls, play.there)
        innings_played = len(play.rows["inn"])
        real_rows = tables.rows("outcome_by_era", era=play.era)[0]
        n = number(real_rows, "deliveries")
        for name, ours, key in (
            ("wides", extras[0], "p_wide"),
            ("no-balls", extras[1], "p_noball"),
            ("byes", extras[2], "p_byelb"),
        ):
            p = number(real_rows, key)
            yield StatisticLine(
                play.era, f"{name}, share of deliveries", ours / max(extras[3], 1), p, float(np.sqrt(p / n)), 0.03
            )
        yield StatisticLine(
            play.era,
            "run outs an innings",
            float((out & (play.balls.how == RUN_OUT)).sum()) / innings_played,
            number(row, "run out")
            * number(row, "n")
            / len([r for r in tables.rows("innings_rows") if r["era"] == play.era]),
            0.02,
            None,
        )


def _extras(balls: Record, there: NDArray[np.bool_]) -> tuple[int, int, int, int]:
    kinds = balls.outcome[there]
    return int((kinds == WIDE).sum()), int((kinds == NO_BALL).sum()), int((kinds == BYE).sum()), len(kinds)


def brier(tables: Tables, models: Sequence[int]) -> Iterator[StatisticLine]:
    """Win probability on real chases, at the start of each over.

    `real` is a plain logit on other matches at every ball. These states are harder: a plain logit scores
    0.155 on them by cross-validation over matches.
    """
    rows = tables.rows("chase_states_by_over")
    states = {name: column(rows, name) for name in winprob.CHASE_COLUMNS}
    eras = np.array([ERAS.index(row["era"]) for row in rows])
    wrong = (winprob.score_states(states, eras, models) - column(rows, "won")) ** 2
    plain = tables.numbers("winprob_baselines")["all_balls"]["logit_3raw(need,balls_left,wkts_left)"]
    for name, here in [("all", eras >= 0), *((era, eras == e) for e, era in enumerate(ERAS))]:
        ours = float(wrong[here].mean())
        beaten = ours <= plain["brier"] or name != "all"
        within = None if beaten else 0.0
        yield StatisticLine(name, "win probability, Brier", ours, plain["brier"], plain["se_brier_by_match"], within)


def chances(era: int, matches: int, seed: int, model: int = 0) -> Iterator[StatisticLine]:
    """The error of win probability in simulated matches of several lengths; it should be 0."""
    slack = 1 if ERAS[era] == "2023+" else 2
    for overs in WINPROB_OVERS:
        played = moments.moments(overs, era, matches, seed, calibration(model), sides=seed)
        wrong = moments.chances(played, overs, era, model) - played.won
        for name, here in (("first innings", ~played.second), ("chase", played.second)):
            # sums over a match, not averages: long chases are lost more often
            by_match = np.bincount(played.match[here], wrong[here], matches) * matches / here.sum()
            error = float(by_match.std() / np.sqrt(matches))
            mean = float(by_match.mean())
            yield StatisticLine(ERAS[era], f"{overs} overs {name}, chance less result", mean, 0.0, error, 0.03 * slack)
        jump = moments.jumps(played, overs, era, model)
        error = float(jump.std() / np.sqrt(matches))
        yield StatisticLine(
            ERAS[era], f"{overs} overs break, jump of the chance", float(jump.mean()), 0.0, error, 0.01 * slack
        )


def report(tables: Tables, model: str | None = None, matches: int = 12288, seed: int = 7) -> list[StatisticLine]:
    """Every line of every era, each with its own model unless one is named."""
    models = models_by_era(model)
    plays = [Play(era, matches, seed, calibration(number)) for era, number in zip(ERAS, models, strict=True)]
    made = [line for play in plays for line in lines(tables, play)]
    made += [*shapes(tables, plays), *brier(tables, models)]
    return made + [line for era, number in enumerate(models) for line in chances(era, WINPROB_MATCHES, seed, number)]


def as_json(made: list[StatisticLine]) -> dict[str, Any]:
    """The report as JSON data, null for numbers that are not finite."""

    def number(value: float | None) -> float | None:
        return None if value is None or not np.isfinite(value) else float(value)

    lines = [
        {"era": x.era, "name": x.name, "holds": bool(x.holds)}
        | {name: number(getattr(x, name)) for name in ("ours", "real", "error", "within")}
        for x in made
    ]
    return {"lines": lines, "missed": sum(not x.holds for x in made)}


def as_text(made: list[StatisticLine]) -> str:
    """The report as a table; `!` marks a line outside its tolerance."""
    head = f"{'era':10} {'statistic':44} {'ours':>8} {'real':>8} {'s.e.':>7} {'within':>7}"
    body = [
        f"{x.era:10} {x.name:44} {x.ours:8.3f} {x.real:8.3f} {x.error:7.3f} "
        f"{'' if x.within is None else f'{x.within:.3f}':>7}{'' if x.holds else ' !'}"
        for x in made
    ]
    missed = sum(not x.holds for x in made)
    asked = sum(x.within is not None for x in made)
    return "\n".join([head, *body, f"{asked - missed} of {asked} lines within their tolerance"])
