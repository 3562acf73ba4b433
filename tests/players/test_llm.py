"""A language model in a seat: legal acts, the heuristic when it fails, and no private values of the other seat."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from rich.console import Console

from kibitz.advice.ask import PositionAsker
from kibitz.cli.output import evaluation_table
from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.play.episode import play_episode, table_for
from kibitz.core.play.player import Choice, Turn
from kibitz.core.system.logs import log_once
from kibitz.evaluate.match import evaluate
from kibitz.evaluate.packs import evaluate_pack
from kibitz.evaluate.record import read_episodes
from kibitz.games import get_game, get_pack
from kibitz.games.deal_or_no_deal.envs.gym_env import first_state
from kibitz.llm.answers.answer import Answer
from kibitz.llm.client.types import ProviderError, Reply
from kibitz.llm.presets import Preset
from kibitz.players import player_named
from kibitz.players.human import HumanPlayer
from kibitz.players.llm import LLMPlayer, NoAnswer, llm_player
from tests.advice.conftest import KEY, QUICK, Prompts
from tests.llm.fake_server import FakeServer

POOL = {"counts": [1, 2, 3], "my_utilities": [4, 2, 2]}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """A cached player would remember an earlier test's server."""
    llm_player.cache_clear()
    yield
    llm_player.cache_clear()


@pytest.fixture
def game() -> Game:
    return get_game("deal_or_no_deal")


def state(game: Game, theirs: list[int]) -> tuple[Any, Any]:
    options = game.options()
    settings = options.settings()
    return settings, first_state(options, settings, {**POOL, "partner_utilities": theirs}, True)


def turn(game: Game, theirs: list[int]) -> Turn:
    settings, first = state(game, theirs)
    view, masks = table_for(game).observe(settings, first, 0)
    history = [{"seat": 1, "act": (0, 1, 2, 0)}, {"seat": 0, "act": (1, 1, 0, 3)}]
    return Turn(settings, 0, 0, view, masks, history, jnp.zeros(2, jnp.uint32))


@pytest.mark.usefixtures("presets")
def test_a_choice_carries_act_reason_latency_and_usage(game: Game) -> None:
    with PositionAsker(game, "fake-good") as asker:
        choice = LLMPlayer("fake-good", asker).choose(turn(game, [1, 1, 1]))
    assert choice.act == (0, 1, 0, 2)
    assert choice.source == "llm:fake-good"
    assert '"confidence": 0.7' in choice.reason
    assert 0 < choice.latency < 60
    assert choice.usage["prompt_tokens"] == 300
    assert choice.usage["money"] == pytest.approx(340e-6)


@pytest.mark.usefixtures("presets")
@pytest.mark.parametrize(
    ("model", "kind"),
    [("illegal-act", "illegal"), ("html", "transport"), ("no-json", "not_json"), ("401", "refused"),
     ("boolean", "wrong_shape")],
)  # fmt: skip
def test_a_failure_raises_with_its_kind_and_without_the_key(game: Game, model: str, kind: str) -> None:
    with PositionAsker(game, f"fake-{model}") as asker, pytest.raises(NoAnswer, match=kind) as raised:
        LLMPlayer(model, asker).choose(turn(game, [1, 1, 1]))
    assert KEY not in str(raised.value)


@pytest.mark.usefixtures("presets")
def test_the_fallback_plays_for_a_model_that_fails_and_the_event_says_why(game: Game) -> None:
    settings, first = state(game, [1, 1, 1])
    with PositionAsker(game, "fake-401") as asker:
        players = [LLMPlayer("fake-401", asker), player_named(game, "heuristic")]
        played = play_episode(game, settings, players, state=first)
    mine = [event.payload for event in played.events if event.type == "decision" and event.payload["seat"] == 0]
    assert mine
    assert all(decision["fallback"].startswith("NoAnswer: ") for decision in mine)
    assert all(decision["source"] == "heuristic" for decision in mine)
    assert KEY not in json.dumps([event.as_dict() for event in played.events], default=str)


class Aloud:
    """A model that reveals its seat's private values in its reasoning and writes no JSON."""

    game, preset = get_game("deal_or_no_deal"), Preset(provider="embedded")

    def ask(self, positions: list[Any]) -> list[Any]:
        position = positions[0]
        values = np.asarray(position.view.my_utilities).tolist()
        try:
            Answer.of(get_game("deal_or_no_deal").words.answer_fields(position.view, position.masks)).parse(
                f"I value {values}, so"
            )
        except ProviderError as trouble:
            return [SimpleNamespace(act=None, reply=Reply("", None, failure=trouble.failure))]
        raise AssertionError("it was understood")

    def messages(self, position: Any) -> list[Any]:
        return []


