"""The GPU kernels of PPO against the plain path; a CPU interprets them operation by operation."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from kibitz.core.errors import BadInput
from kibitz.games import get_game
from kibitz.train import ppo
from kibitz.train.config import Job, TrainOptions
from kibitz.train.gpu import gradient as fused
from kibitz.train.gpu.choice import FusedPolicy
from kibitz.train.gpu.plan import faster, make_plan
from kibitz.train.network import Flat, Shape, feature_size, flatten, new_policy
from kibitz.train.phase import build
from kibitz.train.rollout import pack_masks, unpack_masks
from tests.train import toy

SAMPLES, MINIBATCH = 96, 40  # 40 samples: one full block of 32, and one that is mostly padding
ENT = jnp.float32(0.03)
COMPILE_QUICKLY = {"xla_backend_optimization_level": 0}


class Device(NamedTuple):
    """What a choice of path reads of a device."""

    platform: str
    compute_capability: str
    device_kind: str


GPU = Device("gpu", "9.0", "NVIDIA H200")


class Case:
    """A game, a network that has moved away from the one that chose the acts, and a batch of random positions."""

    def __init__(
        self, game: str, hidden: tuple[int, ...], linked: bool = False, feature_scale: float = 1.0, **plan: Any
    ) -> None:
        self.game, self.config = get_game(game), _config(hidden, linked)
        rng = np.random.default_rng(5)
        size = feature_size(self.game)
        self.flat: Flat = flatten(new_policy(self.game, size, Shape(hidden, linked), jax.random.key(0)))
        self.moved = self.flat.vector + 0.1 * jax.random.normal(jax.random.key(1), self.flat.vector.shape)
        features = jnp.asarray(feature_scale * rng.normal(size=(SAMPLES, size)), jnp.float32)
        masks = tuple(jnp.asarray(_never_empty(rng, n)) for n in self.game.sizes)
        u = jnp.asarray(rng.random((len(masks), SAMPLES)), jnp.float32)
        act, log_prob, value = self.flat.rebuild(self.flat.vector).play(features.T, masks, u)
        advantage = jnp.asarray(rng.normal(size=SAMPLES), jnp.float32)
        self.batch = ppo.Batch(
            features, pack_masks(masks), jnp.stack(act), log_prob, value, advantage, advantage + value
        )
        self.rows = jnp.asarray(rng.permutation(SAMPLES)[:MINIBATCH], jnp.int32)
        self.plan = replace(make_plan(self.game, size, self.config), **{"block": 32, "programs": 2, **plan})

    def plain(self) -> tuple[Array, dict[str, Array]]:
        part = jax.tree.map(lambda x: x[..., self.rows], self.batch._replace(features=self.batch.features.T))
        practice: Any = SimpleNamespace(game=self.game)
        found: tuple[Array, dict[str, Array]] = jax.grad(ppo.loss, has_aux=True)(
            self.moved, self.flat, part, practice, self.config, ENT
        )
        return found

    def fused(self) -> tuple[Array, dict[str, Array]]:
        part = jax.tree.map(lambda x: x[0], fused.parts(self.batch, self.rows, 1, 1, ENT))
        kernel = jax.jit(partial(fused.gradient, plan=self.plan), compiler_options=COMPILE_QUICKLY)
        gradient, sums = kernel(self.moved, self.samples(), part)
        return gradient, fused.named(sums, self.plan)

    def samples(self) -> fused.Samples:
        rows = FusedPolicy(self.moved, self.plan).rows(self.batch.features.T)
        return fused.gatherable(self.batch._replace(features=rows), self.plan)


def _config(hidden: tuple[int, ...], linked: bool) -> TrainOptions:
    return TrainOptions(hidden=hidden, autoregressive=linked, minibatch=MINIBATCH, num_envs=SAMPLES + 24, rollout=1)


def _never_empty(rng: np.random.Generator, size: int) -> Any:
    mask = rng.random((size, SAMPLES)) < 0.6
    mask[rng.integers(0, size, SAMPLES), np.arange(SAMPLES)] = True
    return mask


ALL = [  # game, hidden layers, whether heads are autoregressive
    ("deal_or_no_deal", (64, 64), False),
    ("deal_or_no_deal", (64, 64), True),
    ("deal_or_no_deal", (96, 40, 64), True),
    ("deal_or_no_deal", (128, 128), False),
    ("deal_or_no_deal", (256, 256), True),
    ("cricket", (32,), False),
]


@pytest.mark.conformance
@pytest.mark.parametrize(("game", "hidden", "linked"), ALL)
def test_the_kernel_computes_the_gradient_of_the_plain_loss(game: str, hidden: tuple[int, ...], linked: bool) -> None:
    case = Case(game, hidden, linked)
    expected, metrics = case.plain()
    found, found_metrics = case.fused()
    assert metrics["clip_share"] > 0.05  # both sides of the clip take part
    assert metrics["clip_share"] < 0.95
    assert jnp.linalg.norm(found - expected) < 1e-3 * jnp.linalg.norm(expected)
    for name, value in metrics.items():
        np.testing.assert_allclose(found_metrics[name], value, rtol=2e-3, atol=2e-4, err_msg=name)


@pytest.mark.conformance
@pytest.mark.parametrize(("game", "hidden", "linked"), ALL)
def test_the_kernel_chooses_like_the_plain_path(game: str, hidden: tuple[int, ...], linked: bool) -> None:
    case = Case(game, hidden, linked, games=32)
    u = jnp.asarray(np.random.default_rng(6).random((len(case.game.heads), SAMPLES)), jnp.float32)
    masks = unpack_masks(case.batch.masks, case.game.sizes)
    features = case.batch.features.T
    act, log_prob, value = case.flat.rebuild(case.moved).play(features, masks, u)
    kernel = jax.jit(FusedPolicy(case.moved, case.plan).play, compiler_options=COMPILE_QUICKLY)
    found, found_log_prob, found_value = kernel(features, masks, u)
    same = np.all([a == b for a, b in zip(act, found, strict=True)], axis=0)
    assert same.mean() > 0.97  # a choice at the border of two values may fall on the other side
    np.testing.assert_allclose(found_log_prob[same], log_prob[same], atol=5e-3)
    np.testing.assert_allclose(found_value, value, atol=5e-3)
    for choice, mask in zip(found, masks, strict=True):
        assert mask[choice, np.arange(SAMPLES)].all()


def test_the_network_is_too_large_for_registers_in_one_of_the_cases() -> None:
    plans = [make_plan(get_game(game), 32, _config(hidden, linked)) for game, hidden, linked in ALL]
    assert {plan.in_registers for plan in plans} == {True, False}


@pytest.mark.conformance
def test_features_beyond_sixteen_bits_leave_the_gradient_finite() -> None:
    gradient, _ = Case("deal_or_no_deal", (16,), feature_scale=1e6, tile=16).fused()
    assert jnp.isfinite(gradient).all()


@pytest.mark.conformance
def test_training_with_the_kernel_follows_the_plain_path() -> None:
    """Two learners at once, as `seeds: 2` trains them, over a whole update: four epochs in the same order."""
    values = {"num_envs": 16, "rollout": 4, "minibatch": 32, "hidden": (16, 16), "lr": 1e-3}
    job = Job.read({"env": {"id": toy.ENV_ID}, "seeds": 2, "train": values}, "job")
    phase = build(job, (jax.devices()[0],))
    start = phase.begin()
    ends = []
    for path in (False, True):
        compiled = replace(phase.compiled, config=phase.config.model_copy(update={"fused": path}))
        ends.append(compiled.advance(jax.tree.map(jnp.copy, start), phase.settings, 1)[0].weights)
    moved = jnp.linalg.norm(ends[0] - start.weights)
    assert jnp.linalg.norm(ends[1] - ends[0]) < 0.01 * moved


@pytest.mark.conformance
@pytest.mark.parametrize("linked", [False, True])
def test_the_kernels_translate_to_triton_on_a_machine_without_a_gpu(linked: bool) -> None:
    case = Case("deal_or_no_deal", (64, 64), linked=linked, block=64)

    def run(vector: Array, samples: fused.Samples, part: fused.Part) -> Any:
        return fused.gradient(vector, samples, part, case.plan, interpret=False)

    def choose(vector: Array, features: Array, masks: Any, u: Array) -> Any:
        return FusedPolicy(vector, case.plan, interpret=False).play(features, masks, u)

    part = fused.Part(case.rows, jnp.ones(3))
    traced = jax.jit(run).trace(case.moved, case.samples(), part)
    assert "triton" in traced.lower(lowering_platforms=("cuda",)).as_text()
    masks = unpack_masks(case.batch.masks, case.game.sizes)
    traced = jax.jit(choose).trace(case.moved, case.batch.features.T, masks, jnp.zeros((len(masks), SAMPLES)))
    assert "triton" in traced.lower(lowering_platforms=("cuda",)).as_text()


def _job(**train: Any) -> Job:
    return Job.read({"env": {"id": "DealOrNoDialog-v0"}, "train": {"num_envs": 64, **train}}, "job")


def test_a_job_learns_with_the_kernel_where_it_is_faster_or_asked_for() -> None:
    assert build(_job(), (GPU,)).config.fused is True
    assert build(_job(fused=False), (GPU,)).config.fused is False
    assert build(_job(hidden=(128, 128)), (GPU,)).config.fused is True
    assert build(_job(hidden=(256, 256)), (GPU,)).config.fused is False
    assert build(_job(hidden=(256, 256), fused=True), (GPU,)).config.fused is True


def test_a_game_with_very_many_features_does_not_get_the_kernel_unasked() -> None:
    """Its gradient would leave the registers, which no GPU has measured."""
    game = get_game("deal_or_no_deal")
    few, many = (make_plan(game, features, TrainOptions()) for features in (500, 1000))
    assert faster(few) and not faster(many)


@pytest.mark.parametrize("device", [Device("cpu", "", "cpu"), Device("gpu", "7.5", "Tesla T4")])
def test_a_job_learns_without_the_kernel_on_a_device_that_lacks_it(device: Any) -> None:
    assert build(_job(), (device,)).config.fused is False


@pytest.mark.parametrize(
    ("device", "train", "reason"),
    [
        (GPU, {"hidden": (512, 64)}, "a layer of 512; it takes at most 256"),
        (GPU, {"hidden": (64, 64, 64, 64)}, "4 hidden layers; it takes one to 3"),
        (Device("gpu", "7.5", "Tesla T4"), {}, "a GPU such as Tesla T4"),
        (Device("gpu", "gfx942", "MI300X"), {}, "a GPU such as MI300X"),
        (Device("cpu", "", "cpu"), {}, "a CPU"),
    ],
)
def test_a_job_that_asks_for_more_than_the_kernel_supports_is_refused(
    device: Any, train: dict[str, Any], reason: str
) -> None:
    with pytest.raises(BadInput, match=f"does not support {reason}.*; remove train"):
        build(_job(fused=True, **train), (device,))


def test_only_ppo_has_the_kernel() -> None:
    with pytest.raises(BadInput, match="algo is reinforce; remove"):
        build(_job(fused=True).model_copy(update={"algo": "reinforce"}), (GPU,))
