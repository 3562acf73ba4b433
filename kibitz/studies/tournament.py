"""A tournament: every player meets every other in pairs of games with the same luck and the seats swapped.

Bots play in compiled batches. Games with a player on the host run side by side, so that models are asked concurrently.
Every finished game or batch is on disk before the next one counts on it, so an interrupted tournament continues.
"""

from __future__ import annotations

import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from kibitz.advice.ask import PositionAsker
from kibitz.core.bots import seated
from kibitz.core.errors import BadInput, Stopped
from kibitz.core.game import Game
from kibitz.core.play.episode import play_episode
from kibitz.core.play.packs import Pack
from kibitz.core.play.player import BotPlayer, Player
from kibitz.evaluate import match, packs
from kibitz.evaluate.match import CHUNK, Progress, Side, side_of
from kibitz.evaluate.tally import Tallies
from kibitz.llm.client.limits import Budget, BudgetTracker
from kibitz.llm.client.usage import UsageLedger
from kibitz.players.llm import LLMPlayer
from kibitz.studies.journal import FILE, GameId, Journal, JournalledPlayer, is_begun
from kibitz.train.folder import new_folder, written_by_us

FORMAT = 1  # of the record; raise it when old records can no longer be continued
GAMES_AT_ONCE = 16  # with players on the host: the most calls that a preset makes at a time by default
MAX_PLAYERS = 64
MAX_EPISODES = 1_000_000


@dataclass(frozen=True)
class Plan:
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
            "game": self.game.name,
            "game_version": self.game.version,
            "options": None if self.pack else self.options.model_dump(mode="json"),
            "pack": None if self.pack is None else self.pack.name,
            "players": list(self.players),
            "seed": self.seed,
        }

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


@dataclass
class Played:
    """Every row of the record, in a fixed order."""

    rows: list[dict[str, Any]]
    command: str  # that began the tournament
    unfinished: str = ""  # why games are missing


def play(plan: Plan, folder: Path, resume: bool = False, progress: Progress = lambda count: None) -> Played:
    """Plays what the record in the folder lacks. Raises BadInput before anything is played."""
    plan.check()
    sides = {name: side_of(plan.game, name) for name in plan.players}
    _prepare(folder, resume)
    with written_by_us(folder), Journal(folder) as journal:
        _continue(journal, plan, folder)
        with ExitStack() as closing:
            return _Session(plan, sides, journal, progress, closing).run()


def stored_header(folder: Path) -> dict[str, Any]:
    """What the tournament in this folder plays, for a command that only says `--resume`."""
    _prepare(folder, resume=True)
    with written_by_us(folder), Journal(folder) as journal:
        return journal.header


