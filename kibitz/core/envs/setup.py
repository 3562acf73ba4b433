"""Builds the parts of an environment from a game and keywords, and defines what the environment shows its callers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Self, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array
from numpy.typing import NDArray
from pydantic import Field, create_model, model_validator

from kibitz.core.act import Act, Masks
from kibitz.core.bots import Bot, seated
from kibitz.core.envs.gym_spaces import MaskableBatch, MaskableMultiDiscrete
from kibitz.core.envs.program import EndInfo, Observe
from kibitz.core.game import Game
from kibitz.core.options import Options, PlayerSpec
from kibitz.core.play.resolve import bot_for
from kibitz.core.registry import generic_env_id, load_game

Illegal: TypeAlias = Literal["lose_turn", "penalty", "error"]
FEATURE_LIMIT = 1e6  # features beyond it are clipped, because Gymnasium requires finite bounds


@dataclass(frozen=True, eq=False)
class EnvSetup:
    """Checked options, and everything built from them."""

    game: Game
    options: Any  # the game's options, with opponent, illegal and illegal_penalty
    settings: Any  # after the opponent has disclosed and precomputed
    opponent: Bot


class IllegalOptions(Options):
    """What an illegal act does; a game's environment options inherit this beside the game's own."""

    illegal: Illegal = Field(
        "lose_turn", description="what an illegal act does: lose the turn, cost the penalty as well, or raise an error"
    )
    illegal_penalty: float = Field(
        1.0, ge=0, description="subtracted from the reward of an illegal act with illegal='penalty'"
    )

    @model_validator(mode="after")
    def _penalty_applies(self) -> Self:
        if "illegal_penalty" in self.model_fields_set and self.illegal != "penalty":
            raise ValueError(f"illegal_penalty is set but illegal is {self.illegal!r}; set illegal='penalty' as well.")
        return self

    @property
    def charge(self) -> float:
        """Subtracted from the reward of an illegal act."""
        return self.illegal_penalty if self.illegal == "penalty" else 0.0


@lru_cache(maxsize=64)
def seat_options(options: type[Options]) -> type[Any]:
    """A game's options, and what an illegal act does."""
    return create_model(f"{options.__name__}OfSeats", __base__=(IllegalOptions, options))


@lru_cache(maxsize=64)
def _env_options(options: type[Options]) -> type[Options]:
    """A game's options and those that every environment has."""
    return create_model(
        f"{options.__name__}OfEnv",
        __base__=seat_options(options),
        opponent=(PlayerSpec | None, Field(None, description="a bot, expert, policy:RUN, or a mix by weight")),
    )


@lru_cache(maxsize=32)
def _features_and_mask(game: Game, limit: float = FEATURE_LIMIT) -> Observe:
    """Observation: the feature vector. Info: the heads' masks, concatenated."""

    def observe(settings: Any, view: Any, masks: Masks) -> tuple[dict[str, Array], dict[str, Array]]:
        features = jnp.clip(game.learning.features(settings, view), -limit, limit)
        return {"features": features}, {"action_mask": jnp.concatenate(masks)}

    return observe


@lru_cache(maxsize=32)
def _feature_count(game: Game) -> int:
    rules, settings = game.rules, game.default_settings
    view = jax.eval_shape(lambda: game.learning.features(settings, rules.view(settings, game.example, 0)))
    return int(view.shape[0])


def feature_space(setup: EnvSetup, limit: float = FEATURE_LIMIT) -> spaces.Box:
    return spaces.Box(-limit, limit, (_feature_count(setup.game),), np.float32)


def _own_scores(scores: Mapping[str, Any]) -> dict[str, Any]:
    """The learner's number of every measure."""
    return {name: value[0] for name, value in scores.items()}


def _only_choices(masks: Masks, act: Act) -> Act:
    """A head with one legal value takes it whatever the action says."""
    return tuple(
        jnp.where(jnp.sum(mask, axis=0) == 1, jnp.argmax(mask, axis=0).astype(jnp.int32), value)
        for mask, value in zip(masks, act, strict=True)
    )


@dataclass(frozen=True, eq=False)
class Form:
    """How a game's environments look to their callers; the single and the vector environment share it."""

    env_id: str = ""  # for messages; default `Kibitz/<Name>-v0`
    options: type[Options] | None = None  # every keyword; default `env_options(game.options)`
    observe: Callable[[Game], Observe] = _features_and_mask
    bare: str | None = "features"  # this entry alone is the observation; None: the observation is the dict
    observation_space: Callable[[EnvSetup], spaces.Space[Any]] = feature_space
    action_space: Callable[[EnvSetup], spaces.Space[Any]] = lambda setup: MaskableMultiDiscrete(list(setup.game.sizes))
    action_batch: Callable[[EnvSetup, int], spaces.Space[Any]] = lambda setup, n: MaskableBatch(setup.game.sizes, n)
    """The action space of n environments. Here as in `action_space`, `sample` takes `action_masks()`."""
    end_info: EndInfo = _own_scores
    heads: Callable[[Any], tuple[Any, ...]] = lambda actions: tuple(actions.T)
    """The actions of many environments -> the values of each head; in NumPy or JAX."""
    repair: Callable[[Any], Callable[[Masks, Act], Act]] = lambda options: _only_choices
    """options -> masks and acts with games last -> the acts that the vector environment takes them for."""
    flat: Callable[[Any, Any], NDArray[np.float32]] | None = None
    """options, observation of one or of many -> f32[..., n] in 0..1, for networks; None: it is a vector already."""


GENERIC = Form()


def prepare(game: str | Game, given: Mapping[str, Any], form: Form = GENERIC) -> EnvSetup:
    """Raises BadInput before anything is built. A record is used unchanged; a name gets one that fits the options."""
    record = load_game(game) if isinstance(game, str) else game
    base: Any = record.options
    model = form.options or _env_options(base)
    where = f"option of {form.env_id or generic_env_id(record.name)}"
    options: Any = model.read({**dict(record.default_options), **given}, where)
    if isinstance(game, str):
        record = load_game(game, options)
    opponent = bot_for(record, options.opponent or default_opponent(record))
    return EnvSetup(record, options, seated(options.settings(), {1: opponent}), opponent)


def default_opponent(game: Game) -> str:
    """The record's default player of seat 1, if it is a bot."""
    name = game.default_players[1]
    return name if name in game.bots else game.fallback
