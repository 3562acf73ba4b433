"""`DealOrNoDialog-v0`: the negotiation as Gymnasium environments."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any

import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from jax import Array
from numpy.typing import NDArray

from kibitz.core.act import Act, Masks
from kibitz.core.envs.gym_env import GameEnv
from kibitz.core.envs.gym_spaces import SampleMasks, as_array, draw_legal, split_mask
from kibitz.core.envs.gym_vector import GameVectorEnv
from kibitz.core.envs.setup import EnvSetup, Form, IllegalOptions
from kibitz.core.errors import BadInput
from kibitz.core.options import PlayerSpec
from kibitz.games.deal_or_no_deal import rules
from kibitz.games.deal_or_no_deal.options import NegotiationOptions
from kibitz.games.deal_or_no_deal.rules import ACT_NAMES, ITEM_NAMES, MAX_UTILITY, SILENT, Items, Settings, dot
from kibitz.games.deal_or_no_deal.view import View, shown_act
from kibitz.games.deal_or_no_deal.words import share

INTEGER_KINDS = ("ii", "iu", "ui", "uu")  # NumPy kinds of act_type and oA
NOT_AN_ACTION = "{action!r} is not an action; it should be {{'act_type': 0..4, 'oA': [3 ints]}}."


class EnvOptions(IllegalOptions, NegotiationOptions):
    """The game's options and those of the environments."""

    opponent: PlayerSpec = "heuristic"
    clip_offers: bool = False


def observation_space(setup: EnvSetup) -> spaces.Dict:
    counts, points = [setup.options.max_count + 1] * 3, [MAX_UTILITY + 1] * 3
    return spaces.Dict(
        {
            "counts": spaces.MultiDiscrete(counts),
            "my_utilities": spaces.MultiDiscrete(points),
            "partner_utilities": spaces.MultiDiscrete(points),
            "last_partner_act": spaces.Discrete(len(ACT_NAMES)),
            "last_partner_offer_for_me": spaces.MultiDiscrete(counts),
            "turns_remaining": spaces.Discrete(setup.options.max_turns + 1),
        }
    )


def action_space(max_count: int) -> dict[str, spaces.Space[Any]]:
    return {"act_type": spaces.Discrete(len(ACT_NAMES)), "oA": spaces.MultiDiscrete([max_count + 1] * 3)}


class MaskableActions(spaces.Dict):
    """The action space, of one environment or of many, whose `sample` also takes their `action_masks()`."""

    def __init__(self, max_count: int, count: int | None = None) -> None:
        one = spaces.Dict(action_space(max_count))
        many: Any = one if count is None else batch_space(one, count)
        self.sizes = (len(ACT_NAMES), *(max_count + 1,) * 3)
        super().__init__(many.spaces)

    def sample(self, mask: Any = None, probability: Any = None) -> dict[str, Any]:
        if not isinstance(mask, np.ndarray):
            return super().sample(mask, probability)
        if mask.ndim == 1:
            acts, *counts = split_mask(mask, self.sizes)
            return super().sample({"act_type": acts, "oA": tuple(counts)})
        drawn = draw_legal(mask, self.sizes, self.np_random)
        return {"act_type": drawn[:, 0], "oA": drawn[:, 1:]}


class LegalActions(MaskableActions):
    """The action space, whose samples are legal in the current position."""

    def __init__(self, env: NegotiationEnv) -> None:
        self._masks = SampleMasks(env)
        super().__init__(env.options.max_count)

    def seed(self, seed: Any = None) -> Any:
        self._masks.seeded()
        return super().seed(seed)

    def sample(self, mask: Any = None, probability: Any = None) -> dict[str, Any]:
        return super().sample(self._masks() if mask is None and probability is None else mask, probability)

    def __reduce__(self) -> Any:
        """Copies, as vector environments and checkpoints make them, do not hold the environment."""
        return MaskableActions, (self.sizes[1] - 1,)


def observe(settings: Settings, view: View, masks: Masks) -> tuple[dict[str, Array], dict[str, Array]]:
    """The seed's observation and info."""
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
        "action_mask": masks[0],
        "oA_max": jnp.stack(view.counts),
        "partner_has_spoken": (view.other_act != SILENT).astype(jnp.int32),
        "budget_is_exact": ((settings.budget == 0) | (pool == settings.budget)).astype(jnp.int32),
    }
    return observation, info


def end_info(scores: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "payoffs": scores["payoff"],
        "ceiling": scores["ceiling"][0],
        "agreement": scores["agreement"][0] == 1,
        "pareto": scores["pareto"][0] == 1,
        "nash_product": scores["nash_product"][0],
        "welfare": scores["welfare"][0],
    }


def unchanged(masks: Masks, act: Act) -> Act:
    return act


def clipped(masks: Masks, act: Act) -> Act:
    """Counts clipped to the pool: its number of items is a head's largest legal value."""
    pools = (jnp.sum(mask, axis=0) - 1 for mask in masks[1:])
    return (act[0], *(jnp.clip(value, 0, pool) for value, pool in zip(act[1:], pools, strict=True)))


