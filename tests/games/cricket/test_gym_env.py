"""`Cricket-v0` as its users see it: Gymnasium's checks, the vector environment, masks, packs, bad input."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import kibitz
from kibitz.core.errors import BadInput
from kibitz.games.cricket.envs.gym_env import CricketEnv, CricketVectorEnv
from kibitz.games.cricket.packs import scenario
from tests.twins import play_beside

ID = "kibitz:Cricket-v0"
N = 4
HEADS = np.array([5, 6, 4, 11, 11])
STARTS = np.cumsum([0, *HEADS[:-1]])


def make(**options: Any) -> CricketEnv:
    env = gym.make(ID, **options).unwrapped
    assert isinstance(env, CricketEnv)
    return env


def legal(rng: np.random.Generator, masks: Any) -> Any:
    return np.array([[rng.choice(np.flatnonzero(part)) for part in np.split(row, STARTS[1:])] for row in masks])


OPTIONS: dict[str, dict[str, Any]] = {
    "two overs": {"max_overs": 2},
    "defaults": {},
    "a short shaped match against an aggressive captain": {"max_overs": 2, "shaping": 0.5, "opponent": "aggressive"},
    # a sample after a seed cannot know who has bowled out, so illegal acts must not raise
    "a start midway": {"random_start": True, "illegal": "penalty", "render_mode": "ansi"},
}


HEAVY = pytest.mark.conformance  # each is a program of its own, ten seconds to compile


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name == "two overs" else HEAVY) for name in OPTIONS])
def test_gymnasium_accepts_the_environment(name: str) -> None:
    check_env(make(**OPTIONS[name]))


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param("NextStep", marks=HEAVY),
        pytest.param("SameStep", marks=HEAVY),
        pytest.param("Disabled", marks=HEAVY),
    ],
)
def test_single_and_vector_environments_agree_step_by_step(mode: str) -> None:
    options = {"max_overs": 1, "illegal": "penalty", "illegal_penalty": 0.25}
    assert gym.make_vec(ID, N, vectorization_mode="vector_entry_point", autoreset_mode=mode, **options).num_envs == N

    def choose(rng: np.random.Generator, now: dict[str, Any]) -> Any:
        wild = rng.integers(0, HEADS, (N, 5))
        return np.where(rng.random((N, 1)) < 0.2, wild, legal(rng, now["action_mask"]))

    ours = CricketVectorEnv(N, autoreset_mode=mode, **options)
    assert play_beside(ours, lambda: make(**options), choose, ("action_mask",), 120) > 20


def test_the_spaces_of_both_are_the_same() -> None:
    single, many = make(), CricketVectorEnv(N)
    assert many.single_observation_space == single.observation_space
    assert (many.single_action_space.nvec == single.action_space.nvec).all()  # type: ignore[attr-defined]
    assert single.action_space.nvec.tolist() == HEADS.tolist()  # type: ignore[attr-defined]


def test_samples_are_legal_throughout_matches_and_agree_with_the_masks() -> None:
    env = make(max_overs=2)
    env.action_space.seed(3)
    env.action_space.sample()  # the first after a seed fits every first position, not this one
    results = []
    for seed in range(12):
        _, info = env.reset(seed=seed)
        over = False
        while not over:
            masks = env.action_masks()
            assert (masks == info["action_mask"]).all()
            action = env.action_space.sample()
            assert masks[STARTS + action].all()
            observation, reward, over, cut, info = env.step(action)
            assert env.observation_space.contains(observation) and not cut
            assert reward in (0.0, 0.5, 1.0) and (over or reward == 0)
        assert reward == info["won"]
        assert (info["run_difference"] > 0) == (info["won"] == 1) or info["won"] == 0.5
        results.append(reward)
    assert 0 < sum(results) < 12


def test_heads_that_the_captain_does_not_choose_are_ignored() -> None:
    """The two runs differ only in heads that have one open value."""
    env = make(captain_side="bat", max_overs=1)
    seen = []
    for other in ([0, 0, 4], [5, 3, 10]):
        env.reset(seed=5)
        seen.append([env.step([3, *other, 10])[0] for _ in range(2)])
    np.testing.assert_array_equal(seen[0], seen[1])


def test_an_illegal_choice_raises_with_the_legal_ones_and_changes_nothing() -> None:
    env = make(captain_side="bat", max_overs=1, illegal="error")
    env.reset(seed=1)
    before = env.action_masks().copy()
    with pytest.raises(kibitz.BadInput, match=r"next_batter is 0, but only \[2, 3"):
        env.step([2, 2, 1, 0, 0])
    assert (env.action_masks() == before).all()


@HEAVY
def test_an_illegal_choice_in_a_vector_environment_names_the_environment() -> None:
    many = CricketVectorEnv(2, captain_side="bat", illegal="error")
    many.reset(seed=1)
    with pytest.raises(kibitz.BadInput, match="next_batter of environment 1 is 0"):
        many.step(np.array([[2, 2, 1, 0, 5], [2, 2, 1, 0, 0]]))


def test_an_illegal_choice_becomes_a_legal_one_and_info_says_so() -> None:
    after = []
    for next_batter in (0, 2):  # an opener is in, number 3 is the first who may come
        env = make(captain_side="bat")
        env.reset(seed=1)
        seen, reward, _, _, info = env.step([2, 2, 1, 0, next_batter])
        assert info["illegal"] is (next_batter == 0) and reward == 0.0
        after.append(seen)
    np.testing.assert_array_equal(after[0], after[1])


@HEAVY
def test_samples_take_the_masks_of_one_environment_and_of_many() -> None:
    env, many = make(max_overs=2), CricketVectorEnv(2, max_overs=2)
    _, info = env.reset(seed=1)
    many.reset(seed=1)
    starts = np.cumsum([0, *env.action_space.nvec[:-1]])
    for masks in (info["action_mask"], env.action_masks()):
        assert info["action_mask"][starts + env.action_space.sample(masks)].all()
    for _ in range(20):
        actions = many.action_space.sample(many.action_masks())
        assert many.action_space.contains(actions)
        assert np.take_along_axis(many.action_masks(), starts + actions, axis=1).all()


WRONG: dict[str, Any] = {
    "four numbers": [0, 0, 0, 0],
    "fractions": [0.5, 0, 0, 0, 2],
    "a table": {"intent": 0},
    "nothing": None,
    "a value no head has": [5, 0, 0, 0, 2],
    "a negative one": [0, 0, 0, 0, -1],
}


@pytest.mark.parametrize("name", WRONG)
def test_an_action_of_the_wrong_shape_or_range_raises(name: str) -> None:
    env = make(illegal="penalty")
    env.reset(seed=0)
    with pytest.raises(kibitz.BadInput, match="should be"):
        env.step(WRONG[name])
    many = CricketVectorEnv(2, illegal="penalty")
    many.reset(seed=0)
    with pytest.raises(kibitz.BadInput, match=r"should be|outside"):
        many.step([WRONG[name], [2, 2, 1, 0, 2]])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"overs": 5}, "option of Cricket-v0 'overs'"),
        ({"max_overs": 21}, "'max_overs' is 21"),
        ({"opponent": "nobody"}, "cricket has no player 'nobody'"),
        ({"illegal": "maybe"}, "'illegal' is 'maybe'"),
        ({"render_mode": "human"}, "no render mode 'human'"),
    ],
)
def test_an_invalid_option_is_named_in_the_error(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(kibitz.BadInput, match=sentence):
        CricketEnv(**options)


def test_a_match_of_a_pack_starts_in_its_position() -> None:
    env = make(captain_side="bowl")  # the pack says who bats
    _, info = env.reset(seed=0, options={"eval_pack_id": "collapse", "eval_pack_index": 0})
    state = scenario("collapse", 0).state
    assert (info["bats"], info["score"], info["wickets"]) == (1, int(state.score), int(state.wickets))
    _, info = env.reset(seed=0, options={"eval_pack_id": "collapse", "eval_pack_index": 1})
    assert info["bats"] == 0
    with pytest.raises(kibitz.BadInput, match="needs max_overs=10; make the environment with it"):
        env.reset(options={"eval_pack_id": "collapse", "eval_pack_index": 2})
    with pytest.raises(kibitz.BadInput, match="only together with 'eval_pack_id'"):
        env.reset(options={"eval_pack_index": 2})
    with pytest.raises(kibitz.BadInput, match="no option 'pack'"):
        env.reset(options={"pack": "collapse"})


def test_without_an_index_a_pack_starts_fresh_matches_of_its_kind() -> None:
    env, collapse = make(), {"eval_pack_id": "collapse"}

    def starts(seed: int) -> list[tuple[Any, ...]]:
        infos = [env.reset(seed=seed if i == 0 else None, options=collapse) for i in range(12)]
        return [(info["bats"], info["innings"], info["score"], seen.tobytes()) for seen, info in infos]

    first = starts(3)
    assert {one[:3] for one in first} == {(0, 1, 9), (1, 1, 9), (0, 2, 12), (1, 2, 12)}, (
        "the pack's kinds of five overs"
    )
    assert len({one[3] for one in first}) > 8, "between different sides"
    assert starts(3) == first and starts(4) != first
    whole = make(max_overs=3)
    _, info = whole.reset(seed=1, options={"eval_pack_id": "powerplay"})
    assert (info["score"], info["balls_left"]) == (0, 18), "a match from the first ball has any number of overs"
    held = whole.action_masks().copy()
    with pytest.raises(kibitz.BadInput, match="Match 0 of the pack 'death' needs max_overs=20"):
        whole.reset(seed=2, options={"eval_pack_id": "death"})
    for wrong in ("nothing", 5):
        with pytest.raises(kibitz.BadInput, match=r"no pack|eval_pack_id is"):
            whole.reset(options={"eval_pack_id": wrong})
    assert (whole.action_masks() == held).all()


def test_rendering_is_a_scoreboard() -> None:
    env = make(render_mode="ansi", captain_side="bat")
    assert env.render() is None
    env.reset(seed=0)
    assert env.render() == "You bat: 0 for 0, 30 balls left."


def test_a_ragged_action_raises() -> None:
    env = make()
    env.reset(seed=1)
    with pytest.raises(BadInput, match="it should be 5 whole numbers"):
        env.step([[1], [1, 2]])
