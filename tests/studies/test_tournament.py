"""Tournaments: ratings follow from head-to-head results, and an interrupted one pays for nothing twice."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from kibitz.cli.studies.tournament import _table
from kibitz.core.errors import BadInput
from kibitz.core.play.player import Choice, PlayerFailed
from kibitz.evaluate.match import Side
from kibitz.players.llm import llm_player
from kibitz.studies.tournaments import field, ratings
from kibitz.studies.tournaments.journal import FILE, Journal
from kibitz.studies.tournaments.ratings import MEAN_RATING, rate
from kibitz.studies.tournaments.standings import report, standings
from kibitz.studies.tournaments.tournament import TournamentPlan, play, stored_header
from tests.cli.test_interrupt import running
from tests.conftest import ROOT, Finished
from tests.live.machines import wait_until
from tests.llm.fake_server import FakeServer
from tests.studies.conftest import PaidModel, preset_file
from tests.train import toy


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """A cached player would remember an earlier test's server."""
    llm_player.cache_clear()
    yield
    llm_player.cache_clear()


GAME = toy.game()
OPTIONS = toy.ToyOptions(rounds=2)
WITHOUT_CLOCK = ("seconds",)


def rows_of(results: dict[tuple[str, str], list[tuple[float, float]]], **tallies: Any) -> list[dict[str, Any]]:
    return [
        {"kind": "games", "one": one, "other": other, "first": 0, "returns": returns}
        for (one, other), returns in results.items()
    ]


def tally(turns: int, fallbacks: int = 0, money: float = 0.0, **failures: int) -> dict[str, Any]:
    cost = {"prompt_tokens": 10 * turns, "completion_tokens": turns, "money": money, "seconds": 1.0}
    return {"turns": turns, "fallbacks": fallbacks, "failures": failures, **cost}


def timeless(found: dict[str, Any]) -> dict[str, Any]:
    players = [{key: value for key, value in one.items() if key not in WITHOUT_CLOCK} for one in found["players"]]
    return {"players": players, "matrix": found["matrix"]}


def test_ratings_recover_the_odds_and_stay_finite_for_a_player_that_always_wins() -> None:
    rng = np.random.default_rng(0)
    strengths = np.array([0.0, 1.0, 2.0])
    points = {
        (i, j): rng.binomial(2, 1 / (1 + np.exp(strengths[j] - strengths[i])), 2000) / 2
        for i in range(3)
        for j in range(i)
    }
    found = rate(points, 3)
    for rating, strength in zip(found, strengths, strict=True):
        assert rating.value == pytest.approx(MEAN_RATING + 173.7 * (strength - 1), abs=12)
        assert rating.ci95[0] < rating.value < rating.ci95[1] < rating.value + 20
    best, _ = rate({(0, 1): np.ones(5)}, 2)
    assert best.value < 2500 and best.ci95[1] - best.ci95[0] > 100
    alone, _ = rate({(0, 1): np.ones(1)}, 2)
    assert np.isnan(alone.ci95).all()


@pytest.mark.conformance  # 200 tournaments of three players, each rated 61 times
@pytest.mark.parametrize("pairs", [10, 40])
def test_intervals_of_ratings_hold_the_truth_in_95_percent_of_tournaments(
    pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ratings, "RESAMPLES", 60)
    strengths, rng = np.array([-1.0, 0.0, 1.0]), np.random.default_rng(pairs)
    truth = MEAN_RATING + ratings.ELO_PER_LOGIT * strengths
    pairings = [(i, j) for i in range(3) for j in range(i)]
    held = []
    for _ in range(200):
        chances = {(i, j): 1 / (1 + np.exp(strengths[j] - strengths[i])) for i, j in pairings}
        found = rate({pairing: rng.binomial(2, chance, pairs) / 2 for pairing, chance in chances.items()}, 3)
        held += [one.ci95[0] <= wanted <= one.ci95[1] for one, wanted in zip(found, truth, strict=True)]
    assert 0.93 < np.mean(held) < (0.99 if pairs == 10 else 0.98)  # cautious: see the docstring of `rate`


def test_an_unfinished_tournament_of_groups_that_never_met_is_rated_without_intervals() -> None:
    found = rate({(0, 1): np.array([1.0, 1.0, 0.5]), (2, 3): np.array([0.0, 0.0])}, 4)
    assert found[0].value > found[1].value and found[3].value > found[2].value
    assert all(np.isnan(rating.ci95).all() for rating in found)
    met = rate({(0, 1): np.array([1.0, 1.0, 0.5]), (1, 2): np.array([0.0, 0.5])}, 3)
    assert not any(np.isnan(rating.ci95).any() for rating in met)


