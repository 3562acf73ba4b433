"""Rows for training: right answers, reproducible, whole after an interrupt, for any game."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.games import get_game
from kibitz.teach.examples.data import Lesson, write_rows
from tests.train import toy


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    toy.register()
    yield
    toy.unregister()


def minimal() -> Game:
    """The toy game as somebody writes it first: rules, and nothing else."""
    game = toy.build(False)
    return Game(name=game.name, heads=game.heads, options=game.options, rules=game.rules)


def rows_of(path: Path, game: Game, lesson: Lesson, rows: int) -> list[dict[str, Any]]:
    found = write_rows(path, game, game.default_options, lesson, rows)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert found["rows"] == len(lines) == rows
    return [json.loads(line) for line in lines]


def test_the_expert_answers_every_position(tmp_path: Path) -> None:
    game = replace(toy.build(False), words=minimal().words)
    for row in rows_of(tmp_path / "rows.jsonl", game, Lesson(expert="oracle"), 40):
        _, asked, answered = row["messages"]
        assert (asked["role"], answered["role"]) == ("user", "assistant")
        answer = json.loads(answered["content"])
        lucky, cap = (int(asked["content"].split(f"{name} ")[1][0]) for name in ("lucky", "cap"))
        assert answer == {"arm": lucky, "stake": cap if lucky else 0, "confidence": 1.0}


def test_a_game_with_rules_alone_can_be_taught(tmp_path: Path) -> None:
    rows = rows_of(tmp_path / "rows.jsonl", minimal(), Lesson(), 20)
    assert all(set(json.loads(row["messages"][-1]["content"])) == {"arm", "stake", "confidence"} for row in rows)


def test_a_seed_gives_the_same_file_and_another_seed_another(tmp_path: Path) -> None:
    lesson = Lesson(opponents={"heuristic": 1, "random": 3})
    texts = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        rows_of(tmp_path / name, toy.build(False), replace(lesson, seed=seed), 50)
        texts.append((tmp_path / name).read_text())
    assert texts[0] == texts[1] != texts[2]


def test_a_students_play_decides_the_positions_and_the_expert_the_answers(tmp_path: Path) -> None:
    game = toy.build(False)
    played = rows_of(tmp_path / "s", game, Lesson(student="heuristic", random_share=0), 40)
    for row in played:
        _, asked, answered = row["messages"]
        own = [line for line in asked["content"].splitlines() if line.startswith("0: ")]
        assert all(line == "0: (0, 0)" for line in own)  # the student always pulls arm 0
        assert json.loads(answered["content"])["arm"] == int(asked["content"].split("lucky ")[1][0])


def test_low_returns_are_dropped(tmp_path: Path) -> None:
    game, lesson = toy.build(False), Lesson(expert="random", random_share=0)
    all_rows = rows_of(tmp_path / "all", game, lesson, 60)
    good = rows_of(tmp_path / "good", game, replace(lesson, min_return=8), 60)
    assert all_rows != good


def test_a_rejected_answer_differs_from_the_chosen_one_and_costs_something(tmp_path: Path) -> None:
    for row in rows_of(tmp_path / "pairs", toy.build(False), Lesson(pairs=True, min_margin=0.5), 30):
        (chosen,), (rejected,) = row["chosen"], row["rejected"]
        assert chosen["content"] != rejected["content"] and row["margin"] > 0.5
        assert [one["role"] for one in row["prompt"]] == ["system", "user"]


def test_an_interrupt_leaves_whole_rows(tmp_path: Path) -> None:
    def stop(count: int) -> None:
        raise KeyboardInterrupt

    path, game = tmp_path / "rows.jsonl", toy.build(False)
    with pytest.raises(KeyboardInterrupt):
        write_rows(path, game, game.default_options, Lesson(), 10_000, progress=stop)
    assert [json.loads(line) for line in path.read_text().splitlines()]


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    path, game = tmp_path / "rows.jsonl", toy.build(False)
    path.write_text("mine")
    with pytest.raises(BadInput, match="exists"):
        write_rows(path, game, game.default_options, Lesson(), 1)
    assert path.read_text() == "mine"


def test_opponents_share_the_rows_by_weight(tmp_path: Path) -> None:
    game = get_game(toy.NAME)
    lesson = Lesson(opponents={"heuristic": 1, "oracle": 1}, random_share=0)
    rows = rows_of(tmp_path / "rows", game, lesson, 2048)
    texts = [row["messages"][-2]["content"] for row in rows]
    zero = sum("1: (0, 0)" in text for text in texts)
    assert 0 < zero < len(texts)
