"""What a user may set, and the arrays the rules read."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import jax.numpy as jnp
from pydantic import Field

from kibitz.core.options import OPERATOR, Options
from kibitz.games.cricket.captains import bots as captains
from kibitz.games.cricket.chances import potential
from kibitz.games.cricket.laws.step import Settings
from kibitz.games.cricket.model import delivery as ball
from kibitz.games.cricket.model import par as course
from kibitz.games.cricket.model.calibration import ERAS, calibration
from kibitz.games.cricket.model.par import powerplay_balls
from kibitz.games.cricket.teams import ratings as elevens
from kibitz.games.cricket.teams.ratings import Sides
from kibitz.games.cricket.teams.roster import Eleven


class CricketOptions(Options):
    """Every name is also an option of `reset`."""

    max_overs: int = Field(5, ge=1, le=20, description="overs of an innings; 20 is a full T20")
    era: Literal["pre2018", "2018-2022", "2023+"] = Field("2023+", description="whose rates of scoring are played")
    captain_side: Literal["toss", "bat", "bowl"] = Field("toss", description="what seat 0 does first")
    random_start: bool = Field(False, description="begin in a plausible position in the middle of a match")
    seed: int = Field(0, ge=0, description="of the invented sides")
    pool: int = Field(32, ge=1, le=1024, description="invented sides that matches are drawn from; 2 keep their seats")
    shaping: float = Field(0.0, ge=0.0, le=1.0, description="share of the reward paid as win probability moves")
    elevens: str | None = Field(None, description="YAML file with two sides of your own", json_schema_extra=OPERATOR)

    def sides(self) -> list[Eleven]:
        """The sides by index, for names."""
        if self.elevens is not None:
            return list(elevens.read(self.elevens))
        return list(_invented(self.seed, self.pool))

    def settings(self, fitted: dict[str, Any] | None = None) -> Settings:
        """The arrays; `fitted` replaces the committed calibration."""
        numbers = fitted or calibration()
        return Settings(
            overs=jnp.int32(self.max_overs),
            era=jnp.int32(ERAS.index(self.era)),
            powerplay=jnp.int32(powerplay_balls(self.max_overs)),
            bats_first=jnp.float32({"toss": 0.5, "bat": 1.0, "bowl": 0.0}[self.captain_side]),
            random_start=jnp.bool_(self.random_start),
            model=ball.model(numbers, self.max_overs),
            sides=self._tables(numbers) if fitted or self.elevens else _tables(self.seed, self.pool, self.max_overs),
            course=course.course(self.max_overs, numbers),
            potential=potential.build(self.shaping, self.max_overs, ERAS.index(self.era)),
        )

    def _tables(self, numbers: dict[str, Any]) -> Sides:
        chosen = self.sides()
        return elevens.sides(chosen, numbers, captains.orders(chosen, self.max_overs, self.seed))


@lru_cache(maxsize=64)
def _invented(seed: int, pool: int) -> tuple[Eleven, ...]:
    return tuple(elevens.invent(seed, pool, calibration()))


@lru_cache(maxsize=64)
def _tables(seed: int, pool: int, overs: int) -> Sides:
    chosen = list(_invented(seed, pool))
    return elevens.sides(chosen, calibration(), captains.orders(chosen, overs, seed))
