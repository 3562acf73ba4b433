"""Reinforcement learning: it earns more, chooses legal acts only, and resumes where it stopped."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kibitz.core.errors import BadInput
from kibitz.games import get_game
from tests.teach.models import tiny_model
from tests.teach.test_lockstep import legal_acts
from tests.teach.test_sft import weights
from tests.train import toy

pytestmark = [pytest.mark.conformance, pytest.mark.usefixtures("one_thread")]  # needs the extra `teach`
SHORT = "{{ lucky }}{{ cap }}"


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    toy.register()
    yield
    toy.unregister()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("grpo") / "model")


def learn(base: Path, out: Path, name: str = toy.NAME, stopping: Any = lambda: False, **more: Any) -> dict[str, Any]:
    from kibitz.teach.grpo import GrpoOptions, train

    game = get_game(name)
    given = {"game": name, "base": str(base), "rank": None, "prompt": SHORT, "groups": 8, "group_size": 8, "batch": 256}
    resume = more.pop("resume", False)
    options = GrpoOptions.read(given | more)
    return train(options, game, game.default_options, out, resume, stopping=stopping)


def test_reinforcement_raises_the_return_against_a_bot(base: Path, tmp_path: Path) -> None:
    learn(base, tmp_path, opponent="heuristic", steps=35, lr=5e-3)
    with (tmp_path / "metrics.csv").open() as file:
        shares = [float(row["share_of_ceiling"]) for row in csv.DictReader(file)]
    assert np.mean(shares[:3]) < 0.5 and np.mean(shares[-3:]) > 0.8


def test_a_resumed_training_against_itself_equals_one_that_was_never_stopped(base: Path, tmp_path: Path) -> None:
    chosen = {"opponent": "self", "steps": 5, "checkpoint_steps": 2, "rank": 4, "lr": 5e-3, "groups": 2}
    learn(base, tmp_path / "whole", **chosen)
    calls = iter(range(1000))
    stopped = learn(base, tmp_path / "part", stopping=lambda: next(calls) == 2, **chosen)
    assert stopped["steps"] == 3 and not stopped["finished"]
    learn(base, tmp_path / "part", resume=True, **chosen)
    one, other = weights(tmp_path / "whole" / "adapter"), weights(tmp_path / "part" / "adapter")
    assert all((one[name] == other[name]).all() for name in one)


def test_answers_in_a_batch_are_those_of_the_plain_model(base: Path) -> None:
    """Caches and padding change nothing: every choice is the likeliest of the legal tokens in a plain forward pass."""
    import torch

    from kibitz.teach.batches import Encoder
    from kibitz.teach.examples.rows import RowWriter
    from kibitz.teach.libraries import load_model
    from kibitz.teach.play.lockstep import Lockstep
    from kibitz.teach.play.sampler import Sampler

    game = get_game("deal_or_no_deal")
    model = load_model(str(base), torch.float32).eval()
    sampler = Sampler(game, RowWriter(game), Encoder.of(str(base), 1 << 20), model, torch, batch=5)
    checked = 0

    def choose(positions: Any) -> Any:
        nonlocal checked
        found = sampler.answer(positions, None)
        for one in found:
            with torch.no_grad():
                logits = model(torch.tensor([one.tokens])).logits[0]
            for branch in one.branches:
                assert int(logits[branch.at - 1, list(branch.legal)].argmax()) == branch.chosen
                checked += 1
        return [one.act for one in found]

    played = Lockstep(game, game.default_options, game.bot("heuristic")).play(0, list(range(8)), choose)
    assert checked > 20 and len({len(d.position.history) for d in played.decisions}) > 1


def test_every_legal_act_can_be_drawn_and_no_other(base: Path) -> None:
    import torch

    from kibitz.advice.ask import Position
    from kibitz.core.game import first_view
    from kibitz.teach.batches import Encoder
    from kibitz.teach.examples.rows import RowWriter
    from kibitz.teach.libraries import load_model
    from kibitz.teach.play.sampler import Sampler

    game = toy.build(False)
    settings = game.default_settings
    view, masks = first_view(game, settings)
    position = Position(settings, view, tuple(np.asarray(m) for m in masks), [])
    sampler = Sampler(
        game, RowWriter(game), Encoder.of(str(base), 1 << 20), load_model(str(base), torch.float32), torch, 64
    )
    drawn = sampler.answer([position] * 400, np.random.default_rng(0))
    assert {one.act for one in drawn} == set(legal_acts(game, position.masks))


def test_a_game_of_alternating_turns_can_be_learnt_against_itself(base: Path, tmp_path: Path) -> None:
    found = learn(base, tmp_path, "deal_or_no_deal", opponent="self", steps=1, groups=4, group_size=2, prompt="")
    assert found["finished"] and found["rows"] > 8


def test_an_opponent_that_cannot_be_compiled_is_one_sentence(base: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has no player 'llm:embedded' that can be compiled"):
        learn(base, tmp_path, opponent="llm:embedded")
