"""Bots by name, and mixes of them."""

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


def test_a_mix_draws_each_bot_in_proportion_to_its_weight() -> None:
    bot = bot_for(GAME, {"heuristic": 1, "random": 0, "bayes": 2.0, "partner:stubborn": 5.0})
    which, memories = starts(bot, SETTINGS, 4096)
    assert bot.name == "heuristic or bayes or partner:stubborn" and len(memories) == 3
    np.testing.assert_allclose(np.bincount(np.asarray(which), minlength=3) / 4096, [1 / 8, 2 / 8, 5 / 8], atol=0.03)


def test_the_bot_that_a_mix_draws_plays_as_it_does_alone() -> None:
    """Compares acts in the second position of many episodes."""
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
        _, memories = bot.start(settings, 1, u[40:])
        drawn = [bot.choose(settings, (jnp.int32(i), memories), view, masks, u[50:])[1] for i in range(4)]
        expected = [one.choose(own, one.start(own, 1, u[41:]), view, masks, u[50:])[1] for one, own in alone]
        return GAME.rules.to_act(state)[1], jnp.asarray(drawn), jnp.asarray(expected)

    turn, drawn, expected = both(jax.random.key_data(jax.random.split(jax.random.key(5), 64)))
    assert turn.sum() > 10 and drawn.shape == (64, 4, 4)
    np.testing.assert_array_equal(drawn[turn], expected[turn])
    for one, other in combinations(range(4), 2):
        assert (expected[turn, one] != expected[turn, other]).any(), (
            "the bots must differ for the comparison to prove anything"
        )


def test_a_mix_precomputes_and_discloses_nothing() -> None:
    bot = bot_for(GAME, {"bayes": 1, "random": 1})
    alone = seated(SETTINGS, {1: GAME.bot("bayes")})
    together = seated(SETTINGS, {1: bot})
    np.testing.assert_array_equal(together.styles.noise, SETTINGS.styles.noise)
    assert len(together.ladders[1]) == len(alone.ladders[1]) > 0


def test_an_adviser_precomputes_and_discloses_nothing() -> None:
    """Otherwise the other seat would conclude from random hints that the learner plays at random."""
    settings = seated(SETTINGS, {1: GAME.bot("heuristic")}, {0: GAME.bot("random")})
    np.testing.assert_array_equal(settings.styles.noise, SETTINGS.styles.noise)
    assert seated(SETTINGS, {}, {0: GAME.bot("bayes")}).ladders[0]


def test_equal_mixes_are_one_bot_and_a_mix_of_one_bot_is_that_bot() -> None:
    assert bot_for(GAME, {"heuristic": 1, "bayes": 3}) is bot_for(GAME, {"heuristic": 2, "bayes": 6})
    assert bot_for(GAME, {"heuristic": 0.5}) is GAME.bot("heuristic")
    assert mixed(((GAME.bot("random"), 1.0),)) is GAME.bot("random")


@pytest.mark.parametrize("game", [GAME, cricket.game()])
@pytest.mark.parametrize(
    ("name", "words"),
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
def test_an_invalid_name_or_mix_is_refused(game: Game, name: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        bot_for(game, name)


def test_a_person_cannot_play_inside_an_environment() -> None:
    with pytest.raises(BadInput, match="human"):
        player_and_bot(GAME, "human")
