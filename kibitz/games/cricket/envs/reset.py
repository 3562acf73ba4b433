"""The first position of a match of `CricketEnvironment`, from the options of `reset`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from kibitz.core.bots import Bot, seated
from kibitz.core.errors import BadInput
from kibitz.core.play.packs import is_plain
from kibitz.games.cricket import packs
from kibitz.games.cricket.captains.tool_models import ResetOptions
from kibitz.games.cricket.options import CricketOptions


class Start(NamedTuple):
    settings: Any
    state: Any  # None: drawn from the seed
    seed: int
    match: int | None  # index in a pack
    about: str
    options: CricketOptions


def find_start(
    chosen: ResetOptions, given: Mapping[str, Any], fixed: CricketOptions, bot: Bot | None, seed: int
) -> Start:
    """The start for the options of `reset`. With a pack, a given seed is the number of the match."""
    if not is_plain(chosen.eval_pack_id, chosen.seed):
        return _from_pack(chosen, given, fixed, bot, seed)
    names = ("max_overs", "era", "captain_side", "random_start")
    options = fixed.changed({name: getattr(chosen, name) for name in names})
    return Start(_seated(options, bot), None, seed, None, "", options)


def _from_pack(
    chosen: ResetOptions, given: Mapping[str, Any], fixed: CricketOptions, bot: Bot | None, seed: int
) -> Start:
    """A pack fixes the position. Only a match from the first ball may change overs and era."""
    for name in ("random_start", "captain_side"):
        if getattr(chosen, name) != ResetOptions.model_fields[name].default:
            raise BadInput(f"A pack fixes how a match starts; omit {name} when eval_pack_id is given.")
    pack = packs.pack(str(chosen.eval_pack_id))
    start = pack.begin(chosen.seed, seed, {name: getattr(chosen, name) for name in given})
    options = start.options.changed({"shaping": fixed.shaping})
    which = "a fresh match" if start.match is None else f"match {start.match} of {pack.matches}"
    about = f"Pack {pack.name}, {which}."
    return Start(_seated(options, bot), start.state, start.seed, start.match, about, options)


def _seated(options: CricketOptions, bot: Bot | None) -> Any:
    settings = options.settings() if options.elevens else _settings(options)
    return seated(settings, {1: bot} if bot is not None else {})


@lru_cache(maxsize=64)
def _settings(options: CricketOptions) -> Any:
    return options.settings()
