"""Any game for agents that call tools: one tool, `act`, with an argument for every answer field of the game."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from kibitz.core.bots import Bot, seated
from kibitz.core.envs.one_seat import OneSeatEpisode
from kibitz.core.envs.setup import default_opponent
from kibitz.core.envs.tool_env import METADATA
from kibitz.core.errors import BadInput
from kibitz.core.game import Game, first_view
from kibitz.core.options import Options, operator_options
from kibitz.core.play.episode import table_for
from kibitz.core.play.player import BotPlayer
from kibitz.core.play.resolve import ANY_PATH, Resolver, player_and_bot
from kibitz.core.registry import load_game
from kibitz.core.system.seed import fresh_seed
from kibitz.core.words import act_of_fields, is_choice

MAX_ILLEGAL_ACTS = 3  # in a row; a bot's act replaces the last of them


class GameAction(BaseModel):
    """One value for every answer field of the game; subclasses declare them."""

    model_config = ConfigDict(extra="forbid", strict=True)


class GameObservation(BaseModel):
    """Everything that seat 0 may know."""

    text: str = Field(description="the position in words")
    choices: str = Field(description="what is legal now, in words; empty at the end")
    legal: dict[str, Any] = Field(description="the legal values of every field of the action; empty at the end")
    history: list[str] = Field(description="every act so far, oldest first")
    frame: dict[str, Any] = Field(description="what a page draws")
    error: str | None = Field(None, description="why the last act was rejected, which leaves the position unchanged")
    played_for_you: str | None = Field(None, description="a bot's act after three illegal ones in a row")
    scores: dict[str, float | None] = Field(default_factory=dict, description="your measures, at the end")
    done: bool = False
    reward: float = 0.0
    metadata: dict[str, Any] = Field(default_factory=dict, description=METADATA)


class GameState(BaseModel):
    """The state of the episode. It shows the seed only after the end, because the seed reveals hidden values."""

    episode_id: str | None = None
    step_count: int = 0
    done: bool = False
    illegal_acts: int = 0
    played_for_you: int = 0  # acts of a bot in place of yours
    total_reward: float = 0.0
    returns: tuple[float, float] | None = Field(None, description="of both seats, at the end")
    opponent: str = ""
    seed: int | None = None


class GameEnvironment:
    """A caller in seat 0 plays any player in seat 1, by the rules and the chance of `play_episode`."""

    game: ClassVar[str | Game]
    options: ClassVar[type[Any]]  # what `reset` takes: the game's options, `seed` and `opponent`
    title: ClassVar[str]

    def __init__(self, resolver: Resolver = ANY_PATH) -> None:
        self._resolver = resolver
        self._episode: OneSeatEpisode | None = None
        self._status = GameState()

    def reset(self, options: Mapping[str, Any] | None = None) -> Any:
        """Starts a new episode. Without a seed, it draws one. Invalid options raise BadInput and change nothing."""
        chosen = self.options.read(options or {}, "option of reset")
        rules = _game_options(self.game, chosen)
        game = load_game(self.game, rules) if isinstance(self.game, str) else self.game
        name = chosen.opponent or default_opponent(game)
        opponent, bot = player_and_bot(game, name, self._resolver)
        settings = _settings(game, rules.model_dump_json(), bot)
        first = self.given_state(chosen, settings)
        seed = fresh_seed() if chosen.seed is None else chosen.seed
        self._game, self._settings, self._table = game, settings, table_for(game)
        self._episode = episode = OneSeatEpisode(game, settings, opponent, seed, first)
        self._substitute = BotPlayer(game, game.bot(game.fallback))
        self._substitute.begin(settings, 0, episode.lucks[0])
        self._illegal_in_a_row = 0
        self._status = GameState(episode_id=f"ep-{uuid.uuid4().hex[:12]}", opponent=name)
        # the opponent's first act can end the game: its reward belongs to this observation
        observation = self._observe(episode, self._until_own_turn(episode))
        observation.metadata["game"] = game.name
        if first is None:  # the options and the seed reproduce the episode
            observation.metadata["options"] = rules.model_dump(mode="json")
        return observation

    def step(self, action: Any) -> Any:
        """Plays your act and the opponent's. An illegal act changes nothing; a bot replaces the third in a row."""
        episode, status = self._episode, self._status
        if episode is None:
            raise BadInput("No episode has begun; call reset first.")
        if status.done:
            raise BadInput("The episode is over; call reset for a new one.")
        episode.begin_call(getattr(action, "metadata", None))
        turn = episode.turn(0)
        view, masks = turn.view, turn.masks
        act, wrong = self.act_of(action, view, masks)
        if wrong:
            status.illegal_acts += 1
            self._illegal_in_a_row += 1
            if self._illegal_in_a_row < MAX_ILLEGAL_ACTS:
                return self._observe(episode, 0.0, error=wrong)
            status.played_for_you += 1
        substitute = self._substitute.choose(turn).act  # asked every turn: it may have a memory
        act = substitute if wrong else act
        self._illegal_in_a_row = 0
        status.step_count += 1
        reward = self._play(episode, act) + self._until_own_turn(episode)
        played = self._game.words.act_text(act) if wrong else None
        return self._observe(episode, reward, error=wrong or None, played=played)

    @property
    def state(self) -> GameState:
        return self._status.model_copy()

    def given_state(self, chosen: Any, settings: Any) -> Any:
        """The first position that the caller asks for in the options of `reset`, or None."""
        return None

    def act_of(self, action: Any, view: Any, masks: Any) -> tuple[tuple[int, ...], str]:
        """The action as an act, and why it is illegal, or ""."""
        words = self._game.words
        declared = words.answer_fields(view, masks)
        given = {name: getattr(action, name) for name, values in declared.items() if is_choice(name, values)}
        try:
            return tuple(act_of_fields(self._game.heads, declared, masks, given)), ""
        except ValueError:  # a value that is not in the list of legal ones, or an array of another length
            return (), f"{given} is illegal now; legal choices: {words.choices_text(view, masks)}."

    def observation(self, view: Any, masks: Any, **common: Any) -> Any:
        """What the caller sees; `common` has error, played_for_you, done, reward, metadata and history."""
        game, done = self._game, common["done"]
        declared = game.words.answer_fields(view, masks)
        legal = {name: _lists(values) for name, values in declared.items() if is_choice(name, values)}
        return GameObservation(
            text=game.words.position_text(view),
            choices="" if done else game.words.choices_text(view, masks),
            legal={} if done else legal,
            frame=dict(game.drawing.frame(self._settings, self._state)),
            scores=self._own_scores() if done else {},
            **common | {"history": [self._line(entry) for entry in common["history"]]},
        )

    def scores(self) -> dict[str, Any]:
        """f32[2] each: the measures of the finished episode."""
        return {name: np.asarray(x) for name, x in self._table.score(self._settings, self._state).items()}

    def _own_scores(self) -> dict[str, float | None]:
        # a measure that does not apply is NaN, which JSON cannot hold
        return {name: None if np.isnan(pair[0]) else float(pair[0]) for name, pair in self.scores().items()}

    def _line(self, entry: Mapping[str, Any]) -> str:
        return f"{'You' if entry['seat'] == 0 else 'Opponent'}: {self._game.words.act_text(entry['act'])}"

    def _until_own_turn(self, episode: OneSeatEpisode) -> float:
        """The opponent's acts while it alone is to act; what they pay seat 0."""
        reward, to_act = 0.0, episode.to_act()
        while to_act[1] and not to_act[0]:
            reward += self._play(episode, None)
            to_act = episode.to_act()
        return reward

    def _play(self, episode: OneSeatEpisode, own: tuple[int, ...] | None) -> float:
        """One step; what it pays seat 0."""
        reward = episode.play(own, episode.turn(1) if episode.to_act()[1] else None)
        self._status.done = episode.over
        self._status.total_reward += reward
        return reward

    def _observe(
        self, episode: OneSeatEpisode, reward: float, error: str | None = None, played: str | None = None
    ) -> Any:
        self._state = episode.state
        view, masks = self._table.observe(self._settings, self._state, 0)
        if self._status.done:
            self._status.seed, self._status.returns = episode.seed, episode.returns
        return self.observation(
            view, masks, error=error, played_for_you=played, done=self._status.done, reward=reward,
            metadata=episode.news(), history=list(episode.history),
        )  # fmt: skip


