"""Share cards: an episode as a picture of 1200 x 630 pixels, and as the lines that other sites show with a link.

Both come from an outline, which holds public values alone.
"""

from __future__ import annotations

import re
import textwrap
from html import escape

from kibitz.live.site.outline import Outline, Outlines
from kibitz.live.store.base import Row

SEATS = ("#84b9f2", "#f2a768")  # the page's colours of the seats, on dark ground
# a shield and a pennant, as on the page
CRESTS = ("M2 2h24v14c0 7-6 11-12 13C8 27 2 23 2 16z", "M14 1 27 15 14 29 1 15z")
LINE = (80, 1120, 400, 500)  # left, right, top and bottom of the course of the game, in pixels
CAPTION_CHARACTERS = 62  # that fit into a line
MAX_NAME = 34


def called(player: str) -> str:
    """A player's name for people: `policy:runs/first-try` becomes "policy first-try"."""
    if player == "human":
        return "a person"
    kind, _, rest = player.partition(":")
    return f"{kind} {rest.rstrip('/').rpartition('/')[2]}" if rest else kind


class Cards:
    """Reads the store: call it off the event loop."""

    def __init__(self, outlines: Outlines) -> None:
        self._outlines = outlines

    def _outline(self, row: Row, seq: int | None) -> Outline:
        return self._outlines.latest(row) if seq is None else self._outlines.at(row, seq)

    def svg(self, row: Row, seq: int | None = None) -> str:
        """The card of the position after event `seq`; None: of the newest."""
        return _svg(row, self._outline(row, seq))

    def head(self, row: Row, seq: int | None, base: str) -> str:
        """Lines for the page's head, by which other sites describe a link to this moment."""
        outline = self._outline(row, seq)
        moment = "" if seq is None else f"?seq={seq}"
        image = f"{base}/episodes/{row.episode_id}/card.svg{moment}"
        title = " v ".join(_sides(row, outline))
        score = " : ".join(part or "-" for part in _scores(outline)) if any(_scores(outline)) else ""
        about = " · ".join(part for part in (score, outline.caption) if part) or "A game on kibitz"
        properties = {"og:type": "website", "og:title": title, "og:description": about, "og:image": image}
        tags = [f'<meta property="{name}" content="{escape(value)}">' for name, value in properties.items()]
        return "\n".join([*tags, '<meta name="twitter:card" content="summary_large_image">'])


def _sides(row: Row, outline: Outline) -> tuple[str, str]:
    return outline.sides or (called(row.players[0]), called(row.players[1]))


def _scores(outline: Outline) -> tuple[str, str]:
    """The game's own score or, after the end, what was paid: until then it may be private."""
    if any(outline.score) or outline.returns is None:
        return outline.score
    first, second = (f"{paid:g}" for paid in outline.returns)
    return first, second


def _svg(row: Row, outline: Outline) -> str:
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" width="1200" height="630" viewBox="0 0 1200 630" '
        'font-family="Inter, system-ui, sans-serif" fill="#e9ecea">',
        '<rect width="1200" height="630" fill="#12171a"/>',
    ]
    for seat, (name, score) in enumerate(zip(_sides(row, outline), _scores(outline), strict=True)):
        top = 130 + 120 * seat
        parts += [
            f'<path fill="#232b2f" stroke="{SEATS[seat]}" stroke-width="2" d="{CRESTS[seat]}" '
            f'transform="translate(64 {top - 50}) scale(2.2)"/>',
            _text(95, top - 8, 24, _initials(name), 2, weight=700, anchor="middle"),
            _text(150, top, 52, name, MAX_NAME, weight=700),
            _text(1120, top, 56, score, 20, weight=700, anchor="end"),
        ]
        if outline.sides:
            parts.append(_text(150, top + 36, 26, f"played by {called(row.players[seat])}", 60, fill="#a3adaa"))
    parts += _course(outline)
    for i, line in enumerate(textwrap.wrap(_plain(outline.caption), CAPTION_CHARACTERS)[:2]):
        parts.append(_text(80, 548 + 40 * i, 30, line, CAPTION_CHARACTERS))
    parts.append(_text(1120, 610, 24, "kibitz", 10, weight=700, anchor="end", fill="#5fcf9c"))
    return "\n".join([*parts, "</svg>"])


def _initials(name: str) -> str:
    return "".join(word[0] for word in name.split()[:2]).upper()


def _course(outline: Outline) -> list[str]:
    left, right, top, bottom = LINE
    levels = outline.thinned()
    middle = (top + bottom) / 2
    drawn = [f'<path d="M{left} {middle}H{right}" stroke="#313b3f" stroke-width="2"/>']
    if len(levels) > 1:
        wide, high = (right - left) / (len(levels) - 1), bottom - top
        points = " ".join(f"{left + wide * i:.0f},{bottom - high * level:.0f}" for i, level in enumerate(levels))
        drawn.append(f'<polyline points="{points}" fill="none" stroke="{SEATS[0]}" stroke-width="5"/>')
    return drawn


def _plain(text: str) -> str:
    """Without control characters, which XML forbids."""
    return re.sub(r"[^\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", " ", text)


def _text(
    x: int, y: int, size: int, text: str, most: int, *, weight: int = 400, anchor: str = "start", fill: str = ""
) -> str:
    shown = _plain(text)
    shown = shown if len(shown) <= most else shown[: most - 1] + "…"
    colour = f' fill="{fill}"' if fill else ""
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}"{colour}>'
        f"{escape(shown)}</text>"
    )
