"""Hand-made positions, and settings in which one outcome is certain."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kibitz.core.xla.jit import jit_single
from kibitz.games.cricket.drawing.scorecard import Innings
from kibitz.games.cricket.laws import state as state_
from kibitz.games.cricket.laws import step as laws
from kibitz.games.cricket.model.delivery import FOUR, HOWS, ONE, RUN_OUT, SIX, WICKET, WIDE
from kibitz.games.cricket.options import CricketOptions

NEUTRAL = tuple(np.int32(x) for x in (2, 2, 1, 0, 0))


@cache
def plain(overs: int = 20) -> Any:
    return CricketOptions(max_overs=overs, pool=2).settings()


def certain(settings: Any, outcome: int, how: str = "", runs: int | None = None, striker_out: bool = True) -> Any:
    """Settings in which every ball has this outcome, with these runs or this dismissal."""
    model = settings.model
    base = np.full((3, 2, 20, 10), -40.0)
    base[..., outcome] = 40.0
    changed: dict[str, Any] = {"base": base.reshape(-1)}
    if how:
        changed["run_out"] = np.full((3, 20), float(how == "run out"))
        if how != "run out":
            changed["how"] = np.broadcast_to(np.arange(6) >= HOWS.index(how) - 1, (3, 3, 2, 6)).astype(float)
        changed["striker_out"] = float(striker_out)
    if runs is not None:
        name, first = {7: ("wide_runs", 1), 8: ("no_ball_runs", 0), 9: ("bye_runs", 1), 6: ("run_out_runs", 0)}[outcome]
        size = getattr(model, name).shape[0]
        place = runs - first if runs != 6 else 5
        changed[name] = (np.arange(size) >= place).astype(float)
    made = {key: np.asarray(value, np.float32) for key, value in changed.items()}
    return settings._replace(model=model._replace(**made))


_step = jit_single(laws.step)
legal = jit_single(laws.legal, static_argnums=2)


def play(settings: Any, state: Any, bat: Any = NEUTRAL, bowl: Any = NEUTRAL, u: float = 0.5) -> Any:
    """The state after one ball; `bat` and `bowl` are the acts of the batting and the bowling side."""
    acts = (bat, bowl) if int(state.batting) == 0 else (bowl, bat)
    acts = tuple(tuple(np.int32(x) for x in act) for act in acts)
    after, _, _ = _step(settings, state, acts, np.full(1, u, np.float32))
    return jax.device_get(after)


@jax.jit
def _start(batting: Any) -> Any:
    return state_.start((jnp.int32(0), jnp.int32(1)), (jnp.int32(128),) * 3, batting)


def begin(batting: int = 0, **fields: Any) -> Any:
    """A first ball with some fields changed."""
    state = jax.device_get(_start(np.int32(batting)))
    made = {
        name: jax.tree.map(lambda old, new: np.asarray(new, old.dtype), getattr(state, name), value)
        for name, value in fields.items()
    }
    return state._replace(**made)


def bowler(index: int) -> tuple[int, ...]:
    return (2, 2, 1, index, 0)


def next_in(index: int) -> tuple[int, ...]:
    return (2, 2, 1, 0, index)


def may(settings: Any, state: Any) -> set[int]:
    """The players who may bowl the next over."""
    mask = legal(settings, state, 1 - int(state.batting))[3]
    return set(np.flatnonzero(np.asarray(mask)).tolist())


def adds_up(card: Innings) -> bool:
    """Whether batters, bowlers, extras and falls of wickets agree with the totals."""
    run_outs = sum(batter.how == HOWS[RUN_OUT] for batter in card.batters)
    byes = card.extras["byes"] + card.extras["leg_byes"]
    return (
        card.total == sum(b.runs for b in card.batters) + sum(card.extras.values())
        and card.wickets == sum(b.wickets for b in card.bowlers) + run_outs
        and card.legal == sum(b.balls for b in card.bowlers)
        and card.total == sum(b.runs for b in card.bowlers) + byes
        and card.wickets == len(card.falls) == sum(bool(b.how) for b in card.batters)
    )


__all__ = [
    "FOUR", "ONE", "SIX", "WICKET", "WIDE", "adds_up", "begin", "bowler", "certain", "legal", "may", "next_in", "plain",
    "play",
]  # fmt: skip
