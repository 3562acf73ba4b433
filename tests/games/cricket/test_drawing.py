"""Names, frames, tool calls and commentary: what spectators see."""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from kibitz.core.play.episode import Episode, play_episode
from kibitz.core.play.events import spoken
from kibitz.games.cricket import game
from kibitz.games.cricket.drawing.fielders import fielders, outside
from kibitz.games.cricket.drawing.frame import chance, frame
from kibitz.games.cricket.drawing.shot import GAP_DEGREES, shot
from kibitz.games.cricket.model.delivery import HOWS, NO_BALL
from kibitz.games.cricket.model.tactics import FIELDS, INTENTS, OUTCOMES, PLANS, declared
from kibitz.games.cricket.options import CricketOptions
from kibitz.games.cricket.teams import roster
from kibitz.games.cricket.words.phrases import PHRASES
from kibitz.players import player_named
from tests.games.cricket.pitch import FOUR, ONE, SIX, WICKET, WIDE, begin, certain, plain, play


@cache
def match(seed: int, overs: int = 3, again: bool = False) -> Episode:
    """`again` plays the match a second time."""
    record = game()
    players = [player_named(record, name) for name in ("balanced", "aggressive")]
    return play_episode(record, CricketOptions(max_overs=overs).settings(), players, seed=seed)


def frames(episode: Episode) -> list[dict[str, Any]]:
    """Whole frames, rebuilt from the deltas."""
    whole: list[dict[str, Any]] = []
    for event in episode.events:
        if event.type in ("episode.started", "step"):
            whole.append((whole[-1] if whole else {}) | dict(event.payload["frame"]))
    return whole


def test_a_team_id_identifies_its_side_and_unknown_ids_have_no_names() -> None:
    sides = CricketOptions(pool=4, seed=9).sides()
    marks = [int(x) for x in CricketOptions(pool=4, seed=9).settings().sides.team_ids]
    assert [roster.side(mark) for mark in marks] == sides
    assert roster.name(12345, 3) == "no. 4"
    assert roster.name(marks[0], 15) == "nobody"


def test_the_cast_names_both_sides_with_their_skills() -> None:
    cast = match(1).events[0].payload["cast"]
    for side in cast["sides"]:
        assert len(side["players"]) == 11
        assert [p["role"] for p in side["players"]].count("keeper") == 1
        assert {p["bats"] for p in side["players"]} <= {"left", "right"}
        assert all(p["skills"]["power"] >= 0 for p in side["players"])
    json.dumps(cast)


def test_a_frame_names_the_players_in_the_middle() -> None:
    cast = match(1).events[0].payload["cast"]["sides"]
    for drawn in frames(match(1)):
        batters, bowlers = (cast[seat]["players"] for seat in (drawn["batting"], 1 - drawn["batting"]))
        assert drawn["striker"]["name"] == batters[drawn["striker"]["player"]]["name"]
        assert drawn["bowler"] is None or drawn["bowler"]["name"] == bowlers[drawn["bowler"]["player"]]["name"]
        if ball := drawn["ball"]:
            assert ball["batter_name"] == cast[ball["batting"]]["players"][ball["batter"]]["name"]
            assert ball["bowler_name"] == cast[1 - ball["batting"]]["players"][ball["bowler"]]["name"]


@pytest.mark.parametrize("seed", range(3))
def test_the_changes_of_win_probability_add_up(seed: int) -> None:
    whole = frames(match(seed))
    for before, after in pairwise(whole):
        ball = after["ball"]
        seat = ball["batting"]
        moved = after["win_probability"][seat] - before["win_probability"][seat]
        assert ball["win_change"] == pytest.approx(moved, abs=1e-4)
        assert ball["number"] == (before["ball"] or {"number": 0})["number"] + 1


def test_par_replaces_the_forgotten_score_when_a_tie_is_undone() -> None:
    settings = plain(5)
    before = begin(second=True, first=40, score=40, legal=29, wickets=4, bowler=9, deliveries=59)
    after = play(certain(settings, 0), before)
    drawn = frame(settings, after)
    assert drawn["super_over"] == 1
    assert drawn["ball"]["batting"] == 0
    assert drawn["ball"]["win_change"] == pytest.approx(chance(settings, after) - chance(settings, before), abs=0.05)


