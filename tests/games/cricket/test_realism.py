"""The simulator resembles the real game, within generous tolerances; the report has the exact ones."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kibitz.bench import cricket_numpy
from kibitz.core.errors import BadInput
from kibitz.games.cricket.chances import winprob
from kibitz.games.cricket.fitting import csv_out, report
from kibitz.games.cricket.fitting.from_tables import from_tables
from kibitz.games.cricket.fitting.moments import chances, jumps, moments
from kibitz.games.cricket.fitting.simulate import (
    BATCH_MATCHES,
    COLUMNS,
    POOL,
    deliveries,
    innings,
    simulate,
    write_rows,
)
from kibitz.games.cricket.fitting.tables import Floats, Tables, column
from kibitz.games.cricket.laws.state import TIE
from kibitz.games.cricket.model import tactics
from kibitz.games.cricket.model.calibration import ERAS, calibration, models_by_era
from kibitz.games.cricket.model.delivery import WICKET, phase_of
from kibitz.games.cricket.options import CricketOptions

FOLDER = Path(__file__).parents[4] / "shared/data/cricket/calibration"
needs_tables = pytest.mark.skipif(not FOLDER.is_dir(), reason="the calibration tables are not beside this checkout")


@pytest.fixture(scope="module")
def play() -> report.Play:
    return report.Play("2023+", 4096, 11)


@pytest.mark.optimised
@pytest.mark.conformance  # plays 4,096 full matches
def test_full_matches_resemble_those_since_2023(play: report.Play) -> None:
    first = play.rows["inn"] == 1
    total, wickets = play.rows["total"][first], play.rows["wkts"][first]
    assert abs(total.mean() - 192.0) < 4
    assert abs(total.std() - 35.0) < 4
    assert abs(wickets.mean() - 6.23) < 0.4
    assert abs((wickets == 10).mean() - 0.084) < 0.04
    assert abs(play.rows["won"][~first].mean() - 0.51) < 0.05


@pytest.mark.optimised
@pytest.mark.conformance
@needs_tables
def test_almost_every_line_of_the_report_is_within_its_tolerance(play: report.Play) -> None:
    lines = list(report.lines(Tables(FOLDER), play))
    missed = [line.name for line in lines if not line.holds]
    assert len(missed) <= 2, missed
    assert "statistic" in report.as_text(lines)


@needs_tables
def test_the_committed_numbers_come_from_the_tables() -> None:
    fresh, kept = from_tables(Tables(FOLDER)), calibration()
    assert np.allclose(fresh["settle"], kept["settle"], atol=2e-3)
    assert np.allclose(fresh["types"], kept["types"], atol=2e-3)
    assert fresh["positions"] == kept["positions"]
    assert "Cricsheet" in kept["source"]


@pytest.mark.optimised
@pytest.mark.conformance
def test_the_numpy_batch_has_the_same_statistics(play: report.Play) -> None:
    """An independent implementation of the laws and the ball model has the same means within their errors."""
    _, totals, wickets = cricket_numpy.play(CricketOptions(max_overs=20, pool=256, seed=11).settings(), 4096, 3)
    for inn in (0, 1):
        ours = play.rows["inn"] == inn + 1
        assert abs(totals[:, inn].mean() - play.rows["total"][ours].mean()) < 3.0
        assert abs(wickets[:, inn].mean() - play.rows["wkts"][ours].mean()) < 0.2


@needs_tables
def test_win_probability_beats_the_plain_logit_and_is_calibrated() -> None:
    rows = Tables(FOLDER).rows("chase_states_by_over")
    states = {name: column(rows, name) for name in winprob.CHASE_COLUMNS}
    won = column(rows, "won")
    eras = np.array([ERAS.index(row["era"]) for row in rows])
    for known in (eras, None):
        p = winprob.score_states(states, known, models_by_era())
        assert np.mean((p - won) ** 2) < 0.1485
        for low in np.arange(0, 1, 0.2):
            here = (p >= low) & (p < low + 0.2)
            assert abs(p[here].mean() - won[here].mean()) < 0.06


def test_win_probability_is_sensible_everywhere() -> None:
    assert winprob.chase(30, 0, 5, 180, 2) == 1
    assert winprob.chase(0, 5, 5, 180, 2) == 0
    assert winprob.chase(12, 5, 0, 180, 2) == 0
    needed = winprob.chase(60, np.arange(10, 200, 5), 6, 190, 2)
    assert (np.diff(needed) <= 1e-6).all(), "more runs needed is never better"
    wickets = winprob.chase(60, 90, np.arange(1, 11), 190, 2)
    assert (np.diff(wickets) >= -0.02).all()
    scores = winprob.first_innings(np.arange(60, 200, 10), 90, 4, 20, 2)
    assert (np.diff(scores) > 0).all()
    par = winprob.par_score(20, 2)
    assert abs(par - 192) < 8
    for overs in (1, 5, 10):
        assert winprob.par_score(overs, 2) < par
        start = winprob.win_probability(second=False, score=0, first=0, legal=0, wickets=0, overs=overs, era=2)
        assert 0.3 < start < 0.7
    assert 0 < winprob.win_probability(second=True, score=3, first=8, legal=2, wickets=1, overs=5, era=2, supers=1) < 1


@pytest.mark.optimised
@pytest.mark.conformance  # plays 4,096 matches of each length
@pytest.mark.parametrize("overs", [2, 5, 10])
def test_win_probability_is_calibrated_in_short_matches_and_continuous_at_the_break(overs: int) -> None:
    """The standard error of 4,096 matches is at most a hundredth."""
    played = moments(overs, 2, 4096, 11, sides=11)
    p = chances(played, overs, 2)
    for second in (False, True):
        here = played.second == second
        assert abs(p[here].mean() - played.won[here].mean()) < 0.03
        for low in np.arange(0, 1, 0.2):
            bin_ = here & (p >= low) & (p < low + 0.2)
            assert bin_.sum() < 2000 or abs(p[bin_].mean() - played.won[bin_].mean()) < 0.06
    jump = jumps(played, overs, 2)
    assert abs(jump.mean()) < 0.01
    assert abs(jump).mean() < 0.1


BEFORE_2023 = {"pre2018": ((0.040, 0.098), (0.088, 0.13)), "2018-2022": ((0.007, 0.069), (0.108, 0.13))}
"""Bounds of the share all out in first innings and in chases: the tables' 95 % intervals, at most 13 % in chases."""


