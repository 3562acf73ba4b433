"""The game in words: texts can be typed, errors are explained, prompts agree with the view."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from kibitz.core.errors import BadInput
from kibitz.games.deal_or_no_deal import build, words
from kibitz.games.deal_or_no_deal.rules import ACT_NAMES
from tests.games.deal_or_no_deal import board, oracle
from tests.games.deal_or_no_deal.oracle import AGREE, DISAGREE, END, INSIST, NOTHING, PROPOSE, Act, Game

GAME = build(4)
TABLE = Game((4, 1, 2), ((3, 5, 1), (1, 4, 6)))
COUNTERED = Game((4, 1, 2), ((3, 5, 1), (1, 4, 6)), seat=1).play((PROPOSE, (0, 0, 2)))


def view_and_masks(game: Game, seat: int = 0, **options: Any) -> tuple[Any, Any]:
    settings, state = board.settings_for(max_turns=game.max_turns, **options), board.state_of(game)
    view = GAME.rules.view(settings, state, seat)
    return view, tuple(np.asarray(mask) for mask in GAME.rules.legal(settings, state, seat))


def parse(text: str, game: Game = COUNTERED) -> tuple[int, ...]:
    view, masks = view_and_masks(game)
    return tuple(GAME.words.parse(view, masks, text))


def described(game: Game, history: list[Any] | None = None, seat: int = 0, **options: Any) -> dict[str, str]:
    settings = board.settings_for(max_turns=game.max_turns, **options)
    return dict(GAME.words.prompt_variables(settings, view_and_masks(game, seat, **options)[0], history or []))


# Texts of acts


@pytest.mark.parametrize(
    ("act", "said"),
    [
        ((PROPOSE, 1, 2, 0), "PROPOSE: I keep 1 book and 2 hats"),
        ((INSIST, 0, 0, 1), "INSIST: I keep 1 ball"),
        ((INSIST, 2, 1, 4), "INSIST: I keep 2 books, 1 hat and 4 balls"),
        ((PROPOSE, 0, 0, 0), "PROPOSE: I keep nothing"),
        ((END, 3, 0, 0), "END: I select 3 books"),
        ((AGREE, 3, 1, 2), "AGREE"),
        ((DISAGREE, 0, 0, 0), "DISAGREE"),
    ],
)
def test_acts_have_a_text(act: tuple[int, ...], said: str) -> None:
    assert GAME.words.act_text(tuple(np.int32(x) for x in act)) == said


@pytest.mark.parametrize(
    ("kind", "kept", "said"),
    [
        (None, NOTHING, "The other side has not spoken."),
        (PROPOSE, (0, 0, 2), "The other side's offer leaves you 4 books and 1 hat, worth 17 points."),
        (INSIST, (4, 1, 1), "The other side insists on its offer, which leaves you 1 ball, worth 1 point."),
        (AGREE, NOTHING, "The other side agrees: you get 4 books, worth 12 points."),
        (DISAGREE, NOTHING, "The other side disagrees."),
        (END, (0, 1, 2), "The other side ends the talk with a selection that leaves you 4 books, worth 12 points."),
    ],
)
def test_the_position_says_what_the_other_side_did_last(kind: int | None, kept: tuple[int, ...], said: str) -> None:
    game = Game((4, 1, 2), ((3, 5, 1), (1, 4, 6))).play((PROPOSE, (4, 0, 0)))
    view, _ = view_and_masks(game if kind is None else game.play((kind, kept)))
    assert said in GAME.words.position_text(view)


def test_different_acts_have_different_texts() -> None:
    acts = [(kind, *keep) for kind in (PROPOSE, INSIST, END) for keep in product(range(5), repeat=3)]
    acts += [(AGREE, 0, 0, 0), (DISAGREE, 0, 0, 0)]
    assert len({GAME.words.act_text(act) for act in acts}) == len(acts)


# Parsing


def test_every_listed_choice_can_be_typed() -> None:
    for kind, keep in oracle.all_acts(COUNTERED):
        name = ACT_NAMES[kind]
        numbers = "" if kind in (AGREE, DISAGREE) else " ".join(map(str, keep))
        expected = (kind, *((0, 0, 0) if kind in (AGREE, DISAGREE) else keep))
        for text in (f"{name} {numbers}", f"{name.lower()} {numbers}", f"  {kind} {numbers}\n"):
            assert parse(text) == expected


def test_an_acts_text_parses_to_the_same_act() -> None:
    for kind, keep in ((PROPOSE, (4, 1, 0)), (INSIST, NOTHING), (END, (0, 1, 2)), (AGREE, NOTHING)):
        numbers = "" if kind == AGREE else ",".join(map(str, keep))
        act = parse(f"{ACT_NAMES[kind]} {numbers}")
        assert GAME.words.act_text(act) == GAME.words.act_text((kind, *keep))


@pytest.mark.parametrize(
    ("text", "act"),
    [
        ("p 1 0 2", (PROPOSE, 1, 0, 2)),
        ("prop 1,0,2", (PROPOSE, 1, 0, 2)),
        ("propose [1, 0, 2]", (PROPOSE, 1, 0, 2)),
        ("I 4 1 0", (INSIST, 4, 1, 0)),
        ("a", (AGREE, 0, 0, 0)),
        ("d", (DISAGREE, 0, 0, 0)),
        ("E 4 1 0", (END, 4, 1, 0)),
        ("1 4 1 0", (INSIST, 4, 1, 0)),
        ("2", (AGREE, 0, 0, 0)),
    ],
)
def test_abbreviations_and_commas_are_accepted(text: str, act: tuple[int, ...]) -> None:
    assert parse(text) == act


WRONG: dict[str, tuple[str, Game, list[str]]] = {
    # the input, the position, and what the sentence must contain
    "nothing": ("", COUNTERED, ["propose", "agree", "0..4 0..1 0..2"]),
    "only marks": ("?!", COUNTERED, ["propose", "agree"]),
    "a word that is no act": ("banana 1 1 1", COUNTERED, ["'banana'", "propose", "end"]),
    "more than the name of an act": ("proposes 1 1 1", COUNTERED, ["'proposes'", "propose"]),
    "an act number past the last": ("5 1 1 1", COUNTERED, ["'5'", "propose"]),
    "an act number below zero": ("-1 1 1 1", COUNTERED, ["'-1'", "propose"]),
    "agree before an offer": ("agree", TABLE, ["AGREE", "propose 0..4 0..1 0..2", "disagree"]),
    "too few numbers": ("propose 1 1", COUNTERED, ["PROPOSE", "three numbers", "propose 4 1 2"]),
    "too many numbers": ("insist 1 1 1 1", COUNTERED, ["INSIST", "three numbers"]),
    "no numbers": ("end", COUNTERED, ["END", "three numbers"]),
    "words for numbers": ("propose one two three", COUNTERED, ["three numbers"]),
    "fractions": ("propose 1.5 1 1", COUNTERED, ["three numbers"]),
    "a point that makes three numbers of two": ("propose 1.0 2", COUNTERED, ["three numbers"]),
    "more than there are": ("propose 1 2 0", COUNTERED, ["2 hats", "1", "0 to 1"]),
    "less than none": ("propose -1 0 0", COUNTERED, ["-1 book", "0 to 4"]),
    "far more than there are": (f"end {10**30} 0 0", COUNTERED, ["0 to 4"]),
    "numbers with agree": ("agree 1 1 1", COUNTERED, ["AGREE", "no numbers"]),
    "numbers with disagree": ("disagree 1", COUNTERED, ["DISAGREE", "no numbers"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_invalid_input_is_explained_in_one_sentence(name: str) -> None:
    text, game, parts = WRONG[name]
    with pytest.raises(BadInput) as caught:
        parse(text, game)
    sentence = str(caught.value)
    assert "\n" not in sentence and sentence.endswith(".")
    assert all(part in sentence for part in parts), sentence


def test_an_illegal_agree_is_never_listed() -> None:
    view, masks = view_and_masks(TABLE)
    assert (
        GAME.words.choices_text(view, masks)
        == "propose 0..4 0..1 0..2, insist 0..4 0..1 0..2, disagree, end 0..4 0..1 0..2"
    )
    view, masks = view_and_masks(COUNTERED)
    assert "agree, disagree" in GAME.words.choices_text(view, masks)


# Answer fields and prompt variables


def test_answer_fields_hold_exactly_the_legal_values() -> None:
    fields = GAME.words.answer_fields(*view_and_masks(TABLE))
    assert fields["act_type"] == [PROPOSE, INSIST, DISAGREE, END]
    assert fields["oA"] == [[0, 1, 2, 3, 4], [0, 1], [0, 1, 2]]
    assert list(fields) == ["act_type", "oA", "confidence"]
    assert min(fields["confidence"]) == 0 and max(fields["confidence"]) == 1
    assert GAME.words.answer_fields(*view_and_masks(COUNTERED))["act_type"] == [PROPOSE, INSIST, AGREE, DISAGREE, END]


def test_every_prompt_variable_of_the_seed_is_a_string() -> None:
    variables = described(TABLE)
    seed = ("counts_csv", "my_utils_csv", "last_partner_act_token", "last_offer_csv", "turns", "p", "history_str")
    assert set(seed) <= set(variables)
    assert all(isinstance(value, str) for value in variables.values())


def test_the_prompt_agrees_with_the_observation() -> None:
    before = described(TABLE)
    assert before["counts_csv"] == "4,1,2" and before["my_utils_csv"] == "3,5,1" and before["turns"] == "10"
    assert before["last_partner_act_token"] == "DISAGREE" and before["last_offer_csv"] == "0,0,0"
    assert before["partner_has_spoken"] == "no" and "AGREE" not in before["legal_acts"].replace("DISAGREE", "")
    after = described(COUNTERED)
    assert after["last_partner_act_token"] == "PROPOSE" and after["last_offer_csv"] == "4,1,0"
    assert after["partner_has_spoken"] == "yes" and after["turns"] == "9" and "2 AGREE" in after["legal_acts"]


def test_the_prompt_takes_the_point_of_view_of_its_seat() -> None:
    game = COUNTERED.play((INSIST, (4, 1, 1)))
    history = [{"seat": 1, "act": (PROPOSE, 0, 0, 2)}, {"seat": 0, "act": (INSIST, 4, 1, 1)}]
    mine = described(game, history)
    assert mine["history_str"].splitlines() == [
        "Partner: PROPOSE: I keep 2 balls",
        "You: " + words.act_text((1, 4, 1, 1)),
    ]
    theirs = described(game, history, seat=1)
    assert theirs["history_str"].splitlines()[0].startswith("You: PROPOSE")
    assert theirs["my_utils_csv"] == "1,4,6" and theirs["last_offer_csv"] == "0,0,1"


def test_an_empty_history_is_an_empty_string() -> None:
    assert described(TABLE)["history_str"] == ""


def test_the_partners_utilities_are_in_the_prompt_only_when_revealed() -> None:
    assert described(TABLE)["p"] == "unknown"
    assert described(TABLE, reveal_partner_utilities=True)["p"] == "1,4,6"


# Commentary


def step_event(seat: int, act: Act) -> dict[str, Any]:
    acts = [None, None]
    acts[seat] = [act[0], *act[1]]
    return {"type": "step", "payload": {"acts": acts}}


def test_commentary_differs_for_every_act() -> None:
    acts: list[Act] = [
        (PROPOSE, (1, 0, 0)),
        (INSIST, (1, 0, 0)),
        (AGREE, NOTHING),
        (DISAGREE, NOTHING),
        (END, (1, 0, 0)),
    ]
    lines = [GAME.drawing.commentary(step_event(0, act), {}) for act in acts]
    assert len(set(lines)) == len(acts) and all(line.endswith(".") for line in lines)
    assert GAME.drawing.commentary({"type": "something.else", "payload": {}}, {}) == ""


def test_commentary_calls_the_players_by_their_names() -> None:
    asked = step_event(1, (PROPOSE, (1, 0, 0)))
    named = {"players": ["policy:runs/first-try", "heuristic"]}
    assert GAME.drawing.commentary(asked | named, {}) == "Heuristic asks for 1 book."
    ended = {"type": "episode.ended", "payload": {"returns": [7.0, 5.0], "scores": {"agreement": [1.0, 1.0]}}}
    assert GAME.drawing.commentary(ended | named, {}) == "Policy first-try takes 7 points, heuristic takes 5."
    assert GAME.drawing.commentary(asked | {"players": ["bayes", "human"]}, {}) == "The person asks for 1 book."
    assert GAME.drawing.commentary(asked | {"players": ["bayes", "llm:auto"]}, {}) == "Model auto asks for 1 book."
    # equal names get their seats; without names the seats alone appear
    assert GAME.drawing.commentary(asked | {"players": ["bayes", "bayes"]}, {}) == "Bayes (seat 1) asks for 1 book."
    assert GAME.drawing.commentary(asked, {}) == "Seat 1 asks for 1 book."
