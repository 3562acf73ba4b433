"""Hints for a vector environment: a bot advises all games in one compiled call, a language model is asked about all
of them at once."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import VectorWrapper
from jax import Array
from numpy.typing import NDArray

from kibitz.advice.ask import History, Position, PositionAsker
from kibitz.advice.features import Hint, HintEncoder
from kibitz.advice.source import check_cadence, hint_provider
from kibitz.core.act import Masks
from kibitz.core.bots import Bot, seated, where
from kibitz.core.chance import seat_luck, uniforms
from kibitz.core.envs.gym_vector import GameVectorEnv
from kibitz.core.envs.program import EnvState, Program
from kibitz.core.errors import BadInput
from kibitz.core.game import game_over
from kibitz.core.xla.jit import jit_batch


class HintInjectorVectorEnv(VectorWrapper):
    """`HintInjectorEnv` for a vector environment: the same hints, in `infos` as Gymnasium batches them."""

    def __init__(
        self,
        env: Any,
        provider: str = "random",
        cadence_k: int = 1,
        **settings: Any,  # keywords of `hint_provider`
    ) -> None:
        super().__init__(env)
        base = env.unwrapped
        if not isinstance(base, GameVectorEnv):
            raise BadInput(f"Hints need a vector environment of kibitz, as gym.make_vec makes it, not {base}.")
        if base.on_device is not None:
            raise BadInput("Hints need a vector environment with arrays='numpy'.")
        self._base, self._every = base, check_cadence(cadence_k)
        self._source, bot, self._asker = hint_provider(base.game, provider, base.settings, **settings)
        self._settings = base.settings if bot is None else seated(base.settings, {1: base.opponent}, {0: bot})
        self._advice = _advice_for(base._program, bot)
        self._size = HintEncoder(base.game).hint_size
        self._memory: Any = None  # the bot's, of every game
        self._history: list[History] = [[] for _ in range(base.num_envs)]
        base.keep_replies |= self._asker is not None

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observations, infos = self.env.reset(seed=seed, options=options)
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        return observations, infos | self._hints(mask)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        infos |= self._hints(np.ones(self.num_envs, bool))
        if "final_info" in infos:  # an episode that is over has no hint
            ended = infos["_final_info"]
            infos["final_info"] |= self._as_infos(np.zeros((self.num_envs, self._size), np.float32), ended)
        return observations, rewards, terminated, truncated, infos

    def action_masks(self) -> NDArray[np.bool_]:
        """bool[num_envs, sum of the heads' sizes]."""
        masks: NDArray[np.bool_] = self._base.action_masks()
        return masks

    def close(self, **settings: Any) -> None:
        if self._asker is not None:
            self._asker.close()
        super().close(**settings)

    def _hints(self, active: NDArray[np.bool_]) -> dict[str, Any]:
        """Infos of the environments that this call has reset or stepped."""
        base = self._base
        if self._asker is not None:
            return self._ask(self._asker, active)
        if self._memory is None:
            self._memory = self._advice.no_memory(self._settings, base._envs)
        self._memory, features = self._advice.advise(
            base.settings, self._settings, base._envs, self._memory, active, self._every
        )
        return self._as_infos(np.where(active[:, None], np.asarray(features), np.float32(0)), active)

    def _ask(self, asker: PositionAsker, active: NDArray[np.bool_]) -> dict[str, Any]:
        view, masks, playing, turns = jax.device_get(self._advice.read(self._base.settings, self._base._envs))
        self._note_acts(active, turns)
        due = np.flatnonzero(active & playing & (turns % self._every == 0))
        positions = []
        for i in due:
            own_view, own_masks = jax.tree.map(lambda leaf, i=i: leaf[i], (view, masks))
            positions.append(Position(self._settings, own_view, own_masks, list(self._history[i])))
        act = np.zeros((len(self._base.game.heads), self.num_envs), np.int32)
        confidence, available = np.zeros(self.num_envs, np.float32), np.zeros(self.num_envs, bool)
        about: dict[str, NDArray[Any]] = {
            "latency": np.zeros(self.num_envs),
            "attempts": np.zeros(self.num_envs, np.int64),
            "failure": np.full(self.num_envs, "", object),
        }
        for i, (chosen, sure, reply) in zip(due, asker.ask(positions) if positions else [], strict=True):
            about["latency"][i], about["attempts"][i] = reply.latency, reply.attempts
            if chosen is None:
                about["failure"][i] = "" if reply.failure is None else str(reply.failure.kind)
            else:
                act[:, i], confidence[i], available[i] = chosen, sure, True
        features = self._advice.features(tuple(act), confidence, available, masks)
        return self._as_infos(np.array(features, np.float32), active, **about)

    def _note_acts(self, active: NDArray[np.bool_], turns: NDArray[np.int32]) -> None:
        """An illegal act is a turn without words."""
        own, theirs = self._base.exchange()
        for i in np.flatnonzero(active):
            if turns[i] == 0:
                self._history[i] = []
            elif (act := own[i]) is not None:
                self._history[i].append({"seat": 0, "act": act})
            if (reply := theirs[i]) is not None:
                self._history[i].append({"seat": 1, "act": reply})

    def _as_infos(
        self, features: NDArray[np.float32], active: NDArray[np.bool_], **about: NDArray[Any]
    ) -> dict[str, Any]:
        blank = np.full(self.num_envs, None, object)
        source, failure = blank.copy(), blank.copy()
        source[active], failure[active] = self._source, about["failure"][active] if about else ""
        said: dict[str, NDArray[Any]] = {
            "source": source,
            "available": features[:, -1] > 0,
            "latency": about.get("latency", np.zeros(self.num_envs)),
            "attempts": about.get("attempts", np.zeros(self.num_envs, np.int64)),
            "failure": failure,
        }
        said |= {f"_{name}": active.copy() for name in list(said)}
        return {"hint_features": features, "_hint_features": active.copy(), "hint": said, "_hint": active.copy()}


class _VectorAdvice:
    """Compiled reads of a vector environment, and a bot's hints for all of its games."""

    def __init__(self, program: Program, bot: Bot | None) -> None:
        play, game, encoder = program.play, program.game, HintEncoder(program.game)

        def read(settings: Any, env: EnvState) -> tuple[Any, Masks, Array, Array]:
            state = play.layout.unpack(env.solo).state
            view, masks = game.rules.view(settings, state, 0), game.rules.legal(settings, state, 0)
            return view, masks, game.rules.to_act(state)[0] & ~game_over(game, state), env.turn

        def features(act: Any, confidence: Array, available: Array, masks: Masks) -> Array:
            return encoder.hint_features(Hint(act, confidence, available), masks)

        def start(advised: Any, env: EnvState) -> Any:
            assert bot is not None
            return bot.start(advised, 0, uniforms(seat_luck(env.luck, 0), 0, bot.uniforms))

        def advise(
            settings: Any, advised: Any, env: EnvState, memory: Any, active: Array, every: Array
        ) -> tuple[Any, Array]:
            assert bot is not None
            view, masks, playing, turn = read(settings, env)
            before = where(turn == 0, start(advised, env), memory)
            luck = uniforms(seat_luck(env.luck, 0), turn + 1, bot.uniforms)
            after, act = bot.choose(advised, before, view, masks, luck)
            shown = features(act, jnp.float32(1), playing & (turn % every == 0), masks)
            return where(active, after, memory), shown

        self.read = jit_batch(jax.vmap(read, in_axes=(None, -1)))
        self.features = jit_batch(jax.vmap(features))
        self.advise = jit_batch(jax.vmap(advise, in_axes=(None, None, -1, 0, 0, None)))
        self._start = jax.vmap(start, in_axes=(None, -1))

    def no_memory(self, advised: Any, envs: Any) -> Any:
        """Zeros in the shape of the bot's memories; every episode replaces them at its first turn."""
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(self._start, advised, envs))


@lru_cache(maxsize=32)
def _advice_for(program: Program, bot: Bot | None) -> _VectorAdvice:
    return _VectorAdvice(program, bot)
