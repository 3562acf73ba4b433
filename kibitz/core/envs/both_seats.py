"""A game with both seats free, one game on the host: what the PettingZoo environments share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import index
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array
from numpy.typing import NDArray

from kibitz.core.act import Act, Masks
from kibitz.core.chance import uniforms
from kibitz.core.envs.gym_spaces import MaskableMultiDiscrete, act_of, flat_acts, flat_mask
from kibitz.core.envs.program import EnvState, Single, empty_env, from_shapes, next_episode, shapes_of
from kibitz.core.envs.setup import FEATURE_LIMIT, seat_options
from kibitz.core.errors import BadInput
from kibitz.core.game import SEATS, Game, game_over
from kibitz.core.play.episode import table_for
from kibitz.core.registry import load_game
from kibitz.core.xla.packing import Layout

AGENTS = ("agent_0", "agent_1")  # by seat

Infos = dict[str, dict[str, Any]]


@dataclass(frozen=True, eq=False)
class SeatsForm:
    """What a game's PettingZoo environments show beyond features and masks."""

    flat_acts: Callable[[Game], NDArray[np.int64] | None] | None = None  # i64[acts, heads]; default `flat_acts`
    wait: int = 0  # the flat act that is open to a seat that is not to act
    feature_range: Callable[[Any], tuple[float, float]] = lambda options: (-FEATURE_LIMIT, FEATURE_LIMIT)
    named: Callable[[Any, Any, Masks], dict[str, Array]] = lambda settings, view, masks: {}
    """settings, view, masks -> what a seat's info adds, i32[] or i32[n] each."""
    end_info: Callable[[Mapping[str, Any], int], dict[str, Any]] = lambda scores, seat: {
        name: float(value[seat]) for name, value in scores.items() if not np.isnan(value[seat])
    }
    """Scores, f32[2] each, and a seat -> what its last info adds; a measure that does not apply is NaN."""
    given_state: Callable[[Any, Any, Mapping[str, Any]], Any] = lambda options, settings, given: None
    """options, settings, options of `reset` -> the first position that the caller requests, or None.

    It ignores unknown options: PettingZoo's own suite passes one.
    """
    text: Callable[[Mapping[str, Any]], str] = lambda frame: "\n".join(f"{key}: {frame[key]}" for key in frame)


GENERIC = SeatsForm()


class SeatsShown(NamedTuple):
    """What a call shows, one row for each seat."""

    features: Array  # f32[2, n]
    masks: Array  # bool[2, sum of the heads' sizes]
    named: dict[str, Array]  # i32[2] or i32[2, n]
    rewards: Array  # f32[2]
    to_act: Array  # bool[2]
    over: Array  # bool[]


class BothSeats:
    """The functions of one game in which both seats are free; `Single` compiles them."""

    def __init__(self, game: Game, form: SeatsForm) -> None:
        self.game, self.form, self.layout = game, form, Layout(game.bit_widths, game.example)

    def fresh(self, settings: Any, env: EnvState) -> tuple[EnvState, SeatsShown]:
        env, rules = next_episode(env), self.game.rules
        return self._begin(settings, env, rules.new(settings, uniforms(env.luck, 0, rules.new_uniforms)))

    def place(self, settings: Any, env: EnvState, state: Any) -> tuple[EnvState, SeatsShown]:
        return self._begin(settings, next_episode(env), state)

    def advance(self, settings: Any, env: EnvState, acts: tuple[Act, Act]) -> tuple[EnvState, SeatsShown]:
        turn, rules = env.turn + 1, self.game.rules
        u = uniforms(env.luck, turn, rules.step_uniforms)
        both = (tuple(acts[0]), tuple(acts[1]))
        state, rewards, over = rules.step(settings, self.layout.unpack(env.solo), both, u)
        return env._replace(solo=self.layout.pack(state), turn=turn), self._show(settings, state, rewards, over)

    def score(self, settings: Any, env: EnvState) -> Mapping[str, Array]:
        scores = self.game.measures.score(settings, self.layout.unpack(env.solo))
        return {name: value.astype(jnp.float32) for name, value in scores.items()}

    def empty(self, settings: Any) -> EnvState:
        return empty_env(self.layout.pack(self.game.rules.new(settings, jnp.zeros(self.game.rules.new_uniforms))))

    def _begin(self, settings: Any, env: EnvState, state: Any) -> tuple[EnvState, SeatsShown]:
        shown = self._show(settings, state, jnp.zeros(2), game_over(self.game, state))
        return env._replace(solo=self.layout.pack(state)), shown

    def _show(self, settings: Any, state: Any, rewards: Array, over: Array) -> SeatsShown:
        rules = self.game.rules
        views = [rules.view(settings, state, seat) for seat in SEATS]
        masks = [rules.legal(settings, state, seat) for seat in SEATS]
        named = [self.form.named(settings, view, mask) for view, mask in zip(views, masks, strict=True)]
        return SeatsShown(
            features=jnp.stack([self.game.learning.features(settings, view) for view in views]),
            masks=jnp.stack([jnp.concatenate(mask) for mask in masks]),
            named={name: jnp.stack([row[name] for row in named]) for name in named[0]},
            rewards=rewards,
            to_act=rules.to_act(state),
            over=over,
        )


