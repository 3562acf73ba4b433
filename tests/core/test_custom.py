"""Players that users write: functions, objects and classes, named `module:NAME` or given from Python."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kibitz as package
from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.play.custom import as_player
from kibitz.core.play.player import Choice, Turn
from kibitz.core.play.resolve import ANY_PATH, Resolver
from kibitz.games import get_game
from tests.conftest import Finished
from tests.train import toy

OWN = """
from kibitz import Choice

class Best:
    name = "best"
    def __init__(self, game):
        self.game = game
    def begin(self, settings, seat, luck):
        self.turns = 0
    def choose(self, turn):
        self.turns += 1
        return Choice((int(turn.view.lucky), int(turn.view.cap)), self.name, reason=f"turn {self.turns}")

def best(turn):
    return turn.view.lucky, turn.view.cap

def needs(one, two):
    return one

class Needs:
    def __init__(self, one, two): pass
    def begin(self, settings, seat, luck): pass
    def choose(self, turn): pass
"""


@pytest.fixture(autouse=True)
def toy_game() -> Iterator[None]:
    toy.register()
    yield
    toy.unregister()


@pytest.fixture
def game() -> Game:
    return get_game(toy.NAME)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module of the user's in the current folder."""
    (tmp_path / "mine.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("mine", None)


def best(turn: Turn) -> tuple[int, int]:
    return int(turn.view.lucky), int(turn.view.cap)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("name", ["mine:Best", "mine:best"])
def test_the_command_line_evaluates_a_class_or_function_of_the_users(
    kibitz: Callable[..., Finished], name: str
) -> None:
    done = kibitz("evaluate", "--game", toy.NAME, "--player", name, "--episodes", "3", "--json")
    assert done.returncode == 0, done.stderr
    assert '"share_of_ceiling": 1.0' in done.stdout
    assert '"fallbacks": 0' in done.stdout


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("mine:nothing", "The module 'mine' has no 'nothing'"),
        ("nowhere:Best", "no module for 'nowhere:Best'"),
        ("mine:Needs", "Needs needs 2 arguments"),
    ],
)
def test_a_wrong_module_or_class_is_one_sentence(kibitz: Callable[..., Finished], name: str, sentence: str) -> None:
    done = kibitz("evaluate", "--game", toy.NAME, "--player", name, "--episodes", "1")
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.usefixtures("own")
def test_clients_of_a_server_cannot_name_modules(game: Game, tmp_path: Path) -> None:
    for name in ("mine:Best", "os:system"):
        with pytest.raises(BadInput, match="There is no player"):
            Resolver(runs=tmp_path).find(game, name)
        assert not Resolver(runs=tmp_path).knows(game, name)
    assert "mine" not in sys.modules
    assert "module:NAME" in ANY_PATH.forms(game)
    assert "module:NAME" not in Resolver(runs=tmp_path).forms(game)


def test_evaluate_takes_any_callable() -> None:
    found = package.evaluate(best, "heuristic", game=toy.NAME, episodes=4, seed=3)
    reference = package.evaluate("oracle", "heuristic", game=toy.NAME, episodes=4, seed=3)
    assert found["player"] == "best"
    assert found["return_mean"] == reference["return_mean"]
    assert found["share_of_oracle"] == 1.0
    assert package.evaluate(lambda turn: "0 0", game=toy.NAME, episodes=2)["player"] == "function"


def test_options_and_seeds_reach_the_game() -> None:
    assert package.play_episode(best, game=toy.NAME, options={"rounds": 2}).steps == 2
    one, again, other = (package.play_episode("random", "random", game=toy.NAME, seed=s).returns for s in (5, 5, 6))
    assert one == again != other
    with pytest.raises(BadInput, match="did you mean 'rounds'"):
        package.evaluate(best, game=toy.NAME, options={"round": 2})


def test_a_function_that_errs_loses_its_turns_but_not_the_episode() -> None:
    def wrong(turn: Turn) -> tuple[int, ...]:
        return (7, 7) if turn.number else (1 // 0, 0)

    played = package.play_episode(wrong, game=toy.NAME)
    fallbacks = [e.payload["fallback"] for e in played.events if e.type == "decision" and e.payload["seat"] == 0]
    assert fallbacks[0].startswith("ZeroDivisionError")
    assert fallbacks[1] == "illegal act [7, 7]"


def test_what_cannot_play_is_refused(game: Game) -> None:
    nothing: Any = 3
    with pytest.raises(BadInput, match="int cannot play"):
        as_player(game, nothing)
    player = as_player(game, lambda turn: Choice((0, 0), "mine"))
    assert player.name == "function"


def test_public_names_are_listed_and_lead_somewhere() -> None:
    assert {"evaluate", "load_policy", "play_episode", "player_named", "watch", "compare", "train"} <= set(dir(package))
    assert "registry" not in dir(package)
    for name in dir(package):
        assert getattr(package, name) is not None
    assert callable(package.evaluate) and callable(package.train)
