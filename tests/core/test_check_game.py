"""A game written by `kibitz new-game`, its record broken in one way at a time: `check_game` names the field."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

import jax.numpy as jnp
import pytest

from kibitz.cli.new_game import write_package
from kibitz.core.bots import Bot
from kibitz.core.check import check_game
from kibitz.core.game import Game, Measures

NAME = "third_game"
GAMES = 8


@pytest.fixture(scope="module")
def game(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Game]:
    folder = write_package(NAME, tmp_path_factory.mktemp("games"))
    sys.path.insert(0, str(folder))
    yield import_module(NAME).GAME
    sys.path.remove(str(folder))


def raises(*arguments: Any) -> Any:
    raise RuntimeError("broken")


def change(group: str, **fields: Any) -> Callable[[Game], Game]:
    return lambda game: replace(game, **{group: replace(getattr(game, group), **fields)})


def view_shows_the_other_card(game: Game) -> Game:
    def view(settings: Any, state: Any, seat: int) -> Any:
        return game.rules.view(settings, state, seat)._replace(other_last_card=state.cards[1 - seat])

    return change("rules", view=view)(game)


def frame_shows_a_card(game: Game) -> Game:
    def frame(settings: Any, state: Any) -> Any:
        return {**game.drawing.frame(settings, state), "card": int(state.cards[1])}

    return change("drawing", frame=frame)(game)


def bot_turns_illegal(game: Game) -> Game:
    """Legal in the first turn, out of range from the second on."""

    def choose(settings: Any, memory: Any, view: Any, masks: Any, u: Any) -> Any:
        return memory, (jnp.where(view.left == settings.rounds, 0, 7),)

    return replace(game, bots={**game.bots, "late": Bot("late", choose)})


def narrow_bits(game: Game) -> Game:
    """Enough for the five rounds of the defaults, not for the twenty that the options allow."""
    return change("learning", bit_widths=game.learning.bit_widths._replace(left=3))(game)


MUTATIONS: list[tuple[str, Callable[[Game], Game], str]] = [
    ("the view shows the other seat's card", view_shows_the_other_card, "`rules.view` shows"),
    ("the frame shows a seat's card", frame_shows_a_card, "`drawing.frame` shows"),
    ("prompt_variables raises", change("words", prompt_variables=raises), "`words.prompt_variables` raised"),
    ("act_text raises", change("words", act_text=raises), "`words.act_text` raised"),
    ("parse raises", change("words", parse=raises), "`words.parse` raised"),
    (
        "commentary takes one argument",
        change("drawing", commentary=lambda event: ""),
        "`drawing.commentary`.*event, frame",
    ),
    (
        "answer fields match no head",
        change("words", answer_fields=lambda view, masks: {"wager": [0, 1, 2, 3]}),
        "`words.answer_fields` has 'wager'",
    ),
    ("a bot plays illegal acts from its second turn on", bot_turns_illegal, "`bots\\['late'\\]` failed at turn 1"),
    (
        "the ceiling is -99",
        lambda game: replace(game, measures=Measures(score=lambda settings, state: {"ceiling": jnp.full(2, -99.0)})),
        "`measures.score` gives a ceiling of -99",
    ),
    ("the scale is 0", change("learning", scale=lambda settings: 0.0), "`learning.scale`"),
    (
        "features have rank 2",
        change("learning", features=lambda settings, view: jnp.zeros((2, 3))),
        "`learning.features` should be a vector",
    ),
    ("contexts is None", lambda game: replace(game, contexts=None), "`contexts` should be a function"),
    ("private is None", change("drawing", private=None), "`drawing.private` should be a function"),
    ("a bit width is too small for the options", narrow_bits, "`learning.bit_widths` is too small"),
]


@pytest.mark.parametrize(("mutate", "sentence"), [m[1:] for m in MUTATIONS], ids=[m[0] for m in MUTATIONS])
def test_a_broken_record_fails_with_a_sentence_that_names_the_field(
    game: Game, mutate: Callable[[Game], Game], sentence: str
) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_game(mutate(game), games=GAMES)


def test_the_record_as_written_passes(game: Game) -> None:
    check_game(game, games=GAMES)
