"""`Cricket-v0`: a captain in seat 0 against a rule in seat 1, ball by ball, for trainers.

The observation is the vector of features a kibitz network reads; the action has a number for every
head of an act: intent, plan, field, bowler, next batter. `CricketEnvironment` is the same match through tools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array
from numpy.typing import NDArray
from pydantic import Field

from kibitz.core.act import Masks
from kibitz.core.bots import Bot
from kibitz.core.envs.gym_env import GameEnv
from kibitz.core.envs.gym_spaces import OpenActs, act_of, acts_of
from kibitz.core.envs.gym_vector import GameVectorEnv
from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.options import Wanted
from kibitz.core.play.resolve import bot_for
from kibitz.games.cricket import game as game_for
from kibitz.games.cricket.laws.state import State
from kibitz.games.cricket.laws.step import Settings
from kibitz.games.cricket.laws.view import View, features
from kibitz.games.cricket.model.tactics import open_in_powerplay
from kibitz.games.cricket.options import CricketOptions
from kibitz.games.cricket.packs import scenario

LIMIT = 8.0  # features lie well inside of it


class EnvOptions(CricketOptions):
    """The game's options and what only an environment needs."""

    opponent: Wanted = Field("balanced", description="a rule of the game, policy:RUN, or a mix by weight")
    illegal: Literal["error", "penalty"] = Field("error", description="what a choice against the mask does")
    illegal_penalty: float = Field(0.1, ge=0, description="what it costs")


@cache
def feature_count() -> int:
    game, settings = game_for(), CricketOptions().settings()
    return int(
        jax.eval_shape(lambda: game.learning.features(settings, game.rules.view(settings, game.example, 0))).shape[0]
    )


def observation_space() -> spaces.Box:
    return spaces.Box(-LIMIT, LIMIT, (feature_count(),), np.float32)


def observe(settings: Settings, view: View, masks: Masks) -> tuple[dict[str, Array], dict[str, Array]]:
    needs = jnp.where(view.second, view.first + 1, 0)
    info = {
        "action_mask": jnp.concatenate(masks).astype(jnp.int32),
        "bats": view.bats.astype(jnp.int32),
        "innings": view.second.astype(jnp.int32) + 1,
        "score": view.score,
        "wickets": view.wickets,
        "balls_left": view.balls_left,
        "target": needs,
    }
    return {"features": jnp.clip(features(settings, view), -LIMIT, LIMIT)}, info


def set_up(options: Mapping[str, Any]) -> tuple[EnvOptions, Game, Settings, Bot]:
    """Checked options, and what an environment is made of; nothing is built from bad ones."""
    checked = EnvOptions.read(options, "option of Cricket-v0")
    game = game_for(checked)
    return checked, game, checked.settings(), bot_for(game, checked.opponent)


