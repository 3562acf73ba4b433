"""Outlines of episodes for lists and share cards: the sides, the score, the course of the game, the last words.

They come from frames and commentary alone, which are public, so an outline shows nothing that is private to a seat.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kibitz.core.registry import import_jax
from kibitz.live.store.base import Row
from kibitz.live.store.sql import Store
from kibitz.live.store.stored_event import decode_event, fold

log = logging.getLogger("kibitz.live")
MAX_OUTLINES = 256  # kept in memory
MAX_LEVELS = 60  # points of a line, as many as a small picture can show
MAX_TEXT = 300  # characters of a name, a score or a line


@dataclass
class Outline:
    """An episode up to event `seq`."""

    seq: int = -1
    turns: int = 0
    frame: dict[str, Any] = field(default_factory=dict)
    levels: list[float] = field(default_factory=list)  # seat 0's standing after each step, from 0 to 1
    caption: str = ""
    sides: tuple[str, str] | None = None
    score: tuple[str, str] = ("", "")
    returns: tuple[float, float] | None = None

    def thinned(self) -> list[float]:
        stride = max(1, -(-len(self.levels) // MAX_LEVELS))
        kept = self.levels[::stride]
        return kept if not self.levels or kept[-1] == self.levels[-1] else [*kept, self.levels[-1]]

    def shown(self, level_name: str) -> dict[str, Any]:
        return {
            "sides": self.sides,
            "score": self.score if any(self.score) else None,
            "levels": self.thinned(),
            "level_name": level_name,
            "turns": self.turns,
        }


class Outlines:
    """Reads each event once, however often an outline is asked for. Blocks: call it off the event loop."""

    def __init__(self, store: Store) -> None:
        self.store, self._lock = store, threading.Lock()
        self._known: OrderedDict[str, Outline] = OrderedDict()

    def of(self, row: Row) -> dict[str, Any]:
        """The outline as lists show it."""
        drawing = _drawing(row.game)
        return self.latest(row).shown(drawing.level if drawing else "")

    def latest(self, row: Row) -> Outline:
        """A copy of the newest outline."""
        drawing = _drawing(row.game)
        with self._lock:
            outline = self._known.setdefault(row.episode_id, Outline())
            self._known.move_to_end(row.episode_id)
            if len(self._known) > MAX_OUTLINES:
                self._known.popitem(last=False)
            if row.status == "running" or outline.seq < row.last_seq:
                self._read(outline, row, drawing)
            return replace(outline, levels=list(outline.levels))

    def at(self, row: Row, until: int | None) -> Outline:
        """The outline after event `until`; None: after the last one."""
        outline = Outline()
        self._read(outline, row, _drawing(row.game), until)
        return outline

    def _read(self, outline: Outline, row: Row, drawing: Any, until: int | None = None) -> None:
        while bodies := self.store.events(row.episode_id, outline.seq):
            for event in map(decode_event, bodies):
                if until is not None and event.seq > until:
                    return
                outline.seq = event.seq
                _add(outline, event.type, event.payload)
                if "frame" in event.payload:
                    outline.frame = fold(outline.frame, event)
                    _describe(outline, drawing)


def _add(outline: Outline, kind: str, payload: Mapping[str, Any]) -> None:
    said = payload.get("reason") if kind == "episode.failed" else payload.get("text")
    if kind in ("commentary", "episode.ended", "episode.failed") and isinstance(said, str):
        outline.caption = said[:MAX_TEXT]
    if kind == "step":
        outline.turns += 1
    if kind == "episode.ended":
        first, second = payload["returns"]
        outline.returns = float(first), float(second)


def _describe(outline: Outline, drawing: Any) -> None:
    """A frame of a foreign driver may lack what the game's own frames have; then the outline keeps what it knew."""
    if drawing is None:
        return
    try:
        summary = drawing.summary(outline.frame)
        sides = summary.sides and (str(summary.sides[0])[:MAX_TEXT], str(summary.sides[1])[:MAX_TEXT])
        score = (str(summary.score[0])[:MAX_TEXT], str(summary.score[1])[:MAX_TEXT])
        level = None if summary.level is None else min(1.0, max(0.0, float(summary.level)))
    except Exception:
        log.debug("a frame could not be summarised", exc_info=True)
        return
    outline.sides, outline.score = sides, score
    if level is not None:
        outline.levels.append(round(level, 3))


def _drawing(name: str) -> Any:
    """How a registered game is drawn; None for a game that is not installed here."""
    import_jax()
    from kibitz.games import game_names, get_game

    try:
        return get_game(name).drawing if name in game_names() else None
    except Exception:  # a foreign game that cannot be imported; the list of games says so
        log.debug("the game %s cannot be loaded", name, exc_info=True)
        return None
