"""Checks on the host: words at every turn, and whole episodes of every bot with their events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from kibitz.core.bots import seated
from kibitz.core.chance import episode_luck, seed_key
from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.play.episode import play_episode, table_for
from kibitz.core.play.events import Event
from kibitz.core.play.player import BotPlayer
from kibitz.core.words import act_of_fields, is_choice

MAX_TURNS = 40  # of an episode of random acts
GARBAGE = ("", "?", "9" * 30, "\ud83c\udfcf no such move")


def check_episodes(game: Game, settings: Any, seed: int) -> None:
    _check_words(game, settings, seed)
    for name, bot in game.bots.items():
        _check_bot(game, settings, name, {0: bot, 1: game.bot(game.fallback)}, seed)
    for name, bot in game.bots.items():
        _check_bot(game, settings, name, {0: game.bot(game.fallback), 1: bot}, seed + 1)


def _check_bot(game: Game, settings: Any, name: str, bots: Mapping[int, Any], seed: int) -> None:
    """Plays a whole episode through the shared loop and checks its events as JSON."""
    chosen = seated(settings, bots)
    played = play_episode(game, chosen, [BotPlayer(game, bots[seat]) for seat in (0, 1)], seed=seed)
    for event in played.events:
        if event.type == "decision":
            why = event.payload["fallback"]
            assert not why, f"`bots[{name!r}]` failed at turn {event.payload['turn']}: {why}."
        _check_event(event)
    if bots[1] is game.bot(game.fallback) and "ceiling" in played.scores:
        earned, ceiling = played.returns[0], played.scores["ceiling"][0]
        within = earned <= ceiling + 1e-3 * max(1.0, abs(ceiling))
        assert within, f"`measures.score` gives a ceiling of {ceiling:g}, but {name!r} earned {earned:g}."


def _check_event(event: Event) -> None:
    field = {"decision": "words.act_text", "step": "drawing.frame"}.get(event.type, "drawing")
    try:
        event.as_json()
    except (TypeError, ValueError) as error:
        raise AssertionError(f"`{field}` should be plain JSON in {event.type}: {error}") from None
    for seat, values in event.payload.get("private", {}).items():
        clash = event.type == "episode.started" and "reward" in values
        assert not clash, f"`drawing.private` of seat {seat} uses the key 'reward', which step events need."


class RandomEpisode:
    """An episode of random acts, which need not reach its end; `state` and `history` follow it."""

    def __init__(self, game: Game, settings: Any, seed: int) -> None:
        self._table, self._settings, self._rng = table_for(game), settings, np.random.default_rng(seed)
        self._luck = episode_luck(seed_key(seed), 0)
        self.state, self.history = self._table.new(settings, self._luck), list[Mapping[str, Any]]()

    def turns(self) -> Iterator[tuple[int, Any, Any, tuple[int, ...]]]:
        """Seat, view, masks and act of every turn."""
        for number in range(MAX_TURNS):
            to_act = np.flatnonzero(np.asarray(self._table.to_act(self.state))).tolist()
            if not to_act:
                return
            acts: list[Any] = [None, None]
            for seat in to_act:
                view, masks = self._table.observe(self._settings, self.state, seat)
                acts[seat] = tuple(int(self._rng.choice(np.flatnonzero(mask))) for mask in masks)
                yield seat, view, masks, acts[seat]
            self.history += [{"seat": seat, "act": acts[seat]} for seat in to_act]
            both = tuple(act or acts[1 - seat] for seat, act in enumerate(acts))
            self.state = self._table.step(self._settings, self.state, both, self._luck, number)[0]


def _check_words(game: Game, settings: Any, seed: int) -> None:
    """Every function of `words` at every turn."""
    episode = RandomEpisode(game, settings, seed)
    for _, view, masks, act in episode.turns():
        _check_position(game, settings, view, masks, episode.history)
        _check_text("words.act_text", game.words.act_text(act))
        reason = game.words.reason(settings, view, episode.history, act)
        assert isinstance(reason, str), f"`words.reason` should give text, which may be empty, not {reason!r}."


def _check_position(game: Game, settings: Any, view: Any, masks: Any, history: list[Mapping[str, Any]]) -> None:
    words = game.words
    for name, value in words.prompt_variables(settings, view, history).items():
        assert isinstance(value, str), f"`words.prompt_variables` should map {name!r} to text, not {value!r}."
    _check_text("words.position_text", words.position_text(view))
    _check_text("words.choices_text", words.choices_text(view, masks))
    _check_answers(game, masks, words.answer_fields(view, masks))
    for text in GARBAGE:
        try:
            act = words.parse(view, masks, text)
        except BadInput:
            continue
        legal = table_for(game).is_legal(masks, tuple(act))
        assert legal, f"`words.parse` made the illegal act {list(act)} out of {text[:20]!r}; it should raise BadInput."


def _check_answers(game: Game, masks: Any, declared: Mapping[str, Any]) -> None:
    """Fields name heads, an array fills the others, and every value leads to a legal act."""
    heads = {head.name: i for i, head in enumerate(game.heads)}
    choices = {name: values for name, values in declared.items() if is_choice(name, values)}
    unnamed = [i for name, i in heads.items() if name not in choices]
    known = ", ".join(heads)
    for name, values in choices.items():
        if name in heads:
            places = [(heads[name], values)]
        else:
            nested = all(isinstance(place, list | tuple | range) for place in values)
            assert nested, f"`words.answer_fields` has {name!r}, which is no head; the heads are {known}."
            assert len(values) <= len(unnamed), f"`words.answer_fields` has more entries in {name!r} than heads."
            places = [(unnamed.pop(0), place) for place in values]
        for head, given in places:
            legal = int(np.count_nonzero(masks[head]))
            assert len(given) == legal, f"`words.answer_fields` gives {name!r} {len(given)} values; {legal} are legal."
    for end in (0, -1):
        fields = {name: values[end] if name in heads else [x[end] for x in values] for name, values in choices.items()}
        act = act_of_fields(game.heads, choices, masks, fields)
        assert table_for(game).is_legal(masks, act), f"`words.answer_fields` leads to the illegal act {list(act)}."


def _check_text(name: str, text: Any) -> None:
    assert isinstance(text, str) and text.strip(), f"`{name}` should return text, not {text!r}."
