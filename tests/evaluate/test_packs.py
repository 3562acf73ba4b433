"""Evaluation on packs: pairs cancel luck, batches and single matches are the same, regret has the right size."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from kibitz.cli.output import pack_table
from kibitz.cli.studies.evaluate import evaluate
from kibitz.core.errors import BadInput
from kibitz.core.play.packs import Pack
from kibitz.core.statistics import win_share_ci95
from kibitz.evaluate import packs
from kibitz.evaluate.match import Side, side_of
from kibitz.evaluate.packs import evaluate_pack, luck_of, paired, play_bots, play_hosts
from kibitz.games import get_game, get_pack, pack_names
from kibitz.games.cricket.chances import regret
from kibitz.games.cricket.options import CricketOptions
from tests.games.cricket.pitch import begin

GAME = get_game("cricket")
SMALL = """
about: A fresh match of two overs, and a chase with one of them left.
scenarios:
  - {seed: 3, overs: 2, count: 3}
  - {seed: 50, overs: 2, innings: 2, score: 11, wickets: 1, legal: 6, target: 24, side: bowl, count: 3}
"""


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more matches per call than a pack here has."""
    monkeypatch.setattr("kibitz.evaluate.packs.CHUNK", 12)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    path = tmp_path_factory.mktemp("packs") / "small.yaml"
    path.write_text(SMALL, encoding="utf-8")
    return get_pack("cricket", str(path))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    """Matches of several lengths, which are several programs."""
    path = tmp_path_factory.mktemp("packs") / "mixed.yaml"
    path.write_text(SMALL.replace("overs: 2, count", "overs: 1, count"), encoding="utf-8")
    return get_pack("cricket", str(path))


def _nothing(count: int) -> None:
    pass


@pytest.mark.conformance  # a program of its own, eight seconds to compile
def test_a_captain_against_itself_wins_exactly_one_of_every_pair(small: Pack) -> None:
    bot = GAME.bot("random")
    results = play_bots(GAME, small, (bot, bot), 4 * small.matches, 0, _nothing)
    assert set(results.returns[:, 0]) <= {0.0, 0.5, 1.0}
    assert (paired(results.returns[:, 0]) == 0.5).all()
    assert (paired(results.scores["run_difference"][:, 0]) == 0).all()
    found = evaluate_pack(GAME, small, "random", "random")
    low, high = found["win_share_ci95"]
    assert found["win_share"] == 0.5 and low < 0.5 < high


def sides_of(one: str, other: str) -> tuple[Side, Side]:
    return side_of(GAME, one), side_of(GAME, other)


@pytest.mark.conformance  # twenty seconds
def test_host_players_play_and_are_judged_like_compiled_bots(mixed: Pack) -> None:
    sides, bots = sides_of("aggressive", "random"), (GAME.bot("aggressive"), GAME.bot("random"))
    host = play_hosts(GAME, mixed, sides, 14, 0, _nothing)  # goes round again
    batch = play_bots(GAME, mixed, bots, 14, 0, _nothing)
    np.testing.assert_array_equal(host.returns, batch.returns)
    np.testing.assert_array_equal(host.turns, batch.turns)
    np.testing.assert_allclose(host.lost, batch.lost, atol=1e-4)
    assert not any(tally.fallbacks for tally in host.tallies.seats)


@pytest.mark.conformance
def test_another_round_and_another_seed_have_other_luck(small: Pack) -> None:
    bots = (GAME.bot("aggressive"), GAME.bot("random"))
    twice = play_bots(GAME, small, bots, 2 * small.matches, 0, _nothing).turns[:, 0]
    other = play_bots(GAME, small, bots, small.matches, 1, _nothing).turns[:, 0]
    assert (twice[: small.matches] != twice[small.matches :]).any()
    np.testing.assert_array_equal(twice[small.matches :], other)


