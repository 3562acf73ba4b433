"""Thousands of matches in one compiled program, and their results.

`batch` plays one ball of two captains in every match; simulations and benchmarks loop over it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kibitz.core.bots import Bot
from kibitz.core.chance import episode_luck, seed_key, uniforms
from kibitz.core.xla.jit import jit_batch
from kibitz.core.xla.packing import Layout, fusion_barrier
from kibitz.games.cricket.captains.bots import CAPTAINS
from kibitz.games.cricket.fitting import csv_out
from kibitz.games.cricket.laws.start import NEW_UNIFORMS, new
from kibitz.games.cricket.laws.state import BIT_WIDTHS, TIE, State, start
from kibitz.games.cricket.laws.step import STEP_UNIFORMS, Settings, legal, step
from kibitz.games.cricket.laws.view import view
from kibitz.games.cricket.model.delivery import NO_BALL, SIX, WIDE
from kibitz.games.cricket.options import CricketOptions

Ints = NDArray[np.int64]
BATCH_MATCHES = 4096
CHUNK_DELIVERIES = 48  # played between two checks that all matches are over
COLUMNS = ("inn", "total", "wkts", "legal", "pp", "mid_", "death", "fours", "sixes", "target", "won")
POOL = 256  # number of invented sides that a simulation draws from
Words = Any  # a packed batch: a tuple of u32[matches]
_ACT_BITS = ((3, 3, 2, 4, 4),) * 2


class Match(NamedTuple):
    """The carry of a match from ball to ball."""

    state: State
    memories: tuple[Any, Any]


class MatchBatch(NamedTuple):
    """`begin` packs new matches from lucks u32[n, 2]; `turn` plays a ball of each."""

    width: int  # uniforms per turn
    layout: Layout
    begin: Callable[[Settings, Array], Words]
    turn: Callable[[Settings, Words, Array, Any], Words]  # settings, matches, f32[width, n], the number 1


@lru_cache(maxsize=16)
def batch(captains: tuple[Bot, Bot]) -> MatchBatch:
    """The program of two captains; the first has seat 0."""
    zero = jnp.int32(0)
    memories = tuple(bot.start(None, 0, jnp.zeros(bot.uniforms)) for bot in captains)
    example = Match(start((zero, zero), (zero, zero, zero), zero), (memories[0], memories[1]))
    layout = Layout(Match(BIT_WIDTHS, (captains[0].bit_widths, captains[1].bit_widths)), example)
    chosen = Layout(
        (_ACT_BITS, (captains[0].bit_widths, captains[1].bit_widths)),
        (((zero,) * 5, (zero,) * 5), (memories[0], memories[1])),
    )

    def fresh(settings: Settings, luck: Array) -> Any:
        u = uniforms(luck, 0, NEW_UNIFORMS + sum(bot.uniforms for bot in captains))
        cut = NEW_UNIFORMS + captains[0].uniforms
        first = captains[0].start(settings, 0, u[NEW_UNIFORMS:cut])
        return layout.pack(Match(new(settings, u[:NEW_UNIFORMS]), (first, captains[1].start(settings, 1, u[cut:]))))

    def choose(settings: Settings, packed: Any, u: Array) -> Any:
        match = layout.unpack(packed)
        memories, acts, used = [], [], STEP_UNIFORMS
        for seat, bot in enumerate(captains):
            seen, masks = view(settings, match.state, seat), legal(settings, match.state, seat)
            memory, act = bot.choose(settings, match.memories[seat], seen, masks, u[used : used + bot.uniforms])
            memories.append(memory)
            acts.append(act)
            used += bot.uniforms
        return chosen.pack(((acts[0], acts[1]), (memories[0], memories[1])))

    def bowl(settings: Settings, packed: Any, words: Any, u: Array) -> Any:
        acts, memories = chosen.unpack(words)
        after, _, _ = step(settings, layout.unpack(packed).state, acts, u[:STEP_UNIFORMS])
        return layout.pack(Match(after, memories))

    def turn(settings: Settings, packed: Words, u: Array, one: Any) -> Words:
        words = fusion_barrier(one, lambda: jax.vmap(choose, in_axes=(None, 0, 1))(settings, packed, u))
        return fusion_barrier(one, lambda: jax.vmap(bowl, in_axes=(None, 0, 0, 1))(settings, packed, words, u))

    width = STEP_UNIFORMS + sum(bot.uniforms for bot in captains)
    return MatchBatch(width, layout, jax.vmap(fresh, in_axes=(None, 0)), turn)


class Record(NamedTuple):
    """One delivery for the statistics: the position before it, and its outcome."""

    live: Any
    supers: Any  # bool
    second: Any
    legal: Any
    wickets: Any
    striker: Any
    faced: Any  # at most 63
    bowler_type: Any
    bowler: Any
    needed: Any  # runs needed in a chase, else 0
    free_hit: Any
    outcome: Any
    runs: Any
    how: Any
    intent: Any
    plan: Any
    field: Any


RECORD_BITS = Record(1, 1, 1, 7, 4, 4, 6, 3, 4, 10, 1, 4, 3, 3, 3, 3, 2)


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
    """Programs that start a batch, play and record CHUNK_DELIVERIES of it, and read its states."""
    records = _records()
    matches = batch(captains)

    @jit_batch
    def begin(settings: Settings, key: Array, first: Array) -> Any:
        lucks = jax.vmap(lambda i: episode_luck(key, first + i))(jnp.arange(BATCH_MATCHES))
        return matches.begin(settings, lucks)

    @jit_batch
    def play(settings: Settings, packed: Any, key: Array, turn: Array, one: Any) -> tuple[Any, Array, Any]:
        def note(before: Any, after: Any) -> Any:
            old, new = (matches.layout.unpack(packed).state for packed in (before, after))
            return records.pack(record(settings, old, new))[0]

        def many(packed: Any, t: Array) -> tuple[Any, Any]:
            u = jax.random.uniform(jax.random.fold_in(jax.random.wrap_key_data(key), t), (matches.width, BATCH_MATCHES))
            after = matches.turn(settings, packed, u, one)
            return after, jax.vmap(note)(packed, after)

        packed, words = jax.lax.scan(many, packed, turn + jnp.arange(CHUNK_DELIVERIES))
        return packed, jnp.all(jax.vmap(matches.layout.unpack)(packed).state.over), words

    return begin, play, jit_batch(lambda packed: jax.vmap(matches.layout.unpack)(packed).state)


def _records() -> Layout:
    return Layout(RECORD_BITS, jax.tree.map(lambda _: jnp.int32(0), RECORD_BITS))


def deliveries(
    settings: Settings, matches: int, seed: int, captains: tuple[str, str] = ("balanced", "balanced")
) -> tuple[Record, State]:
    """Every ball of the matches, as arrays [match, delivery], and the final states."""
    begin, play, read = _programs((CAPTAINS[captains[0]], CAPTAINS[captains[1]]))
    records = _records()
    key = seed_key(seed)
    parts, finals = [], []
    for part in range(-(-matches // BATCH_MATCHES)):
        packed = begin(settings, key, part * BATCH_MATCHES)
        words, turn, done = [], 0, False
        luck = episode_luck(key, 2**30 + part)
        while not done:
            packed, done, made = play(settings, packed, luck, turn, 1)
            words.append(jax.device_get(made))
            turn += CHUNK_DELIVERIES
        joined = tuple(np.concatenate([part[i] for part in words]).T for i in range(len(words[0])))
        parts.append(_unpack(records, joined))
        finals.append(jax.device_get(read(packed)))
    max_length = max(part.live.shape[1] for part in parts)
    joined_parts = [jax.tree.map(lambda x: np.pad(x, ((0, 0), (0, max_length - x.shape[1]))), part) for part in parts]
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
    """A row for each innings, without super overs; `won` is whether the batting side won the match."""
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
                "legal": (here & (balls.outcome != WIDE) & (balls.outcome != NO_BALL)).sum(1),
                "pp": (runs * early).sum(1),
                "mid_": (runs * (~early & ~late)).sum(1),
                "death": (runs * (late & ~early)).sum(1),
                "fours": (bat & (struck == 4)).sum(1),
                "sixes": (bat & (struck == 6)).sum(1),
            }
        )
    first, then = out
    chased = _chase_won(final)
    first["target"], then["target"] = np.full(len(first["total"]), -1), first["total"] + 1
    tie = final.winner == TIE
    first["won"], then["won"] = np.where(tie, 0, 1 - chased), np.where(tie, 0, chased)
    return {name: np.stack([first[name], then[name]], axis=1).reshape(-1) for name in COLUMNS}


def _chase_won(final: Any) -> Ints:
    """Whether the side that batted second won the match, super overs included."""
    batting = np.asarray(final.batting)
    # the side that batted last opens each super over, so the last to bat alternates
    chaser = np.where(np.asarray(final.supers) % 2 == 1, 1 - batting, batting)
    return np.asarray(np.asarray(final.winner) == chaser, np.int64)


def simulate(
    matches: int,
    overs: int = 20,
    era: str = "2023+",
    seed: int = 0,
    captains: tuple[str, str] = ("balanced", "balanced"),
    model: str | None = None,
) -> dict[str, Ints]:
    """The columns of innings rows, two for each match. The era has its own model unless one is named."""
    named = {} if model is None else {"model": model}
    options = CricketOptions.read({"max_overs": overs, "era": era, "pool": POOL, "seed": seed, **named})
    settings = options.settings()
    balls, final = deliveries(settings, matches, seed, captains)
    return innings(balls, final, int(settings.powerplay), overs)


def write_rows(rows: dict[str, Ints], out: str | Path) -> None:
    """Writes a CSV with COLUMNS; the target of a first innings is empty."""
    columns = {name: rows[name].tolist() for name in COLUMNS}
    columns["target"] = ["" if inn == 1 else x for inn, x in zip(columns["inn"], columns["target"], strict=True)]
    csv_out.write(out, COLUMNS, zip(*columns.values(), strict=True))
