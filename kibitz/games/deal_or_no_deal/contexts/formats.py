"""Contexts out of the data of Lewis et al. (2017), and utilities that add up to a points budget.

A file is known by what is in it, never by its name: self-play contexts, processed dialogues, the raw
log of the dialogues (`_FORM` shows a line of each), or parquet as the Hugging Face hub serves it.
Whatever does not fit is a BadInput that opens with the file and the line; in parquet, the row.
"""

from __future__ import annotations

import io
import os
import re
import tempfile
from functools import lru_cache
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kibitz.core.errors import BadInput
from kibitz.core.paths import cache_folder, named

Dataset = Literal["self_play", "dialogues"]
Triple = tuple[int, int, int]
Ints = NDArray[np.int32]

MAX_COUNT = 4
MAX_UTILITY = 10
HUB = "https://huggingface.co"


class Contexts(NamedTuple):
    counts: Ints  # i32[N, 3], items of each type in the pool
    utilities: Ints  # i32[N, 2, 3], points per item for seat 0 and seat 1


class HumanGame(NamedTuple):
    """One finished human dialogue as one of the two speakers saw it; that speaker is seat 0."""

    counts: Triple
    utilities: tuple[Triple, Triple]
    agreed: bool  # items changed hands; two people who both chose "no agreement" did not agree
    kept: tuple[Triple, Triple] | None  # what each seat took home; None without a deal


class _Row(NamedTuple):
    where: str  # file and line, the opening words of any complaint
    own: list[str]  # c u c u c u as written
    partner: list[str]  # the same for the other side; empty in self play, where the next row has it
    kept: list[str]  # own three counts, or own three and the partner's; empty without a deal


_NAMES = {
    "self_play": ("selfplay.txt",),
    "dialogues": ("data.txt", "data_without_test.txt", "train.txt", "val.txt"),
}
_SELF_PLAY, _PROCESSED, _LOG = "self-play contexts", "processed dialogues", "a raw dialogue log"
_DATASET_OF: dict[str, Dataset] = {_SELF_PLAY: "self_play", _PROCESSED: "dialogues", _LOG: "dialogues"}
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
    # A deal; two selections that do not add up to the pool; no selection, whichever word follows.
    _LOG: rf"(?P<own>.*?)(?:YOU|THEM):.* <selection> (?:(?P<kept>{_ITEMS}) <eos> reward=[0-9]+ agree"
    rf"|{_ITEMS} <eos> reward=[0-9]+ disagree"
    r"|(?P<none>no agreement|disconnect) <eos> reward=(?P=none) (?:agree|disagree))\b(?P<partner>.*)",
}


def read_contexts(path: str | Path, dataset: Dataset, max_count: int = MAX_COUNT) -> Contexts:
    """Every context of a file or folder, in the order of the data, utilities as they stand.

    Self play pairs lines 2k and 2k+1. In dialogues each line is its own context with the speaker in
    seat 0, so a game that both speakers left a line about appears from both sides. A folder's files
    are read one after the other in sorted order, and what two of them share comes twice.

    A side whose utilities are all zero is refused like any other malformed line: no line of the
    published data has one, so one that does is a mistake.
    """
    games: list[HumanGame] = []
    for file in _files(path, dataset):
        rows = _rows(file, dataset)
        if dataset == "self_play":
            pairs = zip(rows[::2], rows[1::2], strict=False)
            games += [_game(first, second.own, second.where, max_count) for first, second in pairs]
            if len(rows) % 2:
                # A stray line leaves an odd number too, and its own complaint is the more helpful one.
                _side(rows[-1].where, rows[-1].own, max_count)
                raise BadInput(f"{rows[-1].where}: no other side follows; contexts come in pairs of lines.")
        else:
            games += [_game(row, row.partner, row.where, max_count) for row in rows]
    counts = np.array([game.counts for game in games], np.int32)
    return Contexts(counts, np.array([game.utilities for game in games], np.int32))


