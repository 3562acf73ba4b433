"""Plays episodes in background threads, as many at once as the configuration allows."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kibitz.core.errors import Stopped
from kibitz.core.registry import import_jax
from kibitz.live.config import LiveConfig
from kibitz.live.episodes.janitor import fail_episode
from kibitz.live.episodes.request import EpisodeRequest
from kibitz.live.episodes.timeouts import StopSignal, TimeLimitedPlayer
from kibitz.live.store.base import EpisodeClosed, Row, SequenceGap, StoreUnavailable
from kibitz.live.stream.bus import Bus
from kibitz.live.stream.bus_observer import BusObserver, TextToSpeech, episode_log
from kibitz.live.stream.outlets import LocalOutlet

if TYPE_CHECKING:
    from kibitz.core.play.player import Player
    from kibitz.live.episodes.branch import BranchPoint
    from kibitz.live.episodes.human_seat import HumanSeat
    from kibitz.live.episodes.prepare import PreparedEpisode

log = logging.getLogger("kibitz.live")
DRAIN_POLL_SECONDS = 0.1
SHUTDOWN_SECONDS = 5.0  # that an episode has to write its last event when the server closes


class Busy(Exception):
    """The server already plays as many episodes as it may; `current` describes the newest."""

    def __init__(self, current: dict[str, Any]) -> None:
        super().__init__("An episode is already running; stop it or wait for its end.")
        self.current = current


def new_episode_id() -> str:
    return f"ep-{secrets.token_hex(6)}"


@dataclass(eq=False)
class RunningEpisode:
    """One episode that this server plays. Its id is the same in every event, in the store and in addresses."""

    episode_id: str
    game: str
    players: tuple[str, str]
    started_at: float  # seconds since 1970
    started_by: str = ""  # the name beside the token that started it
    signal: StopSignal = field(default_factory=StopSignal)
    seats: dict[str, tuple[int, HumanSeat]] = field(
        default_factory=dict
    )  # by token, which begins with the seat's number
    open_table: bool = False
    players_in_seats: tuple[Player, ...] = ()
    done: threading.Event = field(default_factory=threading.Event)
    note: str = ""  # how the episode differs from what was asked

    def meta(self) -> dict[str, Any]:
        return {
            "episode_id": self.episode_id,
            "game": self.game,
            "players": list(self.players),
            "captain": self.players[0],
            "opponent": self.players[1],
            "started_at": self.started_at,
        }


class ShuttingDown(Exception):
    """The server accepts no more episodes."""

    def __init__(self) -> None:
        super().__init__("The server is shutting down; start the episode again in a few seconds.")


class NotYours(Exception):
    """Someone else started the episode."""

    def __init__(self) -> None:
        super().__init__("Someone else started that episode; only they and administrators may stop it.")


class Runner:
    """Checks for a free slot and claims it in one step."""

    def __init__(self, bus: Bus, config: LiveConfig, speech: TextToSpeech | None = None) -> None:
        self.bus, self.config, self.speech = bus, config, speech
        episode_log()  # a bad level is an error at startup
        self.running: dict[str, RunningEpisode] = {}
        self.played = 0
        self._guard = threading.Lock()
        self.closing = False  # no more episodes begin
        _RUNNERS[bus] = self

    def claim(self, game: str, players: tuple[str, str], started_by: str = "") -> RunningEpisode:
        episode = RunningEpisode(new_episode_id(), game, players, time.time(), started_by)
        with self._guard:
            if self.closing:
                raise ShuttingDown
            if len(self.running) >= self.config.max_episodes:
                raise Busy(next(reversed(self.running.values())).meta())
            self.running[episode.episode_id] = episode
        return episode

    async def start(
        self, request: EpisodeRequest, branch: BranchPoint | None = None, started_by: str = ""
    ) -> RunningEpisode:
        """Checks the request, claims a slot and starts; BadInput, Busy or StoreUnavailable leave no trace."""
        request = await asyncio.to_thread(request.completed, self.config.default_game, any_opponent=True)
        episode = self.claim(request.game, request.seats, started_by)
        episode.note = request.note
        try:
            prepared = await asyncio.to_thread(self._begin, request, branch, episode)
        except BaseException:
            self._release(episode)
            raise
        if episode.note:
            log.warning("episode %s: %s", episode.episode_id, episode.note)
        name = f"episode {episode.episode_id}"
        threading.Thread(target=self._play, args=(prepared, episode), name=name, daemon=True).start()
        return episode

    def stop(self, episode_id: str | None, only_of: str | None = None) -> str | None:
        """Stops this episode, or the newest one; returns its id, or None if it is not running.

        `only_of`: raises NotYours unless this is who started it.
        """
        with self._guard:
            episode = self.running.get(episode_id or next(reversed(self.running), ""))
        if episode is None:
            return None
        if only_of not in (None, episode.started_by):
            raise NotYours
        episode.signal.stop("A request stopped the episode.")
        return episode.episode_id

    async def drain(self, seconds: float, hurry: Callable[[], bool]) -> None:
        """Accepts no more episodes and waits for the end of those that run, at most `seconds` or until `hurry()`."""
        with self._guard:
            self.closing = True
        ends = time.monotonic() + seconds
        while self.running and time.monotonic() < ends and not hurry():
            await asyncio.sleep(DRAIN_POLL_SECONDS)

    async def close(self) -> None:
        """Ends every episode and waits for their last events."""
        with self._guard:
            self.closing = True
            running = list(self.running.values())
        for episode in running:
            episode.signal.stop("The server is shutting down.", "shutdown")
        for episode in running:
            await asyncio.to_thread(episode.done.wait, SHUTDOWN_SECONDS)

    def seat_of(self, episode_id: str, token: str | None) -> tuple[int, HumanSeat] | None:
        """The seat that this token opens; its person has joined."""
        episode = self.running.get(episode_id)
        found = episode.seats.get(token) if episode is not None and token else None
        if found is not None:
            found[1].join()
        return found

    def thinker(self, episode_id: str, seat: int, turn: int) -> TimeLimitedPlayer | None:
        """The player of an open table that is working on this turn here."""
        episode = self.running.get(episode_id)
        if episode is None or not episode.open_table or seat >= len(episode.players_in_seats):
            return None
        player = episode.players_in_seats[seat]
        return player if isinstance(player, TimeLimitedPlayer) and player.thinking_about == turn else None

    def _begin(self, request: EpisodeRequest, branch: BranchPoint | None, episode: RunningEpisode) -> PreparedEpisode:
        import_jax()
        from kibitz.core.play.resolve import Resolver
        from kibitz.live.episodes.prepare import Limits, prepare

        config = self.config
        limits = Limits(Resolver(config.runs), False, config.player_timeout, config.human_seconds)
        prepared = prepare(request, limits, episode.signal, branch)
        episode.open_table = prepared.request.shows_hands
        episode.players_in_seats = prepared.players
        episode.seats = {
            f"{seat}-{secrets.token_urlsafe(24)}": (seat, human) for seat, human in prepared.humans.items()
        }
        self.bus.begin(
            Row(
                episode.episode_id, episode.game, episode.players, episode.started_at, open_table=episode.open_table,
                about=prepared.about, secret=prepared.secret, owner=self.bus.store.owner,
            )
        )  # fmt: skip
        return prepared

    def _play(self, prepared: PreparedEpisode, episode: RunningEpisode) -> None:
        from kibitz.live.voice.commentator import commentator_for

        request, episode_id = prepared.request, episode.episode_id
        observer = BusObserver(
            episode_id=episode_id, tts=self.speech if request.enable_tts else None, outlet=LocalOutlet(self.bus),
            open_table=request.shows_hands,
        )  # fmt: skip
        pace = self.config.pace if request.pace is None else request.pace
        pacer = Pacer(episode.signal, pace, 0 if prepared.branch is None else len(prepared.branch.script))
        try:
            commentate = commentator_for(prepared.game, self.config.commentator)
            prepared.play((observer,), pacer, episode_id=episode_id, commentate=commentate)
        except Stopped:
            log.info("episode %s was stopped: %s", episode_id, episode.signal.reason)
        except (StoreUnavailable, SequenceGap, EpisodeClosed) as error:
            log.error("episode %s cannot be recorded: %s", episode_id, error)
            away = isinstance(error, StoreUnavailable)  # its message may name addresses and paths
            reason = "The store was unavailable for too long." if away else str(error)
            fail_episode(self.bus, episode_id, "error", reason, lambda: self.closing)
        except Exception as error:
            log.exception("episode %s failed", episode_id)
            reason = f"The server failed ({type(error).__name__}); its log says why."
            fail_episode(self.bus, episode_id, "error", reason, lambda: self.closing)
        finally:
            self.played += 1
            self._release(episode)

    def _release(self, episode: RunningEpisode) -> None:
        with self._guard:
            self.running.pop(episode.episode_id, None)
        episode.done.set()


class Pacer:
    """Called before every step: waits for `seconds` between steps, and ends the episode once it is stopped.

    The first `known` steps come from a record that people have seen, so they need no pause.
    """

    def __init__(self, signal: StopSignal, seconds: float, known: int = 0) -> None:
        self._signal, self._seconds, self._known = signal, seconds, known
        self._last = 0.0

    def __call__(self) -> None:
        wait = self._last + self._seconds - time.monotonic() if self._last else 0.0
        if self._known > 0:
            self._known, wait = self._known - 1, 0.0
        if wait > 0:
            self._signal.wait(wait)
        if self._signal.is_set():
            raise Stopped(self._signal.reason, self._signal.kind)
        self._last = time.monotonic()


_RUNNERS: weakref.WeakKeyDictionary[Bus, Runner] = weakref.WeakKeyDictionary()


def runner_for(bus: Bus) -> Runner:
    return _RUNNERS.get(bus) or Runner(bus, LiveConfig(pace=0.0))


def is_running(bus: Bus | None = None) -> dict[str, Any] | None:
    """Metadata of the episode that was started last, or None if nothing runs."""
    runners = list(_RUNNERS.values())
    for runner in runners if bus is None else [one for one in runners if one.bus is bus]:
        for episode in reversed(list(runner.running.values())):
            return episode.meta()
    return None


async def run_episode_in_proc(
    bus: Bus,
    captain_preset: str = "",
    opponent_choice: str = "",
    max_overs: int | None = None,
    eval_pack_id: str | None = None,
    enable_tts: bool = True,
    game: str = "",
    **more: Any,
) -> dict[str, Any]:
    """Plays one episode to its end; `{"error", "current"}` if another one runs. `more`: fields of EpisodeRequest."""
    named = {"captain_preset": captain_preset, "opponent_choice": opponent_choice, "game": game}
    request = EpisodeRequest.read(
        **{key: value for key, value in named.items() if value}, max_overs=max_overs, eval_pack_id=eval_pack_id,
        enable_tts=enable_tts, **more,
    )  # fmt: skip
    try:
        episode = await runner_for(bus).start(request)
    except Busy as busy:
        return {"error": str(busy), "current": busy.current}
    await asyncio.to_thread(episode.done.wait)
    row = await asyncio.to_thread(bus.store.episode, episode.episode_id)
    assert row is not None
    note = {"note": episode.note} if episode.note else {}
    return {"episode_id": episode.episode_id, **row.shown(), **note}
