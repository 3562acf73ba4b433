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
from kibitz.core.play.player import BotPlayer, Choice, Player, PlayerFailed, Turn, TurnRequest
from kibitz.core.play.recorder import Commentate, EpisodeRecorder
from kibitz.core.xla.jit import jit_single


@dataclass(frozen=True)
class Episode:
    """The result of a played episode."""

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
def _fallback_bot(game: Game) -> BotPlayer:
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

    If a player raises or returns an illegal act, the game's fallback bot plays that turn, and the
    decision event says why. `state` replaces the fresh deal; `script` holds both seats' choices for the
    first steps, taken from a record instead of the players. An adviser's hint arrives before
    its seat is asked. `stop` is called before every step and ends the episode by raising `Stopped`. The
    stream's last event always says how the episode ended. `match` is the number of the pack's match that
    `state` begins: in the second match of a pair each seat draws the other's luck.
    """
    table = table_for(game)
    luck = episode_luck(seed_key(seed), number)
    lucks = [seat_luck(luck, 1 - seat if is_swapped(match) else seat) for seat in SEATS]
    state = table.new(settings, luck) if state is None else state
    advisers_by_seat = dict(advisers or {})
    for seat, player in [*enumerate(players), *advisers_by_seat.items()]:
        player.begin(settings, seat, lucks[seat])
    recorder = EpisodeRecorder(game, settings, Stream(observers, episode_id), commentate or game.drawing.commentary)
    # published only in the last event: the seed determines the hidden values
    drawn = {"seed": seed, "number": number} | ({} if match is None else {"match": match})
    recorder.started(state, [player.name for player in players], about or {})
    history: list[Mapping[str, Any]] = []
    past: list[tuple[Any, tuple[tuple[int, ...] | None, ...]]] = []
    returns = np.zeros(2)
    try:
        turn = np.asarray(table.to_act(state))
        while turn.any():
            stop()
            scripted = script[len(past)] if len(past) < len(script) else (None, None)
            choices: list[Choice | None] = [None, None]
            for seat in np.flatnonzero(turn).tolist():
                view, masks = table.observe(settings, state, seat)
                asked = Turn(settings, seat, len(past), view, masks, list(history), lucks[seat])
                choices[seat] = _choice(
                    table, recorder, players[seat], advisers_by_seat.get(seat), asked, scripted[seat]
                )
            # no seat learns of the other's choice before both have chosen
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
    table: Table, recorder: EpisodeRecorder, player: Player, adviser: Player | None, turn: Turn, scripted: Choice | None
) -> Choice:
    """The recorded choice, or the player's own after it has heard its adviser."""
    if scripted is not None:
        follow = getattr(player, "follow", None)
        if follow is not None:
            follow(turn)
        if not table.is_legal(turn.masks, scripted.act):  # not this game, or not with these options
            raise BadInput(f"The record's act {list(scripted.act)} is not legal at step {turn.number}.")
        return scripted
    if adviser is not None:
        hint = ask(table, adviser, turn)
        recorder.hint(turn.seat, turn.number, hint)
        turn = turn._replace(hint=hint)
    request = _request(player, turn)
    if request is not None:
        recorder.turn_requested(turn.seat, turn.number, request)
    return ask(table, player, turn)


def _request(player: Player, turn: Turn) -> TurnRequest | None:
    """What the player publishes before it answers; None if it answers in this process, or fails here."""
    request = getattr(player, "request", None)
    try:
        return None if request is None else request(turn)
    except Exception:  # `choose` meets the same problem, and then the fallback bot plays
        return None


def ask(table: Table, player: Player, turn: Turn) -> Choice:
    """The player's choice; the fallback bot's, with the reason, if the player raises or its act is illegal."""
    began = time.perf_counter()
    try:
        choice = player.choose(turn)
        if table.is_legal(turn.masks, choice.act):
            return replace(choice, latency=choice.latency or time.perf_counter() - began)
        why, failed = f"illegal act {list(choice.act)}", PlayerFailed("", "illegal", usage=choice.usage)
    except (KeyboardInterrupt, EOFError):
        raise  # a person who quits is not a player that fails
    except Exception as error:  # a player is third-party code: whatever it raises, the game continues
        why = f"{type(error).__name__}: {error}"
        failed = error if isinstance(error, PlayerFailed) else PlayerFailed("", "error")
    latency = time.perf_counter() - began
    fallback_bot = copy.copy(_fallback_bot(table.game))  # other threads copy it as well
    fallback_bot.begin(turn.settings, turn.seat, turn.luck)
    chosen = replace(fallback_bot.choose(turn), latency=latency, fallback=why, failure=failed.kind)
    return replace(chosen, reason=failed.aside, usage=failed.usage)


def _pair(value: Array) -> tuple[float, float]:
    first, second = np.asarray(value, float).tolist()
    return first, second