def read_human_games(path: str | Path, max_count: int = MAX_COUNT) -> list[HumanGame]:
    """The dialogues of a file or folder with how they ended, one game for each line.

    In the raw log the word `agree` also closes lines where both sides selected "no agreement" or
    one of them disconnected. Those are no deals: only `agree` after a selection of items is one.
    A log line has its speaker's selection alone, and a deal gives the partner the rest of the pool.
    """
    rows = chain.from_iterable(_rows(file, "dialogues") for file in _files(path, "dialogues"))
    return [_game(row, row.partner, row.where, max_count) for row in rows]


def fit_budget(
    counts: ArrayLike, utilities: ArrayLike, budget: int, max_utility: int = MAX_UTILITY
) -> tuple[Ints, NDArray[np.bool_]]:
    """Utilities whose whole pool is worth `budget`, as near to the given ones as integers allow.

    `counts` is [N, 3]; `utilities` is [N, 3] or [N, 2, 3], and the second result drops its last axis:
    whether the budget is met exactly. Where no utilities of 0..max_utility reach it the nearest worth
    is taken. Nearest utilities means the least sum of squared changes, then the lexicographically
    smallest. The result is never all zero, because such a seat would have nothing to bargain for.
    """
    wanted, each = np.asarray(utilities, np.int32), np.asarray(counts, np.int32)
    pool_of = np.broadcast_to(each if wanted.ndim == 2 else each[:, None, :], wanted.shape)
    pools, group = np.unique(pool_of.reshape(-1, 3), axis=0, return_inverse=True)
    flat, fitted = wanted.reshape(-1, 3), np.zeros((wanted.size // 3, 3), np.int32)
    for number, pool in enumerate(pools):
        here = group.reshape(-1) == number
        fitted[here] = _fit_pool(pool, flat[here], budget, max_utility)
    result = fitted.reshape(wanted.shape)
    return result, np.asarray((result * pool_of).sum(-1) == budget)


@lru_cache(maxsize=8)
def budget_table(min_count: int, max_count: int, max_utility: int, budget: int) -> Ints:
    """fit_budget for every context there is, to be looked up inside a compiled program.

    Rows are indices of counts (base max_count - min_count + 1, each digit plus min_count), columns
    indices of utilities (base max_utility + 1), both with the first item type as the least significant
    digit. An entry is the index of the fitted utilities. Column 0, a seat that values nothing, is
    fitted like the others. The array is shared between callers and therefore read-only.
    """
    wanted, place = _digits(max_utility + 1), (max_utility + 1) ** np.arange(3, dtype=np.int32)
    pools = _digits(max_count - min_count + 1) + np.int32(min_count)
    table = np.stack([_fit_pool(pool, wanted, budget, max_utility) @ place for pool in pools])
    table.setflags(write=False)
    return table


def _fit_pool(pool: Ints, wanted: Ints, budget: int, max_utility: int) -> Ints:
    """fit_budget for seats that share one pool."""
    if budget < 1:
        raise BadInput(f"The points budget is {budget}; it must be at least 1.")
    # In lexicographic order, so that the first of several least changes is the one to take.
    every = _digits(max_utility + 1)[1:, ::-1]
    gap = np.abs(every @ pool - budget)
    reachable = every[gap == gap.min()]
    # |wanted - r|^2 less |wanted|^2, which all candidates share.
    change = (reachable * reachable).sum(1) - 2 * (wanted @ reachable.T)
    return np.asarray(reachable[change.argmin(1)], np.int32)


@lru_cache(maxsize=8)
def _digits(base: int) -> Ints:
    """i32[base**3, 3], the digits of each index, least significant first."""
    return (np.arange(base**3, dtype=np.int32)[:, None] // base ** np.arange(3, dtype=np.int32)) % base


def download(dataset: Dataset) -> Path:
    """The hub's parquet file of the training split, fetched once into the user's cache folder.

    HF_ENDPOINT names another host than the public hub. The file appears whole or not at all.
    """
    needs, name = _needs(dataset), f"{dataset}/train/0000.parquet"
    cached = cache_folder() / "deal_or_no_dialog" / name
    if cached.is_file():
        return cached
    host = (os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")
    url = f"{host}/datasets/deal_or_no_dialog/resolve/refs%2Fconvert%2Fparquet/{name}"
    instead = f"give dataset_path instead, a file or folder with {needs}."
    try:
        import httpx
    except ImportError:
        raise BadInput(f"Fetching {url} needs httpx: pip install 'kibitz[data]', or {instead}") from None
    try:
        # The hub redirects to the repository's present name, and from there to its file store.
        data = httpx.get(url, follow_redirects=True, timeout=30).raise_for_status().content
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise BadInput(f"Could not fetch {url} ({_reason(error)}); {instead}") from error
    # A log-in page, and a reply of no stated length that was cut, are successes as far as HTTP knows.
    if len(data) <= 8 or not data[:4] == data[-4:] == b"PAR1":
        raise BadInput(f"What {url} answered is not a whole parquet file; {instead}")
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=cached.parent, suffix=".part")
        try:
            with open(handle, "wb") as file:
                file.write(data)
            os.replace(part, cached)
        finally:
            Path(part).unlink(missing_ok=True)
    except OSError as error:
        raise BadInput(f"Could not write {cached} ({_reason(error)}); {instead}") from error
    return cached


def _reason(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _needs(dataset: str) -> str:
    if dataset not in _NAMES:
        raise BadInput(f"The dataset is {dataset!r}; it must be 'self_play' or 'dialogues'.")
    return f"{' or '.join(_NAMES[dataset])} of Lewis et al., or the hub's parquet under {dataset}/"


def _files(path: str | Path, dataset: str) -> list[Path]:
    needs, folder = _needs(dataset), named(path)
    if not folder.exists():
        raise BadInput(f"{folder} does not exist; dataset_path must be a file or folder with {needs}.")
    if not folder.is_dir():
        return [folder]
    beneath = folder if folder.resolve().name == dataset else folder / dataset
    known = {place / name for place in (folder, beneath) for name in _NAMES[dataset]}
    files = sorted({*(file for file in known if file.is_file()), *beneath.rglob("*.parquet")})
    if not files:
        raise BadInput(f"The folder {folder} has nothing for {dataset!r}; it must hold {needs}.")
    return files


def dataset_of(path: str | Path) -> Dataset:
    """Which part of the data set a file holds, by its content."""
    file = named(path)
    if not file.is_file():
        what = str(file) if str(path) else "An empty name"
        raise BadInput(f"{what} is not a file; contexts must be a file of Lewis et al. or the hub's parquet.")
    return _DATASET_OF[_kind_and_rows(file)[0]]


def _kind_and_rows(file: Path) -> tuple[str, list[_Row]]:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise BadInput(f"{file} cannot be read ({_reason(error)}); make it a readable file.") from error
    return _parquet_rows(file, data) if data[:4] == b"PAR1" else _text_rows(file, data)


def _rows(file: Path, dataset: str) -> list[_Row]:
    """The file's rows, at least one, once it has proved to be of the kind the user expects."""
    kind, rows = _kind_and_rows(file)
    if _DATASET_OF[kind] != dataset:
        raise BadInput(
            f"{file} looks like {kind}, which is dataset {_DATASET_OF[kind]!r}; "
            f"dataset {dataset!r} needs {_needs(dataset)}."
        )
    return rows


def _text_rows(file: Path, data: bytes) -> tuple[str, list[_Row]]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{file}, line {number}: a byte is not UTF-8; save the file as UTF-8 text.") from None
    # Not splitlines(), which also breaks lines, and so misnumbers them, at characters people type.
    lines = text.split("\n")
    where = [f"{file}, line {number}" for number in range(1, len(lines) + 1)]
    if lines[-1]:
        where[-1] += " (the last, and without a line end: is the file cut short?)"
    elif len(lines) > 1:
        lines.pop()
    kind, rows = _kind(where[0], lines[0].strip()), []
    for place, line in zip(where, map(str.strip, lines), strict=False):
        match = re.fullmatch(_LINE[kind], line)
        if match is None:
            raise BadInput(f"{place}: the line must be '{_FORM[kind]}', and it ends in {line[-40:]!r}.")
        rows.append(_Row(place, match["own"].split(), match["partner"].split(), _amounts(match["kept"])))
    return kind, rows


def _kind(where: str, first: str) -> str:
    if "<input>" in first:
        return _PROCESSED
    if re.search("YOU:|THEM:|<selection>|<eos>", first):
        return _LOG
    if re.match("-?[0-9]", first):
        return _SELF_PLAY
    found = f"{first[:40]!r} begins no known format" if first else "the line is empty"
    forms = "' or '".join(_FORM.values())
    raise BadInput(f"{where}: {found}; a line must be '{forms}'.")


def _amounts(items: str | None) -> list[str]:
    return re.findall("=([0-9]+)", items or "")


def _parquet_rows(file: Path, data: bytes) -> tuple[str, list[_Row]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise BadInput(f"{file} is parquet and needs pyarrow to read: pip install 'kibitz[data]'.") from None
    try:
        table = pyarrow.parquet.ParquetFile(io.BytesIO(data)).read()
    except (pyarrow.ArrowException, OSError) as error:
        raise BadInput(f"{file} is not whole parquet ({_reason(error)}); fetch it again.") from error
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
        rows.append(_Row(where, *sides, _amounts(match["kept"] if match else None)))
    return kind, rows


def _six(record: Any) -> list[str]:
    """`c u c u c u` out of the hub's {count: [3], value: [3]}; not six when either is of another length."""
    fields = (record.get(name) for name in ("count", "value")) if isinstance(record, dict) else ()
    lists = [field if isinstance(field, list) else [] for field in fields]
    return [str(number) for number in chain.from_iterable(zip_longest(*lists))]


def _game(row: _Row, partner: list[str], partner_where: str, max_count: int) -> HumanGame:
    counts, own = _side(row.where, row.own, max_count)
    theirs, other = _side(partner_where, partner, max_count)
    if theirs != counts:
        raise BadInput(f"{partner_where}: the counts {theirs} must equal the other side's {counts}.")
    if not row.kept:
        return HumanGame(counts, (own, other), agreed=False, kept=None)
    a, b, c, *told = map(int, row.kept)
    rest = (counts[0] - a, counts[1] - b, counts[2] - c)
    if min(rest) < 0 or (told and tuple(told) != rest):
        raise BadInput(f"{row.where}: the deal {' '.join(row.kept)} must share out the pool {counts}.")
    return HumanGame(counts, (own, other), agreed=True, kept=((a, b, c), rest))


def _side(where: str, fields: list[str], max_count: int) -> tuple[Triple, Triple]:
    """Counts and utilities of one seat."""
    if len(fields) != 6:
        raise BadInput(f"{where}: {len(fields)} numbers where there must be six, 'c u c u c u'.")
    numbers = []
    for index, field in enumerate(fields):
        name, low, high = ("utility", 0, MAX_UTILITY) if index % 2 else ("count", 1, max_count)
        number = int(field) if re.fullmatch("-?[0-9]{1,9}", field) else None
        if number is None or not low <= number <= high:
            raise BadInput(
                f"{where}: the {name} of item {index // 2} is {field[:20]!r}; "
                f"it must be a whole number from {low} to {high}."
            )
        numbers.append(number)
    counts, utilities = (numbers[0], numbers[2], numbers[4]), (numbers[1], numbers[3], numbers[5])
    if not any(utilities):
        raise BadInput(f"{where}: all three utilities are 0; at least one must be above it.")
    return counts, utilities
