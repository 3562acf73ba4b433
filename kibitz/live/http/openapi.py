"""What the OpenAPI says of requests that depend on a game: its players, packs and options, out of the registry.

Loads JAX: call it off the event loop. What one request cannot know (which runs and presets are here, which
turns a record has) is refused with 404 or 409; everything else a schema allows is accepted, unless two
options contradict each other, which no JSON schema can say.
"""

from __future__ import annotations

from typing import Any

from kibitz.core.options import Options
from kibitz.games import game_names, get_environment, get_game
from kibitz.live.episodes.prepare import RUN, packs_of
from kibitz.live.http.numbers import EXACT
from kibitz.live.openenv import tasks as openenv_tasks

Schema = dict[str, Any]
KINDS = (r"^llm:[^\x00-\x1f\x7f]{1,80}$", rf"^policy:{RUN.pattern}$")  # presets and runs come and go


def start_schema(schema: Schema) -> None:
    """A start is of one game; whoever is not named must have a default there."""
    whole = dict(schema)
    schema.clear()
    schema["title"], schema["oneOf"] = whole["title"], [_start(whole, name) for name in game_names()]


def _start(whole: Schema, name: str) -> Schema:
    fields = dict(whole["properties"])
    bots = list(get_game(name).bots)
    usual = fields["game"]["default"] == name
    fields["game"] = {"const": name} | ({"default": name} if usual else {})
    fields["eval_pack_id"] = fields["eval_pack_id"] | {"enum": packs_of(name)}
    fields["options"] = _described(fields["options"]) | options_schema(get_game(name).options)
    required = [] if usual else ["game"]
    for seat in ("captain_preset", "opponent_choice"):
        if fields[seat]["default"] not in bots:
            required.append(seat)
        fields[seat] = _described(fields[seat]) | player_schema([*bots, "human"])
    fields["adviser"] = _described(fields["adviser"]) | _or_null(player_schema(bots))
    return {
        "title": f"{whole['title']}_{name}",
        "type": "object",
        "properties": fields,
        "required": required,
        "additionalProperties": False,
    }


def branch_schema(schema: Schema) -> None:
    """The record decides whose names are known; here are those of all games."""
    bots = sorted({bot for name in game_names() for bot in get_game(name).bots})
    fields = schema["properties"]
    fields["players"]["items"] = player_schema([*bots, "human"])
    fields["adviser"] = _or_null(player_schema(bots))


def reset_properties(game: str) -> Schema:
    """Options of `reset` beside those that every game has; null is as good as not given."""
    own = options_schema(getattr(get_environment(game), "options", Options))["properties"]
    own["seed"] = _or_null({"type": "integer", "minimum": 0, "exclusiveMaximum": EXACT})
    bots = list(get_game(game).bots)
    for name in ("opponent", "opponent_mode"):
        if name in own:
            own[name] = _described(own[name]) | player_schema(bots)
    splits = {"enum": list(openenv_tasks.splits(game))}
    if openenv_tasks.PACK in own:
        own[openenv_tasks.PACK] = _described(own[openenv_tasks.PACK]) | splits
    fields = {name: _or_null(schema) for name, schema in own.items() if name != "seed"}  # every game's request has it
    fields["options"] = _or_null({"type": "object", "properties": own, "additionalProperties": False})
    fields["split"], fields["index"] = _or_null(splits), _or_null({"type": "integer", "minimum": 0})
    return fields


def options_schema(options: type[Options]) -> Schema:
    """Without those that are for the operator: they may only be what they are."""
    schema = options.model_json_schema()
    fields = schema.get("properties", {})
    for name, field in fields.items():
        if field.pop("operator", False):
            fields[name] = {"enum": [options.model_fields[name].default]}
    return {"type": "object", "properties": fields, "additionalProperties": False}


def player_schema(names: list[str]) -> Schema:
    return {"type": "string", "anyOf": [{"enum": names}, *({"pattern": kind} for kind in KINDS)]}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _described(field: Schema) -> Schema:
    """What stays when the type is told more exactly."""
    return {key: field[key] for key in ("title", "description", "default") if key in field}
