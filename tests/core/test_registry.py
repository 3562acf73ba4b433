"""Entry points of other packages: a broken one is reported in a sentence and takes nothing else down."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest

from kibitz.core import registry
from kibitz.core.errors import BadInput
from kibitz.core.play.resolve import Resolver, usable_kinds
from tests.train import toy


@pytest.fixture
def broken() -> Iterator[None]:
    """A game and a kind of players whose packages cannot be imported."""
    for group in (registry.GAMES, registry.PLAYERS):
        registry.registered(group)["broken"] = EntryPoint("broken", "no_such_package:GAME", group)
    yield
    for group in (registry.GAMES, registry.PLAYERS):
        del registry.registered(group)["broken"]


@pytest.mark.usefixtures("broken")
def test_a_game_that_cannot_be_imported_is_refused_with_a_sentence_and_not_listed() -> None:
    with pytest.raises(BadInput, match=r"'broken' of kibitz.games cannot be loaded from no_such_package:GAME"):
        registry.load_game("broken")
    assert "broken" in registry.game_names()
    assert registry.usable_games() == [name for name in registry.game_names() if name != "broken"]


@pytest.mark.usefixtures("broken")
def test_a_kind_of_players_that_cannot_be_imported_hides_no_other() -> None:
    game, resolver = toy.game(), Resolver()
    assert {"human", "llm", "policy"} <= set(usable_kinds())
    assert "broken" not in usable_kinds()
    assert "human" in resolver.forms(game)
    assert {one.name for one in resolver.players(game)} >= set(game.bots)
    with pytest.raises(BadInput, match=r"'broken' of kibitz.players cannot be loaded"):
        resolver.find(game, "broken:one")
    with pytest.raises(BadInput, match="There is no player 'nobody'"):
        resolver.find(game, "nobody")


def test_another_package_cannot_replace_a_built_in_game(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [EntryPoint("cricket", value, registry.GAMES) for value in ("foreign:GAME", "kibitz.games.cricket:game")]
    monkeypatch.setattr(registry, "entry_points", lambda group: found)
    assert registry.registered.__wrapped__(registry.GAMES)["cricket"].value == "kibitz.games.cricket:game"


def test_threads_that_load_games_at_the_same_time_all_succeed() -> None:
    """JAX imports itself in cycles: without a lock, one of several threads can see half of it."""
    code = (
        "import threading\n"
        "from kibitz.core.registry import game_names, load_game\n"
        "errors = []\n"
        "def load(name):\n"
        "    try: load_game(name)\n"
        "    except Exception as error: errors.append(repr(error))\n"
        "threads = [threading.Thread(target=load, args=(name,)) for name in game_names() * 2]\n"
        "[thread.start() for thread in threads]; [thread.join() for thread in threads]\n"
        "print(errors)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]", done.stdout
