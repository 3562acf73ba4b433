"""Golden playthroughs, replayed line by line; `playthroughs.py` says how to write them again."""

from __future__ import annotations

import re

import pytest

from kibitz.games.deal_or_no_deal.rules import ACT_NAMES
from tests.games.deal_or_no_deal import playthroughs

FILES = {path.stem: path for path in sorted(playthroughs.FOLDER.glob("*.txt"))}


@pytest.mark.parametrize("name", FILES)
def test_the_playthrough_matches_line_by_line(name: str) -> None:
    golden = FILES[name].read_text().splitlines()
    played = list(playthroughs.lines_of(playthroughs.script_of(golden), playthroughs.recorded(golden)))
    for number, (line, expected) in enumerate(zip(played, golden, strict=False), start=1):
        assert line == expected, f"{FILES[name].name}, line {number}"
    assert len(played) == len(golden)


def test_files_and_scripts_correspond() -> None:
    assert set(FILES) == set(playthroughs.SCRIPTS)
    for name, path in FILES.items():
        script = playthroughs.script_of(path.read_text().splitlines())
        assert script == playthroughs.SCRIPTS[name]._replace(talk=())


def test_the_playthroughs_contain_every_act_and_every_ending() -> None:
    texts = {name: path.read_text() for name, path in FILES.items()}
    for act in ACT_NAMES:
        assert any(re.search(rf"^0 {act}\b", text, re.MULTILINE) for text in texts.values()), act
    lasts = [re.findall(r"^[01] .*", text, re.MULTILINE)[-1] for text in texts.values()]
    deals = [last for last in lasts if last.endswith("deal over")]
    others = [last for last in lasts if not last.endswith("deal over")]
    for start in ("0 AGREE", "1 AGREE", "0 END"):
        assert any(last.startswith(start) for last in deals), f"no deal by {start}"
    for start in ("0 END", "0 DISAGREE"):
        assert any(last.startswith(start) for last in others), f"nothing by {start}"
    assert any(" left 0 " in last for last in others), "no episode reaches the limit"
