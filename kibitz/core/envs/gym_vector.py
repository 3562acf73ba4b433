"""Many environments of one game in one compiled call."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jax import Array
from numpy.typing import NDArray

from kibitz.core.act import Act
from kibitz.core.bots import Bot, seated, where
from kibitz.core.envs.gym_env import Illegal, Observe, Program, Seen, Session, from_shapes, program_for, shapes_of
from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.xla.jit import jit_batch


class GameVectorEnv(VectorEnv[Any, Any, NDArray[Any]]):
    """Many environments in one compiled call; the twin of `GameEnv` in all three autoreset modes.

    A subclass sets `single_observation_space` and `single_action_space` before calling this
    constructor and provides `observe`, `acts_of` and `end_info`.
    """

    observe: Observe
    bare: str | None = None  # as in `GameEnv`

    def __init__(
        self,
        num_envs: int,
        game: Game,
        settings: Any,
        opponent: Bot,
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
        self._fresh, self._scores = _batched(program)
        self._advance = _advance(program, self.autoreset_mode)
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
    ) -> tuple[Any, dict[str, Any]]:
        mask = self._reset_mask(options or {})
        self._seed(seed, mask)
        assert self._sessions is not None
        sessions, seen = self._fresh(self.settings, self._sessions, jnp.asarray(mask))
        if self._seen is not None and not mask.all():
            seen = _merge(mask, seen, self._seen)
        self._sessions, self._seen = sessions, _host(seen)
        self._over = np.where(mask, self._seen.over, self._over)
        return self._observations(self._seen), self._infos(self._seen, mask)

    def step(self, actions: Any) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
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
            empty = _session_shapes(self._program, shapes_of(self.settings))
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

    def _observations(self, seen: Seen) -> Any:
        wide = {name: _wide(value) for name, value in seen.observation.items()}
        return wide if self.bare is None else wide[self.bare]

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
        scores = self._scores(self.settings, sessions, np.resize(rows, size).astype(np.int32))
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
            last[row] = jax.tree.map(lambda value, row=row: value[row], observations)
        return {
            "final_obs": last,
            "_final_obs": ended.copy(),
            "final_info": self._infos(seen, ended) | scores,
            "_final_info": ended.copy(),
        }


def _wide(value: Any) -> NDArray[Any]:
    """Real numbers stay as they are, whole ones are int64 as in Gymnasium's spaces; a copy, for the caller to keep."""
    return np.array(value, np.float32 if np.asarray(value).dtype.kind == "f" else np.int64)


def _host(seen: Seen) -> Seen:
    host: Seen = jax.tree.map(np.asarray, jax.device_get(seen))
    return host


def _merge(mask: NDArray[np.bool_], new: Seen, old: Seen) -> Seen:
    merged: Seen = jax.tree.map(lambda a, b: np.where(mask.reshape(-1, *[1] * (np.ndim(a) - 1)), a, b), _host(new), old)
    return merged


@lru_cache(maxsize=32)
def _session_shapes(program: Program, described: Any) -> Session:
    """Shapes alone: running it, operation by operation, takes seconds."""
    shapes: Session = jax.eval_shape(program.empty, from_shapes(described))
    return shapes


@lru_cache(maxsize=32)
def _batched(program: Program) -> tuple[Any, Any]:
    """The program mapped over environments: a fresh episode where the mask says so, and scores of the rows named."""

    def fresh(settings: Any, session: Session, mask: Array) -> tuple[Session, Seen]:
        after, seen = program.fresh(settings, session)
        return where(mask, after, session), seen._replace(reply=())  # no caller of a vector reads it

    def score(settings: Any, sessions: Session, rows: Array) -> Mapping[str, Array]:
        # picked in here: outside of a compiled program each array costs a fraction of a millisecond
        picked = jax.tree.map(lambda leaf: leaf[rows], sessions)
        return jax.vmap(program.score, in_axes=(None, 0))(settings, picked)

    return jit_batch(jax.vmap(fresh, in_axes=(None, 0, 0))), jit_batch(score)


@lru_cache(maxsize=32)
def _advance(program: Program, mode: AutoresetMode) -> Any:
    """One step of every environment, and what it led to before an episode was begun in its place."""

    def advance(settings: Any, session: Session, act: Act, reset: Array) -> tuple[Session, Seen, Session, Seen]:
        after, seen = program.advance(settings, session, act)
        stepped = after, seen._replace(reply=())
        if mode is AutoresetMode.DISABLED:
            return *stepped, *stepped
        new, first = program.fresh(settings, session)
        begun = new, first._replace(reply=())
        if mode is AutoresetMode.NEXT_STEP:
            shown = where(reset, begun, stepped)
            return *shown, *shown
        return *where(stepped[1].over, begun, stepped), *stepped

    return jit_batch(jax.vmap(advance, in_axes=(None, 0, 0, 0)))