@lru_cache(maxsize=32)
def both_seats(game: Game, form: SeatsForm, described: Any) -> Single:
    """Compiled once for all environments whose settings have the same shapes."""
    return Single(BothSeats(game, form), from_shapes(described))


class SeatsTable:
    """One game on the host."""

    def __init__(
        self, game: str | Game, render_mode: str | None, options: Mapping[str, Any], form: SeatsForm = GENERIC
    ) -> None:
        if render_mode not in (None, "ansi"):
            raise BadInput(f"There is no render mode {render_mode!r}; use 'ansi'.")
        record = load_game(game) if isinstance(game, str) else game
        given = {**dict(record.default_options), **options}
        base: Any = record.options
        self.options: Any = seat_options(base).read(given, "option of the PettingZoo environments")
        self.game: Game = load_game(game, self.options) if isinstance(game, str) else record
        self.form: SeatsForm = form
        self.settings: Any = self.options.settings()
        self.acts = (form.flat_acts or flat_acts)(self.game)
        self._compiled = both_seats(self.game, form, shapes_of(self.settings))
        self._settings = jnp.asarray(self._compiled.settings.write(self.settings))
        flat_tree = self._compiled.flat_tree
        self._places: Any = jax.tree.unflatten(flat_tree.tree, flat_tree.slices)[1]  # a SeatsShown of slices
        named = self._places.named.items()
        self._named = [(name, where.start, (where.stop - where.start) // 2) for name, where in named]
        self._flat_masks: dict[bytes, NDArray[np.int8]] = {}  # cache by the heads' masks
        self._vector: Any = None
        self._shown: NDArray[np.int32]
        self._over = True
        self._wrong: set[str] = set()  # agents whose act of the step to come is illegal
        self._illegal: frozenset[str] = frozenset()  # the same of the last step
        self._make_spaces()

    def _make_spaces(self) -> None:
        features, (low, high) = self._places.features, self.form.feature_range(self.options)
        if self.acts is None:
            waiting = np.isin(np.arange(sum(self.game.sizes)), np.cumsum([0, *self.game.sizes[:-1]]))
        else:
            waiting = np.arange(len(self.acts)) == self.form.wait
        self._waiting: NDArray[np.int8] = waiting.astype(np.int8)
        observation: dict[str, spaces.Space[Any]] = {
            "observation": spaces.Box(low, high, ((features.stop - features.start) // 2,), np.float32),
            "action_mask": spaces.Box(0, 1, waiting.shape, np.int8),
        }
        self.observation_spaces = {agent: spaces.Dict(observation) for agent in AGENTS}
        self.action_spaces = {agent: self._action_space() for agent in AGENTS}

    def _action_space(self) -> spaces.Space[Any]:
        return MaskableMultiDiscrete(list(self.game.sizes)) if self.acts is None else spaces.Discrete(len(self.acts))

    @property
    def over(self) -> bool:
        return self._over

    @property
    def movers(self) -> list[str]:
        """The agents that are to act; none before the first reset and after the end."""
        if self._over:
            return []
        return [agent for agent, acts in zip(AGENTS, self._shown[self._places.to_act], strict=True) if acts]

    def reset(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        """A seed starts a series of episodes; without one the series continues."""
        state = self.form.given_state(self.options, self.settings, options or {})
        self._wrong, self._illegal = set(), frozenset()
        if seed is not None or self._vector is None:
            self._vector = self._compiled.first(_root(seed))
        if state is None:
            self._keep(self._compiled.fresh(self._settings, self._vector))
        else:
            self._keep(self._compiled.place(self._settings, self._vector, state))

    def act_of(self, agent: str, action: Any) -> NDArray[np.int64]:
        """The act of an agent that is to act; an illegal one raises BadInput only with `illegal="error"`."""
        if self._over:
            raise gymnasium.error.ResetNeeded("The episode is over or has not begun; call reset() first.")
        if self.acts is None:
            # rules compute with 32 bits: a number beyond them is as illegal as the first one outside its head
            act = np.clip(np.array(act_of(action, self.game.sizes), np.int64), -1, self.game.sizes)
            shown = f"{action}"
            inside = bool(((act >= 0) & (act < self.game.sizes)).all())
            starts = np.cumsum([0, *self.game.sizes[:-1]])
            legal = inside and bool(self._mask(agent)[(starts + act)[self.game.matters[act[0]]]].all())
        else:
            try:
                number = index(action)
            except TypeError:
                number = -1
            if not 0 <= number < len(self.acts):
                raise BadInput(f"The action is {action!r}; it should be a whole number from 0 to {len(self.acts) - 1}.")
            act, inside, shown = self.acts[number], True, f"{number}"
            legal = bool(self._mask(agent)[number])
        self._wrong.discard(agent)
        if legal:
            return act
        if self.options.illegal == "error":
            view, masks = table_for(self.game).observe(self.settings, self._state(), AGENTS.index(agent))
            words = self.game.words
            said = f" ({words.act_text(tuple(act.tolist()))})" if inside else ""
            choices = words.choices_text(view, masks)
            raise BadInput(f"Action {shown}{said} is illegal for {agent} now; legal choices: {choices}.")
        self._wrong.add(agent)
        return act if self.game.rules.takes_illegal_acts else self._made_legal(agent, act)

    def play(self, acts: Mapping[str, NDArray[np.int64]]) -> None:
        """One step with the acts of all agents that are to act."""
        # `step` ignores the act of a seat that is not to act
        rows = [acts.get(agent, next(iter(acts.values()))) for agent in AGENTS]
        self._keep(self._compiled.advance(self._settings, self._vector, np.array(rows, np.int32)))
        self._illegal, self._wrong = frozenset(self._wrong & acts.keys()), set()

    def rewards(self) -> dict[str, float]:
        paid = self._shown[self._places.rewards].view(np.float32)
        charges = [self.options.charge if agent in self._illegal else 0.0 for agent in AGENTS]
        return {agent: float(points) - charge for agent, points, charge in zip(AGENTS, paid, charges, strict=True)}

    def observation(self, agent: str) -> dict[str, NDArray[Any]]:
        features = self._shown[self._places.features].view(np.float32).reshape(2, -1)[AGENTS.index(agent)].copy()
        return {"observation": features, "action_mask": self._mask(agent).copy()}

    def infos(self) -> Infos:
        infos: Infos = {}
        wide, movers = self._shown.astype(np.int64), self.movers
        scores = self._compiled.score(self._shown) if self._over else {}
        for seat, agent in enumerate(AGENTS):
            infos[agent] = {"to_move": agent in movers, "illegal": agent in self._illegal}
            for name, start, width in self._named:
                at = start + seat * width
                infos[agent][name] = int(wide[at]) if width == 1 else wide[at : at + width]
            if self._over:
                infos[agent] |= self.form.end_info(scores, seat)
        return infos

    def text(self) -> str:
        """What both seats know of the game."""
        return self.form.text(self.game.drawing.frame(self.settings, self._state()))

    def _state(self) -> Any:
        return self._compiled.program.layout.unpack(self._compiled.flat_tree.read(self._shown)[0].solo)

    def _keep(self, vector: Any) -> None:
        self._vector, self._shown = vector, np.asarray(vector)
        self._over = bool(self._shown[self._places.over.start])

    def _head_masks(self, agent: str) -> NDArray[np.int32]:
        """The heads' masks, concatenated."""
        masks: NDArray[np.int32] = self._shown[self._places.masks].reshape(2, -1)[AGENTS.index(agent)]
        return masks

    def _made_legal(self, agent: str, act: NDArray[np.int64]) -> NDArray[np.int64]:
        """Every illegal value replaced by its head's first legal one."""
        rows = np.split(self._head_masks(agent), np.cumsum(self.game.sizes)[:-1])
        pairs = zip(act.tolist(), rows, strict=True)
        return np.array([x if 0 <= x < len(row) and row[x] else row.argmax() for x, row in pairs], np.int64)

    def _mask(self, agent: str) -> NDArray[np.int8]:
        if agent not in self.movers:
            return self._waiting
        masks = self._head_masks(agent)
        if self.acts is None:
            legal: NDArray[np.int8] = masks.astype(np.int8)
            return legal
        key = masks.tobytes()
        if key not in self._flat_masks:
            self._flat_masks[key] = flat_mask(self.acts, masks.astype(bool), self.game).astype(np.int8)
        return self._flat_masks[key]


def _root(seed: int | None) -> int:
    if seed is None:
        return int(np.random.default_rng().integers(2**63))
    if not isinstance(seed, (int, np.integer)) or seed < 0:
        raise BadInput(f"The seed is {seed!r}; it should be a whole number of at least 0.")
    return int(seed)
