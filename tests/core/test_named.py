"""Rules by name, and mixes of them."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kibitz.core.bots import Bot, mixed, seated
from kibitz.core.chance import uniforms
from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.play.resolve import bot_for, player_and_bot
from kibitz.games import cricket, deal_or_no_deal

GAME = deal_or_no_deal.game()
SETTINGS = GAME.options().settings()


def starts(bot: Bot, settings: Any, episodes: int) -> Any:
    luck = jax.random.key_data(jax.random.split(jax.random.key(3), episodes))
    return jax.vmap(lambda one: bot.start(settings, 1, uniforms(one, 0, bot.uniforms)))(luck)


def test_each_rule_of_a_mix_sits_there_as_often_as_its_weight_says() -> None:
    bot = bot_for(GAME, {"heuristic": 1, "random": 0, "bayes": 2.0, "partner:stubborn": 5.0})
    which, minds = starts(bot, SETTINGS, 4096)
    assert bot.name == "heuristic or bayes or partner:stubborn" and len(minds) == 3
    np.testing.assert_allclose(np.bincount(np.asarray(which), minlength=3) / 4096, [1 / 8, 2 / 8, 5 / 8], atol=0.03)


def test_whoever_was_drawn_plays_as_if_it_sat_there_alone() -> None:
    """In positions of many episodes, each with a partner's offer on the table or none."""
    names = ["partner:conceder", "random", "partner:stubborn", "heuristic"]
    bot = bot_for(GAME, dict.fromkeys(names, 1.0))
    settings = seated(SETTINGS, {1: bot})
    alone = [(one, seated(SETTINGS, {1: one})) for one in map(GAME.bot, names)]

    @jax.jit
    @jax.vmap
    def both(luck: Any) -> Any:
        u = uniforms(luck, 0, 64)
        state = GAME.rules.new(settings, u[: GAME.rules.new_uniforms])
        first = GAME.bot("random")
        _, act = first.choose(
            settings, (), GAME.rules.view(settings, state, 0), GAME.rules.legal(settings, state, 0), u[20:]
        )
        state = GAME.rules.step(settings, state, (act, act), u[30:])[0]
        view, masks = GAME.rules.view(settings, state, 1), GAME.rules.legal(settings, state, 1)
        _, minds = bot.start(settings, 1, u[40:])
        given = [bot.choose(settings, (jnp.int32(i), minds), view, masks, u[50:])[1] for i in range(4)]
        wanted = [one.choose(told, one.start(told, 1, u[41:]), view, masks, u[50:])[1] for one, told in alone]
        return GAME.rules.to_act(state)[1], jnp.asarray(given), jnp.asarray(wanted)

    turn, given, wanted = both(jax.random.key_data(jax.random.split(jax.random.key(5), 64)))
    assert turn.sum() > 10 and given.shape == (64, 4, 4)
    np.testing.assert_array_equal(given[turn], wanted[turn])
    for one, other in combinations(range(4), 2):
        assert (wanted[turn, one] != wanted[turn, other]).any(), "or nothing is compared"


def test_a_mix_tells_nothing_about_itself_but_studies() -> None:
    bot = bot_for(GAME, {"bayes": 1, "random": 1})
    alone = seated(SETTINGS, {1: GAME.bot("bayes")})
    together = seated(SETTINGS, {1: bot})
    np.testing.assert_array_equal(together.styles.noise, SETTINGS.styles.noise)
    assert len(together.ladders[1]) == len(alone.ladders[1]) > 0


def test_an_adviser_studies_and_tells_nothing_about_who_hears_it() -> None:
    """Or the other seat would know that a learner who hears random hints plays at random."""
    told = seated(SETTINGS, {1: GAME.bot("heuristic")}, {0: GAME.bot("random")})
    np.testing.assert_array_equal(told.styles.noise, SETTINGS.styles.noise)
    assert seated(SETTINGS, {}, {0: GAME.bot("bayes")}).ladders[0]


def test_the_same_mix_is_the_same_rule_and_a_mix_of_one_is_that_one() -> None:
    assert bot_for(GAME, {"heuristic": 1, "bayes": 3}) is bot_for(GAME, {"heuristic": 2, "bayes": 6})
    assert bot_for(GAME, {"heuristic": 0.5}) is GAME.bot("heuristic")
    assert mixed(((GAME.bot("random"), 1.0),)) is GAME.bot("random")


@pytest.mark.parametrize("game", [GAME, cricket.game()])
@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("nobody", "nobody"),
        ("llm:embedded", "compiled"),
        ({}, "1 to 16"),
        ({"random": -1.0}, "at least 0"),
        ({"random": 0.0}, "not all of them 0"),
        ({"random": float("nan")}, "at least 0"),
        ({"random": 1.0, "nobody": 1.0}, "nobody"),
        ({"random": 1.0, "policy:/nowhere": 1.0}, "/nowhere"),
    ],
)
def test_what_is_no_rule_and_no_mix_is_refused(game: Game, wanted: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        bot_for(game, wanted)


def test_a_person_cannot_be_asked_inside_an_environment() -> None:
    with pytest.raises(BadInput, match="human"):
        player_and_bot(GAME, "human")