def test_every_field_has_eleven_players_and_respects_the_ring() -> None:
    for field in FIELDS:
        for left in (False, True):
            placed = fielders(field, left)
            assert len({position for _, _, position in placed}) == 11
            assert all(0 <= angle < 360 and 0 < distance <= 1 for angle, distance, _ in placed)  # type: ignore[operator]
        assert outside(field) == declared()["outside_ring"][field]
    assert [360 - a for a, _, n in fielders("death", False) if n == "point"] == [
        a for a, _, n in fielders("death", True) if n == "point"
    ]


def test_acts_become_tool_calls_of_the_side_that_chose_them() -> None:
    for event in match(2).events:
        if event.type == "decision":
            made = [call["tool"] for call in event.payload["calls"]]
            assert made[-1] in ("play_delivery", "bowl_delivery")
            assert ("set_field" in made) == (made[-1] == "bowl_delivery")
    drawn = frame(plain(5), begin(batting=1))
    assert game().drawing.tool_calls((4, 2, 1, 0, 5), 1, drawn)[0] == {
        "tool": "set_batting_plan",
        "arguments": {"intent": "slog"},
    }
    named = game().drawing.tool_calls((2, 0, 1, 9, 0), 0, drawn)[0]["arguments"]["bowler"]
    assert named == roster.side(plain(5).sides.team_ids[0]).players[9].name


def test_every_outcome_and_dismissal_has_several_lines() -> None:
    for name in [*OUTCOMES[:6], "wide", "no_ball", *(how.replace(" ", "_") for how in HOWS[1:])]:
        assert len(PHRASES[name]) >= 2
    for key in PHRASES:
        kind, _, choice = key.partition("/")
        assert kind in PHRASES
        assert choice in ("", *INTENTS, *PLANS)


def lines(episode: Episode) -> list[str]:
    return [line for event in episode.events if (line := spoken(event))]


def test_commentary_names_players_varies_and_is_deterministic() -> None:
    said = lines(match(3, 5))
    text = "\n".join(said)
    names = {p["name"].split()[-1] for s in match(3, 5).events[0].payload["cast"]["sides"] for p in s["players"]}
    assert len([n for n in names if n in text]) >= 6
    balls = [re.sub(r"^\d+\.\d ", "", line) for line in said[1:-1]]
    assert len(set(balls)) > 0.7 * len(balls)
    assert "{" not in text
    assert lines(match(3, 5, again=True)) == said


def after(outcome: int, how: str = "", **fields: Any) -> str:
    """The commentary on a ball with a certain outcome."""
    settings = plain(5)
    state = play(certain(settings, outcome, how), begin(bowler=9, **fields))
    return game().drawing.commentary({"type": "step", "payload": {"turn": 7}}, frame(settings, state))


def test_commentary_mentions_milestones_and_the_runs_needed() -> None:
    assert re.search("[Ss]ix|stands|miles", after(SIX, legal=8, score=10))
    assert "50 up" in after(FOUR, legal=20, score=48)
    assert "powerplay is done" in after(ONE, legal=8, score=12)
    assert re.search("11/1", after(WICKET, "bowled", legal=14, score=11))
    assert "free hit" in after(NO_BALL, legal=14, score=11)
    assert "Wide" in after(WIDE, legal=14, score=11) or "wide" in after(WIDE, legal=14, score=11)
    assert re.search("[Oo]ver", after(ONE, legal=17, score=20))
    assert re.search(r"\b9\b.*\b5 balls", after(ONE, legal=24, score=30, second=True, first=39, deliveries=54))
    assert "need 52 to win" in after(ONE, legal=29, score=50)
    assert "super over" in after(ONE, legal=29, score=39, second=True, first=40, deliveries=59)


def result(**fields: Any) -> str:
    settings = plain(5)
    state = begin(over=True, second=True, **fields)
    return game().drawing.commentary({"type": "episode.ended", "payload": {}}, frame(settings, state))


