"""What a person typed wrong is told in one sentence, in the words of the table it belongs to."""

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
    ("values", "told"),
    [
        ({"train": {"gama": 0.9}}, "'train.gama'; did you mean 'gamma'"),
        ({"train": {"qqq": 1}}, "'train.qqq'; there are clip, "),
        ({"trian": {}}, "'trian'; did you mean 'train'"),
    ],
)
def test_a_name_that_is_not_known_is_looked_for_where_it_was_written(values: dict[str, object], told: str) -> None:
    with pytest.raises(BadInput) as wrong:
        Job.read(values)
    assert told in str(wrong.value)


@pytest.mark.parametrize("values", [{"partner_threshold": [0.3, 0.4, 0.5]}, {"partner": [1]}])
def test_nothing_of_the_checker_is_told(values: dict[str, object]) -> None:
    with pytest.raises(BadInput) as wrong:
        get_game("deal_or_no_deal").options.read(values)
    name = next(iter(values))
    assert f"option {name!r} is" in str(wrong.value)


@pytest.mark.parametrize("value", ["2024-99-99", "9" * 5000, "[" * 3000])
def test_a_value_that_no_number_or_day_can_be_made_of_is_not_valid(value: str) -> None:
    with pytest.raises(BadInput, match="not valid YAML"):
        parse_settings([f"max_turns={value}"])


@pytest.mark.parametrize("game", ["deal_or_no_deal", "cricket"])
def test_no_typing_error_ends_a_persons_game(game: str) -> None:
    """Whatever cannot be read is asked for again; only the end of the input is the end."""
    record = get_game(game)
    typed = iter(["propose " + "9" * 5000 + " 1 1", b"\xff", "²", "9" * 5000, "agree 1", ""])
    told: list[str] = []

    def ask(prompt: str) -> str:
        line = next(typed, None)
        if line is None:
            raise EOFError
        return line.decode() if isinstance(line, bytes) else line

    players = [HumanPlayer(record, ask, told.append), player_named(record, "heuristic")]
    with pytest.raises(EOFError):
        play_episode(record, record.options().settings(), players, seed=1)
    assert sum("type it once more" in line for line in told) >= 2
