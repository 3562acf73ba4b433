"""The page's files, checked without a browser: contrast, size, no foreign code, no game's name."""

from __future__ import annotations

import re

import pytest

from tests.browser.conftest import GAME_PAGES, PACKAGE, STATIC

# unidiomatic phrases of earlier pages, which must not return
REPLACED = (
    "stands, insisted on", "who sits down", "pace: the server's", "comes in next", "dots lie where",
    "for this seat alone", "across: points", "wants its token", "whoever started", "advised by none",
)  # fmt: skip
GROUNDS = ("bg", "card", "sunk")
WORDS = ("ink", "dim", "accent", "a", "b", "bad", "good", "gold")


def palettes() -> dict[str, dict[str, str]]:
    """The colours of both themes; each is written once, as `light-dark(LIGHT, DARK)`."""
    text = (STATIC / "cockpit.css").read_text(encoding="utf-8")
    pairs = re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", text)
    assert {name for name, _, _ in pairs} >= {*GROUNDS, *WORDS}
    return {"light": {name: one for name, one, _ in pairs}, "dark": {name: other for name, _, other in pairs}}


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2."""

    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_a_contrast_of_at_least_four_and_a_half(theme: str) -> None:
    palette = palettes()[theme]
    pairs = {(word, ground): contrast(palette[word], palette[ground]) for word in WORDS for ground in GROUNDS}
    pairs[("on-accent", "accent")] = contrast(palette["on-accent"], palette["accent"])
    pairs[("card", "bad")] = contrast(palette["card"], palette["bad"])
    for soft in ("soft-a", "soft-b"):
        pairs |= {(word, soft): contrast(palette[word], palette[soft]) for word in ("ink", "dim")}
    assert min(pairs.values()) >= 4.5, min(pairs, key=lambda pair: pairs[pair])


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_the_boundary_stands_out_from_the_grass_on_both_of_its_sides(theme: int) -> None:
    sheet = (PACKAGE / "games" / "cricket" / "ui" / "cricket.css").read_text(encoding="utf-8")
    colours = {name: pair[theme] for name, *pair in re.findall(r"--(\w+): light-dark\((#\w{6}), (#\w{6})\)", sheet)}
    assert min(contrast(colours["rope"], colours[ground]) for ground in ("grass", "grass0")) >= 3, "WCAG 2, graphics"
    assert ".rope { fill: none; stroke: var(--rope)" in sheet


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


def test_the_properties_of_an_element_are_written_out_in_the_call() -> None:
    """Data in their place might hold an object, which would then restyle the page."""
    calls = re.compile(r'(?<![\w.])[hs]\(\s*(?:"[^"]*"|\w+ \? "[^"]*" : "[^"]*"),\s*(?=(.{1,20}))')
    found = 0
    for path in [*STATIC.rglob("*.js"), *(one for folder in GAME_PAGES for one in folder.rglob("*.js"))]:
        for second in calls.findall(path.read_text(encoding="utf-8")):
            found += 1
            assert second.startswith(("{", "null")), f"{path.name}: write null before {second}"
    assert found > 200


def test_no_file_of_the_server_names_a_game() -> None:
    games = [folder.parent.name for folder in GAME_PAGES]
    assert len(games) >= 2
    for path in [*STATIC.rglob("*.js"), *STATIC.rglob("*.css"), *STATIC.rglob("*.html")]:
        text = path.read_text(encoding="utf-8").lower()
        assert not [name for name in games if name in text or name.replace("_", " ") in text], path.name


def test_words_that_only_an_insider_understands_are_gone() -> None:
    for path in [*PACKAGE.rglob("*.js"), *PACKAGE.rglob("*.py")]:
        text = path.read_text(encoding="utf-8").lower()
        assert not [words for words in REPLACED if words in text], path


def test_the_journeys_have_their_pictures_and_the_animation_weighs_less_than_a_megabyte() -> None:
    docs = PACKAGE.parent / "docs"
    shown = re.findall(r"\((pictures/[^)]+)\)", (docs / "journeys.md").read_text(encoding="utf-8"))
    assert len(shown) >= 5 and all((docs / name).is_file() for name in shown)
    assert 100_000 < (docs / "pictures" / "match.webp").stat().st_size < 1_000_000


def test_what_a_view_fetches_first_is_small_and_complete() -> None:
    """The preload header names only files that exist, the game's own ones too; test_weight.py measures the rest."""
    from kibitz.live.http import pages

    for view, game in [(view, "") for view in pages.ADDRESSES.values()] + [
        ("episode/watch.js", folder.parent.name) for folder in GAME_PAGES
    ]:
        known = pages.files() | (pages.game_files(game) if game else {})
        names = re.findall(r"</static/([^>]+)>", pages.preloads(view, game))
        assert len(names) == len(set(names)) and view in names
        assert not game or any(name.startswith(f"games/{game}/") and name.endswith(".css") for name in names)
        assert sum(len(known[name].compressed) for name in names) < 50_000, (view, game)


def test_a_game_without_a_page_is_served_the_generic_one() -> None:
    from kibitz.live.http import pages

    assert list(pages.game_files("no_such_game")) == ["games/no_such_game.js"]
    assert b"generic.js" in pages.game_files("no_such_game")["games/no_such_game.js"].body
    assert "generic.js" in pages.preloads("episode/watch.js", "no_such_game")
