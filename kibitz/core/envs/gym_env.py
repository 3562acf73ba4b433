"""Any game against any rule as a Gymnasium environment; `gym_vector` has the same by the thousand.

Both run the same pure functions with the same luck, `chance.uniforms(key, episode, turn)`, and so
agree step by step. A subclass of each says what an observation and an action look like.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kibitz.core.act import Act, Masks
from kibitz.core.bots import Bot, seated
from kibitz.core.chance import episode_luck, seed_key, uniforms
from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.solo import Against, Reply, Solo, against
from kibitz.core.xla.flat_tree import Wire
from kibitz.core.xla.jit import jit_single

Illegal: TypeAlias = Literal["error", "penalty"]
Observe: TypeAlias = Callable[[Any, Any, Masks], tuple[dict[str, Array], dict[str, Array]]]
"""settings, view, masks -> observation and info, as arrays of 32-bit numbers or booleans."""


class Session(NamedTuple):
    """One environment between two calls; arrays of JAX inside programs, of NumPy on the host."""

    solo: Any  # the game and the opponent's memory, packed
    key: Any  # u32[2], from the seed
    luck: Any  # u32[2], from the key and the episode
    episode: Any  # i32[], counts resets since the seed
    turn: Any  # i32[], counts the learner's steps
    pending_reward: Any = np.float32(0)  # f32[], of the opponent's first act, paid with the first step


class Seen(NamedTuple):
    """What a call shows to the caller, likewise."""

    observation: dict[str, Any]
    info: dict[str, Any]
    masks: tuple[Any, ...]
    reward: Any  # f32[], the learner's
    over: Any  # bool[]
    reply: Any = ()  # core.solo.Reply: what the opponent just did; a caller may know it


class Program:
    """The functions of one environment, to be compiled as they are or mapped over many."""

    def __init__(self, game: Game, opponent: Bot, observe: Observe) -> None:
        self.game, self.observe = game, observe
        self.play: Against = against(game, opponent)

    def fresh(self, settings: Any, session: Session) -> tuple[Session, Seen]:
        """The next episode of this environment."""
        session = self._next(session)
        u = uniforms(session.luck, 0, self.play.new_uniforms)
        return self._begin(settings, session, self.play.first_state(settings, u), u)

    def place(self, settings: Any, session: Session, state: Any) -> tuple[Session, Seen]:
        """The next episode, from a given first position."""
        session = self._next(session)
        u = uniforms(session.luck, 0, self.play.new_uniforms)
        return self._begin(settings, session, state, u)

    def advance(self, settings: Any, session: Session, act: Act) -> tuple[Session, Seen]:
        turn = session.turn + 1
        solo = self.play.layout.unpack(session.solo)
        u = uniforms(session.luck, turn, self.play.step_uniforms)
        solo, rewards, over, reply = self.play.step(settings, solo, act, u)
        seen = self._see(settings, solo, rewards[0] + session.pending_reward, over, reply)
        return session._replace(solo=self.play.layout.pack(solo), turn=turn, pending_reward=jnp.float32(0)), seen

    def score(self, settings: Any, session: Session) -> Mapping[str, Array]:
        solo: Solo = self.play.layout.unpack(session.solo)
        return self.game.measures.score(settings, solo.state)

    def empty(self, settings: Any) -> Session:
        solo = self.play.new(settings, jnp.zeros(self.play.new_uniforms))
        nothing = jnp.zeros(2, jnp.uint32)
        return Session(self.play.layout.pack(solo), nothing, nothing, jnp.int32(-1), jnp.int32(0))

    def _next(self, session: Session) -> Session:
        episode = session.episode + 1
        return session._replace(episode=episode, luck=episode_luck(session.key, episode), turn=jnp.int32(0))

    def _begin(self, settings: Any, session: Session, state: Any, u: Array) -> tuple[Session, Seen]:
        """Not over for the caller, even if the opponent's first act ended the game: the first step says so."""
        solo, rewards, reply = self.play.opening(settings, state, u)
        session = session._replace(solo=self.play.layout.pack(solo), pending_reward=rewards[0])
        return session, self._see(settings, solo, jnp.float32(0), jnp.bool_(False), reply)

    def _see(self, settings: Any, solo: Solo, reward: Array, over: Array, reply: Reply) -> Seen:
        view, masks = self.game.rules.view(settings, solo.state, 0), self.game.rules.legal(settings, solo.state, 0)
        observation, info = self.observe(settings, view, masks)
        return Seen(observation, info, masks, reward, over, reply)


