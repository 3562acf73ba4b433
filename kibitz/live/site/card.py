"""Share cards: an episode as a picture of 1200 x 630 pixels, and as the lines that other sites show with a link.

Both come from an outline, which holds public values alone. The picture is a PNG file, because most sites show no SVG.
"""

from __future__ import annotations

import io
import re
import textwrap
from functools import lru_cache
from html import escape
from typing import NamedTuple

from kibitz.live.site.outline import Outline, Outlines
from kibitz.live.store.base import Row

WIDTH, HEIGHT = 1200, 630
SCALE = 2  # drawn larger and then reduced, because Pillow draws lines without smoothing
GROUND, INK, DIM, RULE, RAISED, ACCENT = "#12171a", "#e9ecea", "#a3adaa", "#313b3f", "#232b2f", "#5fcf9c"
SEATS = ("#84b9f2", "#f2a768")  # the page's colours of the seats, on dark ground
# a shield and a diamond, as on the page, in a box of 28 x 30
CRESTS = (
    ((2, 2), (26, 2), (26, 16), (25, 20), (22, 24), (18, 27), (14, 29), (10, 27), (6, 24), (3, 20), (2, 16)),
    ((14, 1), (27, 15), (14, 29), (1, 15)),
)
CREST_SCALE = 2.2
LINE = (80, 1120, 400, 500)  # left, right, top and bottom of the course of the game, in pixels
CAPTION_CHARACTERS = 62  # that fit into a line
MAX_NAME = 30
MAX_PICTURES = 32  # kept in memory

Points = tuple[tuple[float, float], ...]


class Words(NamedTuple):
    """A line of text; `x` and `y` are the start, middle or end of its baseline."""

    x: float
    y: float
    size: int
    text: str
    fill: str = INK
    bold: bool = False
    anchor: str = "l"  # l: start, m: middle, r: end


class Stroke(NamedTuple):
    points: Points
    colour: str
    width: int
    fill: str = ""  # closed and filled with this colour


Shapes = tuple[Words | Stroke, ...]


def called(player: str) -> str:
    """A player's name for people: `policy:runs/first-try` becomes "policy first-try", `llm:auto` "model auto"."""
    if player == "human":
        return "a person"
    kind, _, rest = player.partition(":")
    kind = "model" if kind == "llm" else kind
    return f"{kind} {rest.rstrip('/').rpartition('/')[2]}" if rest else kind


class Cards:
    """Reads the store and draws: call it off the event loop."""

    def __init__(self, outlines: Outlines) -> None:
        self._outlines = outlines

    def _outline(self, row: Row, seq: int | None) -> Outline:
        return self._outlines.latest(row) if seq is None else self._outlines.at(row, seq)

    def shapes(self, row: Row, seq: int | None = None) -> Shapes:
        """What the card shows of the position after event `seq`; None: of the newest."""
        outline = self._outline(row, seq)
        return (*_sides_drawn(row, outline), *_course(outline), *_caption(outline))

    def png(self, row: Row, seq: int | None = None) -> bytes:
        return _png(self.shapes(row, seq))

    def head(self, row: Row, seq: int | None, base: str) -> str:
        """Lines for the page's head, by which other sites describe a link to this moment."""
        outline = self._outline(row, seq)
        moment = "" if seq is None else f"?seq={seq}"
        title = " v ".join(_sides(row, outline))
        score = " : ".join(part or "-" for part in _scores(outline)) if any(_scores(outline)) else ""
        about = " · ".join(part for part in (score, outline.caption) if part) or "A game on kibitz"
        properties = {
            "og:type": "website",
            "og:site_name": "kibitz",
            "og:title": title,
            "og:description": about,
            "og:image": f"{base}/episodes/{row.episode_id}/card.png{moment}",
            "og:image:type": "image/png",
            "og:image:width": str(WIDTH),
            "og:image:height": str(HEIGHT),
        }
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


def _sides_drawn(row: Row, outline: Outline) -> list[Words | Stroke]:
    drawn: list[Words | Stroke] = []
    for seat, (name, score) in enumerate(zip(_sides(row, outline), _scores(outline), strict=True)):
        top = 130 + 120 * seat
        crest = tuple((64 + CREST_SCALE * x, top - 50 + CREST_SCALE * y) for x, y in CRESTS[seat])
        drawn += [
            Stroke(crest, SEATS[seat], 4, RAISED),
            Words(95, top - 10, 24, _initials(name), bold=True, anchor="m"),
            Words(150, top, 52, _short(name, MAX_NAME), bold=True),
            Words(1120, top, 56, _short(score, 20), bold=True, anchor="r"),
        ]
        if outline.sides:
            drawn.append(Words(150, top + 36, 26, _short(f"played by {called(row.players[seat])}", 60), DIM))
    return drawn


def _initials(name: str) -> str:
    return _short("".join(word[0] for word in name.split()[:2]).upper(), 2)


def _course(outline: Outline) -> list[Stroke]:
    left, right, top, bottom = LINE
    levels = outline.thinned()
    middle = (top + bottom) / 2
    drawn = [Stroke(((left, middle), (right, middle)), RULE, 2)]
    if len(levels) > 1:
        wide, high = (right - left) / (len(levels) - 1), bottom - top
        points = tuple((left + wide * i, bottom - high * level) for i, level in enumerate(levels))
        drawn.append(Stroke(points, SEATS[0], 5))
    return drawn


def _caption(outline: Outline) -> list[Words]:
    lines = textwrap.wrap(_plain(outline.caption), CAPTION_CHARACTERS)[:2]
    said = [Words(80, 548 + 40 * i, 30, line) for i, line in enumerate(lines)]
    return [*said, Words(1120, 610, 24, "kibitz", ACCENT, bold=True, anchor="r")]


def _plain(text: str) -> str:
    """Without control characters, which no font has."""
    return re.sub(r"[^\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", " ", text)


def _short(text: str, most: int) -> str:
    shown = _plain(text)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


@lru_cache(MAX_PICTURES)
def _png(shapes: Shapes) -> bytes:
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.new("RGB", (WIDTH * SCALE, HEIGHT * SCALE), GROUND)
    pen = ImageDraw.Draw(picture)
    for shape in shapes:
        if isinstance(shape, Words):
            font = ImageFont.load_default(shape.size * SCALE)  # Pillow's own, which has one weight
            place, weight = (shape.x * SCALE, shape.y * SCALE), SCALE if shape.bold else 0
            pen.text(place, shape.text, shape.fill, font, f"{shape.anchor}s", stroke_width=weight)
            continue
        points = [(x * SCALE, y * SCALE) for x, y in shape.points]
        if shape.fill:
            pen.polygon(points, shape.fill)
            points += points[:2]  # with the corner where the outline begins
        pen.line(points, shape.colour, shape.width * SCALE, joint="curve")
    file = io.BytesIO()
    picture.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS).save(file, "PNG", optimize=True)
    return file.getvalue()
