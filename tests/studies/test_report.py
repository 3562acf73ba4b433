"""Reports: one page without anything from elsewhere, and the same figures in every format."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kibitz.studies.reports.plot import Curve, curves, intervals
from kibitz.studies.reports.provenance import command_line, machine, provenance
from kibitz.studies.reports.report import Column, Figure, Interval, Report, ReportTable, Verdict

HOSTILE = "<script>alert('x')</script>|&"
VOID = {"meta", "path", "circle", "polyline", "polygon", "br"}


@pytest.fixture
def report() -> Report:
    lines = [Curve(HOSTILE, [0, 1e6], [0.5, math.nan], [0.4, 0.5], [0.6, 0.7]), Curve("other", [0, 1e6], [0.1, 0.2])]
    rows = [[HOSTILE, Interval(0.5, 0.25, 0.75), 1234], ["small sample", Interval(0.9), None]]
    return Report(
        title=f"Title {HOSTILE}",
        summary="A summary.",
        facts=provenance("0 to 9", 75.0, ["study", "hints", "--out", "/secret/folder/x"]),
        verdicts=[Verdict("A difference.", True), Verdict("Nothing was shown.", False)],
        parts=[
            Figure("The curves", curves(lines, "steps", "share", percent=True), "A note."),
            Figure("Ratings", intervals([(HOSTILE, 1.0, 0.5, 1.5), ("b", 0.0, None, None)], "rating")),
            ReportTable(
                "All cells", [Column("cell"), Column("share", "percent"), Column("steps", "count")], rows, "Note."
            ),
        ],
        notes=["Read with care."],
        data={"cells": [{"value": math.nan}]},
    )


class Page(HTMLParser):
    """Checks that tags are balanced and collects them and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_whole_and_loads_nothing_from_elsewhere(report: Report, tmp_path: Path) -> None:
    report.write(tmp_path)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    page = Page()
    page.feed(html)
    assert page.open == [] and not page.tags & {"script", "link", "img", "iframe"}
    assert set(re.findall(r"https?://[^\s\"']+", html)) == {"http://www.w3.org/2000/svg"}
    assert "url(" not in html and "@import" not in html
    assert "prefers-color-scheme" in html and "@media print" in html
    for text in ("A difference.", "Nothing was shown.", HOSTILE, "50.0 % [25.0, 75.0]", "Read with care."):
        assert text in page.text


def test_every_figure_is_a_valid_picture_by_itself(report: Report, tmp_path: Path) -> None:
    pictures = [file for file in report.write(tmp_path) if file.suffix == ".svg"]
    assert len(pictures) == 2
    for file in pictures:
        root = ElementTree.parse(file).getroot()
        assert root.tag.endswith("svg") and "nan" not in file.read_text(encoding="utf-8").lower()


def test_csv_and_json_hold_the_raw_values(report: Report, tmp_path: Path) -> None:
    report.write(tmp_path)
    rows = list(csv.reader(io.StringIO((tmp_path / "report_all_cells.csv").read_text(encoding="utf-8"))))
    assert rows[0] == ["cell", "share", "share low", "share high", "steps"]
    assert rows[1] == [HOSTILE, "0.5", "0.25", "0.75", "1234"] and rows[2] == ["small sample", "0.9", "", "", ""]
    found = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert found["cells"] == [{"value": None}] and found["verdicts"][1] == {
        "text": "Nothing was shown.",
        "shown": False,
    }


def test_markdown_tables_keep_their_columns(report: Report) -> None:
    lines = [line for line in report.as_markdown().splitlines() if line.startswith("|")]
    assert len(lines) == 4 and all(len(re.findall(r"(?<!\\)\|", line)) == 4 for line in lines)


def test_a_report_states_its_command_and_machine_but_no_path(report: Report) -> None:
    assert report.facts["command"] == "kibitz study hints --out x"
    assert command_line(["a b"]) == "kibitz 'a b'"
    words = ["--out=/home/me/x", "policy:/home/me/p,llm:/m/a.gguf,policy:runs/p", "~/x/", "http://a/b", "1/2"]
    assert command_line(words) == "kibitz --out=x policy:p,llm:a.gguf,policy:runs/p x http://a/b 1/2"
    assert "core" in machine() and "secret" not in report.as_json()
