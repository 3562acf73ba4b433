"""One position as a captain's observation shows it: worked out once a ball, whatever is called in between."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kibitz.games.cricket.drawing.tally import Tally
from kibitz.games.cricket.envs import tool_calls as tools
from kibitz.games.cricket.envs.snapshot import Sight
from kibitz.games.cricket.laws.state import NOBODY
from kibitz.games.cricket.model.tactics import FIELDS, INTENTS, PLANS
from kibitz.games.cricket.teams import roster
from kibitz.games.cricket.words.prompt import phase_text, position_text

BOARD = (
    "innings", "super_over", "score", "wickets", "over_text", "balls_left", "first", "target", "needed", "run_rate",
    "required_rate", "projected", "powerplay", "free_hit", "win_probability", "sides", "batting", "winner",
)  # fmt: skip


class Page(NamedTuple):
    sight: Sight
    view: Any  # the captain's
    masks: Any
    frame: dict[str, Any]
    role: str
    values: dict[str, tuple[str, ...]]  # open values of each tool's argument
    may_bowl: tuple[str, ...]  # who may bowl the next over that begins
    tools: list[dict[str, Any]]
    shown: dict[str, Any]  # fields of the observation


def turn_page(overs: int, sight: Sight, drawn: dict[str, Any], tally: Tally, cast: list[dict[str, Any]]) -> Page:
    view, masks = sight.views[0], sight.masks[0]
    bats = bool(view.bats)
    role = tools.BAT if bats else tools.BOWL
    batters, bowlers = roster.side(view.batting_mark), roster.side(view.bowling_mark)
    may_bowl = tuple(bowlers.players[i].name for i in next_bowlers(overs, view, bowlers.keeper))
    coming = [i for i in range(11) if int(view.waiting) >> i & 1] if bool(view.comes_in) else []
    opened = np.flatnonzero(masks[2]).tolist()
    values = {
        "intent": INTENTS,
        "batter": tuple(batters.players[i].name for i in coming),
        "plan": PLANS,
        "field": tuple(FIELDS[i] for i in opened),
        "bowler": may_bowl,
    }
    shown = {
        "role": role,
        "scoreboard": {name: drawn[name] for name in BOARD} | {"phase": phase_text(view)},
        "batters": [_batter(drawn[place], batters, place) for place in ("striker", "other")],
        "bowler": drawn["bowler"],
        "field": drawn["field"],
        "last_balls": drawn["last_balls"],
        "partnership": drawn["partnership"],
        "required_rate": drawn["required_rate"],
        "players": {name: _players(cast[seat], seat, tally) for seat, name in enumerate(("mine", "theirs"))},
        "text": _text(view, drawn),
        "frame": drawn,
    }
    return Page(sight, view, masks, drawn, role, values, may_bowl, tools.legal(role, values), shown)


def next_bowlers(overs: int, view: Any, keeper: int) -> list[int]:
    """Who may bowl the next over to begin: this one before its first ball, otherwise the one after it."""
    if int(view.bowler) == NOBODY:
        return [i for i in range(11) if int(view.may_bowl) >> i & 1]
    if int(view.supers) or int(view.legal) // 6 + 1 >= overs:
        return []  # no over follows
    counts = [int(view.overs[i >= 6]) >> 4 * (i % 6) & 15 for i in range(11)]
    limit, spare = divmod(overs, 5)
    most = limit + (sum(n > limit for n in counts) < spare)
    return [i for i in range(11) if counts[i] < most and i not in (keeper, int(view.bowler))]


def _batter(man: dict[str, Any], side: roster.Eleven, place: str) -> dict[str, Any]:
    player = side.players[man["player"]]
    return {
        "name": player.name,
        "runs": man["runs"],
        "balls": man["faced"],
        "on_strike": place == "striker",
        "bats": player.hand,
    }


def _players(side: dict[str, Any], seat: int, tally: Tally) -> dict[str, Any]:
    batting, bowling = tally.lines(seat)
    players = [
        player | {"batting": bat, "bowling": ball}
        for player, bat, ball in zip(side["players"], batting, bowling, strict=True)
    ]
    return {"name": side["name"], "players": players}


def _text(view: Any, drawn: dict[str, Any]) -> str:
    balls = f" Last balls: {' '.join(drawn['last_balls'])}." if drawn["last_balls"] else ""
    stand = drawn["partnership"]
    together = f" Partnership {stand['runs']} off {stand['balls']}." if stand["balls"] else ""
    chance = f" Your chance of winning is about {100 * drawn['win_probability'][0]:.0f} %."
    return f"{position_text(view)} It is the {phase_text(view)}.{together}{balls}{chance}"
