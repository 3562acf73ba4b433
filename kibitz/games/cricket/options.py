"""The options of a match, and the settings that the laws read."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import jax.numpy as jnp
from pydantic import Field, model_validator

from kibitz.core.options import OPERATOR, Options
from kibitz.games.cricket.chances import potential
from kibitz.games.cricket.laws.step import Settings
from kibitz.games.cricket.model import delivery
from kibitz.games.cricket.model.calibration import DEFAULTS, ERAS, SHIPPED, calibration, model_number
from kibitz.games.cricket.model.par import par, powerplay_balls
from kibitz.games.cricket.teams import ratings
from kibitz.games.cricket.teams.bowling_orders import bowling_orders
from kibitz.games.cricket.teams.ratings import Sides
from kibitz.games.cricket.teams.roster import Eleven


class CricketOptions(Options):
    """The options of a match."""

    max_overs: int = Field(5, ge=1, le=20, description="overs per innings; 20 is a full T20")
    era: Literal["pre2018", "2018-2022", "2023+"] = Field("2023+", description="the era whose scoring rates apply")
    captain_side: Literal["toss", "bat", "bowl"] = Field("toss", description="what seat 0 does first")
    random_start: bool = Field(False, description="start in a plausible position in mid-match")
    seed: int = Field(0, ge=0, description="seed of the invented sides")
    pool: int = Field(32, ge=1, le=1024, description="number of invented sides; two sides keep their seats")
    shaping: float = Field(0.0, ge=0.0, le=1.0, description="share of the reward paid as win probability changes")
    model: str = Field(
        SHIPPED,
        description="fitted model: shipped (before 2023 careful-tail), or a name given to `kibitz cricket fit`",
        json_schema_extra=OPERATOR,
    )
    elevens: str | None = Field(None, description="YAML file with two sides of your own", json_schema_extra=OPERATOR)

    @model_validator(mode="after")
    def _default_model_of_the_era(self) -> CricketOptions:
        if "model" not in self.model_fields_set:
            self.__dict__["model"] = DEFAULTS[self.era]  # stays a default: `changed` follows the era
        return self

    def sides(self) -> list[Eleven]:
        """The sides by index, with names."""
        if self.elevens is not None:
            return list(ratings.read(self.elevens))
        return list(_invented(self.seed, self.pool, model_number(self.model)))

    def settings(self, fitted: dict[str, Any] | None = None) -> Settings:
        """The arrays of the laws; `fitted` replaces the numbers of the model."""
        model = model_number(self.model)
        numbers = fitted or calibration(model)
        return Settings(
            overs=jnp.int32(self.max_overs),
            era=jnp.int32(ERAS.index(self.era)),
            powerplay=jnp.int32(powerplay_balls(self.max_overs)),
            bats_first=jnp.float32({"toss": 0.5, "bat": 1.0, "bowl": 0.0}[self.captain_side]),
            random_start=jnp.bool_(self.random_start),
            model=delivery.model(numbers, self.max_overs),
            sides=self._tables(numbers)
            if fitted or self.elevens
            else _tables(self.seed, self.pool, self.max_overs, model),
            par=par(self.max_overs, numbers),
            potential=potential.build(self.shaping, self.max_overs, ERAS.index(self.era), model),
            fitted=jnp.int32(model),
        )

    def _tables(self, numbers: dict[str, Any]) -> Sides:
        chosen = self.sides()
        return ratings.sides(chosen, numbers, bowling_orders(chosen, self.max_overs, self.seed))


@lru_cache(maxsize=64)
def _invented(seed: int, pool: int, model: int) -> tuple[Eleven, ...]:
    return tuple(ratings.invent(seed, pool, calibration(model)))


@lru_cache(maxsize=64)
def _tables(seed: int, pool: int, overs: int, model: int) -> Sides:
    chosen = list(_invented(seed, pool, model))
    return ratings.sides(chosen, calibration(model), bowling_orders(chosen, overs, seed))
