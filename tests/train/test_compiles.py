"""Compiling is the user's time: a phase is compiled once."""

from __future__ import annotations

import jax

from kibitz.train.phase import build
from tests.train.conftest import tiny_job


def test_a_second_update_reuses_the_compiled_program() -> None:
    phase = build(tiny_job(), tuple(jax.devices()[:1]))
    learner, _ = phase.advance(phase.begin(), phase.settings, 0)
    known = phase.advance.count()  # type: ignore[attr-defined]
    learner, _ = phase.advance(learner, phase.settings, 1)
    phase.advance(learner, phase.settings, 2)
    assert phase.advance.count() == known  # type: ignore[attr-defined]


def test_a_second_run_with_another_seed_and_length_compiles_nothing() -> None:
    """Both runs use the same program objects, so nothing compiles again."""
    devices = tuple(jax.devices()[:1])
    first = build(tiny_job(), devices)
    second = build(tiny_job(seed=5, train={"num_train_steps": 64}, logging={"log_every": 32}), devices)
    assert second.compiled is first.compiled
    learner, _ = second.advance(second.begin(), second.settings, 1)
    second.judge(learner.weights)
    known = first.compiled
    before = known.advance.count(), known.judge.count()  # type: ignore[attr-defined]
    learner, _ = first.advance(first.begin(), first.settings, 2)
    first.judge(learner.weights)
    assert (known.advance.count(), known.judge.count()) == before  # type: ignore[attr-defined]


def test_programs_that_differ_are_not_shared() -> None:
    devices = tuple(jax.devices()[:1])
    one = build(tiny_job(), devices).compiled
    for other in (
        {"algo": "reinforce"},
        {"opponent": "oracle"},
        {"opponent": "self"},
        {"hints": {"mode": "random"}},
        {"hints": {"cadence_k": 2}},
        {"train": {"lr": 0.02}},
        {"env": {"wide": True}},
    ):
        assert build(tiny_job(**other), devices).compiled is not one, other
    schedules = [build(tiny_job(train={"lr_final": 0.0, "num_train_steps": n}), devices) for n in (320, 640)]
    assert schedules[0].compiled is not schedules[1].compiled, "where a schedule ends is part of the program"
