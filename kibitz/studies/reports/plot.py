"""Plots as SVG text: curves with bands, and values with intervals.

Drawn here rather than with matplotlib: a few kilobytes each, text stays text, and colours follow the reader's theme.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 520, 330  # in SVG units; text stays legible when a phone shows it 360 pixels wide
LEFT, RIGHT, TOP, BOTTOM = 62, 26, 10, 50
LEGEND_ROW = 19
ROW = 26  # height of one row of `intervals`
DASHES = ("", "7 3", "2 3", "9 3 2 3")
LIGHT = ("#3b4754", "#0b6e99", "#b5530f", "#1b7a4b", "#8a3d96", "#a3283a", "#7a6400", "#0a7f86")
DARK = ("#c3ccd6", "#5cb6e4", "#f0a05c", "#6fd3a2", "#d08fdc", "#f08a98", "#dcc55a", "#5fd0d6")


def _variables(colours: Sequence[str], ink: str, line: str) -> str:
    named = "".join(f"--c{number}:{colour};" for number, colour in enumerate(colours))
    return f"svg.plot{{{named}--t:{ink};--g:{line}}}"


STYLE = (
    "<style>" + _variables(LIGHT, "#1d2329", "#d8dee4")
    + f"@media (prefers-color-scheme:dark){{{_variables(DARK, '#e4e9ee', '#39434d')}}}"
    + f"@media print{{{_variables(LIGHT, '#000', '#bbb')}}}"
    + "svg.plot text{fill:var(--t);font:13px system-ui,sans-serif}"
    "svg.plot .grid{stroke:var(--g)}svg.plot .line{fill:none;stroke-width:2}</style>"
)  # fmt: skip


@dataclass(frozen=True)
class Curve:
    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


def curves(lines: Sequence[Curve], x_label: str, y_label: str, *, percent: bool = False) -> str:
    """Curves with bands, and a legend below them."""
    values = [v for line in lines for v in (*line.y, *line.low, *line.high) if math.isfinite(v)]
    bottom, top, ticks = _scale(values or [0.0, 1.0])
    last = max((x for line in lines for x in line.x), default=1.0) or 1.0
    right_edge, down_edge = WIDTH - RIGHT, HEIGHT - BOTTOM

    def across(x: float) -> float:
        return LEFT + (right_edge - LEFT) * x / last

    def down(y: float) -> float:
        return down_edge - (down_edge - TOP) * (y - bottom) / (top - bottom)

    drawn: list[str] = []
    for tick in ticks:
        label = f"{100 * tick:.0f} %" if percent else f"{tick:,.6g}"
        drawn.append(_grid(LEFT, down(tick), right_edge, down(tick)) + _text(LEFT - 6, down(tick) + 4, label, "end"))
    for tick in _scale([0.0, last], count=4)[2]:
        if tick <= last:
            drawn.append(_text(across(tick), down_edge + 17, _short(tick), "middle"))
    for number, line in enumerate(lines):
        band = [(x, low, high) for x, low, high in zip(line.x, line.low, line.high, strict=False) if math.isfinite(low)]
        if len(band) > 1:
            there = " ".join(f"{across(x):.1f},{down(high):.1f}" for x, _, high in band)
            back = " ".join(f"{across(x):.1f},{down(low):.1f}" for x, low, _ in reversed(band))
            drawn.append(f'<polygon points="{there} {back}" fill="{_colour(number)}" opacity=".16"/>')
    for number, line in enumerate(lines):
        points = [(x, y) for x, y in zip(line.x, line.y, strict=True) if math.isfinite(y)]
        path = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in points)
        drawn.append(f'<polyline class="line" points="{path}" {_stroke(number)}/>')
    drawn.append(_text((LEFT + right_edge) / 2, down_edge + 36, x_label, "middle"))
    drawn.append(
        f'<text transform="translate(12 {(TOP + down_edge) / 2:.0f}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_label)}</text>"
    )
    columns = 2
    for number, line in enumerate(lines):
        x, y = 12 + (number % columns) * WIDTH // columns, HEIGHT + LEGEND_ROW * (number // columns) + 8
        drawn.append(
            f'<path class="line" d="M{x} {y - 4}h26" {_stroke(number)}/>' + _text(x + 32, y, line.name, "start")
        )
    height = HEIGHT + LEGEND_ROW * math.ceil(len(lines) / columns)
    return _svg(height, f"{y_label} by {x_label}: {', '.join(line.name for line in lines)}", drawn)


def intervals(rows: Sequence[tuple[str, float, float | None, float | None]], label: str) -> str:
    """Values with their intervals, one row each."""
    known = [v for _, *three in rows for v in three if v is not None and math.isfinite(v)]
    lowest, highest, ticks = _scale(known or [0.0, 1.0])
    left = min(220, 16 + 7 * max((len(name) for name, *_ in rows), default=0))
    right_edge, down_edge = WIDTH - RIGHT, TOP + ROW * len(rows)

    def across(x: float) -> float:
        return left + (right_edge - left) * (x - lowest) / (highest - lowest)

    drawn = []
    for tick in ticks:
        drawn.append(_grid(across(tick), TOP, across(tick), down_edge))
        drawn.append(_text(across(tick), down_edge + 17, f"{tick:,.6g}", "middle"))
    for number, (name, value, low, high) in enumerate(rows):
        y = TOP + ROW * (number + 0.5)
        drawn.append(_text(left - 8, y + 4, name if len(name) <= 30 else name[:29] + "…", "end"))
        if low is not None and high is not None and math.isfinite(low) and math.isfinite(high):
            drawn.append(f'<path class="line" stroke="var(--c1)" d="M{across(low):.1f} {y}H{across(high):.1f}"/>')
        if math.isfinite(value):
            drawn.append(f'<circle cx="{across(value):.1f}" cy="{y}" r="4.5" fill="var(--c1)"/>')
    drawn.append(_text((left + right_edge) / 2, down_edge + 36, label, "middle"))
    return _svg(down_edge + 44, f"{label} of {', '.join(name for name, *_ in rows)}", drawn)


def _svg(height: float, description: str, drawn: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" role="img" viewBox="0 0 {WIDTH} {height:.0f}">'
    return f"{head}<title>{escape(description)}</title>{STYLE}{''.join(drawn)}</svg>"


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _grid(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<path class="grid" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"/>'


def _colour(number: int) -> str:
    return f"var(--c{number % len(LIGHT)})"


def _stroke(number: int) -> str:
    dash = DASHES[number % len(DASHES)]
    return f'stroke="{_colour(number)}"' + (f' stroke-dasharray="{dash}"' if dash else "")


def _scale(values: Sequence[float], count: int = 5) -> tuple[float, float, list[float]]:
    """Ends of an axis and round ticks between them."""
    low, high = min(values), max(values)
    if high <= low:
        low, high = low - 0.5, high + 0.5
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return first * step, last * step, [number * step for number in range(first, last + 1)]


def _short(value: float) -> str:
    """12 k, 1.5 M."""
    for unit, suffix in ((1e6, " M"), (1e3, " k")):
        if abs(value) >= unit:
            return f"{value / unit:g}{suffix}"
    return f"{value:g}"
