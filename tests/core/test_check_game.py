"""A game written by `kibitz new-game`, its record broken in one way at a time: `check_game` names the field."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any, NamedTuple

import jax.numpy as jnp
import pytest

from kibitz.cli.new_game import write_package
from kibitz.core.bots import Bot
from kibitz.core.check import check_game
from kibitz.core.check.secrets import check_secrets
from kibitz.core.game import Game, Measures
from kibitz.core.registry import load_game
from kibitz.games.deal_or_no_deal.options import NegotiationOptions

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


class Stacked(NamedTuple):
    """The same state with both cards in one array, as many games keep them."""

    cards: Any  # i32[2]
    rest: Any


def stack(state: Any) -> Stacked:
    return Stacked(jnp.stack(state.cards), state._replace(cards=(jnp.int32(0), jnp.int32(0))))


def unstack(state: Stacked) -> Any:
    return state.rest._replace(cards=(state.cards[0], state.cards[1]))


def with_one_array_of_cards(game: Game) -> Game:
    rules, drawing = game.rules, game.drawing

    def step(settings: Any, state: Any, acts: Any, u: Any) -> Any:
        after, *others = rules.step(settings, unstack(state), acts, u)
        return stack(after), *others

    changed = replace(
        rules,
        new=lambda settings, u: stack(rules.new(settings, u)),
        to_act=lambda state: rules.to_act(unstack(state)),
        legal=lambda settings, state, seat: rules.legal(settings, unstack(state), seat),
        step=step,
        view=lambda settings, state, seat: rules.view(settings, unstack(state), seat),
    )
    drawn = replace(
        drawing,
        frame=lambda settings, state: drawing.frame(settings, unstack(state)),
        private=lambda settings, state, seat: drawing.private(settings, unstack(state), seat),
        cast=lambda settings, state: drawing.cast(settings, unstack(state)),
        review=lambda settings, state, past: {},
    )
    learning = replace(game.learning, bit_widths=None)
    return replace(game, rules=changed, drawing=drawn, learning=learning, measures=Measures())


def view_shows_a_row_of_an_array(game: Game) -> Game:
    return with_one_array_of_cards(view_shows_the_other_card(game))


def seat_acts_twice_in_a_row(game: Game) -> Game:
    """Seat 1 plays every round alone."""
    return change("rules", simultaneous=False, to_act=lambda state: (state.left > 0) & (jnp.arange(2) == 1))(game)


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
    ("the view shows the other seat's part of an array", view_shows_a_row_of_an_array, "`rules.view` shows"),
    ("a seat acts twice in a row", seat_acts_twice_in_a_row, "`rules.to_act` names a seat twice"),
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
    ("illegal acts are taken as they come", change("rules", takes_illegal_acts=True), "illegal act lose the turn"),
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
    ("step raises", change("rules", step=raises), "`rules.step` raised RuntimeError: broken"),
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


def test_a_record_that_ignores_its_options_fails_with_a_sentence() -> None:
    options = NegotiationOptions(past_offers=2)
    with pytest.raises(AssertionError, match=r"`rules\.new` .* another form with past_offers=2") as failed:
        check_game(load_game("deal_or_no_deal"), options, games=GAMES)
    assert "\n" not in str(failed.value)


def test_the_record_as_written_passes(game: Game) -> None:
    check_game(game, games=GAMES)


def test_a_value_that_the_rules_reveal_to_the_other_seat_is_no_leak() -> None:
    options = NegotiationOptions(reveal_partner_utilities=True)
    check_secrets(load_game("deal_or_no_deal", options), options.settings(), 0)


def test_a_game_that_keeps_both_seats_in_one_array_passes(game: Game) -> None:
    check_game(with_one_array_of_cards(game), games=GAMES)
