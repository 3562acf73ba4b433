"""What a user may set, and the arrays the rules read."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from kibitz.core.options import Options
from pydantic import Field


class Settings(NamedTuple):
    rounds: Array  # i32[]
    budget: Array  # i32[]


class GameOptions(Options):
    rounds: int = Field(5, ge=1, le=15, description="items sold in an episode")
    budget: int = Field(20, ge=1, le=60, description="points that a seat may spend in total")

    def settings(self) -> Settings:
        return Settings(jnp.int32(self.rounds), jnp.int32(self.budget))
