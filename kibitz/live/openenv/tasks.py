"""Tasks as OpenEnv lists them: a game's packs are splits, their matches are tasks.

A game without packs, or without an environment that plays them, has one split, `default`, whose tasks are seeds.
`reset(split=.., index=..)` plays a task.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kibitz.core.errors import BadInput, NotFound
from kibitz.core.options import operator_options
from kibitz.core.system.seed import LAST_SEED
from kibitz.games import get_environment, get_pack, pack_names

MAX_SEEDS = 1_000  # tasks of a game without packs
PACK = "eval_pack_id"
EPISODE_ID = r"^[ -~]{1,255}$"  # one that a caller may give


def splits(game: str) -> tuple[str, ...]:
    """Names of the shipped packs. Elsewhere a pack may also be a user's own file; here a caller cannot name one."""
    return _playable_packs(game) or ("default",)


def _playable_packs(game: str) -> tuple[str, ...]:
    """None where the environment cannot begin a match of a pack, as the generic one cannot."""
    return pack_names(game) if hasattr(get_environment(game), "task_options") else ()


def count(game: str, split: str) -> int:
    known = splits(game)
    if split not in known:
        raise BadInput(f"{game} has no split {split!r:.80}; it has {', '.join(known)}.")
    return get_pack(game, split).matches if _playable_packs(game) else MAX_SEEDS


def task(game: str, split: str, index: int) -> dict[str, Any]:
    """One task; `options` are what `reset` needs to play it."""
    number = count(game, split)
    if not 0 <= index < number:
        raise NotFound(f"The split {split!r} has tasks 0 to {number - 1}, not {index}.")
    own = getattr(get_environment(game), "task_options", None)
    options = own(split, index) if own is not None else {"seed": index}
    return {"id": f"{split}-{index}", "split": split, "index": index, "options": options}


def tasks(game: str, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
    """Tasks `start:stop`, as a slice."""
    return [task(game, split, index) for index in range(*slice(start, stop).indices(count(game, split)))]


def read_options(game: str, given: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """The options of the game that a caller sent to `reset`, and the episode's id, if it gave one.

    Options may be at the top level or under `options`; null counts as omitted.
    """
    values = {name: value for name, value in given.items() if value is not None}
    inner = values.pop("options", {})
    if not isinstance(inner, Mapping):
        raise BadInput(f"options is {inner!r:.80}; it should be an object.")
    known: Any = getattr(get_environment(game), "options", None)
    if known is not None:  # also those that the top level overrides
        known.read({key: value for key, value in inner.items() if key not in ("split", "index")}, "option of reset")
    episode_id = values.pop("episode_id", None)
    if episode_id is not None and not (isinstance(episode_id, str) and re.fullmatch(EPISODE_ID, episode_id)):
        raise BadInput("episode_id should be 1 to 255 printable ASCII characters.")
    for seed in (inner.get("seed"), values.get("seed")):
        if isinstance(seed, int) and seed > LAST_SEED:
            raise BadInput(f"seed is {seed}; it should be at most {LAST_SEED}.")
    options = {**inner, **values}
    if "split" in options or "index" in options:
        split, index = options.pop("split", "default"), options.pop("index", 0)
        if not isinstance(split, str) or type(index) is not int:
            raise BadInput("A task is a split's name and an index, as in split='default', index=0.")
        options = {**task(game, split, index)["options"], **options}
    for name in () if known is None else operator_options(known):
        if name in options and options[name] != known.model_fields[name].default:
            raise BadInput(f"Only the operator of this server may set the option {name!r}; omit it.")
    if PACK in options and options[PACK] not in splits(game):
        raise BadInput(f"{game} has no pack {options[PACK]!r:.80}; it has {', '.join(splits(game))}.")
    return options, episode_id
