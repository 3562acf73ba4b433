"""A language model in a seat: `llm:PRESET`, or `llm:FILE.gguf`."""

from __future__ import annotations

import atexit
import threading
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from jax import Array

from kibitz.advice.ask import Advice, Position, PositionAsker
from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.play.player import Choice, Exchange, PlayerFailed, Turn
from kibitz.core.play.resolve import InvalidName, PlayerInfo, PlayerKind, Resolver
from kibitz.llm.client.types import Failure, Usage
from kibitz.llm.presets import Preset, not_listening, read_presets, why_not, why_plain

PROVIDERS = {"groq": " on Groq", "openai": " on an OpenAI-compatible server"}  # by the preset's provider


class NoAnswer(PlayerFailed):
    """The model gave no legal act, but may have used tokens."""

    def __init__(self, failure: Failure, usage: Usage, exchange: Exchange) -> None:
        detail = f" ({failure.detail})" if failure.detail != failure.kind else ""
        super().__init__(str(failure.kind) + detail, str(failure.kind), str(failure), asdict(usage), exchange)


class LLMPlayer:
    """Asks once a turn, with the position and the whole dialogue in words; keeps no state between turns.

    Where a taught model was not taught an episode's settings, the plain one answers, and the choice names it.
    """

    is_slow = True  # the page shows that it is being asked

    def __init__(self, name: str, asker: PositionAsker) -> None:
        self.name, self.asker = f"llm:{name}", asker
        self._preset, self._lock = name, threading.Lock()
        self._plain: PositionAsker | None = None

    @property
    def games_at_once(self) -> int:
        """How many games may ask at the same time; the embedded model answers one question after the other."""
        preset = self.asker.preset
        return {"embedded": 1, "local_hf": preset.batch}.get(preset.provider, preset.limits.concurrency)

    def begin(self, settings: Any, seat: int, luck: Array) -> None:
        """Does nothing: every question contains the whole history."""

    def choose(self, turn: Turn) -> Choice:
        asker = self._asker_for(turn.settings)
        advice = _ask(asker, turn)
        reply = advice.reply
        exchange = Exchange(asker.messages(_position(turn)), reply.text)
        if advice.act is None:
            assert reply.failure is not None
            raise NoAnswer(reply.failure, reply.usage, exchange)
        words = asker.game.words
        # a model of this size cannot explain itself, so the reference's numbers do
        why = words.reason(turn.settings, turn.view, turn.history, advice.act) if asker.preset.taught else ""
        reason = why or f"{reply.text} (confidence {advice.confidence:.2f}, from {reply.source})"
        source = f"llm:{asker.preset.name or self._preset}"
        return Choice(
            advice.act, source, reason, reply.latency, asdict(reply.usage),
            confidence=advice.confidence, exchange=exchange,
        )  # fmt: skip

    def advise(self, turn: Turn) -> Advice:
        """As `choose`, without raising and with the whole reply."""
        return _ask(self._asker_for(turn.settings), turn)

    def close(self) -> None:
        for asker in (self.asker, self._plain):
            if asker is not None:
                asker.close()

    def _asker_for(self, settings: Any) -> PositionAsker:
        if not why_plain(self.asker.preset, self.asker.game.name, settings):
            return self.asker
        with self._lock:
            if self._plain is None:
                self._plain = PositionAsker(self.asker.game, self._preset, settings=settings)
            return self._plain


def _ask(asker: PositionAsker, turn: Turn) -> Advice:
    return asker.ask([_position(turn)])[0]


def _position(turn: Turn) -> Position:
    return Position(turn.settings, turn.view, turn.masks, turn.history)


@lru_cache(maxsize=16)
def llm_player(game: Game, preset: str) -> LLMPlayer:
    """One per process, because loading a model takes seconds. Raises BadInput if the preset cannot be used."""
    player = LLMPlayer(preset, PositionAsker(game, preset))
    atexit.register(_close, player)
    return player


def _close(player: LLMPlayer) -> None:
    with suppress(Exception):  # the process ends, so there is nothing left to report to
        player.close()


def _presets(game: Game, resolver: Resolver) -> list[PlayerInfo]:
    try:
        presets = read_presets()
    except BadInput as error:  # an invalid file of the user's own hides its presets, nothing else
        return [PlayerInfo("llm:", "llm", str(error))]
    return [
        PlayerInfo(f"llm:{name}", "llm", why_not(preset) or not_listening(preset), _about(preset))
        for name, preset in presets.items()
    ]


def _about(preset: Preset) -> str:
    return preset.note or f"{preset.model}{PROVIDERS.get(preset.provider, '')}"


def _make(game: Game, name: str, resolver: Resolver) -> LLMPlayer:
    if name.endswith(".gguf") and resolver.runs is not None:
        raise InvalidName(f"A server's clients cannot name files; {name!r:.80} should be a preset.")
    return llm_player(game, name)


KIND = PlayerKind(make=_make, placeholder="PRESET", list=_presets)