def _prepare(folder: Path, resume: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is a file; --out must name a folder.")
    with new_folder(folder):
        begun = is_begun(folder)
        others = folder.is_dir() and any(path.name != FILE for path in folder.iterdir())
    if resume and not begun:
        raise BadInput(f"There is no tournament to resume in {folder}; start it without --resume.")
    if (begun or others) and not resume:
        raise BadInput(f"{folder} is not empty; choose another --out, or --resume the tournament in it.")
    with new_folder(folder):
        folder.mkdir(parents=True, exist_ok=True)


def _continue(journal: Journal, plan: Plan, folder: Path) -> None:
    """More or fewer games may be wanted than at first, and another budget; everything else must be the same."""
    wanted, more = plan.header(), {"episodes": plan.episodes, "money": plan.money}
    if not journal.header:
        journal.add(wanted | more | {"command": plan.command})
        return
    for name, value in wanted.items():
        if journal.header.get(name) != value:
            raise BadInput(
                f"The tournament in {folder} has {name.replace('_', ' ')} {journal.header.get(name)!r}, not {value!r}; "
                "choose another --out."
            )
    if any(journal.header.get(name) != value for name, value in more.items()):
        journal.add(journal.header | more)


class _Session:
    """Plays the missing games of a plan."""

    def __init__(
        self, plan: Plan, sides: dict[str, Side], journal: Journal, progress: Progress, closing: ExitStack
    ) -> None:
        self.plan, self.sides, self.journal, self.progress = plan, sides, journal, progress
        self.done = {
            (row["one"], row["other"], row["first"] + i) for row in journal.games for i in range(len(row["returns"]))
        }
        self.unfinished = ""
        self.stopping = threading.Event()
        self._seated: dict[Any, Any] = {}
        self._own = threading.local()  # players with a memory: one set for each thread
        self._budget = BudgetTracker(Budget(money=plan.money))  # of all models and all sessions together
        self._budget.ledgers.append(UsageLedger(money=journal.money))
        self._models = {name: self._within_budget(side.player, closing) for name, side in sides.items()}

    def run(self) -> Played:
        pairings = list(combinations(self.plan.players, 2))
        self.progress(len([game for game in self.done if game[2] < self.plan.episodes]))
        waiting: list[GameId] = []
        for one, other in pairings:
            if self.sides[one].bot is None or self.sides[other].bot is None:
                waiting += [(one, other, i) for i in range(self.plan.episodes) if (one, other, i) not in self.done]
            else:
                self._compiled(one, other)
        self._on_host(waiting)
        places = {pairing: place for place, pairing in enumerate(pairings)}
        rows = [row for row in self.journal.games if row["first"] < self.plan.episodes]
        rows.sort(key=lambda row: (places[row["one"], row["other"]], row["first"]))
        return Played(rows, self.journal.header.get("command", ""), self.unfinished)

    def _compiled(self, one: str, other: str) -> None:
        missing = [i for i in range(self.plan.episodes) if (one, other, i) not in self.done]
        if not missing:
            return
        first_bot, second_bot = self.sides[one].bot, self.sides[other].bot
        assert first_bot is not None and second_bot is not None
        bots = (first_bot, second_bot)
        if self.plan.pack is not None:
            pack = replace(self.plan.pack, regret=None)
            found = packs.play_bots(self.plan.game, pack, bots, self.plan.episodes, self.plan.seed, self.progress)
            self._commit(one, other, missing[0], found.returns[missing[0] :])
            return
        first = missing[0] // 2
        while first < self.plan.episodes // 2:  # pairs
            count = min(CHUNK, self.plan.episodes // 2 - first)
            returns = np.zeros((count, 2, 2))  # pair, game of the pair, player
            for swapped, names in enumerate(((one, other), (other, one))):
                settings = self._settings(names, self.plan.options)
                order = (bots[swapped], bots[1 - swapped])
                played = match.play_bots(
                    self.plan.game, settings, order, count, self.plan.seed, self.progress, start=first
                )
                returns[:, swapped] = played.returns[:, ::-1] if swapped else played.returns
            self._commit(one, other, 2 * first, returns.reshape(-1, 2))
            first += count

    def _commit(self, one: str, other: str, first: int, returns: Any) -> None:
        self.journal.add(
            {"kind": "games", "one": one, "other": other, "first": first, "returns": np.asarray(returns).tolist()}
        )

    def _on_host(self, waiting: list[GameId]) -> None:
        """Returns early once the budget is spent."""
        if not waiting:
            return
        games, running = iter(waiting), set()
        pool = ThreadPoolExecutor(GAMES_AT_ONCE, thread_name_prefix="tournament")
        try:
            for game in games:
                running.add(pool.submit(self._host_game, game))
                if len(running) >= GAMES_AT_ONCE:
                    ended, running = wait(running, return_when=FIRST_COMPLETED)
                    for future in ended:
                        future.result()
                if self.stopping.is_set():
                    break
            for future in running:
                future.result()
        finally:  # an error or Ctrl-C: games in progress end before their next step, and continue with --resume
            self.stopping.set()
            pool.shutdown(wait=False, cancel_futures=True)

    def _host_game(self, game: GameId) -> None:
        if self.stopping.is_set():
            return
        one, other, number = game
        players = [self._player(name, game) for name in (one, other)]
        in_seats = players if self.plan.pack is not None or number % 2 == 0 else players[::-1]
        tallies = Tallies()
        try:
            episode = play_episode(
                self.plan.game,
                players=in_seats,
                observers=(tallies.observe,),
                stop=lambda: self._stop_if_asked(players),
                **self._deal(game),
            )
            self._stop_if_asked(players)
        except Stopped:
            return
        seats = (0, 1) if in_seats is players else (1, 0)  # of the first and the second player
        self.journal.add(
            {
                "kind": "games",
                "one": one,
                "other": other,
                "first": number,
                "returns": [[float(episode.returns[seat]) for seat in seats]],
                "tallies": [vars(tallies.seats[seat]) for seat in seats],
            }
        )
        self.progress(1)

    def _deal(self, game: GameId) -> dict[str, Any]:
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

    def _player(self, name: str, game: GameId) -> Player:
        """For one game: a bot with a memory of its own, or a player whose answers are recorded."""
        side = self.sides[name]
        if isinstance(side.player, BotPlayer):
            return copy(side.player)
        if name in self._models and isinstance(self._models[name], LLMPlayer):
            return JournalledPlayer(self._models[name], game, self.journal)  # it keeps no state
        own: dict[str, Player] = vars(self._own).setdefault("players", {})
        if name not in own:
            own[name] = side_of(self.plan.game, name).player
        return JournalledPlayer(own[name], game, self.journal)

    def _within_budget(self, player: Player, closing: ExitStack) -> Player:
        """The same model with a client that sends nothing beyond what is left to spend."""
        if self.plan.money is None or not isinstance(player, LLMPlayer):
            return player
        preset = player.name.partition(":")[2]
        asker = PositionAsker(self.plan.game, preset, budget=self._budget)
        return LLMPlayer(preset, closing.enter_context(asker))

    def _stop_if_asked(self, players: list[Player]) -> None:
        """A turn that the budget denied was not the player's failure, so its game does not count."""
        if any(isinstance(player, JournalledPlayer) and player.out_of_budget for player in players):
            self.unfinished = f"the budget of {self.plan.money:g} is spent"
            self.stopping.set()
        if self.stopping.is_set():
            raise Stopped("the tournament stops", "interrupted")
