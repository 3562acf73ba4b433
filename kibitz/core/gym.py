"""Any game against any rule as a Gymnasium environment, one at a time and by the thousand.

Both run the same pure functions with the same luck, `chance.uniforms(key, episode, turn)`, and so
agree step by step. A subclass of each says what an observation and an action look like.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple, TypeAlias

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jax import Array
from numpy.typing import NDArray

from kibitz.core.act import Act, Masks
from kibitz.core.chance import episode_luck, seed_key, uniforms
from kibitz.core.errors import BadInput
from kibitz.core.game import Against, Game, Rule, Solo, against, choose, seated
from kibitz.core.wire import Wire

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
    owed: Any = np.float32(0)  # f32[], paid by the opponent's first act and handed over with the first step


class Seen(NamedTuple):
    """What a call shows to the caller, likewise."""

    observation: dict[str, Any]
    info: dict[str, Any]
    masks: tuple[Any, ...]
    reward: Any  # f32[], the learner's
    over: Any  # bool[]


class Program:
    """The functions of one environment, to be compiled as they are or mapped over many."""

    def __init__(self, game: Game, opponent: Rule, observe: Observe) -> None:
        self.game, self.observe = game, observe
        self.play: Against = against(game, opponent)

    def fresh(self, settings: Any, session: Session) -> tuple[Session, Seen]:
        """The next episode of this environment."""
        session = self._next(session)
        u = uniforms(session.luck, 0, self.play.new_uniforms)
        return self._begin(settings, session, self.game.new(settings, u[: self.game.new_uniforms]), u)

    def place(self, settings: Any, session: Session, state: Any) -> tuple[Session, Seen]:
        """The next episode, from a given first position."""
        session = self._next(session)
        u = uniforms(session.luck, 0, self.play.new_uniforms)
        return self._begin(settings, session, state, u)

    def advance(self, settings: Any, session: Session, act: Act) -> tuple[Session, Seen]:
        turn = session.turn + 1
        solo = self.play.layout.unpack(session.solo)
        u = uniforms(session.luck, turn, self.play.step_uniforms)
        solo, rewards, over = self.play.step(settings, solo, act, u)
        seen = self._see(settings, solo, rewards[0] + session.owed, over)
        return session._replace(solo=self.play.layout.pack(solo), turn=turn, owed=jnp.float32(0)), seen

    def score(self, settings: Any, session: Session) -> Mapping[str, Array]:
        solo: Solo = self.play.layout.unpack(session.solo)
        return self.game.score(settings, solo.state)

    def empty(self, settings: Any) -> Session:
        solo = self.play.new(settings, jnp.zeros(self.play.new_uniforms))
        nothing = jnp.zeros(2, jnp.uint32)
        return Session(self.play.layout.pack(solo), nothing, nothing, jnp.int32(-1), jnp.int32(0))

    def _next(self, session: Session) -> Session:
        episode = session.episode + 1
        return session._replace(episode=episode, luck=episode_luck(session.key, episode), turn=jnp.int32(0))

    def _begin(self, settings: Any, session: Session, state: Any, u: Array) -> tuple[Session, Seen]:
        """Not over for the caller, even if the opponent's first act ended the game: the first step tells."""
        solo, rewards = self.play.opening(settings, state, u)
        session = session._replace(solo=self.play.layout.pack(solo), owed=rewards[0])
        return session, self._see(settings, solo, jnp.float32(0), jnp.bool_(False))

    def _see(self, settings: Any, solo: Solo, reward: Array, over: Array) -> Seen:
        view, masks = self.game.view(settings, solo.state, 0), self.game.legal(settings, solo.state, 0)
        observation, info = self.observe(settings, view, masks)
        return Seen(observation, info, masks, reward, over)


