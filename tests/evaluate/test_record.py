"""`evaluate --out`: what was played stays, and an interrupted evaluation continues where it was."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.play.player import BotPlayer, Choice, Turn
from kibitz.evaluate.match import Side, evaluate, side_of
from kibitz.evaluate.packs import evaluate_pack
from kibitz.evaluate.record import EPISODES, RESULT, read_episodes
from kibitz.games import get_game, get_pack
from kibitz.players.llm import llm_player
from tests.advice.conftest import fake, presets
from tests.conftest import Finished
from tests.llm.fake_server import FakeServer
from tests.train import toy

__all__ = ["fake", "presets"]
Command = Callable[..., Finished]
CLOCKED = ("seconds", "episodes_per_s")


@pytest.fixture(autouse=True)
def toy_game() -> Iterator[None]:
    toy.register()
    llm_player.cache_clear()
    yield
    toy.unregister()
    llm_player.cache_clear()


@pytest.fixture
def game() -> Game:
    return get_game(toy.NAME)


def timeless(found: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if key not in CLOCKED}


class Quitter(BotPlayer):
    """Presses Ctrl-C in its third episode."""

    begun = 0

    def begin(self, settings: Any, seat: int, luck: Any) -> None:
        self.begun += 1
        super().begin(settings, seat, luck)

    def choose(self, turn: Turn) -> Choice:
        if self.begun == 3:
            raise KeyboardInterrupt
        return super().choose(turn)


def test_an_interrupted_evaluation_continues_and_equals_an_uninterrupted_one(game: Game, tmp_path: Path) -> None:
    options = game.options()
    whole = evaluate(game, options, "random", "heuristic", 5, seed=7)
    quitter = Side("random", Quitter(game, game.bot("random")), game.bot("random"))
    cut = evaluate(game, options, quitter, "heuristic", 5, seed=7, out=tmp_path / "kept")
    assert cut["interrupted"] and cut["episodes"] == 2
    with (tmp_path / "kept" / EPISODES).open("ab") as file:
        file.write(b'{"number": 2, "eve')  # a crash in the middle of a line
    asked: list[int] = []

    class Counted(BotPlayer):
        def begin(self, settings: Any, seat: int, luck: Any) -> None:
            asked.append(seat)
            super().begin(settings, seat, luck)

    counted = Side("random", Counted(game, game.bot("random")), game.bot("random"))
    found = evaluate(game, options, counted, "heuristic", 5, seed=7, out=tmp_path / "kept")
    assert len(asked) == 3  # the other two were kept
    assert timeless(found) == timeless(whole)
    assert json.loads((tmp_path / "kept" / RESULT).read_text()) == found
    assert [kept.number for kept in read_episodes(tmp_path / "kept")] == [0, 1, 2, 3, 4]


def test_a_run_that_has_trained_on_does_not_continue_its_evaluation(game: Game, tmp_path: Path) -> None:
    step = 16

    def measure() -> dict[str, Any]:
        pinned = f"policy:/runs/mine/step_{step}.safetensors"  # its newest checkpoint
        policy = replace(game.bot("random"), name="policy:mine", pinned=pinned)
        return evaluate(game, game.options(), policy, "heuristic", 1, out=tmp_path / "kept")

    assert timeless(measure()) == timeless(measure())
    step = 32
    with pytest.raises(BadInput, match=r"checkpoints is \['step_16.safetensors', None\] there and \['step_32"):
        measure()


@pytest.mark.conformance  # compiles cricket
def test_a_pack_continues_with_its_regret(tmp_path: Path) -> None:
    game, pack = get_game("cricket"), get_pack("cricket", "death")
    whole = evaluate_pack(game, pack, "random", "balanced", 4, out=tmp_path / "whole")
    evaluate_pack(game, pack, "random", "balanced", 2, out=tmp_path / "kept")
    found = evaluate_pack(game, pack, "random", "balanced", 4, out=tmp_path / "kept")
    assert timeless(found) == timeless(whole)
    assert found["regret"] > 0


def test_prompts_answers_and_failures_of_a_model_are_kept(presets: FakeServer, tmp_path: Path) -> None:
    game = get_game("deal_or_no_deal")
    for model, failed in (("good", False), ("prose", True)):
        llm_player.cache_clear()
        presets.requests.clear()
        folder = tmp_path / model
        evaluate(game, game.options(), f"llm:fake-{model}", "heuristic", 2, out=folder)
        sent = [request.body["messages"] for request in presets.requests]
        asked = [one for kept in read_episodes(folder) for one in kept.asked]
        assert asked and {one.seat for one in asked} == {0}
        assert all(list(one.messages) in sent for one in asked)
        assert all(bool(one.failure) == failed for one in asked)
        assert all(one.answer for one in asked)


def test_no_event_contains_a_prompt(presets: FakeServer, tmp_path: Path) -> None:
    game = get_game("deal_or_no_deal")
    evaluate(game, game.options(), "llm:fake-good", "heuristic", 1, out=tmp_path / "kept")
    (kept,) = read_episodes(tmp_path / "kept")
    prompt = kept.asked[0].messages[-1]["content"]
    assert prompt[:40] not in json.dumps(list(kept.events))


def test_only_its_owner_can_read_what_both_seats_kept_private(game: Game, tmp_path: Path) -> None:
    for folder in (tmp_path / "new", tmp_path / "made before"):
        if folder.name != "new":
            folder.mkdir(mode=0o755)
        evaluate(game, game.options(), "random", "random", 1, seed=1, out=folder)
        assert (folder / "episodes.jsonl").stat().st_mode & 0o077 == 0
    assert (tmp_path / "new").stat().st_mode & 0o077 == 0


def test_a_folder_of_another_evaluation_is_refused(kibitz: Command, game: Game, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    words = ("evaluate", "--game", toy.NAME, "--player", "random", "--episodes", "2", "--out", str(folder))
    assert kibitz(*words).returncode == 0
    before = (folder / EPISODES).read_bytes()
    for more, sentence in (
        (("--seed", "5"), "seed is 0 there and 5 here"),
        (("--opponent", "oracle"), "players is"),
        (("--set", "rounds=2"), "options is"),
        (("--styles",), "--styles cannot be combined with --out"),
    ):
        done = kibitz(*words, *more)
        assert done.returncode == 2 and sentence in done.stderr, done.stderr
    assert (folder / EPISODES).read_bytes() == before
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(BadInput, match="is not empty and holds no evaluation"):
        evaluate(game, game.options(), "random", "heuristic", 1, out=tmp_path)
    (folder / EPISODES).write_text('{"number": 0}\n')
    with pytest.raises(BadInput, match="damaged in line 1"):
        evaluate(game, game.options(), side_of(game, "random"), "heuristic", 2, out=folder)
