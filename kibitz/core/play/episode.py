"""Plays one episode on the host: players of any kind, observers, events."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jax
import numpy as np
from jax import Array

from kibitz.core.act import is_legal
from kibitz.core.chance import episode_luck, seat_luck, seed_key, uniforms
from kibitz.core.errors import BadInput
from kibitz.core.game import SEATS, Game
from kibitz.core.play.events import Event, Observer, Stream
from kibitz.core.play.packs import is_swapped
from kibitz.core.play.player import BotPlayer, Choice, Player, Turn
from kibitz.core.play.recorder import Commentate, EpisodeRecorder
from kibitz.core.xla.jit import jit_single


@dataclass(frozen=True)
class Episode:
    """What is left of a played episode."""

    episode_id: str
    events: tuple[Event, ...]
    returns: tuple[float, float]
    scores: Mapping[str, tuple[float, float]]
    steps: int
    state: Any


class Table:
    """A game's functions compiled for one game at a time."""

    def __init__(self, game: Game) -> None:
        self.game = game
        self.new = jit_single(
            lambda settings, luck: game.rules.new(settings, uniforms(luck, 0, game.rules.new_uniforms))
        )
        self.step = jit_single(
            lambda settings, state, acts, luck, number: game.rules.step(
                settings, state, acts, uniforms(luck, number + 1, game.rules.step_uniforms)
            )
        )
        self.score = jit_single(game.measures.score)
        self.to_act = jax.jit(game.rules.to_act)
        self._observe = jit_single(
            lambda settings, state, seat: (
                game.rules.view(settings, state, seat),
                game.rules.legal(settings, state, seat),
            ),
            static_argnums=2,
        )
        self._legal = jax.jit(lambda masks, act: is_legal(masks, act, game.matters))

    def observe(self, settings: Any, state: Any, seat: int) -> tuple[Any, tuple[np.ndarray[Any, Any], ...]]:
        view, masks = self._observe(settings, state, seat)
        return jax.device_get(view), tuple(np.asarray(mask) for mask in masks)

    def is_legal(self, masks: Any, act: tuple[int, ...]) -> bool:
        return len(act) == len(masks) and bool(self._legal(masks, act))


@cache
def table_for(game: Game) -> Table:
    return Table(game)


@cache
def _stand_in(game: Game) -> BotPlayer:
    return BotPlayer(game, game.bot(game.fallback))


