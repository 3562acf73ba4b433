"""Tests that need the published data skip without it; every other file is written here."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kibitz.core.errors import BadInput
from kibitz.games.deal_or_no_deal import contexts
from kibitz.games.deal_or_no_deal.contexts import HumanGame, fit_budget, read_contexts, read_human_games

DATA = Path(__file__).parents[3].parent / "shared" / "data" / "deal_or_no_dialog"
published = pytest.mark.skipif(not DATA.is_dir(), reason=f"the data of Lewis et al. is not at {DATA}")

SELF_PLAY = "1 4 2 3 3 0\n1 1 2 0 3 3\n4 1 1 6 2 0\n4 0 1 0 2 5\n"
TALK = "YOU: the two lamps are mine <eos> THEM: then i keep 1 kite <eos> YOU:"
OWN, PARTNER = "1 4 2 3 3 0", "1 1 2 0 3 3"
DEAL = "item0=0 item1=2 item2=0"
LOG = f"{OWN} {TALK} <selection> {DEAL} <eos> reward=6 agree {PARTNER}"
PROCESSED = (
    f"<input> {OWN} </input> <dialogue> {TALK} <selection> </dialogue> "
    f"<output> {DEAL} item0=1 item1=0 item2=3 </output> <partner_input> {PARTNER} </partner_input>"
)
GAME = HumanGame((1, 2, 3), ((4, 3, 0), (1, 0, 3)), True, ((0, 2, 0), (1, 0, 3)))
NO_DEAL = GAME._replace(agreed=False, kept=None)


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def side(fields: str) -> dict[str, list[int]]:
    numbers = [int(field) for field in fields.split()]
    return {"count": numbers[::2], "value": numbers[1::2]}


def dialogue_record(**changes: Any) -> dict[str, Any]:
    output = f"{DEAL} item0=1 item1=0 item2=3"
    whole = {"input": side(OWN), "dialogue": TALK, "output": output, "partner_input": side(PARTNER)}
    return {**whole, **changes}


def parquet(path: Path, records: list[dict[str, Any]]) -> Path:
    pyarrow = pytest.importorskip("pyarrow", reason="parquet needs the extra kibitz[data]")
    writer = pytest.importorskip("pyarrow.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    writer.write_table(pyarrow.Table.from_pylist(records), path)
    return path


def error_of(call: Callable[[], object]) -> str:
    with pytest.raises(BadInput) as caught:
        call()
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def test_two_lines_of_self_play_are_the_two_sides_of_one_context(tmp_path: Path) -> None:
    read = read_contexts(write(tmp_path / "any.name", SELF_PLAY), "self_play")
    assert read.counts.tolist() == [[1, 2, 3], [4, 1, 2]]
    assert read.utilities.tolist() == [[[4, 3, 0], [1, 0, 3]], [[1, 6, 0], [0, 0, 5]]]
    assert read.counts.dtype == read.utilities.dtype == np.int32


@pytest.mark.parametrize("text", [SELF_PLAY.strip(), SELF_PLAY.replace("\n", "\r\n"), "\ufeff" + SELF_PLAY])
def test_line_ends_and_byte_order_marks_do_not_matter(tmp_path: Path, text: str) -> None:
    assert len(read_contexts(write(tmp_path / "a.txt", text), "self_play").counts) == 2


@pytest.mark.parametrize("line", [LOG, PROCESSED])
def test_each_dialogue_line_is_a_context_with_the_speaker_in_seat_0(tmp_path: Path, line: str) -> None:
    read = read_contexts(write(tmp_path / "a.txt", f"{line}\n{line}\n"), "dialogues")
    assert read.counts.tolist() == [[1, 2, 3]] * 2
    assert read.utilities.tolist() == [[[4, 3, 0], [1, 0, 3]]] * 2


@pytest.mark.parametrize("line", [LOG, PROCESSED])
def test_a_deal_gives_the_partner_the_rest_of_the_pool(tmp_path: Path, line: str) -> None:
    assert read_human_games(write(tmp_path / "a.txt", line + "\n")) == [GAME]


@pytest.mark.parametrize(
    "end",
    [
        f"{DEAL} <eos> reward=6 disagree",
        "no agreement <eos> reward=no agreement agree",
        "no agreement <eos> reward=no agreement disagree",
        "disconnect <eos> reward=disconnect agree",
        "disconnect <eos> reward=disconnect disagree",
    ],
)
def test_every_other_ending_in_the_log_is_no_deal(tmp_path: Path, end: str) -> None:
    line = f"{OWN} {TALK} <selection> {end} {PARTNER}\n"
    assert read_human_games(write(tmp_path / "a.txt", line)) == [NO_DEAL]


@pytest.mark.parametrize("word", ["<disagree>", "<no_agreement>", "<disconnect>"])
def test_six_refusals_in_a_processed_output_are_no_deal(tmp_path: Path, word: str) -> None:
    line = PROCESSED.replace(f"{DEAL} item0=1 item1=0 item2=3", " ".join([word] * 6))
    assert read_human_games(write(tmp_path / "a.txt", line)) == [NO_DEAL]


def test_a_dialogue_may_contain_unicode_line_separators(tmp_path: Path) -> None:
    odd = LOG.replace("two lamps", "two\u2028lamps\x0b5 8")
    assert read_human_games(write(tmp_path / "a.txt", odd)) == [GAME]


def test_hub_parquet_of_self_play_is_paired_row_by_row(tmp_path: Path) -> None:
    file = parquet(tmp_path / "a", [{"input": side(line)} for line in SELF_PLAY.splitlines()])
    read = read_contexts(file, "self_play")
    text = read_contexts(write(tmp_path / "b", SELF_PLAY), "self_play")
    assert (read.counts == text.counts).all() and (read.utilities == text.utilities).all()


def test_hub_parquet_of_dialogues_equals_the_text(tmp_path: Path) -> None:
    file = parquet(tmp_path / "a", [dialogue_record(), dialogue_record(output=" ".join(["<disagree>"] * 6))])
    assert read_human_games(file) == [GAME, NO_DEAL]
    assert read_contexts(file, "dialogues").counts.tolist() == [[1, 2, 3]] * 2


SELF_PLAY_MISTAKES: dict[str, tuple[str | bytes, int, str]] = {
    "too few fields": ("1 4 2 3 3 0\n1 1 2 0 3\n", 2, "5 numbers where there must be six"),
    "too many fields": ("1 4 2 3 3 0 7\n1 1 2 0 3 3\n", 1, "7 numbers where there must be six"),
    "an empty line": ("1 4 2 3 3 0\n\n1 1 2 0 3 3\n", 2, "0 numbers where there must be six"),
    "an empty line at the end": (SELF_PLAY + "\n", 5, "0 numbers where there must be six"),
    "not a number": ("1 4 2 3 3 0\n1 1 2 zero 3 3\n", 2, "utility of item 1 is 'zero'"),
    "not a whole number": ("1 4 2 3 3 0\n1 1 2 0.5 3 3\n", 2, "utility of item 1 is '0.5'"),
    "a number with an underscore": ("1 4 2 3 3 1_0\n1 1 2 0 3 3\n", 1, "utility of item 2 is '1_0'"),
    "a number of 5000 digits": ("1 4 2 3 3 0\n" + "9" * 5000 + " 1 2 0 3 3\n", 2, "count of item 0"),
    "a count of zero": ("0 4 2 3 3 0\n0 1 2 0 3 3\n", 1, "count of item 0 is '0'"),
    "a count too large": ("1 4 2 3 5 0\n1 1 2 0 5 3\n", 1, "from 1 to 4"),
    "a negative utility": ("1 4 2 3 3 0\n1 1 2 -1 3 3\n", 2, "utility of item 1 is '-1'"),
    "a utility too large": ("1 4 2 3 3 0\n1 11 2 0 3 3\n", 2, "from 0 to 10"),
    "different pools": (SELF_PLAY + "1 4 2 3 3 0\n1 1 2 0 2 3\n", 6, "(1, 2, 2) must equal the other side's"),
    "an odd number of lines": (SELF_PLAY + "1 4 2 3 3 0\n", 5, "come in pairs of lines"),
    "a truncated last line": (SELF_PLAY[:-5], 4, "truncated"),
    "a seat that values nothing": ("1 4 2 3 3 0\n1 0 2 0 3 0\n", 2, "all three utilities are 0"),
    "nothing": ("", 1, "the line is empty"),
    "only white space": (" \n\n", 1, "the line is empty"),
    "another format": ("{'counts': [1, 2, 3]}\n", 1, "matches no known format"),
    "bytes of another encoding": (b"1 4 2 3 3 0\n1 1 2 0 3 \xff\n", 2, "not UTF-8"),
}


@pytest.mark.parametrize("mistake", SELF_PLAY_MISTAKES)
def test_an_error_in_self_play_names_file_and_line(tmp_path: Path, mistake: str) -> None:
    content, line, words = SELF_PLAY_MISTAKES[mistake]
    file = write(tmp_path / "contexts.txt", content)
    sentence = error_of(lambda: read_contexts(file, "self_play"))
    assert sentence.startswith(f"{file}, line {line}") and words in sentence
    assert not sentence.startswith(f"{file}, line {line}0")


DIALOGUE_MISTAKES = {
    "log: a field missing": (LOG.replace(OWN, "1 4 2 3 3"), "5 numbers where there must be six"),
    "log: no such number": (LOG.replace(OWN, "1 4 2 x 3 0"), "utility of item 1 is 'x'"),
    "log: a partner with another pool": (LOG.replace(PARTNER, "1 1 2 0 2 3"), "must equal the other side's"),
    "log: a partner's field missing": (LOG[:-2], "5 numbers where there must be six"),
    "log: no reward": (LOG.replace("reward=6 ", ""), "the line must be"),
    "log: no verdict": (LOG.replace(" agree", ""), "the line must be"),
    "log: an unknown verdict": (LOG.replace(" agree", " agreed"), "the line must be"),
    "log: no selection": (LOG.replace("<selection>", ""), "the line must be"),
    "log: more items than there are": (LOG.replace("item1=2", "item1=3"), "must divide the pool"),
    "log: truncated": (LOG[:70], "truncated"),
    "processed: a field too many": (PROCESSED.replace(OWN, OWN + " 1"), "7 numbers where there must be six"),
    "processed: a count too large": (PROCESSED.replace(PARTNER, "5 1 2 0 3 3"), "count of item 0 is '5'"),
    "processed: worth nothing": (PROCESSED.replace(PARTNER, "1 0 2 0 3 0"), "all three utilities are 0"),
    "processed: five outputs": (PROCESSED.replace(" item2=3", ""), "the line must be"),
    "processed: an unknown output": (PROCESSED.replace("item0=1", "<gone>"), "the line must be"),
    "processed: a deal beyond the pool": (PROCESSED.replace("item2=3", "item2=2"), "must divide the pool"),
    "processed: truncated": (PROCESSED[:-12], "truncated"),
}


@pytest.mark.parametrize("mistake", DIALOGUE_MISTAKES)
def test_an_error_in_a_dialogue_names_file_and_line(tmp_path: Path, mistake: str) -> None:
    line, words = DIALOGUE_MISTAKES[mistake]
    good = LOG if mistake.startswith("log") else PROCESSED
    cut = mistake.endswith("truncated")
    file = write(tmp_path / "talk.txt", f"{good}\n{good}\n{line}" + ("" if cut else "\n"))
    for call in (lambda: read_human_games(file), lambda: read_contexts(file, "dialogues")):
        sentence = error_of(call)
        assert sentence.startswith(f"{file}, line 3") and words in sentence
        assert ("truncated" in sentence) == cut


PARQUET_MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "a short list": ({"input": {"count": [1, 2, 3], "value": [4, 3]}}, "utility of item 2 is 'None'"),
    "a long list": ({"input": {"count": [1, 2, 3, 1], "value": [4, 3, 0]}}, "8 numbers"),
    "no input": ({"input": None}, "0 numbers"),
    "a utility too large": ({"partner_input": {"count": [1, 2, 3], "value": [1, 0, 12]}}, "item 2 is '12'"),
    "an unknown output": ({"output": "item0=1"}, "the output is 'item0=1'"),
    "no output": ({"output": None}, "the output is 'None'"),
}


@pytest.mark.parametrize("mistake", PARQUET_MISTAKES)
def test_an_error_in_parquet_names_file_and_row(tmp_path: Path, mistake: str) -> None:
    change, words = PARQUET_MISTAKES[mistake]
    file = parquet(tmp_path / "a.parquet", [dialogue_record(), dialogue_record(**change)])
    sentence = error_of(lambda: read_human_games(file))
    assert sentence.startswith(f"{file}, row 2") and words in sentence


@pytest.mark.parametrize("records", [[{"text": "hello"}], [{"partner_input": side(PARTNER)}]])
def test_parquet_with_other_columns_is_refused(tmp_path: Path, records: list[dict[str, Any]]) -> None:
    file = parquet(tmp_path / "a.parquet", records)
    assert "must have rows of input" in error_of(lambda: read_contexts(file, "self_play"))


def test_parquet_whose_input_is_not_two_lists_is_refused(tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", [{"input": {"count": 3, "value": 1}}] * 2)
    assert "0 numbers" in error_of(lambda: read_contexts(file, "self_play"))


def test_damaged_parquet_is_refused(tmp_path: Path) -> None:
    whole = parquet(tmp_path / "a.parquet", [dialogue_record()]).read_bytes()
    file = write(tmp_path / "b.parquet", whole[: len(whole) // 2])
    assert "not complete parquet" in error_of(lambda: read_contexts(file, "dialogues"))


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = parquet(tmp_path / "a.parquet", [dialogue_record()])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "kibitz[data]" in error_of(lambda: read_contexts(file, "dialogues"))


@pytest.mark.parametrize(("line", "kind"), [(LOG, "a raw dialogue log"), (PROCESSED, "processed dialogues")])
def test_dialogues_given_as_self_play_are_recognised(tmp_path: Path, line: str, kind: str) -> None:
    file = write(tmp_path / "selfplay.txt", line)
    sentence = error_of(lambda: read_contexts(file, "self_play"))
    assert f"{file} looks like {kind}, which is dataset 'dialogues'" in sentence


def test_self_play_given_as_dialogues_is_recognised(tmp_path: Path) -> None:
    text = write(tmp_path / "val.txt", SELF_PLAY)
    columns = parquet(tmp_path / "val.parquet", [{"input": side(OWN)}, {"input": side(PARTNER)}])
    assert f"{text} looks like self-play contexts" in error_of(lambda: read_human_games(text))
    assert f"{columns} looks like self-play contexts" in error_of(lambda: read_contexts(columns, "dialogues"))


def test_the_error_about_a_missing_file_names_the_expected_files(tmp_path: Path) -> None:
    sentence = error_of(lambda: read_contexts(tmp_path / "nowhere", "self_play"))
    assert str(tmp_path / "nowhere") in sentence and "selfplay.txt" in sentence


def test_an_unknown_dataset_is_refused(tmp_path: Path) -> None:
    wrong: Any = "chess"
    assert "'self_play' or 'dialogues'" in error_of(lambda: read_contexts(tmp_path, wrong))


def test_an_unreadable_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    file = write(tmp_path / "a.txt", SELF_PLAY)
    monkeypatch.setattr(Path, "read_bytes", refuse)  # file modes would not stop a test run as root
    assert f"{file} cannot be read" in error_of(lambda: read_contexts(file, "self_play"))


def test_a_larger_max_count_admits_larger_pools(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", "1 4 2 3 7 0\n1 1 2 0 7 3\n")
    assert read_contexts(file, "self_play", max_count=7).counts.tolist() == [[1, 2, 7]]


def test_files_of_a_folder_are_read_in_sorted_order(tmp_path: Path) -> None:
    write(tmp_path / "val.txt", PROCESSED)
    write(tmp_path / "data.txt", LOG.replace(DEAL, "item0=1 item1=0 item2=0"))
    write(tmp_path / "notes.txt", "not data")
    write(tmp_path / "selfplay.txt", SELF_PLAY)
    parquet(tmp_path / "dialogues" / "train" / "0000.parquet", [dialogue_record(output="<disagree> " * 6)])
    games = read_human_games(tmp_path)
    assert [game.kept and game.kept[0] for game in games] == [(1, 0, 0), None, (0, 2, 0)]
    assert len(read_contexts(str(tmp_path), "dialogues").counts) == 3
    assert len(read_contexts(tmp_path, "self_play").counts) == 2


def test_a_folder_named_after_the_dataset_may_hold_the_parquet_itself(tmp_path: Path) -> None:
    folder = tmp_path / "self_play"
    parquet(folder / "train" / "0000.parquet", [{"input": side(line)} for line in SELF_PLAY.splitlines()])
    assert [len(read_contexts(path, "self_play").counts) for path in (folder, tmp_path)] == [2, 2]


@pytest.mark.parametrize(("dataset", "name"), [("self_play", "selfplay.txt"), ("dialogues", "train.txt")])
def test_the_error_about_an_empty_folder_names_the_expected_files(tmp_path: Path, dataset: Any, name: str) -> None:
    sentence = error_of(lambda: read_contexts(tmp_path, dataset))
    assert str(tmp_path) in sentence and name in sentence and f"parquet under {dataset}/" in sentence


def slow_fit(counts: list[int], utilities: list[int], budget: int) -> tuple[list[int], bool]:
    """`fit_budget` by exhaustive search."""

    def rank(candidate: tuple[int, ...]) -> tuple[int, int, tuple[int, ...]]:
        worth = sum(c * u for c, u in zip(counts, candidate, strict=True))
        change = sum((new - old) ** 2 for new, old in zip(candidate, utilities, strict=True))
        return abs(worth - budget), change, candidate

    best = min(rank(candidate) for candidate in product(range(11), repeat=3) if any(candidate))
    return list(best[2]), best[0] == 0


@pytest.mark.parametrize("budget", [1, 10, 23, 200])
def test_fit_budget_equals_exhaustive_search(budget: int) -> None:
    generator = np.random.default_rng(budget)
    counts, utilities = generator.integers(1, 5, (40, 3)), generator.integers(0, 11, (40, 3))
    fitted, exact = fit_budget(counts, utilities, budget)
    slow = [slow_fit(c, u, budget) for c, u in zip(counts.tolist(), utilities.tolist(), strict=True)]
    assert list(zip(fitted.tolist(), exact.tolist(), strict=True)) == slow


def test_fit_budget_keeps_utilities_that_fit_and_reports_where_none_can() -> None:
    fitted, exact = fit_budget([[1, 2, 3], [4, 4, 4]], [[[4, 3, 0], [1, 0, 3]], [[1, 1, 1], [0, 0, 2]]], 10)
    assert fitted.tolist() == [[[4, 3, 0], [1, 0, 3]], [[1, 1, 1], [0, 0, 2]]]
    assert exact.tolist() == [[True, True], [False, False]]


def test_a_budget_too_small_for_the_pool_leaves_one_utility_positive() -> None:
    fitted, exact = fit_budget([[4, 3, 2]], [[0, 0, 0]], 1)
    assert fitted.tolist() == [[0, 0, 1]] and not exact[0]


def test_fit_budget_accepts_zero_contexts() -> None:
    fitted, exact = fit_budget(np.zeros((0, 3)), np.zeros((0, 2, 3)), 10)
    assert fitted.shape == (0, 2, 3) and exact.shape == (0, 2)


def test_a_budget_below_one_is_refused() -> None:
    assert "at least 1" in error_of(lambda: fit_budget([[1, 1, 1]], [[1, 1, 1]], 0))
    assert "at least 1" in error_of(lambda: contexts.budget_table(1, 4, 10, 0))


def test_budget_table_holds_fit_budget_by_index() -> None:
    table = contexts.budget_table(2, 4, 10, 12)
    assert table.shape == (27, 1331) and table.dtype == np.int32
    assert contexts.budget_table(2, 4, 10, 12) is table and not table.flags.writeable
    generator = np.random.default_rng(0)
    row, column = generator.integers(0, 27, 200), generator.integers(1, 1331, 200)
    counts = row[:, None] // [1, 3, 9] % 3 + 2
    fitted, _ = fit_budget(counts, column[:, None] // [1, 11, 121] % 11, 12)
    assert (table[row, column] == fitted @ [1, 11, 121]).all()


def test_budget_table_stays_within_its_own_utilities() -> None:
    table = contexts.budget_table(1, 2, 4, 10)
    assert table.shape == (8, 125) and table.min() > 0 and table.max() < 125


class Hub(ThreadingHTTPServer):
    """A hub on the loopback interface that sends the same response to every request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.status, self.body = 200, b""
        self.promised: int | None = None  # content length, if not the body's; -1: no header
        self.requests: list[str] = []


