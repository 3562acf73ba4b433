"""`DealOrNoDialog-v0`: the negotiation as Gymnasium environments."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any

import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array
from numpy.typing import NDArray
from pydantic import Field

from kibitz.core.act import Masks
from kibitz.core.bots import Bot
from kibitz.core.envs.gym_env import GameEnv
from kibitz.core.envs.gym_spaces import OpenNow
from kibitz.core.envs.gym_vector import GameVectorEnv
from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.options import Wanted
from kibitz.core.play.resolve import bot_for
from kibitz.games.deal_or_no_deal import game as game_for
from kibitz.games.deal_or_no_deal import rules
from kibitz.games.deal_or_no_deal.options import NegotiationOptions
from kibitz.games.deal_or_no_deal.rules import ACT_NAMES, ITEM_NAMES, MAX_UTILITY, SILENT, Items, Settings, dot
from kibitz.games.deal_or_no_deal.view import View, shown_act
from kibitz.games.deal_or_no_deal.words import share


class EnvOptions(NegotiationOptions):
    """The game's options and what only an environment needs."""

    opponent: Wanted = "heuristic"
    illegal: str = "error"
    illegal_penalty: float = Field(1.0, ge=0, allow_inf_nan=False)
    clip_offers: bool = False


def observation_space(options: NegotiationOptions) -> spaces.Dict:
    counts, points = [options.max_count + 1] * 3, [MAX_UTILITY + 1] * 3
    return spaces.Dict(
        {
            "counts": spaces.MultiDiscrete(counts),
            "my_utilities": spaces.MultiDiscrete(points),
            "partner_utilities": spaces.MultiDiscrete(points),
            "last_partner_act": spaces.Discrete(len(ACT_NAMES)),
            "last_partner_offer_for_me": spaces.MultiDiscrete(counts),
            "turns_remaining": spaces.Discrete(options.max_turns + 1),
        }
    )


def action_space(options: NegotiationOptions) -> dict[str, spaces.Space[Any]]:
    return {"act_type": spaces.Discrete(len(ACT_NAMES)), "oA": spaces.MultiDiscrete([options.max_count + 1] * 3)}


class OpenActions(spaces.Dict):
    """The action space, whose samples are legal in the environment's present state."""

    def __init__(self, env: NegotiationEnv) -> None:
        self._open = OpenNow(env)
        super().__init__(action_space(env.options))

    def seed(self, seed: Any = None) -> Any:
        self._open.seeded()
        return super().seed(seed)

    def sample(self, mask: Any = None, probability: Any = None) -> dict[str, Any]:
        if mask is not None or probability is not None:
            return super().sample(mask, probability)
        masks = self._open()
        acts, counts = masks[: len(ACT_NAMES)], masks[len(ACT_NAMES) :].reshape(3, -1)
        return super().sample({"act_type": acts, "oA": tuple(counts)})

    def __reduce__(self) -> Any:
        """A copy, as vector environments and checkpoints make them, leaves the environment behind."""
        return spaces.Dict, (dict(self.spaces),)


def observe(settings: Settings, view: View, masks: Masks) -> tuple[dict[str, Array], dict[str, Array]]:
    """The seed's observation, and the info that goes with every one of them."""
    pool = dot(view.counts, view.my_utilities)
    observation = {
        "counts": jnp.stack(view.counts),
        "my_utilities": jnp.stack(view.my_utilities),
        "partner_utilities": jnp.stack(view.other_utilities),
        "last_partner_act": shown_act(view.other_act),
        "last_partner_offer_for_me": jnp.stack(view.offer_for_me),
        "turns_remaining": view.turns_left,
    }
    info = {
        "action_mask": masks[0].astype(jnp.int32),
        "oA_max": jnp.stack(view.counts),
        "partner_has_spoken": (view.other_act != SILENT).astype(jnp.int32),
        "budget_is_exact": ((settings.budget == 0) | (pool == settings.budget)).astype(jnp.int32),
    }
    return observation, info


