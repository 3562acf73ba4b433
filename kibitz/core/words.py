"""A game in words: prompts, answers, what people type. The defaults come from heads and masks alone."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from kibitz.core.act import Act, Head, Masks, Matters
from kibitz.core.errors import BadInput

History: TypeAlias = list[Mapping[str, Any]]  # {"seat", "act"} of every act so far, oldest first
CONFIDENCE = "confidence"  # an answer field that is not part of the act
CONFIDENCES = tuple(tenth / 10 for tenth in range(11))
GENERIC_PROMPT = Path(__file__).parent / "prompt.txt"
GENERIC_TAUGHT_PROMPT = Path(__file__).parent / "prompt_taught.txt"


def with_article(word: str) -> str:
    """`an attacking`, `a balanced`: by the first letter, which suits the words of the games here."""
    return f"{'an' if word[:1].lower() in 'aeiou' else 'a'} {word}"


@dataclass(frozen=True)
class Words:
    """`generic_words(heads)` makes all of them; override with `dataclasses.replace`."""

    prompt_variables: Callable[[Any, Any, History], Mapping[str, str]]  # settings, view, history
    answer_fields: Callable[[Any, Masks], Mapping[str, Any]]  # view, masks -> the legal values of each field
    act_text: Callable[[Act], str]
    parse: Callable[[Any, Masks, str], tuple[int, ...]]  # view, masks, what a person typed; BadInput if invalid
    position_text: Callable[[Any], str]  # view -> a sentence or two for the person in the seat
    choices_text: Callable[[Any, Masks], str]  # view, masks -> what a person may type now
    reason: Callable[[Any, Any, History, Act], str] = lambda settings, view, history, act: ""
    """settings, view, history, a legal act -> what the reference's numbers say about it; shown beside a hint."""
    choice_notes: Callable[[Any, Any, Masks], Mapping[str, list[str]]] = lambda settings, view, masks: {}
    """settings, view, masks -> by answer field, a few words on each of its values for the person who chooses."""
    prompt: str | Path = GENERIC_PROMPT  # the template of the question to a language model
    taught_prompt: str | Path = GENERIC_TAUGHT_PROMPT  # the short template for a model that was taught the game


def generic_words(heads: tuple[Head, ...], rules: str = "") -> Words:
    """Words for any game: heads by name, values as numbers. `rules` explains the game to a language model."""

    def act_text(act: Act) -> str:
        return ", ".join(f"{head.name} {int(value)}" for head, value in zip(heads, act, strict=True))

    def answer_fields(view: Any, masks: Masks) -> dict[str, Any]:
        legal = {head.name: _legal(mask) for head, mask in zip(heads, masks, strict=True)}
        return legal | {CONFIDENCE: list(CONFIDENCES)}

    def choices_text(view: Any, masks: Masks) -> str:
        return ", ".join(f"{head.name} {_ranges(_legal(mask))}" for head, mask in zip(heads, masks, strict=True))

    def prompt_variables(settings: Any, view: Any, history: History) -> dict[str, str]:
        seat = getattr(view, "seat", None)
        own = None if seat is None else int(seat)
        speakers = ["You" if entry["seat"] == own else f"Seat {entry['seat']}" for entry in history]
        lines = [f"{who}: {act_text(entry['act'])}" for who, entry in zip(speakers, history, strict=True)]
        return {
            "rules": rules,
            "position": position_text(view),
            "keys": ", ".join([*(head.name for head in heads), CONFIDENCE]),
            "history_str": "\n".join(lines),
        } | _view_values(view)

    def parse(view: Any, masks: Masks, text: str) -> tuple[int, ...]:
        words = [word for word in text.replace(",", " ").split() if word not in {head.name for head in heads}]
        if len(words) != len(heads) or not all(word.isdecimal() and len(word) < 10 for word in words):
            example = " ".join(str(_legal(mask)[0]) for mask in masks)
            raise BadInput(f"Type one number per choice, as in {example!r}: {choices_text(view, masks)}.")
        act = tuple(int(word) for word in words)
        for head, mask, value in zip(heads, masks, act, strict=True):
            if value not in _legal(mask):
                raise BadInput(f"{head.name} {value} is not legal now; type {_ranges(_legal(mask))}.")
        return act

    return Words(prompt_variables, answer_fields, act_text, parse, position_text, choices_text)


