"""Pack files: every position is possible, pairs swap sides, and errors name the invalid entry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kibitz.core.errors import BadInput
from kibitz.core.xla.jit import jit_single
from kibitz.games.cricket.laws import step as laws
from kibitz.games.cricket.model.delivery import NO_PLAYER
from kibitz.games.cricket.packs import FOLDER, mirrored, pack, packs, read, scenario

NAMES = ("default", "chase", "collapse", "death", "defend", "powerplay")


def test_every_pack_of_the_design_is_shipped() -> None:
    assert packs() == NAMES
    for name in NAMES:
        assert pack(name).matches >= 100 and pack(name).about.endswith(".")


@jit_single
def law(settings: Any, state: Any) -> Any:
    """Who acts, each player's overs, and the masks of both seats."""
    overs = [laws.overs_of(state.overs, jnp.int32(i)) for i in range(11)]
    return laws.to_act(state), overs, [laws.legal(settings, state, seat) for seat in (0, 1)]


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_starts_in_a_possible_position(name: str) -> None:
    _, entries = read(FOLDER / f"{name}.yaml")
    for i, entry in enumerate(entries):
        options, settings, state, _ = scenario(name, 2 * i)
        assert options.max_overs == entry.overs and options.era == entry.era
        assert (int(state.score), int(state.wickets), int(state.legal)) == (entry.score, entry.wickets, entry.legal)
        assert bool(state.second) == (entry.innings == 2)
        assert int(state.first) == (entry.target - 1 if entry.target else 0)
        assert int(state.batting) == (0 if entry.side == "bat" else 1)
        acting, overs, masks = jax.device_get(law(settings, state))
        assert not bool(state.over) and acting.all()
        players = {int(state.striker), int(state.other)}
        assert len(players) == 2 and bin(int(state.batted)).count("1") == entry.wickets + 2
        assert all(int(state.batted) >> player & 1 for player in players)
        counts = [int(n) for n in overs]
        assert sum(counts) == -(-entry.legal // 6)
        limit, spare = divmod(entry.overs, 5)
        assert sum(n > limit for n in counts) <= spare and max(counts) <= limit + (spare > 0)
        assert (int(state.bowler) == NO_PLAYER) == (entry.legal % 6 == 0)
        if int(state.bowler) != NO_PLAYER:
            assert int(state.bowler) != int(state.last_bowler)
        assert all(mask.any() for seat in masks for mask in seat)


def test_the_second_match_of_a_pair_is_the_first_with_the_sides_swapped() -> None:
    one, two = scenario("chase", 6), scenario("chase", 7)
    assert one.options == two.options and pack("chase").seed(6) == pack("chase").seed(7)
    assert int(one.state.batting) == 1 - int(two.state.batting)
    assert [int(x) for x in one.state.elevens] == [int(x) for x in two.state.elevens][::-1]
    back = jax.tree.leaves(mirrored(two.state))
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one.state), back, strict=True))


def test_a_prefix_of_a_pack_covers_every_entry() -> None:
    _, entries = read(FOLDER / "death.yaml")
    seeds = [pack("death").seed(2 * i) for i in range(2 * len(entries))]
    assert seeds == [entry.seed + k for k in (0, 1) for entry in entries]


def test_an_index_always_selects_the_same_match() -> None:
    first, again, other = (scenario("default", i).state for i in (0, 0, 2))
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(other), strict=True))
    with pytest.raises(BadInput, match="matches 0 to 999, not 1000"):
        scenario("default", 1000)
    with pytest.raises(BadInput, match="not -1"):
        scenario("default", -1)


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("about: One.\nscenarios: [{seed: 1}]\n", encoding="utf-8")
    assert pack(str(path)).matches == 2
    path.write_text("about: Two, and longer.\nscenarios: [{seed: 1}, {seed: 2}]\n", encoding="utf-8")
    assert pack(str(path)).matches == 4


WRONG: dict[str, tuple[str, str]] = {
    "no table": ("[1, 2]", "a mapping with 'about' and 'scenarios'"),
    "not YAML": ("about: [", "is not valid YAML"),
    "no scenarios": ("about: x\nscenarios: []", "'scenarios'"),
    "unknown key": ("about: x\nscenario: [{seed: 1}]", "'scenario'; did you mean 'scenarios'"),
    "entry no table": ("about: x\nscenarios: [1]", "Entry 1 of the pack .* is 1"),
    "entry key": ("about: x\nscenarios: [{seed: 1}, {seed: 2, over: 5}]", "Entry 2 .*'over'; did you mean 'overs'"),
    "no seed": ("about: x\nscenarios: [{overs: 5}]", "Entry 1 .*'seed'"),
    "overs": ("about: x\nscenarios: [{seed: 1, overs: 21}]", "Entry 1 .*'overs' is 21"),
    "era": ("about: x\nscenarios: [{seed: 1, era: '1999'}]", "Entry 1 .*'era' is '1999'"),
    "balls": ("about: x\nscenarios: [{seed: 1, legal: 30}]", "legal is 30, but 5 overs have 30 balls"),
    "target first": ("about: x\nscenarios: [{seed: 1, target: 30}]", "target belongs to innings 2"),
    "no target": ("about: x\nscenarios: [{seed: 1, innings: 2}]", "needs a target"),
    "passed": (
        "about: x\nscenarios: [{seed: 1, innings: 2, target: 9, score: 9, legal: 2}]",
        "the score must be lower",
    ),
    "wickets": ("about: x\nscenarios: [{seed: 1, wickets: 3, legal: 2}]", "wickets is 3 after 2 legal balls"),
    "text for a number": ("about: x\nscenarios: [{seed: one}]", "Entry 1 .*'seed' is 'one'"),
    "too many": ("about: x\nscenarios: [{seed: 1, count: 6000}, {seed: 1, count: 6000}]", "more than 10,000"),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_error_about_an_invalid_file_names_the_entry(name: str, tmp_path: Path) -> None:
    text, sentence = WRONG[name]
    path = tmp_path / "wrong.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=sentence) as caught:
        pack(str(path))
    assert "wrong.yaml" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("made", [None, "folder", "bytes"])
def test_an_unreadable_file_is_rejected(made: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    if made == "folder":
        path.mkdir()
    elif made == "bytes":
        path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="cannot be read"):
        pack(str(path))