def set_up(options: Mapping[str, Any]) -> tuple[EnvOptions, Game, Settings, Bot]:
    """Checked options, and what an environment is made of; nothing is built from bad ones."""
    checked = EnvOptions.read(options, "option of DealOrNoDialog-v0")
    if checked.illegal not in ("error", "penalty"):
        raise BadInput(f"illegal is {checked.illegal!r}; it should be 'error' or 'penalty'.")
    game = game_for(checked)
    return checked, game, checked.settings(), bot_for(game, checked.opponent)


class NegotiationEnv(GameEnv):
    """A learner in seat 0 bargains with a partner in seat 1.

    The episode ends with AGREE, END, DISAGREE (unless `disagree_ends=False`) or the turn limit; all
    of these terminate, nothing truncates. The last step's info holds both payoffs, the ceiling,
    whether the deal was Pareto-optimal, and the Nash product.
    """

    observe = staticmethod(observe)

    def __init__(self, *, render_mode: str | None = None, **options: Any) -> None:
        self.options, game, settings, opponent = set_up(options)
        self.observation_space = observation_space(self.options)
        penalty = self.options.illegal_penalty
        illegal: Any = self.options.illegal
        super().__init__(game, settings, opponent, illegal, penalty, render_mode)
        self.action_space = OpenActions(self)

    def act_of(self, action: Any) -> tuple[int, ...]:
        try:
            act_type, numbers = index(action["act_type"]), [index(x) for x in action["oA"]]
        except (TypeError, KeyError, IndexError):
            raise BadInput(f"{action!r} is not an action; it should be {{'act_type': 0..4, 'oA': [3 ints]}}.") from None
        if len(numbers) != 3 or len(action) != 2:
            raise BadInput(f"{action!r} is not an action; it should be {{'act_type': 0..4, 'oA': [3 ints]}}.")
        if not 0 <= act_type < len(ACT_NAMES):
            raise BadInput(f"act_type is {act_type}; it should be 0 to 4 ({', '.join(ACT_NAMES)}).")
        if self.options.clip_offers:
            caps = self._seen_counts()
            numbers = [min(max(x, 0), cap) for x, cap in zip(numbers, caps, strict=True)]
        return (act_type, *numbers)

    def _seen_counts(self) -> list[int]:
        first = self._observation[0]
        assert first.name == "counts"
        return self._row[first.where]

    def first_masks(self) -> NDArray[np.bool_]:
        """What is open in every first position."""
        acts, counts = np.ones(len(ACT_NAMES), bool), np.ones((3, self.game.sizes[1]), bool)
        acts[rules.AGREE], counts[:, self.options.fewest + 1 :] = False, False
        return np.concatenate([acts, counts.reshape(-1)])

    def given_state(self, options: Mapping[str, Any]) -> Any:
        """`options={"context": {"counts": .., "my_utilities": .., "partner_utilities": ..}, "agent_starts": ..}`."""
        unknown = set(options) - {"context", "agent_starts"}
        if unknown:
            raise BadInput(f"reset has no option {sorted(unknown)[0]!r}; it has 'context' and 'agent_starts'.")
        if "context" not in options:
            if "agent_starts" in options:
                raise BadInput("reset takes 'agent_starts' only together with 'context'.")
            return None
        return first_state(self.options, self.settings, options["context"], options.get("agent_starts", True))

    def end_info(self, scores: Mapping[str, Any]) -> dict[str, Any]:
        payoffs = scores["payoff"]
        return {
            "payoffs": payoffs.astype(np.float64),
            "ceiling": float(scores["ceiling"][0]),
            "agreement": bool(scores["agreement"][0]),
            "pareto": bool(scores["pareto"][0] == 1),
            "nash_product": float(scores["nash_product"][0]),
            "welfare": float(scores["welfare"][0]),
        }

    def render(self) -> str | None:
        if self.render_mode is None or self._vector is None:
            return None
        seen, info = self._read(self._seen)
        act = ACT_NAMES[seen["last_partner_act"]] if info["partner_has_spoken"] else "nothing yet"
        worth = ", ".join(f"{name} {points}" for name, points in zip(ITEM_NAMES, seen["my_utilities"], strict=True))
        return (
            f"Pool: {share(seen['counts'])}. Worth to you: {worth}.\n"
            f"Partner said {act}, which leaves you {share(seen['last_partner_offer_for_me'])}.\n"
            f"Turns remaining: {seen['turns_remaining']}."
        )


