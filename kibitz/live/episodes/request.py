"""What a client requests: an episode, or a branch of a recorded one.

Does not import JAX, because the server loads this module at startup.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator

from kibitz.core.errors import BadInput
from kibitz.core.options import sentence
from kibitz.core.seed import LAST_SEED
from kibitz.live.bodies import Strict

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
Pace = Annotated[float | None, Field(ge=0, le=60, description="seconds between steps")]
HUMAN = "human"
FRESH = "default"  # the pack that is none: every episode begins with a fresh deal
SEED_OPTIONS = ("max_overs",)  # options that a request may also name outside `options`


class EpisodeRequest(Strict):
    """Players are named as everywhere: `heuristic`, `llm:PRESET`, `policy:RUN`, `human`. Empty: the default."""

    game: Name = Field("", description="the game; omitted: the server's default game")
    players: list[Name] = Field(
        [], min_length=2, max_length=2, description="players by seat; omitted: the game's default players"
    )
    options: dict[str, Any] = Field({}, max_length=50, description="options of the game")
    captain_preset: Name = Field("", description="the player in seat 0, in place of players")
    opponent_choice: Name = Field("", description="the player in seat 1, in place of players")
    max_overs: int | None = Field(None, ge=1, description="the option of this name, in games that have it")
    eval_pack_id: Name = Field(FRESH, description="a pack of first positions; default: a fresh deal")
    enable_tts: bool = Field(True, description="add audio to the commentary if a voice is available")
    seed: int | None = Field(None, ge=0, le=LAST_SEED, description="play the episode of this seed")
    open: bool = Field(False, description="show both seats' private values from the start")
    adviser: Name | None = Field(None, description="the player that advises seat 0")
    pace: Pace = None
    human_seat: int | None = Field(None, ge=0, le=1, description="seat that a person takes in place of its player")

    @model_validator(mode="after")
    def _name_players_once(self) -> Self:
        if self.players and (self.captain_preset or self.opponent_choice):
            raise ValueError("Give either players, or captain_preset and opponent_choice.")
        return self

    @classmethod
    def read(cls, **values: Any) -> Self:
        """A checked request; BadInput names the first wrong field."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise BadInput(sentence(cls, error, "field of a start")) from None

    def completed(self, default_game: str = "") -> Self:
        """The same request with game and players filled in. Loads the game, so call it off the event loop.

        A request that names no game gets `default_game`, or else the first registered game.
        """
        from kibitz.games import game_names, get_game

        game = get_game(self.game or default_game or game_names()[0])
        named = self.players or [self.captain_preset, self.opponent_choice]
        players = [name or usual for name, usual in zip(named, game.default_players, strict=True)]
        filled = {"game": game.name, "players": players, "captain_preset": "", "opponent_choice": ""}
        return self.model_copy(update=filled)

    @property
    def seats(self) -> tuple[str, str]:
        """Who plays, by seat; of a completed request."""
        first, second = (HUMAN if seat == self.human_seat else name for seat, name in enumerate(self.players))
        return first, second

    def game_options(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """`options`, and the options named outside it that the game knows."""
        outside = {name: getattr(self, name) for name in SEED_OPTIONS if name in known}
        return {name: value for name, value in outside.items() if value is not None} | self.options


class BranchRequest(Strict):
    """The recorded episode up to a turn, then continued by these players."""

    turn: int = Field(ge=0, le=100_000, description="steps to keep from the record")
    players: list[Name] = Field(min_length=2, max_length=2, description="players by seat")
    open: bool = False
    pace: Pace = None
    enable_tts: bool = True
    adviser: Name | None = None
