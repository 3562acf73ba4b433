"""The start of a match: options of `reset`, and packs."""

from __future__ import annotations

from typing import Any

import pytest

from kibitz.core.errors import BadInput
from kibitz.core.play.episode import play_episode
from kibitz.games import get_pack
from kibitz.games.cricket import game
from kibitz.games.cricket.envs.tool_env import CricketEnvironment
from kibitz.players import player_named
from tests.games.cricket.tool_calls import Scripted, begin, play_out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"overs": 5}, "max_overs"),
        ({"max_overs": 21}, "20"),
        ({"max_overs": "5"}, "max_overs"),
        ({"opponent_mode": "nobody"}, "no player 'nobody'"),
        ({"opponent_mode": "human"}, "human"),
        ({"era": "1999"}, "era"),
        ({"captain_side": "left"}, "captain_side"),
        ({"seed": -1}, "seed"),
    ],
)
def test_reset_rejects_invalid_options_and_the_match_continues(options: dict[str, Any], says: str) -> None:
    env, _ = begin()
    held = env.state
    with pytest.raises(BadInput, match=says):
        env.reset(options=options)
    assert env.state == held


def test_options_choose_overs_era_side_and_start() -> None:
    for side in ("bat", "bowl"):
        assert begin(captain_side=side)[1].role == f"{side}ting".replace("bowlting", "bowling")
    _, obs = begin(max_overs=7, era="pre2018")
    assert (obs.frame["overs"], obs.frame["era"]) == (7, "pre2018")
    starts = [begin(random_start=True, max_overs=20, seed=seed)[1].scoreboard for seed in range(6)]
    assert len({(board["over_text"], board["score"]) for board in starts}) > 3


def test_the_seed_is_revealed_only_at_the_end_and_drawn_by_default() -> None:
    env = CricketEnvironment()
    first = env.reset(options={"max_overs": 1})
    assert env.state.seed is None
    play_out(env, first)
    seed = env.state.seed
    assert seed is not None
    again = env.reset(options={"max_overs": 1, "seed": seed})
    assert again.players == first.players
    assert env.reset(options={"max_overs": 1}).episode_id != first.episode_id


def test_the_seed_selects_the_match_of_a_pack() -> None:
    env = CricketEnvironment()
    obs = env.reset(options=CricketEnvironment.task_options("death", 6) | {"opponent_mode": "balanced"})
    assert (obs.frame["overs"], obs.frame["score"], obs.frame["wickets"], obs.frame["legal"]) == (5, 33, 2, 18)
    assert "Pack death, match 6" in obs.message
    assert env.state.pack_match == 6
    other = env.reset(options={"eval_pack_id": "death", "seed": 7, "opponent_mode": "balanced"})
    assert obs.role != other.role
    assert obs.players["mine"]["name"] == other.players["theirs"]["name"]
    drawn = [env.reset(options={"eval_pack_id": "default", "seed": match}) for match in (4, 5)]
    assert drawn[0].players["mine"]["name"] == drawn[1].players["theirs"]["name"]


@pytest.mark.parametrize("pack", ["default", "death"])
def test_without_a_seed_a_pack_begins_a_fresh_match_of_its_kind(pack: str) -> None:
    env, chosen = CricketEnvironment(), get_pack("cricket", pack)
    entries = {(s.options.max_overs, int(s.state.score)) for s in map(chosen.scenario, range(0, 14, 2))}
    seeds, sides = set(), set()
    for _ in range(4):
        obs = env.reset(options={"eval_pack_id": pack, "opponent_mode": "balanced"})
        assert (obs.frame["overs"], obs.frame["score"]) in entries
        assert env.state.pack_match is None and ("fresh match" in obs.message) == (pack != "default")
        assert env._start is not None
        seeds.add(env._start.seed)
        sides.add((obs.players["mine"]["name"], obs.players["theirs"]["name"]))
    assert len(seeds) == 4 and len(sides) > 1
    assert not seeds & {chosen.seed(match) for match in range(chosen.matches)}


@pytest.mark.parametrize(
    ("pack", "seed"), [(None, 7), ("default", 7), ("death", 7), ("death", None), ("default", None)]
)
def test_a_pack_means_the_same_to_the_environment_and_to_the_server(pack: str | None, seed: int | None) -> None:
    from kibitz.live.episodes.prepare import Limits, prepare
    from kibitz.live.episodes.request import EpisodeRequest
    from kibitz.live.episodes.timeouts import StopSignal

    env = CricketEnvironment()
    env.reset(options={"max_overs": 2, "opponent_mode": "balanced", "eval_pack_id": pack, "seed": seed})
    asked = {"players": ["balanced", "balanced"], "max_overs": 2, "eval_pack_id": pack, "seed": seed}
    mine, theirs = env._start, prepare(EpisodeRequest(**asked).completed(), Limits(), StopSignal())
    assert mine is not None and (mine.match is None) == (theirs.match is None)
    assert (mine.state is None) == (theirs.state is None)
    if seed is not None:
        assert (mine.seed, mine.match, mine.options) == (theirs.seed, theirs.match, theirs.options)
        assert str(mine.state) == str(theirs.state)


def test_only_a_match_from_the_first_ball_may_change_its_overs() -> None:
    driver = {"random_start": False, "opponent_mode": "balanced", "eval_pack_id": "default", "max_overs": 2}
    env = CricketEnvironment()
    obs = env.reset(options=driver | {"seed": 0})
    assert obs.frame["overs"] == 2
    assert play_out(env, obs)[-1].done
    assert env.reset(options=driver | {"eval_pack_id": "death", "seed": 0}).frame["overs"] == 20
    for wrong, says in (({"random_start": True}, "random_start"), ({"captain_side": "bat"}, "captain_side")):
        with pytest.raises(BadInput, match=says):
            env.reset(options=driver | wrong | {"seed": 0})
    assert env.reset(options=driver | {"captain_side": "bat"}).role == "batting", "a fresh match has no fixed captain"
    with pytest.raises(BadInput, match="no pack 'nothing'"):
        env.reset(options=driver | {"eval_pack_id": "nothing"})


def test_a_match_of_a_pack_is_the_same_as_in_play_episode() -> None:
    env, obs = begin(eval_pack_id="death", seed=6, max_overs=5)
    play_out(env, obs, seed=2)
    mine = [entry["act"] for entry in env._episode.history if entry["seat"] == 0]
    chosen = get_pack("cricket", "death")
    scenario, record = chosen.scenario(6), game()
    episode = play_episode(
        record, scenario.settings, [Scripted(mine), player_named(record, "balanced")], seed=chosen.seed(6),
        state=scenario.state,
    )  # fmt: skip
    assert episode.returns[0] == env.state.total_reward
    assert episode.steps == env.state.deliveries
