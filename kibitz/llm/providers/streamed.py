"""A chat completion that arrives as server-sent events: its words while they come, and the whole at the end."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

MIN_PREFIX_CHARS = 4  # of a key at the end of the words so far: it is held back until the next piece


class StreamedCompletion:
    """Takes the pieces of a body. A body that is not a stream of events leaves it empty."""

    def __init__(self, hear: Callable[[str], None], secret: str = "") -> None:
        self._hear, self._secret = hear, secret
        self._rest = b""
        self._thought = ""  # what a reasoning model writes before its answer
        self._text = ""
        self._logprobs: list[Any] = []
        self._last: dict[str, Any] = {}
        self._choice: dict[str, Any] = {}
        self._usage: Any = None

    def take(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        before = len(self._thought) + len(self._text)
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip())
        if len(self._thought) + len(self._text) > before:
            self._hear(self._shown(self._thought + self._text))

    def _event(self, data: bytes) -> None:
        try:
            event = json.loads(data)
        except ValueError:  # the last event is [DONE]
            return
        if not isinstance(event, dict):
            return
        self._last = event
        self._usage = event.get("usage") or self._usage
        for choice in event.get("choices") or []:
            delta = choice.get("delta") or {}
            self._thought += str(delta.get("reasoning_content") or delta.get("reasoning") or "")
            self._text += str(delta.get("content") or "")
            self._logprobs += (choice.get("logprobs") or {}).get("content") or []
            self._choice |= {key: value for key, value in choice.items() if value is not None}
            self._choice |= {"refusal": delta["refusal"]} if delta.get("refusal") else {}

    def _shown(self, text: str) -> str:
        """The words without a key that a gateway echoes, whole or so far."""
        key = self._secret
        text = text.replace(key, "***") if key else text
        for size in range(min(len(key), len(text)), MIN_PREFIX_CHARS - 1, -1):
            if text.endswith(key[:size]):
                return text[:-size]
        return text

    def whole(self) -> dict[str, Any]:
        """The body that the server would have sent in one piece; empty if there were no events."""
        if not self._last:
            return {}
        message = {"content": self._text, "refusal": self._choice.get("refusal")}
        choice = {"message": message, "finish_reason": self._choice.get("finish_reason")}
        choice["logprobs"] = {"content": self._logprobs} if self._logprobs else None
        error = {"error": self._last["error"]} if self._last.get("error") else {}
        return {"choices": [choice], "usage": self._usage} | error
