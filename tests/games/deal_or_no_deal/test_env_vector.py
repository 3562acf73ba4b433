"""The vector environment agrees with single environments step by step."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import jax
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from kibitz.games.deal_or_no_deal.envs.gym_env import NegotiationVectorEnv
from kibitz.hints import HintInjectorVectorEnv
from tests.games.deal_or_no_deal.envs import HEAVY, ID, MODES, N, act, at_table, claim_all, error_of, make
from tests.games.deal_or_no_deal.oracle import DISAGREE, INSIST, PROPOSE
from tests.twins import assert_same, play_beside


def random_actions(rng: np.random.Generator, masks: Any, caps: Any, wild: float = 0.0) -> dict[str, Any]:
    """Random acts, legal except for a share `wild` of them."""
    n = len(masks)
    acts, keep = np.zeros(n, np.int64), np.zeros((n, 3), np.int64)
    for i in range(n):
        legal = np.flatnonzero(masks[i])
        # mostly offers, so that episodes do not end at once
        acts[i] = rng.choice(legal) if rng.random() < 0.3 or wild else rng.choice([PROPOSE, INSIST])
        keep[i] = rng.integers(0, caps[i] + 1)
        if rng.random() < wild:
            acts[i], keep[i] = rng.integers(0, 5), rng.integers(0, caps.max() + 1, 3)
    return {"act_type": acts, "oA": keep}


TWINS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "everything else": {
        "max_turns": 5,
        "disagree_ends": False,
        "reveal_partner_utilities": True,
        "illegal": "penalty",
        "illegal_penalty": 0.5,
        "partner": {"heuristic": 1.0, "conceder": 1.0, "random": 2.0},
        "partner_threshold": (0.5, 0.6),
    },
    "over at once": {"max_turns": 1, "clip_offers": True},
}


# the conformance suite compares wild acts in every mode
@pytest.mark.parametrize(
    ("name", "mode"),
    [("everything else", "NextStep"), ("defaults", "NextStep"), *(("over at once", mode) for mode in MODES)],
)
def test_single_and_vector_environments_agree_step_by_step(mode: str, name: str) -> None:
    steps, options = 40 if name == "over at once" else 120, TWINS[name]

    def choose(rng: np.random.Generator, now: dict[str, Any]) -> dict[str, Any]:
        return random_actions(rng, now["action_mask"], now["oA_max"], 0.2 if options.get("illegal") else 0.0)

    ours = NegotiationVectorEnv(N, autoreset_mode=mode, **options)
    finished = play_beside(ours, lambda: make(**options), choose, ("action_mask", "oA_max"), steps)
    assert finished > steps / 4  # episodes of four environments


def test_single_and_vector_environments_have_the_same_spaces() -> None:
    ours, single = NegotiationVectorEnv(N), make()
    theirs = SyncVectorEnv([make for _ in range(N)])
    assert ours.single_observation_space == single.observation_space
    assert ours.observation_space == theirs.observation_space
    # the single environment's space samples legal acts, which a batch of spaces cannot
    assert dict(ours.single_action_space.items()) == dict(single.action_space.items())  # type: ignore[attr-defined]


def test_make_vec_makes_our_vector_environment_in_the_requested_mode() -> None:
    for mode, expected in zip(
        [*MODES, AutoresetMode.SAME_STEP], [*AutoresetMode, AutoresetMode.SAME_STEP], strict=True
    ):
        env = gym.make_vec(ID, num_envs=N, vectorization_mode="vector_entry_point", autoreset_mode=mode, max_turns=4)
        assert isinstance(env.unwrapped, NegotiationVectorEnv)
        assert env.metadata["autoreset_mode"] is expected
        seen, _ = env.reset(seed=0)
        assert seen in env.observation_space and seen["turns_remaining"].max() <= 4


def test_a_reset_without_a_seed_continues_the_same_random_stream() -> None:
    ours, theirs = NegotiationVectorEnv(N), SyncVectorEnv([make for _ in range(N)])
    for seed in ([3, 1, 4, 1], None, [None, 5, None, 9], None):
        assert_same(ours.reset(seed=seed)[0], theirs.reset(seed=seed)[0], f"seed {seed}")


def test_a_masked_reset_does_not_change_the_other_environments() -> None:
    env = NegotiationVectorEnv(N, autoreset_mode="Disabled", agent_starts=True)
    first, infos = env.reset(seed=3)
    env.step(claim_all(infos))
    before = env.step(claim_all(infos))[0]
    mask = np.array([False, True, False, True])
    after, infos = env.reset(seed=[100, 101, 102, 103], options={"reset_mask": mask})
    for name, value in after.items():
        np.testing.assert_array_equal(value[~mask], before[name][~mask])
    assert (after["turns_remaining"][mask] == 10).all()
    assert infos["_action_mask"].tolist() == mask.tolist()
    # seeds of environments that were not reset have no effect
    again, _ = env.reset()
    fresh = NegotiationVectorEnv(N, autoreset_mode="Disabled", agent_starts=True)
    fresh.reset(seed=[3, 101, 5, 103])
    expected, _ = fresh.reset()
    assert_same(again, expected)
    assert not np.array_equal(first["counts"], again["counts"])


def test_stepping_a_finished_episode_needs_a_reset() -> None:
    env = make()
    at_table(env)
    env.step(act(DISAGREE))
    with pytest.raises(gym.error.ResetNeeded):
        env.step(act(PROPOSE, 1, 0, 0))
    many = NegotiationVectorEnv(N, autoreset_mode="Disabled")
    _, infos = many.reset(seed=0)
    many.step(claim_all(infos) | {"act_type": np.array([DISAGREE, PROPOSE, PROPOSE, PROPOSE])})
    with pytest.raises(gym.error.ResetNeeded, match="reset_mask"):
        many.step(claim_all(infos))


def test_stepping_before_the_first_reset_needs_a_reset() -> None:
    with pytest.raises(gym.error.ResetNeeded):
        make().step(act(PROPOSE, 1, 0, 0))
    with pytest.raises(gym.error.ResetNeeded):
        NegotiationVectorEnv(N).step({"act_type": np.zeros(N, int), "oA": np.zeros((N, 3), int)})


def test_later_steps_do_not_change_earlier_observations() -> None:
    single, many = make(), NegotiationVectorEnv(N)
    for env in (single, many):
        first, info = env.reset(seed=0)
        kept = {name: np.array(value) for name, value in first.items()}, np.array(info["action_mask"])
        for _ in range(3):
            env.step(act(PROPOSE, *info["oA_max"]) if env is single else claim_all(info))
        assert_same({name: np.asarray(value) for name, value in first.items()}, kept[0])
        np.testing.assert_array_equal(info["action_mask"], kept[1])


@HEAVY
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_arrays_on_the_device_hold_the_numbers_of_numpy_arrays(mode: str) -> None:
    n = 130  # more than one chunk of rows
    on_host = NegotiationVectorEnv(n, autoreset_mode=mode, illegal="penalty")
    on_device = NegotiationVectorEnv(n, autoreset_mode=mode, illegal="penalty", arrays="jax")
    rng = np.random.default_rng(0)
    (seen, _), (expected, _) = on_device.reset(seed=3), on_host.reset(seed=3)
    finished = 0
    for _ in range(6):
        assert isinstance(seen["counts"], jax.Array)
        assert_same({name: np.asarray(value, np.int64) for name, value in seen.items()}, expected)
        np.testing.assert_array_equal(on_device.action_masks(), on_host.action_masks())
        actions = {"act_type": rng.integers(0, 5, n), "oA": rng.integers(0, 5, (n, 3))}
        seen, *ours = on_device.step(jax.tree.map(jax.numpy.asarray, actions))
        expected, *theirs = on_host.step(actions)
        for mine, other in zip(ours[:3], theirs[:3], strict=True):
            np.testing.assert_allclose(mine, other)
        final = ours[3].pop("final_obs", None)
        for i, row in enumerate(theirs[3].pop("final_obs", ())):
            if row is not None:
                assert_same({name: np.asarray(value[i], np.int64) for name, value in final.items()}, row)
        finished += int(theirs[1].sum())
        flat = jax.tree.map(np.asarray, ours[3])
        for name, value in theirs[3].pop("final_info", {}).items():
            at = theirs[3]["_final_info"]
            np.testing.assert_array_equal(flat["final_info"][name][at], value[at], err_msg=name)
        for name, value in theirs[3].items():
            np.testing.assert_array_equal(flat[name], value, err_msg=name)
    assert finished > n


def test_an_environment_on_the_device_says_what_it_cannot_do() -> None:
    assert "numpy, jax, torch" in error_of(lambda: NegotiationVectorEnv(2, arrays="cupy"))
    assert "arrays='numpy'" in error_of(lambda: NegotiationVectorEnv(2, arrays="jax", illegal="error"))
    assert "arrays='numpy'" in error_of(lambda: HintInjectorVectorEnv(NegotiationVectorEnv(2, arrays="jax")))
    env = NegotiationVectorEnv(2, arrays="jax")
    env.reset(seed=0)
    assert "oA" in error_of(lambda: env.step({"act_type": jax.numpy.zeros(2, int)}))


@HEAVY
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint32])
def test_actions_on_the_device_may_be_whole_numbers_of_any_type(dtype: Any) -> None:
    env = NegotiationVectorEnv(N, arrays="jax", agent_starts=True)
    _, infos = env.reset(seed=0)
    legal = {name: jax.numpy.asarray(value, dtype) for name, value in claim_all(infos).items()}
    assert not env.step(legal)[4]["illegal"].any()
    largest = legal | {"oA": jax.numpy.full((N, 3), np.iinfo(dtype).max, dtype)}
    assert env.step(largest)[4]["illegal"].all()


@HEAVY
def test_a_changed_tensor_does_not_reset_an_environment() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is too large for the suite's own extras")
    env = NegotiationVectorEnv(N, arrays="torch", agent_starts=True)
    env.reset(seed=0)
    kept = {"act_type": torch.zeros(N, dtype=torch.int64), "oA": torch.full((N, 3), 9)}  # illegal, so no deal
    before, _, over, _, _ = env.step(kept)
    assert not over.any()
    over |= True
    assert (env.step(kept)[0]["turns_remaining"] < before["turns_remaining"]).all()


@HEAVY
def test_tensors_share_the_memory_of_jax_arrays() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is too large for the suite's own extras")
    env = NegotiationVectorEnv(N, arrays="torch")
    first, _ = env.reset(seed=0)
    env.action_space.seed(0)
    legal = env.action_space.sample(env.action_masks().numpy())
    seen, rewards, over, _, infos = env.step({name: torch.as_tensor(value) for name, value in legal.items()})
    again = NegotiationVectorEnv(N)
    again.reset(seed=0)
    expected = again.step(legal)
    assert_same({name: value.numpy().astype(np.int64) for name, value in seen.items()}, expected[0])
    np.testing.assert_array_equal(rewards.numpy(), expected[1])
    np.testing.assert_array_equal(over.numpy(), expected[2])
    assert env.action_masks().data_ptr() == env._masks.unsafe_buffer_pointer()
    assert infos["action_mask"].dtype == torch.bool and first["counts"].dtype == torch.int32
