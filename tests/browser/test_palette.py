"""The palette of the page, without a browser: every colour that carries words is legible on every ground."""

from __future__ import annotations

import re

import pytest

from tests.browser.conftest import GAME_PAGES, STATIC

GROUNDS = ("bg", "card", "sunk")
WORDS = ("ink", "dim", "accent", "a", "b", "bad", "good", "gold")


def palettes() -> dict[str, dict[str, str]]:
    """Each colour is written once, as `light-dark(LIGHT, DARK)`."""
    text = (STATIC / "cockpit.css").read_text(encoding="utf-8")
    pairs = re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", text)
    assert {name for name, _, _ in pairs} >= {*GROUNDS, *WORDS}
    return {"light": {name: one for name, one, _ in pairs}, "dark": {name: other for name, _, other in pairs}}


def contrast(one: str, other: str) -> float:
    """WCAG 2's ratio."""

    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_colour_of_words_has_a_contrast_of_at_least_four_and_a_half(theme: str) -> None:
    palette = palettes()[theme]
    pairs = {(word, ground): contrast(palette[word], palette[ground]) for word in WORDS for ground in GROUNDS}
    pairs[("on-accent", "accent")] = contrast(palette["on-accent"], palette["accent"])
    pairs[("card", "bad")] = contrast(palette["card"], palette["bad"])
    for soft in ("soft-a", "soft-b"):
        pairs[("ink", soft)] = contrast(palette["ink"], palette[soft])
    assert min(pairs.values()) >= 4.5, min(pairs, key=lambda pair: pairs[pair])


def test_the_page_loads_nothing_from_elsewhere_and_writes_no_markup() -> None:
    for path in [*STATIC.rglob("*"), *(one for folder in GAME_PAGES for one in folder.rglob("*"))]:
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8")
        outside = [
            found for found in re.findall(r"https?://[^\s\"'`)]+", text) if not found.startswith("http://www.w3.org/")
        ]
        assert not outside, (path.name, outside)
        for bad in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", " style="):
            assert bad not in text, (path.name, bad)


def test_no_file_of_the_server_names_a_game() -> None:
    games = [folder.parent.name for folder in GAME_PAGES]
    assert len(games) >= 2
    for path in [*STATIC.rglob("*.js"), *STATIC.rglob("*.css"), *STATIC.rglob("*.html")]:
        text = path.read_text(encoding="utf-8").lower()
        assert not [name for name in games if name in text or name.replace("_", " ") in text], path.name