class Single:
    """A program compiled for one environment: one vector in, one vector out."""

    def __init__(self, program: Program, shapes: Any) -> None:
        self.settings = Wire(shapes)
        self.wire = Wire(jax.eval_shape(lambda s: program.fresh(s, program.empty(s)), shapes))
        session = jax.eval_shape(program.empty, shapes)
        self.session = Wire(session)
        call = self._call
        self.fresh = jax.jit(lambda s, v: call(program.fresh, s, v))
        self.place = jax.jit(lambda s, v, state: call(program.place, s, v, state))
        self.advance = jax.jit(lambda s, v, act: call(program.advance, s, v, tuple(act)))
        self.score = jax.jit(
            lambda s, v: program.score(self.settings.unpack(s), self.session.unpack(v[: self.session.size]))
        )

    def _call(self, function: Any, settings: Array, vector: Array, *rest: Any) -> Array:
        session = self.session.unpack(vector[: self.session.size])
        return self.wire.pack(function(self.settings.unpack(settings), session, *rest))

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
def program_for(game: Game, opponent: Rule, observe: Observe) -> Program:
    return Program(game, opponent, observe)


@lru_cache(maxsize=32)
def single_for(program: Program, described: Any) -> Single:
    """Compiled once for all environments whose settings have the same shapes."""
    return Single(program, from_shapes(described))