@pytest.mark.optimised
@pytest.mark.conformance  # plays 8,192 full matches
@pytest.mark.parametrize("era", BEFORE_2023)
def test_innings_before_2023_do_not_collapse_too_often(era: str) -> None:
    played = report.Play(era, 4096, 11)
    for inn, (low, high) in enumerate(BEFORE_2023[era], 1):
        wickets = played.rows["wkts"][played.rows["inn"] == inn]
        assert low < (wickets == 10).mean() < high
        assert abs(wickets.mean() - 6.0) < 0.3
    shipped = simulate(4096, 20, era, 11, model="shipped")
    collapsed = shipped["wkts"][shipped["inn"] == 2] == 10
    assert collapsed.mean() > 0.14, "the earlier fit, which records name, keeps its figures"
    _, _, lost = cricket_numpy.play(CricketOptions(max_overs=20, pool=256, seed=11, era=era).settings(), 4096, 3)
    ours = played.rows["wkts"][played.rows["inn"] == 2] == 10
    assert abs((lost[:, 1] == 10).mean() - ours.mean()) < 0.025, "the plain NumPy batch has the same tail"


@pytest.mark.optimised
@pytest.mark.conformance  # plays 4,096 matches of each length
@pytest.mark.parametrize("era", [0, 1])
@pytest.mark.parametrize("overs", [5, 20])
def test_win_probability_before_2023_is_calibrated_and_continuous_at_the_break(overs: int, era: int) -> None:
    """0.03 in the report, and a little more for other sides."""
    model = models_by_era()[era]
    played = moments(overs, era, 4096, 11, sides=11)
    p = chances(played, overs, era, model)
    for second in (False, True):
        here = played.second == second
        assert abs(p[here].mean() - played.won[here].mean()) < 0.04
    assert abs(jumps(played, overs, era, model).mean()) < 0.01


