"""What a client requests: an episode, or a branch of a recorded one.

Does not import JAX, because the server loads this module at startup.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, PrivateAttr, ValidationError, model_validator

from kibitz.core.errors import BadInput
from kibitz.core.options import sentence
from kibitz.core.registry import import_jax
from kibitz.core.system.seed import LAST_SEED
from kibitz.live.bodies import Strict

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
Pace = Annotated[float | None, Field(ge=0, le=60, description="seconds between steps")]
HUMAN = "human"
SEED_OPTIONS = ("max_overs",)  # options that a request may also name outside `options`


class EpisodeRequest(Strict):
    """Players are named as everywhere: `heuristic`, `llm:PRESET`, `policy:RUN`, `human`. Empty: the default."""

    game: Name = Field("", description="the game; omitted: the server's default game")
    players: list[Name] = Field(
        [], min_length=2, max_length=2, description="players by seat; omitted: the game's default players"
    )
    options: dict[str, Any] = Field({}, max_length=50, description="options of the game")
    captain_preset: Name = Field("", description="the player in seat 0, in place of players")
    opponent_choice: Name = Field(
        "", description="the player in seat 1, in place of players; a server starts its heuristic for an unknown name"
    )
    max_overs: int | None = Field(None, ge=1, description="the option of this name, in games that have it")
    eval_pack_id: Name | None = Field(
        None, description="a pack: the match whose number is `seed`; without a seed, a fresh match of its kind"
    )
    enable_tts: bool = Field(True, description="add audio to the commentary if a voice is available")
    seed: int | None = Field(None, ge=0, le=LAST_SEED, description="play the episode of this seed")
    open: bool | None = Field(
        None, description="show both seats' private values from the start, where no person plays; omitted: there, yes"
    )
    adviser: Name | None = Field(None, description="the player that advises seat 0")
    pace: Pace = None
    human_seat: int | None = Field(None, ge=0, le=1, description="seat that a person takes in place of its player")

    _note: str = PrivateAttr("")

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

    def completed(self, default_game: str = "", any_opponent: bool = False) -> Self:
        """The same request with game and players filled in. Loads the game, so call it off the event loop.

        A request that names no game gets `default_game`, or else the first registered game. With `any_opponent`, an
        unknown `opponent_choice` means the game's fallback bot, and `note` says so.
        """
        from kibitz.games import game_names, get_game

        game = get_game(self.game or default_game or game_names()[0])
        opponent, note = self.opponent_choice, ""
        if any_opponent and opponent and not _knows(game, opponent):
            note = f"There is no opponent {opponent!r}; {game.fallback} plays."
            opponent = game.fallback
        named = self.players or [self.captain_preset, opponent]
        players = [name or usual for name, usual in zip(named, game.default_players, strict=True)]
        players = [game.aliases.get(name, name) for name in players]
        filled = {"game": game.name, "players": players, "captain_preset": "", "opponent_choice": ""}
        completed = self.model_copy(update=filled)
        completed._note = note
        if completed.open and HUMAN in completed.seats:
            raise BadInput("A person's values stay private until the end; leave out `open` where a person plays.")
        return completed

    @property
    def note(self) -> str:
        """How a completed request differs from what was asked; empty if it does not."""
        return self._note

    @property
    def seats(self) -> tuple[str, str]:
        """Who plays, by seat; of a completed request."""
        first, second = (HUMAN if seat == self.human_seat else name for seat, name in enumerate(self.players))
        return first, second

    @property
    def shows_hands(self) -> bool:
        """Whether watchers see both seats' private values from the start; of a completed request."""
        return HUMAN not in self.seats if self.open is None else self.open

    def game_options(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """`options`, and the options named outside it that the game knows."""
        outside = {name: getattr(self, name) for name in SEED_OPTIONS if name in known}
        return {name: value for name, value in outside.items() if value is not None} | self.options


def _knows(game: Any, name: str) -> bool:
    import_jax()
    from kibitz.core.play.resolve import ANY_PATH

    return ANY_PATH.knows(game, name)


class BranchRequest(Strict):
    """The recorded episode up to a turn, then continued by these players."""

    turn: int = Field(ge=0, le=100_000, description="steps to keep from the record")
    players: list[Name] = Field(min_length=2, max_length=2, description="players by seat")
    open: bool | None = None
    pace: Pace = None
    enable_tts: bool = True
    adviser: Name | None = None