class Answer(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        self.send_response(self.server.status)
        length = len(self.server.body) if self.server.promised is None else self.server.promised
        if length >= 0:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Keeps the test's output clean."""


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}/")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        server.body = parquet(tmp_path / "hub", [dialogue_record(), dialogue_record()]).read_bytes()
        yield server
        server.shutdown()


def cached_files(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_download_caches_a_file_that_read_contexts_accepts(hub: Hub, tmp_path: Path) -> None:
    file = contexts.download("dialogues")
    assert contexts.download("dialogues") == file
    assert hub.requests == ["/datasets/deal_or_no_dialog/resolve/refs%2Fconvert%2Fparquet/dialogues/train/0000.parquet"]
    assert cached_files(tmp_path) == [file] and tmp_path / "cache" / "kibitz" in file.parents
    assert len(read_contexts(file, "dialogues").counts) == 2
    assert len(read_contexts(tmp_path / "cache" / "kibitz" / "deal_or_no_dialog", "dialogues").counts) == 2


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        ({"status": 404}, "404"),
        ({"promised": 100_000}, "Could not download"),
        ({"promised": -1, "body": b"PAR1 and then the connection broke"}, "not a complete parquet file"),
        ({"body": b"<html>please log in</html>"}, "not a complete parquet file"),
    ],
    ids=["missing", "truncated", "truncated without a length", "a login page"],
)
def test_a_failed_download_writes_nothing_and_suggests_dataset_path(
    hub: Hub, tmp_path: Path, failure: dict[str, Any], words: str
) -> None:
    for name, value in failure.items():
        setattr(hub, name, value)
    sentence = error_of(lambda: contexts.download("self_play"))
    assert words in sentence and "dataset_path" in sentence and "selfplay.txt" in sentence
    assert cached_files(tmp_path) == []


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1", "not a url", "ftp://127.0.0.1"])
def test_an_unreachable_hub_suggests_dataset_path(hub: Hub, monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    sentence = error_of(lambda: contexts.download("self_play"))
    assert endpoint in sentence and "dataset_path" in sentence


def test_an_unwritable_cache_suggests_dataset_path(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(write(tmp_path / "a file", "")))
    assert "dataset_path" in error_of(lambda: contexts.download("dialogues"))


def test_download_without_httpx_names_the_extra(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    assert "kibitz[data]" in error_of(lambda: contexts.download("dialogues"))


def test_download_of_an_unknown_dataset_sends_no_request(hub: Hub) -> None:
    wrong: Any = "../secrets"
    assert "'self_play' or 'dialogues'" in error_of(lambda: contexts.download(wrong))
    assert hub.requests == []


@published
def test_every_published_self_play_context_is_worth_ten_to_each_side() -> None:
    for path in (DATA, DATA / "selfplay.txt"):
        counts, utilities = read_contexts(path, "self_play")
        assert len(counts) == 4086
        assert ((counts[:, None] * utilities).sum(-1) == 10).all()
        fitted, exact = fit_budget(counts, utilities, 10)
        assert exact.all() and (fitted == utilities).all()


@published
def test_every_published_dialogue_is_read() -> None:
    for name, lines in (("val.txt", 1087), ("data_without_test.txt", 11182)):
        counts, utilities = read_contexts(DATA / name, "dialogues")
        assert len(counts) == lines
        assert ((counts[:, None] * utilities).sum(-1) == 10).all()


@published
def test_the_processed_validation_games_are_in_the_raw_log() -> None:
    assert set(read_human_games(DATA / "val.txt")) <= set(read_human_games(DATA / "data_without_test.txt"))


@published
def test_human_agreement_and_pareto_shares_match_the_paper() -> None:
    games = read_human_games(DATA / "data_without_test.txt")
    deals = [game for game in games if game.agreed]
    # The paper has 80.1 % over all games and 76.9 % Pareto-optimal deals.
    assert 0.76 < len(deals) / len(games) < 0.82
    assert 0.74 < sum(map(is_pareto_optimal, deals)) / len(deals) < 0.80


def is_pareto_optimal(game: HumanGame) -> bool:
    """Whether no other way to share the pool is better for one seat and no worse for the other."""
    counts, (own, other) = np.array(game.counts), np.array(game.utilities)
    share = np.array(list(np.ndindex(*(counts + 1))))
    points = np.stack([share @ own, (counts - share) @ other], axis=1)
    assert game.kept is not None
    here = np.array([own @ game.kept[0], other @ game.kept[1]])
    return not ((points >= here).all(1) & (points > here).any(1)).any()


def test_an_inaccessible_path_is_refused() -> None:
    with pytest.raises(BadInput, match="begins with an unknown user"):
        read_contexts("~nosuchuser/x", "self_play")
    with pytest.raises(BadInput, match="File name too long"):
        contexts.dataset_of("a" * 300)
