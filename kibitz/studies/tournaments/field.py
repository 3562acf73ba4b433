"""The field of a tournament: its players, ready to play any of its games, in this process or in a worker.

Bots play in compiled batches. Games with a player on the host run side by side, so that models are asked concurrently.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kibitz.advice.ask import PositionAsker
from kibitz.core.bots import seated
from kibitz.core.errors import BadInput, Stopped
from kibitz.core.game import Game
from kibitz.core.play.episode import play_episode
from kibitz.core.play.packs import Pack
from kibitz.core.play.player import BotPlayer, Player
from kibitz.core.play.resolve import pinned
from kibitz.core.work.parts import game_spec, spec_game
from kibitz.evaluate import match, packs
from kibitz.evaluate.match import side_of
from kibitz.evaluate.tally import Tallies
from kibitz.games import get_pack
from kibitz.llm.client.limits import Budget, BudgetTracker
from kibitz.llm.client.usage import UsageLedger
from kibitz.players.llm import LLMPlayer
from kibitz.studies.tournaments.journal import GameId, JournalledPlayer, Row

FORMAT = 1  # of the record; raise it when old records can no longer be continued
GAMES_AT_ONCE = 16  # with players on the host: the most calls that a preset makes at a time by default
MAX_PLAYERS = 64
MAX_EPISODES = 1_000_000
REPORT_SECONDS = 0.2  # between two reports of a batch
Add = Callable[[Row], None]


@dataclass(frozen=True)
class TournamentPlan:
    """What is played; `episodes` is the number of games of every pairing, an even number."""

    game: Game
    options: Any
    players: tuple[str, ...]
    episodes: int
    seed: int = 0
    pack: Pack | None = None
    money: float | None = None  # all models together stop here; None: no limit
    command: str = ""

    def header(self) -> dict[str, Any]:
        """What a resumed tournament must have in common with the first one."""
        return {
            "kind": "tournament",
            "format": FORMAT,
            **game_spec(self.game, None if self.pack else self.options),
            "pack": None if self.pack is None else self.pack.name,
            "players": list(self.players),
            "seed": self.seed,
        }

    def spec(self) -> dict[str, Any]:
        """From which a worker builds the same field."""
        return self.header() | {"found_as": [pinned(self.game, name) for name in self.players]}

    def check(self) -> None:
        names = self.players
        if not 2 <= len(names) <= MAX_PLAYERS:
            raise BadInput(f"A tournament has 2 to {MAX_PLAYERS} players; --players names {len(names)}.")
        if double := next((name for name in names if names.count(name) > 1), None):
            raise BadInput(f"--players names {double} twice; name every player once.")
        if self.episodes < 2 or self.episodes % 2 or self.episodes > MAX_EPISODES:
            raise BadInput(
                f"episodes is {self.episodes}; it must be an even number up to {MAX_EPISODES:,}, because every "
                "deal is played from both seats."
            )
        if self.money is not None and not self.money >= 0:
            raise BadInput(f"--budget-money is {self.money}; it must be at least 0.")


class TournamentField:
    """The players of a plan. Raises BadInput for one that cannot play."""

    def __init__(self, plan: TournamentPlan, found_as: Sequence[str] = (), spent: float = 0.0) -> None:
        """`found_as` are the names under which the players are found here; `spent` is money of earlier sessions."""
        self.plan = plan
        self.found_as = dict(zip(plan.players, found_as or plan.players, strict=True))
        self.sides = {name: side_of(plan.game, self.found_as[name]) for name in plan.players}
        self._seated: dict[Any, Any] = {}
        self._own = threading.local()  # players with a memory: one set for each thread
        self._closing = ExitStack()
        self._budget = BudgetTracker(Budget(money=plan.money))  # of all models and all sessions together
        self._budget.ledgers.append(UsageLedger(money=spent))
        self._models = {name: self._within_budget(side.player) for name, side in self.sides.items()}

    @property
    def hints_from(self) -> dict[str, str]:
        return {name: str(side.about["hints_from"]) for name, side in self.sides.items()}

    def compiled(self, one: str, other: str) -> bool:
        return self.sides[one].bot is not None and self.sides[other].bot is not None

    def close(self) -> None:
        self._closing.close()

    def batch(self, one: str, other: str, first: int, count: int, report: Callable[[int], None]) -> list[list[float]]:
        """What both players earned in games `first` to `first + count`; reports the number of games so far."""
        done, shown = 0, time.monotonic()

        def progress(games: int) -> None:
            nonlocal done, shown
            done += games
            if time.monotonic() - shown > REPORT_SECONDS:
                shown = time.monotonic()
                report(done)

        first_bot, second_bot = self.sides[one].bot, self.sides[other].bot
        assert first_bot is not None and second_bot is not None
        bots, plan = (first_bot, second_bot), self.plan
        if plan.pack is not None:
            pack = replace(plan.pack, regret=None)
            return _rows(packs.play_bots(plan.game, pack, bots, count, plan.seed, progress, first).returns)
        returns = np.zeros((count // 2, 2, 2))  # pair, game of the pair, player
        for swapped, names in enumerate(((one, other), (other, one))):
            settings = self._settings(names, plan.options)
            order = (bots[swapped], bots[1 - swapped])
            played = match.play_bots(plan.game, settings, order, count // 2, plan.seed, progress, start=first // 2)
            returns[:, swapped] = played.returns[:, ::-1] if swapped else played.returns
        return _rows(returns.reshape(-1, 2))

    def on_host(self, games: Iterable[GameId], known: Mapping[GameId, Sequence[Row]], add: Add) -> str:
        """Adds a row for each decision and each game as they end; returns why games are missing, if any are."""
        running = set()
        session = _HostSession(self, known, add)
        pool = ThreadPoolExecutor(GAMES_AT_ONCE, thread_name_prefix="tournament")
        try:
            for game in games:
                running.add(pool.submit(session.play, game))
                if len(running) >= GAMES_AT_ONCE:
                    ended, running = wait(running, return_when=FIRST_COMPLETED)
                    for future in ended:
                        future.result()
                if session.stopping.is_set():
                    break
            for future in running:
                future.result()
        finally:  # an error or Ctrl-C: games in progress end before their next step, and continue with --resume
            session.stopping.set()
            pool.shutdown(wait=False, cancel_futures=True)
        return session.unfinished

    def deal(self, game: GameId) -> dict[str, Any]:
        """Settings, position and luck of a game; both games of a pair have the same."""
        one, other, number = game
        pack = self.plan.pack
        if pack is None:
            names = (one, other) if number % 2 == 0 else (other, one)
            settings = self._settings(names, self.plan.options)
            return {"settings": settings, "seed": self.plan.seed, "number": number // 2}
        at = number % pack.matches
        scenario, (seed, luck) = pack.scenario(at), packs.luck_of(pack, number, self.plan.seed)
        settings = self._settings((one, other), scenario.options)
        return {"settings": settings, "seed": seed, "number": luck, "state": scenario.state, "match": at}

    def _settings(self, names: tuple[str, str], options: Any) -> Any:
        """With what bots in these seats disclose; they compute their tables once for many games."""
        if (names, options) not in self._seated:
            bots = {seat: bot for seat, name in enumerate(names) if (bot := self.sides[name].bot) is not None}
            self._seated[names, options] = seated(options.settings(), bots)
        return self._seated[names, options]

    def player(self, name: str, game: GameId, known: Sequence[Row], add: Add) -> Player:
        """For one game: a bot with a memory of its own, or a player whose answers are recorded."""
        side = self.sides[name]
        if isinstance(side.player, BotPlayer):
            return copy(side.player)
        if isinstance(self._models[name], LLMPlayer):
            return JournalledPlayer(self._models[name], game, known, add)  # it keeps no state
        own: dict[str, Player] = vars(self._own).setdefault("players", {})
        if name not in own:
            own[name] = side_of(self.plan.game, self.found_as[name]).player
        return JournalledPlayer(own[name], game, known, add)

    def _within_budget(self, player: Player) -> Player:
        """The same model with a client that sends nothing beyond what is left to spend."""
        if self.plan.money is None or not isinstance(player, LLMPlayer):
            return player
        preset = player.name.partition(":")[2]
        asker = PositionAsker(self.plan.game, preset, budget=self._budget)
        return LLMPlayer(preset, self._closing.enter_context(asker))


def _rows(returns: NDArray[np.float64]) -> list[list[float]]:
    rows: list[list[float]] = np.asarray(returns).tolist()
    return rows


class _HostSession:
    """Games that threads of one process play at the same time."""

    def __init__(self, field: TournamentField, known: Mapping[GameId, Sequence[Row]], add: Add) -> None:
        self.field, self.known, self.add = field, known, add
        self.stopping = threading.Event()
        self.unfinished = ""

    def play(self, game: GameId) -> None:
        if self.stopping.is_set():
            return
        one, other, number = game
        plan, known = self.field.plan, self.known.get(game, ())
        players = [self.field.player(name, game, known, self.add) for name in (one, other)]
        in_seats = players if plan.pack is not None or number % 2 == 0 else players[::-1]
        tallies = Tallies()
        try:
            episode = play_episode(
                plan.game,
                players=in_seats,
                observers=(tallies.observe,),
                stop=lambda: self._stop_if_asked(players),
                **self.field.deal(game),
            )
            self._stop_if_asked(players)
        except Stopped:
            return
        seats = (0, 1) if in_seats is players else (1, 0)  # of the first and the second player
        self.add(
            {
                "kind": "games",
                "one": one,
                "other": other,
                "first": number,
                "returns": [[float(episode.returns[seat]) for seat in seats]],
                "tallies": [vars(tallies.seats[seat]) for seat in seats],
            }
        )

    def _stop_if_asked(self, players: list[Player]) -> None:
        """A turn that the budget denied was not the player's failure, so its game does not count."""
        if any(isinstance(player, JournalledPlayer) and player.out_of_budget for player in players):
            self.unfinished = f"the budget of {self.field.plan.money:g} is spent"
            self.stopping.set()
        if self.stopping.is_set():
            raise Stopped("the tournament stops", "interrupted")


def field_of(spec: Mapping[str, Any]) -> TournamentField:
    """In a worker: the field of `TournamentPlan.spec`."""
    game, options = spec_game(spec)
    found = None if spec["pack"] is None else get_pack(game.name, spec["pack"])
    plan = TournamentPlan(game, options, tuple(spec["players"]), 2, spec["seed"], found)
    return TournamentField(plan, spec["found_as"])


def play_part(field: TournamentField, part: Mapping[str, Any], report: Callable[[Any], None]) -> Any:
    """An item of work: a batch of compiled games, or games on the host, whose rows it reports."""
    if "games" not in part:
        return field.batch(part["one"], part["other"], part["first"], part["count"], report)
    known: dict[GameId, list[Row]] = {}
    for row in part["decisions"]:
        known.setdefault((row["one"], row["other"], row["match"]), []).append(row)
    games = [
        (one, other, number) for one, other, number in part["games"] if [one, other, number] not in part["finished"]
    ]
    return field.on_host(games, known, report)
