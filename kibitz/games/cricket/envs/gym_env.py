"""`Cricket-v0`: a captain in seat 0 against a bot in seat 1, one delivery per step, for trainers.

The observation is the vector of features that a kibitz network reads; the action has a number for every
head of an act: intent, plan, field, bowler, next batter. `CricketEnvironment` is the same match through tools.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray
from pydantic import Field

from kibitz.core.act import Masks
from kibitz.core.envs.gym_env import GameEnv
from kibitz.core.envs.gym_vector import GameVectorEnv
from kibitz.core.envs.setup import Form, IllegalOptions, feature_space
from kibitz.core.errors import BadInput, NotFound
from kibitz.core.options import PlayerSpec
from kibitz.core.play.packs import is_plain
from kibitz.games.cricket.laws.state import State
from kibitz.games.cricket.laws.step import Settings
from kibitz.games.cricket.laws.view import View, features
from kibitz.games.cricket.model.tactics import open_in_powerplay
from kibitz.games.cricket.options import CricketOptions
from kibitz.games.cricket.packs import pack, scenario

FEATURE_LIMIT = 8.0  # features stay well below it


class EnvOptions(IllegalOptions, CricketOptions):
    """The game's options and those of the environments."""

    opponent: PlayerSpec = Field("balanced", description="a bot of the game, expert, policy:RUN, or a mix by weight")
    illegal_penalty: float = Field(0.1, ge=0, description="subtracted from the reward of an illegal act")


def observe(settings: Settings, view: View, masks: Masks) -> tuple[dict[str, Array], dict[str, Array]]:
    needs = jnp.where(view.second, view.first + 1, 0)
    info = {
        "action_mask": jnp.concatenate(masks),
        "bats": view.bats.astype(jnp.int32),
        "innings": view.second.astype(jnp.int32) + 1,
        "score": view.score,
        "wickets": view.wickets,
        "balls_left": view.balls_left,
        "target": needs,
    }
    return {"features": jnp.clip(features(settings, view), -FEATURE_LIMIT, FEATURE_LIMIT)}, info


def end_info(scores: Mapping[str, Any]) -> dict[str, Any]:
    own = {"won": scores["win"], "run_difference": scores["run_difference"]}
    return {name: value[0] for name, value in own.items()}


FORM = Form(
    env_id="Cricket-v0",
    options=EnvOptions,
    observe=lambda game: observe,
    observation_space=partial(feature_space, limit=FEATURE_LIMIT),
    end_info=end_info,
)


class CricketEnv(GameEnv):
    """One delivery is one step.

    A head that the captain does not choose now (the bowler in the middle of an over, everything of the
    bowling side while batting) has one legal value and takes it whatever the action says.
    """

    form = FORM

    def __init__(self, *, render_mode: str | None = None, **options: Any) -> None:
        super().__init__("cricket", render_mode=render_mode, **options)

    def first_masks(self) -> NDArray[np.bool_]:
        """Legal after any toss, except with `random_start`: keepers do not bowl, two openers are in."""
        keepers = set(np.asarray(self.settings.sides.keeper).tolist())
        bowlers = [i not in keepers for i in range(11)]
        heads = [np.ones(5), np.ones(6), open_in_powerplay(), bowlers, np.arange(11) == 10]
        return np.concatenate(heads).astype(bool)

    def given_state(self, options: Mapping[str, Any]) -> Any:
        """`options={"eval_pack_id": name, "eval_pack_index": match}` starts that match of a pack; without an index, a
        fresh match of the pack's kind."""
        unknown = set(options) - {"eval_pack_id", "eval_pack_index"}
        if unknown:
            known = "'eval_pack_id' and 'eval_pack_index'"
            raise BadInput(f"reset has no option {sorted(unknown)[0]!r}; it has {known}.")
        if "eval_pack_id" not in options:
            if "eval_pack_index" in options:
                raise BadInput("reset takes 'eval_pack_index' only together with 'eval_pack_id'.")
            return None
        name, index = options["eval_pack_id"], options.get("eval_pack_index")
        if is_plain(name, index):
            return None
        return _fresh_state(self.options, name) if index is None else _packed_state(self.options, name, index)

    def render(self) -> str | None:
        if self.render_mode is None or self._vector is None:
            return None
        _, info = self._read()
        doing = "You bat" if info["bats"] else "You bowl"
        chase = f", {info['target'] - info['score']} needed" if info["target"] else ""
        return f"{doing}: {info['score']} for {info['wickets']}{chase}, {info['balls_left']} balls left."


def _packed_state(options: CricketOptions, name: Any, index: Any) -> State:
    """The first position of a match of a pack, whose options the environment must share."""
    if not isinstance(name, str) or not isinstance(index, (int, np.integer)):
        raise BadInput(f"eval_pack_id and eval_pack_index are {name!r} and {index!r}; give a name and a number.")
    state: State
    wanted, _, state, _ = scenario(name, int(index))
    for field in _differing(wanted, options):
        right = getattr(wanted, field)
        raise BadInput(f"Match {index} of the pack {name!r} needs {field}={right!r}; make the environment with it.")
    return state


def _fresh_state(options: CricketOptions, name: Any) -> Callable[[np.random.Generator], State]:
    """Draws the first position of a fresh match of a pack's kind, of those kinds that the environment's options fit."""
    if not isinstance(name, str):
        raise BadInput(f"eval_pack_id is {name!r}; give the name of a pack.")

    def fits(wanted: CricketOptions, adjustable: tuple[str, ...]) -> bool:
        return set(_differing(wanted, options)) <= set(adjustable)

    fresh = pack(name).fresh
    assert fresh is not None
    try:
        fresh(0, fits)
    except NotFound:
        _packed_state(options, name, 0)  # says what a match needs
        raise
    return lambda generator: fresh(int(generator.integers(2**63)), fits).state


def _differing(wanted: CricketOptions, options: CricketOptions) -> list[str]:
    """What a match of a pack fixes and the environment has otherwise."""
    fixed = ("max_overs", "era", "seed", "pool", "elevens")
    return [field for field in fixed if getattr(wanted, field) != getattr(options, field)]


class CricketVectorEnv(GameVectorEnv):
    """The vector environment; `gym.make_vec("kibitz:Cricket-v0", num_envs=...)` makes it."""

    form = FORM

    def __init__(
        self, num_envs: int = 1, *, autoreset_mode: Any = "NextStep", render_mode: None = None, **options: Any
    ) -> None:
        super().__init__(num_envs, "cricket", autoreset_mode=autoreset_mode, render_mode=render_mode, **options)
