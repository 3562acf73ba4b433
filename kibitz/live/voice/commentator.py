"""A language model as commentator: `llm:PRESET`, with the game's own template line whenever it has nothing to say.

`commentator_for(game, name)` is what `play_episode(commentate=...)` takes. The model is told the template line and
the public facts of the frame: never a payload, so nothing private can be told. The match waits a
few seconds for a line at most; every line that the template had to give is counted.
"""

from __future__ import annotations

import atexit
import json
import logging
import time
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
from kibitz.llm.presets import Preset

log = logging.getLogger("kibitz.live")

TEMPLATE = "template"
LONGEST = 200  # characters of a line
WITHIN = 4.0  # seconds the match waits for a line
PATIENCE, REST = 3, 30.0  # failures in a row, and the seconds the model is then left alone
ANSWER = Answer.of({"line": Text(LONGEST)})
RULES = (
    "You comment on a game for its watchers. You get the dry line of what has just happened and some facts. "
    'Reply with JSON: {"line": "..."}, one lively sentence of at most 25 words in plain English. '
    "Say only what the dry line and the facts say; invent no names and no numbers."
)


class Commentator:
    """One game and one model. Never raises; the template's silence is also the model's."""

    def __init__(self, game: Game, preset: Preset | str, within: float = WITHIN) -> None:
        self.name = f"llm:{preset}" if isinstance(preset, str) else f"llm:{preset.model or preset.provider}"
        self.counts = {"lines": 0, "llm": 0, "template": 0}  # template: lines the model should have given
        self.note = ""  # why it last did not
        self._game, self._within = game, within
        self._client = BlockingClient(lambda: connect(preset))
        self._in_row, self._rest_until = 0, 0.0

    def __call__(self, event: Mapping[str, Any], frame: Mapping[str, Any]) -> str:
        plain = self._game.drawing.commentary(event, frame)
        if not plain:
            return ""
        self.counts["lines"] += 1
        why = f"it is left alone after {PATIENCE} failures in a row"
        if time.monotonic() >= self._rest_until:
            line, why = self._ask(plain, frame)
            if line:
                self.counts["llm"] += 1
                self._in_row = 0
                return line
            self._failed(why)
        self.counts["template"] += 1
        self.note = why
        return plain

    def described(self) -> dict[str, Any]:
        return {"commentator": self.name, "counts": dict(self.counts), "note": self.note}

    def close(self) -> None:
        self._client.close()

    def _ask(self, plain: str, frame: Mapping[str, Any]) -> tuple[str, str]:
        """A line, or the reason why there is none."""
        try:
            asked = Question(_messages(self._game.name, plain, frame), ANSWER)
            reply = self._client.ask_many([asked], self._within)[0]
        except Exception as error:  # commentary is never worth a match
            return "", f"it failed with {type(error).__name__}"
        if reply.fields is None:
            return "", str(reply.failure)
        line = " ".join(clean(reply.fields["line"], LONGEST).split())
        return line, "" if line else "it said nothing"

    def _failed(self, why: str) -> None:
        if not self._in_row:
            log.warning("%s gave no line (%s); the template speaks.", self.name, why)
        self._in_row += 1
        if self._in_row >= PATIENCE:
            self._rest_until = time.monotonic() + REST
            self._in_row = PATIENCE - 1  # after the rest one try decides


def _messages(game: str, plain: str, frame: Mapping[str, Any]) -> list[dict[str, str]]:
    """What never changes comes first, so that models can reuse it. Only plain facts of the frame are told."""
    facts = {name: value for name, value in frame.items() if isinstance(value, (bool, int, float, str))}
    told = json.dumps({"game": game, "facts": facts, "dry line": plain}, separators=(",", ":"))
    return [{"role": "system", "content": RULES}, {"role": "user", "content": clean(told)}]


def commentator_for(game: Game, name: str = TEMPLATE) -> Commentate:
    """`template`, or `llm:PRESET`; BadInput if there is no such thing or it cannot be used here."""
    if name == TEMPLATE:
        return game.drawing.commentary
    if not name.startswith("llm:"):
        raise BadInput(f"There is no commentator {name!r:.80}; there are {TEMPLATE} and llm:PRESET.")
    return _connected(game, name.removeprefix("llm:"))


@lru_cache(maxsize=8)
def _connected(game: Game, preset: str) -> Commentator:
    """One for a process: loading a model takes seconds."""
    made = Commentator(game, preset)
    atexit.register(_hang_up, made)
    return made


def _hang_up(made: Commentator) -> None:
    with suppress(Exception):  # the process ends; nobody is left to tell
        made.close()
