"""The commentary. Turn and score choose among several lines, never chance."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from kibitz.games.cricket.teams import roster
from kibitz.games.cricket.teams.roster import surname
from kibitz.games.cricket.words.phrases import PHRASES

SWING = 0.12  # a change of win probability that deserves its own line


def commentary(event: Mapping[str, Any], frame: Mapping[str, Any]) -> str:
    """A line for an event, or an empty string; `frame` is the whole frame after it."""
    if event["type"] == "episode.started":
        return _opening(frame)
    if event["type"] == "step":
        return _ball(frame, int(event["payload"].get("turn", 0)))
    if event["type"] == "episode.ended":
        return _result(frame)
    return ""


def _opening(frame: Mapping[str, Any]) -> str:
    home, away = frame["sides"]
    batting = frame["sides"][frame["batting"]]
    length = f"{frame['overs']} over{'s' * (frame['overs'] > 1)} a side"
    if frame["legal"]:
        chase = f", needing {frame['needed']} from {frame['balls_left']} balls" if frame["needed"] else ""
        return f"{home} against {away}, {length}. We join it at {_board(frame)}: {batting} batting{chase}."
    opening = [
        f"{home} against {away}, {length}. {batting} will bat first.",
        f"Welcome to {home} v {away}: {length}, and {batting} bat first.",
        f"{home} and {away} are out in the middle. {length.capitalize()}; {batting} have the bat.",
    ]
    return _pick(opening, 0, frame, "opening")


def _ball(frame: Mapping[str, Any], turn: int) -> str:
    ball = frame.get("ball")
    if not ball:
        return ""
    bowler, batter = _called(frame, ball["bowler_name"]), _called(frame, ball["batter_name"])
    gone = _called(frame, ball["out_name"]) if ball["out_name"] else ""
    kind = _kind(ball)
    words = {
        "bowler": bowler, "batter": batter, "gone": gone, "runs": ball["runs"],
        "field": ball["field"], "side": frame["sides"][ball["batting"]], "how": ball["how"],
    }  # fmt: skip
    lines = list(PHRASES[kind]) + list(PHRASES.get(f"{kind}/{ball['intent']}", ()))
    lines += PHRASES.get(f"{kind}/{ball['plan']}", ())
    said = _pick(lines, turn, frame, kind).format(**words)
    parts = [f"{ball['at']} {said}", *_after(frame, ball, turn)]
    return " ".join(parts)


def _kind(ball: Mapping[str, Any]) -> str:
    """The key of `PHRASES`."""
    if ball["how"]:
        return str(ball["how"]).replace(" ", "_")
    if ball["outcome"] == "bye":
        return "leg_bye" if ball["leg_bye"] else "bye"
    return str(ball["outcome"])


def _after(frame: Mapping[str, Any], ball: Mapping[str, Any], turn: int) -> list[str]:
    """At most two short remarks: innings, milestones, the end of an over, runs needed."""
    legal, score, side = frame["legal"], frame["score"], frame["sides"][frame["batting"]]
    if frame["over"]:
        return []  # the end of the episode brings the result
    if legal == 0 and score == 0:
        return [_innings_over(frame, ball)]
    said: list[str] = []
    board = _board(frame)
    if ball["how"]:
        said.append(_pick([f"{board}.", f"{side} are {board}.", f"That makes it {board}."], turn, frame, "board"))
    fifty = score // 50
    if ball["runs"] and fifty > (score - ball["runs"]) // 50:
        up = f"{50 * fifty} up for {side}"
        ways = [f"{up}.", f"And that is {up}, {board}.", f"{up} in {frame['over_text']} overs."]
        said.append(_pick(ways, turn, frame, "fifty"))
    counted = ball["outcome"] not in ("wide", "no_ball")
    at_board = "" if said else f": {board}"
    if counted and legal == frame["powerplay_balls"] and not frame["super_over"] and len(said) < 2:
        said.append(f"The powerplay is done{at_board}.")
    elif counted and legal % 6 == 0 and len(said) < 2:
        ends = [f"End of over {legal // 6}{at_board}.", f"That is the over{at_board}."]
        said.append(_pick(ends if said else [*ends, f"{board} after {legal // 6}."], turn, frame, "over"))
    needed = frame["needed"]
    if needed and len(said) < 2 and (frame["balls_left"] <= 12 or (counted and legal % 6 == 0)):
        balls = f"{frame['balls_left']} ball{'s' * (frame['balls_left'] != 1)}"
        asks = [
            f"{needed} needed from {balls}.",
            f"They need {needed} from {balls}.",
            f"{needed} to get, {balls} left.",
        ]
        said.append(_pick(asks, turn, frame, "need"))
    elif abs(ball["win_change"]) >= SWING and len(said) < 2:
        good = frame["sides"][ball["batting"] if ball["win_change"] > 0 else 1 - ball["batting"]]
        said.append(_pick([f"That turns it towards {good}.", f"Big moment for {good}."], turn, frame, "swing"))
    return said


def _innings_over(frame: Mapping[str, Any], ball: Mapping[str, Any]) -> str:
    made, side = frame["sides"][ball["batting"]], frame["sides"][frame["batting"]]
    if frame["innings"] == 1:  # the scores were level
        return f"Scores level! It is a tie, so we go to a super over, and {side} bat first in it."
    first = frame["first"]
    out = first["wickets"] >= (2 if frame["super_over"] else 10)
    total = f"{first['score']} all out" if out else f"{first['score']}/{first['wickets']}"
    return f"{made} finish on {total}. {side} need {frame['target']} to win."


def _result(frame: Mapping[str, Any]) -> str:
    if frame["winner"] == "tie":
        return "A tie! Nothing between them."
    winner = frame["sides"][frame["winner"]]
    if frame["super_over"]:
        return f"{winner} win it in the super over!"
    if frame["winner"] == frame["batting"]:
        left, balls = 10 - frame["wickets"], frame["balls_left"]
        spare = f" with {balls} ball{'s' * (balls != 1)} to spare" if balls else " off the last ball"
        return f"{winner} win by {left} wicket{'s' * (left != 1)}{spare}."
    runs = frame["first"]["score"] - frame["score"]
    return f"{winner} win by {runs} run{'s' * (runs != 1)}."


def _board(frame: Mapping[str, Any]) -> str:
    return f"{frame['score']}/{frame['wickets']}"


def _pick(lines: Sequence[str], turn: int, frame: Mapping[str, Any], kind: str) -> str:
    """Two successive balls of an over never get the same line, unless there is only one."""
    key = f"{frame['legal'] // 6} {frame['batting']} {kind}"
    return lines[(turn + zlib.crc32(key.encode())) % len(lines)]


def _called(frame: Mapping[str, Any], name: str) -> str:
    """The surname, unless two players in the match share it."""
    last = surname(name)
    people = [player.name for team_id in frame["marks"] for player in roster.side(team_id).players]
    return last if sum(surname(other) == last for other in people) <= 1 else name
