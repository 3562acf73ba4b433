"""Reads contexts and finished human games from a file or folder."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kibitz.core.errors import BadInput
from kibitz.core.system.paths import named
from kibitz.games.deal_or_no_deal.contexts.formats import (
    DATASET_OF,
    FILE_NAMES,
    MAX_COUNT,
    MAX_UTILITY,
    ContextRow,
    Dataset,
    Ints,
    Triple,
    description,
    read_rows,
)


class Contexts(NamedTuple):
    counts: Ints  # i32[N, 3], items of each type in the pool
    utilities: Ints  # i32[N, 2, 3], points per item for seat 0 and seat 1


class HumanGame(NamedTuple):
    """One finished human dialogue as one of the two speakers saw it; that speaker is seat 0."""

    counts: Triple
    utilities: tuple[Triple, Triple]
    agreed: bool  # items changed hands; two people who both chose "no agreement" did not agree
    kept: tuple[Triple, Triple] | None  # what each seat received; None without a deal


def read_contexts(path: str | Path, dataset: Dataset, max_count: int = MAX_COUNT) -> Contexts:
    """Every context of a file or folder, in the order of the data, with unchanged utilities.

    Self play pairs lines 2k and 2k+1. In dialogues each line is its own context with the speaker in
    seat 0, so a game with a line from each speaker appears from both sides. A folder's files are read
    in sorted order; contexts that two files share appear twice.

    A side whose utilities are all zero is malformed: the published data has none.
    """
    games: list[HumanGame] = []
    for file in _files(path, dataset):
        rows = _rows(file, dataset)
        if dataset == "self_play":
            pairs = zip(rows[::2], rows[1::2], strict=False)
            games += [_game(first, second.own, second.where, max_count) for first, second in pairs]
            if len(rows) % 2:
                # A stray line also leaves an odd number; its own error is more helpful.
                _side(rows[-1].where, rows[-1].own, max_count)
                raise BadInput(f"{rows[-1].where}: the other side is missing; contexts come in pairs of lines.")
        else:
            games += [_game(row, row.partner, row.where, max_count) for row in rows]
    counts = np.array([game.counts for game in games], np.int32)
    return Contexts(counts, np.array([game.utilities for game in games], np.int32))


def read_human_games(path: str | Path, max_count: int = MAX_COUNT) -> list[HumanGame]:
    """The dialogues of a file or folder with their outcomes, one game for each line.

    In the raw log `agree` also ends lines where both sides selected "no agreement" or one of them
    disconnected. Only `agree` after a selection of items is a deal. A log line holds only its
    speaker's selection; in a deal the partner gets the rest of the pool.
    """
    rows = chain.from_iterable(_rows(file, "dialogues") for file in _files(path, "dialogues"))
    return [_game(row, row.partner, row.where, max_count) for row in rows]


def dataset_of(path: str | Path) -> Dataset:
    """Which part of the data set a file holds, by its content."""
    file = named(path)
    if not file.is_file():
        what = str(file) if str(path) else "The empty path"
        raise BadInput(f"{what} is not a file; contexts must be a file of Lewis et al. or the hub's parquet.")
    return DATASET_OF[read_rows(file)[0]]


def _files(path: str | Path, dataset: str) -> list[Path]:
    needs, folder = description(dataset), named(path)
    if not folder.exists():
        raise BadInput(f"{folder} does not exist; dataset_path must be a file or folder with {needs}.")
    if not folder.is_dir():
        return [folder]
    beneath = folder if folder.resolve().name == dataset else folder / dataset
    known = {place / name for place in (folder, beneath) for name in FILE_NAMES[dataset]}
    files = sorted({*(file for file in known if file.is_file()), *beneath.rglob("*.parquet")})
    if not files:
        raise BadInput(f"The folder {folder} has no data for {dataset!r}; it must hold {needs}.")
    return files


def _rows(file: Path, dataset: str) -> list[ContextRow]:
    """The file's rows, at least one, if the file holds the expected data set."""
    kind, rows = read_rows(file)
    if DATASET_OF[kind] != dataset:
        raise BadInput(
            f"{file} looks like {kind}, which is dataset {DATASET_OF[kind]!r}; "
            f"dataset {dataset!r} needs {description(dataset)}."
        )
    return rows


def _game(row: ContextRow, partner: list[str], partner_where: str, max_count: int) -> HumanGame:
    counts, own = _side(row.where, row.own, max_count)
    theirs, other = _side(partner_where, partner, max_count)
    if theirs != counts:
        raise BadInput(f"{partner_where}: the counts {theirs} must equal the other side's {counts}.")
    if not row.kept:
        return HumanGame(counts, (own, other), agreed=False, kept=None)
    a, b, c, *partner_kept = map(int, row.kept)
    rest = (counts[0] - a, counts[1] - b, counts[2] - c)
    if min(rest) < 0 or (partner_kept and tuple(partner_kept) != rest):
        raise BadInput(f"{row.where}: the deal {' '.join(row.kept)} must divide the pool {counts}.")
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
        raise BadInput(f"{where}: all three utilities are 0; at least one must be positive.")
    return counts, utilities
