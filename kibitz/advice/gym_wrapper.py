"""Hints in the ear of a single environment: `info["hint_features"]` on reset and after every k-th step."""

from __future__ import annotations

import logging
from functools import lru_cache
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kibitz.advice import overhear
from kibitz.advice.ask import Asker, History
from kibitz.advice.features import Hint, HintAdapter
from kibitz.core.act import Act, Masks
from kibitz.core.bots import Bot, seated
from kibitz.core.chance import seat_luck, uniforms
from kibitz.core.envs.gym_env import GameEnv, Program, Session, Single, program_for
from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.logs import log_once
from kibitz.core.play.player import BotPlayer, Player, Turn
from kibitz.core.play.resolve import bot_named
from kibitz.llm.answers.prompt import Prompt
from kibitz.players.llm import LLMPlayer

log = logging.getLogger("kibitz.advice")
PROVIDERS = ("random", "expert", "llm", "llm:PRESET")


class HintInjectorEnv(gymnasium.Wrapper[Any, Any, Any, Any], gymnasium.utils.RecordConstructorArgs):
    """Adds a hint's features to `info`; observations, rewards and legality stay as they are.

    `info["hint"]` says the source, whether there is a hint, its latency in seconds, the requests it took and the kind
    of failure. Without a hint (not due, failed, episode over) all features are zero.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        provider: str = "random",
        cadence_k: int = 1,
        *,
        preset: str = "auto",  # llm: which preset; `llm:PRESET` as a provider says the same
        checkpoint: str | None = None,  # expert: a run's folder or file; None: the game's reference player
        prompt: str | None = None,  # llm: a template; None: the game's own
        max_history_turns: int | None = None,
        max_prompt_chars: int | None = None,
        cache: str | Path | None = None,  # llm: a file of earlier answers
    ) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(
            self,
            provider=provider,
            cadence_k=cadence_k,
            preset=preset,
            checkpoint=checkpoint,
            prompt=prompt,
            max_history_turns=max_history_turns,
            max_prompt_chars=max_prompt_chars,
            cache=None if cache is None else str(cache),
        )
        super().__init__(env)
        base = env.unwrapped
        if not isinstance(base, GameEnv):
            raise BadInput(f"Hints are for environments of kibitz, not for {base}.")
        if not isinstance(cadence_k, int) or isinstance(cadence_k, bool) or cadence_k < 1:
            raise BadInput(f"cadence_k is {cadence_k!r}; it should be a whole number of at least 1.")
        self._base, self._every = base, cadence_k
        self._asker: Asker | None = None
        self._settings = base.settings
        self._adviser = self._find(provider, preset, checkpoint, prompt, max_history_turns, max_prompt_chars, cache)
        program = program_for(base.game, base.opponent, type(base).observe)
        self._ear = _ear_for(program, base._compiled)
        self._history: History = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        base, self._history = self._base, []
        state = base.given_state(options or {})
        said = self._ear.opening(base.settings, base._vector, state)
        self._note(1, said)
        luck = self._ear.luck(base._vector)
        self._adviser.begin(self._settings, 0, luck)
        return observation, info | self._hint(luck, 0)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        base, before = self._base, self._base._vector
        act = None if base._over else self._act_of(action)  # a step that is out of turn complains by itself
        lost = act is None or bool(base._why_illegal(act))
        observation, reward, terminated, truncated, info = self.env.step(action)
        assert act is not None
        luck, turn = self._ear.luck(base._vector), self._ear.turn(base._vector)
        said = self._ear.reply(base.settings, before, act)
        if not lost:  # an illegal act is a turn in which nothing was said
            self._history.append({"seat": 0, "act": act})
        self._note(1, said)
        if terminated:
            return observation, reward, terminated, truncated, info | self._silence()
        return observation, reward, terminated, truncated, info | self._hint(luck, turn)

    def close(self) -> None:
        if self._asker is not None:
            self._asker.close()
        super().close()

    def _find(
        self,
        provider: str,
        preset: str,
        checkpoint: str | None,
        prompt: str | None,
        max_history_turns: int | None,
        max_prompt_chars: int | None,
        cache: str | Path | None,
    ) -> Player:
        game = self._base.game
        if provider == "llm" or provider.startswith("llm:"):
            name = provider.removeprefix("llm").removeprefix(":") or preset
            template = Prompt.read(
                prompt or game.words.prompt, max_history_turns=max_history_turns, max_prompt_chars=max_prompt_chars
            )
            self._asker = Asker(game, name, prompt=template, cache=cache)
            self._source = f"llm:{name}"
            return LLMPlayer(name, self._asker)
        if provider == "random":
            bot, self._source = game.bot("random"), "random"
        elif provider == "expert":
            bot = expert_rule(self._base.game, checkpoint)
            self._source = f"expert:{bot.name}"
        else:
            raise BadInput(f"There is no provider of hints {provider!r}; there are {', '.join(PROVIDERS)}.")
        self._settings = seated(self._base.settings, {1: self._base.opponent}, {0: bot})
        return BotPlayer(game, bot)

    def _act_of(self, action: Any) -> tuple[int, ...]:
        """The act the base environment will see, through whatever stands between."""
        env: Any = self.env
        while env is not self._base:
            action = env.action(action) if isinstance(env, gymnasium.ActionWrapper) else action
            env = env.env
        sizes = self._base.game.sizes
        return tuple(min(max(x, -1), size) for x, size in zip(self._base.act_of(action), sizes, strict=True))

    def _note(self, seat: int, said: overhear.Overheard) -> None:
        if bool(said.spoke):
            self._history.append({"seat": seat, "act": tuple(int(x) for x in said.act)})

    def _hint(self, luck: Array, turn: int) -> dict[str, Any]:
        view, masks, alive = self._ear.look(self._base.settings, self._base._vector)
        if not alive:
            return self._silence()
        due = turn % self._every == 0
        asked = Turn(self._settings, 0, turn, view, masks, list(self._history), luck)
        if isinstance(self._adviser, LLMPlayer):
            if not due:
                return self._silence()
            act, confidence, reply = self._adviser.advise(asked)
            kind = "" if reply.failure is None else str(reply.failure.kind)
            if act is None:
                return self._silence(reply.latency, reply.attempts, kind)
            return self._said(act, confidence, masks, reply.latency, reply.attempts)
        choice = self._adviser.choose(asked)  # every turn: a rule remembers what it has seen
        return self._said(choice.act, 1.0, masks, 0.0, 0) if due else self._silence()

    def _said(self, act: Act, confidence: float, masks: Masks, latency: float, attempts: int) -> dict[str, Any]:
        features = self._ear.features(act, confidence, masks)
        return {"hint_features": features, "hint": self._about(True, latency, attempts, "")}

    def _silence(self, latency: float = 0.0, attempts: int = 0, failure: str = "") -> dict[str, Any]:
        nothing = np.zeros(self._ear.adapter.hint_size, np.float32)
        return {"hint_features": nothing, "hint": self._about(False, latency, attempts, failure)}

    def _about(self, available: bool, latency: float, attempts: int, failure: str) -> dict[str, Any]:
        return {
            "source": self._source,
            "available": available,
            "latency": latency,
            "attempts": attempts,
            "failure": failure,
        }


def expert_rule(game: Game, checkpoint: str | None = None) -> Bot:
    """A checkpoint; without one the reference player; without that the heuristic. Said once."""
    name = f"policy:{checkpoint}" if checkpoint else game.reference
    bot = bot_named(game, name)
    log_once(log, f"expert hints for {game.name} come from {name if bot else 'the heuristic'}")
    return bot or game.bot("heuristic")


class _Ear:
    """Compiled looks into an environment; shared by all that run the same program."""

    def __init__(self, program: Program, single: Single) -> None:
        play, game = program.play, program.game
        self.adapter = HintAdapter(game)

        def session(vector: Array) -> Session:
            found: Session = single.session.unpack(vector[: single.session.size])
            return found

        def opening(settings: Any, vector: Array, state: Any) -> overhear.Overheard:
            u = uniforms(session(vector).luck, 0, play.new_uniforms)
            first = game.rules.new(settings, u[: game.rules.new_uniforms]) if state is None else state
            return overhear.opening(play, settings, first, u)

        def reply(settings: Any, vector: Array, act: Act) -> overhear.Overheard:
            now = session(vector)
            u = uniforms(now.luck, now.turn + 1, play.step_uniforms)
            return overhear.reply(play, settings, play.layout.unpack(now.solo), act, u)

        def look(settings: Any, vector: Array) -> Any:
            state = play.layout.unpack(session(vector).solo).state
            return (
                game.rules.view(settings, state, 0),
                game.rules.legal(settings, state, 0),
                game.rules.to_act(state)[0],
            )

        def features(act: Act, confidence: Array, masks: Masks) -> Array:
            return self.adapter.hint_features(Hint(act, confidence, jnp.bool_(True)), masks)

        self._luck = jax.jit(lambda vector: seat_luck(session(vector).luck, 0))
        self._turn = jax.jit(lambda vector: session(vector).turn)
        self.opening, self.reply = jax.jit(opening), jax.jit(reply)
        self._look, self._features = jax.jit(look), jax.jit(features)

    def luck(self, vector: Any) -> Array:
        """u32[2], the adviser's own chance in this episode."""
        found: Array = self._luck(vector)
        return found

    def turn(self, vector: Any) -> int:
        return int(self._turn(vector))

    def look(self, settings: Any, vector: Any) -> tuple[Any, tuple[NDArray[Any], ...], bool]:
        view, masks, alive = jax.device_get(self._look(settings, vector))
        return view, tuple(np.asarray(mask) for mask in masks), bool(alive)

    def features(self, act: Act, confidence: float, masks: Masks) -> NDArray[np.float32]:
        return np.array(self._features(act, np.float32(confidence), masks), np.float32)


@lru_cache(maxsize=32)
def _ear_for(program: Program, single: Single) -> _Ear:
    return _Ear(program, single)