class CricketEnv(GameEnv):
    """One delivery is one step; what the other side would choose is ignored.

    A head that is not the captain's to choose now (the bowler in the middle of an over, everything of
    the bowling side while batting) has one open value, and whatever is given for it is taken as that.
    """

    observe = staticmethod(observe)
    bare = "features"

    def __init__(self, *, render_mode: str | None = None, **options: Any) -> None:
        self.options, game, settings, opponent = set_up(options)
        self.observation_space = observation_space()
        super().__init__(game, settings, opponent, self.options.illegal, self.options.illegal_penalty, render_mode)
        self.action_space = OpenActs(self, game.sizes)

    def act_of(self, action: Any) -> Sequence[int]:
        act = act_of(action, self.game.sizes)
        for i, (head, start, size) in enumerate(self._heads):
            if not 0 <= act[i] < size:
                raise BadInput(f"{head.name} is {act[i]}; it should be 0 to {size - 1}.")
            opened = self._row[start : start + size]
            if sum(opened) == 1:
                act[i] = opened.index(1)
        return act

    def action_masks(self) -> NDArray[np.bool_]:
        """bool[37]: the heads' masks one after the other, as MaskablePPO asks for."""
        return self.masks()

    def first_masks(self) -> NDArray[np.bool_]:
        """Legal whatever the toss brings, except with `random_start`: the keepers do not bowl, two openers are in."""
        keepers = set(np.asarray(self.settings.sides.keeper).tolist())
        bowlers = [i not in keepers for i in range(11)]
        heads = [np.ones(5), np.ones(6), open_in_powerplay(), bowlers, np.arange(11) == 10]
        return np.concatenate(heads).astype(bool)

    def given_state(self, options: Mapping[str, Any]) -> Any:
        """`options={"eval_pack_id": name, "eval_pack_index": match}` begins as that match of a pack does."""
        unknown = set(options) - {"eval_pack_id", "eval_pack_index"}
        if unknown:
            known = "'eval_pack_id' and 'eval_pack_index'"
            raise BadInput(f"reset has no option {sorted(unknown)[0]!r}; it has {known}.")
        if "eval_pack_id" not in options:
            if "eval_pack_index" in options:
                raise BadInput("reset takes 'eval_pack_index' only together with 'eval_pack_id'.")
            return None
        return packed_state(self.options, options["eval_pack_id"], options.get("eval_pack_index", 0))

    def end_info(self, scores: Mapping[str, Any]) -> dict[str, Any]:
        return {"won": float(scores["win"][0]), "run_difference": float(scores["run_difference"][0])}

    def render(self) -> str | None:
        if self.render_mode is None or self._vector is None:
            return None
        _, info = self._read(self._seen)
        doing = "You bat" if info["bats"] else "You bowl"
        chase = f", {info['target'] - info['score']} needed" if info["target"] else ""
        return f"{doing}: {info['score']} for {info['wickets']}{chase}, {info['balls_left']} balls left."


def packed_state(options: CricketOptions, name: Any, index: Any) -> State:
    """The first position of a match of a pack, which the environment's options must fit."""
    if not isinstance(name, str) or not isinstance(index, (int, np.integer)):
        raise BadInput(f"eval_pack_id and eval_pack_index are {name!r} and {index!r}; give a name and a number.")
    state: State
    wanted, _, state = scenario(name, int(index))
    for field in ("max_overs", "era", "seed", "pool", "elevens"):
        if getattr(wanted, field) != getattr(options, field):
            right = getattr(wanted, field)
            raise BadInput(
                f"Match {index} of the pack {name!r} is played with {field}={right!r}; make the environment so."
            )
    return state


class CricketVectorEnv(GameVectorEnv):
    """The vector twin; `gym.make_vec("kibitz:Cricket-v0", num_envs=...)` makes it."""

    observe = staticmethod(observe)
    bare = "features"

    def __init__(
        self, num_envs: int = 1, *, autoreset_mode: Any = "NextStep", render_mode: None = None, **options: Any
    ) -> None:
        if render_mode is not None:
            raise BadInput("The vector environment draws nothing; leave render_mode away.")
        self.options, game, settings, opponent = set_up(options)
        self.single_observation_space = observation_space()
        self.single_action_space = spaces.MultiDiscrete(list(game.sizes))
        penalty = self.options.illegal_penalty
        super().__init__(num_envs, game, settings, opponent, self.options.illegal, penalty, autoreset_mode)

    def acts_of(self, actions: Any) -> NDArray[np.int64]:
        acts = acts_of(actions, self.game.sizes, self.num_envs)
        for i, head in enumerate(self.game.heads):
            if acts[i].min() < 0 or acts[i].max() >= head.size:
                raise BadInput(f"A value of {head.name} is outside 0 to {head.size - 1}.")
            if self._seen is not None:
                opened = np.asarray(self._seen.masks[i])
                acts[i] = np.where(opened.sum(1) == 1, opened.argmax(1), acts[i])
        return acts

    def action_masks(self) -> NDArray[np.bool_]:
        """bool[num_envs, 37]."""
        if self._seen is None:
            raise BadInput("Nothing is open before the first reset().")
        return np.concatenate([np.asarray(mask) for mask in self._seen.masks], axis=1)

    def end_info(self, scores: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "won": scores["win"][:, 0].astype(np.float64),
            "run_difference": scores["run_difference"][:, 0].astype(np.float64),
        }
