"""Any game against any bot as a Gymnasium environment; `gym_vector` steps many of them in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kibitz.core.envs.gym_spaces import LegalActs, act_of
from kibitz.core.envs.program import program_for, shapes_of, single_for
from kibitz.core.envs.setup import GENERIC, Form, prepare
from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.play.episode import table_for

SAMPLED_STARTS = 64  # first positions that `first_masks` samples
MAX_COPIED = 1024  # settings, in numbers, that a step copies; more (a data set's contexts) stay on the device


class Entry(NamedTuple):
    """Where one entry of an observation or info lies in the vector."""

    name: str
    where: slice
    scalar: bool
    kind: str  # "f": f32; "b": shown as bool or int8, Gymnasium's type of masks; otherwise shown as int64


class GameEnv(gymnasium.Env[Any, Any]):
    """One learner in seat 0 against a bot in seat 1.

    `game` is a registered name or a record; keywords are the game's options, `opponent`, `illegal` and
    `illegal_penalty`. The observation is the feature vector, the action one number per head, and
    `info["action_mask"]` the heads' masks, concatenated. A head with one legal value takes it whatever
    the action says. `info["illegal"]` says whether the last act was illegal and lost its turn, `info["over"]`
    whether the episode is over: after a reset that means that the opponent's first act ended it, and the next
    step reports the result whatever the action. The last step's info adds the learner's measures. A game with
    other spaces sets `form` and overrides `act_of`, `given_state` or `render`.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012  (Gymnasium declares it so)
    form: ClassVar[Form] = GENERIC
    _vector: Any = None  # environment and what it last showed, as one vector; None before the first reset
    _over: bool = True
    _row: list[int]

    def __init__(self, game: str | Game, *, render_mode: str | None = None, **options: Any) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise BadInput(f"There is no render mode {render_mode!r}; use 'ansi'.")
        setup = prepare(game, options, self.form)
        self.game, self.options, self.settings, self.opponent = (
            setup.game,
            setup.options,
            setup.settings,
            setup.opponent,
        )
        self.render_mode = render_mode
        self.program = program_for(setup.game, setup.opponent, self.form.observe(setup.game), self.form.end_info)
        self._compiled = single_for(self.program, shapes_of(self.settings))
        settings = self._compiled.settings.write(self.settings)
        self._settings = jnp.asarray(settings)
        flat_tree = self._compiled.flat_tree
        (_, places, scores), (_, shapes, score_shapes), (_, dtypes, score_dtypes) = (
            jax.tree.unflatten(flat_tree.tree, leaves)
            for leaves in (flat_tree.slices, flat_tree.shapes, flat_tree.dtypes)
        )
        self._observation = _entries(places.observation, shapes.observation, dtypes.observation)
        self._info = _entries(places.info, shapes.info, dtypes.info)
        self._scores = _entries(scores, score_shapes, score_dtypes)
        # of a step: settings, state and act
        self._input = np.concatenate([settings, np.zeros(self._compiled.env.size + len(self.game.heads), np.int32)])
        self._is_act = slice(len(settings) + self._compiled.env.size, None)
        self._is_state, self._state_size = slice(len(settings), self._is_act.start), self._compiled.env.size
        self._copies = len(settings) <= MAX_COPIED
        self._reward, self._ends, self._ended = places.reward.start, places.over.start, places.ended.start
        self._reply_acted, self._reply_act = places.reply.acted.start, [part.start for part in places.reply.act]
        starts = [where.start for where in places.masks]
        self._heads = list(zip(self.game.heads, starts, self.game.sizes, strict=True))
        self._masks = slice(starts[0], starts[-1] + self.game.sizes[-1])
        self._matters = [tuple(bool(x) for x in row) for row in self.game.matters]
        self._narrowest = min(self.game.sizes)
        self.observation_space = self.form.observation_space(setup)
        self.action_space = self.sampling_space()

    def sampling_space(self) -> gymnasium.Space[Any]:
        """The action space, whose samples are legal in the current position."""
        return LegalActs(self, self.game.sizes)

    def act_of(self, action: Any) -> Sequence[int]:
        """The action as an act; BadInput if it does not have the action space's shape and type."""
        act = act_of(action, self.game.sizes)
        for i, (head, start, size) in enumerate(self._heads):
            if not 0 <= act[i] < size:
                raise BadInput(f"{head.name} is {act[i]}; it should be 0 to {size - 1}.")
            legal = self._row[start : start + size]
            if sum(legal) == 1:
                act[i] = legal.index(1)
        return act

    def given_state(self, options: Mapping[str, Any]) -> Any:
        """The first position that a caller asks for in `reset(options=...)`, a function that draws it with the
        environment's generator, or None."""
        if options:
            raise BadInput(f"reset has no option {sorted(options)[0]!r}; it takes none here.")
        return None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        state = self.given_state(options or {})
        super().reset(seed=seed)
        if seed is not None or self._vector is None:
            root = seed if seed is not None else int(self.np_random.integers(2**63))
            self._vector = self._compiled.first(root)
        if callable(state):
            state = state(self.np_random)
        if state is None:
            self._vector = self._compiled.fresh(self._settings, self._vector)
        else:
            self._vector = self._compiled.place(self._settings, self._vector, state)
        self._fetch()
        return self._read()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._over:
            raise gymnasium.error.ResetNeeded("The episode is over or has not begun; call reset() first.")
        act = self.act_of(action)
        wrong = self._why_illegal(act)
        if wrong and self.options.illegal == "error":
            raise BadInput(wrong)
        if wrong and not self.game.rules.takes_illegal_acts:
            act = self._made_legal(act)
        if max(act) >= self._narrowest or min(act) < 0:
            # a value too large for a machine word is illegal or does not matter
            act = [min(max(value, -1), size) for value, size in zip(act, self.game.sizes, strict=True)]
        self._input[self._is_act] = act
        if self._copies:
            self._input[self._is_state] = self._shown[: self._state_size]
            self._vector = self._compiled.advance_joined(self._input)
        else:
            self._vector = self._compiled.advance(self._settings, self._vector, self._input[self._is_act])
        over = self._fetch()
        observation, info = self._read(illegal=bool(wrong))
        reals = self._shown.view(np.float32)
        for name, where, scalar, kind in self._scores if over else ():
            if kind == "b":
                info[name] = self._row[where.start] != 0
            else:
                info[name] = reals.item(where.start) if scalar else reals[where].astype(np.float64)
        reward = reals.item(self._reward)
        return observation, reward - self.options.charge if wrong else reward, over, False, info

    def render(self) -> str | None:
        """The position and the legal choices in words."""
        if self.render_mode is None or self._vector is None:
            return None
        env = self._compiled.flat_tree.read(self._shown)[0]
        state = self.program.play.layout.unpack(env.solo).state
        view, masks = table_for(self.game).observe(self.settings, state, 0)
        words = self.game.words
        return f"{words.position_text(view)}\n{words.choices_text(view, masks)}"

    @property
    def begun(self) -> bool:
        return self._vector is not None

    def action_masks(self) -> NDArray[np.bool_]:
        """The heads' masks, concatenated, as MaskablePPO requests them."""
        if self._vector is None:
            raise gymnasium.error.ResetNeeded("There are no masks before the first reset().")
        masks: NDArray[np.bool_] = self._shown[self._masks].astype(bool)
        return masks

    @property
    def opponent_act(self) -> tuple[int, ...] | None:
        """What the opponent did since the learner last acted, if it did anything."""
        if not self._row[self._reply_acted]:
            return None
        return tuple(self._row[place] for place in self._reply_act)

    def first_masks(self) -> NDArray[np.bool_]:
        """What is legal in every first position, as far as a sample of them shows."""
        rows = [
            np.asarray(self._compiled.fresh(self._settings, self._compiled.first(seed)))[self._masks].astype(bool)
            for seed in range(SAMPLED_STARTS)
        ]
        always = np.all(rows, axis=0)
        heads = np.split(always, np.cumsum(self.game.sizes)[:-1])
        # a head without a value that is always legal has one legal value at a time, which `act_of` fills in
        return np.concatenate([head if head.any() else np.ones_like(head) for head in heads])

    def _fetch(self) -> bool:
        """The vector on the host: as an array, and as a list, which is faster to index. Returns whether it is over."""
        self._shown: NDArray[np.int32] = np.asarray(self._vector)
        self._row = self._shown.tolist()
        self._over = self._row[self._ends] != 0
        return self._over

    def _read(self, illegal: bool = False) -> tuple[Any, dict[str, Any]]:
        wide = self._shown.astype(np.int64)
        observation: dict[str, Any] = {}
        for name, where, scalar, kind in self._observation:
            if kind == "f":
                observation[name] = self._shown[where].view(np.float32).copy()
            else:
                observation[name] = wide[where.start] if scalar else wide[where]
        info: dict[str, Any] = {}
        for name, where, scalar, kind in self._info:
            if kind == "b":
                info[name] = self._row[where.start] != 0 if scalar else self._shown[where].astype(np.int8)
            else:
                info[name] = wide.item(where.start) if scalar else wide[where]
        info["illegal"], info["over"] = illegal, self._row[self._ended] != 0
        return (observation if self.form.bare is None else observation[self.form.bare]), info

    def _why_illegal(self, act: Sequence[int]) -> str:
        """Empty if every head that matters has a legal value, or if the opponent's first act has ended the episode."""
        row = self._row
        if row[self._ended]:
            return ""
        for (head, start, size), value, matters in zip(self._heads, act, self._matters[act[0]], strict=True):
            if matters and not (0 <= value < size and row[start + value]):
                legal = [i for i in range(size) if row[start + i]]
                return f"{head.name} is {value}, but only {legal} are legal now."
        return ""

    def _made_legal(self, act: Sequence[int]) -> list[int]:
        """Every illegal value replaced by its head's first legal one."""
        rows = [self._row[start : start + size] for _, start, size in self._heads]
        return [value if row[value] else row.index(1) for value, row in zip(act, rows, strict=True)]


def _entries(places: dict[str, slice], shapes: dict[str, tuple[int, ...]], dtypes: dict[str, Any]) -> list[Entry]:
    return [Entry(name, place, not shapes[name], dtypes[name].kind) for name, place in places.items()]
