"""Entry points of other packages: a broken one is reported in a sentence and takes nothing else down."""

from __future__ import annotations

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