def flat(options: NegotiationOptions, observation: Mapping[str, Any]) -> NDArray[np.float32]:
    """The observation as the features of `view.features`: f32[..., 15], or 18 with revealed utilities."""
    whole = {name: np.asarray(value, np.float32) for name, value in observation.items()}
    count, points = np.float32(options.max_count), np.float32(MAX_UTILITY)
    act = whole["last_partner_act"][..., None] == np.arange(len(ACT_NAMES))
    parts = [
        whole["counts"] / count,
        whole["my_utilities"] / points,
        *([whole["partner_utilities"] / points] if options.reveal_partner_utilities else []),
        act.astype(np.float32),
        whole["last_partner_offer_for_me"] / count,
        whole["turns_remaining"][..., None] / np.float32(options.max_turns),
    ]
    return np.concatenate(parts, axis=-1)


FORM = Form(
    env_id="DealOrNoDialog-v0",
    options=EnvOptions,
    observe=lambda game: observe,
    bare=None,
    observation_space=observation_space,
    action_space=lambda setup: MaskableActions(setup.options.max_count),
    action_batch=lambda setup, count: MaskableActions(setup.options.max_count, count),
    end_info=end_info,
    heads=lambda actions: (actions["act_type"], *actions["oA"].T),
    repair=lambda options: clipped if options.clip_offers else unchanged,
    flat=flat,
)


class NegotiationEnv(GameEnv):
    """A learner in seat 0 bargains with a partner in seat 1.

    AGREE, END, DISAGREE (unless `disagree_ends=False`) and the turn limit terminate the episode; nothing
    truncates it. The last step's info holds both payoffs, the ceiling, whether the deal was Pareto-optimal,
    and the Nash product.
    """

    form = FORM

    def __init__(self, *, render_mode: str | None = None, **options: Any) -> None:
        super().__init__("deal_or_no_deal", render_mode=render_mode, **options)

    def sampling_space(self) -> LegalActions:
        return LegalActions(self)

    def act_of(self, action: Any) -> tuple[int, ...]:
        try:
            act_type, kept = index(action["act_type"]), action["oA"]
            # `tolist` is three times as fast as `index`
            whole = isinstance(kept, np.ndarray) and kept.dtype.kind in "iu" and kept.ndim == 1
            numbers = kept.tolist() if whole else [index(x) for x in kept]
        except (TypeError, KeyError, IndexError):
            raise BadInput(NOT_AN_ACTION.format(action=action)) from None
        if len(numbers) != 3 or len(action) != 2:
            raise BadInput(NOT_AN_ACTION.format(action=action))
        if not 0 <= act_type < len(ACT_NAMES):
            raise BadInput(f"act_type is {act_type}; it should be 0 to 4 ({', '.join(ACT_NAMES)}).")
        if self.options.clip_offers:
            caps = self._pool()
            numbers = [min(max(x, 0), cap) for x, cap in zip(numbers, caps, strict=True)]
        return (act_type, *numbers)

    def _pool(self) -> list[int]:
        first = self._observation[0]
        assert first.name == "counts"
        return self._row[first.where]

    def first_masks(self) -> NDArray[np.bool_]:
        """What is legal in every first position."""
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

    def render(self) -> str | None:
        if self.render_mode is None or self._vector is None:
            return None
        seen, info = self._read()
        act = ACT_NAMES[seen["last_partner_act"]]
        said = f"said {act}, which leaves you {share(seen['last_partner_offer_for_me'])}"
        worth = ", ".join(f"{name} {points}" for name, points in zip(ITEM_NAMES, seen["my_utilities"], strict=True))
        return (
            f"Pool: {share(seen['counts'])}. Worth to you: {worth}.\n"
            f"Partner {said if info['partner_has_spoken'] else 'has not spoken'}.\n"
            f"Turns remaining: {seen['turns_remaining']}."
        )


def first_state(options: NegotiationOptions, settings: Settings, context: Any, agent_starts: Any) -> rules.State:
    """The first position of a caller's context; BadInput if the context is invalid."""
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
    """The vector environment; `gym.make_vec("kibitz:DealOrNoDialog-v0", num_envs=...)` makes it."""

    form = FORM

    def __init__(
        self, num_envs: int = 1, *, autoreset_mode: Any = "NextStep", render_mode: None = None, **options: Any
    ) -> None:
        super().__init__(num_envs, "deal_or_no_deal", autoreset_mode=autoreset_mode, render_mode=render_mode, **options)

    def heads_of(self, actions: Any) -> tuple[Any, ...]:
        n = self.num_envs
        try:
            given = {name: as_array(actions[name]) for name in ("act_type", "oA")}
            more = len(actions) != 2
        except (TypeError, KeyError, IndexError, ValueError):
            raise BadInput("Actions should be {'act_type': [num_envs], 'oA': [num_envs, 3]}.") from None
        act_types, kept = given.values()
        if (
            more
            or act_types.shape != (n,)
            or kept.shape != (n, 3)
            or act_types.dtype.kind + kept.dtype.kind not in INTEGER_KINDS
        ):
            raise BadInput(f"Actions should be whole numbers, act_type of shape ({n},) and oA of shape ({n}, 3).")
        return self.form.heads(given)

    def acts_of(self, actions: Any) -> NDArray[np.int32]:
        act_types, *kept = self.heads_of(actions)
        if act_types.min() < 0 or act_types.max() >= len(ACT_NAMES):
            raise BadInput(f"An act_type is outside 0 to 4 ({', '.join(ACT_NAMES)}).")
        self._acts[0] = act_types
        for row, counts, size in zip(self._acts[1:], kept, self.game.sizes[1:], strict=True):
            np.clip(counts, -1, size, out=row, casting="unsafe")
        return self._acts
