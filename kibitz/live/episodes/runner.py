"""Plays episodes in the background: one at a time unless told otherwise, off the server's event loop."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kibitz.core.errors import BadInput
from kibitz.core.play.events import Event
from kibitz.live.config import LiveConfig
from kibitz.live.episodes.halt import Halt
from kibitz.live.store.base import EpisodeClosed, Row, SequenceGap, StoreUnavailable
from kibitz.live.store.stored_event import StoredEvent, decode_event, fold
from kibitz.live.stream.bus import Bus
from kibitz.live.stream.bus_observer import BusObserver, TextToSpeech
from kibitz.live.stream.outlets import LocalOutlet

if TYPE_CHECKING:
    from kibitz.live.episodes.human_seat import HumanSeat
    from kibitz.live.episodes.prepare import Plan, Wish

log = logging.getLogger("kibitz.live")


class Busy(Exception):
    """As many episodes run as may; `current` says what runs."""

    def __init__(self, current: dict[str, Any]) -> None:
        super().__init__("An episode is already running; stop it or wait for its end.")
        self.current = current


@dataclass(eq=False)
class Live:
    """One episode that is being played. Its id is the id everywhere."""

    episode_id: str
    game: str
    players: tuple[str, str]
    started_at: float
    halt: Halt = field(default_factory=Halt)
    seats: dict[str, tuple[int, HumanSeat]] = field(default_factory=dict)  # by token
    done: threading.Event = field(default_factory=threading.Event)
    failed: str = ""

    def meta(self) -> dict[str, Any]:
        return {
            "episode_id": self.episode_id,
            "game": self.game,
            "players": list(self.players),
            "captain": self.players[0],
            "opponent": self.players[1],
            "started_at": self.started_at,
        }


class Runner:
    """The check for a free place and the claim of it are one step."""

    def __init__(self, bus: Bus, config: LiveConfig, speech: TextToSpeech | None = None) -> None:
        self.bus, self.config, self.speech = bus, config, speech
        self.running: dict[str, Live] = {}
        self.played = 0
        self._guard = threading.Lock()
        self._closing = False
        _RUNNERS[bus] = self

    def claim(self, game: str, players: tuple[str, str]) -> Live:
        live = Live(f"ep-{secrets.token_hex(6)}", game, players, time.time())
        with self._guard:
            if self._closing:
                raise BadInput("The server is closing.")
            if len(self.running) >= self.config.max_episodes:
                raise Busy(next(reversed(self.running.values())).meta())
            self.running[live.episode_id] = live
        return live

    async def start(self, wish: Wish) -> Live:
        """Checked, claimed and begun; raises BadInput, Busy or StoreUnavailable and then nothing has happened."""
        live = self.claim(wish.game, wish.names)
        try:
            plan = await asyncio.to_thread(self._begin, wish, live)
        except BaseException:
            self._release(live)
            raise
        thread = threading.Thread(
            target=self._play, args=(wish, plan, live), name=f"episode {live.episode_id}", daemon=True
        )
        thread.start()
        return live

    def stop(self, episode_id: str | None, reason: str = "Somebody stopped it.") -> str | None:
        """The id of the episode that is being stopped, or None if it does not run."""
        with self._guard:
            live = self.running.get(episode_id or next(reversed(self.running), ""))
        if live is None:
            return None
        live.halt.stop(reason)
        return live.episode_id

    async def close(self) -> None:
        """Ends every episode and waits until the stream says so."""
        with self._guard:
            self._closing = True
            running = list(self.running.values())
        for live in running:
            live.halt.stop("The server shuts down.", "shutdown")
        for live in running:
            await asyncio.to_thread(live.done.wait, 5.0)

    def seat_of(self, episode_id: str, token: str | None) -> tuple[int, HumanSeat] | None:
        live = self.running.get(episode_id)
        return live.seats.get(token) if live is not None and token else None

    def _begin(self, wish: Wish, live: Live) -> Plan:
        from kibitz.live.episodes.prepare import prepare

        config = self.config
        plan = prepare(wish, config.runs, config.patience, config.human_seconds, live.halt)
        live.seats = {human.token: (seat, human) for seat, human in plan.humans.items()}
        secret = {"seed": plan.seed, "number": wish.number, "match": plan.match}
        row = Row(
            live.episode_id, wish.game, wish.names, live.started_at, open_table=wish.open, about=plan.about,
            secret=secret, owner=self.bus.store.owner,
        )  # fmt: skip
        self.bus.begin(row)
        return plan

    def _play(self, wish: Wish, plan: Plan, live: Live) -> None:
        from kibitz.core.play.episode import play_episode
        from kibitz.core.play.recorder import Stopped
        from kibitz.live.episodes.prepare import release_players
        from kibitz.live.voice.commentator import commentator_for

        pace = self.config.pace if wish.pace is None else wish.pace
        observer = BusObserver(
            episode_id=live.episode_id, mode=wish.captain_preset, task=wish.task, opponent_mode=wish.opponent_choice,
            eval_pack_id=wish.eval_pack_id, tts=self.speech if wish.enable_tts else None,
            outlet=LocalOutlet(self.bus), open_table=wish.open,
        )  # fmt: skip
        steps = Steps(live, pace, Stopped)
        try:
            play_episode(
                plan.game, plan.settings, plan.players, seed=plan.seed, number=wish.number, state=plan.state,
                match=plan.match, observers=(observer,), episode_id=live.episode_id, advisers=plan.advisers,
                script=wish.script, about=plan.about, stop=steps,
                commentate=commentator_for(plan.game, self.config.commentator),
            )  # fmt: skip
        except Stopped:
            log.info("episode %s was stopped: %s", live.episode_id, live.halt.reason)
        except (StoreUnavailable, SequenceGap, EpisodeClosed) as error:
            live.failed = str(error)
            log.error("episode %s cannot be recorded: %s", live.episode_id, error)
            fail_episode(self.bus, live.episode_id, "error", str(error), lambda: self._closing)
        except Exception as error:
            log.exception("episode %s failed", live.episode_id)
            why = f"Something went wrong in the server ({type(error).__name__})."
            fail_episode(self.bus, live.episode_id, "error", why, lambda: self._closing)
        finally:
            release_players([*plan.players, *plan.advisers.values()])
            self.played += 1
            self._release(live)

    def _release(self, live: Live) -> None:
        with self._guard:
            self.running.pop(live.episode_id, None)
        live.done.set()


class Steps:
    """Called before every step: keeps the pace, and ends the episode once somebody has stopped it."""

    def __init__(self, live: Live, pace: float, stopped: type[Exception]) -> None:
        self._live, self._pace, self._stopped = live, pace, stopped
        self._last = 0.0

    def __call__(self) -> None:
        halt = self._live.halt
        wait = self._last + self._pace - time.monotonic() if self._last else 0.0
        if wait > 0:
            halt.wait(wait)
        if halt.is_set():
            raise self._stopped(halt.reason, halt.kind)
        self._last = time.monotonic()


def fail_episode(bus: Bus, episode_id: str, kind: str, reason: str, closing: Callable[[], bool] | None = None) -> bool:
    """Closes an episode that nobody plays any more with an `episode.failed`, as soon as the store takes it."""
    closing = closing or (lambda: bus.hub.closing)
    for attempt in range(600):
        if closing() and attempt:
            return False
        try:
            frame: dict[str, Any] = {}
            last, steps = -1, 0
            secrets_told: Any = {}
            while bodies := bus.store.events(episode_id, last):
                for event in map(decode_event, bodies):
                    frame = fold(frame, event)
                    last, steps = event.seq, steps + (event.type == "step")
                    secrets_told = event.payload.get("private", {}) if event.seq == 0 else secrets_told
            payload = {"kind": kind, "reason": reason, "frame": frame or None, "private": secrets_told, "steps": steps}
            row = bus.store.episode(episode_id)
            secret = {} if row is None else row.secret
            known = {key: secret[key] for key in ("seed", "number", "match") if secret.get(key) is not None}
            event = Event(episode_id, last + 1, time.time(), "episode.failed", payload | known)
            added = bus.publish(StoredEvent(event))
        except EpisodeClosed:
            note_closed(bus, episode_id)
            return False
        except StoreUnavailable as error:  # it is tried again until the server closes
            if not attempt:
                log.warning("episode %s waits for the store to be closed: %s", episode_id, error)
            time.sleep(min(0.1 * 2**attempt, 2.0))
        except Exception:
            # whoever looks after it comes again every few seconds: said once, then counted
            if not bus.unclosed[episode_id]:
                log.exception("episode %s cannot be closed", episode_id)
            bus.unclosed[episode_id] += 1
            return False
        else:
            note_closed(bus, episode_id)
            return added
    return False


def note_closed(bus: Bus, episode_id: str) -> None:
    """Says so if it was said that it could not be closed."""
    if tries := bus.unclosed.pop(episode_id, 0):
        log.warning("episode %s is closed now; it could not be %d times", episode_id, tries)


_RUNNERS: weakref.WeakKeyDictionary[Bus, Runner] = weakref.WeakKeyDictionary()


def runner_for(bus: Bus) -> Runner:
    return _RUNNERS.get(bus) or Runner(bus, LiveConfig(pace=0.0))


def is_running(bus: Bus | None = None) -> dict[str, Any] | None:
    """Metadata of the episode that was started last, or None if nothing runs."""
    runners = list(_RUNNERS.values())
    for runner in runners if bus is None else [one for one in runners if one.bus is bus]:
        for live in reversed(list(runner.running.values())):
            return live.meta()
    return None


async def run_episode_in_proc(
    bus: Bus,
    captain_preset: str,
    opponent_choice: str,
    max_overs: int = 5,
    eval_pack_id: str = "default",
    enable_tts: bool = True,
    game: str = "cricket",
    **more: Any,
) -> dict[str, Any]:
    """One episode, played to its end; `{"error", "current"}` if another one runs."""
    from kibitz.live.episodes.prepare import Wish

    runner = runner_for(bus)
    wish = Wish(captain_preset, opponent_choice, max_overs, eval_pack_id, enable_tts, game)
    try:
        live = await runner.start(replace(wish, **more))
    except Busy as busy:
        return {"error": str(busy), "current": busy.current}
    await asyncio.to_thread(live.done.wait)
    row = await asyncio.to_thread(bus.store.episode, live.episode_id)
    assert row is not None
    return {"episode_id": live.episode_id, **row.shown()}
