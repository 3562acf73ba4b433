"""One ledger counts what was asked, how it ended and what it cost."""

from __future__ import annotations

import asyncio

from kibitz.llm.answers.answer import Answer
from kibitz.llm.client.client import Client
from kibitz.llm.client.types import Failure, FailureKind, Question, Reply, Usage
from kibitz.llm.client.usage import UsageLedger
from tests.llm.conftest import words
from tests.llm.test_client import PRESET, Scripted


def test_entries_reach_every_ledger_above() -> None:
    total = UsageLedger()
    first, second = UsageLedger(parent=total), UsageLedger(parent=total)
    first.add_usage(Usage(100, 10, 0.5))
    first.add_call(1.0, answered=True, cached=False)
    second.add_usage(Usage(1, 2, 0.25))
    second.add_call(2.0, answered=False, cached=True)
    second.add_hits(7)
    second.add_reply(Reply("", None, failure=Failure(FailureKind.EMPTY, "no text")))
    assert (first.tokens, second.tokens, total.tokens, total.money) == (110, 3, 113, 0.75)
    assert (total.answered, total.misses, total.seconds) == (1, 1, 3.0)
    assert (second.asked, second.given, second.failed) == (total.asked, total.given, total.failed) == (8, 7, 1)
    assert UsageLedger.total([first, second]) == total


def test_since_a_snapshot_only_later_entries_count() -> None:
    ledger = UsageLedger()
    ledger.add(Failure(FailureKind.ILLEGAL, "x"), asked=1, calls=1, seconds=0.5)
    before = ledger.snapshot()
    ledger.add(Failure(FailureKind.EMPTY, "x"), asked=2, calls=3, seconds=0.25)
    after = ledger.since(before)
    assert (after.asked, after.calls, after.seconds, after.failures) == (2, 3, 0.25, {"empty": 1})
    assert before.calls == 1


def test_a_ledger_can_be_restored_from_its_record() -> None:
    ledger = UsageLedger(asked=3, hits=1, misses=2, calls=2, answered=1, prompt_tokens=5, money=0.25, seconds=1.5)
    ledger.failures["illegal"] = 1
    record = ledger.as_dict()
    assert set(record["failures"]) == {str(kind) for kind in FailureKind}
    assert UsageLedger.from_dict(record).as_dict() == record
    assert UsageLedger.from_dict({}) == UsageLedger()


def test_the_first_of_identical_questions_pays_in_its_own_ledger(answer: Answer) -> None:
    total = UsageLedger()
    first, second = UsageLedger(parent=total), UsageLedger(parent=total)

    async def talk() -> None:
        client = Client(PRESET, Scripted(), ledger=total)
        await client.ask_many([Question(words(1), answer, first), Question(words(1), answer, second)])
        client.share((await client.ask_many([Question(words(2), answer, second)]))[0], first)
        client.record_hits(4, first)
        await client.close()

    asyncio.run(talk())
    assert (first.asked, first.calls, first.answered, first.shared, first.hits) == (6, 1, 1, 1, 4)
    assert (second.asked, second.calls, second.answered, second.shared, second.hits) == (2, 1, 1, 1, 0)
    assert first.tokens == second.tokens == total.tokens // 2 > 0
    assert total == UsageLedger.total([first, second])
