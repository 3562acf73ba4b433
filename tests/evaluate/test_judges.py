"""Judges of style: labelled episodes, the classifier, and label accuracy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from kibitz.cli.studies.judge import app as judge_app
from kibitz.core.bots import seated
from kibitz.core.errors import BadInput
from kibitz.core.play.episode import play_episode
from kibitz.core.play.player import BotPlayer
from kibitz.core.system.interrupt import EXIT_CODE
from kibitz.evaluate.judges import accuracy
from kibitz.evaluate.judges.accuracy import Judged, evaluate_judge
from kibitz.evaluate.judges.classifier import Classifier
from kibitz.evaluate.judges.episodes import draw, finished
from kibitz.evaluate.match import play_bots
from kibitz.games import get_game
from kibitz.llm.client.blocking import BlockingClient
from kibitz.llm.client.types import Reply
from tests.advice.conftest import embedded, fake  # noqa: F401
from tests.llm.fake_server import FakeServer
from tests.train import toy

TOY = toy.build(False)
OPTIONS = toy.ToyOptions(rounds=2)


@pytest.mark.conformance
def test_drawn_episodes_are_those_of_the_episode_loop_with_their_styles() -> None:
    game = get_game("deal_or_no_deal")
    drawn = draw(game, game.options(), 12, ["partner:stubborn"], "random", seed=5)
    bots = game.bot("partner:stubborn"), game.bot("random")
    settings = seated(game.options().settings(), dict(enumerate(bots)))
    for number in range(12):
        played = play_episode(game, settings, [BotPlayer(game, bot) for bot in bots], seed=5, number=number)
        acts = [
            {"seat": event.payload["seat"], "act": tuple(event.payload["act"])}
            for event in played.events
            if event.type == "decision"
        ]
        assert finished(game, drawn, number).history == acts
        assert played.returns == tuple(drawn.returns[number])
        offers = [said["act"][1:] for said in acts if said["seat"] == 0 and said["act"][0] < 2]
        assert drawn.shown["stubborn"][number] == (len(set(offers)) < len(offers))


@pytest.mark.conformance
def test_an_evaluation_reports_the_styles_of_both_seats_when_asked() -> None:
    bots = TOY.bot("heuristic"), TOY.bot("oracle")
    settings = seated(OPTIONS.settings(), dict(enumerate(bots)))
    plain = play_bots(TOY, settings, bots, 50, 3, lambda count: None)
    found = play_bots(TOY, settings, bots, 50, 3, lambda count: None, styles=True)
    assert not any(name.startswith("style_") for name in plain.scores)
    assert (found.returns == plain.returns).all()
    assert (found.scores["style_shy"][:, 0] == 1).all(), "the heuristic never pulls arm 1"
    assert 0 < found.scores["style_bold"][:, 1].mean() < 1
    assert ((found.scores["ones"][:, 1] == 2) == (found.scores["style_bold"][:, 1] == 1)).all()


@pytest.mark.conformance
def test_a_classifier_learns_styles_and_is_the_same_after_a_file(tmp_path: Path) -> None:
    learnt = Classifier.learn(TOY, draw(TOY, OPTIONS, 512, ["random"], "heuristic", seed=1))
    unseen = draw(TOY, OPTIONS, 256, ["random"], "heuristic", seed=2)
    learnt.write(tmp_path / "judge.safetensors")
    found = evaluate_judge(TOY, unseen, f"classifier:{tmp_path / 'judge.safetensors'}")
    assert [row["style"] for row in found["styles"]] == ["bold", "shy"]
    for row in found["styles"]:
        low, high = row["accuracy_ci95"]
        assert row["majority"] < 0.85 < low <= row["accuracy"] <= high + 1e-9
        assert row["base_rate"] == unseen.shown[row["style"]].mean()


@pytest.mark.conformance
def test_what_cannot_judge_is_refused_in_one_sentence(tmp_path: Path) -> None:
    drawn = draw(TOY, OPTIONS, 8, ["random"], "heuristic", seed=1)
    (tmp_path / "bad").write_bytes(b"no classifier")
    for judge, message in (
        ("gut", "There is no judge 'gut'; use llm:PRESET or classifier:FILE."),
        (f"classifier:{tmp_path / 'bad'}", "is no classifier; write one with `kibitz judge train"),
        (f"classifier:{tmp_path / 'missing'}", "is no classifier"),
        ("llm:no-such-preset", "There is no preset"),
    ):
        with pytest.raises(BadInput) as error:
            evaluate_judge(TOY, drawn, judge)
        assert message in str(error.value)
    learnt = Classifier("chess", 1, ("bold", "shy"), 1, {"centre": np.zeros(3, np.float32)})
    with pytest.raises(BadInput, match="was trained on chess"):
        learnt.judge(TOY, drawn, "bold")


@pytest.mark.conformance
@pytest.mark.usefixtures("embedded")
def test_the_embedded_model_answers_yes_or_no_about_a_transcript() -> None:
    (row,) = evaluate_judge(TOY, draw(TOY, OPTIONS, 2, ["random"], "heuristic", seed=2), "llm:embedded", ["bold"])[
        "styles"
    ]
    assert row["answered"] == 2 and row["failures"] == {} and row["prompt_tokens"] > 50


def test_accuracy_counts_only_answers_and_names_the_majority() -> None:
    truth = np.array([True, True, True, False])
    judged = Judged(np.array([True, False, True, True]), np.array([True, True, True, False]))
    found = accuracy._scores(truth, judged)
    assert found["accuracy"] == pytest.approx(2 / 3) and found["answered"] == 3
    assert found["base_rate"] == found["majority"] == 0.75
    assert found["recall"] == pytest.approx(2 / 3) and found["specificity"] is None
    nothing = accuracy._scores(truth, judged._replace(answered=np.zeros(4, bool)))
    assert nothing["accuracy"] is None and nothing["accuracy_ci95"] == [None, None]


@pytest.mark.parametrize(("batches", "answered"), [(1, {"bold": 34}), (2, {"bold": 40, "shy": 2})])
def test_ctrl_c_keeps_what_a_judge_has_answered(
    batches: int,
    answered: dict[str, int],
    fake: FakeServer,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Forty questions are two batches; two answers of the interrupted one have arrived."""
    preset = {"provider": "openai", "base_url": fake.url, "model": "obliging", "structure": "schema"}
    (tmp_path / "presets.yaml").write_text(yaml.safe_dump({"presets": {"fake": preset}}), encoding="utf-8")
    monkeypatch.setenv("KIBITZ_LLM_PRESETS", str(tmp_path / "presets.yaml"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ask, asked = BlockingClient.ask_many, list[int]()

    def interrupted(client: BlockingClient, questions: Any, within: Any = None, arrived: Any = None) -> list[Reply]:
        asked.append(len(replies := ask(client, questions)))
        if len(asked) <= batches:
            return replies
        arrived.update({3: replies[3], 5: replies[5]})
        raise KeyboardInterrupt

    monkeypatch.setattr(BlockingClient, "ask_many", interrupted)
    words = ["evaluate", "--judge", "llm:fake", "--game", toy.NAME, "--episodes", "40", "--json"]
    toy.register()
    assert judge_app([*words, "--player", "random", "--opponent", "heuristic"], standalone_mode=False) == EXIT_CODE
    found = json.loads(capsys.readouterr().out)
    assert found["interrupted"] and {row["style"]: row["answered"] for row in found["styles"]} == answered
    assert all(row["accuracy"] is not None for row in found["styles"])
