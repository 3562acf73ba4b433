"""Matches by the thousand in one compiled program, and what came of them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kibitz.core.bots import Bot
from kibitz.core.chance import episode_luck, seed_key
from kibitz.core.xla.jit import jit_batch
from kibitz.core.xla.packing import Layout
from kibitz.games.cricket.captains.bots import CAPTAINS
from kibitz.games.cricket.fitting import csv_out as sheet
from kibitz.games.cricket.fitting.batch import batch
from kibitz.games.cricket.laws.state import State
from kibitz.games.cricket.laws.step import Settings
from kibitz.games.cricket.model.delivery import FOUR, NO_BALL, SIX
from kibitz.games.cricket.options import CricketOptions

Ints = NDArray[np.int64]
BATCH = 4096  # matches at a time
CHUNK = 48  # deliveries between two looks at whether all matches are over
COLUMNS = ("inn", "total", "wkts", "legal", "pp", "mid_", "death", "fours", "sixes", "target", "won")
POOL = 256  # invented sides that a simulation draws from


class Record(NamedTuple):
    """One delivery as the statistics see it: the moment before it, and what it brought."""

    live: Any
    supers: Any  # bool
    second: Any
    legal: Any
    wickets: Any
    striker: Any
    faced: Any  # up to 63
    bowler_type: Any
    bowler: Any
    needed: Any  # runs still needed in a chase, else 0
    free_hit: Any
    outcome: Any
    runs: Any
    how: Any
    intent: Any
    plan: Any
    field: Any


RECORD = Record(1, 1, 1, 7, 4, 4, 6, 3, 4, 10, 1, 4, 3, 3, 3, 3, 2)


def record(settings: Settings, before: State, after: State) -> Record:
    ball = after.ball
    bowling = jnp.where(before.batting == 0, before.elevens[1], before.elevens[0])
    return Record(
        live=~before.over,
        supers=before.supers > 0,
        second=before.second,
        legal=before.legal,
        wickets=before.wickets,
        striker=before.striker,
        faced=jnp.minimum(before.faced[0], 63),
        bowler_type=settings.sides.types[bowling * 11 + ball.bowler],
        bowler=ball.bowler,
        needed=jnp.where(before.second, before.first + 1 - before.score, 0),
        free_hit=before.free_hit,
        outcome=ball.outcome,
        runs=ball.runs,
        how=ball.how,
        intent=ball.intent,
        plan=ball.plan,
        field=ball.field,
    )


@lru_cache(maxsize=16)
def _programs(captains: tuple[Bot, Bot]) -> tuple[Any, Any, Any]:
    """Begin a batch; play CHUNK deliveries of it and record them; read how it stands."""
    records = _records()
    matches = batch(captains)

    @jit_batch
    def begin(settings: Settings, key: Array, first: Array) -> Any:
        lucks = jax.vmap(lambda i: episode_luck(key, first + i))(jnp.arange(BATCH))
        return matches.begin(settings, lucks)

    @jit_batch
    def play(settings: Settings, packed: Any, key: Array, turn: Array, one: Any) -> tuple[Any, Array, Any]:
        def note(before: Any, after: Any) -> Any:
            old, new = (matches.layout.unpack(packed).state for packed in (before, after))
            return records.pack(record(settings, old, new))[0]

        def many(packed: Any, t: Array) -> tuple[Any, Any]:
            u = jax.random.uniform(jax.random.fold_in(jax.random.wrap_key_data(key), t), (matches.width, BATCH))
            after = matches.turn(settings, packed, u, one)
            return after, jax.vmap(note)(packed, after)

        packed, words = jax.lax.scan(many, packed, turn + jnp.arange(CHUNK))
        return packed, jnp.all(jax.vmap(matches.layout.unpack)(packed).state.over), words

    return begin, play, jit_batch(lambda packed: jax.vmap(matches.layout.unpack)(packed).state)


def _records() -> Layout:
    return Layout(RECORD, jax.tree.map(lambda _: jnp.int32(0), RECORD))


def deliveries(
    settings: Settings, matches: int, seed: int, captains: tuple[str, str] = ("balanced", "balanced")
) -> tuple[Record, State]:
    """Every ball of so many matches: arrays [match, delivery], and the final states."""
    begin, play, read = _programs((CAPTAINS[captains[0]], CAPTAINS[captains[1]]))
    records = _records()
    key = seed_key(seed)
    parts, finals = [], []
    for part in range(-(-matches // BATCH)):
        packed = begin(settings, key, part * BATCH)
        words, turn, done = [], 0, False
        luck = episode_luck(key, 2**30 + part)
        while not done:
            packed, done, made = play(settings, packed, luck, turn, 1)
            words.append(jax.device_get(made))
            turn += CHUNK
        joined = tuple(np.concatenate([part[i] for part in words]).T for i in range(len(words[0])))
        parts.append(_unpack(records, joined))
        finals.append(jax.device_get(read(packed)))
    longest = max(part.live.shape[1] for part in parts)
    joined_parts = [jax.tree.map(lambda x: np.pad(x, ((0, 0), (0, longest - x.shape[1]))), part) for part in parts]
    table = jax.tree.map(lambda *x: np.concatenate(x)[:matches], *joined_parts)
    final = jax.tree.map(lambda *x: np.concatenate(x)[:matches], *finals)
    return table, final


def _unpack(layout: Layout, words: tuple[NDArray[np.uint32], ...]) -> Record:
    values = []
    for slot in layout.slots:
        assert slot is not None
        values.append(((words[slot.word] >> slot.shift) & ((1 << slot.bits) - 1)).astype(np.int16))
    return Record(*values)


def innings(balls: Record, final: Any, powerplay: int, overs: int) -> dict[str, Ints]:
    """A row for each innings of the match itself; `won` is whether the side that batted won."""
    in_match = (balls.live == 1) & (balls.supers == 0)
    out = []
    middle = 6 * max(overs - 5, 0) if overs >= 10 else 6 * overs - powerplay // 2
    for second in (0, 1):
        here = in_match & (balls.second == second)
        runs = np.where(here, balls.runs, 0)
        struck = balls.runs - (balls.outcome == NO_BALL)
        bat = here & ((balls.outcome <= SIX) | (balls.outcome == NO_BALL))
        early, late = balls.legal < powerplay, balls.legal >= middle
        total = runs.sum(1)
        out.append(
            {
                "inn": np.full(len(total), second + 1),
                "total": total,
                "wkts": (here & (balls.how > 0)).sum(1),
                "legal": (here & (balls.outcome != 7) & (balls.outcome != NO_BALL)).sum(1),
                "pp": (runs * early).sum(1),
                "mid_": (runs * (~early & ~late)).sum(1),
                "death": (runs * (late & ~early)).sum(1),
                "fours": (bat & (struck == 4) & (balls.outcome != FOUR + 10)).sum(1),
                "sixes": (bat & (struck == 6)).sum(1),
            }
        )
    first, then = out
    chased = _chase_won(balls, final)
    first["target"], then["target"] = np.full(len(first["total"]), -1), first["total"] + 1
    tie = final.winner == 2
    first["won"], then["won"] = np.where(tie, 0, 1 - chased), np.where(tie, 0, chased)
    return {name: np.stack([first[name], then[name]], axis=1).reshape(-1) for name in COLUMNS}


def _chase_won(balls: Record, final: Any) -> Ints:
    """Whether the side that batted second in the match won it, super overs included."""
    # the seats swap innings, and a super over begins with the side that batted second
    supers = np.asarray(final.supers)
    second_bats_last = supers == 0
    batting = np.asarray(final.batting)
    # before a super over the chaser bats; in each super over the roles swap once and stay
    swapped = np.where(second_bats_last, 0, supers % 2)
    chaser = np.where(swapped == 1, 1 - batting, batting)
    return np.asarray(np.asarray(final.winner) == chaser, np.int64)


def simulate(
    matches: int,
    overs: int = 20,
    era: str = "2023+",
    seed: int = 0,
    captains: tuple[str, str] = ("balanced", "balanced"),
) -> dict[str, Ints]:
    """Rows of innings, two for each match, as columns."""
    options = CricketOptions.read({"max_overs": overs, "era": era, "pool": POOL, "seed": seed})
    settings = options.settings()
    balls, final = deliveries(settings, matches, seed, captains)
    return innings(balls, final, int(settings.powerplay), overs)


def write_rows(rows: dict[str, Ints], out: str | Path) -> None:
    """CSV with COLUMNS; a first innings has no target."""
    columns = {name: rows[name].tolist() for name in COLUMNS}
    columns["target"] = ["" if inn == 1 else x for inn, x in zip(columns["inn"], columns["target"], strict=True)]
    sheet.write(out, COLUMNS, zip(*columns.values(), strict=True))
