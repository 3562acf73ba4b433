"""Grammar, schema and parser follow from one declaration; the parser accepts nothing else."""

from __future__ import annotations

import json
import random
import re
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kibitz.llm.answers.answer import Answer, Text
from kibitz.llm.answers.stepwise import write
from kibitz.llm.client.types import ProviderError
from tests.llm.conftest import FIELDS
from tests.llm.fake_server import GOOD, LINE


def kind_of(answer: Answer, text: str, lenient: bool = False) -> str:
    try:
        answer.parse(text, lenient=lenient)
    except ProviderError as trouble:
        return str(trouble.failure.kind)
    return "ok"


def written_by(grammar: str, pick: random.Random) -> str:
    """A random sentence of a grammar made of literals, groups of alternatives and a repeated class."""
    text = ""
    for group, literal, most in re.findall(
        r'\(((?:"(?:\\.|[^"\\])*"(?: \| )?)+)\)|"((?:\\.|[^"\\])*)"|\[[^\]]+\]\{0,(\d+)\}', grammar
    ):
        if group:
            literal = pick.choice(re.findall(r'"((?:\\.|[^"\\])*)"', group))
        text += literal.replace('\\"', '"').replace("\\\\", "\\") if not most else "a b" * (int(most) // 3)
    return text


def test_a_grammar_has_exactly_the_expected_text() -> None:
    answer = Answer.of({"act_type": [0, 1], "oA": [[0, 1], [0, 1, 2]], "confidence": [0.0, 1.0]})
    assert answer.grammar() == (
        r'root ::= "{\"act_type\":" ("0" | "1") ",\"oA\":" "[" ("0" | "1") "," ("0" | "1" | "2") "]" '
        r'",\"confidence\":" ("0.0" | "1.0") "}"'
    )
    assert answer.grammar() == answer.grammar(after_prefix=True).replace("root ::= ", r'root ::= "{\"act_type\":" ', 1)


@given(
    st.dictionaries(
        st.text("abcdefgh_", min_size=1, max_size=8),
        st.one_of(
            st.lists(st.integers(-99, 99), min_size=1, max_size=5),
            st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=4),
            st.lists(st.text("xyz '\"\\{}[]:,é", max_size=6), min_size=1, max_size=4),
            st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), min_size=1, max_size=4),
            st.just(Text(30)),
        ),
        min_size=1,
        max_size=5,
    ),
    st.randoms(use_true_random=False),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_the_parser_accepts_everything_that_the_grammar_writes(fields: dict[str, Any], pick: random.Random) -> None:
    answer = Answer.of(fields)
    text = written_by(answer.grammar(), pick)
    assert answer.parse(text) == json.loads(text)
    assert len(text) <= answer.max_chars
    assert text.startswith(answer.prefix)
    assert answer.parse(answer.write(answer.parse(text))) == json.loads(text)


def test_a_number_may_lie_anywhere_between_the_listed_ones(answer: Answer) -> None:
    assert answer.parse(json.dumps({**GOOD, "confidence": 0.85}))["confidence"] == 0.85
    assert answer.parse(json.dumps({**GOOD, "confidence": 1}))["confidence"] == 1.0
    assert kind_of(answer, json.dumps({**GOOD, "confidence": 1.01})) == "illegal"
    assert kind_of(answer, json.dumps({**GOOD, "confidence": "high"})) == "wrong_shape"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "empty"),
        ("\n\t ", "empty"),
        ("no", "not_json"),
        ("{", "not_json"),
        (LINE[:-1], "not_json"),
        (LINE.replace('"', "'"), "not_json"),
        (LINE.replace("0.7", "Infinity"), "not_json"),
        (LINE.replace("0.7", "1e999"), "not_json"),
        (LINE.replace("0.7", "null"), "wrong_shape"),
        (LINE.replace("[1, 0, 2]", '"1,0,2"'), "wrong_shape"),
        (LINE.replace("[1, 0, 2]", "[[1], 0, 2]"), "wrong_shape"),
        ("{}", "wrong_shape"),
        (f'{{"answer": {LINE}}}', "wrong_shape"),
        (f"[{LINE}]", "ok"),
        (f"{LINE} or {{}}", "wrong_shape"),
        (f"{LINE} or {LINE[:-1]}", "ok"),
        ('{"act_type": 0, "oA": [0, 0, 0], "confidence": 0.1}' * 3, "ok"),
    ],
)
def test_a_lenient_parser_takes_the_last_complete_object(answer: Answer, text: str, kind: str) -> None:
    assert kind_of(answer, text, lenient=True) == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (LINE, "ok"),
        (f" {LINE}\n", "ok"),
        (f"```json\n{LINE}\n```", "not_json"),
        (f"```{LINE}```", "not_json"),
        (f"My answer: {LINE}", "not_json"),
        (f"{LINE} Good luck!", "not_json"),
        (f"[{LINE}]", "not_json"),
        (f"{LINE}\n{LINE}", "not_json"),
        (json.dumps(GOOD, indent=1), "not_json"),
        (LINE[:-1], "not_json"),
        (LINE.replace("0.7", "NaN"), "not_json"),
        (LINE.replace('"oA"', '"act_type"'), "wrong_shape"),
        ("{}", "wrong_shape"),
        ("", "empty"),
    ],
)
def test_an_answer_is_one_object_on_one_line_and_nothing_else(answer: Answer, text: str, kind: str) -> None:
    assert kind_of(answer, text) == kind


