"""Recorded episodes in the formats of other tools.

`sft` and `dpo` are the chat rows of TRL, Axolotl and others; `jsonl` and `parquet` have one row per decision.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal, get_args

import jax.numpy as jnp

from kibitz.core.errors import BadInput
from kibitz.core.play.player import BotPlayer, Turn
from kibitz.core.system.paths import named, write_whole
from kibitz.games import get_game
from kibitz.teach.examples.rows import RowWriter
from kibitz.teach.examples.stored import Stored, stored_examples
from kibitz.teach.records.seats import SeatRecord, seats_of_folder, seats_of_store

Format = Literal["sft", "dpo", "jsonl", "parquet"]
FORMATS: tuple[str, ...] = get_args(Format)
ROWS_AT_ONCE = 1000  # in memory, and in a row group of a Parquet file
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Wanted:
    """What to export."""

    source: str  # a folder of `kibitz evaluate --out`, or a store
    format: Format
    game: str  # of a store; a folder knows its own
    player: str = ""  # default: both seats
    min_return: float | None = None  # omits seats that earned less


def export(wanted: Wanted, path: Path, progress: Callable[[int], None] = lambda count: None) -> dict[str, Any]:
    """Writes the rows into a new file, which appears once it is complete."""
    if wanted.format not in FORMATS:
        raise BadInput(f"There is no format {wanted.format!r}; choose one of {', '.join(FORMATS)}.")
    if path.exists():
        raise BadInput(f"{path} exists; name another file or delete it.")
    if not path.parent.is_dir():
        raise BadInput(f"There is no folder {path.parent}; create it first.")
    stream, written = rows(wanted), 0
    batches = iter(lambda: list(islice(stream, ROWS_AT_ONCE)), [])
    first = next(batches, None)
    if first is None:
        raise BadInput(f"{wanted.source} has nothing to export as {wanted.format}; ask for another player or format.")

    def counted() -> Iterator[list[Row]]:
        nonlocal written
        for batch in (first, *batches):
            yield batch
            written += len(batch)
            progress(len(batch))

    write = _write_parquet if wanted.format == "parquet" else _write_lines
    write_whole(path, lambda file: write(file, counted()))
    return {"file": str(path), "format": wanted.format, "rows": written, "bytes": path.stat().st_size}


def rows(wanted: Wanted) -> Iterator[Row]:
    chat = wanted.format in ("sft", "dpo")
    if named(wanted.source).is_dir():
        seats = seats_of_folder(named(wanted.source), positions=chat)
    elif wanted.format == "dpo":
        raise BadInput("Pairs need the model's own answers; name a folder of `kibitz evaluate --out`.")
    elif chat:
        yield from _stored_answers(wanted)
        return
    else:
        seats = seats_of_store(wanted.source, wanted.game)
    make = {"sft": _answers, "dpo": _pairs}.get(wanted.format, _decisions)
    for seat in seats:
        if wanted.player not in ("", seat.players[seat.seat]):
            continue
        if wanted.min_return is None or seat.paid >= wanted.min_return:
            yield from make(seat)


def _stored_answers(wanted: Wanted) -> Iterator[Row]:
    writer = RowWriter(get_game(wanted.game))
    for found in stored_examples(wanted.game, Stored(wanted.source, wanted.player), lambda reason: None):
        for one in found:
            if wanted.min_return is None or one.paid >= wanted.min_return:
                yield writer.taught(one.position, one.act)


def _answers(seat: SeatRecord) -> Iterator[Row]:
    """A model's own questions and answers; the game's questions and answers for other players."""
    writer = RowWriter(seat.game)
    for turn in seat.turns:
        if turn.asked is not None and not turn.asked.failure:
            yield {"messages": [*turn.asked.messages, _assistant(turn.asked.answer)]}
        elif turn.asked is None and not turn.decision["fallback"]:
            assert turn.position is not None
            yield writer.taught(turn.position, turn.act)


def _pairs(seat: SeatRecord) -> Iterator[Row]:
    """Chosen is what the game's reference would have done; rejected is another act, or an answer that was none."""
    game, writer = seat.game, RowWriter(seat.game)
    expert, luck = BotPlayer(game, game.bot(game.reference)), jnp.zeros(2, jnp.uint32)
    for number, turn in enumerate(seat.turns):
        position = turn.position
        assert position is not None
        if not number:
            expert.begin(position.settings, seat.seat, luck)
        best = expert.choose(
            Turn(position.settings, seat.seat, turn.decision["turn"], position.view, position.masks, [], luck)
        ).act
        chosen, own = writer.answer(position, best), writer.answer(position, turn.act)
        if turn.asked is None:
            if own != chosen and not turn.decision["fallback"]:
                yield {"prompt": writer.messages(position), "chosen": [chosen], "rejected": [own]}
        elif turn.asked.answer and (turn.asked.failure or own != chosen):
            said = [_assistant(turn.asked.answer)]
            yield {"prompt": list(turn.asked.messages), "chosen": [chosen], "rejected": said}


def _assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def _decisions(seat: SeatRecord) -> Iterator[Row]:
    """Flat rows; what a source does not keep is null."""
    for turn in seat.turns:
        made, asked = turn.decision, turn.asked
        usage = made["usage"]
        yield {
            "episode_id": seat.episode_id,
            "game": seat.game.name,
            "seat": seat.seat,
            "player": seat.players[seat.seat],
            "opponent": seat.players[1 - seat.seat],
            "turn": made["turn"],
            "act": list(turn.act),
            "text": made["text"],
            "source": made["source"],
            "reason": made.get("private", {}).get(str(seat.seat), {}).get("reason") or None,
            "messages": None if asked is None else [dict(message) for message in asked.messages],
            "answer": None if asked is None else asked.answer,
            "failure": (asked.failure if asked else "") or made["fallback"] or None,
            "failure_kind": made.get("failure") or None,
            "latency": float(made["latency"]),
            "prompt_tokens": int(usage.get("prompt_tokens") or 0),
            "completion_tokens": int(usage.get("completion_tokens") or 0),
            "money": float(usage.get("money") or 0.0),
            "return": seat.paid,
            "opponent_return": seat.returns[1 - seat.seat],
        }


def _write_lines(file: IO[bytes], batches: Iterator[list[Row]]) -> None:
    for batch in batches:
        file.write(b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in batch))


def _write_parquet(file: IO[bytes], batches: Iterator[list[Row]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    text, number, real = pa.string(), pa.int64(), pa.float64()
    kinds = {
        "seat": number,
        "turn": number,
        "act": pa.list_(number),
        "messages": pa.list_(pa.struct([("role", text), ("content", text)])),
        "latency": real,
        "prompt_tokens": number,
        "completion_tokens": number,
        "money": real,
        "return": real,
        "opponent_return": real,
    }
    writer = None
    for batch in batches:
        schema = pa.schema([(name, kinds.get(name, text)) for name in batch[0]])
        writer = writer or pq.ParquetWriter(file, schema)
        writer.write_table(pa.Table.from_pylist(list(batch), schema))
    if writer:
        writer.close()