def test_a_tournament_says_whose_hints_its_players_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adviser = "the reference player 'oracle'"
    monkeypatch.setitem(GAME.bots, "advised", replace(GAME.bots["heuristic"], name="advised", hints_from=adviser))  # type: ignore[arg-type]
    plan = TournamentPlan(GAME, OPTIONS, ("advised", "random"), 2)
    played = play(plan, tmp_path / "out")
    found = standings(plan.players, 2, played.rows, played.hints_from)
    assert {one["name"]: one["hints_from"] for one in found.players} == {"advised": adviser, "random": "none"}
    about = {"game": toy.NAME, "unfinished": ""}
    report(found, "A", {"command": "kibitz"}, about).write(tmp_path, "tournament")
    assert adviser in (tmp_path / "tournament.md").read_text(encoding="utf-8")
    told = _table(found.as_dict() | about | {"episodes": 2, "pack": None, "seed": 0})
    assert [column.header for column in told.columns][-1] == "hints from"


def test_a_few_wins_are_no_proof_of_who_is_better() -> None:
    few = standings(["a", "b"], 4, rows_of({("a", "b"): [(1.0, 0.0)] * 4}))
    many = standings(["a", "b"], 40, rows_of({("a", "b"): [(1.0, 0.0)] * 40}))
    shown = [report(one, "A", {"command": "kibitz"}, {"unfinished": ""}).verdicts[0].shown for one in (few, many)]
    assert shown == [False, True]


def test_the_order_agrees_with_the_pairwise_results() -> None:
    win, tie, loss = (3.0, 1.0), (2.0, 2.0), (0.0, 4.0)
    rows = rows_of({("a", "b"): [loss, loss, win, loss], ("a", "c"): [win, tie, win, win], ("b", "c"): [win] * 4})
    found = standings(["a", "b", "c"], 4, rows)
    assert [one["name"] for one in found.players] == ["b", "a", "c"]
    assert found.matrix["b"]["a"] | {"win_share_ci95": 0, "return_ci95": 0} == {
        "games": 4, "win_share": 0.75, "win_share_ci95": 0, "return_mean": 3.25, "return_ci95": 0,
    }  # fmt: skip
    shares = [one["win_share"] for one in found.players]
    assert shares == sorted(shares, reverse=True)
    json.dumps(found.as_dict(), allow_nan=False)


def test_the_summary_names_the_player_that_earns_most_if_another_one_wins_most() -> None:
    def summary(*games: tuple[float, float]) -> str:
        found = standings(["a", "b"], len(games), rows_of({("a", "b"): list(games)}))
        return report(found, "A", {"command": "kibitz"}, {"unfinished": ""}).summary

    won = (3.0, 2.0)
    assert summary(won, won, won, (0.0, 9.0)) == "a leads 2 players. b earns most: 3.75 a game against 2.25."
    assert summary(won, won) == "a leads 2 players."


def test_a_player_whose_turns_the_fallback_played_is_listed_and_not_rated() -> None:
    rows = rows_of({("a", "b"): [(1.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 0.0)]})
    for number in range(4):
        down = {"one": "a", "other": "down", "first": number, "returns": [[0.0, 5.0]]}
        rows.append(down | {"tallies": [tally(3), tally(3, 3, transport=3)]})
        shaky = {"one": "b", "other": "shaky", "first": number, "returns": [[0.0, 5.0]]}
        rows.append(shaky | {"tallies": [tally(4), tally(4, 1, money=0.5, illegal=1)]})
    found = standings(["down", "a", "b", "shaky"], 4, [row | {"kind": "games"} for row in rows])
    by_name = {one["name"]: one for one in found.players}
    assert [one["name"] for one in found.players][-1] == "down"
    down = by_name["down"]
    assert not down["rated"] and down["rating"] is None and down["win_share"] is None
    assert down["fallback_share"] == 1 and down["games_by_fallback"] == 4 and down["illegal_share"] == 0
    assert by_name["a"]["games"] == 4, "a game against a fallback is no game against the player"
    shaky = by_name["shaky"]
    assert shaky["rated"] and shaky["illegal_share"] == shaky["fallback_share"] == 0.25
    assert shaky["tokens"] == 4 * 44 and shaky["money"] == 2.0
    text = report(found, "A tournament", {"command": "kibitz"}, {"unfinished": ""}).as_markdown()
    assert "Not rated, because the fallback mostly played for them: down." in text
    assert "no: played by its fallback" in text


