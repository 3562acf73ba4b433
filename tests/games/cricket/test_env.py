"""The tool-calling environment: the rules of its tools, and the same match as elsewhere."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import jax
import numpy as np
import pytest

import kibitz
from kibitz.core.chance import episode_luck, seed_key
from kibitz.core.errors import BadInput
from kibitz.core.play.episode import play_episode, table_for
from kibitz.core.xla.jit import jit_single
from kibitz.games.cricket import game
from kibitz.games.cricket.captains.tool_models import ResetOptions
from kibitz.games.cricket.envs.snapshot import next_bowlers
from kibitz.games.cricket.envs.tool_env import CricketAction, CricketEnvironment, CricketObservation
from kibitz.games.cricket.laws import step as laws
from kibitz.games.cricket.laws.shaping import chance
from kibitz.games.cricket.model.tactics import INTENTS, PLANS
from kibitz.games.cricket.options import CricketOptions
from kibitz.players import player_named
from tests.games.cricket.pitch import adds_up
from tests.games.cricket.tool_calls import Scripted, ball, begin, call, names, open_values, play_out, tool

BATTING = ["analyze_situation", "set_batting_plan", "choose_next_batter", "play_delivery"]
BOWLING = ["analyze_situation", "set_field", "choose_bowler", "set_bowling_plan", "bowl_delivery"]
IN_SCOREBOARD = {"score", "wickets", "over_text", "balls_left", "target", "run_rate", "powerplay", "win_probability"}


def test_each_side_has_its_own_tools_only() -> None:
    for side, mine, theirs in (("bat", BATTING, BOWLING), ("bowl", BOWLING, BATTING)):
        env, obs = begin(captain_side=side)
        assert names(obs) == mine
        for name in set(theirs) - set(mine):
            refused = call(env, name)
            assert refused.error
            assert mine[-1] in refused.error
            env.reset(options={"seed": 5, "captain_side": side})


def test_only_a_delivery_advances_the_match() -> None:
    for side in ("bat", "bowl"):
        env, obs = begin(captain_side=side)
        for entry in obs.tools:
            values = open_values(entry)
            seen = call(env, entry["name"], **dict.fromkeys(entry["arguments"]["properties"], *values[:1]))
            assert seen.error is None
            assert (seen.turn == 1) == entry["advances"] == entry["name"].endswith("_delivery")
            env, _ = begin(env, captain_side=side)


def test_a_fourth_call_without_a_ball_is_refused_and_the_ball_is_played() -> None:
    env, obs = begin(captain_side="bat")
    for left in (2, 1, 0):
        obs = call(env, "set_batting_plan", intent="slog")
        assert (obs.calls_left, obs.turn, obs.error) == (left, 0, None)
    obs = call(env, "set_batting_plan", intent="block")
    assert obs.error
    assert "Refused" in obs.error
    assert (obs.turn, obs.calls_left) == (1, 3)
    assert obs.plans["intent"] == obs.frame["ball"]["intent"] == "slog"
    assert obs.message


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("fly", {}, "no tool 'fly'"),
        ("bowl_delivery", {}, "bowling side"),
        ("set_batting_plan", {}, "'intent'"),
        ("set_batting_plan", {"intent": "run"}, "block, rotate"),
        ("set_batting_plan", {"intent": None}, "block, rotate"),
        ("set_batting_plan", {"intent": ["slog"]}, "block, rotate"),
        ("set_batting_plan", {"intent": "slog", "more": 1}, "no other"),
        ("choose_next_batter", {"batter": "Nobody Inparticular"}, "choose one of"),
        ("play_delivery", {"intent": "slog"}, "no arguments"),
    ],
)
def test_an_illegal_call_names_the_legal_ones_changes_nothing_and_counts(name: str, arguments: Any, says: str) -> None:
    env, before = begin(captain_side="bat")
    seen = call(env, name, **arguments)
    assert seen.error
    assert says in seen.error
    assert seen.calls_left == before.calls_left - 1
    assert (seen.turn, seen.plans, seen.scoreboard, seen.tools) == (0, before.plans, before.scoreboard, before.tools)
    assert env.state.refused_calls == 1


def test_batters_at_the_crease_and_keepers_are_not_available() -> None:
    env, obs = begin(captain_side="bat")
    assert obs.batters[0]["name"] not in open_values(tool(obs, "choose_next_batter"))
    assert call(env, "choose_next_batter", batter=obs.batters[0]["name"]).error
    env, obs = begin(captain_side="bowl")
    keeper = next(p["name"] for p in obs.players["mine"]["players"] if p["role"] == "keeper")
    assert keeper not in open_values(tool(obs, "choose_bowler"))
    assert call(env, "choose_bowler", bowler=keeper).error
    defensive = call(env, "set_field", field="defensive")
    assert defensive.error
    assert "attacking, balanced" in defensive.error


def test_plans_stand_until_the_captain_changes_them() -> None:
    env, obs = begin(captain_side="bowl", max_overs=5)
    call(env, "set_bowling_plan", plan="yorker")
    call(env, "set_field", field="attacking")
    bowler = open_values(tool(obs, "choose_bowler"))[-1]
    obs = call(env, "choose_bowler", bowler=bowler.upper())
    assert obs.plans["bowler"] == bowler
    for _ in range(4):
        obs = call(env, "bowl_delivery")
        played = obs.frame["ball"]
        assert (played["plan"], played["field"], played["bowler_name"]) == ("yorker", "attacking", bowler)
    assert obs.plans["bowler"] is None


def test_the_chosen_batter_comes_in() -> None:
    for seed in range(40):
        env, obs = begin(captain_side="bat", seed=seed)
        wanted = open_values(tool(obs, "choose_next_batter"))[-1]
        call(env, "choose_next_batter", batter=wanted)
        obs = call(env, "set_batting_plan", intent="slog")
        while not obs.done and obs.role == "batting" and obs.scoreboard["wickets"] == 0:
            assert obs.plans["batter"] == wanted
            obs = call(env, "play_delivery")
        if obs.role == "batting" and obs.scoreboard["wickets"] == 1:
            assert wanted in [batter["name"] for batter in obs.batters]
            assert obs.plans["batter"] is None
            return
    pytest.fail("no wicket fell in forty innings")


def test_the_next_bowler_can_be_chosen_during_an_over() -> None:
    env, obs = begin(captain_side="bowl", max_overs=5)
    obs = call(env, "bowl_delivery")
    choices = open_values(tool(obs, "choose_bowler"))
    assert obs.frame["bowler"]["name"] not in choices
    assert len(choices) == 9
    call(env, "choose_bowler", bowler=choices[0])
    while obs.frame["bowler"] is not None:
        obs = call(env, "bowl_delivery")
    assert obs.plans["bowler"] == choices[0]
    obs = call(env, "bowl_delivery")
    assert obs.frame["ball"]["bowler_name"] == choices[0]


first_chance = jit_single(chance)
observe = jit_single(lambda settings, state: (game().rules.view(settings, state, 0), laws.may_bowl(settings, state)))


@pytest.mark.parametrize("overs", [3, 7])
def test_the_offered_next_bowlers_are_those_the_laws_allow(overs: int) -> None:
    record = game()
    settings = CricketOptions(max_overs=overs).settings()
    promised: list[int] | None = None
    for seed in range(3):
        episode = play_episode(
            record, settings, [player_named(record, "random"), player_named(record, "random")], seed=seed
        )
        checked = 0
        for state in _states(record, settings, episode, seed):
            view, may = jax.device_get(observe(settings, state))
            keeper = int(settings.sides.keeper[int(view.bowling_eleven)])
            if int(view.bowler) == 15 and promised is not None and int(view.legal) > 0:
                assert promised == [i for i in range(11) if int(may) >> i & 1]
                checked += 1
            promised = None if int(view.bowler) == 15 else next_bowlers(overs, view, keeper)
        assert checked >= overs - 1


def _states(record: Any, settings: Any, episode: Any, seed: int) -> Any:
    table, luck = table_for(record), episode_luck(seed_key(seed), 0)
    state, turn = table.new(settings, luck), 0
    yield jax.device_get(state)
    for event in episode.events:
        if event.type == "step":
            acts = tuple(tuple(act) for act in event.payload["acts"])
            state, _, _ = table.step(settings, state, acts, luck, turn)
            turn += 1
            yield jax.device_get(state)


@pytest.mark.parametrize("side", ["bat", "bowl"])
def test_the_same_seed_and_acts_give_the_same_match_as_play_episode(side: str) -> None:
    env, obs = begin(captain_side=side, seed=11, opponent_mode="aggressive")
    seen = play_out(env, obs, seed=3)
    mine = [entry["act"] for entry in env._episode.history if entry["seat"] == 0]
    record = game()
    settings = CricketOptions(max_overs=2, captain_side=side).settings()
    episode = play_episode(record, settings, [Scripted(mine), player_named(record, "aggressive")], seed=11)
    assert all(not event.payload["fallback"] for event in episode.events if event.type == "decision")
    assert episode.returns[0] == seen[-1].reward == env.state.total_reward
    last = dict(episode.events[-1].payload["frame"])
    drawn = seen[-1].frame
    assert {name: drawn[name] for name in ("score", "wickets", "legal", "winner", "first", "win_probability")} == {
        name: last[name] for name in ("score", "wickets", "legal", "winner", "first", "win_probability")
    }
    assert drawn["ball"] == last["ball"]


def test_the_scorecard_in_observations_adds_up() -> None:
    env, obs = begin(seed=2, max_overs=5)
    seen = play_out(env, obs, seed=1)
    assert all(adds_up(innings) for innings in env._tally.card.innings)
    for shown in seen:
        assert len(shown.last_balls) <= 12
        assert [batter["on_strike"] for batter in shown.batters] == [True, False]
        assert shown.partnership["runs"] <= shown.scoreboard["score"]
        assert set(shown.scoreboard) >= IN_SCOREBOARD
        assert len(shown.players["mine"]["players"]) == len(shown.players["theirs"]["players"]) == 11
        assert shown.text
    assert CricketObservation.model_validate_json(seen[-1].model_dump_json()).frame == seen[-1].frame


def test_rewards_are_the_result_and_stay_within_the_declared_range() -> None:
    for shaping in (0.0, 0.5):
        env = CricketEnvironment(shaping=shaping)
        for seed in range(3):
            seen = play_out(*begin(env, seed=seed), seed=seed)
            low, high = env.reward_range
            assert all(low <= shown.reward <= high for shown in seen)
            assert seen[0].reward_range == (low, high)
            if not shaping:
                paid = {0: 1.0, 1: 0.0, "tie": 0.5}[env.state.winner]  # type: ignore[index]
                assert seen[-1].reward == paid
                assert sum(shown.reward for shown in seen) == paid


def test_shaped_rewards_sum_to_the_result_less_the_first_chance() -> None:
    record, weight = game(), 0.5
    settings, table = CricketOptions(max_overs=2, shaping=weight).settings(), table_for(record)
    for seed in range(8):
        luck = episode_luck(seed_key(seed), 0)
        state, total, turn, over = table.new(settings, luck), np.zeros(2), 0, False
        first = float(first_chance(settings, state))
        while not over:
            acts = ((3, 2, 1, 9, 5), (3, 2, 1, 9, 5))
            state, rewards, over = table.step(settings, state, acts, luck, turn)
            assert np.abs(rewards).max() <= 1
            total, turn = total + np.asarray(rewards), turn + 1
        won = float(state.winner == 0)
        shaped = np.array([won - first, first - won])
        assert np.allclose(total, (1 - weight) * np.array([won, 1 - won]) + weight * shaped, atol=1e-3)


def without_names(obs: CricketObservation) -> dict[str, Any]:
    return obs.model_dump(exclude={"episode_id", "metadata"})


def test_observations_hide_the_opponents_choice_before_the_ball() -> None:
    """Opponents that choose differently give the same observations before the ball."""
    shown = []
    for name in ("aggressive", "defensive", "random"):
        env, obs = begin(captain_side="bat", opponent_mode=name, seed=21)
        shown.append([without_names(obs), without_names(call(env, "analyze_situation"))])
    assert shown[0] == shown[1] == shown[2]


def test_the_opponent_does_not_see_the_captains_choice() -> None:
    seen_by_opponent = []
    for intent in INTENTS:
        env, _ = begin(captain_side="bat", seed=8)
        asked: list[Any] = []

        class Recording(Scripted):
            def choose(self, turn: Any, asked: list[Any] = asked) -> Any:
                asked.append(jax.tree.map(np.asarray, (turn.view, turn.masks, turn.history)))
                return super().choose(turn)

        bowler = int(env._position.view.may_bowl).bit_length() - 1
        env._episode.opponent = Recording([(2, 2, 1, bowler, 0)])
        call(env, "set_batting_plan", intent=intent)
        call(env, "play_delivery")
        seen_by_opponent.append(str(asked))
    assert len(set(seen_by_opponent)) == 1


def test_analysis_gives_phase_rates_par_match_ups_and_win_probability() -> None:
    env, obs = begin(captain_side="bat", max_overs=20)
    assert obs.analysis is None
    found = call(env, "analyze_situation").analysis
    assert found is not None
    assert found["phase"] == "powerplay"
    assert 120 < found["par"] < 230
    assert 0 < found["win_probability"] < 1
    for duel in found["match_ups"]:
        assert 0.5 < duel["runs_per_ball"] < 3
        assert 0 < duel["wicket_chance"] < 0.2
    json.dumps(found)


def test_a_step_before_reset_raises_and_a_step_after_the_match_returns_an_error() -> None:
    env = CricketEnvironment()
    assert env._state.match_over is False
    with pytest.raises(BadInput, match="reset"):
        env.step(CricketAction(tool="play_delivery"))
    play_out(*begin(env, max_overs=1))
    assert env._state.match_over
    late = call(env, "play_delivery")
    assert late.done
    assert late.error
    assert late.tools == []


def test_instances_are_independent_and_threads_share_nothing() -> None:
    alone = [without_names(play_out(*begin(seed=seed), seed=seed)[-1]) for seed in range(4)]
    found: dict[int, Any] = {}

    def work(seed: int) -> None:
        found[seed] = without_names(play_out(*begin(seed=seed), seed=seed)[-1])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[seed] for seed in range(4)] == alone


def test_a_failing_opponent_is_replaced_and_counted() -> None:
    env, obs = begin()

    class Broken(Scripted):
        def choose(self, turn: Any) -> Any:
            raise RuntimeError("lost the coin")

    env._episode.opponent = Broken([])
    obs = ball(env, obs)
    assert "lost the coin" in obs.metadata["opponent"][0]["fallback"]
    assert env.state.opponent_fallbacks == 1


def test_a_ball_is_fast_once_compiled() -> None:
    env, obs = begin(max_overs=5)
    play_out(env, obs)
    took = []
    env, obs = begin(env, max_overs=5)
    while not obs.done:
        began = time.process_time()  # other tests share the machine
        obs = ball(env, obs)
        took.append(time.process_time() - began)
    assert sorted(took)[len(took) // 2] < 0.02


def test_the_environment_is_a_top_level_name_with_static_tools() -> None:
    assert kibitz.CricketEnvironment is CricketEnvironment
    assert [name for name, _, _ in CricketEnvironment.tools()] == [
        "analyze_situation", "set_batting_plan", "choose_next_batter", "set_field", "choose_bowler",
        "set_bowling_plan", "play_delivery", "bowl_delivery",
    ]  # fmt: skip
    plan = {name: schema for name, _, schema in CricketEnvironment.tools()}["set_bowling_plan"]
    assert plan["properties"]["plan"]["enum"] == list(PLANS)
    assert set(ResetOptions.model_fields) == {
        "random_start", "opponent_mode", "eval_pack_id", "max_overs", "seed", "captain_side", "era",
    }  # fmt: skip
