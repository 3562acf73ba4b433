"""From an answer's fields to an act, for any game."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kibitz.advice.ask import Position, PositionAsker
from kibitz.core.act import Head
from kibitz.core.errors import BadInput
from kibitz.core.game import first_view
from kibitz.core.words import act_of_fields
from kibitz.games import get_game
from kibitz.llm.answers.prompt import Prompt

HEADS = (Head("plan", 3), Head("left", 4), Head("bowler", 3), Head("right", 2))
MASKS = tuple(np.array(mask, bool) for mask in ([1, 0, 1], [0, 1, 1, 1], [0, 1, 1], [1, 1]))


def act(declared: dict[str, Any], **fields: Any) -> tuple[int, ...]:
    game: Any = SimpleNamespace(heads=HEADS)
    return act_of_fields(game.heads, declared, MASKS, fields)


def test_words_stand_for_the_open_values_in_order() -> None:
    assert act({"plan": ["defend", "attack"]}, plan="attack") == (2, 1, 1, 0)


def test_an_array_fills_the_heads_that_no_field_names() -> None:
    declared = {"plan": [0, 2], "both": [[1, 2, 3], [0, 1]], "bowler": [1, 2], "confidence": [0.0, 1.0]}
    assert act(declared, plan=0, both=[3, 1], bowler=2, confidence=0.5) == (0, 3, 2, 1)


def test_heads_without_a_field_keep_their_first_open_value() -> None:
    assert act({"bowler": [1, 2]}, bowler=2) == (0, 1, 2, 0)


def test_a_template_with_an_unknown_name_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("{{ partner_secret }}", encoding="utf-8")
    with pytest.raises(BadInput, match="partner_secret"):
        PositionAsker(get_game("deal_or_no_deal"), "embedded", prompt=Prompt.read(file))


@pytest.mark.usefixtures("presets")
def test_agreeing_with_numbers_that_do_not_matter_is_legal() -> None:
    """The fake server's answer is AGREE with three books, of which the pool has one."""
    game = get_game("deal_or_no_deal")
    settings = game.default_options.settings()
    view, masks = first_view(game, settings)
    masks = (np.array([1, 1, 1, 1, 1], bool), *masks[1:])
    with PositionAsker(game, "fake-agree-above-cap") as asker:
        (advice,) = asker.ask([Position(settings, view, masks, [])])
    assert advice.act == (2, 0, 0, 0)
