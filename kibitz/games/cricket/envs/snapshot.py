"""One position on the host: the state, what both seats see, and the fields of the captain's observation.

Fetching a hundred small arrays one by one costs more than the ball itself, so a snapshot brings them to
the host in one piece.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np

from kibitz.core.game import SEATS, Game, blank
from kibitz.core.xla.flat_tree import FlatTree
from kibitz.games.cricket.captains import tool_calls
from kibitz.games.cricket.drawing.scorecard import ScorecardTally
from kibitz.games.cricket.model.delivery import NO_PLAYER
from kibitz.games.cricket.model.tactics import FIELDS, INTENTS, PLANS
from kibitz.games.cricket.teams import roster
from kibitz.games.cricket.words.prompt import phase_text, position_text

BOARD = (
    "innings", "super_over", "score", "wickets", "over_text", "balls_left", "first", "target", "needed", "run_rate",
    "required_rate", "projected", "powerplay", "free_hit", "win_probability", "sides", "batting", "winner",
)  # fmt: skip


class Snapshot(NamedTuple):
    state: Any
    views: list[Any]  # by seat
    masks: list[Any]  # by seat


class SnapshotReader:
    def __init__(self, game: Game) -> None:
        def seen(settings: Any, state: Any) -> Any:
            views = [game.rules.view(settings, state, seat)._replace(seat=np.int32(seat)) for seat in SEATS]
            return state, views, [game.rules.legal(settings, state, seat) for seat in SEATS]

        flat_tree = self._flat_tree = FlatTree(blank(seen, game.default_settings, game.example))
        self._pack = jax.jit(lambda settings, state: flat_tree.pack(seen(settings, state)))

    def __call__(self, settings: Any, state: Any) -> Snapshot:
        state, views, masks = self._flat_tree.read(np.asarray(self._pack(settings, state)))
        return Snapshot(state, [view._replace(seat=seat) for seat, view in zip(SEATS, views, strict=True)], masks)


@cache
def snapshot_reader(game: Game) -> SnapshotReader:
    return SnapshotReader(game)


class MatchPosition(NamedTuple):
    """A position as the captain sees it, computed once per ball."""

    snapshot: Snapshot
    view: Any  # the captain's
    masks: Any  # the captain's
    frame: dict[str, Any]
    role: str
    values: dict[str, tuple[str, ...]]  # open values of each tool argument
    may_bowl: tuple[str, ...]  # the players who may bowl the next over
    tools: list[dict[str, Any]]
    observation: dict[str, Any]  # fields of `CricketObservation`


def position_of(
    snapshot: Snapshot, frame: dict[str, Any], tally: ScorecardTally, cast: list[dict[str, Any]]
) -> MatchPosition:
    view, masks = snapshot.views[0], snapshot.masks[0]
    bats = bool(view.bats)
    role = tool_calls.BAT if bats else tool_calls.BOWL
    batters, bowlers = roster.side(view.batting_team_id), roster.side(view.bowling_team_id)
    may_bowl = tuple(bowlers.players[i].name for i in next_bowlers(frame["overs"], view, bowlers.keeper))
    coming = [i for i in range(11) if int(view.waiting) >> i & 1] if bool(view.comes_in) else []
    opened = np.flatnonzero(masks[2]).tolist()
    values = {
        "intent": INTENTS,
        "batter": tuple(batters.players[i].name for i in coming),
        "plan": PLANS,
        "field": tuple(FIELDS[i] for i in opened),
        "bowler": may_bowl,
    }
    observation = {
        "role": role,
        "scoreboard": {name: frame[name] for name in BOARD} | {"phase": phase_text(view)},
        "batters": [_batter(frame[place], batters, place) for place in ("striker", "other")],
        "bowler": frame["bowler"],
        "field": frame["field"],
        "last_balls": frame["last_balls"],
        "partnership": frame["partnership"],
        "required_rate": frame["required_rate"],
        "players": {name: _players(cast[seat], seat, tally) for seat, name in enumerate(("mine", "theirs"))},
        "text": _text(view, frame),
        "frame": frame,
    }
    legal = tool_calls.legal_tools(role, values)
    return MatchPosition(snapshot, view, masks, frame, role, values, may_bowl, legal, observation)


def next_bowlers(overs: int, view: Any, keeper: int) -> list[int]:
    """The players who may bowl the next over: this one before its first ball, otherwise the one after it."""
    if int(view.bowler) == NO_PLAYER:
        return [i for i in range(11) if int(view.may_bowl) >> i & 1]
    if int(view.supers) or int(view.legal) // 6 + 1 >= overs:
        return []  # no over follows
    counts = [int(view.overs[i >= 6]) >> 4 * (i % 6) & 15 for i in range(11)]
    limit, spare = divmod(overs, 5)
    max_overs = limit + (sum(n > limit for n in counts) < spare)
    return [i for i in range(11) if counts[i] < max_overs and i not in (keeper, int(view.bowler))]


def _batter(shown: dict[str, Any], side: roster.Eleven, place: str) -> dict[str, Any]:
    player = side.players[shown["player"]]
    return {
        "name": player.name,
        "runs": shown["runs"],
        "balls": shown["faced"],
        "on_strike": place == "striker",
        "bats": player.hand,
    }


def _players(side: dict[str, Any], seat: int, tally: ScorecardTally) -> dict[str, Any]:
    batting, bowling = tally.lines(seat)
    players = [
        player | {"batting": bat, "bowling": ball}
        for player, bat, ball in zip(side["players"], batting, bowling, strict=True)
    ]
    return {"name": side["name"], "players": players}


def _text(view: Any, frame: dict[str, Any]) -> str:
    balls = f" Last balls: {' '.join(frame['last_balls'])}." if frame["last_balls"] else ""
    partnership = frame["partnership"]
    together = f" Partnership {partnership['runs']} off {partnership['balls']}." if partnership["balls"] else ""
    chance = f" Your chance of winning is about {100 * frame['win_probability'][0]:.0f} %."
    return f"{position_text(view)} It is the {phase_text(view)}.{together}{balls}{chance}"
