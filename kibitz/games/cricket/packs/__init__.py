"""Packs of cricket scenarios: the shipped YAML files, or a user's own.

    packs() -> ("default", "powerplay", ...)                 the shipped names
    pack(name) -> kibitz.core.play.packs.Pack                a shipped pack, or the path of a YAML file
    scenario(name, index) -> (options, settings, state)      match `index` of a pack

`pack(name).matches` is the number of matches (tasks), and `index` counts them from 0. Matches 2 i and 2 i + 1
are the same scenario with the sides swapped; the captain under evaluation sits in seat 0 in both. `options` is a
`CricketOptions`, `settings` its arrays and `state` the first position, for `play_episode(..., state=state)`.
`pack(name).seed(index)` is the seed of the match's luck, the same for both matches of a pair.

A file is a mapping with `about` (a sentence) and `scenarios`, a list of entries:

    - {seed: 7, count: 20, overs: 5, era: 2023+, innings: 2, score: 21, wickets: 3, legal: 12, target: 58, side: bat}

An entry makes `count` scenarios, with successive seeds from `seed`. The seed determines sides, levels and luck;
`legal` is the number of legal balls bowled; `side` is what seat 0 does in the first of the two matches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import yaml
from pydantic import Field, model_validator

from kibitz.core.chance import episode_luck, seed_key, uniforms
from kibitz.core.errors import BadInput, NotFound
from kibitz.core.options import Options, load_yaml
from kibitz.core.play.packs import Pack, Scenario
from kibitz.games.cricket.chances.regret import REGRET
from kibitz.games.cricket.laws.start import NEW_UNIFORMS, new
from kibitz.games.cricket.laws.state import State
from kibitz.games.cricket.laws.step import Settings
from kibitz.games.cricket.model.delivery import NO_PLAYER
from kibitz.games.cricket.options import CricketOptions
from kibitz.games.cricket.teams.ratings import VARIANTS

FOLDER = Path(__file__).parent
MAX_SCENARIOS = 10_000  # per file


class Entry(Options):
    """A position and its seeds."""

    seed: int = Field(ge=0, lt=2**32, description="of sides, levels and luck")
    count: int = Field(1, ge=1, le=MAX_SCENARIOS, description="number of successive seeds")
    overs: int = Field(5, ge=1, le=20)
    era: Literal["pre2018", "2018-2022", "2023+"] = "2023+"
    innings: int = Field(1, ge=1, le=2)
    score: int = Field(0, ge=0, le=500)
    wickets: int = Field(0, ge=0, le=9)
    legal: int = Field(0, ge=0, le=119, description="legal balls bowled in this innings")
    target: int | None = Field(None, ge=1, le=600, description="of a second innings")
    side: Literal["bat", "bowl"] = Field("bat", description="what seat 0 does in the first of the two matches")

    @model_validator(mode="after")
    def _check_position(self) -> Entry:
        if self.legal >= 6 * self.overs:
            raise ValueError(
                f"legal is {self.legal}, but {self.overs} overs have {6 * self.overs} balls; leave at least one."
            )
        if self.innings == 1 and self.target is not None:
            raise ValueError("target belongs to innings 2; omit it in a first innings.")
        if self.innings == 2 and self.target is None:
            raise ValueError("a second innings needs a target; add one.")
        if self.target is not None and self.score >= self.target:
            raise ValueError(f"score is {self.score} and the target is {self.target}; the score must be lower.")
        if self.wickets > self.legal:
            raise ValueError(f"wickets is {self.wickets} after {self.legal} legal balls; it cannot exceed them.")
        return self

    def options(self) -> CricketOptions:
        return CricketOptions(max_overs=self.overs, era=self.era)

    @property
    def adjustable(self) -> tuple[str, ...]:
        """Options that the position allows to change; a record names its model."""
        from_first_ball = self.innings == 1 and self.legal == 0 and self.score == 0
        return ("model", "max_overs", "era") if from_first_ball else ("model",)


class PackFile(Options):
    about: str = Field(min_length=1, max_length=200)
    scenarios: list[Any] = Field(min_length=1)


def packs() -> tuple[str, ...]:
    """The names of the shipped packs: `default` first, the others by name."""
    names = sorted(path.stem for path in FOLDER.glob("*.yaml"))
    return ("default", *(name for name in names if name != "default"))


def pack(name: str) -> Pack:
    """A shipped pack, or the pack in a YAML file."""
    if name in packs():
        return _read(FOLDER / f"{name}.yaml", name)
    if not name.endswith((".yaml", ".yml")):
        raise BadInput(f"There is no pack {name!r}; choose one of {', '.join(packs())}, or name a YAML file.")
    return _read(Path(name), name)


def scenario(name: str, index: int) -> Scenario:
    """Match `index` of a pack: options, settings and the first position, with the captain in seat 0."""
    return pack(name).scenario(index)


def _read(path: Path, name: str) -> Pack:
    try:
        modified = path.stat().st_mtime_ns
    except OSError as error:
        raise BadInput(f"The pack {str(path)!r} cannot be read ({error.strerror}); give a YAML file.") from None
    return _pack(path, name, modified)


@lru_cache(maxsize=16)
def _pack(path: Path, name: str, modified: int) -> Pack:
    """Cached until the file changes."""
    about, entries = read(path)
    # the first seeds of all entries, then the second: any prefix of a pack covers every position
    rounds = range(max(entry.count for entry in entries))
    single = [(entry, entry.seed + k) for k in rounds for entry in entries if k < entry.count]

    def find(index: int) -> tuple[Entry, int]:
        if not 0 <= index < 2 * len(single):
            raise BadInput(f"The pack {name!r} has matches 0 to {2 * len(single) - 1}, not {index}.")
        return single[index // 2]

    def begin(entry: Entry, seed: int, swapped: bool) -> Scenario:
        settings = _settings(entry.options())
        state = position(settings, entry, seed)
        return Scenario(entry.options(), settings, mirrored(state) if swapped else state, entry.adjustable)

    def fresh(seed: int, fits: Callable[[Any, tuple[str, ...]], bool] = lambda options, adjustable: True) -> Scenario:
        fitting = [entry for entry in entries if fits(entry.options(), entry.adjustable)]
        if not fitting:
            raise NotFound(f"The pack {name!r} has no match with these options.")
        swapped, number = divmod(seed % (2 * len(fitting)), len(fitting))
        return begin(fitting[number], seed, bool(swapped))

    def match(index: int) -> Scenario:
        return begin(*find(index), index % 2 == 1)

    return Pack(name, about, len(single), match, lambda index: find(index)[1], REGRET, fresh)


def read(path: Path) -> tuple[str, list[Entry]]:
    """The entries of a file. BadInput names the file and the entry."""
    try:
        loaded = load_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        raise BadInput(f"The pack {str(path)!r} cannot be read; give a YAML file.") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise BadInput(
            f"The pack {str(path)!r}{f', line {mark.line + 1}' if mark else ''} is not valid YAML."
        ) from None
    if not isinstance(loaded, dict):
        raise BadInput(f"The pack {str(path)!r} must be a mapping with 'about' and 'scenarios'.")
    file = PackFile.read(loaded, f"key of the pack {str(path)!r}")
    entries = [_entry(path, number, values) for number, values in enumerate(file.scenarios, 1)]
    if sum(entry.count for entry in entries) > MAX_SCENARIOS:
        raise BadInput(f"The pack {str(path)!r} has more than {MAX_SCENARIOS:,} scenarios; split it.")
    return file.about, entries


def _entry(path: Path, number: int, values: Any) -> Entry:
    where = f"Entry {number} of the pack {str(path)!r}"
    if not isinstance(values, dict):
        raise BadInput(f"{where} is {values!r}; it must be a mapping such as {{seed: 1, overs: 5}}.")
    try:
        return Entry.read(values, "key")
    except BadInput as wrong:
        text = str(wrong)
        raise BadInput(f"{where}: {text[0].lower()}{text[1:]}") from None


@cache
def _fresh() -> Any:
    def fresh(settings: Settings, key: Any) -> State:
        return new(settings, uniforms(episode_luck(key, 0), 0, NEW_UNIFORMS))

    return jax.jit(fresh)


@lru_cache(maxsize=64)
def _settings(options: CricketOptions) -> Settings:
    return options.settings()


def position(settings: Settings, entry: Entry, seed: int) -> State:
    """The entry's position with the sides and levels of the seed; the batters come in order."""
    state: State = jax.device_get(_fresh()(settings, seed_key(seed)))
    batting = 0 if entry.side == "bat" else 1
    started = -(-entry.legal // 6)  # overs
    whole = entry.legal // 6
    order = jax.device_get(settings.sides.orders)[int(state.elevens[1 - batting]) * VARIANTS * 20 :][:20]
    counts = [sum(int(order[i]) == player for i in range(started)) for player in range(11)]
    chase = entry.innings == 2
    stay = min(entry.legal // (entry.wickets + 1), 60)
    changed: dict[str, Any] = {
        "batting": batting,
        "second": chase,
        "first": (entry.target or 1) - 1,
        "first_legal": 6 * entry.overs if chase else 0,
        "first_wickets": 6 if chase else 0,
        "score": entry.score,
        "wickets": entry.wickets,
        "legal": entry.legal,
        "striker": entry.wickets + 1 if entry.wickets else 0,
        "other": entry.wickets // 2 if entry.wickets else 1,
        "faced": (stay // 2, stay),
        "batted": (1 << (entry.wickets + 2)) - 1,
        "bowler": int(order[whole]) if entry.legal % 6 else NO_PLAYER,
        "last_bowler": int(order[whole - 1]) if whole else NO_PLAYER,
        "overs": (
            sum(n << (4 * i) for i, n in enumerate(counts[:6])),
            sum(n << (4 * i) for i, n in enumerate(counts[6:])),
        ),
        "deliveries": (6 * entry.overs if chase else 0) + entry.legal,
    }
    return _typed(state, changed)


def _typed(state: State, changed: dict[str, Any]) -> State:
    """Stays on the host: a pack has a thousand positions, and moving each number to a device would take seconds."""
    parts = {
        name: jax.tree.map(lambda old, new: np.asarray(new, old.dtype), getattr(state, name), value)
        for name, value in changed.items()
    }
    return state._replace(**parts)


def mirrored(state: State) -> State:
    """The same position with the seats exchanged."""
    other: Any = np.asarray(1 - state.batting, np.int32)
    return state._replace(elevens=state.elevens[::-1], batting=other, super_bowlers=state.super_bowlers[::-1])