class GameEnv(gymnasium.Env[dict[str, Any], dict[str, Any]]):
    """One learner in seat 0 against a rule in seat 1.

    A subclass sets both spaces before calling this constructor and provides `observe`, `act_of`,
    `given_state` and `end_info`.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012  (Gymnasium declares it so)
    observe: Observe
    _vector: Any = None  # session and what was seen last, on the wire

    def __init__(
        self, game: Game, settings: Any, opponent: Rule, illegal: Illegal, penalty: float, render_mode: str | None
    ) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise BadInput(f"There is no render mode {render_mode!r}; there is 'ansi'.")
        self.game, self.opponent, self.render_mode = game, opponent, render_mode
        self.settings = seated(settings, {1: opponent})
        self._illegal, self._penalty = illegal, penalty
        self._compiled = single_for(program_for(game, opponent, type(self).observe), shapes_of(self.settings))
        self._settings = self._compiled.settings.pack(self.settings)
        self._over = True
        wire = self._compiled.wire
        places: Seen = jax.tree.unflatten(wire.tree, wire.slices)[1]
        shapes: Seen = jax.tree.unflatten(wire.tree, [len(shape) for shape in wire.shapes])[1]
        self._observation = [(name, where, not shapes.observation[name]) for name, where in places.observation.items()]
        self._info = [(name, where, not shapes.info[name]) for name, where in places.info.items()]
        self._masks = [where.start for where in places.masks]
        self._reward, self._ends = places.reward.start, places.over.start

    def act_of(self, action: Any) -> tuple[int, ...]:
        """The action as an act; BadInput if it is not of the action space's shape and type."""
        raise NotImplementedError

    def given_state(self, options: Mapping[str, Any]) -> Any:
        """The first position a caller asked for in `reset(options=...)`, or None."""
        raise NotImplementedError

    def end_info(self, scores: Mapping[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        state = self.given_state(options or {})
        super().reset(seed=seed)
        if seed is not None or self._vector is None:
            root = seed if seed is not None else int(self.np_random.integers(2**63))
            self._vector = self._compiled.first(root)
        if state is None:
            self._vector = self._compiled.fresh(self._settings, self._vector)
        else:
            self._vector = self._compiled.place(self._settings, self._vector, state)
        seen = np.asarray(self._vector)
        self._seen, self._over = seen, bool(seen[self._ends])
        return self._read(seen)

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        if self._over:
            raise gymnasium.error.ResetNeeded("The episode is over or was never begun; call reset() first.")
        act = self.act_of(action)
        wrong = self._why_illegal(act)
        if wrong and self._illegal == "error":
            raise BadInput(wrong)
        # whatever is too large for a machine word is illegal all the same
        heads = [min(max(value, -1), size) for value, size in zip(act, self.game.sizes, strict=True)]
        self._vector = self._compiled.advance(self._settings, self._vector, np.array(heads, np.int32))
        self._seen = seen = np.asarray(self._vector)
        self._over = bool(seen[self._ends])
        observation, info = self._read(seen)
        if self._over:
            info |= self._score()
        reward = float(seen[self._reward : self._reward + 1].view(np.float32)[0])
        return observation, reward - (self._penalty if wrong else 0.0), self._over, False, info

    @property
    def begun(self) -> bool:
        return self._vector is not None

    def masks(self) -> NDArray[np.bool_]:
        """The heads' masks one after the other."""
        if self._vector is None:
            raise gymnasium.error.ResetNeeded("Nothing is open before the first reset().")
        first, last = self._masks[0], self._masks[-1] + self.game.heads[-1].size
        opened: NDArray[np.bool_] = self._seen[first:last].astype(bool)
        return opened

    def _read(self, seen: NDArray[np.int32]) -> tuple[dict[str, Any], dict[str, Any]]:
        wide = seen.astype(np.int64)
        observation = {name: wide[where.start] if scalar else wide[where] for name, where, scalar in self._observation}
        info = {name: int(wide[where.start]) if scalar else wide[where] for name, where, scalar in self._info}
        return observation, info

    def _score(self) -> dict[str, Any]:
        scores = self._compiled.score(self._settings, self._vector)
        return self.end_info({name: np.asarray(value) for name, value in scores.items()})

    def _why_illegal(self, act: tuple[int, ...]) -> str:
        """Empty if every head that matters has an open value."""
        counts = self.game.matters[act[0]]
        for head, start, value, matters in zip(self.game.heads, self._masks, act, counts, strict=True):
            if matters and not (0 <= value < head.size and self._seen[start + value]):
                open_now = [int(i) for i in np.flatnonzero(self._seen[start : start + head.size])]
                return f"{head.name} is {value}, but only {open_now} are open now."
        return ""


class GameVectorEnv(VectorEnv[dict[str, Any], dict[str, Any], NDArray[Any]]):
    """Many environments in one compiled call; the twin of `GameEnv` in all three autoreset modes.

    A subclass sets `single_observation_space` and `single_action_space` before calling this
    constructor and provides `observe`, `acts_of` and `end_info`.
    """

    observe: Observe

    def __init__(
        self,
        num_envs: int,
        game: Game,
        settings: Any,
        opponent: Rule,
        illegal: Illegal,
        penalty: float,
        autoreset_mode: str | AutoresetMode,
    ) -> None:
        try:
            self.autoreset_mode = AutoresetMode(autoreset_mode)
        except ValueError:
            modes = ", ".join(mode.value for mode in AutoresetMode)
            raise BadInput(f"There is no autoreset mode {autoreset_mode!r}; there are {modes}.") from None
        if not isinstance(num_envs, int) or num_envs < 1:
            raise BadInput(f"num_envs is {num_envs!r}; it should be a whole number of at least 1.")
        self.num_envs, self.game, self.opponent = num_envs, game, opponent
        self.metadata = {"autoreset_mode": self.autoreset_mode, "render_modes": []}
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.settings = seated(settings, {1: opponent})
        self._illegal, self._penalty = illegal, penalty
        program = program_for(game, opponent, type(self).observe)
        self._fresh, self._advance, self._scores = _batched(program, self.autoreset_mode)
        self._sessions: Session | None = None
        self._seen: Seen | None = None
        self._over: NDArray[np.bool_] = np.ones(num_envs, bool)
        self._program = program

    def acts_of(self, actions: Any) -> NDArray[np.int64]:
        """i64[heads, num_envs]; BadInput if the actions are not of the action space's shape and type."""
        raise NotImplementedError

    def end_info(self, scores: Mapping[str, Any]) -> dict[str, Any]:
        """Info of finished episodes; `scores` are f32[finished, 2] each."""
        raise NotImplementedError

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        mask = self._reset_mask(options or {})
        self._seed(seed, mask)
        assert self._sessions is not None
        sessions, seen = self._fresh(self.settings, self._sessions, jnp.asarray(mask))
        if self._seen is not None and not mask.all():
            seen = _merge(mask, seen, self._seen)
        self._sessions, self._seen = sessions, _host(seen)
        self._over = np.where(mask, self._seen.over, self._over)
        return self._observations(self._seen), self._infos(self._seen, mask)

    def step(self, actions: Any) -> tuple[dict[str, Any], NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        if self._seen is None or self._sessions is None:
            raise gymnasium.error.ResetNeeded("The environments were never begun; call reset() first.")
        acts = self.acts_of(actions)
        resets = self._over.copy() if self.autoreset_mode is AutoresetMode.NEXT_STEP else np.zeros_like(self._over)
        if self.autoreset_mode is AutoresetMode.DISABLED and self._over.any():
            raise gymnasium.error.ResetNeeded(
                "Some episodes are over; reset them with reset(options={'reset_mask': ...}) first."
            )
        wrong = self._illegal_envs(acts) & ~resets
        if wrong.any() and self._illegal == "error":
            raise BadInput(self._why_illegal(acts, int(np.flatnonzero(wrong)[0])))
        heads = np.clip(acts, -1, np.array(self.game.sizes)[:, None]).astype(np.int32)
        sessions, seen, final_sessions, final_seen = self._advance(
            self.settings, self._sessions, tuple(heads), jnp.asarray(resets)
        )
        final = _host(final_seen)
        ended = final.over & ~resets
        rewards = np.where(resets, 0.0, final.reward.astype(np.float64)) - np.where(wrong, self._penalty, 0.0)
        scores = self._score(final_sessions, ended)
        self._sessions = sessions
        everyone = np.ones(self.num_envs, bool)
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            self._seen = _host(seen)
            self._over = self._seen.over
            infos = self._infos(self._seen, everyone)
            infos |= self._final(final, ended, scores)
        else:
            self._seen, self._over = final, final.over
            infos = self._infos(final, everyone) | scores
        return self._observations(self._seen), rewards, ended, np.zeros_like(ended), infos

    def _seed(self, seed: int | list[int | None] | None, mask: NDArray[np.bool_]) -> None:
        n = self.num_envs
        if seed is not None and not isinstance(seed, (int, list, tuple)):
            raise BadInput(f"seed is {seed!r}; it should be a whole number or a list of {n}.")
        seeds = list(range(seed, seed + n)) if isinstance(seed, int) else list(seed) if seed is not None else [None] * n
        if len(seeds) != n:
            raise BadInput(f"There are {len(seeds)} seeds for {n} environments; give one for each, or one number.")
        for one in seeds:
            if one is not None and (not isinstance(one, int) or one < 0):
                raise BadInput(f"A seed is {one!r}; it should be a whole number from 0 on.")
        if isinstance(seed, int):
            self._np_random, self._np_random_seed = gymnasium.utils.seeding.np_random(seed)
        new = np.array([s is not None for s in seeds]) & mask
        if self._sessions is None:
            new |= mask
            # shapes alone: running it here, operation by operation, takes seconds
            empty = jax.eval_shape(self._program.empty, self.settings)
            self._sessions = jax.tree.map(lambda x: jnp.zeros((n, *x.shape), x.dtype), empty)
        if not new.any():
            return
        roots = self.np_random.integers(2**63, size=n)
        chosen = [int(root) if s is None else s for s, root in zip(seeds, roots, strict=True)]
        keys = np.array([[(s >> 32) & 0xFFFFFFFF, s & 0xFFFFFFFF] for s in chosen], np.uint32)
        key = np.where(new[:, None], keys, np.asarray(self._sessions.key))
        episode = np.where(new, -1, np.asarray(self._sessions.episode))
        self._sessions = self._sessions._replace(key=jnp.asarray(key), episode=jnp.asarray(episode, jnp.int32))

    def _reset_mask(self, options: dict[str, Any]) -> NDArray[np.bool_]:
        unknown = set(options) - {"reset_mask"}
        if unknown:
            raise BadInput(f"reset has no option {sorted(unknown)[0]!r}; it has 'reset_mask'.")
        mask = options.get("reset_mask")
        if mask is None:
            return np.ones(self.num_envs, bool)
        if not isinstance(mask, np.ndarray) or mask.shape != (self.num_envs,) or mask.dtype != bool or not mask.any():
            raise BadInput(f"reset_mask should be a boolean array of shape ({self.num_envs},) with at least one True.")
        if self._sessions is None and not mask.all():
            raise BadInput("The first reset begins every environment; call it without reset_mask.")
        return mask

    def _illegal_envs(self, acts: NDArray[np.int64]) -> NDArray[np.bool_]:
        assert self._seen is not None
        rows = np.arange(self.num_envs)
        counts = self.game.matters[np.clip(acts[0], 0, self.game.heads[0].size - 1)]
        wrong = np.zeros(self.num_envs, bool)
        for i, (head, mask) in enumerate(zip(self.game.heads, self._seen.masks, strict=True)):
            inside = (acts[i] >= 0) & (acts[i] < head.size)
            wrong |= counts[:, i] & ~(inside & np.asarray(mask)[rows, np.clip(acts[i], 0, head.size - 1)])
        return wrong

    def _why_illegal(self, acts: NDArray[np.int64], env: int) -> str:
        assert self._seen is not None
        for i, (head, mask) in enumerate(zip(self.game.heads, self._seen.masks, strict=True)):
            open_now = [int(x) for x in np.flatnonzero(np.asarray(mask)[env])]
            if int(acts[i, env]) not in open_now:
                return f"{head.name} of environment {env} is {acts[i, env]}, but only {open_now} are open now."
        raise AssertionError("asked about a legal act")

    def _observations(self, seen: Seen) -> dict[str, Any]:
        return {name: np.asarray(value, np.int64) for name, value in seen.observation.items()}

    def _infos(self, seen: Seen, mask: NDArray[np.bool_]) -> dict[str, Any]:
        infos: dict[str, Any] = {}
        for name, value in seen.info.items():
            wide = np.asarray(value, np.int64)
            kept = mask.reshape(-1, *[1] * (wide.ndim - 1))
            infos |= {name: np.where(kept, wide, 0), f"_{name}": mask.copy()}
        return infos

    def _score(self, sessions: Session, ended: NDArray[np.bool_]) -> dict[str, Any]:
        """End-of-episode info, computed for the finished games alone."""
        rows = np.flatnonzero(ended)
        if not len(rows):
            return {}
        # a few fixed sizes, so that few programs are compiled
        size = min(self.num_envs, 1 << max(len(rows) - 1, 7).bit_length())
        padded = np.resize(rows, size)
        scores = self._scores(self.settings, jax.tree.map(lambda x: x[padded], sessions))
        infos: dict[str, Any] = {}
        for name, value in self.end_info({k: np.asarray(v)[: len(rows)] for k, v in scores.items()}).items():
            spread = np.zeros((self.num_envs, *value.shape[1:]), value.dtype)
            spread[rows] = value
            infos |= {name: spread, f"_{name}": ended.copy()}
        return infos

    def _final(self, seen: Seen, ended: NDArray[np.bool_], scores: dict[str, Any]) -> dict[str, Any]:
        if not ended.any():
            return {}
        observations = self._observations(seen)
        last = np.full(self.num_envs, None, object)
        for row in np.flatnonzero(ended):
            last[row] = {name: value[row] for name, value in observations.items()}
        return {
            "final_obs": last,
            "_final_obs": ended.copy(),
            "final_info": self._infos(seen, ended) | scores,
            "_final_info": ended.copy(),
        }


def _host(seen: Seen) -> Seen:
    host: Seen = jax.tree.map(np.asarray, jax.device_get(seen))
    return host


def _merge(mask: NDArray[np.bool_], new: Seen, old: Seen) -> Seen:
    merged: Seen = jax.tree.map(lambda a, b: np.where(mask.reshape(-1, *[1] * (np.ndim(a) - 1)), a, b), _host(new), old)
    return merged


@lru_cache(maxsize=32)
def _batched(program: Program, mode: AutoresetMode) -> tuple[Any, Any, Any]:
    """The program mapped over environments: fresh, advance and score."""

    def fresh(settings: Any, session: Session, mask: Array) -> tuple[Session, Seen]:
        after, seen = program.fresh(settings, session)
        return choose(mask, after, session), seen

    def advance(settings: Any, session: Session, act: Act, reset: Array) -> tuple[Session, Seen, Session, Seen]:
        stepped = program.advance(settings, session, act)
        if mode is AutoresetMode.DISABLED:
            return *stepped, *stepped
        begun = program.fresh(settings, session)
        if mode is AutoresetMode.NEXT_STEP:
            shown = choose(reset, begun, stepped)
            return *shown, *shown
        return *choose(stepped[1].over, begun, stepped), *stepped

    many = partial(jax.vmap, in_axes=(None, 0))
    return (
        jax.jit(jax.vmap(fresh, in_axes=(None, 0, 0))),
        jax.jit(jax.vmap(advance, in_axes=(None, 0, 0, 0))),
        jax.jit(many(program.score)),
    )