def test_a_first_innings_ends_at_the_value_of_its_total() -> None:
    for overs in (1, 5, 20):
        ended = winprob.first_innings(40, 6 * overs, 3, overs, 2)
        assert ended == pytest.approx(1 - winprob.chase(6 * overs, 41, 10, 40, 2, overs))
        assert winprob.first_innings(40, 4, 10, overs, 2) == ended, "all out"
        par = winprob.par_score(overs, 2)
        assert winprob.first_innings(round(par), 6 * overs, 3, overs, 2) == pytest.approx(0.5, abs=0.05)
        assert np.all(np.diff(winprob.total_worth(overs, 2)) >= 0)


def test_level_scores_with_no_ball_left_are_an_even_chance() -> None:
    assert winprob.chase(0, 1, 4, 50, 2, 5) == 0.5
    assert winprob.chase(7, 1, 0, 50, 2, 5) == 0.5
    assert winprob.chase(0, 2, 4, 50, 2, 5) == 0


def test_winprob_adds_a_column_and_rejects_invalid_files(tmp_path: Path) -> None:
    states = tmp_path / "states.csv"
    states.write_text("balls_left,runs_needed,wickets_left,first_innings_total\n60,80,6,160\n6,30,2,190\n")
    assert csv_out.write_winprob(states, tmp_path / "out.csv") == 2
    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert 0.5 < float(rows[0]["p_win"]) < 1
    assert float(rows[1]["p_win"]) < 0.02
    states.write_text("balls_left,runs_needed\n60,80\n")
    with pytest.raises(BadInput, match="wickets_left"):
        csv_out.write_winprob(states, tmp_path / "out.csv")
    for wrong in ("many", "nan", "inf"):
        states.write_text(f"balls_left,runs_needed,wickets_left,first_innings_total\n60,{wrong},6,160\n")
        with pytest.raises(BadInput, match="runs_needed"):
            csv_out.write_winprob(states, tmp_path / "out.csv")
    states.write_text("balls_left,runs_needed,wickets_left,first_innings_total\n60,80,6,160\n")
    for place in (tmp_path, tmp_path / "nowhere" / "out.csv"):
        with pytest.raises(BadInput, match="cannot be written"):
            csv_out.write_winprob(states, place)


@pytest.mark.optimised
@pytest.mark.conformance
def test_the_same_seed_gives_the_same_matches() -> None:
    settings = CricketOptions(max_overs=2, pool=POOL).settings()
    first, again = (deliveries(settings, 64, 5)[0] for _ in range(2))
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    other = deliveries(settings, 64, 6)[0]
    assert (other.outcome[:, :12] != first.outcome[:, :12]).any()


def test_rows_of_innings_agree_with_the_final_state() -> None:
    settings = CricketOptions(max_overs=2, pool=POOL).settings()
    balls, final = deliveries(settings, 512, 1)
    rows = innings(balls, final, int(settings.powerplay), 2)
    plain = final.supers == 0
    assert (rows["total"][1::2][plain] == final.score[plain]).all()
    assert (rows["total"][0::2][plain] == final.first[plain]).all()
    assert (rows["wkts"][1::2][plain] == final.wickets[plain]).all()
    assert (rows["pp"] + rows["mid_"] + rows["death"] == rows["total"]).all()
    assert (rows["won"][0::2] + rows["won"][1::2] == 1).all()
    beaten = rows["total"][1::2] != rows["total"][0::2]
    assert ((rows["total"][1::2] > rows["total"][0::2]) == rows["won"][1::2])[beaten].all()


