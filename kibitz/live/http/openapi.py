"""What the OpenAPI document says about requests that depend on a game, taken from the registry. Loads JAX.

Which runs, presets and turns exist is not in it: those requests get a 404 or 409. The server accepts everything
else that a schema allows, unless two options contradict each other, which no JSON schema can express.
"""

from __future__ import annotations

import copy

from kibitz.core.play.resolve import usable_kinds
from kibitz.games import get_game, usable_games
from kibitz.live.episodes.prepare import pack_choices
from kibitz.live.episodes.request import HUMAN, SEED_OPTIONS
from kibitz.live.openenv.schemas import Schema, described, options_schema, or_null, player_schema

UNKNOWN = r"^(?!(?:{kinds})(?::|$))[^\x00-\x1f\x7f]{{1,200}}$"  # a name that no kind of player has


def describe_games(document: Schema, default_game: str) -> Schema:
    """The same document with the players, packs and options of every game."""
    document = copy.deepcopy(document)
    schemas = document["components"]["schemas"]
    asked = schemas["EpisodeRequest"]
    starts = [_start(asked, name, name == default_game) for name in usable_games()]
    schemas["EpisodeRequest"] = {"title": asked["title"], "oneOf": starts}
    _describe_branch(schemas["BranchRequest"])
    return document


def _start(asked: Schema, name: str, is_default: bool) -> Schema:
    """A start of one game."""
    fields, game = dict(asked["properties"]), get_game(name)
    bots = [*game.bots, *game.aliases]
    anyone = player_schema([*bots, HUMAN])
    first, second = game.default_players
    fields["game"] = {"const": name} | ({"default": name} if is_default else {})
    fields["eval_pack_id"] = described(fields["eval_pack_id"]) | or_null({"enum": pack_choices(name)})
    options = options_schema(game.options)
    fields["options"] = described(fields["options"]) | options
    for option in SEED_OPTIONS:
        if option in options["properties"]:
            fields[option] = described(fields[option]) | or_null(options["properties"][option])
    players = {"type": "array", "items": anyone, "minItems": 2, "maxItems": 2, "default": [first, second]}
    fields["players"] = described(fields["players"]) | players
    fields["captain_preset"] = described(fields["captain_preset"]) | anyone | {"default": first}
    anything = {
        "type": "string",
        "anyOf": [*anyone["anyOf"], {"pattern": UNKNOWN.format(kinds="|".join(usable_kinds()))}],
    }
    fields["opponent_choice"] = described(fields["opponent_choice"]) | anything | {"default": second}
    fields["adviser"] = described(fields["adviser"]) | or_null(player_schema(bots))
    return {
        "title": f"{asked['title']}_{name}",
        "type": "object",
        "properties": fields,
        "required": [] if is_default else ["game"],
        "additionalProperties": False,
        "not": {
            "required": ["players"],
            "anyOf": [{"required": ["captain_preset"]}, {"required": ["opponent_choice"]}],
        },
    }


def _describe_branch(schema: Schema) -> None:
    """The record decides which game's names are valid; these are the names of all games."""
    bots = sorted({bot for name in usable_games() for bot in (*get_game(name).bots, *get_game(name).aliases)})
    fields = schema["properties"]
    fields["players"]["items"] = player_schema([*bots, HUMAN])
    fields["adviser"] = described(fields["adviser"]) | or_null(player_schema(bots))