def test_the_text_of_a_failing_model_stays_private_to_its_seat(game: Game) -> None:
    players = [player_named(game, "heuristic"), LLMPlayer("aloud", cast(Any, Aloud()))]
    played = play_episode(game, game.options().settings(), players, seed=3)
    mine = [event for event in played.events if event.type == "decision" and event.payload["seat"] == 1]
    values = played.events[0].payload["private"]["1"]["utilities"]
    assert mine
    for event in mine:
        for viewer in (None, 0):
            assert "I value" not in json.dumps(event.shown_to(viewer).payload)
        assert event.payload["fallback"] == "NoAnswer: not_json"
        assert f"I value {values}" in event.shown_to(1).payload["private"]["1"]["reason"]


def test_the_prompt_has_the_dialogue_and_no_private_values_of_the_partner(game: Game, prompts: Prompts) -> None:
    with PositionAsker(game, "fake-good") as asker:
        for theirs in ([1, 1, 1], [10, 0, 0], [9, 8, 7]):
            LLMPlayer("fake-good", asker).choose(turn(game, theirs))
    asked = prompts()
    assert len(asked) == 3
    assert len(set(asked)) == 1
    assert "You: INSIST: I keep 1 book and 3 balls" in asked[0]
    assert "Partner's values unknown" in asked[0]


@pytest.mark.usefixtures("presets")
def test_evaluate_takes_a_model_by_name(game: Game) -> None:
    found = evaluate(game, game.options(), "llm:fake-good", "heuristic", 3)
    assert found["player"] == "llm:fake-good"
    assert found["episodes"] == 3
    assert found["opponent"]["fallback_share"] == 0


@pytest.mark.usefixtures("presets")
def test_evaluate_reports_how_often_the_fallback_played_for_a_model(game: Game) -> None:
    found = evaluate(game, game.options(), "llm:refused", "heuristic", 2)
    assert found["fallback_share"] == 1
    assert found["opponent"]["fallback_share"] == 0


def test_evaluate_reports_tokens_money_fallbacks_and_failures_of_every_answer(game: Game, prompts: Prompts) -> None:
    found = evaluate(game, game.options(), "llm:fake-good", "heuristic", 4)
    asked = len(prompts())
    assert 0 < found["fallbacks"] < asked  # it always keeps 1, 0 and 2, which not every pool allows
    assert found["failures"] == {"illegal": found["fallbacks"]}
    assert (
        found["answered_by"] == {"llm:fake-good": asked - found["fallbacks"]} and not found["opponent"]["answered_by"]
    )
    assert (found["prompt_tokens"], found["completion_tokens"]) == (300 * asked, 20 * asked)
    assert found["money"] == pytest.approx(asked * 340e-6)
    assert found["opponent"]["prompt_tokens"] == found["opponent"]["fallbacks"] == 0
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(evaluation_table(found | {"contexts": "uniform"}))
    text = console.export_text()
    for words in ("fallbacks", f"illegal {found['fallbacks']}", f"{300 * asked:,}", f"{found['money']:.6f}"):
        assert words in text, words


