"""Compiles in the background what a first episode needs, so that its watchers need not wait."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

from kibitz.core.errors import Stopped
from kibitz.core.registry import import_jax
from kibitz.live.episodes.timeouts import StopSignal

log = logging.getLogger("kibitz.live")


class Warmup:
    """Plays an episode of every registered game; `state` is what /health reports."""

    def __init__(self) -> None:
        self.state = "cold"
        self.seconds = 0.0
        self._signal = StopSignal()

    def start(self, runs: Path) -> None:
        self.state = "warming up: compiling the games"
        threading.Thread(target=self._work, args=(runs,), name="warm-up", daemon=True).start()

    def stop(self) -> None:
        self._signal.stop("The server is shutting down.", "shutdown")

    def _work(self, runs: Path) -> None:
        began = time.monotonic()
        try:
            import_jax()
            from kibitz.games import usable_games

            for name in usable_games():
                self._compile(name, runs)
            self.state = "ready"
        except Stopped:
            pass
        except Exception as error:  # the server works without it, but its first episodes start later
            self.state = f"failed: {type(error).__name__}: {error}"
            log.exception("warming up failed")
        self.seconds = time.monotonic() - began

    def _compile(self, name: str, runs: Path) -> None:
        """Whole episodes without observers: every function is compiled and the players stay in the pool."""
        from kibitz.core.play.resolve import Resolver
        from kibitz.games import get_game
        from kibitz.live.episodes.prepare import Limits, prepare
        from kibitz.live.episodes.request import EpisodeRequest

        game = get_game(name)
        for players in ((game.fallback, game.fallback), (game.reference, game.fallback)):
            request = EpisodeRequest(game=name, players=list(players), seed=0)
            prepare(request, Limits(Resolver(runs), operator=False), self._signal).play(stop=self._check)

    def _check(self) -> None:
        if self._signal.is_set():
            raise Stopped(self._signal.reason, self._signal.kind)