def test_the_interval_is_that_of_pairs(small: Pack) -> None:
    found = evaluate_pack(GAME, small, "aggressive", "random", 40)
    bots = (GAME.bot("aggressive"), GAME.bot("random"))
    pairs = paired(play_bots(GAME, small, bots, 40, 0, _nothing).returns[:, 0])
    assert found["win_share"] == pytest.approx(pairs.mean())
    assert found["win_share_ci95"] == list(win_share_ci95(pairs)[1])
    assert found["regret_ci95"][0] < found["regret"] < found["regret_ci95"][1]
    alone = evaluate_pack(GAME, small, "aggressive", "random", 2)
    assert alone["win_share_ci95"] == alone["return_ci95"] == [None, None]
    assert found["pairs"] == 20 and found["episodes"] == 40


def test_ctrl_c_keeps_the_pairs_that_have_ended(small: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = evaluate_pack(GAME, small, "aggressive", "random", 10)
    batches = packs._batches

    def cut(*given: Any) -> Iterator[Any]:
        first = next(batches(*given))
        del first[max(first)]  # a pair of two groups, of which one has ended
        yield first
        raise KeyboardInterrupt

    monkeypatch.setattr(packs, "_batches", cut)
    found = evaluate_pack(GAME, small, "aggressive", "random", 40)
    assert found["interrupted"] and (found["episodes"], found["pairs"]) == (10, 5)
    for measure in ("win_share", "regret", "run_difference"):
        assert found[measure] == pytest.approx(whole[measure])
    with pytest.raises(KeyboardInterrupt):  # those who need every match
        play_bots(GAME, small, (GAME.bot("aggressive"), GAME.bot("random")), 40, 0, _nothing)


def test_the_result_covers_both_players(small: Pack) -> None:
    seen: list[int] = []
    found = evaluate_pack(GAME, small, "aggressive", "random", progress=seen.append)
    wanted = {"win_share", "win_share_ci95", "run_difference", "regret", "fallbacks", "money", "prompt_tokens"}
    assert wanted <= set(found) and wanted <= set(found["opponent"])
    assert sum(seen) == found["episodes"] == small.matches == 12
    assert found["win_share"] + found["opponent"]["win_share"] == 1
    assert found["run_difference"] == -found["opponent"]["run_difference"]
    json.dumps(found, allow_nan=False)


def test_a_random_captain_has_more_regret_than_a_sensible_one(small: Pack) -> None:
    found = evaluate_pack(GAME, small, "aggressive", "random", 60)
    assert 0 < found["regret"] < found["opponent"]["regret"] < 1


def test_an_odd_number_of_matches_and_unknown_packs_and_players_are_refused(small: Pack) -> None:
    with pytest.raises(BadInput, match="must be even"):
        evaluate_pack(GAME, small, "balanced", "balanced", 3)
    with pytest.raises(BadInput, match="no player 'nobody'"):
        evaluate_pack(GAME, small, "nobody", "balanced")
    with pytest.raises(BadInput, match="choose one of default, "):
        get_pack("cricket", "nothing")
    with pytest.raises(BadInput, match="deal_or_no_deal has no packs"):
        get_pack("deal_or_no_deal", "default")
    assert pack_names("deal_or_no_deal") == ()


# regret, on positions where the answer is plain


def _lost(options: CricketOptions, state: Any, bat: tuple[int, ...], bowl: tuple[int, ...]) -> Any:
    settings = options.settings()
    acts = tuple(tuple(jnp.int32(x) for x in act) for act in (bat, bowl))
    return np.asarray(jax.jit(regret.lost)(regret.tables(options), settings, state, acts))


def test_blocking_when_six_are_needed_off_the_last_ball_is_regretted() -> None:
    options = CricketOptions(max_overs=5, pool=2)
    state = begin(second=True, first=60, score=55, legal=29, wickets=2, bowler=8, last_bowler=9)
    block, slog = (_lost(options, state, (intent, 2, 1, 0, 5), (2, 2, 1, 8, 0)) for intent in (0, 4))
    assert slog[0] == 0 and block[0] > 0.02
    assert slog[1] == block[1]  # the bowling captain is judged for its own choice alone


def test_slogging_when_one_run_is_needed_off_many_balls_is_regretted() -> None:
    options = CricketOptions(max_overs=5, pool=2)
    state = begin(second=True, first=40, score=40, legal=12, wickets=9, bowler=8, last_bowler=9)
    rotate, slog = (_lost(options, state, (intent, 2, 1, 0, 0), (2, 2, 1, 8, 0)) for intent in (1, 4))
    assert rotate[0] < slog[0]


def test_there_is_no_regret_in_a_super_over_or_after_the_end() -> None:
    options = CricketOptions(max_overs=5, pool=2)
    for state in (begin(supers=1, bowler=8), begin(over=True, winner=1)):
        assert (_lost(options, state, (0, 2, 1, 0, 5), (2, 5, 0, 8, 0)) == 0).all()


def test_the_batting_seat_is_judged_for_its_intent() -> None:
    options = CricketOptions(max_overs=5, pool=2)
    position = {"second": True, "first": 60, "score": 55, "legal": 29, "wickets": 2, "bowler": 8, "last_bowler": 9}
    mine = _lost(options, begin(0, **position), (0, 2, 1, 0, 5), (2, 1, 0, 8, 0))
    theirs = _lost(options, begin(1, **position), (2, 1, 0, 8, 0), (0, 2, 1, 0, 5))
    # other elevens bat, so the numbers differ a little, but not their signs
    assert mine[0] > 0.02 and theirs[1] > 0.02


# the command


def test_the_command_prints_one_object_and_refuses_an_unknown_pack(
    kibitz: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("about: Two overs.\nscenarios: [{seed: 3, overs: 2, count: 2}]\n", encoding="utf-8")
    words = ("evaluate", "--game", "cricket", "--player", "aggressive", "--opponent", "random", "--json")
    done = kibitz(*words, "--pack", str(path))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["episodes"] == 4 and found["pack"] == str(path)
    wrong = kibitz(*words, "--pack", "nothing")
    assert wrong.returncode == 2 and "choose one of default" in wrong.stderr and not wrong.stdout


def test_people_get_a_table_with_both_players(small: Pack) -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(pack_table(evaluate_pack(GAME, small, "aggressive", "random", 40)))
    text = console.export_text()
    for word in (
        "aggressive",
        "random",
        "win share",
        " to ",
        "run difference",
        "regret",
        "40 matches",
    ):
        assert word in text, word
    assert "fallbacks" not in text and "money" not in text  # two bots cost nothing


def test_a_pack_cannot_be_combined_with_other_options() -> None:
    with pytest.raises(BadInput, match="--pack cannot be combined"):
        evaluate(player="balanced", game="cricket", pack="default", options=["max_overs=3"])


@pytest.mark.conformance
@pytest.mark.parametrize("seed", [3_000_000_000, 2**63 - 1])
def test_every_seed_has_its_own_matches(small: Pack, seed: int) -> None:
    """Matches of different rounds and seeds differ, batched and one by one."""
    count = 2 * small.matches
    drawn = {luck_of(small, i, each) for i in range(0, count, 2) for each in (seed, seed % 2**31 + 2)}
    assert len(drawn) == 2 * count // 2
    bots = (GAME.bot("random"), GAME.bot("balanced"))
    batched = play_bots(GAME, small, bots, 14, seed, lambda n: None)
    single = play_hosts(GAME, small, sides_of("random", "balanced"), 14, seed, lambda n: None)
    assert np.array_equal(batched.returns, single.returns)


def test_small_seeds_keep_their_luck(small: Pack) -> None:
    assert luck_of(small, 0, 7) == (small.seed(0), 7)
    assert luck_of(small, small.matches + 3, 7) == (small.seed(3), 8)