class Single:
    """A program compiled for one environment: one vector in, one vector out.

    The vector holds the session, what is seen, and the scores, which mean something once the game is over.
    """

    def __init__(self, program: Program, shapes: Any) -> None:
        self.program = program
        self.settings = Wire(shapes)
        self.session = Wire(jax.eval_shape(program.empty, shapes))
        shown = jax.eval_shape(lambda s: self._scored(s, *program.fresh(s, program.empty(s))), shapes)
        self.wire = Wire(shown)
        self._scores: Mapping[str, slice] = jax.tree.unflatten(self.wire.tree, self.wire.slices)[2]
        call = self._call
        self.fresh = jit_single(lambda s, v: call(program.fresh, s, v))
        self.place = jit_single(lambda s, v, state: call(program.place, s, v, state))
        self.advance = jit_single(lambda s, v, act: call(program.advance, s, v, tuple(act)))

    def _call(self, function: Any, settings: Array, vector: Array, *rest: Any) -> Array:
        told = self.settings.unpack(settings)
        session, seen = function(told, self.session.unpack(vector[: self.session.size]), *rest)
        return self.wire.pack(self._scored(told, session, seen))

    def _scored(self, settings: Any, session: Session, seen: Any) -> tuple[Session, Any, Mapping[str, Array]]:
        """With a branch, so that only the last step pays for the scores, and nobody for a second call."""

        def scores() -> Mapping[str, Array]:
            return {name: value.astype(jnp.float32) for name, value in self.program.score(settings, session).items()}

        def nothing() -> Mapping[str, Array]:
            return {name: jnp.zeros(value.shape) for name, value in jax.eval_shape(scores).items()}

        return session, seen, jax.lax.cond(seen.over, scores, nothing)

    def score(self, seen: NDArray[np.int32]) -> Mapping[str, NDArray[np.float32]]:
        """f32[2] each: the measures of a game that is over."""
        reals = seen.view(np.float32)
        return {name: reals[where] for name, where in self._scores.items()}

    def first(self, seed: int) -> NDArray[np.int32]:
        """An environment that has not been reset: zeros but for the key and the episode."""
        words = [np.zeros(shape, dtype) for shape, dtype in zip(self.session.shapes, self.session.dtypes, strict=True)]
        session: Session = jax.tree.unflatten(self.session.tree, words)
        session = session._replace(key=np.asarray(seed_key(seed)), episode=np.asarray(-1, np.int32))
        flat = [np.ascontiguousarray(leaf).reshape(-1).view(np.int32) for leaf in jax.tree.leaves(session)]
        vector = np.zeros(self.wire.size, np.int32)
        vector[: self.session.size] = np.concatenate(flat)
        return vector


def shapes_of(settings: Any) -> tuple[Any, tuple[tuple[tuple[int, ...], str], ...]]:
    """A hashable description of a tree of arrays."""
    leaves, tree = jax.tree.flatten(settings)
    return tree, tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)


def from_shapes(described: Any) -> Any:
    tree, leaves = described
    return jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(shape, np.dtype(dtype)) for shape, dtype in leaves])


@lru_cache(maxsize=32)
def program_for(game: Game, opponent: Bot, observe: Observe) -> Program:
    return Program(game, opponent, observe)


@lru_cache(maxsize=32)
def single_for(program: Program, described: Any) -> Single:
    """Compiled once for all environments whose settings have the same shapes."""
    return Single(program, from_shapes(described))


class Shown(NamedTuple):
    """Where one entry of an observation or info lies on the wire."""

    name: str
    where: slice
    scalar: bool
    real: bool  # f32; otherwise it is shown as int64


def shown(places: dict[str, slice], shapes: dict[str, tuple[int, ...]], dtypes: dict[str, Any]) -> list[Shown]:
    return [Shown(name, place, not shapes[name], dtypes[name].kind == "f") for name, place in places.items()]