def play_episode(
    game: Game,
    settings: Any,
    players: Sequence[Player],
    *,
    seed: int = 0,
    number: int = 0,
    observers: tuple[Observer, ...] = (),
    episode_id: str | None = None,
    state: Any = None,
    advisers: Mapping[int, Player] | None = None,
    script: Sequence[Sequence[Choice | None]] = (),
    about: Mapping[str, Any] | None = None,
    stop: Callable[[], None] = lambda: None,
    commentate: Commentate | None = None,
    match: int | None = None,
) -> Episode:
    """Episode `number` of a seed, the same one that a batched evaluation plays under that number.

    A player that raises or gives an illegal act is replaced for that turn by the heuristic, and the
    decision event says why. `state` begins somewhere else than at a fresh deal; `script` holds both
    seats' choices for the first steps, taken from a record: nobody is asked for them. An adviser
    whispers before its seat is asked. `stop` is called before every step and ends the episode by
    raising `Stopped`. Whatever ends it, the stream's last event says so. `match` is which of a pack's
    matches `state` begins: in the second of a pair each seat draws the other's luck.
    """
    table = table_for(game)
    luck = episode_luck(seed_key(seed), number)
    lucks = [seat_luck(luck, 1 - seat if is_swapped(match) else seat) for seat in SEATS]
    state = table.new(settings, luck) if state is None else state
    whispers = dict(advisers or {})
    for seat, player in [*enumerate(players), *whispers.items()]:
        player.begin(settings, seat, lucks[seat])
    recorder = EpisodeRecorder(game, settings, Stream(observers, episode_id), commentate or game.drawing.commentary)
    # the seed comes last: whoever has it can deal the hidden values again
    drawn = {"seed": seed, "number": number} | ({} if match is None else {"match": match})
    recorder.started(state, [player.name for player in players], about or {})
    history: list[Mapping[str, Any]] = []
    past: list[tuple[Any, tuple[tuple[int, ...] | None, ...]]] = []
    returns = np.zeros(2)
    try:
        turn = np.asarray(table.to_act(state))
        while turn.any():
            stop()
            told = script[len(past)] if len(past) < len(script) else (None, None)
            choices: list[Choice | None] = [None, None]
            for seat in np.flatnonzero(turn).tolist():
                view, masks = table.observe(settings, state, seat)
                asked = Turn(settings, seat, len(past), view, masks, list(history), lucks[seat])
                choices[seat] = _choice(table, recorder, players[seat], whispers.get(seat), asked, told[seat])
            # nobody learns of another's choice before all have chosen
            for seat, choice in enumerate(choices):
                if choice is not None:
                    recorder.decision(seat, len(past), choice)
            acts = tuple(choice.act if choice else None for choice in choices)
            given = [act or acts[1 - seat] for seat, act in enumerate(acts)]
            after, rewards, _ = table.step(settings, state, tuple(given), luck, len(past))
            past.append((state, acts))
            state = after
            returns += np.asarray(rewards, float)
            history += [{"seat": seat, "act": act} for seat, act in enumerate(acts) if act is not None]
            recorder.step(state, len(past) - 1, acts, rewards)
            turn = np.asarray(table.to_act(state))
        scores = {name: _pair(value) for name, value in table.score(settings, state).items()}
        review = game.drawing.review(settings, state, past)
        recorder.ended(state, returns, scores, {"review": review, "steps": len(past)} | drawn)
    except BaseException as error:
        recorder.failed(state, error, {"steps": len(past)} | drawn)
        raise
    return Episode(
        recorder.stream.episode_id, tuple(recorder.stream.events), (float(returns[0]), float(returns[1])), scores,
        len(past), state,
    )  # fmt: skip


def _choice(
    table: Table, recorder: EpisodeRecorder, player: Player, adviser: Player | None, turn: Turn, told: Choice | None
) -> Choice:
    """What the record says, or what the player answers once the adviser has whispered."""
    if told is not None:
        follow = getattr(player, "follow", None)
        if follow is not None:
            follow(turn)
        if not table.is_legal(turn.masks, told.act):  # not this game, or not with these options
            raise BadInput(f"The record's act {list(told.act)} is not legal at step {turn.number}.")
        return told
    if adviser is not None:
        hint = ask(table, adviser, turn)
        recorder.hint(turn.seat, turn.number, hint)
        turn = turn._replace(hint=hint)
    request = getattr(player, "request", None)
    if request is not None:
        recorder.turn_requested(turn.seat, turn.number, request(turn))
    return ask(table, player, turn)


def ask(table: Table, player: Player, turn: Turn) -> Choice:
    """Its choice, or for this turn the heuristic's, with the reason, if it raises or its act is illegal."""
    began, aside = time.perf_counter(), ""
    try:
        choice = player.choose(turn)
        why = "" if table.is_legal(turn.masks, choice.act) else f"illegal act {list(choice.act)}"
    except (KeyboardInterrupt, EOFError):
        raise  # a person who leaves is not a player who fails
    except Exception as error:  # a player is somebody else's code; whatever it raises, the game goes on
        why = f"{type(error).__name__}: {error}"
        aside = str(getattr(error, "aside", ""))  # what only this seat may read of it
    latency = time.perf_counter() - began
    if not why:
        return replace(choice, latency=choice.latency or latency)
    stand_in = copy.copy(_stand_in(table.game))  # episodes on other threads have one too
    stand_in.begin(turn.settings, turn.seat, turn.luck)
    return replace(stand_in.choose(turn), latency=latency, fallback=why, reason=aside)


def _pair(value: Array) -> tuple[float, float]:
    first, second = np.asarray(value, float).tolist()
    return first, second