def test_a_record_loses_only_the_line_that_a_crash_cut_off(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.add({"kind": "tournament", "game": "x"})
        journal.add({"kind": "games", "one": "a", "other": "b", "first": 0, "returns": [[1, 0]]})
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"kind":"games","one":"a","oth')
    with Journal(tmp_path) as again:
        assert len(again.games) == 1 and again.header["game"] == "x"
        again.add({"kind": "games", "one": "a", "other": "b", "first": 1, "returns": [[1, 0]]})
    with Journal(tmp_path) as complete:
        assert len(complete.games) == 2
    (tmp_path / FILE).write_bytes(b"nonsense\n" + (tmp_path / FILE).read_bytes())
    with pytest.raises(BadInput, match="damaged in line 1"):
        Journal(tmp_path)


class Asked:
    """A player on the host that costs money, fails now and then, and remembers what it was asked."""

    def __init__(self, name: str, questions: Counter[Any], stop_after: int | None = None) -> None:
        self.name, self.questions, self.stop_after = name, questions, stop_after

    def begin(self, settings: Any, seat: int, luck: Any) -> None:
        self.luck, self.seat = tuple(np.asarray(luck).tolist()), seat

    def choose(self, turn: Any) -> Choice:
        if self.stop_after is not None and self.questions.total() >= self.stop_after:
            raise KeyboardInterrupt
        self.questions[self.luck, self.seat, turn.number] += 1
        if turn.number == 1:
            raise PlayerFailed("no idea", "not_json", usage={"prompt_tokens": 5, "completion_tokens": 0, "money": 0.25})
        return Choice((int(turn.view.lucky), 0), self.name, usage={"prompt_tokens": 7, "money": 0.5})


def test_an_interrupted_tournament_continues_and_asks_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(field, "GAMES_AT_ONCE", 1)
    resolve, questions, limit = field.side_of, Counter[Any](), [None]

    def side(game: Any, name: str) -> Any:
        host = Side(name, Asked(name, questions, limit[0]), None)
        return host if name == "paid" else resolve(game, name)

    monkeypatch.setattr(field, "side_of", side)
    plan = TournamentPlan(GAME, OPTIONS, ("paid", "oracle", "heuristic"), 4)
    whole = standings(plan.players, 4, play(plan, tmp_path / "whole").rows)
    asked = questions.copy()
    assert asked.total() == 8 * 2 and whole.players[-1]["name"] != "paid"
    questions.clear()
    for limit[0] in (3, 4, 9):
        with pytest.raises(KeyboardInterrupt):
            play(plan, tmp_path / "cut", resume=limit[0] != 3)
    limit[0] = None
    found = standings(plan.players, 4, play(plan, tmp_path / "cut", resume=True).rows)
    assert questions == asked
    assert timeless(found.as_dict()) == timeless(whole.as_dict())
    paid = next(one for one in found.players if one["name"] == "paid")
    assert paid["money"] == 8 * 0.75 and paid["fallback_share"] == paid["illegal_share"] == 0.5 and paid["rated"]
    assert play(plan, tmp_path / "cut", resume=True).rows and questions == asked, "nothing is left to ask"


def test_a_tournament_refuses_what_it_cannot_play(tmp_path: Path) -> None:
    for players, episodes, message in (
        (("random",), 4, "2 to 64"),
        (("random", "random"), 4, "twice"),
        (("random", "oracle"), 3, "even"),
        (("random", "nobody"), 4, "no player 'nobody'"),
        (("random", "human"), 4, "person"),
    ):
        with pytest.raises(BadInput, match=message):
            play(TournamentPlan(GAME, OPTIONS, players, episodes), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(BadInput, match="no tournament to resume"):
        play(TournamentPlan(GAME, OPTIONS, ("random", "oracle"), 4), tmp_path / "out", resume=True)
    (tmp_path / "notes.txt").touch()
    with pytest.raises(BadInput, match="not empty"):
        play(TournamentPlan(GAME, OPTIONS, ("random", "oracle"), 4), tmp_path)
    with pytest.raises(BadInput, match="no tournament to resume"):
        stored_header(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_start_that_was_killed_before_its_first_line_can_begin_again(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b'{"kind":"tournament","ga')
    played = play(TournamentPlan(GAME, OPTIONS, ("oracle", "heuristic"), 2), tmp_path)
    assert len(played.rows) == 1


def test_the_command_writes_every_form_and_resumes_with_more_games(
    tmp_path: Path, kibitz: Callable[..., Finished]
) -> None:
    out = str(tmp_path / "out")
    words = ("tournament", "--game", toy.NAME, "--players", "oracle,heuristic", "--out", out, "--json")
    done = kibitz(*words, "--episodes", "4", "--set", "rounds=2")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [one["name"] for one in found["players"]] == ["oracle", "heuristic"]
    assert {"rating", "rating_ci95", "games", "win_share", "return_mean", "illegal_share", "fallback_share", "tokens",
            "money", "seconds", "hints_from", "rated"} <= set(found["players"][0])  # fmt: skip
    assert found["matrix"]["oracle"]["heuristic"]["games"] == 4 and found["seed"] == 0 and found["version"]
    stored = json.loads((tmp_path / "out" / "tournament.json").read_text(encoding="utf-8"))
    assert stored["players"] == found["players"] and stored["command"].startswith("kibitz ")
    assert {"tournament.html", "tournament.md", "tournament_players.csv"} <= {
        p.name for p in (tmp_path / "out").iterdir()
    }
    more = kibitz("tournament", "--resume", "--out", out, "--episodes", "6", "--json")
    assert json.loads(more.stdout)["matrix"]["oracle"]["heuristic"]["games"] == 6
    assert len((tmp_path / "out" / FILE).read_text(encoding="utf-8").splitlines()) == 4  # two headers, two batches
    record = (tmp_path / "out" / FILE).read_bytes()
    other = kibitz(*words, "--resume", "--seed", "9", "--episodes", "8")
    assert other.returncode == 2 and "has seed 0, not 9" in other.stderr
    assert (tmp_path / "out" / FILE).read_bytes() == record, "a refused command changes nothing"


def test_a_model_is_asked_within_a_budget_and_a_failing_one_is_not_rated(
    tmp_path: Path, fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIBITZ_LLM_PRESETS", str(preset_file(tmp_path, fake)))
    monkeypatch.setenv("FAKE_KEY", "sk-fake")
    monkeypatch.setattr(field, "GAMES_AT_ONCE", 1)  # games at once share the calls of identical positions
    fake.counts.clear()
    plan = TournamentPlan(GAME, OPTIONS, ("llm:obliging", "llm:dead", "oracle"), 2, money=0.0015)  # four answers
    first = play(plan, tmp_path / "out")
    assert "budget" in first.unfinished and 0 < fake.counts["obliging"] <= 4
    rest = play(TournamentPlan(GAME, OPTIONS, plan.players, 2), tmp_path / "out", resume=True)
    found = standings(plan.players, 2, rest.rows)
    assert not rest.unfinished and fake.counts["obliging"] == 4 * OPTIONS.rounds, "every call was made once"
    dead = found.players[-1]
    assert dead["name"] == "llm:dead" and not dead["rated"] and dead["failures"] == {"transport": 8}
    model = next(one for one in found.players if one["name"] == "llm:obliging")
    assert model["rated"] and model["tokens"] == 8 * 320 and model["money"] == pytest.approx(8 * 340e-6)


def test_all_models_of_a_tournament_share_its_budget(
    tmp_path: Path, fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    presets = yaml.safe_load(preset_file(tmp_path, fake).read_text(encoding="utf-8"))["presets"]
    both = {"presets": {"one": presets["obliging"], "two": presets["obliging"]}}
    (tmp_path / "two.yaml").write_text(yaml.safe_dump(both), encoding="utf-8")
    monkeypatch.setenv("KIBITZ_LLM_PRESETS", str(tmp_path / "two.yaml"))
    monkeypatch.setenv("FAKE_KEY", "sk-fake")
    fake.counts.clear()
    plan = TournamentPlan(GAME, OPTIONS, ("llm:one", "llm:two"), 8, money=0.0015)
    played = play(plan, tmp_path / "out")
    assert "budget" in played.unfinished
    with Journal(tmp_path / "out") as journal:
        assert 0 < journal.money <= plan.money
    assert 340e-6 * fake.counts["obliging"] <= plan.money, "340 millionths for each answer"
    assert stored_header(tmp_path / "out")["money"] == plan.money, "so that --resume does not lift the limit"
    asked = fake.counts["obliging"]
    assert play(plan, tmp_path / "out", resume=True).unfinished == "the budget of 0.0015 is spent"
    assert 340e-6 * fake.counts["obliging"] <= plan.money and fake.counts["obliging"] <= asked + 1


def recorded(record: Path) -> int:
    """Decisions on disk, without a line that a kill has cut off."""
    lines = record.read_bytes().splitlines(keepends=True) if record.exists() else []
    return sum(b'"kind":"decision"' in line for line in lines if line.endswith(b"\n"))


def wait_for_decisions(record: Path, count: int, process: subprocess.Popen[bytes]) -> None:
    while recorded(record) < count:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


@pytest.mark.conformance
def test_killed_at_five_moments_it_ends_with_the_same_table_and_every_paid_call_made_once(
    tmp_path: Path, paid_model: PaidModel, kibitz: Callable[..., Finished]
) -> None:
    words = ["tournament", "--players", "llm:obliging,heuristic", "--episodes", "20", "--json", "--out"]
    whole = kibitz(*words, str(tmp_path / "whole"))
    assert whole.returncode == 0, whole.stderr
    paid = paid_model.received.copy()
    assert paid.total() > 20 and max(paid.values()) == 1  # no two positions are the same
    paid_model.received.clear()

    record, more = tmp_path / "cut" / FILE, list[str]()
    for paid_model.gate in sorted(random.Random(7).sample(range(1, paid.total()), 5)):
        full = [sys.executable, "-m", "kibitz", *words, str(tmp_path / "cut"), *more]
        with subprocess.Popen(full, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            wait_for_decisions(record, paid_model.gate, process)
            process.kill()
            assert process.wait() == -signal.SIGKILL
        more = ["--resume"]
    paid_model.gate = sys.maxsize
    last = kibitz(*words, str(tmp_path / "cut"), "--resume")
    assert last.returncode == 0, last.stderr
    assert timeless(json.loads(last.stdout)) == timeless(json.loads(whole.stdout))
    assert paid_model.received == paid


@pytest.mark.conformance
def test_killed_at_any_moment_it_repeats_at_most_the_calls_in_flight(
    tmp_path: Path, paid_model: PaidModel, kibitz: Callable[..., Finished]
) -> None:
    """Nothing keeps the model from answering, so a kill may come between an answer and its line in the record."""
    words = ["tournament", "--players", "llm:obliging,heuristic", "--episodes", "40", "--json", "--out"]
    whole = kibitz(*words, str(tmp_path / "whole"))
    assert whole.returncode == 0, whole.stderr
    paid = paid_model.received.copy()
    paid_model.received.clear()
    paid_model.seconds = 0.05  # several calls are in flight at any moment

    chance, record, more, lost = random.Random(11), tmp_path / "cut" / FILE, list[str](), 0
    for count in sorted(chance.sample(range(1, paid.total() - field.GAMES_AT_ONCE), 5)):
        full = [sys.executable, "-m", "kibitz", *words, str(tmp_path / "cut"), *more]
        with subprocess.Popen(full, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            while paid_model.received.total() < count + lost:
                assert process.poll() is None, process.communicate()
                time.sleep(0.001)
            time.sleep(chance.uniform(0, 0.1))
            process.kill()
            assert process.wait() == -signal.SIGKILL
        before, lost = lost, paid_model.received.total() - recorded(record)
        assert lost - before <= field.GAMES_AT_ONCE, "a kill loses no more than the calls in flight"
        more = ["--resume"]
    last = kibitz(*words, str(tmp_path / "cut"), "--resume")
    assert last.returncode == 0, last.stderr
    assert timeless(json.loads(last.stdout)) == timeless(json.loads(whole.stdout))
    assert set(paid_model.received) == set(paid)
    assert paid_model.received.total() - len(paid) <= 5 * field.GAMES_AT_ONCE


@pytest.mark.conformance
def test_ctrl_c_with_two_workers_leaves_none_running_and_every_paid_call_is_made_once(
    tmp_path: Path, paid_model: PaidModel, kibitz: Callable[..., Finished]
) -> None:
    words = ["tournament", "--players", "llm:obliging,heuristic", "--episodes", "40", "--json", "--out"]
    alone = kibitz(*words, str(tmp_path / "alone"))
    assert alone.returncode == 0, alone.stderr
    paid = paid_model.received.copy()
    paid_model.received.clear()

    record, paid_model.gate = tmp_path / "shared" / FILE, paid.total() // 2
    full = [sys.executable, "-m", "kibitz", *words, str(tmp_path / "shared"), "--workers", "2"]
    with subprocess.Popen(full, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_for_decisions(record, paid_model.gate, process)
        workers = children(process.pid)
        assert len(workers) >= 2
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130, process.communicate()
    wait_until(lambda: not any(map(running, workers)), what="the end of the workers")
    paid_model.gate = sys.maxsize
    rest = kibitz(*words, str(tmp_path / "shared"), "--workers", "2", "--resume")
    assert rest.returncode == 0, rest.stderr
    assert timeless(json.loads(rest.stdout)) == timeless(json.loads(alone.stdout))
    assert paid_model.received == paid


def children(parent: int) -> list[int]:
    """Processes that this one has started, without the helper of `multiprocessing` that ends after them."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (path / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            if int(fields[1]) == parent and b"resource_tracker" not in (path / "cmdline").read_bytes():
                found.append(int(path.name))
    return found
