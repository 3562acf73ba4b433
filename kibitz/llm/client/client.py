"""The client: asks a provider, checks the replies and turns every failure into data.

Identical questions share one call, good answers come from the cache, at most `concurrency` calls run
at a time, and no call outlives its deadline. Everything runs on one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kibitz.core.errors import BadInput
from kibitz.llm.answers.answer import CONFIDENCE, Answer
from kibitz.llm.answers.confidence import calibrated, likelihood
from kibitz.llm.client.cache import Cache, CachedAnswer, cache_key
from kibitz.llm.client.limits import Breaker, Budget, BudgetTracker, FailurePolicy, FailureWindow, jitter
from kibitz.llm.client.types import (
    Completion,
    Failure,
    FailureKind,
    Messages,
    Provider,
    ProviderError,
    Question,
    Reply,
    Usage,
    clean,
    transport_error,
)
from kibitz.llm.client.usage import UsageLedger
from kibitz.llm.presets import Preset, get_preset, why_not

log = logging.getLogger("kibitz.llm")

CHARS_PER_TOKEN = 3  # a cautious estimate for servers that report no token counts
QUESTIONS_PER_YIELD = 8  # prepared between two chances for the event loop to send


@dataclass
class _Call:
    """A question being asked, over all its attempts."""

    question: Question
    ledger: UsageLedger
    request: Mapping[str, Any]
    requested: Answer  # what the model must write: omits a confidence that the provider measures
    deadline: float  # on the event loop's clock
    attempts: int = 0
    usage: Usage = field(default_factory=Usage)
    text: str = ""


class Client:
    """Made by `connect`. Use it within one event loop and close it there."""

    def __init__(
        self,
        preset: Preset,
        provider: Provider,
        *,
        cache: Cache | None = None,
        budget: Budget | BudgetTracker | None = None,  # a tracker is shared with other clients
        policy: FailurePolicy | None = None,
        prompt_version: str = "",
        calibration: Sequence[float] | None = None,  # of a taught model's confidence
        ledger: UsageLedger | None = None,  # continues an existing one; the parent of any ledger in a question
        draw: Callable[[], float] = jitter,
    ) -> None:
        self.preset, self.provider, self.limits = preset, provider, preset.limits
        self.cache, self.prompt_version, self.draw = cache, prompt_version, draw
        self.calibration = calibration
        self.ledger = UsageLedger() if ledger is None else ledger
        self.budget = budget if isinstance(budget, BudgetTracker) else BudgetTracker(budget or Budget(), _now)
        self.budget.ledgers.append(self.ledger)
        self.breaker = Breaker(preset.limits, _now)
        self.window = FailureWindow(policy or FailurePolicy())
        self.paused_until = 0.0  # on the event loop's clock: a rate limit applies to all calls
        self.retry_at = 0.0  # when to ask again: a pause longer than the deadline is not waited for to its end
        self.in_flight: dict[str, asyncio.Task[Reply]] = {}
        self.slots = asyncio.Semaphore(min(self.limits.concurrency, provider.max_concurrent or self.limits.concurrency))

    async def ask(self, messages: Messages, answer: Answer) -> Reply:
        """Ask one question. A failure is returned as a Reply; only the failure policy raises."""
        return (await self.ask_many([Question(messages, answer)]))[0]

    async def ask_many(
        self,
        questions: Iterable[Question],
        within: float | None = None,
        arrived: dict[int, Reply] | None = None,  # by the question's place; filled as replies arrive
    ) -> list[Reply]:
        """Ask concurrently; replies come in order. Questions without a reply after `within` seconds fail."""
        replies: dict[str, Reply] = {}
        waits: dict[str, asyncio.Task[Reply]] = {}
        asked: list[tuple[str, bool, UsageLedger]] = []  # key, whether this question made the call, ledger
        for question in questions:
            request = self._request(question)
            key = self._key(question, request)
            first = key not in waits and key not in replies
            if first and (cached := self._cached(key, question)) is not None:
                replies[key] = cached
            elif first and (task := self.in_flight.get(key)) is not None:
                waits[key], first = task, False
            elif first:
                waits[key] = self.in_flight[key] = asyncio.create_task(self._call(key, question, request))
                if len(waits) % QUESTIONS_PER_YIELD == 0:
                    await asyncio.sleep(0)  # send these while the rest is prepared
            if arrived is not None:
                _collect(arrived, len(asked), waits.get(key) or replies[key])
            asked.append((key, first, question.ledger or self.ledger))
        if waits:
            done, _ = await asyncio.wait(waits.values(), timeout=within)
            late = Failure(FailureKind.TRANSPORT, f"no answer within {within} s", "deadline")
            for key, task in waits.items():
                replies[key] = task.result() if task in done else Reply("", None, failure=late)
        result = [self._record(replies[key], first, ledger) for key, first, ledger in asked]
        self.window.check()
        return result

    def share(self, reply: Reply, ledger: UsageLedger | None = None) -> Reply:
        """The reply for another question that the caller knows to be identical; recorded, not asked."""
        return self._record(reply, False, ledger or self.ledger)

    def record_hits(self, count: int, ledger: UsageLedger | None = None) -> None:
        """Record questions that the caller answered from its own memory as cache hits."""
        (ledger or self.ledger).add_hits(count)
        self.window.add_successes(count)

    def key(self, question: Question) -> str:
        """The cache key: provider, model, messages, grammar, sampling, prompt version, calibration."""
        return self._key(question, self._request(question))

    def messages(self, question: Question) -> Messages:
        """What the provider sends, its system message included."""
        sent: Messages = self._request(question).get("messages", question.messages)
        return sent

    async def close(self) -> None:
        for task in list(self.in_flight.values()):
            task.cancel()
        await asyncio.gather(*self.in_flight.values(), return_exceptions=True)
        await self.provider.close()
        if self.cache is not None:
            self.cache.close()

    def _key(self, question: Question, request: Mapping[str, Any]) -> str:
        parts = (request, question.answer.grammar(), self.prompt_version)
        return cache_key(self.provider.name, *parts, *(self.calibration or ()))

    def _request(self, question: Question) -> Mapping[str, Any]:
        return self.provider.request(question.messages, self._requested(question.answer))

    def _requested(self, answer: Answer) -> Answer:
        return answer.without(CONFIDENCE) if self.provider.has_logprobs else answer

    def _record(self, reply: Reply, first: bool, ledger: UsageLedger) -> Reply:
        """Enter an outcome. A later identical question shares the reply and costs nothing."""
        if not first and reply.source in ("model", "cache"):
            reply = replace(reply, source="shared", usage=Usage())
        ledger.add_reply(reply)
        self.window.add(reply.failure)
        return reply

    def _cached(self, key: str, question: Question) -> Reply | None:
        if self.cache is None or (entry := self.cache.get(key)) is None:
            return None
        try:
            fields = question.answer.check(entry.fields)  # other programs can write the file
        except ProviderError:
            return None
        return Reply(entry.text, fields, source="cache", likelihood=entry.likelihood)

    async def _call(self, key: str, question: Question, request: Mapping[str, Any]) -> Reply:
        try:
            async with self.slots:
                reply = await self._ask_in_time(question, request)
            if self.cache is not None and reply.fields is not None:
                self.cache.put(key, CachedAnswer(reply.text, reply.fields, reply.likelihood, reply.usage))
            return reply
        finally:
            self.in_flight.pop(key, None)

    async def _ask_in_time(self, question: Question, request: Mapping[str, Any]) -> Reply:
        """A call from its first request to its end, at most until the deadline."""
        started = _now()
        seconds = min(self.limits.deadline, max(0.0, self.budget.seconds_left()))
        requested, ledger = self._requested(question.answer), question.ledger or self.ledger
        call = _Call(question, ledger, request, requested, started + seconds)
        failure: Failure | None = None
        fields: dict[str, Any] | None = None
        measured: dict[str, float] = {}
        try:
            async with asyncio.timeout(seconds):
                completion = await self._attempts(call)
            call.text = clean(completion.text)
            fields, measured = self._check(question.answer, call.requested, completion)
            call.text = clean(question.answer.write(fields)) if self.provider.has_logprobs else call.text
        except TimeoutError:
            failure = self._timed_out(seconds)
        except ProviderError as error:
            failure = error.failure
        latency = _now() - started
        ledger.add_call(latency, answered=failure is None, cached=self.cache is not None)
        source = "model" if call.attempts else "none"
        return Reply(call.text, fields, call.usage, latency, call.attempts, source, failure, measured)

    async def _attempts(self, call: _Call) -> Completion:
        last: ProviderError | None = None
        while True:
            await self._wait_for_rate_limit(call, last)
            try:
                self.breaker.check()
                completion = await self._attempt(call)
            except ProviderError as error:
                if error.failure.kind is FailureKind.BUDGET:
                    self.breaker.inconclusive()
                if error.failure.kind in (FailureKind.BREAKER, FailureKind.BUDGET):
                    raise last or error from None
                last = error
            else:
                self.breaker.succeeded()
                return completion
            if not last.retry or call.attempts >= self.limits.attempts:
                break
            wait = self.limits.wait(call.attempts, self.draw()) if last.after is None else last.after
            if last.failure.detail == "rate_limit" and last.after is not None:
                self._pause(wait, last.failure.reason)
            if _now() + wait >= call.deadline:
                break
            self.breaker.inconclusive()
            await asyncio.sleep(wait)
        self._report(last)
        raise last

    def _pause(self, seconds: float, reason: str) -> None:
        """Send nothing for a while. Log a pause only if no call can wait for its end."""
        now, deadline = _now(), self.limits.deadline
        if self.retry_at <= now and deadline <= seconds:
            log.warning("pausing requests to %s for %.0f s: %s", self.provider.name, deadline, reason)
        self.paused_until = max(self.paused_until, now + seconds)
        self.retry_at = max(self.retry_at, now + min(seconds, deadline))

    async def _wait_for_rate_limit(self, call: _Call, last: ProviderError | None) -> None:
        """Wait until another call's rate limit ends, or fail now if it ends too late."""
        now = _now()
        if now >= self.retry_at:
            return
        if self.paused_until >= call.deadline:
            reason = f"the server's rate limit ends in {self.paused_until - now:.0f} s"
            raise last or ProviderError(FailureKind.TRANSPORT, reason, "rate_limit")
        await asyncio.sleep(self.retry_at - now)

    async def _attempt(self, call: _Call) -> Completion:
        """One request, within the budget."""
        max_usage = max_usage_of(self.preset, call.question.messages)
        self.budget.reserve(max_usage)
        call.ledger.add(calls=1)
        call.attempts += 1
        try:
            left = call.deadline - _now() + 0.1  # so that the deadline, not this timeout, ends the last attempt
            completion = await self.provider.ask(call.request, call.requested, min(self.limits.timeout, left))
            self._spend(call, self._used(max_usage, completion))
            return completion
        except ProviderError as error:
            self._spend(call, self.preset.price.of(*error.tokens))
            raise
        except TimeoutError:
            raise
        except BadInput as error:  # our own message, which says what to do
            raise ProviderError(FailureKind.REFUSED, clean(str(error)), provider_fault=True, permanent=True) from None
        except Exception as error:  # a provider's library may raise anything, and its message may contain a key
            log.debug("%s raised", self.provider.name, exc_info=True)
            reason = f"{self.provider.name} failed with {type(error).__name__}"
            raise transport_error(reason, "provider") from None
        finally:
            self.budget.release(max_usage)

    def _spend(self, call: _Call, used: Usage) -> None:
        """Enter an attempt's cost at once: the budget must know it before the next attempt."""
        call.usage += used
        call.ledger.add_usage(used)

    def _timed_out(self, seconds: float) -> Failure:
        """A call was cut off by its deadline, which is the provider's fault, or by the budget, which is not."""
        if seconds < self.limits.deadline:
            self.breaker.inconclusive()
            return Failure(FailureKind.BUDGET, "the budget of seconds ended before the answer arrived", "seconds")
        reason = f"no answer within the deadline of {seconds:.3g} s"
        error = transport_error(reason, "deadline")
        self._report(error)
        return error.failure

    def _report(self, error: ProviderError) -> None:
        """Inform the breaker; log when it opens."""
        if not error.provider_fault:
            self.breaker.succeeded()
        elif self.breaker.failed(error):
            rest, reason = self.limits.breaker_rest, error.failure.reason
            log.warning("%s is failing; retrying every %g s: %s", self.provider.name, rest, reason)

    def _check(
        self, complete: Answer, requested: Answer, completion: Completion
    ) -> tuple[dict[str, Any], dict[str, float]]:
        """The legal fields, with a measured confidence where the provider reports log-probabilities."""
        if completion.refusal:
            raise ProviderError(FailureKind.REFUSED, f"the model declined: {completion.refusal}")
        if completion.truncated:
            kind = FailureKind.NOT_JSON if completion.text.strip() else FailureKind.EMPTY
            raise ProviderError(kind, "the model reached its token limit before the end of its answer", "length")
        flat, lenient = self.preset.structure == "schema", self.preset.lenient
        fields = requested.parse(completion.text, flat, lenient)
        measured = likelihood(requested, completion, requested.idle_names(fields)) if completion.tokens else {}
        if CONFIDENCE in complete.names and (requested is not complete or measured):
            first = measured.get(complete.names[0], 0.0 if requested is not complete else fields[CONFIDENCE])
            if self.preset.taught and measured:  # every number was taught, so the whole act has a likelihood
                first = math.prod(measured.values())
                first = first if self.calibration is None else calibrated(first, self.calibration)
            fields = complete.check({**fields, CONFIDENCE: first})
        return fields, measured

    def _used(self, max_usage: Usage, completion: Completion) -> Usage:
        prompt, written = completion.prompt_tokens, completion.completion_tokens
        return self.preset.price.of(
            max_usage.prompt_tokens if prompt is None else prompt,
            len(completion.text) // CHARS_PER_TOKEN + 1 if written is None else written,
        )


