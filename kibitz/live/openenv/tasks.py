"""Tasks as OpenEnv lists them: a game's packs are splits, their matches are tasks.

A game without packs has one split, `default`, of seeds. `reset(split=.., index=..)` plays a task.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kibitz.core.errors import BadInput, NotFound
from kibitz.games import get_environment, get_pack, pack_names
from kibitz.live.http.numbers import EXACT

SEEDS = 1_000  # tasks of a game without packs
PACK = "eval_pack_id"
EPISODE = r"^[ -~]{1,255}$"  # a name that a caller gives
# a rule's name, or a kind and a plain name: never a path, and nobody sits at this terminal
PLAYER = re.compile(r"(?!human$)[a-z_]{1,40}(:[A-Za-z0-9][A-Za-z0-9_.-]{0,80})?")


def splits(game: str) -> tuple[str, ...]:
    """Names of the shipped packs. A pack may also be a person's own file: never one that a caller names."""
    return pack_names(game) or ("default",)


def count(game: str, split: str) -> int:
    known = splits(game)
    if split not in known:
        raise BadInput(f"{game} has no split {split!r:.80}; it has {', '.join(known)}.")
    return get_pack(game, split).matches if pack_names(game) else SEEDS


def task(game: str, split: str, index: int) -> dict[str, Any]:
    """What `reset` needs to play it is in `options`."""
    most = count(game, split)
    if not 0 <= index < most:
        raise NotFound(f"The split {split!r} has tasks 0 to {most - 1}, not {index}.")
    own = getattr(get_environment(game), "task_options", None)
    options = own(split, index) if own is not None else {"seed": index}
    return {"id": f"{split}-{index}", "split": split, "index": index, "options": options}


def tasks(game: str, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
    """From `start` to before `stop`, as a slice is read."""
    return [task(game, split, index) for index in range(*slice(start, stop).indices(count(game, split)))]


def checked_options(game: str, given: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """What a caller sent to `reset` as options of the game, and the name it gave the episode.

    Options may stand at the top or under `options`; null means not given.
    """
    values = {name: value for name, value in given.items() if value is not None}
    inner = values.pop("options", {})
    if not isinstance(inner, Mapping):
        raise BadInput(f"options is {inner!r:.80}; it should be an object.")
    known = getattr(get_environment(game), "options", None)
    if known is not None:  # also what the names beside it will overrule
        known.read({key: value for key, value in inner.items() if key not in ("split", "index")}, "option of reset")
    name = values.pop("episode_id", None)
    if name is not None and not (isinstance(name, str) and re.fullmatch(EPISODE, name)):
        raise BadInput("episode_id should be 1 to 255 printable ASCII characters.")
    for seed in (inner.get("seed"), values.get("seed")):
        if isinstance(seed, int) and seed >= EXACT:
            raise BadInput(f"seed is {seed}; it should be below {EXACT}, as far as every JSON reader can count.")
    options = {**inner, **values}
    if "split" in options or "index" in options:
        split, index = options.pop("split", "default"), options.pop("index", 0)
        if not isinstance(split, str) or type(index) is not int:
            raise BadInput("A task is a split's name and an index, as in split='default', index=0.")
        options = {**task(game, split, index)["options"], **options}
    if PACK in options and options[PACK] not in splits(game):
        raise BadInput(f"{game} has no pack {options[PACK]!r:.80}; it has {', '.join(splits(game))}.")
    for key in ("opponent", "opponent_mode"):
        if key in options and not (isinstance(options[key], str) and PLAYER.fullmatch(options[key])):
            raise BadInput(f"{key} is {options[key]!r:.80}; it should be a player's name, such as heuristic.")
    return options, name
