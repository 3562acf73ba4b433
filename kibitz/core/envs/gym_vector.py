"""Many environments of one game in one compiled call."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jax import Array
from numpy.typing import NDArray

from kibitz.core.act import Act
from kibitz.core.bots import where
from kibitz.core.envs.gym_spaces import acts_of
from kibitz.core.envs.program import EnvState, Program, Shown, from_shapes, program_for, shapes_of
from kibitz.core.envs.setup import GENERIC, Form, prepare
from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.xla.jit import jit_batch


class GameVectorEnv(VectorEnv[Any, Any, NDArray[Any]]):
    """Many environments in one compiled call; equals `GameEnv` step by step in all three autoreset modes.

    Takes the keywords of `GameEnv`. A game with other spaces sets `form` and overrides `acts_of`.
    """

    form: ClassVar[Form] = GENERIC
    keep_replies = False  # a wrapper that reads the opponent's acts sets this before the first reset

    def __init__(
        self,
        num_envs: int = 1,
        game: str | Game = "",
        *,
        autoreset_mode: str | AutoresetMode = "NextStep",
        render_mode: None = None,
        **options: Any,
    ) -> None:
        if render_mode is not None:
            raise BadInput("The vector environment does not render; omit render_mode.")
        setup = prepare(game, options, self.form)
        try:
            self.autoreset_mode = AutoresetMode(autoreset_mode)
        except ValueError:
            modes = ", ".join(mode.value for mode in AutoresetMode)
            raise BadInput(f"There is no autoreset mode {autoreset_mode!r}; choose one of {modes}.") from None
        if not isinstance(num_envs, int) or num_envs < 1:
            raise BadInput(f"num_envs is {num_envs!r}; it should be a whole number of at least 1.")
        self.num_envs = num_envs
        self.game, self.options, self.settings, self.opponent = (
            setup.game,
            setup.options,
            setup.settings,
            setup.opponent,
        )
        self.metadata = {"autoreset_mode": self.autoreset_mode, "render_modes": []}
        self.single_observation_space = self.form.observation_space(setup)
        self.single_action_space = self.form.action_space(setup)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = self.form.action_batch(setup, num_envs)
        self._program = program_for(setup.game, setup.opponent, self.form.observe(setup.game))
        self._envs: EnvState | None = None
        self._shown: Shown | None = None
        self._over: NDArray[np.bool_] = np.ones(num_envs, bool)

    def acts_of(self, actions: Any) -> NDArray[np.int64]:
        """i64[heads, num_envs]; BadInput if the actions do not have the action space's shape and type."""
        acts = acts_of(actions, self.game.sizes, self.num_envs)
        for i, head in enumerate(self.game.heads):
            if acts[i].min() < 0 or acts[i].max() >= head.size:
                raise BadInput(f"A value of {head.name} is outside 0 to {head.size - 1}.")
            if self._shown is not None:
                legal = np.asarray(self._shown.masks[i])
                acts[i] = np.where(legal.sum(1) == 1, legal.argmax(1), acts[i])
        return acts

    def action_masks(self) -> NDArray[np.bool_]:
        """bool[num_envs, sum of the heads' sizes], as `action_space.sample` takes them."""
        if self._shown is None:
            raise gymnasium.error.ResetNeeded("There are no masks before the first reset().")
        return np.concatenate([np.asarray(mask) for mask in self._shown.masks], axis=1)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        mask = self._reset_mask(options or {})
        self._seed(seed, mask)
        assert self._envs is not None
        fresh, _ = _batched(self._program, self.keep_replies)
        envs, shown = fresh(self.settings, self._envs, jnp.asarray(mask))
        if self._shown is not None and not mask.all():
            shown = _merge(mask, shown, self._shown)
        self._envs, self._shown = envs, _host(shown)
        self._over = np.where(mask, self._shown.over, self._over)
        return self._observations(self._shown), self._infos(self._shown, mask, np.zeros_like(mask))

    def step(self, actions: Any) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        if self._shown is None or self._envs is None:
            raise gymnasium.error.ResetNeeded("The environments have not begun; call reset() first.")
        acts = self.acts_of(actions)
        resets = self._over.copy() if self.autoreset_mode is AutoresetMode.NEXT_STEP else np.zeros_like(self._over)
        if self.autoreset_mode is AutoresetMode.DISABLED and self._over.any():
            raise gymnasium.error.ResetNeeded(
                "Some episodes are over; reset them with reset(options={'reset_mask': ...}) first."
            )
        wrong = self._illegal_envs(acts) & ~self._shown.ended  # where the episode is over, no act counts
        if wrong.any() and self.options.illegal == "error":
            raise BadInput(self._why_illegal(acts, int(np.flatnonzero(wrong)[0])))
        if wrong.any() and not self.game.rules.takes_illegal_acts:
            acts = self._made_legal(acts, wrong)
        heads = np.clip(acts, -1, np.array(self.game.sizes)[:, None]).astype(np.int32)
        advance = _advance(self._program, self.autoreset_mode, self.keep_replies)
        envs, shown, final_envs, final_shown = advance(self.settings, self._envs, tuple(heads), jnp.asarray(resets))
        final = _host(final_shown)
        ended = final.over & ~resets
        rewards = np.where(resets, 0.0, final.reward.astype(np.float64)) - np.where(wrong, self.options.charge, 0.0)
        scores = self._score(final_envs, ended)
        self._envs = envs
        all_envs = np.ones(self.num_envs, bool)
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            self._shown = _host(shown)
            self._over = self._shown.over
            infos = self._infos(self._shown, all_envs, wrong & ~ended)
            infos |= self._final(final, ended, wrong, scores)
        else:
            self._shown, self._over = final, final.over
            infos = self._infos(final, all_envs, wrong) | scores
        return self._observations(self._shown), rewards, ended, np.zeros_like(ended), infos

    def _seed(self, seed: int | list[int | None] | None, mask: NDArray[np.bool_]) -> None:
        n = self.num_envs
        if seed is not None and not isinstance(seed, (int, list, tuple)):
            raise BadInput(f"seed is {seed!r}; it should be a whole number or a list of {n}.")
        seeds = list(range(seed, seed + n)) if isinstance(seed, int) else list(seed) if seed is not None else [None] * n
        if len(seeds) != n:
            raise BadInput(f"There are {len(seeds)} seeds for {n} environments; give one number or {n}.")
        for one in seeds:
            if one is not None and (not isinstance(one, int) or one < 0):
                raise BadInput(f"A seed is {one!r}; it should be a whole number of at least 0.")
        if isinstance(seed, int):
            self._np_random, self._np_random_seed = gymnasium.utils.seeding.np_random(seed)
        new = np.array([s is not None for s in seeds]) & mask
        if self._envs is None:
            new |= mask
            empty = _env_shapes(self._program, shapes_of(self.settings))
            self._envs = jax.tree.map(lambda x: jnp.zeros((n, *x.shape), x.dtype), empty)
        if not new.any():
            return
        roots = self.np_random.integers(2**63, size=n)
        chosen = [int(root) if s is None else s for s, root in zip(seeds, roots, strict=True)]
        keys = np.array([[(s >> 32) & 0xFFFFFFFF, s & 0xFFFFFFFF] for s in chosen], np.uint32)
        key = np.where(new[:, None], keys, np.asarray(self._envs.key))
        episode = np.where(new, -1, np.asarray(self._envs.episode))
        self._envs = self._envs._replace(key=jnp.asarray(key), episode=jnp.asarray(episode, jnp.int32))

    def _reset_mask(self, options: dict[str, Any]) -> NDArray[np.bool_]:
        unknown = set(options) - {"reset_mask"}
        if unknown:
            raise BadInput(f"reset has no option {sorted(unknown)[0]!r}; it has 'reset_mask'.")
        mask = options.get("reset_mask")
        if mask is None:
            return np.ones(self.num_envs, bool)
        if not isinstance(mask, np.ndarray) or mask.shape != (self.num_envs,) or mask.dtype != bool or not mask.any():
            raise BadInput(f"reset_mask should be a boolean array of shape ({self.num_envs},) with at least one True.")
        if self._envs is None and not mask.all():
            raise BadInput("The first reset begins every environment; omit reset_mask.")
        return mask

    def _illegal_envs(self, acts: NDArray[np.int64]) -> NDArray[np.bool_]:
        assert self._shown is not None
        rows = np.arange(self.num_envs)
        counts = self.game.matters[np.clip(acts[0], 0, self.game.heads[0].size - 1)]
        wrong = np.zeros(self.num_envs, bool)
        for i, (head, mask) in enumerate(zip(self.game.heads, self._shown.masks, strict=True)):
            inside = (acts[i] >= 0) & (acts[i] < head.size)
            wrong |= counts[:, i] & ~(inside & np.asarray(mask)[rows, np.clip(acts[i], 0, head.size - 1)])
        return wrong

    def _made_legal(self, acts: NDArray[np.int64], wrong: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Illegal values of these environments replaced by their heads' first legal ones."""
        assert self._shown is not None
        rows, made = np.arange(self.num_envs), acts.copy()
        for i, mask in enumerate(map(np.asarray, self._shown.masks)):
            made[i] = np.where(wrong & ~mask[rows, acts[i]], mask.argmax(1), acts[i])
        return made

    def _why_illegal(self, acts: NDArray[np.int64], env: int) -> str:
        assert self._shown is not None
        for i, (head, mask) in enumerate(zip(self.game.heads, self._shown.masks, strict=True)):
            legal = [int(x) for x in np.flatnonzero(np.asarray(mask)[env])]
            if int(acts[i, env]) not in legal:
                return f"{head.name} of environment {env} is {acts[i, env]}, but only {legal} are legal now."
        raise AssertionError("the act is legal")

    def _observations(self, shown: Shown) -> Any:
        wide = {name: _wide(value) for name, value in shown.observation.items()}
        return wide if self.form.bare is None else wide[self.form.bare]

    def _infos(self, shown: Shown, mask: NDArray[np.bool_], wrong: NDArray[np.bool_]) -> dict[str, Any]:
        infos: dict[str, Any] = {}
        for name, value in (shown.info | {"illegal": wrong, "over": shown.ended}).items():
            infos[name] = _info(value)
            infos[f"_{name}"] = mask.copy()
            if not mask.all():
                infos[name][~mask] = 0
        return infos

    def _score(self, envs: EnvState, ended: NDArray[np.bool_]) -> dict[str, Any]:
        """End-of-episode info, computed for the finished games alone."""
        rows = np.flatnonzero(ended)
        if not len(rows):
            return {}
        # batches of a few fixed sizes, at least 8, so that few programs are compiled
        size = min(self.num_envs, 1 << max(len(rows) - 1, 7).bit_length())
        score = _batched(self._program, self.keep_replies)[1]
        scores = score(self.settings, envs, np.resize(rows, size).astype(np.int32))
        infos: dict[str, Any] = {}
        for name, value in self.form.end_info({k: np.asarray(v)[: len(rows)] for k, v in scores.items()}).items():
            spread = np.zeros((self.num_envs, *value.shape[1:]), value.dtype)
            spread[rows] = value
            infos |= {name: spread, f"_{name}": ended.copy()}
        return infos

    def _final(
        self, shown: Shown, ended: NDArray[np.bool_], wrong: NDArray[np.bool_], scores: dict[str, Any]
    ) -> dict[str, Any]:
        if not ended.any():
            return {}
        observations = self._observations(shown)
        last = np.full(self.num_envs, None, object)
        for row in np.flatnonzero(ended):
            last[row] = jax.tree.map(lambda value, row=row: value[row], observations)
        return {
            "final_obs": last,
            "_final_obs": ended.copy(),
            "final_info": self._infos(shown, ended, wrong) | scores,
            "_final_info": ended.copy(),
        }


def _wide(value: Any) -> NDArray[Any]:
    """A copy for the caller: reals unchanged, integers as int64, as in Gymnasium's spaces."""
    return np.array(value, np.float32 if np.asarray(value).dtype.kind == "f" else np.int64)


def _info(value: Any) -> NDArray[Any]:
    """Flags as bool, masks as int8, everything else as int64; as in the single environment."""
    array = np.asarray(value)
    return array.astype(np.int64 if array.dtype.kind != "b" else np.int8 if array.ndim > 1 else bool)


def _host(shown: Shown) -> Shown:
    host: Shown = jax.tree.map(np.asarray, jax.device_get(shown))
    return host


def _merge(mask: NDArray[np.bool_], new: Shown, old: Shown) -> Shown:
    merged: Shown = jax.tree.map(
        lambda a, b: np.where(mask.reshape(-1, *[1] * (np.ndim(a) - 1)), a, b), _host(new), old
    )
    return merged


def _without_reply(shown: Shown, keep: bool) -> Shown:
    """Every array that leaves the program takes time, so the opponent's acts leave it only if something reads them."""
    return shown if keep else shown._replace(reply=())


@lru_cache(maxsize=32)
def _env_shapes(program: Program, described: Any) -> EnvState:
    """Shapes only: running `empty` operation by operation takes seconds."""
    shapes: EnvState = jax.eval_shape(program.empty, from_shapes(described))
    return shapes


@lru_cache(maxsize=32)
def _batched(program: Program, replies: bool) -> tuple[Any, Any]:
    """The program mapped over environments: a fresh episode where the mask is set, and the scores of given rows."""

    def fresh(settings: Any, env: EnvState, mask: Array) -> tuple[EnvState, Shown]:
        after, shown = program.fresh(settings, env)
        return where(mask, after, env), _without_reply(shown, replies)

    def score(settings: Any, envs: EnvState, rows: Array) -> Mapping[str, Array]:
        # indexed inside the program: outside, each array would cost a fraction of a millisecond
        picked = jax.tree.map(lambda leaf: leaf[rows], envs)
        return jax.vmap(program.score, in_axes=(None, 0))(settings, picked)

    return jit_batch(jax.vmap(fresh, in_axes=(None, 0, 0))), jit_batch(score)


@lru_cache(maxsize=32)
def _advance(program: Program, mode: AutoresetMode, replies: bool) -> Any:
    """One step of every environment, and its result before an autoreset replaced it."""

    def advance(settings: Any, env: EnvState, act: Act, reset: Array) -> tuple[EnvState, Shown, EnvState, Shown]:
        after, shown = program.advance(settings, env, act)
        stepped = after, _without_reply(shown, replies)
        if mode is AutoresetMode.DISABLED:
            return *stepped, *stepped
        new, first = program.fresh(settings, env)
        begun = new, _without_reply(first, replies)
        if mode is AutoresetMode.NEXT_STEP:
            result = where(reset, begun, stepped)
            return *result, *result
        return *where(stepped[1].over, begun, stepped), *stepped

    return jit_batch(jax.vmap(advance, in_axes=(None, 0, 0, 0)))
