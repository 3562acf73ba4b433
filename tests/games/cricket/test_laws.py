"""The laws, on hand-made positions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kibitz.games.cricket.laws import step as laws
from kibitz.games.cricket.model.delivery import BYE, DOT, HOWS, NO_BALL, NO_PLAYER
from kibitz.games.cricket.model.par import powerplay_balls
from tests.games.cricket.pitch import (
    FOUR,
    ONE,
    SIX,
    WICKET,
    WIDE,
    begin,
    bowler,
    certain,
    legal,
    may,
    next_in,
    plain,
    play,
)

CHECKLIST = Path(__file__).parents[4] / "shared/data/cricket/rules_checklist.json"


def test_an_odd_run_changes_the_strike() -> None:
    after = play(certain(plain(), ONE), begin())
    assert (int(after.striker), int(after.other), int(after.score), int(after.legal)) == (1, 0, 1, 1)
    assert [int(x) for x in after.faced] == [0, 1]


def test_a_boundary_does_not_change_the_strike() -> None:
    after = play(certain(plain(), FOUR), begin())
    assert (int(after.striker), int(after.score)) == (0, 4)


def test_the_end_of_an_over_changes_the_strike() -> None:
    after = play(certain(plain(), DOT), begin(legal=5, bowler=9))
    assert (int(after.striker), int(after.bowler), int(after.last_bowler)) == (1, NO_PLAYER, 9)


def test_an_odd_run_off_the_last_ball_keeps_the_strike() -> None:
    after = play(certain(plain(), ONE), begin(legal=5, bowler=9))
    assert int(after.striker) == 0


@pytest.mark.parametrize(("runs", "striker"), [(1, 0), (2, 1), (3, 0), (5, 0)])
def test_a_wide_is_bowled_again_and_run_wides_change_ends(runs: int, striker: int) -> None:
    after = play(certain(plain(), WIDE, runs=runs), begin(legal=5, bowler=9))
    assert (int(after.score), int(after.legal), int(after.bowler)) == (runs, 5, 9)
    assert int(after.striker) == striker
    assert [int(x) for x in after.faced] == [0, 0], "a wide is no ball faced"


def test_a_no_ball_costs_one_more_and_brings_a_free_hit() -> None:
    after = play(certain(plain(), NO_BALL, runs=4), begin(legal=3, bowler=9))
    assert (int(after.score), int(after.legal), bool(after.free_hit)) == (5, 3, True)
    assert int(after.faced[0]) == 1, "a no-ball is faced"


def test_a_free_hit_survives_a_wide_and_a_further_no_ball() -> None:
    wide = play(certain(plain(), WIDE), begin(free_hit=True))
    assert bool(wide.free_hit)
    again = play(certain(plain(), NO_BALL), wide)
    assert bool(again.free_hit)
    assert not bool(play(certain(plain(), DOT), again).free_hit)


def test_only_a_run_out_is_possible_on_a_free_hit() -> None:
    settings = certain(plain(), WICKET)
    settings = settings._replace(model=settings.model._replace(run_out=np.full((3, 20), 0.5, np.float32)))
    for u in np.linspace(0.01, 0.99, 23):
        after = play(settings, begin(free_hit=True), u=float(u))
        assert HOWS[int(after.ball.how)] == "run out"


def test_a_wicket_that_could_only_be_bowled_cannot_fall_on_a_free_hit() -> None:
    settings = certain(plain(), WICKET, how="bowled")
    base = np.asarray(settings.model.base).reshape(3, 2, 20, 10).copy()
    base[..., DOT] = 0.0
    settings = settings._replace(model=settings.model._replace(base=base.reshape(-1)))
    assert int(play(settings, begin()).wickets) == 1
    assert int(play(settings, begin(free_hit=True)).wickets) == 0


def test_the_new_batter_takes_strike_after_a_catch() -> None:
    after = play(certain(plain(), WICKET, how="caught"), begin(), bat=next_in(4))
    assert (int(after.striker), int(after.other), int(after.wickets)) == (4, 1, 1)
    assert int(after.ball.out) == 0
    assert [int(x) for x in after.faced] == [0, 0]


def test_after_a_catch_off_the_last_ball_the_non_striker_faces() -> None:
    after = play(certain(plain(), WICKET, how="caught"), begin(legal=5, bowler=9), bat=next_in(2))
    assert (int(after.striker), int(after.other)) == (1, 2)


@pytest.mark.parametrize("striker_out", [True, False])
def test_a_run_out_counts_the_completed_run_and_the_batters_have_crossed(striker_out: bool) -> None:
    settings = certain(plain(), WICKET, how="run out", runs=1, striker_out=striker_out)
    after = play(settings, begin(), bat=next_in(2))
    assert (int(after.score), int(after.wickets)) == (1, 1)
    assert int(after.ball.out) == (0 if striker_out else 1)
    # two crossings: the new batter stands where the one who is out stood
    assert (int(after.striker), int(after.other)) == ((2, 1) if striker_out else (0, 2))


def test_a_batter_cannot_come_in_twice() -> None:
    after = play(certain(plain(), WICKET, how="bowled"), begin(), bat=next_in(1))
    assert int(after.striker) == 2, "the choice was not open, so the first waiting batter comes in"
    mask = np.asarray(legal(plain(), after, 0)[4])
    assert np.flatnonzero(mask).tolist() == list(range(3, 11))


def test_byes_are_credited_to_no_batter() -> None:
    after = play(certain(plain(), BYE, runs=1), begin())
    assert (int(after.score), int(after.striker), int(laws.extras(after.ball))) == (1, 1, 1)


def test_a_bowler_may_not_bowl_two_overs_in_a_row() -> None:
    assert 9 not in may(plain(), begin(legal=6, last_bowler=9, overs=(0, 1 << 12)))


def test_the_bowler_cannot_be_changed_within_an_over_even_after_a_wide() -> None:
    after = play(certain(plain(), WIDE), begin(), bowl=bowler(9))
    assert may(plain(), after) == {9}
    again = play(certain(plain(), DOT), after, bowl=bowler(8))
    assert int(again.ball.bowler) == 9


def overs_word(counts: dict[int, int]) -> tuple[int, int]:
    low = sum(n << (4 * i) for i, n in counts.items() if i < 6)
    return low, sum(n << (4 * (i - 6)) for i, n in counts.items() if i >= 6)


@pytest.mark.parametrize(
    ("overs", "counts", "barred"),
    [
        (20, {9: 4, 8: 4, 7: 3}, {9, 8}),
        (5, {9: 1, 8: 1}, {9, 8}),
        (7, {9: 2, 8: 1}, {9}),  # one more bowler may bowl two
        (7, {9: 2, 8: 2, 7: 1}, {9, 8, 7}),  # both have bowled two
        (4, {9: 1, 8: 1, 7: 1}, {9, 8, 7}),
        (13, {9: 3, 8: 3, 7: 2}, {9, 8}),
        (13, {9: 3, 8: 3, 7: 3, 6: 2}, {9, 8, 7, 6}),
    ],
)
def test_a_bowlers_limit_is_a_fifth_and_the_remainder_is_shared(
    overs: int, counts: dict[int, int], barred: set[int]
) -> None:
    settings = plain(overs)
    state = begin(legal=6, overs=overs_word(counts))
    keeper = int(settings.sides.keeper[1])
    assert may(settings, state) == set(range(11)) - barred - {keeper}


def test_the_powerplay_has_the_length_of_the_playing_conditions() -> None:
    known = {5: 9, 6: 11, 7: 13, 8: 14, 9: 16, 10: 18, 11: 20, 12: 22, 13: 23, 14: 25, 15: 27, 16: 29, 17: 31}
    known |= {18: 32, 19: 34, 20: 36}
    assert {n: powerplay_balls(n) for n in known} == known
    if CHECKLIST.is_file():
        table = json.loads(CHECKLIST.read_text())["powerplay_balls_by_innings_length"]
        assert {int(n): balls for n, balls in table.items()} == known


def test_the_powerplay_allows_two_fielders_outside_the_ring() -> None:
    early, late = (np.asarray(legal(plain(), begin(legal=n), 1)[2]) for n in (35, 36))
    assert early.tolist() == [True, True, False, False]
    assert late.all()
    after = play(certain(plain(), DOT), begin(), bowl=(2, 2, 3, 9, 0))
    assert int(after.ball.field) == 1, "a field against the ring limit is played as balanced"


def chase(score: int, first: int, **fields: Any) -> Any:
    return begin(batting=1, second=True, score=score, first=first, deliveries=120, **fields)


def test_a_six_passes_the_target_and_ends_the_match_at_once() -> None:
    after = play(certain(plain(), SIX), chase(150, 151, legal=60))
    assert (bool(after.over), int(after.winner), int(after.score)) == (True, 1, 156)


def test_a_wide_can_win_the_match() -> None:
    after = play(certain(plain(), WIDE), chase(150, 150, legal=60))
    assert (bool(after.over), int(after.winner)) == (True, 1)


def test_ten_wickets_end_the_innings() -> None:
    state = begin(legal=50, score=77, wickets=9, striker=9, other=10, batted=2047, bowler=9)
    after = play(certain(plain(), WICKET, how="bowled"), state)
    assert (bool(after.second), int(after.batting), int(after.first), int(after.first_wickets)) == (True, 1, 77, 10)
    assert (int(after.score), int(after.wickets), int(after.legal), int(after.striker)) == (0, 0, 0, 0)
    assert not bool(after.free_hit)


def test_the_last_over_ends_the_innings_and_the_match() -> None:
    after = play(certain(plain(5), DOT), begin(legal=29, score=40, bowler=9))
    assert (bool(after.second), int(after.first)) == (True, 40)
    last = play(certain(plain(5), DOT), chase(39, 40, legal=29, bowler=9))
    assert (bool(last.over), int(last.winner)) == (True, 0)


def test_a_tie_goes_to_super_overs_until_decided() -> None:
    tied = play(certain(plain(5), ONE), chase(39, 40, legal=29, bowler=9))
    assert (int(tied.supers), bool(tied.over), int(tied.batting), bool(tied.second)) == (1, False, 1, False)
    dots = certain(plain(5), DOT)
    state = tied
    first_bowlers = []
    for _ in range(2):  # both sides fail to score: a second super over
        for _ in range(6):
            state = play(dots, state, bowl=bowler(int(min(may(dots, state)))))
        first_bowlers.append(int(state.super_bowlers[1 - int(tied.batting)]))
    assert (int(state.supers), bool(state.over), int(state.batting)) == (2, False, 0)
    # the side that batted second in the tied super over bats first in the next, and the last bowler may not bowl
    assert int(state.super_bowlers[1]) not in may(dots, state)
    for _ in range(6):
        state = play(dots, state, bowl=bowler(int(min(may(dots, state)))))
    assert bool(state.second)
    won = play(certain(plain(5), ONE), state, bowl=bowler(int(min(may(dots, state)))))
    assert (bool(won.over), int(won.winner)) == (True, 1)


def test_two_wickets_end_a_super_over() -> None:
    state = play(certain(plain(5), ONE), chase(39, 40, legal=29, bowler=9))
    out = certain(plain(5), WICKET, how="bowled")
    once = play(out, state)
    assert (int(once.wickets), bool(once.second)) == (1, False)
    assert np.asarray(legal(plain(5), once, 1)[4]).sum() == 1, "no fourth batter"
    twice = play(out, once)
    assert (bool(twice.second), int(twice.batting), int(twice.first)) == (True, 0, 0)


def test_a_finished_match_does_not_change() -> None:
    after = play(certain(plain(), SIX), chase(150, 151, legal=60))
    again = play(certain(plain(), SIX), after)
    assert int(again.score) == 156
    assert int(again.deliveries) == int(after.deliveries)


def test_each_side_chooses_its_own_heads() -> None:
    sizes = [[int(np.asarray(m).sum()) for m in legal(plain(), begin(), seat)] for seat in (0, 1)]
    assert sizes[0] == [5, 1, 1, 1, 9]
    assert sizes[1] == [1, 6, 2, 10, 1]
