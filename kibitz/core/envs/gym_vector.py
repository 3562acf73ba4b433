"""Many environments of one game in one compiled call."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, create_empty_array
from numpy.typing import NDArray

from kibitz.core.envs.batch import EnvBatch, Seen, StepResult, batch_for
from kibitz.core.envs.device_arrays import Arrays, DeviceArrays
from kibitz.core.envs.gym_spaces import batched_heads
from kibitz.core.envs.program import EnvState, program_for, shapes_of
from kibitz.core.envs.setup import GENERIC, Form, prepare
from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.xla.row_tree import Rows

ONE = np.int32(1)


class GameVectorEnv(VectorEnv[Any, Any, NDArray[Any]]):
    """Many environments in one compiled call; equals `GameEnv` step by step in all three autoreset modes.

    Takes the keywords of `GameEnv`. With `arrays="jax"` or `"torch"`, actions and results stay on JAX's device, with
    numbers of 32 bits. A game with other spaces sets `form` and overrides `heads_of` and `acts_of`.
    """

    form: ClassVar[Form] = GENERIC
    keep_replies = False  # a wrapper that reads the acts of both sides sets this before the first reset

    def __init__(
        self,
        num_envs: int = 1,
        game: str | Game = "",
        *,
        autoreset_mode: str | AutoresetMode = "NextStep",
        render_mode: None = None,
        arrays: Arrays = "numpy",
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
        if arrays != "numpy" and setup.options.illegal == "error":
            raise BadInput(
                f"illegal='error' needs arrays='numpy'; with arrays={arrays!r}, nothing reads acts on the host."
            )
        self.num_envs = num_envs
        self.on_device = None if arrays == "numpy" else DeviceArrays(arrays, self.form.bare, num_envs)
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
        self._program = program_for(setup.game, setup.opponent, self.form.observe(setup.game), self.form.end_info)
        self._envs: EnvState | None = None  # games last
        self._rows: Rows | None = None  # what the last call returned, packed
        self._masks: Any = None  # with arrays on the device, what is legal now
        self._over: Any = np.ones(num_envs, bool)
        self._none: NDArray[np.bool_] = np.zeros(num_envs, bool)
        self._acts: NDArray[np.int32] = np.zeros((len(setup.game.heads), num_envs), np.int32)

    @cached_property
    def batch(self) -> EnvBatch:
        form, described = self.form, shapes_of(self.settings)
        acts = form.repair(self.options), form.heads
        return batch_for(self._program, described, self.autoreset_mode, *acts, self.keep_replies)

    def heads_of(self, actions: Any) -> tuple[Any, ...]:
        """Every head's values, [num_envs] each; BadInput if the actions do not have the space's shape and type."""
        return batched_heads(actions, self.game.sizes, self.num_envs)

    def acts_of(self, actions: Any) -> NDArray[np.int32]:
        """i32[heads, num_envs], each -1 or the head's size where it was outside the head; the next call reuses it."""
        for head, row, values in zip(self.game.heads, self._acts, self.heads_of(actions), strict=True):
            if values.min() < 0 or values.max() >= head.size:
                raise BadInput(f"A value of {head.name} is outside 0 to {head.size - 1}.")
            row[:] = values
        return self._acts

    def action_masks(self) -> Any:
        """bool[num_envs, sum of the heads' sizes], as `action_space.sample` takes them."""
        if self._envs is None:
            raise gymnasium.error.ResetNeeded("There are no masks before the first reset().")
        if self.on_device is not None:
            return self.on_device.give(self._masks)
        assert self._rows is not None
        return self._rows.read(self._rows.places.now.masks)

    def exchange(self) -> tuple[list[tuple[int, ...] | None], list[tuple[int, ...] | None]]:
        """Each learner's last act, None if it was illegal, and the opponent's since then, None if there was none.

        Needs `keep_replies`.
        """
        assert self._rows is not None
        read, places = self._rows.read, self._rows.places
        said, reply = places.exchange

        def acts(heads: Any, known: NDArray[np.bool_]) -> list[tuple[int, ...] | None]:
            rows = np.stack([read(head) for head in heads], axis=1).tolist()
            return [tuple(row) if one else None for row, one in zip(rows, known, strict=True)]

        return acts(said, ~read(places.illegal)), acts(reply.act, read(reply.acted))

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        mask = self._reset_mask(options or {})
        self._seed(seed, mask)
        self._over = self._over & ~mask
        if self.on_device is not None:
            result = self._call_on_device(self._no_actions(), mask, ~mask)
            observation, infos = self.on_device.give(self.on_device.seen(result.now, jnp.asarray(mask)))
            return observation, infos
        rows = self._call(np.zeros_like(self._acts), mask, ~mask)
        return self._observations(rows.places.now), self._infos(rows.places.now, mask)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        if self._envs is None:
            raise gymnasium.error.ResetNeeded("The environments have not begun; call reset() first.")
        if self.autoreset_mode is AutoresetMode.DISABLED and self._over.any():
            raise gymnasium.error.ResetNeeded(
                "Some episodes are over; reset them with reset(options={'reset_mask': ...}) first."
            )
        resets = self._over if self.autoreset_mode is AutoresetMode.NEXT_STEP else self._none
        if self.on_device is not None:
            actions = self.on_device.take(actions)
            self.heads_of(actions)
            result = self._call_on_device(actions, resets, self._none)
            same_step = self.autoreset_mode is AutoresetMode.SAME_STEP
            # a copy: a caller may change its tensors, which share memory with the result
            self._over = self._none if same_step else jnp.array(result.over)
            return self.on_device.stepped(result, same_step)
        acts = self.acts_of(actions)
        before = self._envs, self._rows
        rows = self._call(acts, resets, self._none)
        if self.options.illegal != "lose_turn":
            wrong = rows.read(rows.places.illegal)
            if self.options.illegal == "error" and wrong.any():
                self._envs, self._rows = before
                raise BadInput(self._why_illegal(self.heads_of(actions), int(wrong.argmax())))
        ended, rewards = rows.read(rows.places.over), rows.read(rows.places.reward, np.float64)
        if self.options.charge:
            rewards -= np.where(wrong, self.options.charge, 0.0)
        infos = self._infos(rows.places.now, ~self._none)
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            infos |= self._final(ended)
        else:
            infos |= self._scores(ended)
            self._over = ended.copy()
        return self._observations(rows.places.now), rewards, ended, np.zeros_like(ended), infos

    def _no_actions(self) -> Any:
        """For a reset on the device: zeros in the shape of the actions."""
        zeros = create_empty_array(self.single_action_space, self.num_envs, np.zeros)
        return jax.tree.map(lambda x: jnp.asarray(x, jnp.int32), zeros)

    def _call(self, acts: Any, resets: Any, hold: Any) -> Rows:
        batch = self.batch
        self._envs, packed = batch.call(self.settings, self._envs, acts, resets, hold, ONE)
        assert batch.layout is not None
        self._rows = Rows(batch.layout, packed)
        return self._rows

    def _call_on_device(self, actions: Any, resets: Any, hold: Any) -> StepResult:
        charge = np.float32(self.options.charge)
        result: StepResult
        self._envs, result = self.batch.call_unpacked(self.settings, self._envs, actions, charge, resets, hold, ONE)
        self._masks = result.now.masks
        return result

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
            self._envs = self.batch.empty(n)
        if not new.any():
            return
        roots = self.np_random.integers(2**63, size=n)
        chosen = [int(root) if s is None else s for s, root in zip(seeds, roots, strict=True)]
        keys = np.array([[(s >> 32) & 0xFFFFFFFF, s & 0xFFFFFFFF] for s in chosen], np.uint32).T
        key = np.where(new, keys, np.asarray(self._envs.key))
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

    def _why_illegal(self, heads: tuple[Any, ...], env: int) -> str:
        masks = np.split(self.action_masks()[env], np.cumsum(self.game.sizes)[:-1])
        wrong = []
        for head, mask, values in zip(self.game.heads, masks, heads, strict=True):
            legal, value = [int(x) for x in np.flatnonzero(mask)], int(values[env])
            if value not in legal:
                reason = f"{head.name} of environment {env} is {value}, but only {legal} are legal now."
                wrong.append((len(legal) == 1, reason))  # a head without a choice is rarely the cause
        return min(wrong, key=lambda one: one[0])[1]

    def _observations(self, seen: Seen) -> Any:
        """Reals as they are, integers as int64, as in Gymnasium's spaces."""
        assert self._rows is not None
        read = self._rows.read
        wide = {name: read(at, None if at.dtype.kind == "f" else np.int64) for name, at in seen.observation.items()}
        return wide if self.form.bare is None else wide[self.form.bare]

    def _infos(self, seen: Seen, mask: NDArray[np.bool_]) -> dict[str, Any]:
        """Flags as bool, masks as int8, everything else as int64; as in the single environment."""
        assert self._rows is not None
        infos: dict[str, Any] = {}
        every = mask.all()
        for name, at in seen.info.items():
            kind = np.int64 if at.dtype.kind != "b" else np.int8 if at.shape else bool
            infos[name] = self._rows.read(at, kind)
            infos[f"_{name}"] = mask.copy()
            if not every:
                infos[name][~mask] = 0
        return infos

    def _scores(self, ended: NDArray[np.bool_]) -> dict[str, Any]:
        """End-of-episode info."""
        assert self._rows is not None
        infos: dict[str, Any] = {}
        for name, at in self._rows.places.scores.items() if ended.any() else ():
            infos[name] = self._rows.read(at, bool if at.dtype.kind == "b" else np.float64)
            infos[f"_{name}"] = ended.copy()
        return infos

    def _final(self, ended: NDArray[np.bool_]) -> dict[str, Any]:
        assert self._rows is not None
        if not ended.any():
            return {}
        final = self._rows.places.final
        observations, last = self._observations(final), np.full(self.num_envs, None, object)
        for row in np.flatnonzero(ended):
            last[row] = jax.tree.map(lambda value, row=row: value[row], observations)
        return {
            "final_obs": last,
            "_final_obs": ended.copy(),
            "final_info": self._infos(final, ended) | self._scores(ended),
            "_final_info": ended.copy(),
        }
