"""A game's styles: the record's promises, and the same truth single and in compiled batches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import pytest

from kibitz.core.check.styles import check_styles
from kibitz.core.errors import BadInput
from kibitz.core.styles import PlayStyles
from tests.train import toy

TOY = toy.build(False)


def broken(**fields: Any) -> Any:
    return replace(TOY, styles=replace(TOY.styles, **fields))


def test_the_toys_styles_pass() -> None:
    check_styles(TOY, TOY.default_settings, seed=0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"questions": {"bold": "Alice pulls arm 1.", "shy": "Did Alice not?"}}, "question mark"),
        ({"questions": {"no name": "Did Alice?"}}, "identifiers"),
        ({"published": {"calm": {}}}, "`styles.published` has ['calm']"),
        ({"shown": lambda settings, notes, state, seat: {"bold": jnp.bool_(True)}}, "every question"),
        ({"shown": lambda settings, notes, state, seat: {"bold": jnp.int32(1), "shy": jnp.bool_(True)}}, "bool"),
        ({"watch": lambda settings, notes, view, act: notes._replace(ones=jnp.zeros(2))}, "`styles.watch`"),
        ({"measures": lambda settings, notes, state, seat: {"ones": jnp.zeros(3)}}, "`styles.measures`"),
        ({"transcript": lambda settings, state, history, seat: "nobody"}, "`styles.transcript`"),
    ],
)
def test_a_broken_field_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(AssertionError) as error:
        check_styles(broken(**fields), TOY.default_settings, seed=0)
    assert message in str(error.value)


def test_a_game_has_no_styles_unless_its_record_says_so() -> None:
    assert not PlayStyles()
    with pytest.raises(BadInput, match="chess offers no styles"):
        PlayStyles().names(["bold"], "chess")
    with pytest.raises(BadInput, match="two_arms has no style 'calm'; choose one of bold, shy"):
        TOY.styles.names(["calm"], TOY.name)
