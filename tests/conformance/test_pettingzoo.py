"""PettingZoo's own suite on the negotiation's two forms, and both forms against the rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test
from pettingzoo.utils import TerminateIllegalWrapper

from kibitz.core.chance import episode_luck, seed_key, uniforms
from kibitz.core.envs.both_seats import AGENTS, SeatsTable
from kibitz.core.envs.gym_spaces import flat_mask
from kibitz.core.errors import BadInput
from kibitz.games.deal_or_no_deal import game as game_for
from kibitz.games.deal_or_no_deal import rules
from kibitz.games.deal_or_no_deal.envs.pettingzoo_env import WAIT, aec_env, parallel_env
from kibitz.games.deal_or_no_deal.envs.wrappers import flat_acts
from kibitz.games.deal_or_no_deal.options import NegotiationOptions

pytestmark = pytest.mark.conformance

OPTIONS: list[dict[str, Any]] = [
    {},
    {"reveal_partner_utilities": True, "max_count": 2, "agent_starts": True},
    {"disagree_ends": False, "agent_starts": False, "max_turns": 5},
    {"min_count": 2, "max_count": 7, "max_turns": 25},
    {"points_budget": 10},
]
CONTEXT = {"counts": [1, 2, 3], "my_utilities": [4, 0, 2], "partner_utilities": [1, 3, 1]}
AGREE, DISAGREE = 0, 1


def propose(kept: list[int], act_type: int = rules.PROPOSE, max_count: int = 4) -> int:
    """The flat action."""
    return int(np.flatnonzero((flat_acts(max_count) == [act_type, *kept]).all(axis=1))[0])


def legal_action(observation: dict[str, Any], rng: np.random.Generator) -> int:
    """Mostly offers and sometimes AGREE; a uniform draw would end every third game at once."""
    mask, luck = observation["action_mask"], rng.random()
    if luck < 0.2 and mask[AGREE]:
        return AGREE
    opened = np.flatnonzero(mask)
    is_offer = np.isin(opened, np.arange(2, 2 + 2 * (len(mask) - 2) // 3))
    return int(rng.choice(opened[is_offer] if luck < 0.9 else opened))


# Observations are the Dict that PettingZoo's documentation asks of masked environments; its suite warns about it.
@pytest.mark.filterwarnings("ignore:Observation is not a NumPy array:UserWarning")
@pytest.mark.filterwarnings("ignore:Observation space for each agent probably should be:UserWarning")
@pytest.mark.parametrize("options", OPTIONS)
def test_the_aec_form_passes_the_api_test(options: dict[str, Any]) -> None:
    for _ in range(3):
        api_test(aec_env(**options), num_cycles=50)


@pytest.mark.parametrize("options", OPTIONS)
def test_the_parallel_form_passes_the_api_test(options: dict[str, Any]) -> None:
    for _ in range(3):
        parallel_api_test(parallel_env(**options), num_cycles=50)


@pytest.mark.parametrize("options", OPTIONS)
def test_the_aec_form_passes_the_seed_test(options: dict[str, Any]) -> None:
    seed_test(lambda: aec_env(**options), num_cycles=50)


@pytest.mark.parametrize("options", OPTIONS)
def test_the_parallel_form_passes_the_seed_test(options: dict[str, Any]) -> None:
    """It samples without masks."""
    parallel_seed_test(lambda: parallel_env(**options), num_cycles=50)


@pytest.mark.parametrize("options", OPTIONS)
def test_spaces_sample_legal_actions_with_the_mask_of_the_observation(options: dict[str, Any]) -> None:
    env = parallel_env(**options)
    for seed in range(5):
        observations, _ = env.reset(seed=seed)
        while env.agents:
            actions = {name: env.action_space(name).sample(observations[name]["action_mask"]) for name in env.agents}
            observations, *_, infos = env.step(actions)
            assert not any(info["illegal"] for info in infos.values())


def play_aec(options: dict[str, Any], seed: int) -> Iterator[tuple[Any, ...]]:
    """Each turn: the mover, both observations, the action and its result."""
    env, rng = aec_env(**options), np.random.default_rng(seed)
    env.reset(seed=seed)
    while True:
        agent, seen = env.agent_selection, [env.observe(name) for name in AGENTS]
        action = legal_action(seen[AGENTS.index(agent)], rng)
        env.step(action)
        over = all(env.terminations.values())
        yield agent, seen, action, dict(env.rewards), over, env.infos
        if over:
            return


def play_parallel(options: dict[str, Any], seed: int) -> Iterator[tuple[Any, ...]]:
    env, rng = parallel_env(**options), np.random.default_rng(seed)
    observations, infos = env.reset(seed=seed)
    while env.agents:
        (agent,) = (name for name in AGENTS if infos[name]["to_move"])
        seen = [observations[name] for name in AGENTS]
        action = legal_action(observations[agent], rng)
        # the environment ignores whatever the other agent sends
        actions = {name: action if name == agent else -7 for name in AGENTS}
        observations, rewards, ends, _, infos = env.step(actions)
        yield agent, seen, action, rewards, all(ends.values()), infos


@pytest.mark.parametrize("play", [play_aec, play_parallel])
@pytest.mark.parametrize("options", OPTIONS)
def test_both_forms_agree_with_the_rules_step_by_step(
    play: Callable[[dict[str, Any], int], Iterator[tuple[Any, ...]]], options: dict[str, Any]
) -> None:
    checked = NegotiationOptions.read(options)
    game, settings, acts = game_for(checked), checked.settings(), flat_acts(checked.max_count)
    step = jax.jit(lambda state, act: game.rules.step(settings, state, (act, act), jnp.zeros(0)))
    see = jax.jit(
        lambda state: [
            (
                game.learning.features(settings, game.rules.view(settings, state, seat)),
                jnp.concatenate(game.rules.legal(settings, state, seat)),
            )
            for seat in (0, 1)
        ]
    )
    starters, deals = set(), 0
    for seed in range(15):
        luck = episode_luck(seed_key(seed), 0)
        state, over = game.rules.new(settings, uniforms(luck, 0, game.rules.new_uniforms)), False
        starters.add(int(state.seat))
        for agent, seen, action, rewards, ended, infos in play(options, seed):
            mover = AGENTS.index(agent)
            assert not over
            assert mover == int(state.seat)
            for seat, (features, masks) in enumerate(see(state)):
                # compiled with the settings as constants, a division may differ in its last bit
                np.testing.assert_allclose(seen[seat]["observation"], features, rtol=1e-6)
                opened = np.flatnonzero(flat_mask(acts, np.asarray(masks), game)) if seat == mover else [WAIT]
                np.testing.assert_array_equal(np.flatnonzero(seen[seat]["action_mask"]), opened)
            state, paid, over = step(state, tuple(jnp.asarray(acts[action], jnp.int32)))
            assert [rewards[name] for name in AGENTS] == np.asarray(paid).tolist()
            assert ended == bool(over)
            turns = {infos[name]["turns_remaining"] for name in AGENTS}
            assert turns == {int(state.turns_left)}
        assert over
        assert infos["agent_0"]["payoffs"].tolist() == np.asarray(paid).tolist()
        deals += bool(state.deal)
    assert starters == {None: {0, 1}, True: {0}, False: {1}}[checked.agent_starts]
    assert deals > 0


@pytest.mark.parametrize("first", AGENTS)
def test_an_offer_is_what_its_speaker_keeps_in_either_seat(first: str) -> None:
    env = aec_env()
    env.reset(options={"context": CONTEXT, "agent_starts": first == "agent_0"})
    assert env.agent_selection == first
    env.step(propose([1, 0, 2]))
    env.step(AGREE)
    # agent_0 values 4, 0, 2 and agent_1 values 1, 3, 1
    expected = {"agent_0": (8, 7), "agent_1": (2, 3)}[first]
    assert tuple(env.rewards.values()) == expected
    assert env.infos[first]["payoffs"].tolist() == list(expected)
    assert env.infos[first]["agreement"] is True
    assert env.infos[first]["welfare"] == sum(expected)


@pytest.mark.parametrize("make", [aec_env, parallel_env])
def test_a_seat_observes_the_others_utilities_only_if_they_are_revealed(make: Callable[..., Any]) -> None:
    def shown(other: list[int], **options: Any) -> tuple[bytes, dict[str, Any]]:
        table: SeatsTable = make(**options).unwrapped.table
        table.reset(0, {"context": CONTEXT | {"partner_utilities": other}})
        table.play({"agent_0": table.act_of("agent_0", propose([1, 1, 1]))})
        seen = table.observation("agent_0")
        return seen["observation"].tobytes() + seen["action_mask"].tobytes(), table.infos()["agent_0"]

    one, other = [1, 3, 1], [10, 0, 7]
    assert shown(one)[0] == shown(other)[0]
    assert str(shown(one)[1]) == str(shown(other)[1])
    assert shown(one)[1]["partner_utilities"].tolist() == [0, 0, 0]
    assert shown(one, reveal_partner_utilities=True)[0] != shown(other, reveal_partner_utilities=True)[0]


@pytest.mark.parametrize("make", [aec_env, parallel_env])
def test_resets_without_a_seed_continue_the_series_of_the_last_seed(make: Callable[..., Any]) -> None:
    def series(seed: int) -> list[list[int]]:
        table: SeatsTable = make().unwrapped.table
        pools = []
        for given in (seed, None, None, None):
            table.reset(given, None)
            pools.append(
                table.infos()["agent_0"]["counts"].tolist() + table.infos()["agent_0"]["my_utilities"].tolist()
            )
        return pools

    assert series(5) == series(5) != series(6)
    assert len({tuple(pool) for pool in series(5)}) > 1


@pytest.mark.parametrize(
    ("action", "sentence"),
    [
        (
            AGREE,
            r"0 \(AGREE\) is illegal for agent_0 now; legal choices: propose 0..1 0..2 0..3, insist",
        ),
        (propose([2, 0, 0]), r"PROPOSE: I keep 2 books\) is illegal"),
        (377, "whole number from 0 to 376"),
        (-1, "whole number from 0 to 376"),
        (1.0, "whole number from 0 to 376"),
        (None, "whole number from 0 to 376"),
    ],
)
def test_an_illegal_action_raises_and_changes_nothing(action: Any, sentence: str) -> None:
    env, both = aec_env(illegal="error"), parallel_env(illegal="error")
    env.reset(options={"context": CONTEXT})
    both.reset(options={"context": CONTEXT})
    before = env.last()[0]
    with pytest.raises(BadInput, match=sentence):
        env.step(action)
    with pytest.raises(BadInput, match=sentence):
        both.step({"agent_0": action, "agent_1": WAIT})
    for name in before:
        np.testing.assert_array_equal(env.last()[0][name], before[name])
    assert env.agent_selection == "agent_0"
    assert both.table.infos()["agent_0"]["turns_remaining"] == 10


@pytest.mark.parametrize(("options", "cost"), [({}, 0.0), ({"illegal": "penalty", "illegal_penalty": 2.0}, 2.0)])
def test_an_illegal_action_loses_the_turn_and_infos_say_so(options: dict[str, Any], cost: float) -> None:
    env, both = aec_env(**options), parallel_env(**options)
    env.reset(options={"context": CONTEXT})
    both.reset(options={"context": CONTEXT})
    env.step(AGREE)
    _, rewards, _, _, infos = both.step({"agent_0": AGREE, "agent_1": WAIT})
    for found, paid, turn in ((env.infos, env.rewards, env.agent_selection), (infos, rewards, "agent_1")):
        assert (found["agent_0"]["illegal"], found["agent_1"]["illegal"]) == (True, False)
        assert paid == {"agent_0": -cost, "agent_1": 0.0}
        assert turn == "agent_1" and found["agent_1"]["turns_remaining"] == 9
        assert not found["agent_1"]["partner_has_spoken"] or found["agent_1"]["last_partner_act"] == rules.DISAGREE
    env.step(propose([1, 1, 1]))
    *_, infos = both.step({"agent_0": WAIT, "agent_1": propose([1, 1, 1])})
    assert not env.infos["agent_0"]["illegal"] and not infos["agent_0"]["illegal"]


def test_pettingzoos_wrapper_ends_the_game_at_an_illegal_action(capfd: pytest.CaptureFixture[str]) -> None:
    env = TerminateIllegalWrapper(aec_env(), illegal_reward=-1)
    env.reset(seed=0)
    mover = env.agent_selection
    env.last()
    env.step(AGREE)
    assert env.rewards[mover] == -1
    assert all(env.terminations.values())


def test_errors_name_what_is_missing_or_unknown() -> None:
    with pytest.raises(BadInput, match="did you mean 'max_turns'"):
        aec_env(max_turn=3)
    with pytest.raises(BadInput, match="should not be larger"):
        parallel_env(min_count=3, max_count=2)
    with pytest.raises(BadInput, match="'ansi'"):
        aec_env(render_mode="human")
    with pytest.raises(BadInput, match="seed"):
        parallel_env().reset(seed=-1)
    env = parallel_env()
    env.reset(options={"context": CONTEXT})
    with pytest.raises(BadInput, match="agent_0 is to move and has no action"):
        env.step({"agent_1": WAIT})
    with pytest.raises(BadInput, match="together with 'context'"):
        env.reset(options={"agent_starts": True})


def test_a_step_after_the_end_needs_a_reset() -> None:
    env = parallel_env()
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step({})
    env.reset(options={"context": CONTEXT})
    observations, *_ = env.step({"agent_0": DISAGREE, "agent_1": WAIT})
    assert env.agents == []
    assert all(np.flatnonzero(seen["action_mask"]) == [WAIT] for seen in observations.values())
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step({"agent_0": DISAGREE, "agent_1": WAIT})


@pytest.mark.parametrize("make", [aec_env, parallel_env])
def test_rendering_shows_what_both_seats_know(make: Callable[..., Any]) -> None:
    env = make(render_mode="ansi")
    env.reset(options={"context": CONTEXT})
    table: SeatsTable = env.unwrapped.table
    table.play({"agent_0": table.act_of("agent_0", propose([1, 0, 2]))})
    assert env.render() == (
        "Pool: 1 book, 2 hats and 3 balls. Turns remaining: 9.\n"
        "agent_0 said PROPOSE, keeps 1 book and 2 balls.\n"
        "agent_1 has not spoken."
    )


def test_a_number_beyond_32_bits_is_illegal_and_no_other_act() -> None:
    """2**32 would be 0, a legal value, in 32 bits."""
    table = SeatsTable("cricket", None, {"max_overs": 1})
    table.reset(0, None)
    act = table.act_of("agent_0", [2**32, -(2**40), 0, 0, 0])
    assert (act[0], act[1]) == (table.game.sizes[0], -1)
    table.play(dict.fromkeys(AGENTS, act))
    assert table.infos()["agent_0"]["illegal"]
