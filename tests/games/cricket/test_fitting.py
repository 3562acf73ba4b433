"""Fitted models: where they are kept, how they are named, and what the fit makes of the tables."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kibitz.core.errors import BadInput
from kibitz.core.statistics import mean_ci95, share_ci95
from kibitz.games.cricket import game
from kibitz.games.cricket.chances import winprob
from kibitz.games.cricket.fitting import fit as fitting
from kibitz.games.cricket.fitting import fit_winprob
from kibitz.games.cricket.fitting.from_tables import from_tables
from kibitz.games.cricket.fitting.simulate import simulate
from kibitz.games.cricket.fitting.tables import LABELS, OtherSeasons, Tables, counts
from kibitz.games.cricket.fitting.validate import cross_validate, real_ci95
from kibitz.games.cricket.laws.step import situation
from kibitz.games.cricket.model import calibration as models
from kibitz.games.cricket.model import delivery
from kibitz.games.cricket.model.delivery import WICKET
from kibitz.games.cricket.model.tactics import OUTCOMES
from kibitz.games.cricket.options import CricketOptions
from kibitz.games.cricket.packs import pack
from tests.games.cricket.test_realism import FOLDER, needs_tables


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The user's folder for models, empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(models, "_known", [*models.FILES])
    yield tmp_path / "kibitz" / "cricket"
    models.load.cache_clear()
    for cached in (winprob.chase_table, winprob.first_table, winprob.total_worth, winprob.win_probability):
        cached.cache_clear()


def wild(name: str) -> dict[str, Any]:
    """Saves a model in which wickets fall twice as often."""
    fitted = copy.deepcopy(models.calibration())
    for era in fitted["eras"].values():
        for row in era["base"]:
            row[WICKET] += 0.7
    fitting.save(fitted, fitting.new_file(name))
    return fitted


def test_a_model_is_kept_in_the_users_folder_and_used_by_its_name(folder: Path) -> None:
    shipped = models.FILE.read_bytes()
    wild("wild")
    assert [path.name for path in folder.iterdir()] == ["wild.json"]
    assert models.FILE.read_bytes() == shipped
    usual, ours = (np.asarray(CricketOptions(pool=2, model=name).settings().model.base) for name in ("shipped", "wild"))
    assert np.allclose((ours - usual).reshape(-1, len(OUTCOMES))[:, WICKET], 0.7, atol=1e-3)


def test_win_probability_and_pages_follow_the_model(folder: Path) -> None:
    """The rates of win probability belong to the model, not to the ball model alone."""
    fitted = wild("wild")
    fitted["chase"]["recalibration"] = {overs: [2.0, 0.0, 0.0] for overs in fitted["chase"]["recalibration"]}
    fitting.save(fitted, models.model_file("wild"))
    number = models.model_number("wild")
    assert winprob.chase(6, 10, 10, 9, 2, 1, number) > winprob.chase(6, 10, 10, 9, 2, 1) + 0.1
    options = CricketOptions(max_overs=1, pool=2, model="wild")
    settings = options.settings()
    assert int(settings.fitted) == number
    cricket = game()
    state = cricket.rules.new(settings, np.full(cricket.rules.new_uniforms, 0.5, np.float32))
    frames = [cricket.drawing.frame(s, state) for s in (settings, CricketOptions(max_overs=1, pool=2).settings())]
    assert frames[0]["win_probability"] != frames[1]["win_probability"]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        (
            "nosuch",
            None,
            r"no fitted model 'nosuch'; choose one of shipped, careful-tail, or run `kibitz cricket fit`\.",
        ),
        ("../up", None, r"cannot be named '\.\./up'"),
        ("", None, "cannot be named ''"),
        ("broken", "{", "broken.json' cannot be read; fit it again"),
        ("old", '{"eras": {}}', "old.json' does not belong to this version of kibitz; fit it again"),
        ("short", "shortened", "short.json' does not belong to this version"),
    ],
)
def test_an_unusable_model_is_one_sentence(folder: Path, name: str, content: str | None, sentence: str) -> None:
    if content == "shortened":
        shorter = copy.deepcopy(models.calibration())
        shorter["eras"]["2023+"]["base"].pop()
        content = json.dumps(shorter)
    if content is not None:
        folder.mkdir(parents=True)
        (folder / f"{name}.json").write_text(content)
    with pytest.raises(BadInput, match=sentence):
        CricketOptions(model=name).settings()


def test_a_name_keeps_its_meaning(folder: Path) -> None:
    """Records name their model, so a fit replaces none; it says so before it starts."""
    wild("mine")
    kept = (folder / "mine.json").read_bytes()
    for taken in ("mine", "shipped", "careful-tail"):
        with pytest.raises(BadInput, match=f"already a model '{taken}'; choose another --name"):
            fitting.new_file(taken)
    assert (folder / "mine.json").read_bytes() == kept


@pytest.mark.parametrize("era", models.ERAS)
def test_an_era_has_its_own_model_unless_options_name_one(era: str) -> None:
    """Records contain every option, so those from before the model existed name `shipped` and keep its numbers."""
    own = models.SHIPPED if era == "2023+" else models.CAREFUL_TAIL
    chosen = CricketOptions(era=era)
    assert chosen.model_dump()["model"] == own
    assert CricketOptions.read(chosen.model_dump()) == chosen
    assert CricketOptions.read(chosen.model_dump() | {"model": "shipped"}).model == "shipped"
    assert CricketOptions().changed({"era": era}).model == own
    assert CricketOptions(model="shipped").changed({"era": era}).model == "shipped"
    start = pack("default").begin(3, 0, {"era": era})
    assert (start.options.era, start.options.model) == (era, own)
    assert pack("default").begin(3, 0, {"era": era, "model": "shipped"}).options.model == "shipped"
    assert pack("chase").begin(3, 0, {"model": "shipped"}).options.model == "shipped"


def test_only_the_tail_of_the_earlier_eras_is_careful() -> None:
    """A factor of exactly one leaves every ball since 2023, and every ball of `shipped`, bit for bit as it was."""
    shipped, careful = (np.asarray(delivery.model(models.load(name)).tail).reshape(3, 10) for name in models.FILES)
    assert (shipped == 1).all() and (careful[2] == 1).all() and (careful[:2, :7] == 1).all()
    assert np.allclose(careful[:2, 7:], [0.85, 0.85**2, 0.85**3], atol=1e-3)
    settings = CricketOptions(pool=2, era="pre2018").settings()
    state = game().rules.new(settings, np.full(game().rules.new_uniforms, 0.5, np.float32))
    for down in (6, 8):
        at = situation(settings, state._replace(wickets=np.int32(down)), *(np.int32(0),) * 4)
        plain, ours = (
            delivery.weights(each, settings.sides.batters, settings.sides.bowlers, at)
            for each in (settings.model._replace(tail=np.ones(30, np.float32)), settings.model)
        )
        ratio = np.divide(ours, plain)
        assert ratio[WICKET] == pytest.approx(careful[0, down]) and (np.delete(ratio, WICKET) == 1).all()


def test_a_fit_from_before_the_tail_can_still_be_used(folder: Path) -> None:
    fitted = copy.deepcopy(models.calibration())
    for era in fitted["eras"].values():
        del era["tail"]
    fitting.save(fitted, fitting.new_file("earlier"))
    assert (np.asarray(CricketOptions(pool=2, era="pre2018", model="earlier").settings().model.tail) == 1).all()


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(BadInput, match="set XDG_CACHE_HOME to choose another folder"):
        fitting.new_file("mine")


@pytest.mark.parametrize("column", LABELS)
def test_an_unknown_label_names_its_line_and_the_known_ones(tmp_path: Path, column: str) -> None:
    known = LABELS[column]
    (tmp_path / "innings_rows.csv").write_text(f"{column}\n{known[0]}\nwrong\n")
    with pytest.raises(BadInput, match=rf"'wrong' under '{column}' in line 3 of .*use one of {known[0]}, "):
        Tables(tmp_path).rows("innings_rows")


@needs_tables
@pytest.mark.parametrize(
    ("table", "old", "new"),
    [
        ("outcome_by_era_innings_over.csv", "2023+,1,", "2023,1,"),
        ("outcome_by_phase_posgroup_balls_faced.csv", "9-11", "tail"),
        ("outcome_by_phase_bowltype.csv", "death,pace_left", "death,pace_right"),
        ("outcome_by_bowltype_hand.csv", "spin_leg,L", "spin_leg,R"),
        ("dismissal_types.csv", "stumped", "stumping"),
        ("dismissal_by_era.csv", "pre2018", "2023+"),
        ("outcome_free_hit.csv", "True", "False"),
    ],
)
def test_a_wrong_label_in_a_table_exits_with_2(
    tmp_path: Path, kibitz: Callable[..., Any], folder: Path, table: str, old: str, new: str
) -> None:
    tables = tmp_path / "tables"
    tables.mkdir()
    for file in FOLDER.iterdir():
        (tables / file.name).symlink_to(file)
    text = (FOLDER / table).read_text()
    assert old in text
    (tables / table).unlink()
    (tables / table).write_text(text.replace(old, new))
    done = kibitz("cricket", "fit", "--tables", str(tables), "--name", "mine")
    assert (done.returncode, done.stdout) == (2, "")
    assert table in done.stderr and done.stderr.count("\n") == 1
    assert not (folder / "mine.json").exists()


@needs_tables
def test_tables_without_a_season_contain_the_other_seasons() -> None:
    tables = Tables(FOLDER)
    others = OtherSeasons(tables, ["2019", "2024"])
    years = {row["year"] for row in others.rows("innings_rows")}
    assert "2018" in years and not years & {"2019", "2024"}
    seasons = tables.rows("outcome_by_season")
    kept = counts([row for row in seasons if row["year"] not in ("2019", "2024")]).sum(0)
    for table in ("outcome_by_phase", "outcome_by_phase_wickets", "outcome_by_era_innings_over"):
        found = counts(others.rows(table)).sum(0)
        assert np.allclose(found, kept, rtol=0.01), table
    old, new = (counts(t.rows("outcome_by_era", era="pre2018")) for t in (tables, others))
    assert np.allclose(old, new), "an era that keeps its seasons keeps its counts"


def test_a_share_of_real_matches_has_wilsons_interval_and_a_mean_students() -> None:
    values = np.array([1.0] + [0.0] * 29)
    assert real_ci95("innings 1 all out, share", values) == share_ci95(1, 30)
    assert real_ci95("innings 1 wkts, mean", values) == mean_ci95(values)
    assert mean_ci95(values)[1][0] < 0 < share_ci95(1, 30)[1][0], "no share is below 0"


@needs_tables
@pytest.mark.optimised
@pytest.mark.conformance  # fits twice, with few matches
def test_cross_validation_predicts_every_season_once() -> None:
    said: list[str] = []
    made = cross_validate(Tables(FOLDER), said.append, rounds=1, matches=64, folds=2)
    assert len(made) == 4 * 13
    left_out = [year for line in said for year in line.split("without ")[1].split(", ")]
    assert sorted(left_out) == [str(year) for year in range(2008, 2027)]
    real = {(line.era, line.name): line.real for line in made}
    assert real["pre2018", "innings 2 all out, share"] == pytest.approx(0.125)
    assert real["all", "innings 2 all out, share"] == pytest.approx(87 / 603)
    ours = {line.era: line.ours for line in made if line.name == "innings 2 all out, share"}
    line = next(line for line in made if (line.era, line.name) == ("pre2018", "innings 2 all out, share"))
    low, high = share_ci95(38, 304)[1]
    assert line.holds == (low <= line.ours <= high)
    assert line.within == pytest.approx(high - 0.125 if line.ours >= 0.125 else 0.125 - low)
    matches = {era: len(Tables(FOLDER).rows("innings_rows", era=era)) / 2 for era in models.ERAS}
    assert ours["all"] == pytest.approx(sum(ours[era] * n for era, n in matches.items()) / 603)


@needs_tables
@pytest.mark.optimised
@pytest.mark.conformance  # a whole fit, with one round
def test_a_fit_can_be_used_by_its_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def only_twenty_overs(fitted: dict[str, Any], tables: Tables) -> None:
        fit_winprob.fit_winprob(fitted, tables)
        known = models.calibration()["chase"]["recalibration"]
        fitted["chase"]["recalibration"] = known | fitted["chase"]["recalibration"]

    monkeypatch.setattr(fitting, "fit_winprob", only_twenty_overs)
    for name, value in {"LENGTHS_OVERS": (20,), "MATCHES": 64, "ITERATIONS": 3}.items():
        monkeypatch.setattr(fit_winprob, name, value)
    tables = Tables(FOLDER)
    file = fitting.fit(tables, "mine", rounds=1, matches=64, report=lambda line: None)
    assert file == folder / "mine.json"
    written = json.loads(file.read_text())
    assert written["positions"] == from_tables(tables)["positions"]
    assert len(simulate(64, 2, "pre2018", 1, model="mine")["total"]) == 128
