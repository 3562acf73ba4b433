"""Finding your way: the version, completion, `kibitz list` and `kibitz doctor`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import kibitz as package
from kibitz.cli.setup import docs, doctor, extras
from kibitz.core import registry
from kibitz.games import get_game
from kibitz.llm.providers import weights
from tests.conftest import Finished
from tests.train import toy

Command = Callable[..., Finished]


def test_the_version_is_printed(kibitz: Command) -> None:
    assert kibitz("--version") == Finished(0, f"kibitz {package.__version__}\n", "")


def test_the_shell_completes_commands() -> None:
    code = "import sys; sys.argv = ['kibitz']; from kibitz.__main__ import main; main()"
    asked = {"_KIBITZ_COMPLETE": "complete_bash", "COMP_WORDS": "kibitz tr", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | asked, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["train"]


def test_docs_opens_a_page_of_the_site_in_the_wheel(
    kibitz: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reference").mkdir()
    for name in ("index", "reference/commands"):
        (tmp_path / f"{name}.html").touch()
    opened: list[str] = []
    monkeypatch.setattr(docs, "SHIPPED_SITE", tmp_path)
    monkeypatch.setattr(docs.webbrowser, "open", opened.append)
    done = kibitz("docs", "reference/commands")
    assert done == Finished(0, f"{(tmp_path / 'reference/commands.html').as_uri()}\n", "")
    assert opened == [done.stdout.strip()]
    assert kibitz("docs", "--no-browser").stdout.endswith("/index.html\n") and len(opened) == 1
    done = kibitz("docs", "nowhere")
    assert done == Finished(2, "", "kibitz: There is no page 'nowhere'; choose one of index, reference/commands.\n")


def test_docs_of_a_checkout_without_sphinx_says_what_to_install(
    kibitz: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docs, "SHIPPED_SITE", tmp_path / "site")
    monkeypatch.setattr(docs, "find_spec", lambda name: None)
    done = kibitz("docs", "--no-browser")
    assert done.returncode == 2
    assert "pip install -e '.[docs]'" in done.stderr and done.stderr.count("\n") == 1
    monkeypatch.setattr(docs, "CHECKOUT", tmp_path)
    assert "install kibitz from a wheel" in kibitz("docs").stderr


@pytest.mark.parametrize("command", ["evaluate", "play", "tournament", "watch", "train"])
def test_help_lists_the_players_of_every_game(command: str, kibitz: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    shown = " ".join(kibitz(command, "--help").stdout.split())
    for name in ("deal_or_no_deal", "cricket"):
        for player in (*get_game(name).bots, "policy:RUN", "llm:PRESET", "expert"):
            assert re.search(rf"Players of {name}: [^.]*\b{player}\b", shown), player


def test_the_help_of_train_lists_the_keys_of_a_config(kibitz: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    shown = kibitz("train", "--help").stdout
    for key in ("train.lr", "hints.cadence_k", "logging.eval_every", "env.max_turns", "env.max_overs", "env.id"):
        assert key in shown, key


@pytest.fixture
def other_games() -> Iterator[None]:
    """A game of another package, and one whose package is broken."""
    toy.register()
    registry.registered(registry.GAMES)["broken"] = EntryPoint("broken", "no_such_package:GAME", registry.GAMES)
    yield
    toy.unregister()
    del registry.registered(registry.GAMES)["broken"]


def rows(kibitz: Command, *words: str) -> list[dict[str, Any]]:
    done = kibitz("list", *words, "--json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)[words[0]]
    return found


@pytest.mark.usefixtures("other_games")
def test_list_games_shows_every_registered_game_and_why_one_is_unusable(kibitz: Command) -> None:
    found = {row["game"]: row for row in rows(kibitz, "games")}
    assert set(found) == {*registry.game_names()}
    assert found[toy.NAME]["usable"] and found[toy.NAME]["environment"] == toy.ENV_ID
    assert not found["broken"]["usable"] and "no_such_package" in found["broken"]["why_not"]


@pytest.mark.usefixtures("other_games")
def test_list_players_shows_bots_aliases_models_and_runs(
    kibitz: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "mine"
    (run / "checkpoints").mkdir(parents=True)
    (run / "run.json").write_text(json.dumps({"game": toy.NAME}), encoding="utf-8")
    found = {row["player"]: row for row in rows(kibitz, "players", "--game", toy.NAME)}
    assert {*get_game(toy.NAME).bots, "expert", "llm:embedded", "policy:runs/mine"} <= set(found)
    assert "no checkpoint" in found["policy:runs/mine"]["why_not"]
    assert {row["game"] for row in found.values()} == {toy.NAME}


def test_list_packs_configs_presets_and_keys_show_what_the_commands_accept(kibitz: Command) -> None:
    packs = rows(kibitz, "packs")
    assert {"game": "cricket", "pack": "default", "matches": 1000} in packs
    configs = {row["config"]: row for row in rows(kibitz, "configs")}
    assert configs["configs/ppo_cricket.yaml"]["game"] == "cricket" and configs["configs/ppo_fast.yaml"]["usable"]
    assert "embedded" in {row["preset"] for row in rows(kibitz, "presets")}
    keys = {row["key"]: row for row in rows(kibitz, "keys", "--game", "deal_or_no_deal")}
    assert keys["train.lr"]["default"] == 3e-4 and keys["env.max_turns"]["default"] == 10


def test_a_broken_config_of_your_own_is_listed_with_the_reason(
    kibitz: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "mine.yaml").write_text("train: {lrr: 1}\n", encoding="utf-8")
    found = {row["config"]: row for row in rows(kibitz, "configs")}
    assert not found["configs/mine.yaml"]["usable"] and "lrr" in found["configs/mine.yaml"]["why_not"]


def test_list_rejects_an_unknown_game(kibitz: Command) -> None:
    done = kibitz("list", "players", "--game", "chess")
    assert done.returncode == 2 and "There is no game 'chess'" in done.stderr


def test_list_prints_a_table_for_people(kibitz: Command) -> None:
    done = kibitz("list", "packs")
    assert done.returncode == 0 and "powerplay" in done.stdout


def test_doctor_reports_a_missing_extra_damaged_weights_and_sizes(
    kibitz: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "choix" else True)
    damaged = weights.installed_path()
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"half a file")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "x").write_bytes(b"12345")
    words = ("doctor", "--runs", str(tmp_path / "runs"), "--store", str(tmp_path / "none.db"))
    done = kibitz(*words, "--json")
    assert done.returncode == 0, done.stderr
    items = {item["name"]: item for item in json.loads(done.stdout)["items"]}
    assert {f"extra {name}" for name in extras.PURPOSES} <= set(items)
    assert items["extra studies"]["advice"] == "pip install 'kibitz[studies]'" and not items["extra studies"]["ok"]
    assert items["extra live"]["ok"] and not items["extra live"]["advice"]
    assert "wrong SHA-256" in items["weights"]["found"] and "not installed" in items["taught weights"]["found"]
    assert items["JAX devices"]["details"]["devices"]
    assert items["cache"]["details"]["bytes"] == len(b"half a file")
    assert items["runs"]["details"]["bytes"] == 5
    shown = kibitz(*words).stdout
    assert len(shown.splitlines()) == len(items)
    assert not (tmp_path / "none.db").exists()


def test_doctor_reports_a_broken_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    import jax

    def broken() -> None:
        raise RuntimeError("no driver\nmore")

    monkeypatch.setattr(jax, "devices", broken)
    assert doctor._devices()[:3] == ("JAX devices", False, "no driver")
