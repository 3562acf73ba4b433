"""`kibitz export`: recorded episodes become rows that other tools read, with a model's own words."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kibitz.evaluate.judges.classifier import episode_features
from kibitz.evaluate.judges.episodes import draw, finished
from kibitz.evaluate.match import evaluate
from kibitz.evaluate.record import KeptEpisode, read_episodes
from kibitz.games import get_game, get_pack
from kibitz.players.llm import llm_player
from kibitz.teach.records import seats
from kibitz.teach.records.formats import Wanted, rows
from kibitz.teach.records.judged import labelled_folder
from tests.advice.conftest import fake, presets
from tests.conftest import Finished
from tests.llm.fake_server import LINE, FakeServer
from tests.train import toy

__all__ = ["fake", "presets"]
Command = Callable[..., Finished]


@pytest.fixture(autouse=True)
def toy_game() -> Iterator[None]:
    toy.register()
    llm_player.cache_clear()
    yield
    toy.unregister()
    llm_player.cache_clear()


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Three episodes of the toy: `random` in seat 0, which errs, and the best player in seat 1."""
    game = get_game(toy.NAME)
    evaluate(game, game.options(), "random", "oracle", 3, seed=1, out=tmp_path / "kept")
    return tmp_path / "kept"


@pytest.mark.usefixtures("fake", "presets")
def test_judges_read_kept_episodes_like_those_drawn_with_the_same_seed(kibitz: Command, tmp_path: Path) -> None:
    toy_game = get_game(toy.NAME)
    evaluate(toy_game, toy_game.options(), "heuristic", "random", 4, seed=1, out=tmp_path / "kept")
    game, found = labelled_folder(tmp_path / "kept", 3)  # the first three
    drawn = draw(game, game.options(), 3, ["heuristic"], "random", seed=1)
    assert [finished(game, found, i).history for i in range(3)] == [finished(game, drawn, i).history for i in range(3)]
    assert found.returns.tolist() == drawn.returns.tolist()
    assert {name: list(shown) for name, shown in found.shown.items()} == {
        name: list(shown) for name, shown in drawn.shown.items()
    }
    np.testing.assert_allclose(episode_features(game, found), episode_features(game, drawn))
    done = kibitz("judge", "evaluate", "--judge", "llm:fake-good", "--folder", str(tmp_path / "kept"), "--json")
    assert done.returncode == 0, done.stderr
    judged = json.loads(done.stdout)
    assert (judged["game"], judged["episodes"]) == (toy.NAME, 4)
    words = ("judge", "evaluate", "--judge", "llm:fake-good", "--folder", str(tmp_path / "kept"), "--game", "cricket")
    done = kibitz(*words)
    assert done.returncode == 2 and f"holds episodes of {toy.NAME}; omit --game cricket" in done.stderr


@pytest.mark.conformance
def test_judges_read_an_episode_that_ended_before_a_seat_acted(tmp_path: Path) -> None:
    game = get_game("deal_or_no_deal")
    evaluate(game, game.options(), "random", "heuristic", 3, seed=0, out=tmp_path / "kept")
    _, found = labelled_folder(tmp_path / "kept", 3)
    assert found.turns.min() == 0 < found.turns.max()


def exported(kibitz: Command, source: Path | str, kind: str, *more: str) -> list[dict[str, Any]]:
    file = Path(str(source) + f".{kind}.jsonl")
    file.unlink(missing_ok=True)
    done = kibitz("export", str(source), "--format", kind, "--out", str(file), *more, "--json")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert json.loads(done.stdout)["rows"] == len(rows)
    return rows


def test_every_decision_is_a_row_with_its_episodes_result(kibitz: Command, kept: Path) -> None:
    rows = exported(kibitz, kept, "jsonl")
    assert len(rows) == 3 * 4 * 2
    for row in rows:
        assert row["player"] == ("random", "oracle")[row["seat"]]
        assert row["messages"] is row["answer"] is row["failure"] is None
    returns = {(row["episode_id"], row["seat"]): row["return"] for row in rows}
    assert all(row["opponent_return"] == returns[row["episode_id"], 1 - row["seat"]] for row in rows)
    best = max(returns.values())
    strict = exported(kibitz, kept, "jsonl", "--min-return", str(best))
    assert strict == [row for row in rows if row["return"] == best]


