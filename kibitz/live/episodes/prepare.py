"""From what somebody asked for to an episode that can be played. Loads JAX: import it off the event loop."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from kibitz.core.bots import Bot
from kibitz.core.errors import BadInput, NotFound
from kibitz.core.game import Game
from kibitz.core.play.player import BotPlayer, Choice, Player
from kibitz.core.play.resolve import bot_named
from kibitz.games import get_game, get_pack, pack_names
from kibitz.live.episodes.halt import Halt
from kibitz.live.episodes.human_seat import HumanSeat
from kibitz.live.episodes.timeouts import Patient
from kibitz.players import player_named

RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(#\d{1,4})?")


@dataclass(frozen=True)
class Wish:
    """What a start asks for; names as everywhere (`balanced`, `llm:smollm2`, `policy:RUN`, `human`)."""

    captain_preset: str
    opponent_choice: str
    max_overs: int | None = 5
    eval_pack_id: str = "default"
    enable_tts: bool = True
    game: str = "cricket"
    seed: int | None = None
    open: bool = False
    adviser: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    pace: float | None = None
    task: str = "custom_episode"
    number: int = 0
    match: int | None = None  # of a pack
    script: tuple[tuple[Choice | None, Choice | None], ...] = ()
    branched_from: Mapping[str, Any] | None = None
    instead_of: str | None = None  # whose seat a person takes: named too, so it should be somebody

    @property
    def names(self) -> tuple[str, str]:
        return self.captain_preset, self.opponent_choice


@dataclass(frozen=True)
class Plan:
    """Everything `play_episode` needs."""

    game: Game
    settings: Any
    players: tuple[Player, Player]
    advisers: dict[int, Player]
    seed: int
    about: dict[str, Any]
    state: Any = None  # a pack's first position; None: a fresh deal
    match: int | None = None  # which of the pack's matches; secret like the seed

    @property
    def humans(self) -> dict[int, HumanSeat]:
        return {seat: player for seat, player in enumerate(self.players) if isinstance(player, HumanSeat)}


def release_players(players: Iterable[Player]) -> None:
    """After an episode: whoever waits for a player that is slow waits no longer."""
    for player in players:
        if isinstance(player, Patient):
            player.close()


def prepare(wish: Wish, runs: Path, patience: float, human_seconds: float, halt: Halt, operator: bool = False) -> Plan:
    """Checked as a whole: BadInput before anything is stored or shown. An `operator` may name any file."""
    game, chosen = game_of(wish, operator)
    names = [*wish.names, *([wish.adviser] if wish.adviser else [])]
    bots = [bot_named(game, name) if operator else rule_of(game, name, runs) for name in names]
    if wish.instead_of is not None:
        rule_of(game, wish.instead_of, runs)
    players: list[Player] = []
    for name, bot in zip(names, bots, strict=True):
        if bot is not None:
            players.append(BotPlayer(game, bot, name))
        elif name == "human":
            if len(players) == 2:
                raise BadInput("A human cannot be the adviser here; name a player such as heuristic.")
            players.append(HumanSeat(game, human_seconds, halt))
        else:
            players.append(Patient(player_named(game, name), patience, halt))
    seed = secrets.randbelow(2**31) if wish.seed is None else wish.seed
    match, state = None, None
    if wish.eval_pack_id != "default":
        pack = get_pack(wish.game, wish.eval_pack_id)
        match = (seed if wish.match is None else wish.match) % pack.matches
        chosen, settings, state = pack.scenario(match)
        seed = pack.seed(match)
    else:
        settings = chosen.settings()
    for seat, bot in enumerate(bots[:2]):
        settings = bot.disclose(settings, seat) if bot else settings
    for seat, bot in zip((0, 1, 0), bots, strict=False):
        settings = bot.precompute(settings, seat) if bot else settings
    return Plan(
        game,
        settings,
        (players[0], players[1]),
        dict(enumerate(players[2:])),
        seed,
        about_of(wish, chosen),
        state,
        match,
    )


def game_of(wish: Wish, operator: bool = False) -> tuple[Game, Any]:
    """The record and the checked options; a stranger's options may name no file of this machine."""
    plain = get_game(wish.game)
    given = dict(wish.options)
    for name, value in given.items():
        known = plain.options.model_fields.get(name)
        extra = known.json_schema_extra if known is not None else None
        if known and not operator and isinstance(extra, dict) and extra.get("operator") and value != known.default:
            raise BadInput(f"The option {name!r} is for the operator of this server; leave it out.")
    if wish.max_overs is not None and "max_overs" in plain.options.model_fields:
        given.setdefault("max_overs", wish.max_overs)
    chosen = plain.options.read(given, f"option of {wish.game}")
    if wish.eval_pack_id not in packs_of(wish.game):
        known_packs = ", ".join(packs_of(wish.game))
        raise BadInput(f"There is no pack {wish.eval_pack_id!r} for {wish.game}; there are {known_packs}.")
    return get_game(wish.game, chosen), chosen


def packs_of(game: str) -> list[str]:
    """`default` is a fresh match; the others begin in a position of the pack, drawn by the seed."""
    return ["default", *(name for name in pack_names(game) if name != "default")]


def rule_of(game: Game, name: str, runs: Path) -> Bot | None:
    """As `rule_named`, but a policy is a run in our own folder and nothing else on this machine."""
    if not name.startswith("policy:"):
        if name not in game.bots and name != "human" and not name.startswith("llm:"):
            player_named(game, name)  # says which names there are
        return game.bots.get(name)
    run = name.removeprefix("policy:")
    if not RUN.fullmatch(run):
        raise BadInput(f"{run!r} is not the name of a run; /runs.json lists those there are.")
    if not (runs / run.partition("#")[0]).is_dir():
        raise NotFound(f"There is no run {run!r} here; /runs.json lists those there are.")
    return bot_named(game, f"policy:{runs / run}")


def about_of(wish: Wish, chosen: Any) -> dict[str, Any]:
    """What everybody may know of how an episode was set up; a branch is played again from it."""
    told = {
        "mode": wish.captain_preset,
        "task": wish.task,
        "opponent_mode": wish.opponent_choice,
        "eval_pack_id": wish.eval_pack_id,
        "open": wish.open,
        "speech": wish.enable_tts,
        "adviser": wish.adviser,
        "options": chosen.model_dump(mode="json"),
    }
    return told | ({"branched_from": dict(wish.branched_from)} if wish.branched_from else {})


@cache
def describe(name: str) -> dict[str, Any]:
    """What the start panel needs to know about a game."""
    game = get_game(name)
    schema = game.options.model_json_schema()
    kept = {key: value for key, value in schema.get("properties", {}).items() if not value.pop("operator", False)}
    defaults = game.options().model_dump(mode="json")
    return {
        "title": name.replace("_", " ").capitalize(),
        "options": {**schema, "properties": kept},
        "defaults": {key: defaults[key] for key in kept if key in defaults},
        "packs": packs_of(name),
        "rules": list(game.bots),
    }