def first_state(options: NegotiationOptions, settings: Settings, context: Any, agent_starts: Any) -> rules.State:
    """A first position a caller gave, checked."""
    names = ("counts", "my_utilities", "partner_utilities")
    if not isinstance(context, Mapping) or set(context) != set(names):
        raise BadInput(f"A context should have exactly the keys {', '.join(names)}.")
    rows: list[Items] = []
    lows, highs = (options.fewest, 0, 0), (options.max_count, MAX_UTILITY, MAX_UTILITY)
    for name, low, high in zip(names, lows, highs, strict=True):
        try:
            values = np.asarray(context[name])
        except ValueError:  # ragged
            values = np.zeros(0)
        if values.shape != (3,) or values.dtype.kind not in "iu" or values.min() < low or values.max() > high:
            raise BadInput(f"{name} is {context[name]!r}; it should be three whole numbers from {low} to {high}.")
        rows.append(Items(*(jnp.int32(x) for x in values)))
    if not isinstance(agent_starts, (bool, np.bool_)):
        raise BadInput(f"agent_starts is {agent_starts!r}; it should be true or false here.")
    counts, mine, theirs = rows
    return rules.start(settings, counts, mine, theirs, jnp.int32(0 if agent_starts else 1))


class NegotiationVectorEnv(GameVectorEnv):
    """The vector twin; `gym.make_vec("kibitz:DealOrNoDialog-v0", num_envs=...)` makes it."""

    observe = staticmethod(observe)

    def __init__(
        self, num_envs: int = 1, *, autoreset_mode: Any = "NextStep", render_mode: None = None, **options: Any
    ) -> None:
        if render_mode is not None:
            raise BadInput("The vector environment draws nothing; leave render_mode away.")
        self.options, game, settings, opponent = set_up(options)
        self.single_observation_space = observation_space(self.options)
        self.single_action_space = spaces.Dict(action_space(self.options))
        penalty = self.options.illegal_penalty
        illegal: Any = self.options.illegal
        super().__init__(num_envs, game, settings, opponent, illegal, penalty, autoreset_mode)

    def acts_of(self, actions: Any) -> NDArray[np.int64]:
        n = self.num_envs
        try:
            act_types, kept = np.asarray(actions["act_type"]), np.asarray(actions["oA"])
            more = len(actions) != 2
        except (TypeError, KeyError, IndexError, ValueError):
            raise BadInput("Actions should be {'act_type': [num_envs], 'oA': [num_envs, 3]}.") from None
        if (
            more
            or act_types.shape != (n,)
            or kept.shape != (n, 3)
            or act_types.dtype.kind + kept.dtype.kind not in _WHOLE
        ):
            raise BadInput(f"Actions should be whole numbers, act_type of shape ({n},) and oA of shape ({n}, 3).")
        if act_types.min() < 0 or act_types.max() >= len(ACT_NAMES):
            raise BadInput(f"An act_type is outside 0 to 4 ({', '.join(ACT_NAMES)}).")
        if self.options.clip_offers and self._seen is not None:
            kept = np.clip(kept, 0, np.asarray(self._seen.observation["counts"]))
        return np.concatenate([act_types[None], kept.T]).astype(np.int64)

    def end_info(self, scores: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "payoffs": scores["payoff"].astype(np.float64),
            "ceiling": scores["ceiling"][:, 0].astype(np.float64),
            "agreement": scores["agreement"][:, 0] == 1,
            "pareto": scores["pareto"][:, 0] == 1,
            "nash_product": scores["nash_product"][:, 0].astype(np.float64),
            "welfare": scores["welfare"][:, 0].astype(np.float64),
        }


_WHOLE = ("ii", "iu", "ui", "uu")
