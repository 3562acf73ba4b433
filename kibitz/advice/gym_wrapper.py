"""Hints for a single Gymnasium environment: `info["hint_features"]` on reset and after every k-th step."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kibitz.advice.ask import History, Position, PositionAsker
from kibitz.advice.features import Hint, HintEncoder
from kibitz.advice.source import check_cadence, hint_provider
from kibitz.core.act import Act, Masks
from kibitz.core.bots import seated
from kibitz.core.chance import seat_luck
from kibitz.core.envs.gym_env import GameEnv
from kibitz.core.envs.program import EnvState, Program, Single
from kibitz.core.errors import BadInput
from kibitz.core.play.player import BotPlayer, Turn


class HintInjectorEnv(gymnasium.Wrapper[Any, Any, Any, Any], gymnasium.utils.RecordConstructorArgs):
    """Adds a hint's features to `info`; observations, rewards and legality stay unchanged.

    `info["hint"]` has the source, whether there is a hint, its latency in seconds, the requests it took and the kind
    of failure. Without a hint (not due, failed, episode over) all features are zero.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        provider: str = "random",
        cadence_k: int = 1,
        **settings: Any,  # keywords of `hint_provider`
    ) -> None:
        plain: dict[str, Any] = {
            name: str(value) if isinstance(value, Path) else value for name, value in settings.items()
        }
        gymnasium.utils.RecordConstructorArgs.__init__(self, provider=provider, cadence_k=cadence_k, **plain)
        super().__init__(env)
        base = env.unwrapped
        if not isinstance(base, GameEnv):
            raise BadInput(f"Hints need an environment of kibitz, not {base}.")
        self._base, self._every, self._settings = base, check_cadence(cadence_k), base.settings
        self._source, bot, self._asker = hint_provider(base.game, provider, base.settings, **settings)
        self._adviser: BotPlayer | None = None  # None where a language model advises
        if bot is not None:
            self._settings = seated(base.settings, {1: base.opponent}, {0: bot})
            self._adviser = BotPlayer(base.game, bot)
        self._reader = _reader_for(base.program, base._compiled)
        self._history: History = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._history = []
        self._note_opponent()
        seen = self._reader.read(self._base.settings, self._base._vector)
        if self._adviser is not None:
            self._adviser.begin(self._settings, 0, seen.luck)
        return observation, info | self._hint(seen)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        base = self._base
        act = None if base._over else self._act_of(action)  # `env.step` raises where the episode is over
        legal = act is not None and not base._why_illegal(act)
        observation, reward, terminated, truncated, info = self.env.step(action)
        if legal:  # an illegal act that is merely penalised is a turn without words
            self._history.append({"seat": 0, "act": act})
        self._note_opponent()
        if terminated:
            return observation, reward, terminated, truncated, info | self._no_hint()
        seen = self._reader.read(base.settings, base._vector)
        return observation, reward, terminated, truncated, info | self._hint(seen)

    def action_masks(self) -> NDArray[np.bool_]:
        """Those of the wrapped environment, as MaskablePPO requests them."""
        masks: NDArray[np.bool_] = self.env.get_wrapper_attr("action_masks")()
        return masks

    def close(self) -> None:
        if self._asker is not None:
            self._asker.close()
        super().close()

    def _act_of(self, action: Any) -> tuple[int, ...]:
        """The act that reaches the base environment through the wrappers between."""
        env: Any = self.env
        while env is not self._base:
            action = env.action(action) if isinstance(env, gymnasium.ActionWrapper) else action
            env = env.env
        sizes = self._base.game.sizes
        return tuple(min(max(x, -1), size) for x, size in zip(self._base.act_of(action), sizes, strict=True))

    def _note_opponent(self) -> None:
        act = self._base.opponent_act
        if act is not None:
            self._history.append({"seat": 1, "act": act})

    def _hint(self, seen: _Seen) -> dict[str, Any]:
        if not seen.to_act:  # the opponent's first act ended the game
            return self._no_hint()
        due = seen.turn % self._every == 0
        if self._asker is not None:
            return self._ask(self._asker, seen) if due else self._no_hint()
        assert self._adviser is not None
        turn = Turn(self._settings, 0, seen.turn, seen.view, seen.masks, list(self._history), seen.luck)
        choice = self._adviser.choose(turn)  # also where no hint is due: a bot remembers what it has seen
        return self._some_hint(choice.act, 1.0, seen.masks) if due else self._no_hint()

    def _ask(self, asker: PositionAsker, seen: _Seen) -> dict[str, Any]:
        position = Position(self._settings, seen.view, seen.masks, list(self._history))
        act, confidence, reply = asker.ask([position])[0]
        if act is None:
            kind = "" if reply.failure is None else str(reply.failure.kind)
            return self._no_hint(reply.latency, reply.attempts, kind)
        return self._some_hint(act, confidence, seen.masks, reply.latency, reply.attempts)

    def _some_hint(
        self, act: Act, confidence: float, masks: Masks, latency: float = 0.0, attempts: int = 0
    ) -> dict[str, Any]:
        features = self._reader.features(act, confidence, masks)
        return {"hint_features": features, "hint": self._about(True, latency, attempts, "")}

    def _no_hint(self, latency: float = 0.0, attempts: int = 0, failure: str = "") -> dict[str, Any]:
        nothing = np.zeros(self._reader.encoder.hint_size, np.float32)
        return {"hint_features": nothing, "hint": self._about(False, latency, attempts, failure)}

    def _about(self, available: bool, latency: float, attempts: int, failure: str) -> dict[str, Any]:
        return {
            "source": self._source,
            "available": available,
            "latency": latency,
            "attempts": attempts,
            "failure": failure,
        }


class _Seen(NamedTuple):
    """What a hint is made from, on the host."""

    view: Any
    masks: tuple[NDArray[Any], ...]
    to_act: bool
    luck: Array  # u32[2], the adviser's own chance in this episode
    turn: int


class _Reader:
    """Compiled reads of an environment; shared by all environments that run the same program."""

    def __init__(self, program: Program, single: Single) -> None:
        play, game = program.play, program.game
        self.encoder = HintEncoder(game)

        def read(settings: Any, vector: Array) -> Any:
            env: EnvState = single.env.unpack(vector[: single.env.size])
            state = play.layout.unpack(env.solo).state
            view, masks = game.rules.view(settings, state, 0), game.rules.legal(settings, state, 0)
            return (view, masks, game.rules.to_act(state)[0], env.turn), seat_luck(env.luck, 0)

        def features(act: Act, confidence: Array, masks: Masks) -> Array:
            return self.encoder.hint_features(Hint(act, confidence, jnp.bool_(True)), masks)

        self._read, self._features = jax.jit(read), jax.jit(features)

    def read(self, settings: Any, vector: Any) -> _Seen:
        seen, luck = self._read(settings, vector)
        view, masks, to_act, turn = jax.device_get(seen)
        return _Seen(view, tuple(np.asarray(mask) for mask in masks), bool(to_act), luck, int(turn))

    def features(self, act: Act, confidence: float, masks: Masks) -> NDArray[np.float32]:
        return np.array(self._features(act, np.float32(confidence), masks), np.float32)


@lru_cache(maxsize=32)
def _reader_for(program: Program, single: Single) -> _Reader:
    return _Reader(program, single)
