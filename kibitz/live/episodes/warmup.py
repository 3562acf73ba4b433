"""Compiles what a first episode needs, in the background, so that nobody waits for it."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

from kibitz.live.episodes.halt import Halt

log = logging.getLogger("kibitz.live")


class Warmth:
    """What /health says about it."""

    def __init__(self) -> None:
        self.state = "cold"
        self.seconds = 0.0
        self._halt = Halt()

    def start(self, runs: Path) -> None:
        self.state = "warming up: compiling the games"
        threading.Thread(target=self._work, args=(runs,), name="warm-up", daemon=True).start()

    def stop(self) -> None:
        self._halt.set()

    def _work(self, runs: Path) -> None:
        began = time.monotonic()
        try:
            from kibitz.games import game_names

            for name in reversed(game_names()):
                _warm(name, runs, self._halt)
            self.state = "ready"
        except Exception as error:  # the server works without it, only later
            self.state = f"failed: {type(error).__name__}: {error}"
            log.exception("warming up failed")
        self.seconds = time.monotonic() - began


def _warm(name: str, runs: Path, halt: Halt) -> None:
    """A whole episode for nobody: every function is compiled and the players stay in the pool."""
    from kibitz.core.play.episode import play_episode
    from kibitz.core.play.recorder import Stopped
    from kibitz.games import get_game
    from kibitz.live.episodes.prepare import Wish, describe, prepare

    describe(name)
    reference = get_game(name).reference

    def stop() -> None:
        if halt.is_set():
            raise Stopped("the server shuts down", "shutdown")

    try:
        for players in (("heuristic", "heuristic"), (reference, "heuristic")):
            plan = prepare(Wish(*players, game=name, seed=0), runs, 30.0, 30.0, halt)
            play_episode(plan.game, plan.settings, plan.players, seed=0, stop=stop)
    except Stopped:
        return
