"""Games for TRL: `GRPOTrainer(environment_factory=environment_factory("deal_or_no_deal"))`. Needs no server.

TRL makes one instance per episode, calls `reset` with a row of the dataset, offers every other public method to the
model as a tool, and asks `get_reward` at the end. `openenv_factory(url)` is the same over a server: an OpenEnv session
per instance, through its MCP route.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from pydantic import ValidationError

from kibitz.core.envs.tool_env import Tool, action_of, tools
from kibitz.core.errors import BadInput

TYPES = {"integer": int, "number": float, "string": str, "boolean": bool, "array": list[int], "object": dict[str, Any]}
HIDDEN = ("metadata", "frame", "tools", "reward", "episode_id", "action_mask", "oA_max", "legal")  # not for a model
TIMEOUT_SECONDS = 60.0


class ServerFailed(BadInput):
    """A server does not answer: no mistake of the model, so the training stops instead of teaching it a reward of 0."""


class Session(Protocol):
    """One environment, here or on a server. Observations are plain JSON with `reward` and `done`."""

    def reset(self, options: Mapping[str, Any]) -> dict[str, Any]: ...

    def call(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """BadInput if the arguments do not fit."""


class GameTools:
    """One episode. Subclasses have a method for every tool of their game."""

    _open: ClassVar[Callable[[], Session]]
    _options: ClassVar[Mapping[str, Any]]
    _columns: ClassVar[frozenset[str] | None]  # of the dataset that are options of `reset`; None: those it names itself

    def __init__(self) -> None:
        self._session = type(self)._open()
        self._paid, self._done = 0.0, True

    def reset(self, **columns: Any) -> str:
        """Begins an episode; columns named like options of the game (`seed`, `opponent`) are used as such."""
        known = self._columns
        given = {
            name: value
            for name, value in columns.items()
            if value is not None and (name in known if known is not None else name in ("seed", "opponent"))
        }
        observation = self._session.reset({**self._options, **given})
        self._paid, self._done = 0.0, False
        return self._shown(observation)

    def get_reward(self) -> float:
        """What the model has earned in this episode so far."""
        return self._paid

    def _act(self, tool: str, arguments: Mapping[str, Any]) -> str:
        if self._done:
            return "The episode is over."
        try:
            return self._shown(self._session.call(tool, arguments))
        except ServerFailed:
            raise
        except BadInput as error:  # a mistake of the model, which it may correct
            return f"Error: {error}"

    def _shown(self, observation: Mapping[str, Any]) -> str:
        self._paid += float(observation.get("reward") or 0.0)
        self._done = bool(observation.get("done"))
        kept = {
            name: value for name, value in observation.items() if name not in HIDDEN and value not in (None, [], {})
        }
        return json.dumps(kept, separators=(",", ":"))


def environment_factory(game: str, **options: Any) -> type[GameTools]:
    """A class for `environment_factory`; `options` are those of the game's tool-calling environment."""
    from kibitz.games import get_environment

    environment = get_environment(game)
    model = getattr(environment, "options", None)
    columns = frozenset(model.model_fields) if model is not None else None
    return _tool_class(game, lambda: _Local(environment), tools(environment), options, columns)


def openenv_factory(url: str, game: str = "", **options: Any) -> type[GameTools]:
    """The same for a game on an OpenEnv server, such as `kibitz serve`; without a name, the server's root game."""
    address = url.rstrip("/") + (f"/envs/{game}" if game else "") + "/mcp"
    listed = [
        Tool(tool["name"], tool["description"], tool["inputSchema"])
        for tool in _Remote(address).rpc("tools/list", {})["tools"]
        if tool["name"] not in ("new_episode", "look")
    ]
    return _tool_class(game or "open_env", lambda: _Remote(address), listed, options, None)


def _tool_class(
    game: str, session: Callable[[], Session], found: Sequence[Tool], options: Mapping[str, Any], columns: Any
) -> type[GameTools]:
    name = "".join(part.capitalize() for part in game.split("_")) + "Tools"
    methods = {tool.name: _method(tool) for tool in found}
    about = {"_open": staticmethod(session), "_options": dict(options), "_columns": columns, "__module__": __name__}
    return type(name, (GameTools,), {**methods, **about})


def _method(tool: Tool) -> Callable[..., str]:
    """A method with the signature and the docstring from which TRL writes the tool's schema."""

    def method(self: GameTools, **arguments: Any) -> str:
        return self._act(tool.name, arguments)

    kinds: dict[str, Any] = {
        name: TYPES.get(schema.get("type", ""), str) for name, schema in tool.input_schema.get("properties", {}).items()
    }
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    given = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind) for name, kind in kinds.items()]
    method.__name__ = method.__qualname__ = tool.name
    method.__annotations__ = {**kinds, "return": str}
    method.__signature__ = inspect.Signature([own, *given], return_annotation=str)  # type: ignore[attr-defined]
    lines = [f"    {name}: {_about(tool.input_schema['properties'][name])}" for name in kinds]
    method.__doc__ = "\n".join([tool.description, "", *(["Args:", *lines, ""] if lines else [])]).strip()
    return method


def _about(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return f"one of {', '.join(map(str, schema['enum']))}"
    return str(schema.get("description", "a whole number" if schema.get("type") == "integer" else "a name"))


class _Local:
    """An environment in this process."""

    def __init__(self, environment: type[Any]) -> None:
        self._kind, self._environment = environment, environment()

    def reset(self, options: Mapping[str, Any]) -> dict[str, Any]:
        observation: dict[str, Any] = self._environment.reset(dict(options)).model_dump(mode="json")
        return observation

    def call(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            action = action_of(self._kind, tool, arguments)
        except ValidationError as error:
            first = error.errors()[0]
            raise BadInput(f"{'.'.join(map(str, first['loc'])) or 'arguments'}: {first['msg']}.") from None
        observation: dict[str, Any] = self._environment.step(action).model_dump(mode="json")
        return observation


class _Remote:
    """A session of an OpenEnv server, by JSON-RPC."""

    def __init__(self, address: str) -> None:
        self._address, self._headers = address, {"Content-Type": "application/json", "Accept": "application/json"}
        self._calls = 0

    def reset(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return self.call("new_episode", {"options": dict(options)})

    def call(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        found = self.rpc("tools/call", {"name": tool, "arguments": dict(arguments)})
        content: dict[str, Any] = found["structuredContent"]
        if found.get("isError") and "done" not in content:
            raise BadInput(str(content.get("error", "the call failed")))
        return content

    def rpc(self, method: str, params: Mapping[str, Any]) -> Any:
        self._calls += 1
        body = json.dumps({"jsonrpc": "2.0", "id": self._calls, "method": method, "params": params}).encode()
        try:
            with urlopen(Request(self._address, body, self._headers), timeout=TIMEOUT_SECONDS) as answer:
                if session := answer.headers.get("Mcp-Session-Id"):
                    self._headers["Mcp-Session-Id"] = session
                found = json.loads(answer.read())
        except HTTPError as error:
            raise ServerFailed(
                f"{self._address} answers {error.code}; name an OpenEnv server that has this game."
            ) from None
        except (URLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or type(error).__name__
            raise ServerFailed(f"{self._address} cannot be reached ({reason}); start it with `kibitz serve`.") from None
        if "error" in found:
            raise BadInput(str(found["error"].get("message", "the server refuses the call")))
        return found["result"]
