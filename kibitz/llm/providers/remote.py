"""Models behind an OpenAI-compatible address: Groq, OpenAI, vLLM, Ollama, the Hugging Face router."""

from __future__ import annotations

import asyncio
import json
import math
import os
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from kibitz.core.play.thinking import HEAR
from kibitz.llm.answers.answer import Answer
from kibitz.llm.answers.prompt import system_message
from kibitz.llm.client.types import Completion, FailureKind, Messages, ProviderError, Token, clean, transport_error
from kibitz.llm.presets import Preset
from kibitz.llm.providers.http import HttpClient, InvalidResponse, Response, ResponseTooLarge, redacted
from kibitz.llm.providers.streamed import StreamedCompletion

RETRIED_STATUSES = {408, 409, 425, 429}  # and everything from 500 on
MIN_KEY_CHARS = 8  # a shorter key is a placeholder, not a secret, and may occur in an answer


class Remote:
    """One address, one model. It reads the key for each request and stores it nowhere."""

    max_concurrent: int | None = None

    def __init__(self, preset: Preset) -> None:
        self.preset = preset
        self.name = f"{preset.provider}:{preset.model}"
        self.has_logprobs = False  # servers differ, so the model also states a confidence
        self.streams = True  # where someone listens, until the server refuses to
        self.http = HttpClient(preset.address)
        sampling = preset.sampling.model_dump(exclude_none=True)
        logprobs = {"logprobs": True, "top_logprobs": 20} if preset.logprobs else {}
        self.fixed = {"address": redacted(preset.address), "model": preset.model, **sampling, **logprobs}

    def request(self, messages: Messages, answer: Answer) -> Mapping[str, Any]:
        if messages[0]["role"] != "system":
            messages = [system_message(answer, flat=self.preset.structure == "schema"), *messages]
        return {**self.fixed, "messages": list(messages), **self._structure(answer), **self.preset.extra}

    def _structure(self, answer: Answer) -> dict[str, Any]:
        """How this server learns the format of an answer."""
        match self.preset.structure:
            case "schema":
                schema = {"name": "answer", "strict": True, "schema": answer.schema}
                return {"response_format": {"type": "json_schema", "json_schema": schema}}
            case "json":
                return {"response_format": {"type": "json_object"}}
            case "vllm":
                return {"structured_outputs": {"grammar": answer.grammar()}}
            case "llamacpp":
                return {"grammar": answer.grammar()}
            case _:
                return {}

    async def ask(self, request: Mapping[str, Any], answer: Answer, seconds: float) -> Completion:
        body = {name: value for name, value in request.items() if name != "address"}
        hear = HEAR.get() if self.streams else None
        streamed = None if hear is None else StreamedCompletion(hear, self._key())
        try:
            async with asyncio.timeout(seconds):
                response = await self._post(body, streamed)
                if streamed is not None and response.status in (400, 422):  # the server may not know how to stream
                    self.streams, streamed = False, None
                    response = await self._post(body, None)
        except TimeoutError:
            reason = f"no response within {seconds:.3g} s"
            raise transport_error(reason, "timeout", retry=True) from None
        except ResponseTooLarge as error:
            raise transport_error(str(error), "protocol") from None
        except InvalidResponse as error:
            reason = f"{redacted(self.preset.address)} sent {self._safe(str(error))}"
            raise transport_error(reason, "protocol") from None
        except (OSError, EOFError) as error:
            cause = self._safe(str(error)) or type(error).__name__
            reason = f"no connection to {redacted(self.preset.address)}: {cause}"
            raise transport_error(reason, "connection", retry=True) from None
        answered = (streamed.whole() if streamed is not None else {}) or _json(response.body)
        try:
            if response.status != 200:
                raise self._http_error(response, answered)
            return self._completion(response, answered)
        except ProviderError as error:
            usage = _as_dict(answered.get("usage"))
            error.tokens = (_count(usage.get("prompt_tokens")) or 0, _count(usage.get("completion_tokens")) or 0)
            raise

    async def _post(self, body: Mapping[str, Any], streamed: StreamedCompletion | None) -> Response:
        asked = body if streamed is None else {**body, "stream": True, "stream_options": {"include_usage": True}}
        arrived = None if streamed is None else streamed.take
        return await self.http.send("POST", "/chat/completions", self._headers(), json.dumps(asked).encode(), arrived)

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "kibitz"}
        if key := self._key():
            if not key.isascii() or not key.isprintable() or " " in key:
                reason = f"{self.preset.key_env} contains characters that are not allowed in a key"
                raise ProviderError(FailureKind.REFUSED, reason, "key", provider_fault=True, permanent=True)
            headers["Authorization"] = f"Bearer {key}"
        return headers

    def _key(self) -> str:
        return os.environ.get(self.preset.key_env, "").strip() if self.preset.key_env else ""

    def _safe(self, text: str, limit: int = 200) -> str:
        """Make foreign text safe to log: short, printable, without our key."""
        key = self._key()
        return clean(text.replace(key, "***") if key else text, limit)

    def _http_error(self, response: Response, body: dict[str, Any]) -> ProviderError:
        status, (code, message) = response.status, _error(body)
        reason = f"HTTP {status} from {redacted(self.preset.address)}" + (f": {self._safe(message)}" if message else "")
        if code == "insufficient_quota" or status in (401, 402, 403, 404):
            return ProviderError(FailureKind.REFUSED, reason, f"http_{status}", provider_fault=True, permanent=True)
        if code == "json_validate_failed":  # Groq: the model violated the schema
            return ProviderError(FailureKind.NOT_JSON, reason, f"http_{status}")
        if status in RETRIED_STATUSES or status >= 500:
            after = retry_after(response.headers, time.time())
            detail = "rate_limit" if status == 429 else f"http_{status}"
            return transport_error(reason, detail, retry=True, after=after)
        if status < 400:
            return transport_error(f"unexpected {reason}", f"http_{status}")
        return ProviderError(FailureKind.REFUSED, reason, f"http_{status}", provider_fault=True)

    def _completion(self, response: Response, body: dict[str, Any]) -> Completion:
        choices = body.get("choices")
        first = _as_dict(choices[0] if isinstance(choices, list) and choices else None)
        if body.get("error") or first.get("error"):  # a gateway reports its own failure, or that of a server behind it
            code, text = _error(body if body.get("error") else first)
            status = int(code) if code.isascii() and code.isdigit() and len(code) == 3 else 0
            reason = f"{redacted(self.preset.address)} sent HTTP 200 with an error: {self._safe(text or code)}"
            raise transport_error(
                reason,
                "rate_limit" if status == 429 else "error_object",
                retry=status in RETRIED_STATUSES or status >= 500,
                after=retry_after(response.headers, time.time()),
            )
        if not isinstance(choices, list):
            shown = self._safe(response.body.decode("utf-8", "replace"), 80)
            reason = f"{redacted(self.preset.address)} did not send a chat completion: {shown!r}"
            raise transport_error(reason, "protocol")
        usage, message = _as_dict(body.get("usage")), _as_dict(first.get("message"))
        refused = message.get("refusal") or first.get("finish_reason") == "content_filter"
        written = message["content"] if isinstance(message.get("content"), str) else ""
        key = self._key()
        text = written.replace(key, "***") if len(key) >= MIN_KEY_CHARS else written  # some gateways echo it
        return Completion(
            text,
            _count(usage.get("prompt_tokens")),
            _count(usage.get("completion_tokens")),
            truncated=first.get("finish_reason") == "length",
            tokens=_tokens(first.get("logprobs")) if text == written else (),
            refusal=self._safe(str(message.get("refusal") or "content filter")) if refused else "",
        )

    async def close(self) -> None:
        await self.http.close()


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that the server asks us to wait, given in seconds, in milliseconds or as a date."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            wait = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if math.isfinite(wait) and wait >= 0:
            return wait
    try:
        return max(0.0, parsedate_to_datetime(headers["retry-after"]).timestamp() - now)
    except (KeyError, ValueError, TypeError, OverflowError):
        return None


def _json(body: bytes) -> dict[str, Any]:
    """The object in a body; empty if there is none."""
    try:
        return _as_dict(json.loads(body))
    except (ValueError, RecursionError):
        return {}


def _error(body: dict[str, Any]) -> tuple[str, str]:
    """Code and message of an error body; empty if it has none."""
    error = body.get("error", "")
    if not isinstance(error, dict):
        return "", str(error)
    return str(error.get("code") or ""), str(error.get("message") or "")


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 10**9 else None


def _tokens(logprobs: Any) -> list[Token]:
    """From OpenAI's log-probabilities; empty if their format is unexpected."""
    try:
        return [
            Token(
                str(entry["token"]),
                {str(other["token"]): float(other["logprob"]) for other in [*(entry.get("top_logprobs") or []), entry]},
            )
            for entry in logprobs["content"]
        ]
    except (KeyError, TypeError, ValueError, AttributeError):
        return []