def max_usage_of(preset: Preset, messages: Messages) -> Usage:
    """The most that one attempt at a question may cost."""
    chars = sum(len(message["content"]) for message in messages) + 400
    return preset.price.of(chars // CHARS_PER_TOKEN, preset.sampling.max_tokens or 1_024)


def _collect(arrived: dict[int, Reply], place: int, reply: Reply | asyncio.Task[Reply]) -> None:
    def done(task: asyncio.Task[Reply]) -> None:
        if not task.cancelled() and task.exception() is None:
            arrived[place] = task.result()

    if isinstance(reply, Reply):
        arrived[place] = reply
    else:
        reply.add_done_callback(done)


def _now() -> float:
    return asyncio.get_running_loop().time()


def make_provider(preset: Preset) -> Provider:
    """The provider of a preset. Each imports its heavy libraries when it is first asked."""
    if preset.provider == "embedded":
        from kibitz.llm.providers.embedded import Embedded

        return Embedded(preset)
    if preset.provider == "local_hf":
        from kibitz.llm.providers.huggingface import LocalHF

        return LocalHF(preset)
    from kibitz.llm.providers.remote import Remote

    return Remote(preset)


def connect(preset: Preset | str, *, cache: str | Path | None = None, **limits: Any) -> Client:
    """A client for a preset; BadInput says why the preset cannot be used on this machine. `Client` has the limits."""
    chosen = get_preset(preset) if isinstance(preset, str) else preset
    if reason := why_not(chosen):
        name = preset if isinstance(preset, str) else chosen.provider
        raise BadInput(f"The preset {name} cannot be used: {reason}")
    return Client(chosen, make_provider(chosen), cache=Cache(cache) if cache is not None else None, **limits)