def test_numbers_that_do_not_matter_may_be_anything() -> None:
    answer = Answer.of({"act_type": [0, 2], "oA": [[1, 2], [0, 1]]}, {2: ["oA"]})
    assert answer.parse('{"act_type":2,"oA":[9,-1]}') == {"act_type": 2, "oA": [1, 0]}
    assert kind_of(answer, '{"act_type":0,"oA":[9,0]}') == "illegal"
    assert kind_of(answer, '{"act_type":2,"oA":[9]}') == "wrong_shape"
    assert kind_of(answer, '{"act_type":2,"oA":[true,0]}') == "wrong_shape"
    assert answer.without("confidence").idle == answer.idle


def test_an_answer_is_written_choice_by_choice() -> None:
    answer = Answer.of({"plan": ["full", "full_toss", "good"], "oA": [[0, 1], [3], [10, 1]], "field": ["far"]})
    wanted, asked = '{"plan":"full_toss","oA":[1,3,10],"field":"far"}', []

    def generate(text: str, grammar: str) -> str:
        asked.append((text, grammar))
        rest = wanted[len(text) :]
        return rest[:4] if rest.startswith("full") else rest[:1]

    assert write(answer, generate) == wanted
    assert asked == [
        ('{"plan":"', r'root ::= "full\"," | "full_toss\"," | "good\","'),
        ('{"plan":"full', r'root ::= "\"," | "_toss\","'),
        ('{"plan":"full_toss","oA":[', 'root ::= "0," | "1,"'),
        ('{"plan":"full_toss","oA":[1,3,', 'root ::= "10]" | "1]"'),
        ('{"plan":"full_toss","oA":[1,3,1', 'root ::= "0]" | "]"'),
    ]


def test_a_field_that_does_not_matter_is_not_generated() -> None:
    answer = Answer.of({"act_type": [0, 2], "oA": [[1, 2], [0, 1]]}, {2: ["oA"]})
    asked: list[str] = []
    assert write(answer, lambda text, grammar: asked.append(text) or "2") == '{"act_type":2,"oA":[1,0]}'
    assert asked == ['{"act_type":']


def test_strings_are_compared_as_strings() -> None:
    answer = Answer.of({"intent": ["attack", "rotate"], "reason": Text(12)})
    assert answer.parse('{"intent":"attack","reason":"why\\u0000 not, after all"}') == {
        "intent": "attack",
        "reason": "why  not, a…",
    }
    assert kind_of(answer, '{"intent":"Attack","reason":""}') == "illegal"
    assert kind_of(answer, '{"intent":0,"reason":""}') == "wrong_shape"


def test_one_and_one_point_zero_are_different_declarations() -> None:
    assert Answer.of({"x": [0, 1]}) is Answer.of({"x": [0, 1]})
    assert '"1.0"' in Answer.of({"x": [0.0, 1.0]}).grammar()
    assert '"1.0"' not in Answer.of({"x": [0, 1]}).grammar()


@pytest.mark.parametrize("values", [[], [[]], [True], [None], [[0], [1, "a"]]])
def test_a_declaration_without_legal_values_raises_type_error(values: Any) -> None:
    with pytest.raises(TypeError, match="legal values"):
        Answer.of({"x": values})


@pytest.mark.parametrize(
    "text",
    [
        '{"a":' * 200_000,
        "{" * 1_000_000,
        '{"a":[' * 100_000,
        ('{"a":' * 900 + "!") * 40,
        '"' * 1_000_000,
        "{ " * 500_000,
    ],
    ids=["deep", "braces", "arrays", "deep-again", "quotes", "spaced"],
)
def test_hostile_text_is_parsed_quickly(answer: Answer, text: str) -> None:
    started = time.thread_time()
    assert kind_of(answer, text) == kind_of(answer, text, lenient=True) == "not_json"
    assert time.thread_time() - started < 2  # a parser that rescans the text takes minutes


@pytest.mark.parametrize("depth", [100, 300, 500, 600, 700, 900, 2_000])
def test_a_deeply_nested_value_is_a_bad_answer_and_not_a_crash(answer: Answer, depth: int) -> None:
    text = LINE.replace("0.7", "[" * depth + "]" * depth)
    assert {kind_of(answer, text), kind_of(answer, text, lenient=True)} <= {"wrong_shape", "not_json"}


@given(st.text(max_size=300))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_arbitrary_text_is_classified_without_a_crash(text: str) -> None:
    for lenient in (False, True):
        assert kind_of(Answer.of(FIELDS), text, lenient) in ("empty", "not_json", "wrong_shape")


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists, max_leaves=5))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_only_legal_values_are_accepted(value: Any) -> None:
    text = json.dumps({**GOOD, "act_type": value})
    legal = type(value) is int and value in (0, 1, 3, 4)
    assert (kind_of(Answer.of(FIELDS), text) == "ok") == legal
