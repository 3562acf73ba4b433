"""The game in words: prompt variables, answer fields, acts as text, and what people type."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from kibitz.core.errors import BadInput
from kibitz.games.deal_or_no_deal.rules import (
    ACT_NAMES,
    AGREE,
    DISAGREE,
    END,
    INSIST,
    ITEM_NAMES,
    PROPOSE,
    SILENT,
)

CONFIDENCES = tuple(tenth / 10 for tenth in range(11))


def csv(items: Any) -> str:
    return ",".join(str(int(x)) for x in items)


def plural(number: int, name: str) -> str:
    return f"{number} {name}" if number == 1 else f"{number} {name}s"


def share(items: Any) -> str:
    """`1 book and 2 hats`, or `nothing`."""
    parts = [plural(int(n), name) for n, name in zip(items, ITEM_NAMES, strict=True) if n]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts) or "nothing"


def called(event: Mapping[str, Any]) -> tuple[str, str]:
    """The players' names in sentences, with their seats if the names are equal."""
    names = [_name(player) for player in event.get("players", ())]
    if len(names) != 2:
        return "seat 0", "seat 1"
    one, other = names
    return (f"{one} (seat 0)", f"{other} (seat 1)") if one == other else (one, other)


def _name(player: str) -> str:
    """`policy:runs/first-try` becomes `policy first-try`, `llm:auto` `model auto`, and `human` `the person`."""
    kind, _, rest = player.partition(":")
    if kind == "human":
        return "the person"
    kind = "model" if kind == "llm" else kind
    return f"{kind} {rest.rstrip('/').rsplit('/', 1)[-1]}" if rest else kind


def sentence(name: str) -> str:
    return name[:1].upper() + name[1:]


def act_text(act: Any) -> str:
    """An act in the first person, as its seat would say it."""
    act_type, *kept = (int(x) for x in act)
    if act_type in (AGREE, DISAGREE):
        return ACT_NAMES[act_type]
    verb = "select" if act_type == END else "keep"
    return f"{ACT_NAMES[act_type]}: I {verb} {share(kept)}"


def history_line(entry: Mapping[str, Any], seat: int) -> str:
    """One past act, from a seat's point of view."""
    who = "You" if entry["seat"] == seat else "Partner"
    return f"{who}: {act_text(entry['act'])}"


def _brief(entry: Mapping[str, Any], view: Any) -> str:
    """`me1240`: this seat's act 1 (INSIST) claims 2, 4 and 0. `it0220`: the partner's act 0 leaves it 2, 2 and 0."""
    act_type, *kept = entry["act"]
    own = entry["seat"] == int(view.seat)
    shares = kept if own else [int(count) - number for count, number in zip(view.counts, kept, strict=True)]
    return ("me" if own else "it") + "".join(map(str, [act_type, *(shares if act_type in (PROPOSE, INSIST) else ())]))


def prompt_variables(settings: Any, view: Any, history: list[Mapping[str, Any]]) -> dict[str, str]:
    """Prompt variables, all strings; they contain only what the view contains."""
    act = int(view.other_act)
    legal = [name for kind, name in enumerate(ACT_NAMES) if kind != AGREE or act in (0, 1)]
    revealed = bool(np.any([int(x) for x in view.other_utilities]))
    return {
        "counts_csv": csv(view.counts),
        "my_utils_csv": csv(view.my_utilities),
        "last_partner_act_token": ACT_NAMES[DISAGREE] if act == SILENT else ACT_NAMES[act],
        "last_offer_csv": csv(view.offer_for_me),
        "turns": str(int(view.turns_left)),
        "p": csv(view.other_utilities) if revealed else "unknown",
        "history_str": "\n".join(history_line(entry, int(view.seat)) for entry in history),
        "partner_has_spoken": "yes" if act != SILENT else "no",
        "dialogue": "\n".join(_brief(entry, view) for entry in history),
        "legal_acts": ", ".join(f"{ACT_NAMES.index(name)} {name}" for name in legal),
        "oA_max_csv": csv(view.counts),
    }


def answer_fields(view: Any, masks: Any) -> dict[str, Any]:
    """The answer's fields with their legal values; a list of lists is an array field."""
    acts, *counts = (np.flatnonzero(np.asarray(mask)).tolist() for mask in masks)
    return {"act_type": acts, "oA": counts, "confidence": list(CONFIDENCES)}


def parse(view: Any, masks: Any, text: str) -> tuple[int, int, int, int]:
    """The act that a person typed: `propose 1 2 0`, `agree`, `p 1,2,0`. Names may be abbreviated."""
    words = re.findall(r"[a-z]+|-?\d+(?:\.\d+)?", text.lower())
    if not words:
        raise BadInput(f"Type one of {choices_text(view, masks)}.")
    names = [name for name in ACT_NAMES if name.lower().startswith(words[0])]
    if words[0].isdigit() and int(words[0]) < len(ACT_NAMES):
        names = [ACT_NAMES[int(words[0])]]
    if len(names) != 1:
        raise BadInput(f"{words[0]!r} is not an act; type one of {choices_text(view, masks)}.")
    act_type = ACT_NAMES.index(names[0])
    if not masks[0][act_type]:
        raise BadInput(f"{names[0]} is illegal now; type one of {choices_text(view, masks)}.")
    if act_type in (AGREE, DISAGREE):
        if len(words) > 1:
            raise BadInput(f"{names[0]} takes no numbers; type just {names[0].lower()!r}.")
        return act_type, 0, 0, 0
    counts = [int(x) for x in view.counts]
    if len(words) != 4 or not all(re.fullmatch(r"-?\d+", word) for word in words[1:]):
        raise BadInput(
            f"{names[0]} needs three numbers, what you keep of {share(counts)}, as in "
            f"'{names[0].lower()} {' '.join(map(str, counts))}'."
        )
    kept = [int(word) for word in words[1:]]
    for number, count, name in zip(kept, counts, ITEM_NAMES, strict=True):
        if not 0 <= number <= count:
            raise BadInput(f"You cannot keep {plural(number, name)}; the pool has {count}, so 0 to {count}.")
    return act_type, kept[0], kept[1], kept[2]


def position_text(view: Any) -> str:
    """The position in two sentences, for a person in the seat."""
    kinds = zip(view.counts, ITEM_NAMES, view.my_utilities, strict=True)
    pool = ", ".join(f"{plural(int(n), name)} (worth {int(points)} each to you)" for n, name, points in kinds)
    points = sum(int(n) * int(u) for n, u in zip(view.offer_for_me, view.my_utilities, strict=True))
    left = f"{share(view.offer_for_me)}, worth {plural(points, 'point')}"
    said = {
        SILENT: "The other side has not spoken.",
        PROPOSE: f"The other side's offer leaves you {left}.",
        INSIST: f"The other side insists on its offer, which leaves you {left}.",
        AGREE: f"The other side agrees: you get {left}.",
        DISAGREE: "The other side disagrees.",
        END: f"The other side ends the talk with a selection that leaves you {left}.",
    }[int(view.other_act)]
    return f"On the table: {pool}. {said} Turns left: {int(view.turns_left)}."


def choices_text(view: Any, masks: Any) -> str:
    """What a person may type now."""
    ranges = " ".join(f"0..{int(count)}" for count in view.counts)
    shown = []
    for act_type in np.flatnonzero(np.asarray(masks[0])):
        name = ACT_NAMES[int(act_type)].lower()
        shown.append(name if act_type in (AGREE, DISAGREE) else f"{name} {ranges}")
    return ", ".join(shown)
