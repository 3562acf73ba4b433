"""Sides, options, words and frames."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import yaml

from kibitz.core.errors import BadInput
from kibitz.core.play.episode import table_for
from kibitz.core.xla.jit import jit_single
from kibitz.games.cricket import CricketOptions, game
from kibitz.games.cricket.captains import tool_calls
from kibitz.games.cricket.laws import start
from kibitz.games.cricket.model.calibration import calibration
from kibitz.games.cricket.teams import ratings
from kibitz.games.cricket.teams.bowling_orders import bowling_orders
from kibitz.games.cricket.words import prompt
from tests.games.cricket.pitch import begin, plain


def test_invented_sides_depend_on_the_seed_and_have_the_measured_spread() -> None:
    sides = ratings.invent(4, 64, calibration())
    assert sides == ratings.invent(4, 64, calibration())
    assert sides != ratings.invent(5, 64, calibration())
    power = np.array([[p.power for p in side.players] for side in sides])
    assert np.allclose(power[:, :6].std(0), 10, atol=1.5)
    safety = np.array([[p.safety for p in side.players] for side in sides]).mean(0)
    assert safety[0] > safety[7] > safety[10], "the tail is easier to get out"


@pytest.mark.parametrize("count", [32, 200])  # the default pool, and one with more players than names
def test_no_two_players_or_sides_of_a_pool_share_a_name(count: int) -> None:
    sides = ratings.invent(0, count, calibration())
    assert len({player.name for side in sides for player in side.players}) == 11 * count
    assert len({side.name for side in sides}) == count
    words = [word for side in sides[:32] for word in side.name.split()]
    assert len(set(words)) == len(words), "no two sides of the default pool share a word"


def test_prepared_bowling_orders_obey_the_laws() -> None:
    for overs in (1, 4, 5, 7, 13, 20):
        sides = ratings.invent(1, 6, calibration())
        orders = bowling_orders(sides, overs, 1)
        limit, spare = divmod(overs, 5)
        for side, variants in zip(sides, orders, strict=True):
            for row in variants[:, :overs]:
                counts = np.bincount(row, minlength=11)
                assert counts.max() <= limit + (spare > 0)
                assert (counts > limit).sum() <= spare
                assert counts[side.keeper] == 0
                assert (row[1:] != row[:-1]).all()


def test_a_user_can_supply_two_sides(tmp_path: Path) -> None:
    mine = ratings.invent(2, 2, calibration())
    path = tmp_path / "sides.yaml"
    path.write_text(ratings.write(tuple(mine)))
    assert list(ratings.read(path)) == mine
    options = CricketOptions(elevens=str(path))
    assert [side.name for side in options.sides()] == [side.name for side in mine]
    state = jit_single(start.new)(options.settings(), np.zeros(start.NEW_UNIFORMS, np.float32))
    assert [int(x) for x in state.elevens] == [0, 1]


def _broken(change: Any) -> str:
    sides = yaml.safe_load(ratings.write(tuple(ratings.invent(2, 2, calibration()))))
    change(sides)
    return yaml.safe_dump(sides)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda s: s["elevens"].pop(), "two sides"),
        (lambda s: s["elevens"][0]["players"].pop(), "eleven"),
        (lambda s: s["elevens"][0]["players"][3].update(power=180), "power"),
        (lambda s: s["elevens"][0]["players"][3].update(talent=3), "talent"),
        (lambda s: s["elevens"][1]["players"][0].update(bowls="googly"), "bowls"),
        (lambda s: [p.update(keeper=False) for p in s["elevens"][0]["players"]], "wicketkeepers"),
    ],
)
def test_an_invalid_side_is_rejected(tmp_path: Path, change: Any, sentence: str) -> None:
    path = tmp_path / "sides.yaml"
    path.write_text(_broken(change))
    with pytest.raises(BadInput, match=sentence):
        ratings.read(path)


def test_a_missing_elevens_file_is_rejected() -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        ratings.read("/no/such/file.yaml")


@pytest.mark.parametrize("values", [{"max_overs": 0}, {"max_overs": 21}, {"era": "1999"}, {"overs": 5}])
def test_bad_options_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        CricketOptions.read(values)


def test_words_describe_the_position_and_only_open_choices() -> None:
    record, settings = game(), plain(5)
    state = begin(batting=1, second=True, first=50, score=20, legal=14, wickets=2, bowler=9, deliveries=50)
    for seat in (0, 1):
        view, masks = table_for(record).observe(settings, state, seat)
        variables = record.words.prompt_variables(settings, view, [])
        assert all(isinstance(value, str) for value in variables.values())
        assert variables["needed"] == "31"
        assert "20/2" in record.words.position_text(view)
        answer = record.words.answer_fields(view, masks)
        assert ("intent" in answer) == (seat == 1)
        assert ("plan" in answer) == (seat == 0)
        assert record.words.choices_text(view, masks)
    (batting, open_to_bat), (bowling, open_to_bowl) = (
        table_for(record).observe(settings, state, seat) for seat in (1, 0)
    )
    assert record.words.parse(batting, open_to_bat, "slog 5") == (4, 2, 1, 0, 4)
    assert record.words.parse(bowling, open_to_bowl, "yorker death") == (2, 0, 3, 9, 0)
    for text in ("", "fly", "slog 1", "yorker"):
        with pytest.raises(BadInput):
            record.words.parse(batting, open_to_bat, text)
    assert prompt.overs_text(86) == "14.2"


def test_a_frame_is_plain_data_and_public() -> None:
    record, settings = game(), plain(5)
    state = begin(batting=1, second=True, first=50, score=20, legal=14, wickets=2, bowler=9, deliveries=50)
    drawn = record.drawing.frame(settings, state)
    json.dumps(drawn)
    assert drawn["needed"] == 31
    assert abs(sum(drawn["win_probability"]) - 1) < 1e-9
    other = state._replace(levels=tuple(jnp.int32(x) for x in (1, 2, 3)))
    assert record.drawing.frame(settings, other) == record.drawing.frame(settings, state)
    assert record.drawing.commentary({"type": "step", "payload": {}}, record.drawing.frame(settings, state)) == ""


def test_fields_and_types_carry_the_right_article() -> None:
    said = [prompt.history_line({"seat": 1, "act": (2, 0, field, 3, 0)}) for field in range(4)]
    assert [text.removeprefix("seat 1 bowls yorker to ") for text in said] == [
        "an attacking field",
        "a balanced field",
        "a defensive field",
        "a death field",
    ]
    assert tool_calls._short(object()) == "an object"
