"""Judges of style: labelled episodes, the classifier, and label accuracy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kibitz.core.bots import seated
from kibitz.core.errors import BadInput
from kibitz.core.play.episode import play_episode
from kibitz.core.play.player import BotPlayer
from kibitz.evaluate.judges import accuracy
from kibitz.evaluate.judges.accuracy import Judged, evaluate_judge
from kibitz.evaluate.judges.classifier import Classifier
from kibitz.evaluate.judges.episodes import draw, finished
from kibitz.evaluate.match import play_bots
from kibitz.games import get_game
from tests.advice.conftest import embedded  # noqa: F401
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