def test_the_result_uses_the_wording_of_scorers() -> None:
    assert result(winner=0, first=40, score=41, wickets=3, legal=27).endswith("win by 7 wickets with 3 balls to spare.")
    assert result(winner=1, first=40, score=39, wickets=3, legal=30).endswith("win by 1 run.")
    assert "off the last ball" in result(winner=0, first=40, score=44, wickets=9, legal=30)
    assert "super over" in result(winner=1, first=9, score=4, supers=1)
    assert "tie" in result(winner=2, first=9, score=9)


def test_a_review_lists_the_balls_that_changed_the_match_most() -> None:
    whole, ended = frames(match(3, 5)), match(3, 5).events[-1].payload
    moments = ended["review"]["moments"]
    moved = [b["win_probability"][0] - a["win_probability"][0] for a, b in pairwise(whole)]
    assert len(moments) == 5
    assert [m["turn"] for m in moments] == sorted(m["turn"] for m in moments)
    for moment in moments:
        assert moment["change"] == pytest.approx(moved[moment["turn"]], abs=1e-4)
        assert moment["text"] in lines(match(3, 5))
    assert max(map(abs, moved)) == pytest.approx(max(abs(m["change"]) for m in moments), abs=1e-4)


def test_a_shot_is_deterministic_and_agrees_with_the_outcome_and_the_field() -> None:
    balls = [drawn["ball"] for seed in range(4) for drawn in frames(match(seed)) if drawn["ball"]]
    assert len({ball["shot"]["angle"] for ball in balls}) > 20
    for ball, again in zip(frames(match(1)), frames(match(1, again=True)), strict=True):
        assert (ball["ball"] or {}).get("shot") == (again["ball"] or {}).get("shot")
    for ball in balls:
        angle, distance, to = (ball["shot"][key] for key in ("angle", "distance", "to"))
        assert 0 <= angle < 360 and 0 <= distance <= 1.2
        hit = ball["runs"] - (ball["outcome"] == "no_ball") if ball["outcome"] not in ("wide", "bye") else 0
        assert (distance > 1) == (hit == 6) and (hit != 4 or ball["how"] or distance == 1)
        assert to is not None or ball["how"] in ("bowled", "lbw", "hit wicket") or hit >= 4 or ball["outcome"] != "dot"
        if ball["how"] == "caught":
            assert to in {name for _, _, name in fielders(ball["field"], False)}


@pytest.mark.parametrize("field", FIELDS)
def test_a_four_finds_a_gap_on_the_rope(field: str) -> None:
    ball = {"outcome": "four", "how": None, "runs": 4, "leg_bye": False, "intent": "attack", "field": field}
    ball |= {"at": "1.1", "batter_name": "A", "bowler_name": "B"}
    for number in range(60):
        hit = shot(ball | {"number": number}, left_handed=bool(number % 2))
        deep = [angle for angle, far, _ in fielders(field, bool(number % 2)) if far > 0.5]
        assert min(abs((hit["angle"] - int(one) + 180) % 360 - 180) for one in deep) >= GAP_DEGREES - 1


def test_a_person_is_told_what_each_choice_risks() -> None:
    from kibitz.core.play.episode import table_for
    from kibitz.games.cricket.model.delivery import TYPES
    from kibitz.games.cricket.words.notes import STYLES, choice_notes

    settings, state = plain(overs=2), begin()
    batting, bowling = (table_for(game()).observe(settings, state, seat) for seat in (0, 1))
    risks = choice_notes(settings, *batting)["intent"]
    runs = [float(note.split()[0]) for note in risks]
    out = [int(note.split()[2].rstrip("%")) for note in risks]
    assert runs == sorted(runs) and out[0] < out[-1], "a slog scores more and costs more wickets than a block"
    notes = choice_notes(settings, *bowling)
    assert len(notes["plan"]) == len(PLANS)
    assert all("1 over left" in note and "runs" in note for note in notes["bowler"])
    assert set(STYLES) == set(TYPES) and all(note.split(" · ")[0] in STYLES.values() for note in notes["bowler"])
