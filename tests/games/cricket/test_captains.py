"""Captain presets, the captain that calls tools, and the fallback for a captain that fails."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kibitz.core.errors import BadInput
from kibitz.core.game import first_view
from kibitz.core.play.episode import play_episode
from kibitz.core.play.recorder import Stopped
from kibitz.games.cricket import captains, game
from kibitz.games.cricket.captains import OPPONENT_PRESETS, HeuristicCaptain, captain_presets, pick_action, to_ui_frame
from kibitz.games.cricket.captains.presets import CAPTAIN_POOL
from kibitz.games.cricket.envs.tool_env import CricketAction, CricketEnvironment, CricketObservation
from kibitz.games.cricket.model.tactics import FIELDS, INTENTS, PLANS
from kibitz.games.cricket.options import CricketOptions
from kibitz.players import player_named
from kibitz.players.llm import llm_player

Fallback = Callable[[CricketObservation], CricketAction]


def heuristic_fallback(seed: int = 0) -> Fallback:
    captain = HeuristicCaptain(seed=seed)

    def fallback(obs: CricketObservation) -> CricketAction:
        return CricketAction(**captain.act(to_ui_frame(obs, episode_id="")))

    return fallback


def match(
    preset: str, seed: int = 4, **options: Any
) -> tuple[CricketEnvironment, list[CricketAction], list[str | None]]:
    """A whole match of a preset."""
    env, fallback = CricketEnvironment(), heuristic_fallback()
    obs = env.reset(options={"seed": seed, "max_overs": 2, "opponent_mode": "balanced"} | options)
    actions, errors = [], []
    while not obs.done:
        actions.append(pick_action(obs, preset, fallback))
        obs = env.step(actions[-1])
        errors.append(obs.error)
    return env, actions, errors


def test_presets_have_a_kind_and_a_reason_if_they_are_unusable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    runs = Path("runs")
    for name, game_name, trained in (("a", "cricket", True), ("b", "cricket", False), ("c", "deal_or_no_deal", True)):
        (runs / name / "checkpoints").mkdir(parents=True)
        (runs / name / "run.json").write_text(json.dumps({"game": game_name}), encoding="utf-8")
        if trained:
            (runs / name / "checkpoints" / "step_000000000001.safetensors").write_bytes(b"")
    found = captain_presets()
    assert {"balanced", "aggressive", "defensive", "random", "llm:embedded", "llm:groq"} <= set(found)
    assert found["balanced"]["kind"] == "heuristic"
    assert found["balanced"]["usable"]
    assert found["llm:groq"] | {"about": ""} == {
        "kind": "llm", "usable": False, "why": "GROQ_API_KEY is not set.", "about": "",
    }  # fmt: skip
    assert found["policy:runs/a"]["usable"]
    assert not found["policy:runs/b"]["usable"]
    assert "policy:runs/c" not in found


def test_every_opponent_preset_is_a_player(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OPPONENT_PRESETS.values():
        assert name in game().bots or name.startswith("llm:")
    assert OPPONENT_PRESETS["heuristic"] == "heuristic"
    monkeypatch.setenv("GROQ_API_KEY", "gsk-fake")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-fake")
    for choice, name in OPPONENT_PRESETS.items():
        if name != "llm:embedded":  # it would load the model
            env = CricketEnvironment()
            env.reset(options={"opponent_mode": choice, "max_overs": 1})
            assert env.state.opponent == name


def test_the_captains_package_exports_the_public_names() -> None:
    assert captains.pick_action is pick_action
    with pytest.raises(AttributeError, match="nothing"):
        _ = captains.nothing


@pytest.mark.parametrize("preset", ["balanced", "random"])
def test_a_heuristic_plays_the_same_match_through_tools_as_without_them(preset: str) -> None:
    env, actions, errors = match(preset, max_overs=1)
    assert errors == [None] * len(errors)
    assert all(action.metadata["source"] == preset and not action.metadata["fallback"] for action in actions)
    record = game()
    players = [player_named(record, name) for name in (preset, "balanced")]
    episode = play_episode(record, CricketOptions(max_overs=1).settings(), players, seed=4)
    assert episode.steps == env.state.deliveries
    assert episode.returns[0] == env.state.total_reward


def test_no_call_of_the_heuristic_captain_is_refused() -> None:
    for overs, seed in ((5, 1), (5, 2), (20, 3)):
        env, fallback = CricketEnvironment(), heuristic_fallback(seed)
        obs = env.reset(options={"seed": seed, "max_overs": overs})
        tools, steps = set(), 0
        while not obs.done:
            action = fallback(obs)
            tools.add(action.tool)
            obs = env.step(action)
            assert obs.error is None
            steps += 1
        assert {"set_batting_plan", "set_field", "choose_bowler", "set_bowling_plan"} <= tools
        assert steps < 800


def test_seed_and_style_determine_the_calls_of_the_heuristic_captain() -> None:
    def calls(seed: int, style: str = "shrewd") -> list[Any]:
        env, captain = CricketEnvironment(), HeuristicCaptain(seed=seed, style=style)
        obs, made = env.reset(options={"seed": 9, "max_overs": 1}), []
        while not obs.done:
            made.append(captain.act(to_ui_frame(obs, episode_id="x")))
            obs = env.step(CricketAction(**made[-1]))
        return made

    assert calls(1) == calls(1)
    assert calls(1) != calls(2)
    assert calls(1) != calls(1, "defensive")
    with pytest.raises(BadInput, match="no style 'calm'"):
        HeuristicCaptain(style="calm")


def test_a_ui_frame_is_plain_data_with_the_legal_tools() -> None:
    obs = CricketEnvironment().reset(options={"seed": 1})
    frame = json.loads(json.dumps(to_ui_frame(obs, episode_id="ep-1")))
    assert frame["episode_id"] == "ep-1"
    assert [tool["name"] for tool in frame["tools"]] == [tool["name"] for tool in obs.tools]
    assert {"score", "fielders", "striker", "last_balls", "partnership", "win_probability"} <= set(frame)


def test_the_fallback_replaces_a_captain_that_cannot_answer_and_the_action_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = CAPTAIN_POOL.answered["llm:nobody", "fallback"]
    env, actions, errors = match("llm:nobody", max_overs=1)
    assert errors == [None] * len(errors)
    assert all(action.metadata["source"] == "fallback" for action in actions)
    assert all("no preset 'nobody'" in action.metadata["fallback"] for action in actions)
    assert CAPTAIN_POOL.answered["llm:nobody", "fallback"] > before
    assert sum("llm:nobody" in record.message for record in caplog.records) <= 1
    with pytest.raises(BadInput, match="no player 'nobody'"):
        pick_action(env.reset(options={"seed": 1}), "nobody", heuristic_fallback())


@pytest.mark.parametrize("read", [json.loads, CricketObservation.model_validate_json])
def test_a_captain_answers_an_observation_that_went_through_json(read: Callable[[str], Any]) -> None:
    env = CricketEnvironment()
    obs = env.reset(options={"seed": 1, "max_overs": 2, "opponent_mode": "balanced"})
    while not obs.done and obs.turn < 18:
        received = read(obs.model_dump_json())
        action = pick_action(received, "shrewd", heuristic_fallback())
        assert (action.metadata["source"], action.metadata["fallback"]) == ("shrewd", "")
        assert HeuristicCaptain(seed=0).act(to_ui_frame(received)) == HeuristicCaptain(seed=0).act(to_ui_frame(obs))
        obs = env.step(action)
        assert obs.error is None


def test_a_turn_survives_json_except_for_its_luck() -> None:
    from kibitz.games.cricket.captains.portable import turn_of_data

    env = CricketEnvironment()
    obs = env.reset(options={"seed": 5, "max_overs": 3, "era": "pre2018", "opponent_mode": "aggressive"})
    prompts = game().words.prompt_variables
    while not obs.done:
        mine, data = obs._turn, json.loads(obs.model_dump_json())["turn_data"]
        theirs = turn_of_data(data, obs.episode_id, obs.turn)
        assert (theirs.seat, theirs.number) == (mine.seat, mine.number)
        assert prompts(theirs.settings, theirs.view, theirs.history) == prompts(mine.settings, mine.view, mine.history)
        assert [mask.tolist() for mask in theirs.masks] == [mask.tolist() for mask in mine.masks]
        assert theirs.luck.tolist() != mine.luck.tolist(), "the match's luck stays with the match"
        obs = env.step(CricketAction(tool=obs.tools[-1]["name"]))
    assert json.loads(obs.model_dump_json())["turn_data"] is None


def test_the_fallback_plays_an_observation_without_a_turn() -> None:
    obs = json.loads(CricketEnvironment().reset(options={"seed": 1}).model_dump_json())
    for data, says in (
        (None, "no turn to play"),
        ({"options": {}}, "KeyError"),
        ({**obs["turn_data"], "view": [1]}, ""),
    ):
        action = pick_action(obs | {"turn_data": data, "episode_id": str(data)}, "balanced", heuristic_fallback())
        assert action.metadata["source"] == "fallback" and says in action.metadata["fallback"]


@pytest.mark.usefixtures("presets")
def test_a_model_is_asked_once_per_ball_however_many_calls_it_takes() -> None:
    llm_player.cache_clear()
    seen: list[int] = []
    player = llm_player(game(), "fake-good")
    choose = player.choose

    def counted(turn: Any) -> Any:
        seen.append(turn.number)
        return choose(turn)

    player.choose = counted  # type: ignore[method-assign]
    env, actions, _ = match("llm:fake-good", max_overs=1)
    assert seen == list(range(env.state.deliveries))
    assert all(
        "NoAnswer" in action.metadata["fallback"] for action in actions
    )  # the fake model knows only the negotiation
    llm_player.cache_clear()


@pytest.mark.conformance
@pytest.mark.usefixtures("embedded")
def test_the_embedded_model_captains_both_seats() -> None:
    llm_player.cache_clear()
    env, fallback = CricketEnvironment(), heuristic_fallback()
    obs = env.reset(options={"seed": 2, "max_overs": 1, "captain_side": "bat", "opponent_mode": "llm:embedded"})
    while obs.turn < 1:
        action = pick_action(obs, "llm:embedded", fallback)
        assert action.metadata["fallback"] == ""
        assert action.metadata["usage"]["completion_tokens"] > 0
        obs = env.step(action)
        assert obs.error is None
    [answer] = obs.metadata["opponent"]
    assert (answer["source"], answer["fallback"]) == ("llm:embedded", "")
    assert env.state.opponent_fallbacks == 0


@pytest.mark.conformance
@pytest.mark.usefixtures("embedded")
def test_the_embedded_model_plays_a_ball_without_the_fallback() -> None:
    record, decisions = game(), []

    def watch(event: Any) -> None:
        if event.type == "decision" and event.payload["seat"] == 0:
            decisions.append(event.payload)

    def stop() -> None:
        if decisions:
            raise Stopped("enough")

    players = [player_named(record, "llm:embedded"), player_named(record, "balanced")]
    with pytest.raises(Stopped):
        play_episode(
            record, CricketOptions(max_overs=1).settings(), players, seed=3, observers=(watch,), stop=stop
        )  # fmt: skip
    assert [decision["fallback"] for decision in decisions] == [""]


def test_a_prompt_names_players_and_legal_values_and_starts_with_a_constant_part() -> None:
    from kibitz.core.chance import episode_luck, seed_key
    from kibitz.core.play.episode import table_for
    from kibitz.core.system.paths import find
    from kibitz.llm.answers.answer import Answer
    from kibitz.llm.answers.prompt import Prompt

    record, settings = game(), CricketOptions(max_overs=5).settings()
    assert record.words.prompt == str(find("configs/llm_prompt_cricket.txt"))
    prompt, table = Prompt.read(record.words.prompt), table_for(record)
    texts = []
    for seed in range(4):
        state = table.new(settings, episode_luck(seed_key(seed), 0))
        for seat in (0, 1):
            view, masks = table.observe(settings, state, seat)
            texts.append(prompt.render(record.words.prompt_variables(settings, view, [])))
            answer = Answer.of(record.words.answer_fields(view, masks))
            for name in ("next_batter", "bowler"):
                for field in answer.fields:
                    if field.name == name:
                        assert all(str(value) in texts[-1] for value in field.choices[0])
            assert answer.grammar().count("::=") == 1
    head = prompt.text.partition("\n\n")[0]
    assert all(text.startswith(head) for text in texts)
    assert len(head) > 1500
    for word in (*INTENTS, *PLANS, *FIELDS):
        assert word in head


@pytest.mark.parametrize("side", ["bat", "bowl"])
def test_the_reason_beside_a_hint_states_how_often_the_reference_chooses_so(side: str) -> None:
    record, settings = game(), CricketOptions(captain_side=side).settings()
    view, masks = first_view(record, settings)
    bot = record.bot(record.reference)
    chance = jnp.linspace(0, 1, 400, endpoint=False)
    _, acts = jax.jit(jax.vmap(lambda u: bot.choose(settings, jnp.int32(0), view, masks, jnp.stack([u, u]))))(chance)
    head, names, verb = (0, INTENTS, "chooses") if side == "bat" else (1, PLANS, "bowls")
    for value, name in enumerate(names):
        act = tuple(value if i == head else int(np.argmax(mask)) for i, mask in enumerate(masks))
        text = record.words.reason(settings, view, [], act)
        stated = re.search(rf"You win with probability 0\.\d\d; the reference {verb} {name} in (\d+)% of such", text)
        assert stated, text
        assert abs(int(stated[1]) / 100 - float((acts[head] == value).mean())) < 0.02