@lru_cache(maxsize=64)
def tool_environment(game: str | Game) -> type[GameEnvironment]:
    """The generic environment of a game, with models made from its options and answer fields.

    A name gets a record that fits the options of each episode; a record is used unchanged.
    """
    record = load_game(game) if isinstance(game, str) else game
    options: Any = record.options
    view, masks = first_view(record, record.default_settings)
    sizes = {head.name: head.size for head in record.heads}
    fields: dict[str, Any] = {
        name: (_type_of(values), Field(description=_description(sizes.get(name))))
        for name, values in record.words.answer_fields(view, masks).items()
        if is_choice(name, values)
    }
    camel = "".join(part.capitalize() for part in record.name.split("_"))
    action = create_model(f"{camel}Action", __base__=GameAction, **fields)

    def step(self: GameEnvironment, action: Any) -> GameObservation:
        observation: GameObservation = GameEnvironment.step(self, action)
        return observation

    step.__annotations__ = {"action": action, "return": GameObservation}
    step.__doc__ = GameEnvironment.step.__doc__
    return type(
        f"{camel}Environment",
        (GameEnvironment,),
        {"game": game, "options": reset_options(options), "title": record.title, "step": step},
    )


@lru_cache(maxsize=64)
def reset_options(options: type[Options]) -> type[Options]:
    """A game's options without those that only an operator may set, and the two that every environment has."""
    refused = operator_options(options)

    def hide(schema: dict[str, Any]) -> None:
        for name in refused:
            del schema["properties"][name]

    class ResetOptions(options):  # type: ignore[misc, valid-type]
        """Options of `reset`."""

        model_config = ConfigDict(json_schema_extra=hide)

        seed: int | None = Field(None, ge=0, lt=2**63, description="drawn at random if missing")
        opponent: str | None = Field(None, description="any player by name: a bot, llm:PRESET, policy:RUN")

        @model_validator(mode="before")
        @classmethod
        def _no_operator_options(cls, values: Any) -> Any:
            for name in refused:
                if name in values:
                    raise ValueError(f"reset has no option {name!r} here; only the operator may set it.")
            return values

    return ResetOptions