def question_variables(
    words: Words, names: Container[str], settings: Any, view: Any, masks: Masks, history: History
) -> Mapping[str, str]:
    """The values for a template with these names: the game's own variables, and what every game has.

    These are `choices`, the legal values, and `position`, the view in words.
    """
    variables = words.prompt_variables(settings, view, history)
    extra = {"choices": words.choices_text(view, masks)} if "choices" in names else {}
    if "position" in names and "position" not in variables:
        extra["position"] = words.position_text(view)
    return {**variables, **extra} if extra else variables


def position_text(view: Any) -> str:
    """Every field of the view by name."""
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in _view_values(view).items()) + "."


def is_choice(name: str, values: Any) -> bool:
    """Whether an answer field is part of the act: neither the confidence nor a free text, which has a limit."""
    return name != CONFIDENCE and not hasattr(values, "limit")


def act_of_fields(heads: tuple[Head, ...], declared: Mapping[str, Any], masks: Masks, fields: Mapping[str, Any]) -> Act:
    """The act that an answer's fields stand for.

    A field named like a head is that head; an array fills, in order, the heads that no field names. The
    n-th legal value of a field is the n-th legal value of its head, so fields may hold words. A head that
    no field covers keeps its first legal value.
    """
    legal = [_legal(mask) for mask in masks]
    act = [values[0] for values in legal]
    places = {head.name: i for i, head in enumerate(heads)}
    unnamed = iter([i for name, i in places.items() if name not in declared])
    for name, values in declared.items():
        if not is_choice(name, values):
            continue
        if name in places:
            act[places[name]] = legal[places[name]][list(values).index(fields[name])]
            continue
        for place, given in zip(values, fields[name], strict=True):
            head = next(unnamed)
            act[head] = legal[head][list(place).index(given)]
    return tuple(act)


def idle_fields(
    heads: tuple[Head, ...], matters: Matters, declared: Mapping[str, Any], masks: Masks
) -> dict[Any, list[str]]:
    """By value of the first field: the fields that do not matter then, such as the counts of AGREE.

    Empty unless the first field is the first head.
    """
    first, places = next(iter(declared), ""), {head.name: i for i, head in enumerate(heads)}
    if first != heads[0].name:
        return {}
    unnamed = iter([i for name, i in places.items() if name not in declared])
    covered = {
        name: [places[name]] if name in places else [next(unnamed) for _ in values]
        for name, values in declared.items()
        if is_choice(name, values)
    }
    found = {}
    for value, act in zip(declared[first], _legal(masks[0]), strict=True):
        idle = [name for name, filled in covered.items() if not any(matters[act, head] for head in filled)]
        if idle:
            found[value] = idle
    return found


def fields_of_act(heads: tuple[Head, ...], declared: Mapping[str, Any], masks: Masks, act: Act) -> dict[str, Any]:
    """The answer's fields that stand for a legal act, without confidence and free text: `act_of_fields` backwards."""
    legal = [_legal(mask) for mask in masks]
    ranks = [values.index(value) for values, value in zip(legal, act, strict=True)]
    places = {head.name: i for i, head in enumerate(heads)}
    unnamed = iter([i for name, i in places.items() if name not in declared])
    return {
        name: values[ranks[places[name]]] if name in places else [place[ranks[next(unnamed)]] for place in values]
        for name, values in declared.items()
        if is_choice(name, values)
    }


def _legal(mask: Any) -> list[int]:
    values: list[int] = np.flatnonzero(np.asarray(mask)).tolist()
    return values


def _ranges(values: list[int]) -> str:
    """`0 to 4`, or the values themselves where they have gaps."""
    if len(values) > 2 and values[-1] - values[0] == len(values) - 1:
        return f"{values[0]} to {values[-1]}"
    return " or ".join(map(str, values))


def _view_values(view: Any) -> dict[str, str]:
    fields = view._asdict() if hasattr(view, "_asdict") else {"view": view}
    return {name: " ".join(_number(x) for x in np.ravel(_stacked(value))) for name, value in fields.items()}


def _stacked(value: Any) -> Any:
    return np.concatenate([np.ravel(_stacked(x)) for x in value]) if isinstance(value, tuple) and value else value


def _number(x: Any) -> str:
    return "yes" if x is True or x is np.True_ else "no" if x is False or x is np.False_ else f"{float(x):g}"


GENERIC = generic_words(())  # stands for `generic_words(heads)` until the heads are known