@pytest.mark.optimised
@pytest.mark.conformance
def test_a_batch_is_not_ten_times_slower_than_measured() -> None:
    """A guard against a tenfold loss, not a benchmark: `kibitz bench cricket` measures."""
    settings = CricketOptions(max_overs=5, pool=POOL).settings()
    deliveries(settings, BATCH_MATCHES, 0)
    began = time.process_time()  # other tests may keep the machine busy
    balls, _ = deliveries(settings, BATCH_MATCHES, 1)
    rate = balls.live.sum() / (time.process_time() - began)
    assert rate > 50_000


def test_simulated_rows_are_written_as_csv(tmp_path: Path) -> None:
    rows = simulate(64, overs=5, era="pre2018", seed=3)
    write_rows(rows, tmp_path / "rows.csv")
    with (tmp_path / "rows.csv").open() as file:
        read = list(csv.DictReader(file))
    assert tuple(read[0]) == COLUMNS
    assert len(read) == 128
    assert read[0]["target"] == ""
    assert int(read[1]["target"]) == int(read[0]["total"]) + 1
    assert all(int(r["legal"]) <= 30 and int(r["wkts"]) <= 10 for r in read)


MEAN_RUNS = np.array([0, 1, 2, 3, 4, 6, 0.2, 1.16, 2.3, 1.4])  # by outcome
WICKET_COST_RUNS = (5.5, 6.0, 3.5)  # by phase


def ball_matrix(phase: int, spin: bool = False) -> tuple[Floats, Floats]:
    """Runs and wickets per ball, each [intent, plan, field], around the default captains' mean of the phase."""
    by_over = calibration()["eras"]["2023+"]["share"]
    shares = np.mean([by_over[over] for over in range(20) if phase_of(over) == phase], axis=0)
    effect = tactics.effects()[int(spin), int(phase == 0)].astype(np.float64)
    plans, fields = tactics.default_plans()[int(spin), phase], tactics.default_fields()[phase]
    mean = np.einsum("p,f,pfk->k", plans, fields, np.exp(effect[tactics.ACCUMULATE]))
    weight = shares * np.exp(effect) / mean
    p = weight / weight.sum(-1, keepdims=True)
    return p @ MEAN_RUNS, p[..., WICKET]


def test_tactics_stay_within_the_observed_trade_off() -> None:
    """Middle overs, required rate 14-17: 1.75 runs a ball and .064 wickets are the average of chasing sides."""
    runs, wickets = ball_matrix(1)
    usual = (tactics.GOOD, tactics.BALANCED)
    attack, slog = (tactics.INTENTS.index(name) for name in ("attack", "slog"))
    assert runs[attack][usual] < 1.75
    assert runs[slog][usual] < 1.95
    assert wickets[slog][usual] > 0.07
    assert (np.diff(runs[:, usual[0], usual[1]]) > 0).all()
    assert (np.diff(wickets[:, usual[0], usual[1]]) > 0).all()


def test_no_tactic_is_best_against_every_other() -> None:
    for phase in range(3):
        fields = 2 if phase == 0 else 4
        for spin in (False, True):
            runs, wickets = ball_matrix(phase, spin)
            value = (runs - WICKET_COST_RUNS[phase] * wickets)[:, :, :fields]
            assert len(set(value.reshape(5, -1).argmax(0).tolist())) >= 2, "no intent is best against everything"
            assert len(set(value.reshape(5, -1).argmin(1).tolist())) >= 2, (
                "no plan and field is best against everything"
            )


@pytest.mark.optimised
@pytest.mark.conformance  # compiles a program for each pair
@pytest.mark.parametrize(("captains", "share"), [(("balanced", "random"), 0.75), (("shrewd", "balanced"), 0.5)])
def test_the_better_captain_wins_more_matches(captains: tuple[str, str], share: float) -> None:
    settings = CricketOptions(max_overs=20, pool=64, seed=1).settings()
    winner = deliveries(settings, 2048, 1, captains)[1].winner
    assert np.mean(winner == 0) + 0.5 * np.mean(winner == TIE) > share


