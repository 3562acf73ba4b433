"""Evaluation: batches and single episodes are the same episodes, and the measures are right."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from kibitz.core.bots import seated
from kibitz.core.errors import BadInput
from kibitz.core.play.episode import play_episode
from kibitz.core.play.player import BotPlayer
from kibitz.evaluate import match
from kibitz.evaluate.match import CHUNK, evaluate, play_bots, play_hosts, runs_of
from kibitz.games import get_game
from tests.conftest import SHARED
from tests.train import toy

GAME = get_game("deal_or_no_deal")
OPTIONS = GAME.options()


def _nothing(count: int) -> None:
    pass


@pytest.mark.parametrize("names", [("bayes", "heuristic"), ("random", "partner:random")])
def test_a_batched_episode_equals_the_episode_loops(names: tuple[str, str]) -> None:
    bots = (GAME.bot(names[0]), GAME.bot(names[1]))
    settings = seated(OPTIONS.settings(), dict(enumerate(bots)))
    batch = play_bots(GAME, settings, bots, 40, 11, _nothing)
    players = [BotPlayer(GAME, bot) for bot in bots]
    for number in range(40):
        one = play_episode(GAME, settings, players, seed=11, number=number)
        assert not any(event.payload.get("fallback") for event in one.events)
        assert one.returns == tuple(batch.returns[number])
        assert one.scores["turns"][0] == batch.scores["turns"][number, 0] == one.steps


@pytest.mark.optimised
@pytest.mark.conformance  # a long evaluation, and the quick tests compile without optimisation
def test_bayes_reaches_its_expected_share_of_the_ceiling() -> None:
    found = evaluate(GAME, OPTIONS, "bayes", "heuristic", 2000)
    assert found["share_of_ceiling"] > 0.985
    assert found["share_of_bayes"] == 1.0
    assert found["agreement"] == 1.0
    low, high = found["return_ci95"]
    assert low < found["return_mean"] < high
    assert found["ceiling_gap"] >= 0
    for name in ("return_mean", "return_ci95", "share_of_ceiling", "share_of_bayes", "ceiling_gap", "agreement",
                 "pareto", "nash_product", "welfare", "turns"):  # fmt: skip
        assert name in found
        assert name in found["opponent"]
    assert found["welfare"] == pytest.approx(found["return_mean"] + found["opponent"]["return_mean"], rel=1e-6)
    assert found["hints_from"] == found["opponent"]["hints_from"] == "none"
    json.dumps(found, allow_nan=False)


@pytest.mark.optimised
@pytest.mark.conformance
def test_random_and_heuristic_stand_below_bayes() -> None:
    shares = {
        name: evaluate(GAME, OPTIONS, name, "heuristic", 500)["share_of_ceiling"] for name in ("random", "heuristic")
    }
    assert shares["random"] < 0.4 < shares["heuristic"] < 0.9


def test_an_undefined_measure_is_null() -> None:
    options = GAME.options(max_turns=1)
    found = evaluate(GAME, options, "heuristic", "heuristic", 20)
    assert found["agreement"] == 0
    assert found["pareto"] is None
    assert found["share_of_ceiling"] is None
    json.dumps(found, allow_nan=False)


def test_host_players_play_the_same_episodes_as_compiled_bots() -> None:
    bots = (GAME.bot("heuristic"), GAME.bot("heuristic"))
    settings = seated(OPTIONS.settings(), dict(enumerate(bots)))
    host = play_hosts(GAME, settings, [BotPlayer(GAME, bot) for bot in bots], 10, 3, _nothing)
    batch = play_bots(GAME, settings, bots, 10, 3, _nothing)
    assert np.array_equal(host.returns, batch.returns)


def test_progress_counts_every_episode_of_every_run() -> None:
    seen: list[int] = []
    evaluate(GAME, OPTIONS, "heuristic", "heuristic", 150, progress=seen.append)
    assert sum(seen) == 150 * runs_of(GAME, "heuristic", "heuristic") == 450


def test_unknown_players_and_no_episodes_are_refused_before_anything_is_played() -> None:
    with pytest.raises(BadInput, match="choose one of bayes, detective, heuristic"):
        evaluate(GAME, OPTIONS, "nobody", "heuristic", 10)
    with pytest.raises(BadInput, match="at least 1"):
        evaluate(GAME, OPTIONS, "heuristic", "heuristic", 0)


def test_human_dialogues_score_as_in_the_paper() -> None:
    """Agreement about 78 % and Pareto-optimal deals about 77 %, by our own measures."""
    path = SHARED / "deal_or_no_dialog" / "data_without_test.txt"
    if not path.exists():
        pytest.skip("the published data is not beside this checkout")
    agreement, pareto = human_measures(path)
    assert agreement == pytest.approx(0.78, abs=0.01)
    assert pareto == pytest.approx(0.77, abs=0.015)


def human_measures(path: Path) -> tuple[float, float]:
    import jax
    import jax.numpy as jnp

    from kibitz.games.deal_or_no_deal.contexts import read_human_games
    from kibitz.games.deal_or_no_deal.rules import AGREE, PROPOSE, Items, start

    games = read_human_games(path)
    settings = OPTIONS.settings()

    def items(values: list[object]) -> Items:
        return Items(*(jnp.asarray(np.array(values, np.int32)[:, i]) for i in range(3)))

    deal = jnp.array([game.agreed for game in games])
    kept = [items([(game.kept[seat] if game.kept else game.counts) for game in games]) for seat in (0, 1)]

    def final(counts: Items, mine: Items, theirs: Items, first: Items, second: Items, agreed: jax.Array) -> object:
        state = start(settings, counts, mine, theirs, jnp.int32(0))
        over = state._replace(claims=(first, second), deal=agreed, over=jnp.bool_(True))
        return GAME.measures.score(settings, over._replace(last_acts=(jnp.int32(PROPOSE), jnp.int32(AGREE))))

    counts = items([game.counts for game in games])
    sides = [items([game.utilities[seat] for game in games]) for seat in (0, 1)]
    scores = jax.jit(jax.vmap(final))(counts, sides[0], sides[1], kept[0], kept[1], deal)
    return float(np.mean(scores["agreement"][:, 0])), float(np.nanmean(scores["pareto"][:, 0]))


def test_a_person_cannot_be_evaluated() -> None:
    game = get_game("deal_or_no_deal")
    with pytest.raises(BadInput, match="kibitz play"):
        evaluate(game, game.options(), "heuristic", "human", 2)


def test_a_share_of_a_loss_or_of_nothing_is_undefined() -> None:
    """In a zero-sum game the reference may lose on average: a share of that would turn the order round."""
    assert match._share(0.6, 0.8) == pytest.approx(0.75)
    assert match._share(0.6, -0.2) is None
    assert match._share(0.6, 0.0) is None


@pytest.mark.parametrize("reports", [2, 3, 4, 5])
def test_ctrl_c_keeps_the_compiled_batches_that_have_ended(reports: int) -> None:
    """Two batches of the player, then two of the reference in its seat; interrupted after this many."""
    toy_game, options, seen = toy.build(False), toy.ToyOptions(rounds=2), list[int]()

    def progress(count: int) -> None:
        seen.append(count)
        if len(seen) == reports:
            raise KeyboardInterrupt

    found = evaluate(toy_game, options, "random", "heuristic", CHUNK + 22, progress=progress)
    assert found["interrupted"] and found["episodes"] == CHUNK + 22
    assert (found["share_of_oracle"] is None) == (reports < 5), "all of the reference's episodes, or none"
    assert found["opponent"]["share_of_oracle"] is None


def test_ctrl_c_keeps_whole_batches_and_raises_without_any(monkeypatch: pytest.MonkeyPatch) -> None:
    toy_game, options = toy.build(False), toy.ToyOptions(rounds=2)
    bots = (toy_game.bot("random"), toy_game.bot("heuristic"))
    settings = seated(options.settings(), dict(enumerate(bots)))

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    found = evaluate(toy_game, options, "random", "heuristic", 3 * CHUNK, progress=stop)
    assert found["interrupted"] and found["episodes"] == CHUNK
    whole = play_bots(toy_game, settings, bots, CHUNK, 0, _nothing)
    assert found["return_mean"] == pytest.approx(whole.returns[:, 0].mean()) and not whole.interrupted
    with pytest.raises(KeyboardInterrupt):  # those who need every episode
        play_bots(toy_game, settings, bots, 3 * CHUNK, 0, stop)
    monkeypatch.setattr(match, "_program", lambda *_: stop)
    with pytest.raises(KeyboardInterrupt):
        play_bots(toy_game, settings, bots, CHUNK, 0, _nothing, keep=True)
