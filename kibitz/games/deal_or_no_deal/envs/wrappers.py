"""`DealOrNoDialog-v0` without Dict actions, for trainers that do not support them."""

from __future__ import annotations

from operator import index
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from kibitz.core.envs.gym_spaces import LegalActs, act_of, flat_mask
from kibitz.core.errors import BadInput
from kibitz.games.deal_or_no_deal import rules
from kibitz.games.deal_or_no_deal.envs.gym_env import NegotiationEnv


class MultiDiscreteActions(
    gymnasium.ActionWrapper[dict[str, Any], NDArray[np.int64], dict[str, Any]], gymnasium.utils.RecordConstructorArgs
):
    """Acts as MultiDiscrete([5, n, n, n]), with the concatenated masks that MaskablePPO requests."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)
        self.sizes = _base_env(env).game.sizes
        self.action_space = LegalActs(_base_env(env), self.sizes)

    def action(self, action: Any) -> dict[str, Any]:
        act_type, *kept = act_of(action, self.sizes)
        return {"act_type": act_type, "oA": np.array(kept, np.int64)}

    def action_masks(self) -> NDArray[np.bool_]:
        """bool[5 + 3 n]: the heads' masks, concatenated."""
        return _base_env(self.env).action_masks()


class FlatActions(gymnasium.ActionWrapper[dict[str, Any], Any, dict[str, Any]], gymnasium.utils.RecordConstructorArgs):
    """Acts as one Discrete: AGREE, DISAGREE, then every offer and selection."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)
        self.acts = flat_acts(_base_env(env).options.max_count)
        self.action_space = LegalDiscrete(_base_env(env).action_space, self.acts)

    def action(self, action: Any) -> dict[str, Any]:
        try:
            number = index(action)
        except TypeError:
            number = -1
        if not 0 <= number < len(self.acts):
            raise BadInput(f"The action is {action!r}; it should be a whole number, 0 to {len(self.acts) - 1}.")
        return {"act_type": int(self.acts[number, 0]), "oA": self.acts[number, 1:]}

    def action_masks(self) -> NDArray[np.bool_]:
        """bool[actions]."""
        base = _base_env(self.env)
        return flat_mask(self.acts, base.action_masks(), base.game)


def flat_acts(max_count: int) -> NDArray[np.int64]:
    """i64[n, 4]: every act once; counts that do not matter are 0."""
    kept = np.indices((max_count + 1,) * 3).reshape(3, -1).T
    blocks = [np.array([[rules.AGREE, 0, 0, 0], [rules.DISAGREE, 0, 0, 0]])]
    for act_type in (rules.PROPOSE, rules.INSIST, rules.END):
        blocks.append(np.concatenate([np.full((len(kept), 1), act_type), kept], axis=1))
    return np.concatenate(blocks).astype(np.int64)


def _base_env(env: Any) -> NegotiationEnv:
    base = env.unwrapped
    if not isinstance(base, NegotiationEnv):
        raise BadInput(f"This wrapper is for DealOrNoDialog-v0, not for {base}.")
    return base


class LegalDiscrete(spaces.Discrete):
    """The action space of `FlatActions`; it samples from the space it wraps, so samples are legal."""

    def __init__(self, inner: spaces.Space[Any], acts: NDArray[np.int64]) -> None:
        self._inner, self._index = inner, {tuple(act): i for i, act in enumerate(acts.tolist())}
        super().__init__(len(acts))

    def seed(self, seed: Any = None) -> Any:
        self._inner.seed(seed)
        return super().seed(seed)

    def sample(self, mask: Any = None, probability: Any = None) -> np.int64:
        if mask is not None or probability is not None:
            return super().sample(mask if mask is None else np.asarray(mask, np.int8), probability)
        action = self._inner.sample()
        act_type, kept = int(action["act_type"]), action["oA"].tolist()
        # AGREE and DISAGREE appear once, with zero counts
        act = (act_type, *kept)
        return np.int64(self._index[act if act in self._index else (act_type, 0, 0, 0)])

    def __reduce__(self) -> Any:
        return spaces.Discrete, (int(self.n),)