class GameEnv(gymnasium.Env[Any, Any]):
    """One learner in seat 0 against a rule in seat 1.

    A subclass sets both spaces before calling this constructor and provides `observe`, `act_of`,
    `given_state` and `end_info`. With `bare` the entry of that name is the whole observation.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012  (Gymnasium declares it so)
    observe: Observe
    bare: str | None = None
    _vector: Any = None  # session and what was seen last, on the wire
    _over: bool = True
    _row: list[int]

    def __init__(
        self, game: Game, settings: Any, opponent: Bot, illegal: Illegal, penalty: float, render_mode: str | None
    ) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise BadInput(f"There is no render mode {render_mode!r}; there is 'ansi'.")
        self.game, self.opponent, self.render_mode = game, opponent, render_mode
        self.settings = seated(settings, {1: opponent})
        self._illegal, self._penalty = illegal, penalty
        self._compiled = single_for(program_for(game, opponent, type(self).observe), shapes_of(self.settings))
        self._settings = jnp.asarray(self._compiled.settings.write(self.settings))
        wire = self._compiled.wire
        places, shapes, dtypes = (
            jax.tree.unflatten(wire.tree, leaves)[1] for leaves in (wire.slices, wire.shapes, wire.dtypes)
        )
        self._observation = shown(places.observation, shapes.observation, dtypes.observation)
        self._info = shown(places.info, shapes.info, dtypes.info)
        self._reward, self._ends = places.reward.start, places.over.start
        self._reply_acted, self._reply_act = places.reply.acted.start, [part.start for part in places.reply.act]
        starts = [where.start for where in places.masks]
        self._heads = list(zip(game.heads, starts, game.sizes, strict=True))
        self._open = slice(starts[0], starts[-1] + game.sizes[-1])
        self._counting = [tuple(bool(x) for x in row) for row in game.matters]
        self._narrowest = min(game.sizes)

    def act_of(self, action: Any) -> Sequence[int]:
        """The action as an act; BadInput if it is not of the action space's shape and type."""
        raise NotImplementedError

    def given_state(self, options: Mapping[str, Any]) -> Any:
        """The first position a caller asked for in `reset(options=...)`, or None."""
        raise NotImplementedError

    def end_info(self, scores: Mapping[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        state = self.given_state(options or {})
        super().reset(seed=seed)
        if seed is not None or self._vector is None:
            root = seed if seed is not None else int(self.np_random.integers(2**63))
            self._vector = self._compiled.first(root)
        if state is None:
            self._vector = self._compiled.fresh(self._settings, self._vector)
        else:
            self._vector = self._compiled.place(self._settings, self._vector, state)
        self._look()
        return self._read(self._seen)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._over:
            raise gymnasium.error.ResetNeeded("The episode is over or was never begun; call reset() first.")
        act = self.act_of(action)
        wrong = self._why_illegal(act)
        if wrong and self._illegal == "error":
            raise BadInput(wrong)
        if max(act) >= self._narrowest or min(act) < 0:
            # whatever is too large for a machine word is illegal, or does not matter
            act = [min(max(value, -1), size) for value, size in zip(act, self.game.sizes, strict=True)]
        self._vector = self._compiled.advance(self._settings, self._vector, np.array(act, np.int32))
        over = self._look()
        observation, info = self._read(self._seen)
        if over:
            info |= self._end_info()
        reward = self._seen.view(np.float32).item(self._reward)
        return observation, reward - self._penalty if wrong else reward, over, False, info

    @property
    def begun(self) -> bool:
        return self._vector is not None

    def masks(self) -> NDArray[np.bool_]:
        """The heads' masks one after the other."""
        if self._vector is None:
            raise gymnasium.error.ResetNeeded("Nothing is open before the first reset().")
        opened: NDArray[np.bool_] = self._seen[self._open].astype(bool)
        return opened

    @property
    def opponent_act(self) -> tuple[int, ...] | None:
        """What the opponent did since the learner last acted, if it did anything."""
        if not self._row[self._reply_acted]:
            return None
        return tuple(self._row[place] for place in self._reply_act)

    def _look(self) -> bool:
        """The wire on the host: as an array, and as a list, which is quicker to ask for one number. Is it over?"""
        self._seen = np.asarray(self._vector)
        self._row = self._seen.tolist()
        self._over = self._row[self._ends] != 0
        return self._over

    def _read(self, seen: NDArray[np.int32]) -> tuple[Any, dict[str, Any]]:
        wide = seen.astype(np.int64)
        observation: dict[str, Any] = {}
        for name, where, scalar, real in self._observation:
            if real:
                observation[name] = seen[where].view(np.float32).copy()
            else:
                observation[name] = wide[where.start] if scalar else wide[where]
        info: dict[str, Any] = {}
        for name, where, scalar, _ in self._info:
            info[name] = wide.item(where.start) if scalar else wide[where]
        return (observation if self.bare is None else observation[self.bare]), info

    def _end_info(self) -> dict[str, Any]:
        return self.end_info(self._compiled.score(self._seen))

    def _why_illegal(self, act: Sequence[int]) -> str:
        """Empty if every head that matters has an open value."""
        row = self._row
        for (head, start, size), value, matters in zip(self._heads, act, self._counting[act[0]], strict=True):
            if matters and not (0 <= value < size and row[start + value]):
                open_now = [i for i in range(size) if row[start + i]]
                return f"{head.name} is {value}, but only {open_now} are open now."
        return ""