@pytest.mark.conformance  # fifteen seconds of compiling
def test_a_pack_reports_the_tokens_of_failed_answers(prompts: Prompts, tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text("about: x\nscenarios:\n  - {seed: 3, overs: 1, count: 1}\n", encoding="utf-8")
    found = evaluate_pack(get_game("cricket"), get_pack("cricket", str(file)), "llm:fake-no-json", "balanced")
    asked = len(prompts())
    assert found["failures"] == {"not_json": asked} and found["fallback_share"] == 1
    assert (found["prompt_tokens"], found["completion_tokens"]) == (300 * asked, 20 * asked)


@pytest.mark.usefixtures("presets")
def test_a_models_games_run_side_by_side_and_end_as_they_would_one_by_one(
    game: Game, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asking, most, plain = set[int](), 0, LLMPlayer.choose

    def choose(self: LLMPlayer, turn: Turn) -> Choice:
        nonlocal most
        asking.add(threading.get_ident())
        most = max(most, len(asking))
        try:
            return plain(self, turn)
        finally:
            asking.discard(threading.get_ident())

    monkeypatch.setattr(LLMPlayer, "choose", choose)
    results = []
    for at_once in (8, 1):
        monkeypatch.setattr(LLMPlayer, "games_at_once", at_once)
        most, out = 0, tmp_path / str(at_once)
        found = evaluate(game, game.options(), "llm:fake-moody", "partner:conceder", 24, seed=4, out=out)
        results.append({name: found[name] for name in found if name not in ("seconds", "episodes_per_s")})
        assert most > 2 if at_once > 1 else most == 1
    assert results[0] == results[1] and results[0]["failures"]
    kept = [[(one.number, one.returns) for one in read_episodes(tmp_path / str(n))] for n in (8, 1)]
    assert kept[0] == kept[1]


@pytest.mark.usefixtures("presets")
def test_ctrl_c_keeps_the_episodes_that_have_ended(game: Game) -> None:
    ended: list[int] = []

    def progress(count: int) -> None:
        ended.append(count)
        if len(ended) == 2:
            raise KeyboardInterrupt

    found = evaluate(game, game.options(), "llm:fake-good", "heuristic", 100, progress=progress)
    assert (found["episodes"], found["interrupted"]) == (2, True)
    assert found["prompt_tokens"] > 0


@pytest.mark.usefixtures("presets")
def test_a_preset_that_cannot_be_used_is_refused_before_anything_is_played(game: Game) -> None:
    with pytest.raises(BadInput, match="NO_SUCH_KEY is not set"):
        player_named(game, "llm:keyless")
    with pytest.raises(BadInput, match="no preset 'nobody'"):
        player_named(game, "llm:nobody")
    with pytest.raises(BadInput, match="llm:PRESET"):
        player_named(game, "nobody")


@pytest.fixture
def taught(fake: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The presets `taught` and `embedded`, both the good model of the fake server."""
    good = {"provider": "openai", "base_url": fake.url, "model": "good", "limits": QUICK}
    games = {"deal_or_no_deal": {"settings": {"max_turns": [1, 10]}}}
    own = {"taught": {**good, "taught": True, "games": games}, "embedded": good}
    (tmp_path / "presets.yaml").write_text(yaml.safe_dump({"presets": own}), encoding="utf-8")
    monkeypatch.setenv("KIBITZ_LLM_PRESETS", str(tmp_path / "presets.yaml"))
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    log_once.cache_clear()


@pytest.mark.usefixtures("taught")
@pytest.mark.parametrize("name", ["llm:taught", "llm:auto"])
def test_a_taught_models_choice_is_explained_by_the_references_numbers(game: Game, name: str) -> None:
    choice = player_named(game, name).choose(turn(game, [1, 1, 1]))
    assert choice.source == "llm:taught"
    assert choice.reason.startswith("It gives you 8 of 14 points; ")
    assert "possible values of the partner would accept it." in choice.reason
    assert choice.confidence == 0.7


@pytest.mark.usefixtures("taught")
def test_the_plain_model_answers_for_settings_that_were_not_taught_and_the_choice_names_it(
    game: Game, caplog: pytest.LogCaptureFixture
) -> None:
    player, asked = player_named(game, "llm:taught"), turn(game, [1, 1, 1])
    longer = asked._replace(settings=game.options(max_turns=20).settings())
    assert [player.choose(one).source for one in (longer, asked, longer)] == [
        "llm:embedded",
        "llm:taught",
        "llm:embedded",
    ]
    assert '"confidence": 0.7' in player.choose(longer).reason
    told = [record.message for record in caplog.records if "llm:taught" in record.message]
    assert told == ["llm:taught was taught deal_or_no_deal only with max_turns 1 to 10; using llm:embedded"]


def test_a_person_at_the_terminal_sees_the_hint_and_its_reason(game: Game) -> None:
    lines: list[str] = []
    hint = Choice((0, 1, 0, 2), "llm:taught", "It gives you 8 of 14 points.", confidence=0.71)
    HumanPlayer(game, lambda prompt: "disagree", lines.append).choose(turn(game, [1, 1, 1])._replace(hint=hint))
    assert "Your adviser: PROPOSE: I keep 1 book and 2 balls (71% sure). It gives you 8 of 14 points." in lines


@pytest.mark.usefixtures("embedded")
def test_the_real_embedded_model_plays_an_episode_without_the_fallback(game: Game) -> None:
    options = game.options(max_turns=3, agent_starts=True)
    settings = options.settings()
    with PositionAsker(game, "embedded") as asker:
        played = play_episode(game, settings, [LLMPlayer("embedded", asker), player_named(game, "heuristic")], seed=1)
    mine = [event.payload for event in played.events if event.type == "decision" and event.payload["seat"] == 0]
    assert mine
    assert all(decision["fallback"] == "" for decision in mine)