HEADER = "balls_left,runs_needed,wickets_left,first_innings_total"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"{HEADER},note\n60,80,6,160,x\n60,80,6,160\n", "Line 3 of .* has 4 fields; the header has 5"),
        (f'{HEADER},note\n60,80,6,160,"two\nlines"\n60,80,6,160,x,y\n', "Line 4 of .* has 6 fields"),
        (f"{HEADER}\n\n60,80,6,160\n", "Line 2 of .* has 0 fields"),
        (
            f"{HEADER},era\n60,80,6,160,2023+\n60,80,6,160,2023\n",
            r"Line 3 of .* has the era '2023'; use one of pre2018,",
        ),
        (f"{HEADER}\n{'1' * 200_000},80,6,160\n", "cannot be read"),
    ],
)
def test_a_ragged_states_file_is_rejected_and_the_output_is_untouched(tmp_path: Path, text: str, sentence: str) -> None:
    states, out = tmp_path / "states.csv", tmp_path / "out.csv"
    states.write_text(text)
    out.write_text("as it was")
    with pytest.raises(BadInput, match=sentence):
        csv_out.write_winprob(states, out)
    assert out.read_text() == "as it was"


def test_a_byte_order_mark_and_trailing_blank_lines_are_ignored(tmp_path: Path) -> None:
    states = tmp_path / "states.csv"
    states.write_text(f"\ufeff{HEADER}\n60,80,6,160\n\n", encoding="utf-8")
    assert csv_out.write_winprob(states, tmp_path / "out.csv") == 1


def test_a_csv_is_written_atomically(tmp_path: Path) -> None:
    def rows() -> Iterator[list[int]]:
        yield [1]
        raise ZeroDivisionError

    out = tmp_path / "out.csv"
    with pytest.raises(ZeroDivisionError):
        csv_out.write(out, ["a"], rows())
    assert not list(tmp_path.iterdir())
    out.touch(0o640)
    (tmp_path / "link.csv").symlink_to(out)
    csv_out.write(tmp_path / "link.csv", ["a"], [[1]])
    assert out.read_text() == "a\n1\n" and out.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "link.csv").is_symlink() and len(list(tmp_path.iterdir())) == 2
    csv_out.write("/dev/null", ["a"], [[1]])
    assert Path("/dev/null").is_char_device()


def test_errors_about_tables_name_what_is_missing(tmp_path: Path, play: report.Play) -> None:
    (tmp_path / "innings_rows.csv").write_text("era,inn\n2023+,1\n")
    tables = Tables(tmp_path)
    with pytest.raises(BadInput, match=r"innings_rows\.csv' has no 'total'"):
        list(report.lines(tables, play))
    with pytest.raises(BadInput, match=r"match_results\.json in .* cannot be read"):
        tables.numbers("match_results")
    (tmp_path / "match_results.json").write_text('{"2023+": {}}')
    with pytest.raises(BadInput, match=r"match_results\.json' has no 'tie_pct'"):
        tables.numbers("match_results")["2023+"]["tie_pct"]
    with pytest.raises(BadInput, match="has no row of era 'pre2018'"):
        tables.rows("innings_rows", era="pre2018")
    (tmp_path / "innings_rows.csv").write_text("era,inn\n2023+\n")
    with pytest.raises(BadInput, match=r"Line 2 of .* must have 2 fields"):
        tables.rows("innings_rows")
    for wrong in ("many", "nan", "inf"):
        (tmp_path / "innings_rows.csv").write_text(f"era,wkts\n2023+,{wrong}\n")
        with pytest.raises(BadInput, match=rf"'{wrong}' under 'wkts' in .*innings_rows\.csv' must be a number"):
            column(tables.rows("innings_rows"), "wkts")


def test_the_json_report_has_null_for_numbers_that_are_not_finite() -> None:
    made = [
        report.StatisticLine("all", "totals", np.float64(3), 2.0, float("nan"), 0.5),
        report.StatisticLine("all", "ties", 1.0, 1.0, 0.1, None),
    ]
    found = json.loads(json.dumps(report.as_json(made), allow_nan=False))
    assert found["missed"] == 1
    assert found["lines"][0] == {
        "era": "all", "name": "totals", "holds": False, "ours": 3.0, "real": 2.0, "error": None, "within": 0.5,
    }  # fmt: skip
