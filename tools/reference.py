"""Writes docs/reference from the code: `make reference`. A test fails when a page is out of date.

The pages are in the repository, so that a change of a public name shows in the difference that a reviewer reads.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "reference"
# Environment variables that kibitz reads, and what each does; a test finds every variable that the code names.
VARIABLES = {
    "KIBITZ_TOKEN": "token of the live server, for `kibitz serve` and `kibitz watch`; `--token` has precedence",
    "KIBITZ_LLM_PRESETS": "file with your own presets of language models; default `~/.config/kibitz/llm_presets.yaml`",
    "KIBITZ_SPEECH": "voice of the commentary: `auto`, `cartesia`, `piper`, `espeak` or `silent`",
    "KIBITZ_PIPER_VOICE": "model file of another Piper voice",
    "EPISODE_LOG_LEVEL": "level of the episode log, such as `DEBUG`",
    "CRICKET_LOCAL_BASE_URL": "live server to which a driver publishes; default `http://127.0.0.1:8000`",
    "GROQ_API_KEY": "key for Groq; `llm:auto` then uses Groq. A preset of yours names its own variable in `key_env`",
    "CARTESIA_API_KEY": "key for Cartesia's voices",
    "CARTESIA_VOICE_ID": "one of Cartesia's voices instead of the default",
    "HF_ENDPOINT": "address of the Hugging Face hub, from which published contexts are downloaded",
    "XDG_CACHE_HOME": "parent of the cache folder; default `~/.cache`",
    "XDG_CONFIG_HOME": "parent of the configuration folder; default `~/.config`",
    "SSL_CERT_FILE": "certificate authorities for requests to language models; default: the system's",
    "OMP_WAIT_POLICY": "how the embedded model's threads wait; default `PASSIVE`",
    "GOMP_SPINCOUNT": "how often they look for each other before they sleep; default 3000",
    "TOKENIZERS_PARALLELISM": "threads of transformers' tokenizers; `kibitz teach` sets it to `false`",
    "JAX_COORDINATOR_ADDRESS": "host and port of the first of several hosts of `kibitz train`; see `--hosts`",
    "JAX_NUM_PROCESSES": "number of these hosts; default: what Slurm, Open MPI or Kubernetes says",
    "JAX_PROCESS_ID": "place of this host among them, from 0; default: the same",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "whether JAX reserves a GPU's memory at once; default in workers `false`",
    "PJRT_NPROC": "threads of JAX on a CPU; default: all cores, and in each of N workers its N-th part",
    "NPROC": "the same, where `PJRT_NPROC` is not set",
    "RAY_USAGE_STATS_ENABLED": "`1` lets Ray report usage to its makers; default with `--ray` `0`",
    "JAX_CPU_ENABLE_ASYNC_DISPATCH": "set it to keep JAX's own default; kibitz dispatches synchronously on a CPU",
}
# The modules that semantic versioning covers; each contributes its `__all__`, or the public names that it defines.
PUBLIC = (
    "kibitz",
    "kibitz.hints",
    "kibitz.core.game",
    "kibitz.core.bots",
    "kibitz.core.words",
    "kibitz.core.act",
    "kibitz.core.chance",
    "kibitz.core.options",
    "kibitz.live",
    "kibitz.games.cricket.captains",
)
INTRODUCTION = "*This page is generated from the code by `make reference`.*\n"


def cell(text: Any) -> str:
    """Text that stays in one cell of a table."""
    return re.sub(r"\s+", " ", str(text)).replace("|", "\\|").strip()


def code(value: Any) -> str:
    return f"`{cell(value)}`" if str(value) else ""


def table(header: str, rows: list[tuple[str, ...]]) -> str:
    columns = header.split(", ")
    lines = [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def commands() -> str:
    """Every command with its arguments and options."""
    from kibitz.cli import app

    parts = ["# Commands\n", INTRODUCTION, "Every command also has `--help`. `kibitz --version` prints the version.\n"]
    for name, command in sorted(_leaves(typer.main.get_command(app), "kibitz")):
        parts.append(f"## {name}\n\n{_sentences(command.help or '')}\n")
        rows = []
        for option in command.params:
            if option.name == "help":
                continue
            flags = ", ".join(code(flag) for flag in (*option.opts, *option.secondary_opts))
            if option.param_type_name == "argument":
                flags = code(option.name.upper())
            rows.append((flags, cell(_kind(option)), _default(option), cell(getattr(option, "help", "") or "")))
        parts.append(table("option, value, default, meaning", rows) if rows else "No options.\n")
    return "\n".join(parts)


def _sentences(help_text: str) -> str:
    return inspect.cleandoc(help_text).replace("\b\n", "")


def _leaves(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _leaves(command, f"{prefix} {name}")
        elif not command.hidden:
            yield f"{prefix} {name}", command


def _kind(option: Any) -> str:
    annotation = option.type_descriptor.annotation
    if get_origin(annotation) is Literal:
        return ", ".join(code(choice) for choice in get_args(annotation))
    several = option.multiple or option.nargs != 1 or get_origin(annotation) is list
    if get_origin(annotation) is list:
        annotation = get_args(annotation)[0]
    kind = {str: "text", int: "whole number", float: "number", bool: "", Path: "path"}.get(annotation, "text")
    if option.min is not None:
        kind += f" from {option.min:,}" if option.max is None else f", {option.min:,} to {option.max:,}"
    if option.param_type_name == "argument" and option.required:
        kind += " (required)"
    return kind + (", repeatable" if several else "")


def _default(option: Any) -> str:
    value = option.default
    if value is None or callable(value) or value in ((), [], ""):
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    return code(value)


def configuration() -> str:
    """Every key of a training config, and every option of the built-in games."""
    from kibitz.cli.setup.listing import keys_of
    from kibitz.games import get_game
    from kibitz.train.config import CurriculumPhase, Job

    parts = [
        "# Configuration keys\n",
        INTRODUCTION,
        "A training config is a YAML file with these keys, nested at the dots; `kibitz train --set key=value` changes"
        " one. Defaults apply to keys that the file leaves out. [Training](../training.md) explains them.\n",
    ]
    rows = [row for row in keys_of(Job, "") if not row["key"].startswith("env.")]
    parts.append(_keys_table(rows))
    parts.append("## A phase of the curriculum\n")
    parts.append(_keys_table(list(keys_of(CurriculumPhase, ""))))
    for name in built_in_games():
        game = get_game(name)
        parts.append(
            f"## Options of {name}\n\nWithout `env.` they are also keywords of `gym.make` and names for `--set` in"
            " `kibitz evaluate` and `kibitz play`.\n"
        )
        parts.append(_keys_table(list(keys_of(game.options, "env."))))
    return "\n".join(parts)


def _keys_table(rows: list[dict[str, Any]]) -> str:
    def shown(value: Any) -> str:
        return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

    return table(
        "key, default, meaning", [(code(row["key"]), code(shown(row["default"])), cell(row["about"])) for row in rows]
    )


def built_in_games() -> list[str]:
    from kibitz.core import registry

    found = registry.registered(registry.GAMES).items()
    return sorted(name for name, entry in found if entry.value.startswith("kibitz."))


def routes() -> str:
    """Every HTTP route of the live server."""
    from starlette.routing import WebSocketRoute

    from kibitz.core import registry
    from kibitz.live import LiveConfig, create_app
    from kibitz.live.http.pages import ADDRESSES

    with tempfile.TemporaryDirectory() as folder:
        app = create_app(LiveConfig(store=str(Path(folder) / "events.db"), warm=False))
        schema = app.openapi()
    names = "|".join(registry.game_names())
    rows: dict[tuple[str, str], str] = {}
    for path, methods in schema["paths"].items():
        generic = re.sub(rf"^/(envs/)?({names})/", r"/\1{game}/", path)
        for method, about in methods.items():
            rows.setdefault((generic, method.upper()), _first(about.get("description") or ""))
    for route in app.routes:
        if isinstance(route, WebSocketRoute) or type(route).__name__ == "APIWebSocketRoute":
            generic = re.sub(rf"^/(envs/)?({names})/", r"/\1{game}/", route.path)
            rows.setdefault((generic, "WebSocket"), _first(inspect.getdoc(route.endpoint) or ""))
    listed = [(code(path), method, cell(about)) for (path, method), about in sorted(rows.items())]
    pages = [(code(path), f"drawn by `{module}`") for path, module in ADDRESSES.items()]
    return "\n".join(
        [
            "# Routes\n",
            INTRODUCTION,
            "The running server describes bodies and answers at `/openapi.json`. [Watching live](../live.md) explains"
            " tokens and roles, and [OpenEnv and MCP](../openenv.md) the routes of environments.\n",
            table("route, method, purpose", listed),
            "## Pages of the cockpit\n",
            table("address, module", pages),
        ]
    )


def _first(text: str) -> str:
    return re.split(r"\n\s*\n", inspect.cleandoc(text))[0]


def events() -> str:
    """Every event type with its fields."""
    from kibitz.core.play.events import VERSION
    from kibitz.live.stream.schema import PAYLOADS, event_schemas

    parts = [
        "# Events\n",
        INTRODUCTION,
        f"Version {VERSION} of the schema. `GET /custom/schema` returns the same as JSON schemas. Every event is an"
        " envelope around a payload.\n",
        "## Envelope\n",
    ]
    kind, envelope = next(iter(event_schemas().items()))
    rows = []
    for name, field in envelope["properties"].items():
        about = {"type": "the event type", "payload": "the fields below"}.get(name) or field.get("description", "")
        if name == "v":
            about = f"version of the schema: {VERSION}"
        rows.append((code(name), cell(field.get("type", "object" if name == "payload" else "constant")), cell(about)))
    parts.append(table("field, type, meaning", rows))
    for kind, payload in PAYLOADS.items():
        fields = []
        for name, field in payload.model_fields.items():
            shape = re.sub(r"\btyping\.|<class '(\w+)'>", r"\1", str(field.annotation))
            fields.append((code(name), code(shape), cell(field.description or "")))
        parts.append(f"## {kind}\n\n{table('field, type, meaning', fields)}")
    return "\n".join(parts)


def variables() -> str:
    rows = [(code(name), cell(about)) for name, about in sorted(VARIABLES.items())]
    served = [(code(f"KIBITZ_{flag[2:].upper().replace('-', '_')}"), code(flag)) for flag in serve_flags()]
    return "\n".join(
        [
            "# Environment variables\n",
            INTRODUCTION,
            table("variable, meaning", rows),
            "## Options of the server\n",
            "`kibitz serve` and the app `kibitz.live.openenv_app:app` read each option from a variable, too.\n",
            table("variable, option of `kibitz serve`", served),
        ]
    )


def serve_flags() -> list[str]:
    """The options of `kibitz serve` that a variable can set."""
    from kibitz.cli import app

    options = typer.main.get_command(app).commands["serve"].params  # type: ignore[attr-defined]
    return sorted(option.opts[0] for option in options if option.opts[0] not in ("--json", "--token"))


def named_variables() -> set[str]:
    """The environment variables that the code reads or sets, and those of options."""
    found: set[str] = set()
    for path in (ROOT / "kibitz").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "environ" not in text and "envvar" not in text and "getenv" not in text:
            continue
        constants = dict(re.findall(r'^([A-Z_]+) = "([A-Z_]+)"', text, re.MULTILINE))
        for word in re.findall(
            r"environ(?:\.get|\.setdefault)?[\[(]([\w\"]+)|\"([A-Z_]{4,})\" (?:not )?in os\.environ", text
        ):
            name = (word[0] or word[1]).strip('"')
            name = constants.get(name, name)
            if re.fullmatch(r"[A-Z][A-Z_]+", name):
                found.add(name)
        found |= set(re.findall(r'envvar="([A-Z_]+)"', text))
    return found


def extras() -> str:
    from kibitz.cli.setup.extras import PURPOSES

    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    rows = [
        (
            code(extra),
            cell(PURPOSES.get(extra, "for developing kibitz")),
            ", ".join(code(name) for name in declared[extra]),
        )
        for extra in sorted(declared, key=lambda extra: (extra not in PURPOSES, extra))
    ]
    about = (
        'Install extras with `pip install "kibitz[live,logs]"`; [Installing kibitz](../install.md#extras) gives their'
        " sizes.\n"
    )
    return "\n".join(["# Extras\n", INTRODUCTION, about, table("extra, for, packages", rows)])


def python() -> str:
    """Every public name, with its signature and what its docstring says."""
    parts = [
        "# Python names\n",
        INTRODUCTION,
        "Semantic versioning covers these names; everything else may change between releases.\n",
    ]
    described: dict[int, str] = {}
    for module_name in PUBLIC:
        module = import_module(module_name)
        parts.append(f"## {module_name}\n\n{_first(module.__doc__ or '')}\n")
        for name in _public_names(module):
            value = getattr(module, name)
            if (first := described.setdefault(id(value), module_name)) != module_name:
                parts.append(f"### {module_name}.{name}\n\nThe same as `{first}.{name}`.\n")
            else:
                parts.append(_entry(f"{module_name}.{name}", value))
    return "\n".join(parts)


def _public_names(module: Any) -> list[str]:
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    own = [
        n for n, v in vars(module).items() if not n.startswith("_") and getattr(v, "__module__", "") == module.__name__
    ]
    return sorted(own)


def _entry(path: str, value: Any) -> str:
    name = path.rpartition(".")[2]
    if not callable(value):
        return f"### {path}\n\n{'A module.' if inspect.ismodule(value) else f'`{type(value).__name__}`'}\n"
    doc = inspect.getdoc(value) or ""
    doc = "" if doc.startswith(f"{name}(") else doc  # a dataclass without a docstring repeats its signature
    fields = _fields(value) if inspect.isclass(value) else []
    lines = [f"### {path}\n"]
    if len(fields) < 3:  # otherwise the table below says it better
        lines.append(f"```python\n{name}{_signature(value)}\n```\n")
    if doc and not doc.startswith(("Alias for", "Usage docs:")):
        lines.append(doc + "\n")
    if inspect.isclass(value):
        if fields:
            lines.append(table("field, type, meaning", [(code(n), code(t), cell(m)) for n, t, m in fields]))
        methods = [
            (code(f"{n}{_signature(m)}"), cell(_first(inspect.getdoc(m) or "")))
            for n, m in vars(value).items()
            if not n.startswith("_") and inspect.isfunction(m) and m.__doc__
        ]
        if methods:
            lines.append(table("method, purpose", methods))
    return "\n".join(lines)


def _signature(value: Any) -> str:
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):
        return "(...)"
    text = re.sub(r"<(?:[^<>]|<[^<>]*>)*>", "...", text)
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)
    return re.sub(r"ForwardRef\('?([^)']*)'?\)", r"\1", text)


def _fields(value: type) -> list[tuple[str, str, str]]:
    """Annotated fields of a class, each with the comment beside it: there this code base says shape and meaning."""
    try:
        source = inspect.cleandoc("\n" + inspect.getsource(value))
    except (OSError, TypeError):
        return []
    lines = source.splitlines()
    body = ast.parse(source).body[0]
    found = []
    for node in getattr(body, "body", []):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id[0] != "_":
            about = lines[node.end_lineno - 1][node.end_col_offset :].partition("#")[2].strip()  # type: ignore[index,operator]
            found.append((node.target.id, ast.unparse(node.annotation), about))
    return found


PAGES: dict[str, Callable[[], str]] = {
    "commands": commands,
    "configuration": configuration,
    "routes": routes,
    "events": events,
    "variables": variables,
    "extras": extras,
    "python": python,
}


def text_of(page: str) -> str:
    return re.sub(r"\n{3,}", "\n\n", PAGES[page]()).rstrip() + "\n"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for page in PAGES:
        path = FOLDER / f"{page}.md"
        path.write_text(text_of(page), encoding="utf-8")
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
