"""Plays one episode on the host: players of any kind, observers, events."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jax
import numpy as np
from jax import Array

from kibitz.core.act import is_legal
from kibitz.core.chance import episode_luck, seat_luck, seed_key, uniforms
from kibitz.core.event import Event, Observer, Stream
from kibitz.core.game import SEATS, Game
from kibitz.core.player import Choice, Player, RulePlayer, Turn


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
        self.new = jax.jit(lambda settings, luck: game.new(settings, uniforms(luck, 0, game.new_uniforms)))
        self.step = jax.jit(
            lambda settings, state, acts, luck, number: game.step(
                settings, state, acts, uniforms(luck, number + 1, game.step_uniforms)
            )
        )
        self.score = jax.jit(game.score)
        self.to_act = jax.jit(game.to_act)
        self._look = jax.jit(
            lambda settings, state, seat: (game.view(settings, state, seat), game.legal(settings, state, seat)),
            static_argnums=2,
        )
        self._legal = jax.jit(lambda masks, act: is_legal(masks, act, game.matters))

    def look(self, settings: Any, state: Any, seat: int) -> tuple[Any, tuple[np.ndarray[Any, Any], ...]]:
        view, masks = self._look(settings, state, seat)
        return jax.device_get(view), tuple(np.asarray(mask) for mask in masks)

    def is_legal(self, masks: Any, act: tuple[int, ...]) -> bool:
        return len(act) == len(masks) and bool(self._legal(masks, act))


@cache
def table_for(game: Game) -> Table:
    return Table(game)


@cache
def _stand_in(game: Game) -> RulePlayer:
    return RulePlayer(game, game.rule("heuristic"))


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
    swapped: bool = False,
) -> Episode:
    """Episode `number` of a seed, the same one that a batched evaluation plays under that number.

    A player that raises or gives an illegal act is replaced for that turn by the heuristic, and the
    decision event says why. `state` begins somewhere else than at a fresh deal. `swapped` lets each
    seat draw the other's luck, as in the second match of a pair.
    """
    table = table_for(game)
    luck = episode_luck(seed_key(seed), number)
    lucks = [seat_luck(luck, 1 - seat if swapped else seat) for seat in SEATS]
    state = table.new(settings, luck) if state is None else state
    stream = Stream(observers, episode_id)
    for seat, player in enumerate(players):
        player.begin(settings, seat, lucks[seat])
    stream.emit("episode.started", _opening(game, settings, state, players))
    history: list[Mapping[str, Any]] = []
    returns, steps = np.zeros(2), 0
    turn = np.asarray(table.to_act(state))
    while turn.any():
        acts: list[tuple[int, ...] | None] = [None, None]
        for seat in np.flatnonzero(turn).tolist():
            view, masks = table.look(settings, state, seat)
            asked = Turn(settings, seat, steps, view, masks, list(history), lucks[seat])
            choice = _ask(table, players[seat], asked)
            acts[seat] = choice.act
            stream.emit("decision", _decision(game, seat, steps, choice))
        given = [act or acts[1 - seat] for seat, act in enumerate(acts)]
        state, rewards, _ = table.step(settings, state, tuple(given), luck, steps)
        returns += np.asarray(rewards, float)
        for seat in np.flatnonzero(turn).tolist():
            history.append({"seat": seat, "act": acts[seat]})
            stream.emit("step", _happened(game, settings, state, seat, steps, acts[seat]))
        steps += 1
        turn = np.asarray(table.to_act(state))
    scores = {name: _pair(value) for name, value in table.score(settings, state).items()}
    # the seed comes last: whoever has it can deal the hidden values again
    drawn = {"seed": seed, "number": number, "steps": steps}
    stream.emit("episode.ended", _ending(game, settings, state, returns, scores) | drawn)
    return Episode(
        stream.episode_id, tuple(stream.events), (float(returns[0]), float(returns[1])), scores, steps, state
    )


def _ask(table: Table, player: Player, turn: Turn) -> Choice:
    began = time.perf_counter()
    try:
        choice = player.choose(turn)
        why = "" if table.is_legal(turn.masks, choice.act) else f"illegal act {list(choice.act)}"
    except (KeyboardInterrupt, EOFError):
        raise  # a person who leaves is not a player who fails
    except Exception as error:  # a player is somebody else's code; whatever it raises, the game goes on
        why = f"{type(error).__name__}: {error}"
    latency = time.perf_counter() - began
    if not why:
        return replace(choice, latency=choice.latency or latency)
    stand_in = _stand_in(table.game)
    stand_in.begin(turn.settings, turn.seat, turn.luck)
    return replace(stand_in.choose(turn), latency=latency, fallback=why)


def _opening(game: Game, settings: Any, state: Any, players: Sequence[Player]) -> dict[str, Any]:
    return {
        "game": game.name,
        "version": game.version,
        "players": [player.name for player in players],
        "frame": game.frame(settings, state, None),
        "private": _secrets(game, state),
    }


def _decision(game: Game, seat: int, number: int, choice: Choice) -> dict[str, Any]:
    return {
        "seat": seat,
        "turn": number,
        "act": list(choice.act),
        "text": game.say(choice.act),
        "source": choice.source,
        "reason": choice.reason,
        "latency": choice.latency,
        "usage": dict(choice.usage),
        "fallback": choice.fallback,
    }


def _happened(
    game: Game, settings: Any, state: Any, seat: int, number: int, act: tuple[int, ...] | None
) -> dict[str, Any]:
    return {"seat": seat, "turn": number, "act": list(act or ()), "frame": game.frame(settings, state, None)}


def _ending(
    game: Game, settings: Any, state: Any, returns: Any, scores: Mapping[str, tuple[float, float]]
) -> dict[str, Any]:
    return {
        "returns": [float(x) for x in returns],
        # a measure that does not apply (the Pareto share of no deal) is null, which JSON can say
        "scores": {name: [None if x != x else x for x in pair] for name, pair in scores.items()},
        "frame": game.frame(settings, state, None),
        "private": _secrets(game, state),
    }


def _secrets(game: Game, state: Any) -> dict[str, Any]:
    return {str(seat): dict(game.private(state, seat)) for seat in SEATS}


def _pair(value: Array) -> tuple[float, float]:
    first, second = np.asarray(value, float).tolist()
    return first, second
