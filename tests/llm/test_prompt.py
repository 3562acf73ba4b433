"""The prompt: strict variables, limited history, nothing to copy, nothing private."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from kibitz.core.errors import BadInput
from kibitz.games import get_game
from kibitz.llm.answers.answer import Answer
from kibitz.llm.answers.prompt import Prompt, system_message

SEED_NAMES = {"counts_csv", "my_utils_csv", "last_partner_act_token", "last_offer_csv", "turns", "p", "history_str"}
SAMPLE = {
    "counts_csv": "2,1,3",
    "my_utils_csv": "1,5,0",
    "last_partner_act_token": "PROPOSE",
    "last_offer_csv": "1,0,2",
    "turns": "8",
    "p": "unknown",
    "history_str": "You: INSIST: I keep 2 books\nPartner: PROPOSE: I keep 1 book",
    "partner_has_spoken": "yes",
    "legal_acts": "0 PROPOSE, 1 INSIST, 2 AGREE",
    "oA_max_csv": "2,1,3",
}


def test_the_shipped_prompt_uses_all_the_seeds_variables_and_demands_json() -> None:
    prompt = Prompt.read()
    prompt.check(SAMPLE)
    assert prompt.names >= SEED_NAMES
    text = prompt.render(SAMPLE)
    demand = "Return ONLY one JSON object on a single line with keys: act_type (0-4), oA ([3 ints]), confidence (0-1)."
    assert demand in text
    assert all(SAMPLE[name] in text for name in SEED_NAMES)


def test_the_rules_come_first_and_are_the_same_in_every_position() -> None:
    prompt = Prompt.read()
    other = prompt.render(
        {**SAMPLE, "counts_csv": "4,4,4", "turns": "1", "history_str": "", "partner_has_spoken": "no"}
    )
    text = prompt.render(SAMPLE)
    same = next(i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b)
    assert same > 0.8 * len(other)


def test_the_shipped_prompt_contains_examples_with_legal_answers() -> None:
    """Among them: the partner offers everything of value, so AGREE with high confidence."""
    found = re.findall(
        r"^Pool ([\d,]+)\. Your values ([\d,]+)\..*?(?:leaving you ([\d,]+).*)?\n(\{.*\})$", Prompt.read().text, re.M
    )
    assert len(found) >= 3
    agreed = []
    for pool, values, offer, line in found:
        counts, points, offered = ([int(x) for x in text.split(",") if x] for text in (pool, values, offer))
        legal = [0, 1, 3, 4, *([2] if offered else [])]
        declared = {"act_type": legal, "oA": [list(range(n + 1)) for n in counts], "confidence": [0.0, 1.0]}
        answer = Answer.of(declared).parse(line)
        assert sum(n * u for n, u in zip(counts, points, strict=True)) == 10
        whole = offered and all(n == m or not u for n, m, u in zip(offered, counts, points, strict=True))
        agreed += [answer["confidence"]] if whole and answer["act_type"] == 2 else []
    assert agreed
    assert min(agreed) >= 0.9


def test_a_template_without_variables_is_refused_at_startup() -> None:
    with pytest.raises(BadInput, match="uses no variable, so every question would be the same; use some of"):
        Prompt("Say something clever.").check(SAMPLE)


def test_the_system_message_contains_no_answer_to_copy(answer: Answer) -> None:
    for text in (system_message(answer)["content"], system_message(answer, flat=True)["content"]):
        assert not re.search(r'"act_type"|\{\s*"|\[\d+,', text)


def test_the_game_provides_every_variable_of_the_shipped_prompt() -> None:
    game = get_game("deal_or_no_deal")
    settings = game.options().settings()
    state = game.rules.new(settings, jnp.full(game.rules.new_uniforms, 0.3))
    Prompt.read().check(game.words.prompt_variables(settings, game.rules.view(settings, state, 0), []))


def test_the_partners_values_reach_no_prompt_and_no_answer() -> None:
    game = get_game("deal_or_no_deal")
    settings = game.options().settings()
    prompt, outputs = Prompt.read(), set()
    for points in range(11):
        state: Any = game.rules.new(settings, jnp.full(game.rules.new_uniforms, 0.3))
        theirs = type(state.utilities[1])(*(jnp.full_like(x, points) for x in state.utilities[1]))
        state = state._replace(utilities=(state.utilities[0], theirs))
        view, masks = game.rules.view(settings, state, 0), game.rules.legal(settings, state, 0)
        answer = Answer.of(game.words.answer_fields(view, tuple(np.asarray(mask) for mask in masks)))
        outputs.add((prompt.render(game.words.prompt_variables(settings, view, [])), answer.grammar()))
    assert len(outputs) == 1


def test_an_unknown_variable_is_refused_at_startup() -> None:
    with pytest.raises(BadInput, match="uses unknown variables: budget; use only counts_csv"):
        Prompt("{{ turns }} of {{ budget }}").check(SAMPLE)
    with pytest.raises(BadInput, match="Cannot fill in"):
        Prompt("{{ turns.nothing }}").check(SAMPLE)


@pytest.mark.parametrize("text", ["{{ turns + 1 }}", "{{ 1 / 0 }}", "{{ turns() }}", "{{ '%d' | format(turns) }}"])
def test_a_template_that_cannot_be_evaluated_is_refused_at_startup(text: str) -> None:
    with pytest.raises(BadInput, match="Cannot fill in"):
        Prompt(text).check(SAMPLE)


def test_a_missing_or_invalid_template_is_refused_at_startup(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="There is no file 'configs/none"):
        Prompt.read("configs/none.txt")
    with pytest.raises(BadInput, match="not a valid template"):
        Prompt("{{ turns ")
    with pytest.raises(BadInput, match="is empty"):
        Prompt(" \n")
    (tmp_path / "odd.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match="Cannot read the prompt"):
        Prompt.read(tmp_path / "odd.txt")


def test_a_template_cannot_access_python_internals() -> None:
    with pytest.raises(BadInput):
        Prompt("{{ ''.__class__.__mro__ }}").check(SAMPLE)


def test_the_shipped_prompt_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shipped = Prompt.read("configs/llm_prompt.txt").text
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "llm_prompt.txt").write_text("mine {{ turns }}")
    assert Prompt.read("configs/llm_prompt.txt").text == "mine {{ turns }}" != shipped


def history(turns: int) -> dict[str, str]:
    return {**SAMPLE, HISTORY: "\n".join(f"turn {i}" for i in range(turns))}


HISTORY = "history_str"


def test_a_long_history_keeps_its_newest_turns() -> None:
    prompt = Prompt("{{ history_str }}", max_history_turns=3)
    assert prompt.render(history(10)) == "turn 7\nturn 8\nturn 9"
    assert Prompt("{{ history_str }}", max_history_turns=0).render(history(10)) == ""
    assert Prompt("{{ history_str }}").render(history(10)).count("turn") == 10


def test_a_long_prompt_drops_its_oldest_turns() -> None:
    prompt = Prompt("Rules.\n{{ history_str }}\nPool {{ counts_csv }}", max_prompt_chars=60)
    text = prompt.render(history(50))
    assert 60 - len("turn 49\n") < len(text) <= 60
    assert text.endswith("turn 48\nturn 49\nPool 2,1,3")
    assert text.startswith("Rules.")


def test_limits_too_tight_for_the_position_are_refused_at_startup() -> None:
    with pytest.raises(BadInput, match="max_prompt_chars is 100"):
        Prompt.read(max_prompt_chars=100).check(SAMPLE)


def test_the_version_depends_on_the_template_and_its_limits() -> None:
    versions = {Prompt("a").version, Prompt("b").version, Prompt("a", max_history_turns=3).version}
    assert len(versions) == 3
    assert Prompt("a").version == Prompt("a").version
