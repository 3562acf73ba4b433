"""The server lists the tournaments in its runs folder, whatever else lies there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from kibitz.live.http.catalogue import report_page, reports_in, tournaments_in
from kibitz.live.http.models import TournamentList
from kibitz.studies.tournaments.standings import report, standings


def written(folder: Path, name: str, **changes: Any) -> None:
    rows = [{"one": "a", "other": "llm:b", "first": 0, "returns": [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [2.0, 0.0]]}]
    about = {"game": "two_arms", "pack": None, "episodes": 4, "seed": 3, "version": "0.1.0", "unfinished": ""}
    report(standings(["a", "llm:b"], 4, rows), "A", {"command": "kibitz"}, about).write(folder / name, "tournament")
    file = folder / name / "tournament.json"
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | changes), encoding="utf-8")


def test_tournaments_are_listed_newest_first_and_damaged_ones_omitted(tmp_path: Path) -> None:
    written(tmp_path, "old")
    written(tmp_path, "new", unfinished="the budget is spent", pack="death", notes=["x" * (1 << 20)])  # many players
    os.utime(tmp_path / "old" / "tournament.json", (1, 1))
    written(tmp_path, "strange", players=[{"name": "a", "rating": "high"}])
    written(tmp_path, "infinite", seed=float("inf"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "tournament.json").write_text("no", encoding="utf-8")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "tournament.json").write_text("[" * 100_000, encoding="utf-8")
    found = tournaments_in(tmp_path)
    assert [one["name"] for one in found] == ["new", "old"]
    listed = TournamentList.model_validate({"tournaments": found}).tournaments[0]
    assert [player.name for player in listed.players] == ["a", "llm:b"] and listed.unfinished
    assert listed.pack == "death"
    first = listed.players[0]
    assert first.rated and first.rating_ci95 is not None and first.rating_ci95[0] < first.rating < first.rating_ci95[1]
    assert listed.matrix["a"]["llm:b"].win_share == 0.75 and listed.matrix["a"]["llm:b"].games == 4
    assert tournaments_in(tmp_path / "nowhere") == []
    assert {one["name"] for one in reports_in(tmp_path)} >= {"new", "old"}
    page = report_page(tmp_path, "new")
    assert page is not None and page.read_bytes().startswith(b"<!doctype html>")
