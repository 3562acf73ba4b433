"""Hints in the observations of other trainers: base features, then the hint's, as one vector of NumPy's."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from kibitz.advice.features import HintEncoder
from kibitz.core.envs.gym_env import GameEnv
from kibitz.core.envs.gym_vector import GameVectorEnv
from kibitz.core.errors import BadInput


class HintAdapter:
    """`adapter(observation, info)` is what a network reads: f32[base features + hint features].

    `env` is an environment of kibitz, single or vector, with hints in its `info`; a vector's observations give one row
    per environment. In the negotiation the base features are counts 3, own utilities 3, the partner's 3 if they are
    revealed, last act 5, last offer 3 and turns 1, each scaled to 0..1; elsewhere they are the observation itself.
    """

    def __init__(self, env: Any) -> None:
        base = env.unwrapped
        if not isinstance(base, GameEnv | GameVectorEnv):
            raise BadInput(f"Hints need an environment of kibitz, not {base}.")
        single = "single_observation_space" if isinstance(env, VectorEnv) else "observation_space"
        shown: Any = getattr(env, single)
        self._options, self._flat = base.options, base.form.flat
        if isinstance(shown, spaces.Box) and len(shown.shape) == 1:  # the environment's own, or a wrapper's
            self._flat, low, high = None, shown.low, shown.high
        elif self._flat is not None and shown == getattr(base, single):
            low = np.zeros_like(self._flat(self._options, shown.sample()))
            high = np.ones_like(low)
        else:
            raise BadInput(f"Hints need a flat Box or the game's own observations, not {shown}.")
        nothing = np.zeros(HintEncoder(base.game).hint_size, np.float32)
        self.space = spaces.Box(np.concatenate([low, nothing]), np.concatenate([high, nothing + 1]), dtype=np.float32)

    def __call__(self, observation: Any, info: dict[str, Any]) -> NDArray[np.float32]:
        if "hint_features" not in info:
            raise BadInput("info has no hint_features; wrap the environment in HintInjectorEnv or its vector form.")
        return self.join(observation, info["hint_features"])

    def join(self, observation: Any, hint: NDArray[np.float32]) -> NDArray[np.float32]:
        base = observation if self._flat is None else self._flat(self._options, observation)
        return np.concatenate([np.asarray(base, np.float32), hint], axis=-1)


class HintObservationEnv(gymnasium.Wrapper[Any, Any, Any, Any], gymnasium.utils.RecordConstructorArgs):
    """A `HintInjectorEnv` whose observation is one vector: `HintAdapter`'s."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)
        self._adapter = HintAdapter(env)
        self.observation_space = self._adapter.space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return self._adapter(observation, info), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._adapter(observation, info), reward, terminated, truncated, info

    def action_masks(self) -> NDArray[np.bool_]:
        """Those of the wrapped environment, as MaskablePPO requests them."""
        masks: NDArray[np.bool_] = self.env.get_wrapper_attr("action_masks")()
        return masks


class HintObservationVectorEnv(VectorWrapper):
    """A `HintInjectorVectorEnv` whose observations are rows of one array: `HintAdapter`'s."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._adapter = HintAdapter(env)
        self.single_observation_space = self._adapter.space
        self.observation_space = batch_space(self._adapter.space, self.num_envs)
        self._hints: NDArray[np.float32] | None = None  # of every environment, for resets of only some

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observations, infos = self.env.reset(seed=seed, options=options)
        return self._adapted(observations, infos), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        if "final_obs" in infos:
            for row in np.flatnonzero(infos["_final_obs"]):
                hint = infos["final_info"]["hint_features"][row]
                infos["final_obs"][row] = self._adapter.join(infos["final_obs"][row], hint)
        return self._adapted(observations, infos), rewards, terminated, truncated, infos

    def action_masks(self) -> NDArray[np.bool_]:
        """bool[num_envs, sum of the heads' sizes]."""
        masks: NDArray[np.bool_] = self.env.unwrapped.action_masks()  # type: ignore[attr-defined]
        return masks

    def _adapted(self, observations: Any, infos: dict[str, Any]) -> NDArray[np.float32]:
        known = infos.get("_hint_features", np.ones(self.num_envs, bool))
        if self._hints is not None and not known.all():
            infos = infos | {"hint_features": np.where(known[:, None], infos["hint_features"], self._hints)}
        adapted = self._adapter(observations, infos)
        self._hints = infos["hint_features"]
        return adapted
