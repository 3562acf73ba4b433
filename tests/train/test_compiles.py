"""Compiling is the user's time: a phase is compiled once."""

from __future__ import annotations

import jax

from kibitz.train.program import build
from tests.train.conftest import tiny_job


def test_a_second_update_finds_the_program_of_the_first() -> None:
    program = build(tiny_job(), tuple(jax.devices()[:1]))
    learner, _ = program.advance(program.begin(), program.settings, 0)
    learner, _ = program.advance(learner, program.settings, 1)
    program.advance(learner, program.settings, 2)
    assert program.advance._cache_size() == 1  # type: ignore[attr-defined]
