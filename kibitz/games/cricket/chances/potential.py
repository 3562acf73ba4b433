"""Builds the tables of win probability that `laws.shaping` reads."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from kibitz.games.cricket.chances import winprob
from kibitz.games.cricket.laws.shaping import Potential


def build(weight: float, overs: int, era: int, model: int = 0) -> Potential:
    """Empty tables for weight 0: then rewards are not shaped."""
    if weight == 0:
        return Potential(jnp.float32(0), jnp.zeros(0))
    first = winprob.first_table(overs, era, model)
    balls, wickets, needed = np.indices(first.shape)
    chase = winprob.chase(balls, needed, wickets, winprob.par_score(overs, era, model), era, overs, model)
    return Potential(jnp.float32(weight), jnp.asarray(np.stack([first, chase]).reshape(-1), jnp.float32))
