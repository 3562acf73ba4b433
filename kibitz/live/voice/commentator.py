"""A language model as commentator: `llm:PRESET`, with the game's own template line whenever the model gives none.

`commentator_for(game, name)` returns what `play_episode(commentate=...)` takes. The model sees the template line and
the public facts of the frame, never an event's payload, so it cannot reveal private values. The match waits a few
seconds at most, and every line that falls back to the template is counted.
"""

from __future__ import annotations

import atexit
import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.play.recorder import Commentate
from kibitz.llm.answers.answer import Answer, Text
from kibitz.llm.client.blocking import BlockingClient
from kibitz.llm.client.client import connect
from kibitz.llm.client.types import Question, clean
from kibitz.llm.presets import Preset, get_preset

log = logging.getLogger("kibitz.live")

TEMPLATE = "template"
MAX_LINE_CHARACTERS = 200
LINE_SECONDS = 4.0  # that the match waits for a line
MAX_FAILURES = 3  # of the provider in a row; then the client's circuit breaker opens
ANSWER = Answer.of({"line": Text(MAX_LINE_CHARACTERS)})
RULES = (
    "You comment on a game for its watchers. You get the dry line of what has just happened and some facts. "
    'Reply with JSON: {"line": "..."}, one lively sentence of at most 25 words in plain English. '
    "Say only what the dry line and the facts say; invent no names and no numbers."
)


class Commentator:
    """One game and one model. Never raises. Where the template has no line, the model is not asked."""

    def __init__(self, game: Game, preset: Preset | str, within: float = LINE_SECONDS) -> None:
        self.name = f"llm:{preset}" if isinstance(preset, str) else f"llm:{preset.model or preset.provider}"
        self.counts = {"lines": 0, "llm": 0, "template": 0}  # template: lines that the model failed to give
        self.note = ""  # the reason for the last of those
        self._game, self._within = game, within
        chosen = get_preset(preset) if isinstance(preset, str) else preset
        # A late answer must count as a failure, or the breaker would never open for a provider that hangs.
        limits = {"deadline": min(within, chosen.limits.deadline), "breaker_failures": MAX_FAILURES}
        limited = chosen.model_copy(update={"limits": chosen.limits.model_copy(update=limits)})
        self._client = BlockingClient(lambda: connect(limited))

    def __call__(self, event: Mapping[str, Any], frame: Mapping[str, Any]) -> str:
        template_line = self._game.drawing.commentary(event, frame)
        if not template_line:
            return ""
        self.counts["lines"] += 1
        line, reason = self._ask(template_line, frame)
        if line:
            self.counts["llm"] += 1
            return line
        if not self.counts["template"]:
            log.warning("%s gave no line (%s); using the template instead", self.name, reason)
        self.counts["template"] += 1
        self.note = reason
        return template_line

    def described(self) -> dict[str, Any]:
        return {"commentator": self.name, "counts": dict(self.counts), "note": self.note}

    def close(self) -> None:
        self._client.close()

    def _ask(self, template_line: str, frame: Mapping[str, Any]) -> tuple[str, str]:
        """A line, or the reason why there is none."""
        try:
            question = Question(_messages(self._game.name, template_line, frame), ANSWER)
            reply = self._client.ask_many([question], self._within)[0]
        except Exception as error:  # a failing commentator must never end a match
            return "", f"it failed with {type(error).__name__}"
        if reply.fields is None:
            return "", str(reply.failure)
        line = " ".join(clean(reply.fields["line"], MAX_LINE_CHARACTERS).split())
        return line, "" if line else "the line was empty"


def _messages(game: str, template_line: str, frame: Mapping[str, Any]) -> list[dict[str, str]]:
    """The constant part comes first, so that models can cache it. Only scalar values of the frame are sent."""
    facts = {name: value for name, value in frame.items() if isinstance(value, (bool, int, float, str))}
    position = json.dumps({"game": game, "facts": facts, "dry line": template_line}, separators=(",", ":"))
    return [{"role": "system", "content": RULES}, {"role": "user", "content": clean(position)}]


def commentator_for(game: Game, name: str = TEMPLATE) -> Commentate:
    """`template` or `llm:PRESET`; BadInput if it does not exist or cannot be used here."""
    if name == TEMPLATE:
        return game.drawing.commentary
    if not name.startswith("llm:"):
        raise BadInput(f"There is no commentator {name!r:.80}; use {TEMPLATE} or llm:PRESET.")
    return _connected(game, name.removeprefix("llm:"))


@lru_cache(maxsize=8)
def _connected(game: Game, preset: str) -> Commentator:
    """Shared within a process: loading a model takes seconds."""
    commentator = Commentator(game, preset)
    atexit.register(_close_quietly, commentator)
    return commentator


def _close_quietly(commentator: Commentator) -> None:
    with suppress(Exception):  # the process is exiting
        commentator.close()
