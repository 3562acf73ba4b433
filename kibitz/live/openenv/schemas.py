"""JSON schemas that depend on a game: options, players, and what `reset` takes. Loads JAX."""

from __future__ import annotations

from typing import Any

from kibitz.core.options import Options
from kibitz.core.play.resolve import RUN_NAME, usable_kinds
from kibitz.core.system.seed import LAST_SEED
from kibitz.games import get_environment, get_game
from kibitz.live.openenv import tasks

Schema = dict[str, Any]
NAME = r"[^\x00-\x1f\x7f]{1,80}"
OPPONENTS = ("opponent", "opponent_mode")  # options of `reset` that name a player


def reset_properties(game: str) -> Schema:
    """Options of the game's `reset`; null counts as omitted."""
    own = options_schema(getattr(get_environment(game), "options", Options))["properties"]
    own["seed"] = or_null({"type": "integer", "minimum": 0, "maximum": LAST_SEED})
    bots = [*get_game(game).bots, *get_game(game).aliases]
    for name in OPPONENTS:
        if name in own:
            own[name] = described(own[name]) | player_schema(bots)
    splits = {"enum": list(tasks.splits(game))}
    if tasks.PACK in own:
        own[tasks.PACK] = described(own[tasks.PACK]) | splits
    fields = {name: or_null(schema) for name, schema in own.items() if name != "seed"}  # the request itself has it
    fields["options"] = or_null({"type": "object", "properties": own, "additionalProperties": False})
    fields["split"], fields["index"] = or_null(splits), or_null({"type": "integer", "minimum": 0})
    return fields


def options_schema(options: type[Options]) -> Schema:
    """Options that only the operator may set can only have their default."""
    schema = options.model_json_schema()
    fields = schema.get("properties", {})
    for name, field in fields.items():
        if field.pop("operator", False):
            fields[name] = {"enum": [options.model_fields[name].default]}
    return {"type": "object", "properties": fields, "additionalProperties": False}


def player_schema(names: list[str]) -> Schema:
    """These names, and every name with a registered prefix: presets and runs come and go."""
    return {"type": "string", "anyOf": [{"enum": names}, *({"pattern": pattern} for pattern in _patterns())]}


def _patterns() -> list[str]:
    kinds = usable_kinds()
    followed = {
        prefix: RUN_NAME.pattern if kind.compiled else NAME for prefix, kind in kinds.items() if kind.placeholder
    }
    return [f"^{prefix}:{pattern}$" for prefix, pattern in followed.items()]


def or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def described(field: Schema) -> Schema:
    """What remains of a field when its type becomes more exact."""
    return {key: field[key] for key in ("title", "description", "default") if key in field}
