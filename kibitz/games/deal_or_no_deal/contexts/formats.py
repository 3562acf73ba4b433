"""The files of Lewis et al. (2017), line by line.

A file is recognised by its content, never by its name: self-play contexts, processed dialogues, the raw
log of the dialogues (`_FORM` shows a line of each), or parquet as the Hugging Face hub serves it.
Malformed input raises BadInput that starts with the file and the line, or in parquet the row.
"""

from __future__ import annotations

import io
import re
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kibitz.core.errors import BadInput

Dataset = Literal["self_play", "dialogues"]
Triple = tuple[int, int, int]
Ints = NDArray[np.int32]

MAX_COUNT = 4
MAX_UTILITY = 10


class ContextRow(NamedTuple):
    where: str  # file and line; every error about the row starts with it
    own: list[str]  # c u c u c u as written
    partner: list[str]  # the same for the other side; empty in self play, where the next row has it
    kept: list[str]  # own three counts, with or without the partner's three; empty without a deal


FILE_NAMES = {
    "self_play": ("selfplay.txt",),
    "dialogues": ("data.txt", "data_without_test.txt", "train.txt", "val.txt"),
}
_SELF_PLAY, _PROCESSED, _LOG = "self-play contexts", "processed dialogues", "a raw dialogue log"
DATASET_OF: dict[str, Dataset] = {_SELF_PLAY: "self_play", _PROCESSED: "dialogues", _LOG: "dialogues"}
_FORM = {
    _SELF_PLAY: "c u c u c u",
    _PROCESSED: "<input> c u c u c u </input> <dialogue> .. </dialogue> <output> item0=.., own three and the "
    "partner's (or six of <disagree>, <no_agreement>, <disconnect>) </output> "
    "<partner_input> c u c u c u </partner_input>",
    _LOG: "c u c u c u YOU: .. <selection> item0=.. item1=.. item2=.. (or no agreement, disconnect) <eos> "
    "reward=.. agree (or disagree) c u c u c u",
}
_ITEMS = "item0=[0-9]{1,2} item1=[0-9]{1,2} item2=[0-9]{1,2}"
_NO_DEAL = "(?P<none><disagree>|<no_agreement>|<disconnect>)(?: (?P=none)){5}"
_OUTPUT = rf"(?:(?P<kept>{_ITEMS} {_ITEMS})|{_NO_DEAL})"
_LINE = {
    _SELF_PLAY: "(?P<own>.*)(?P<partner>)(?P<kept>)",
    _PROCESSED: "<input>(?P<own>.*?)</input> <dialogue> .* </dialogue> "
    rf"<output> {_OUTPUT} </output> <partner_input>(?P<partner>.*?)</partner_input>",
    # A deal; two selections that do not add up to the pool; no selection.
    _LOG: rf"(?P<own>.*?)(?:YOU|THEM):.* <selection> (?:(?P<kept>{_ITEMS}) <eos> reward=[0-9]+ agree"
    rf"|{_ITEMS} <eos> reward=[0-9]+ disagree"
    r"|(?P<none>no agreement|disconnect) <eos> reward=(?P=none) (?:agree|disagree))\b(?P<partner>.*)",
}


def read_rows(file: Path) -> tuple[str, list[ContextRow]]:
    """The file's format, by its content, and its rows: at least one."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise BadInput(f"{file} cannot be read ({first_line(error)}); make it a readable file.") from error
    return _parquet_rows(file, data) if data[:4] == b"PAR1" else _text_rows(file, data)


def _text_rows(file: Path, data: bytes) -> tuple[str, list[ContextRow]]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{file}, line {number}: a byte is not UTF-8; save the file as UTF-8 text.") from None
    # splitlines() would also break lines, and so misnumber them, at characters that people type.
    lines = text.split("\n")
    where = [f"{file}, line {number}" for number in range(1, len(lines) + 1)]
    if lines[-1]:
        where[-1] += " (the last, without a line end: is the file truncated?)"
    elif len(lines) > 1:
        lines.pop()
    kind, rows = _kind(where[0], lines[0].strip()), []
    for place, line in zip(where, map(str.strip, lines), strict=False):
        match = re.fullmatch(_LINE[kind], line)
        if match is None:
            raise BadInput(f"{place}: the line must be '{_FORM[kind]}', but it ends in {line[-40:]!r}.")
        rows.append(ContextRow(place, match["own"].split(), match["partner"].split(), _amounts(match["kept"])))
    return kind, rows


def _kind(where: str, first: str) -> str:
    if "<input>" in first:
        return _PROCESSED
    if re.search("YOU:|THEM:|<selection>|<eos>", first):
        return _LOG
    if re.match("-?[0-9]", first):
        return _SELF_PLAY
    found = f"{first[:40]!r} matches no known format" if first else "the line is empty"
    forms = "' or '".join(_FORM.values())
    raise BadInput(f"{where}: {found}; a line must be '{forms}'.")


def _amounts(items: str | None) -> list[str]:
    return re.findall("=([0-9]+)", items or "")


def _parquet_rows(file: Path, data: bytes) -> tuple[str, list[ContextRow]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise BadInput(f"{file} is parquet, which needs pyarrow: pip install 'kibitz[data]'.") from None
    try:
        table = pyarrow.parquet.ParquetFile(io.BytesIO(data)).read()
    except (pyarrow.ArrowException, OSError) as error:
        raise BadInput(f"{file} is not complete parquet ({first_line(error)}); download it again.") from error
    columns = set(table.column_names)
    kind = _PROCESSED if "partner_input" in columns else _SELF_PLAY
    if not table.num_rows or not columns >= {_PROCESSED: {"input", "output"}, _SELF_PLAY: {"input"}}[kind]:
        raise BadInput(
            f"{file}, row 1: the parquet has {table.num_rows} rows of {sorted(columns)}; it must have "
            "rows of input (self play), or of input, dialogue, output and partner_input (dialogues)."
        )
    rows = []
    for number, record in enumerate(table.to_pylist(), start=1):
        where, output = f"{file}, row {number}", str(record.get("output")).strip()
        match = re.fullmatch(_OUTPUT, output)
        if kind == _PROCESSED and match is None:
            raise BadInput(f"{where}: the output is {output[:60]!r}; a row must be '{_FORM[kind]}'.")
        sides = _six(record["input"]), _six(record.get("partner_input"))
        rows.append(ContextRow(where, *sides, _amounts(match["kept"] if match else None)))
    return kind, rows


def _six(record: Any) -> list[str]:
    """`c u c u c u` from the hub's {count: [3], value: [3]}; a list of another length does not give six."""
    fields = (record.get(name) for name in ("count", "value")) if isinstance(record, dict) else ()
    lists = [field if isinstance(field, list) else [] for field in fields]
    return [str(number) for number in chain.from_iterable(zip_longest(*lists))]


def description(dataset: str) -> str:
    """Which files hold a data set, for error messages."""
    if dataset not in FILE_NAMES:
        raise BadInput(f"The dataset is {dataset!r}; it must be 'self_play' or 'dialogues'.")
    return f"{' or '.join(FILE_NAMES[dataset])} of Lewis et al., or the hub's parquet under {dataset}/"


def first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
