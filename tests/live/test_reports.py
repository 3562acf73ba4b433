"""Reports of studies in the runs folder, over HTTP."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from kibitz.live import LiveConfig, create_app
from kibitz.live.http.catalogue import MAX_REPORT_BYTES
from kibitz.studies.reports.report import Report, Verdict
from tests.live.openenv_server import serving


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    runs = tmp_path / "runs"
    made = Report("Do hints help?", "Two cells.", {"command": "x"}, [Verdict("It rose.", True), Verdict("No.", False)])
    made.write(runs / "study")
    for name, text in (("broken", "{"), ("list", "[]"), ("other", '{"title": 1, "summary": 2, "verdicts": 3}')):
        (runs / name).mkdir()
        (runs / name / "report.json").write_text(text, encoding="utf-8")
        (runs / name / "report.html").write_text("x", encoding="utf-8")
    (tmp_path / "report.html").write_text("outside", encoding="utf-8")
    app = create_app(LiveConfig(store=str(tmp_path / "a.db"), warm=False, runs=runs))
    with serving(app) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client
    app.state.bus.store.close()


def test_reports_are_listed_and_whatever_else_is_there_is_not(client: httpx.Client) -> None:
    (report,) = client.get("/reports.json").json()["reports"]
    assert report["name"] == "study" and report["title"] == "Do hints help?" and report["summary"] == "Two cells."
    assert report["verdicts"] == [{"text": "It rose.", "shown": True}, {"text": "No.", "shown": False}]


def test_a_report_is_a_page_that_may_run_nothing(client: httpx.Client) -> None:
    answer = client.get("/reports/study.html")
    assert answer.status_code == 200 and "It rose." in answer.text
    (policy,) = answer.headers.get_list("content-security-policy")
    assert policy.startswith("sandbox; default-src 'none'; style-src 'unsafe-inline';") and "script" not in policy
    for name in ("nothing", "..", "%2e%2e", "..%2fruns"):
        assert client.get(f"/reports/{name}.html").status_code == 404


def test_a_large_report_arrives_whole_and_a_huge_one_is_refused(client: httpx.Client, tmp_path: Path) -> None:
    file, content = tmp_path / "runs" / "study" / "report.html", bytes(range(256)) * 4001
    file.write_bytes(content)
    assert client.get("/reports/study.html").content == content
    file.write_bytes(b"x" * (MAX_REPORT_BYTES + 1))
    assert client.get("/reports/study.html").status_code == 404
    file.unlink()
    os.mkfifo(file)
    assert client.get("/reports/study.html").status_code == 404