def _description(size: int | None) -> str:
    return f"{'' if size is None else f'0 to {size - 1}; '}`legal` of the last observation lists the legal values"


def _type_of(values: list[Any]) -> Any:
    """Of one field: whole numbers, words, or a list of either."""
    if values and isinstance(values[0], (list, tuple, range)):
        return list[_type_of(list(values[0]))]  # type: ignore[misc]
    return str if values and isinstance(values[0], str) else int


def _lists(values: Any) -> Any:
    """Legal values as JSON has them; a game may give tuples and ranges."""
    return [_lists(value) for value in values] if isinstance(values, (list, tuple, range)) else values


def _game_options(game: str | Game, chosen: Any) -> Any:
    """The game's own options: the caller's, and the record's defaults for the rest."""
    record = load_game(game) if isinstance(game, str) else game
    given = {name: getattr(chosen, name) for name in chosen.model_fields_set if name in record.options.model_fields}
    return record.options.read({**dict(record.default_options), **given}, "option of reset")


@lru_cache(maxsize=64)
def _settings(game: Game, options_json: str, bot: Bot | None) -> Any:
    """The arrays, after the opponent has disclosed and precomputed."""
    options: Any = game.options.model_validate_json(options_json)
    return seated(options.settings(), {1: bot} if bot is not None else {})
