"""Confidence is the share of the generated value among the legal ones."""

from __future__ import annotations

import json
import math

import pytest

from kibitz.llm.answers.answer import Answer
from kibitz.llm.answers.confidence import calibrated, likelihood
from kibitz.llm.client.types import Completion, Token


def plain(text: str) -> Token:
    return Token(text, {text: math.log(0.01)})


def test_probability_of_tokens_that_are_not_answers_is_ignored() -> None:
    answer = Answer.of({"act_type": [0, 1], "oA": [[0, 1], [0, 1, 2]]})
    tokens = [
        plain('{"act_type":'),
        Token("1", {"1": math.log(0.2), "0": math.log(0.1), "2": math.log(0.3), " I": math.log(0.4)}),
        plain(',"oA":['),
        Token("0", {"0": math.log(0.5), "1": math.log(0.5)}),
        plain(","),
        Token("2", {"2": math.log(0.1), "3": math.log(0.9)}),
        plain("]}"),
    ]
    completion = Completion("".join(t.text for t in tokens), tokens=tokens)
    assert likelihood(answer, completion) == {"act_type": pytest.approx(2 / 3, abs=1e-4), "oA": 0.5}


def test_tokens_that_contain_more_than_the_value_count() -> None:
    answer = Answer.of({"act_type": [0, 10, 1]})
    text = '{"act_type":10}'
    tokens = [
        plain('{"act_type"'),
        Token(":1", {":1": math.log(0.3), ":0": math.log(0.1), ": 1": math.log(0.5)}),
        Token("0}", {"0}": math.log(0.5), "}": math.log(0.25), "5}": math.log(0.25)}),
    ]
    found = likelihood(answer, Completion(text, tokens=tokens))
    # ":1" against ":0" is 3 to 1; then 10 against 1, which "}" would have ended, is 2 to 1
    assert found == {"act_type": 0.5}


def test_without_log_probabilities_there_is_no_likelihood() -> None:
    answer = Answer.of({"act_type": [0, 1]})
    assert likelihood(answer, Completion('{"act_type":0}')) == {}
    assert likelihood(answer, Completion(json.dumps({"act_type": 0}), tokens=[Token("x", {})])) == {}


def test_tokens_may_name_their_places_and_a_single_legal_value_is_certain() -> None:
    """As a model writes that generates only where it can choose."""
    answer = Answer.of({"act_type": [0, 1], "oA": [[4], [0, 1]], "plan": ["a", "b"]})
    tokens = [
        Token("1", {"1": math.log(0.6), "0": math.log(0.2)}, start=12),
        Token("0", {"0": math.log(0.5), "1": math.log(0.5)}, start=22),
    ]
    completion = Completion('{"act_type":1,"oA":[4,0],"plan":"a"}', tokens=tokens)
    assert completion.text[12] == "1"
    assert likelihood(answer, completion, skip=["plan"]) == {"act_type": 0.75, "oA": pytest.approx(0.5)}


def test_a_calibration_keeps_the_order_and_the_limits() -> None:
    assert calibrated(0.7, (1.0, 0.0)) == pytest.approx(0.7)
    shares = [0.0, 0.2, 0.5, 0.9, 1.0]
    found = [calibrated(share, (1.4, 0.8)) for share in shares]
    assert found == sorted(found)
    assert found[2] == pytest.approx(1 / (1 + math.exp(-0.8)))
    assert 0 <= found[0] < 0.01
    assert 0.99 < found[-1] <= 1
