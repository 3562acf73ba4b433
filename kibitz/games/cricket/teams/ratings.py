"""Sides of eleven, invented from a seed or read from YAML, and the tables that the ball model reads.

Ratings run from 0 to 100: 50 is an ordinary specialist (a top-seven batter, a regular bowler) and ten
points are one standard deviation of the spread measured among professionals.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from string import ascii_uppercase
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import yaml
from jax import Array
from numpy.typing import NDArray

from kibitz.core.errors import BadInput
from kibitz.games.cricket.model.delivery import FIRST_SPIN, TYPES, phase_of
from kibitz.games.cricket.model.tactics import outcome_row
from kibitz.games.cricket.teams.roster import Eleven, Player, team_id

Floats = NDArray[np.float64]
BATTING = ("strike", "power", "safety", "versus_spin")
BOWLING = ("economy", "threat", "control")
DRAWN_TOWNS, DRAWN_BEASTS = 16, 10  # of the names; more would change every later draw, and so every side
VARIANTS = 8  # bowling orders prepared for each side


@cache
def names() -> dict[str, list[str]]:
    """Invented names of players and sides."""
    loaded: dict[str, list[str]] = yaml.safe_load((Path(__file__).parent / "names.yaml").read_text(encoding="utf-8"))
    return loaded


class Sides(NamedTuple):
    """Sides as tables. Rows of `batters` are [eleven, player, bowling type], rows of `bowlers` [.., phase]."""

    batters: Array  # f32[elevens * 11 * 6 * outcomes]
    bowlers: Array  # f32[elevens * 11 * 3 * outcomes]
    types: Array  # i32[elevens * 11]
    keeper: Array  # i32[elevens]
    merit: Array  # f32[elevens * 11 * 3], runs per ball that a bowler saves, by phase
    bat_merit: Array  # f32[elevens * 11], runs per ball that a batter adds, wickets counted in runs
    hitters: Array  # i32[elevens * 2], the openers of a super over
    closers: Array  # i32[elevens * 2], the first and second choice to bowl a super over
    orders: Array  # i32[elevens * VARIANTS * 20], see `bowling_orders`
    team_ids: Array  # i32[elevens], the keys of `roster`

    @property
    def size(self) -> int:
        return int(self.keeper.shape[0])


def read(path: str | Path) -> tuple[Eleven, Eleven]:
    """Reads two sides from a YAML file with a list `elevens`."""
    file = Path(path)
    try:
        loaded = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        raise BadInput(f"The elevens file {str(file)!r} cannot be read; give the path of a YAML file.") from None
    except yaml.YAMLError:
        raise BadInput(f"The elevens file {str(file)!r} is not valid YAML.") from None
    if not isinstance(loaded, dict) or not isinstance(loaded.get("elevens"), list) or len(loaded["elevens"]) != 2:
        raise BadInput(f"{str(file)!r} needs a list 'elevens' of two sides, each with 'name' and 'players'.")
    sides = []
    for given in loaded["elevens"]:
        if not isinstance(given, dict) or not isinstance(given.get("players"), list):
            raise BadInput(f"Each side in {str(file)!r} needs a 'name' and a list of 'players'.")
        sides.append(Eleven.read({**given, "players": tuple(given["players"])}, where="entry of an eleven"))
    return sides[0], sides[1]


def write(sides: tuple[Eleven, ...]) -> str:
    """The sides as YAML that `read` accepts."""
    plain = [{"name": side.name, "players": [player.model_dump() for player in side.players]} for side in sides]
    return yaml.safe_dump({"elevens": plain}, sort_keys=False)


def invent(seed: int, count: int, fitted: dict[str, Any]) -> list[Eleven]:
    """Draws sides from the measured spread. A pool of eight or more is centred, so that it plays like the league."""
    rng = np.random.default_rng([seed, 0xC41C])
    called = names()
    first, last, towns, beasts = called["first"], called["last"], called["town"], called["beast"]
    mean = np.array([fitted["positions"][name] for name in BATTING[:3]])  # [3, 11]
    z = rng.standard_normal((count, 11, 7))
    if count >= 8:
        z = (z - z.mean(0)) / z.std(0)
    z = np.clip(z, -2.6, 2.6)
    sides = []
    player_name = _unused(len(first) * len(last))
    town_name, beast_name = _unused(len(towns)), _unused(len(beasts))  # so two sides of a fixture share no word
    for team in range(count):
        pick = rng.choice(len(first) * len(last), 11, replace=False)
        types, keeper, regular = _roles(rng)
        players = []
        for i in range(11):
            number, earlier = player_name(int(pick[i]))
            initial = f"{ascii_uppercase[earlier - 1]}. " if earlier else ""
            bat = [*(mean[:, i] + 10 * z[team, i, :3]), 50 + 10 * z[team, i, 3]]
            ball = (50, 50, 50) if i in regular else (25, 40, 40)
            ratings = [*bat, *(m + 10 * x for m, x in zip(ball, z[team, i, 4:], strict=True))]
            given: dict[str, Any] = {
                "name": f"{first[number % len(first)]} {initial}{last[number // len(first)]}",
                "hand": "left" if rng.random() < 0.33 else "right",
                "bowls": types[i],
                "keeper": i == keeper,
            }
            given |= {n: int(np.clip(round(x), 0, 100)) for n, x in zip(BATTING + BOWLING, ratings, strict=True)}
            players.append(Player(**given))
        town, earlier = town_name(int(rng.integers(DRAWN_TOWNS)))
        beast, _ = beast_name(int(rng.integers(DRAWN_BEASTS)))
        called_side = f"{towns[town]} {beasts[beast]}" + (f" {earlier + 1}" if earlier else "")
        sides.append(Eleven(name=called_side, players=tuple(players)))
    return sides


def _unused(size: int) -> Callable[[int], tuple[int, int]]:
    """Turns draws from `size` numbers into distinct ones: the next free number, and how often all were used up before.

    So no two players of a pool share a name, whichever sides meet, and the draws themselves stay the same.
    """
    used: set[int] = set()
    rounds = 0

    def take(drawn: int) -> tuple[int, int]:
        nonlocal rounds
        if len(used) == size:
            used.clear()
            rounds += 1
        while drawn in used:
            drawn = (drawn + 1) % size
        used.add(drawn)
        return drawn, rounds

    return take


def _roles(rng: np.random.Generator) -> tuple[list[str], int, set[int]]:
    """Bowling types, keeper and regular bowlers: numbers seven to eleven and one all-rounder above them."""
    allrounder = int(rng.choice([4, 5]))
    keeper = int(rng.choice([i for i in range(6) if i != allrounder]))
    regular = {allrounder, 6, 7, 8, 9, 10}
    pace, spin = ["pace_right"] * 3 + ["pace_left"], ["spin_off", "spin_leg", "spin_left_orth"]
    spin_share = [0.4, 0.35, 0.25]
    kinds = []
    for i in range(11):
        # numbers 7 and 8 are often spinning all-rounders, 9 to 11 often fast bowlers
        chance = {6: 0.6, 7: 0.4, 8: 0.35, 9: 0.25, 10: 0.2}.get(i, 0.5)
        if rng.random() < chance:
            kind = str(rng.choice(spin, p=spin_share))
            kinds.append("spin_left_wrist" if kind == "spin_left_orth" and rng.random() < 0.12 else kind)
        else:
            kinds.append(str(rng.choice(pace)))
    return kinds, keeper, regular


def sides(elevens: list[Eleven], fitted: dict[str, Any], orders: NDArray[np.int32]) -> Sides:
    """The tables that the ball model reads."""
    skill, types = fitted["skills"], np.array([[TYPES.index(p.bowls) for p in e.players] for e in elevens])
    rating = np.array([[[getattr(p, n) for n in BATTING + BOWLING] for p in e.players] for e in elevens])
    z = (rating - 50) / 10.0  # [eleven, player, 7]
    left = np.array([[p.hand == "left" for p in e.players] for e in elevens]).astype(int)
    directions = np.stack([outcome_row(skill[name]) for name in BATTING[:3] + BOWLING])
    level = np.asarray(fitted["level"])
    bat = z[..., :3] @ directions[:3]  # [eleven, player, outcome]
    spin = np.arange(len(TYPES)) >= FIRST_SPIN
    # a batter who is better against spin is worse against pace by as much
    versus_spin = z[..., 3, None] * skill["versus_spin_sd"] * np.where(spin, 0.5, -0.5)
    match_up = np.asarray(fitted["match_ups"])[:, left].transpose(1, 2, 0)  # [eleven, player, type]
    batters = bat[:, :, None] + (versus_spin + match_up)[..., None] * level
    by_type = np.asarray(fitted["types"])[:, types].transpose(1, 2, 0, 3)  # [eleven, player, phase, outcome]
    bowlers = (z[..., 4:] @ directions[3:])[:, :, None] + by_type
    typical = np.array([np.mean([fitted["eras"]["2023+"]["share"][o] for o in range(20) if phase_of(o) == p], 0)
                        for p in range(3)])  # fmt: skip
    merit = -np.stack([value(typical[p], bowlers[:, :, p]) for p in range(3)], axis=-1)
    bat_merit = value(typical[1], bat)
    hitters = np.argsort(-value(typical[2], bat), axis=1)[:, :2]
    keepers = np.array([e.keeper for e in elevens])
    at_the_death = merit[..., 2].copy()
    at_the_death[np.arange(len(elevens)), keepers] = -np.inf
    closers = np.argsort(-at_the_death, axis=1)[:, :2]
    return Sides(
        batters=jnp.asarray(batters.reshape(-1), jnp.float32),
        bowlers=jnp.asarray(bowlers.reshape(-1), jnp.float32),
        types=jnp.asarray(types.reshape(-1), jnp.int32),
        keeper=jnp.asarray(keepers, jnp.int32),
        merit=jnp.asarray(merit.reshape(-1), jnp.float32),
        bat_merit=jnp.asarray(bat_merit.reshape(-1), jnp.float32),
        hitters=jnp.asarray(np.sort(hitters, axis=1).reshape(-1), jnp.int32),
        closers=jnp.asarray(closers.reshape(-1), jnp.int32),
        orders=jnp.asarray(orders.reshape(-1), jnp.int32),
        team_ids=jnp.asarray([team_id(e) for e in elevens], jnp.int32),
    )


WICKET_RUNS = 6.0  # the cost of a wicket around the middle of an innings


def value(shares: Floats, effect: Floats) -> Floats:
    """Runs per ball that an effect adds to typical shares, a wicket counted as WICKET_RUNS."""
    worth = np.array([0, 1, 2, 3, 4, 6, -WICKET_RUNS, 1.1, 2.3, 1.4])
    moved = shares * np.exp(effect)
    moved = moved / moved.sum(-1, keepdims=True)
    gained: Floats = moved @ worth - shares @ worth
    return gained
