"""A mistake in the options gives one sentence, which names the option as the user wrote it."""

from __future__ import annotations

import pytest

from kibitz.core.errors import BadInput
from kibitz.core.options import parse_settings
from kibitz.core.play.episode import play_episode
from kibitz.games import get_game
from kibitz.players import player_named
from kibitz.players.human import HumanPlayer
from kibitz.train.config import Job


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"train": {"gama": 0.9}}, "'train.gama'; did you mean 'gamma'"),
        ({"train": {"qqq": 1}}, "'train.qqq'; choose one of autoregressive, clip, "),
        ({"trian": {}}, "'trian'; did you mean 'train'"),
    ],
)
def test_an_unknown_name_gets_suggestions_from_its_own_table(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(BadInput) as wrong:
        Job.read(values)
    assert sentence in str(wrong.value)


@pytest.mark.parametrize("values", [{"partner_threshold": [0.3, 0.4, 0.5]}, {"partner": [1]}])
def test_errors_name_the_option_and_not_pydantics_alternatives(values: dict[str, object]) -> None:
    with pytest.raises(BadInput) as wrong:
        get_game("deal_or_no_deal").options.read(values)
    name = next(iter(values))
    assert f"option {name!r} is" in str(wrong.value)


@pytest.mark.parametrize("value", ["2024-99-99", "9" * 5000, "[" * 3000])
def test_impossible_dates_huge_numbers_and_endless_nesting_are_not_valid_yaml(value: str) -> None:
    with pytest.raises(BadInput, match="not valid YAML"):
        parse_settings([f"max_turns={value}"])


@pytest.mark.parametrize("game", ["deal_or_no_deal", "cricket"])
def test_invalid_input_never_ends_a_persons_game(game: str) -> None:
    """The player asks again; only the end of the input ends the game."""
    record = get_game(game)
    typed = iter(["propose " + "9" * 5000 + " 1 1", b"\xff", "²", "9" * 5000, "agree 1", ""])
    shown: list[str] = []

    def ask(prompt: str) -> str:
        line = next(typed, None)
        if line is None:
            raise EOFError
        return line.decode() if isinstance(line, bytes) else line

    players = [HumanPlayer(record, ask, shown.append), player_named(record, "heuristic")]
    with pytest.raises(EOFError):
        play_episode(record, record.options().settings(), players, seed=1)
    assert sum("cannot be read" in line for line in shown) >= 2