def test_a_parquet_file_has_the_same_rows(kibitz: Command, kept: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")  # part of the extra `test`
    rows = exported(kibitz, kept, "jsonl")
    done = kibitz("export", str(kept), "--format", "parquet", "--out", str(tmp_path / "rows.parquet"))
    assert done.returncode == 0, done.stderr
    assert parquet.read_table(tmp_path / "rows.parquet").to_pylist() == rows


def test_supervised_rows_of_a_bot_ask_the_games_question(kibitz: Command, kept: Path) -> None:
    rows = exported(kibitz, kept, "sft", "--player", "oracle")
    assert len(rows) == 3 * 4
    for row in rows:
        assert [message["role"] for message in row["messages"]] == ["system", "user", "assistant"]
        assert json.loads(row["messages"][-1]["content"])["arm"] in (0, 1)


def test_a_prompt_has_the_values_of_its_own_seat_and_not_the_others(tmp_path: Path) -> None:
    game = get_game("deal_or_no_deal")
    evaluate(game, game.options(), "random", "heuristic", 1, seed=1, out=tmp_path / "kept")
    (kept,) = read_episodes(tmp_path / "kept")
    for seat, player in enumerate(("random", "heuristic")):
        prompts = [
            row["messages"][1]["content"] for row in rows(Wanted(str(tmp_path / "kept"), "sft", game.name, player))
        ]
        own, other = (
            ",".join(map(str, kept.events[0]["payload"]["private"][str(one)]["utilities"])) for one in (seat, 1 - seat)
        )
        assert prompts and all(own in text and other not in text for text in prompts)


def test_a_match_of_a_pack_is_replayed_with_the_options_of_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that the pack has today may differ: the default model of an era has changed."""
    played: list[Any] = []
    monkeypatch.setattr(seats, "replay", lambda game, settings, *rest: played.append(settings))
    first: dict[str, Any] = {"about": {"options": {"era": "pre2018"}}}
    last = {"match": 0, "seed": 1, "number": 0}
    events = [{"type": "episode.started", "payload": first}, {"type": "episode.ended", "payload": last}]
    kept = KeptEpisode(0, events)
    seats._positions(get_game("cricket"), get_pack("cricket", "default"), {}, kept)
    assert (np.asarray(played[0].model.tail) == 1).all(), "`shipped`, not `careful-tail`"
    assert int(played[0].era) == 0


def test_pairs_prefer_the_references_act(kibitz: Command, kept: Path) -> None:
    rows = exported(kibitz, kept, "dpo")
    assert 0 < len(rows) < 3 * 4  # `oracle` is the reference, so only acts of `random` are rejected
    for row in rows:
        lucky = int(row["prompt"][-1]["content"].partition("lucky")[2].split()[0].strip(":=.,") or 0)
        chosen, rejected = (json.loads(row[side][0]["content"]) for side in ("chosen", "rejected"))
        assert chosen["arm"] == lucky
        assert chosen != rejected


def test_a_models_own_words_are_kept_and_an_answer_that_failed_is_rejected(
    kibitz: Command, presets: FakeServer, tmp_path: Path
) -> None:
    game = get_game(toy.NAME)
    evaluate(game, game.options(), "llm:fake-good", "oracle", 1, out=tmp_path / "kept")  # its answers fit another game
    player = ("--player", "llm:fake-good")
    rows = exported(kibitz, tmp_path / "kept", "dpo", *player)
    assert [row["rejected"][0]["content"] for row in rows] == [LINE] * 4
    assert all(row["prompt"][0]["role"] == "system" for row in rows)
    decisions = exported(kibitz, tmp_path / "kept", "jsonl", *player)
    assert all(row["failure_kind"] == "wrong_shape" and row["answer"] == LINE for row in decisions)
    done = kibitz("export", str(tmp_path / "kept"), "--format", "sft", "--out", str(tmp_path / "none.jsonl"), *player)
    assert done.returncode == 2 and "nothing to export as sft" in done.stderr
    assert not (tmp_path / "none.jsonl").exists()


@pytest.mark.conformance  # compiles the negotiation's reference
def test_a_models_legal_answers_are_supervised_rows(kibitz: Command, presets: FakeServer, tmp_path: Path) -> None:
    game = get_game("deal_or_no_deal")
    evaluate(game, game.options(), "llm:fake-good", "heuristic", 1, seed=4, out=tmp_path / "kept")
    rows = exported(kibitz, tmp_path / "kept", "sft", "--player", "llm:fake-good")
    assert rows and all(row["messages"][-1] == {"role": "assistant", "content": LINE} for row in rows)


def test_a_stores_episodes_can_be_exported(kibitz: Command, kept: Path, tmp_path: Path) -> None:
    events = [
        event for row in (kept / "episodes.jsonl").read_text().splitlines() for event in json.loads(row)["events"]
    ]
    store = tmp_path / "events.jsonl"
    store.write_text("".join(json.dumps(event) + "\n" for event in events))
    rows = exported(kibitz, store, "jsonl", "--game", toy.NAME)
    assert rows == exported(kibitz, kept, "jsonl")
    assert len(exported(kibitz, store, "sft", "--game", toy.NAME)) == len(rows)


def test_what_cannot_be_exported_is_one_sentence(kibitz: Command, kept: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "there.jsonl").write_text("mine")
    new = str(tmp_path / "new.jsonl")
    for words, sentence in (
        ((str(tmp_path / "empty"), "--format", "sft", "--out", new), "holds no evaluation"),
        ((str(tmp_path / "nothing.db"), "--format", "jsonl", "--out", new), "There is no store"),
        ((str(tmp_path / "nothing.db"), "--format", "dpo", "--out", new), "Pairs need the model's own answers"),
        ((str(kept), "--format", "sft", "--out", str(tmp_path / "there.jsonl")), "exists; name another file"),
        ((str(kept), "--format", "xml", "--out", new), "'xml' is not one of"),
    ):
        done = kibitz("export", *words)
        assert done.returncode == 2 and sentence in done.stderr, done.stderr
    assert (tmp_path / "there.jsonl").read_text() == "mine"
    assert not Path(new).exists()
