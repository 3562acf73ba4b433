"""The state of a match: scalars and bit masks, so that a batch of matches packs into a few words."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from kibitz.games.cricket.model.delivery import LEVELS, NO_PLAYER, NOTHING
from kibitz.games.cricket.model.tactics import ACCUMULATE, BALANCED, GOOD

TIE, UNDECIDED = 2, 3  # values of `winner` that are no seat


class Ball(NamedTuple):
    """The last delivery, for the scorecard; its outcome is `NOTHING` before the first."""

    outcome: Array  # i32[]
    runs: Array  # i32[], added to the score
    how: Array  # i32[], index of `delivery.HOWS`
    out: Array  # i32[], the player who is out, or NO_PLAYER
    leg_bye: Array  # bool[]
    batter: Array  # i32[], the player on strike
    bowler: Array  # i32[]
    intent: Array
    plan: Array
    field: Array


class State(NamedTuple):
    elevens: tuple[Array, Array]  # i32[], each seat's index into `Sides`
    levels: tuple[Array, Array, Array]  # i32[], of the match, its first and its second innings; hidden
    batting: Array  # i32[], the seat that bats
    second: Array  # bool[], whether this is the chase
    supers: Array  # i32[], super overs started; 0 in the match itself
    first: Array  # i32[], score of the innings to beat; 0 in a first innings
    first_wickets: Array  # i32[]
    first_legal: Array  # i32[]
    score: Array  # i32[]
    wickets: Array  # i32[]
    legal: Array  # i32[], legal balls bowled in this innings
    striker: Array  # i32[], index into the batting order, 0 to 10
    other: Array  # i32[], the non-striker
    faced: tuple[Array, Array]  # i32[], balls faced by the striker and the non-striker
    batted: Array  # i32[], bit i: player i has come in
    bowler: Array  # i32[], of this over; NO_PLAYER before its first delivery
    last_bowler: Array  # i32[], of the previous over, or NO_PLAYER
    overs: tuple[Array, Array]  # i32[], overs started, four bits per bowler: players 0 to 5, 6 to 10
    super_bowlers: tuple[Array, Array]  # i32[], the bowler of each seat's last super over
    free_hit: Array  # bool[]
    deliveries: Array  # i32[], in the whole match
    ball: Ball
    over: Array  # bool[]
    winner: Array  # i32[], a seat, TIE or UNDECIDED


BALL_BITS: dict[str, Any] = {
    "outcome": 4, "runs": 3, "how": 3, "out": 4, "leg_bye": 1, "batter": 4, "bowler": 4, "intent": 3, "plan": 3,
    "field": 2,
}  # fmt: skip
STATE_BITS: dict[str, Any] = {
    "elevens": (10, 10), "levels": (8, 8, 8), "batting": 1, "second": 1, "supers": 5, "first": 10,
    "first_wickets": 4, "first_legal": 7, "score": 10, "wickets": 4, "legal": 7, "striker": 4, "other": 4,
    "faced": (8, 8), "batted": 11, "bowler": 4, "last_bowler": 4, "overs": (24, 20), "super_bowlers": (4, 4),
    "free_hit": 1, "deliveries": 11, "ball": Ball(**BALL_BITS), "over": 1, "winner": 2,
}  # fmt: skip
BIT_WIDTHS = State(**STATE_BITS)
assert 1 << STATE_BITS["levels"][0] == LEVELS


def _no_ball_yet() -> Ball:
    zero, no_player = jnp.int32(0), jnp.int32(NO_PLAYER)
    return Ball(
        jnp.int32(NOTHING), zero, zero, no_player, jnp.bool_(False), no_player, no_player,
        jnp.int32(ACCUMULATE), jnp.int32(GOOD), jnp.int32(BALANCED),
    )  # fmt: skip


def start(elevens: tuple[Array, Array], levels: tuple[Array, Array, Array], batting: Array) -> State:
    """The first ball of a match between two sides."""
    zero, no, no_player = jnp.int32(0), jnp.bool_(False), jnp.int32(NO_PLAYER)
    return State(
        elevens=elevens, levels=levels, batting=batting, second=no, supers=zero, first=zero, first_wickets=zero,
        first_legal=zero, score=zero, wickets=zero, legal=zero, striker=zero, other=jnp.int32(1),
        faced=(zero, zero), batted=jnp.int32(3), bowler=no_player, last_bowler=no_player, overs=(zero, zero),
        super_bowlers=(no_player, no_player), free_hit=no, deliveries=zero, ball=_no_ball_yet(), over=no,
        winner=jnp.int32(UNDECIDED),
    )  # fmt: skip
