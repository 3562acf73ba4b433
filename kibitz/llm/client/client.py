"""The client: asks a provider, judges what comes back, and never fails loudly.

Equal questions share one call, good answers come from the cache, at most `concurrency` calls are
under way, and no call outlives its deadline. Everything runs on one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kibitz.core.errors import BadInput
from kibitz.llm.answers.answer import CONFIDENCE, Answer
from kibitz.llm.answers.confidence import likelihood
from kibitz.llm.client.cache import Cache, Entry, key_of
from kibitz.llm.client.failure import Failure, Kind, Trouble, clean
from kibitz.llm.client.limits import Book, Breaker, Budget, Policy, Purse, Watch, jitter
from kibitz.llm.client.types import Completion, Messages, Provider, Question, Reply, Usage
from kibitz.llm.presets import Preset, get_preset
from kibitz.llm.usable import why_not

log = logging.getLogger("kibitz.llm")

CHARS_PER_TOKEN = 3  # a cautious guess where nobody counted


@dataclass
class _Call:
    """One question on its way."""

    question: Question
    request: Mapping[str, Any]
    asked: Answer  # what the model is asked for: without a confidence that is measured anyway
    started: float
    deadline: float
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
        budget: Budget | None = None,
        policy: Policy | None = None,
        prompt_version: str = "",
        draw: Callable[[], float] = jitter,
    ) -> None:
        self.preset, self.provider, self.limits = preset, provider, preset.limits
        self.cache, self.prompt_version, self.draw = cache, prompt_version, draw
        self.book = Book()
        self.purse = Purse(budget or Budget(), self.book)
        self.breaker = Breaker(preset.limits)
        self.watch = Watch(policy or Policy())
        self.hold_until = 0.0  # a rate limit met by one call holds for all
        self.under_way: dict[str, asyncio.Task[Reply]] = {}
        at_once = min(preset.limits.concurrency, provider.at_once or preset.limits.concurrency)
        self.lines = asyncio.Semaphore(at_once)

    async def ask(self, messages: Messages, answer: Answer) -> Reply:
        """One question. A failure comes back as a Reply; only the failure policy raises."""
        return (await self.ask_many([Question(messages, answer)]))[0]

    async def ask_many(self, questions: Iterable[Question], within: float | None = None) -> list[Reply]:
        """All at once, replies in order. What is not answered `within` seconds has failed."""
        replies: dict[str, Reply] = {}
        waits: dict[str, asyncio.Task[Reply]] = {}
        keys, first = [], []
        for question in questions:
            request = self._request(question)
            key = self._key(question, request)
            first.append(key not in waits and key not in replies)
            keys.append(key)
            if not first[-1]:
                continue
            if (cached := self._cached(key, question)) is not None:
                replies[key] = cached
            elif (task := self.under_way.get(key)) is not None:
                waits[key], first[-1] = task, False
            else:
                waits[key] = self.under_way[key] = asyncio.create_task(self._call(key, question, request))
                if len(waits) % 8 == 0:
                    await asyncio.sleep(0)  # let these go out while the rest is made ready
        if waits:
            done, _ = await asyncio.wait(waits.values(), timeout=within)
            late = Failure(Kind.TRANSPORT, f"not answered within {within} s of asking", "deadline")
            for key, task in waits.items():
                replies[key] = task.result() if task in done else Reply("", None, failure=late)
        result = [self._entered(replies[key], is_first) for key, is_first in zip(keys, first, strict=True)]
        self.watch.check()
        return result

    def shared(self, reply: Reply) -> Reply:
        """An equal question's reply, for a caller who knew that it is equal."""
        return self._entered(reply, False)

    def remembered(self, count: int) -> None:
        """So many questions were answered from what their caller knew, as by the cache."""
        self.book.asked += count
        self.book.hits += count
        self.watch.failed.extend([None] * min(count, self.watch.policy.window))

    def key(self, question: Question) -> str:
        """The cache's key: provider, model, messages, grammar, sampling, prompt version."""
        return self._key(question, self._request(question))

    def _key(self, question: Question, request: Mapping[str, Any]) -> str:
        return key_of(self.provider.name, request, question.answer.grammar(), self.prompt_version)

    def _request(self, question: Question) -> Mapping[str, Any]:
        return self.provider.request(question.messages, self._asked(question.answer))

    async def close(self) -> None:
        for task in list(self.under_way.values()):
            task.cancel()
        await asyncio.gather(*self.under_way.values(), return_exceptions=True)
        await self.provider.close()
        if self.cache is not None:
            self.cache.close()

    def _asked(self, answer: Answer) -> Answer:
        return answer.without(CONFIDENCE) if self.provider.measures else answer

    def _entered(self, reply: Reply, first: bool) -> Reply:
        """Into the book. An equal question that came later shares the reply and costs nothing."""
        self.book.asked += 1
        if not first and reply.source in ("model", "cache"):
            reply = replace(reply, source="shared", usage=Usage())
        if reply.source == "shared":
            self.book.shared += 1
        elif reply.source == "cache":
            self.book.hits += 1
        if reply.failure is not None:
            self.book.fail(reply.failure)
        self.watch.add(reply.failure)
        return reply

    def _cached(self, key: str, question: Question) -> Reply | None:
        if self.cache is None or (entry := self.cache.get(key)) is None:
            return None
        try:
            fields = question.answer.check(entry.fields)  # a file anybody may have touched
        except Trouble:
            return None
        return Reply(entry.text, fields, source="cache", likelihood=entry.likelihood)

    async def _call(self, key: str, question: Question, request: Mapping[str, Any]) -> Reply:
        try:
            async with self.lines:
                reply = await self._timed(question, request)
            if self.cache is not None:
                self.book.misses += 1
                if reply.fields is not None:
                    self.cache.put(key, Entry(reply.text, reply.fields, reply.likelihood, reply.usage))
            return reply
        finally:
            self.under_way.pop(key, None)

    async def _timed(self, question: Question, request: Mapping[str, Any]) -> Reply:
        """A call from its first request to its end; never longer than the deadline."""
        started = time.monotonic()
        patience = min(self.limits.deadline, max(0.0, self.purse.left()))
        call = _Call(question, request, self._asked(question.answer), started, started + patience)
        failure: Failure | None = None
        fields: dict[str, Any] | None = None
        measured: dict[str, float] = {}
        try:
            async with asyncio.timeout(patience):
                completion = await self._attempts(call)
            call.text = clean(completion.text)
            fields, measured = self._judge(question.answer, call.asked, completion)
            call.text = clean(question.answer.write(fields)) if self.provider.measures else call.text
            self.book.answered += 1
        except TimeoutError:
            failure = self._late(patience)
        except Trouble as trouble:
            failure = trouble.failure
        latency = time.monotonic() - started
        self.book.seconds += latency
        source = "model" if call.attempts else "none"
        return Reply(call.text, fields, call.usage, latency, call.attempts, source, failure, measured)

    async def _attempts(self, call: _Call) -> Completion:
        met: Trouble | None = None
        while True:
            await self._held(call, met)
            try:
                self.breaker.check()
                completion = await self._attempt(call)
            except Trouble as trouble:
                if trouble.failure.kind is Kind.BUDGET:
                    self.breaker.released()
                if trouble.failure.kind in (Kind.BREAKER, Kind.BUDGET):
                    raise met or trouble from None
                met = trouble
            else:
                self.breaker.good()
                return completion
            if not met.retry or call.attempts >= self.limits.attempts:
                break
            wait = self.limits.wait(call.attempts, self.draw()) if met.after is None else met.after
            if met.failure.detail == "rate_limit" and met.after is not None:
                self._hold(wait, met.failure.reason)
            if time.monotonic() + wait >= call.deadline:
                break
            self.breaker.released()
            await asyncio.sleep(wait)
        self._blame(met)
        raise met

    def _hold(self, seconds: float, reason: str) -> None:
        """Ask nothing for so long; people hear once of a silence that no call can wait for."""
        now = time.monotonic()
        if self.hold_until - now < self.limits.deadline <= seconds:
            log.warning("%s is not asked for %.0f s: %s", self.provider.name, seconds, reason)
        self.hold_until = max(self.hold_until, now + seconds)

    async def _held(self, call: _Call, met: Trouble | None) -> None:
        """Wait for the end of a rate limit that another call met, or give up now if that is too late."""
        wait = self.hold_until - time.monotonic()
        if wait <= 0:
            return
        if time.monotonic() + wait >= call.deadline:
            reason = f"the server asked for {wait:.0f} s of silence"
            raise met or Trouble(Kind.TRANSPORT, reason, "rate_limit")
        await asyncio.sleep(wait)

    async def _attempt(self, call: _Call) -> Completion:
        """One request, within the budget."""
        most = self._most(call)
        self.purse.take(most)
        self.book.calls += 1
        call.attempts += 1
        try:
            left = call.deadline - time.monotonic() + 0.1  # so that it is the deadline that ends the last attempt
            completion = await self.provider.ask(call.request, call.asked, min(self.limits.timeout, left))
            used = self._used(most, completion)
            self.book.spend(used)
            call.usage = Usage(
                call.usage.prompt_tokens + used.prompt_tokens,
                call.usage.completion_tokens + used.completion_tokens,
                call.usage.money + used.money,
            )
            return completion
        except (Trouble, TimeoutError):
            raise
        except BadInput as error:  # our own sentence, which says what to do
            raise Trouble(Kind.REFUSED, clean(str(error)), dead=True, hopeless=True) from None
        except Exception as error:  # a provider's library may raise anything; its text may hold anything
            log.debug("%s raised", self.provider.name, exc_info=True)
            reason = f"{self.provider.name} failed with {type(error).__name__}"
            raise Trouble(Kind.TRANSPORT, reason, "provider", dead=True) from None
        finally:
            self.purse.settle(most)

    def _late(self, patience: float) -> Failure:
        """A call was cut off: by its deadline, which is the provider's fault, or by the budget, which is not."""
        if patience < self.limits.deadline:
            self.breaker.released()
            return Failure(Kind.BUDGET, "the budget of seconds ended before the answer came", "seconds")
        reason = f"no answer within the deadline of {patience:.3g} s"
        late = Trouble(Kind.TRANSPORT, reason, "deadline", dead=True)
        self._blame(late)
        return late.failure

    def _blame(self, trouble: Trouble) -> None:
        """Tell the breaker; people hear of it once."""
        if not trouble.dead:
            self.breaker.good()
        elif self.breaker.bad(trouble):
            rest, reason = self.limits.breaker_rest, trouble.failure.reason
            log.warning("%s is left alone for %g s at a time: %s", self.provider.name, rest, reason)

    def _judge(self, whole: Answer, asked: Answer, completion: Completion) -> tuple[dict[str, Any], dict[str, float]]:
        """The fields, with a measured confidence where the provider shows what it believed."""
        if completion.cut:
            kind = Kind.NOT_JSON if completion.text.strip() else Kind.EMPTY
            raise Trouble(kind, "the model ran into its token limit before it was done", "length")
        fields = asked.parse(completion.text, flat=self.preset.structure == "schema")
        measured = likelihood(asked, completion) if completion.tokens else {}
        if CONFIDENCE in whole.names and (asked is not whole or measured):
            first = measured.get(whole.names[0], 0.0 if asked is not whole else fields[CONFIDENCE])
            fields = whole.check({**fields, CONFIDENCE: first})
        return fields, measured

    def _most(self, call: _Call) -> Usage:
        """What one attempt may cost."""
        chars = sum(len(message["content"]) for message in call.question.messages) + 400
        answer = self.preset.sampling.max_tokens or 1_024
        return self.preset.price.of(chars // CHARS_PER_TOKEN, answer)

    def _used(self, most: Usage, completion: Completion) -> Usage:
        prompt, written = completion.prompt_tokens, completion.completion_tokens
        return self.preset.price.of(
            most.prompt_tokens if prompt is None else prompt,
            len(completion.text) // CHARS_PER_TOKEN + 1 if written is None else written,
        )


def make_provider(preset: Preset) -> Provider:
    """The provider of a preset; heavy libraries are imported here and not before."""
    if preset.provider == "embedded":
        from kibitz.llm.providers.embedded import Embedded

        return Embedded(preset)
    if preset.provider == "local_hf":
        from kibitz.llm.providers.huggingface import LocalHF

        return LocalHF(preset)
    from kibitz.llm.providers.remote import Remote

    return Remote(preset)


def connect(
    preset: Preset | str,
    *,
    cache: str | Path | None = None,
    budget: Budget | None = None,
    policy: Policy | None = None,
    prompt_version: str = "",
) -> Client:
    """A client for a preset, or BadInput that says why it is not usable here."""
    chosen = get_preset(preset) if isinstance(preset, str) else preset
    if reason := why_not(chosen):
        name = preset if isinstance(preset, str) else chosen.provider
        raise BadInput(f"The preset {name} cannot be used: {reason}")
    return Client(
        chosen,
        make_provider(chosen),
        cache=Cache(cache) if cache is not None else None,
        budget=budget,
        policy=policy,
        prompt_version=prompt_version,
    )
