"""The benchmarks that need a game, a peer or another process, each at its smallest size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import yaml
from rich.console import Console

from kibitz.bench import gap, gpu, start, torch_ppo, torchrl_ppo
from kibitz.cli import output
from kibitz.core.bots import seated
from kibitz.core.errors import BadInput
from kibitz.evaluate.match import play_bots
from tests.train import toy

pytestmark = pytest.mark.conformance
TINY = {"num_envs": 8, "rollout": 4, "minibatch": 16, "hidden": [8], "num_train_steps": 64}


def test_the_gap_between_two_players_is_the_sum_of_what_each_act_costs() -> None:
    game = toy.build(False)
    settings, player, opponent = game.default_settings, game.bot("random"), game.bot(game.fallback)
    found = gap.run(game, settings, player, opponent, episodes=64, seed=3)
    assert sum(loss["mean"] for loss in found["loss_by_act"]) == pytest.approx(found["loss"]["mean"])
    reference = game.bot(game.reference)
    for name, bot in (("reference", reference), ("player", player)):
        alone = play_bots(game, seated(settings, {0: bot, 1: opponent}), (bot, opponent), 64, 3, lambda count: None)
        if name == "reference":  # the player's chance is drawn beside the reference's, so only this one is the same
            assert found["mean_return"][name] == pytest.approx(float(np.mean(alone.returns[:, 0])))
    assert found["loss"]["mean"] > 0


def test_a_player_that_is_the_reference_loses_nothing() -> None:
    game = toy.build(False)
    reference = game.bot(game.reference)
    found = gap.run(game, game.default_settings, reference, game.bot(game.fallback), episodes=32, seed=0)
    assert found["loss"]["mean"] == 0 and found["episodes_with_a_loss"] == 0


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("bench") / "tiny.yaml"
    path.write_text(yaml.safe_dump({"env": {"id": "DealOrNoDialog-v0"}, "train": TINY}))
    return str(path)


@pytest.fixture(scope="module")
def started(config: str) -> dict[str, Any]:
    """What `kibitz bench start` measures, once for the tests that need it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(start, "WARM_RUNS", 1)
        return start.run(config)


def test_the_second_start_of_a_training_finds_its_programs_compiled(started: dict[str, Any]) -> None:
    assert 0 < started["warm_imports_s"] < started["warm_run_s"] and started["first_run_s"] > 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("package", "peer"), [("torch", torch_ppo), ("torchrl", torchrl_ppo)])
def test_the_peers_in_pytorch_learn_from_our_tensors(package: str, peer: Any) -> None:
    pytest.importorskip(package, reason="PyTorch is too large for the suite's own extras")
    sizes = {"num_envs": 4, "rollout": 4, "minibatch": 8, "epochs": 1}
    rate = peer.steps_per_second(sizes, 0.0)
    assert rate is not None and rate > 0


def test_one_command_prints_the_table_of_a_device(
    config: str, started: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "run", lambda config: started)
    found = gpu.run(0.05, (16,), config)
    rates = found["steps_per_s"]["16 games"]
    assert all(rates[name] > 0 for name in ("batched_rules", "vector_env", "rollout", "training"))
    assert rates["training_fused"] is None and "does not support a CPU" in found["fused_unsupported"]
    assert found["start_s"]["first"] > 0 and found["steps_per_s"][config]["training"] > 0
    console = Console(width=200, record=True)
    console.print(output.gpu_bench_table(found))
    assert "batched rules" in console.export_text()


def test_a_missing_config_is_reported_before_anything_is_measured() -> None:
    measured: list[int] = []
    with pytest.raises(BadInput, match=r"nope\.yaml"):
        gpu.run(0.05, (16,), "nope.yaml", measured.append)
    assert not measured
