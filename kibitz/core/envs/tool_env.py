"""What servers know of environments for agents that call tools: one seat, one action in, one observation out.

`game_tool_env.tool_environment(game)` makes such an environment for any game. Servers find its models in
its annotations, so they know any game's wire format without knowing the game. This module does not load JAX.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, get_type_hints

from pydantic import BaseModel

METADATA = (
    "since the last observation: acts by seat, answers of the opponent, rewards by seat if they are public, and the "
    "metadata of the action; after reset: game and options"
)


class Tool(NamedTuple):
    """One thing that an agent may call, as tool-calling interfaces describe it."""

    name: str
    description: str
    input_schema: dict[str, Any]


class Environment(Protocol):
    """One episode at a time. A server passes `resolver=`, which looks up the players that the options name.

    Observations have `done`, `reward`, `error` and `metadata` (see `METADATA`). An illegal act is data: it
    changes nothing, and `error` says what is legal. Invalid options, and a step without a running episode,
    raise BadInput. A class may also have `title`, `options` (the model of what `reset` takes), `tools()` with
    `action_of(tool, arguments)`, and `task_options(split, index)`, which turns a task into options of
    `reset`.
    """

    def reset(self, options: Mapping[str, Any] | None = None) -> Any: ...

    def step(self, action: Any) -> Any: ...

    @property
    def state(self) -> Any: ...


class Models(NamedTuple):
    action: type[BaseModel]
    observation: type[BaseModel]
    state: type[BaseModel]


def models(environment: type[Any]) -> Models:
    """The pydantic models that an environment's annotations name."""
    step, state = get_type_hints(environment.step), get_type_hints(environment.state.fget)
    return Models(step["action"], step["return"], state["return"])


def tools(environment: type[Any]) -> list[Tool]:
    """The environment's own tools, or its action as a single one."""
    own = getattr(environment, "tools", None)
    if own is not None:
        return [Tool(*tool) for tool in own()]
    return [Tool("act", "Choose an act.", models(environment).action.model_json_schema())]


def action_of(environment: type[Any], tool: str, arguments: Mapping[str, Any]) -> Any:
    """A tool call as an action; pydantic's ValidationError if the arguments do not fit."""
    own = getattr(environment, "action_of", None)
    return own(tool, arguments) if own is not None else models(environment).action.model_validate(dict(arguments))
