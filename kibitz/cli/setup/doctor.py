"""`kibitz doctor`: what is installed here, what is missing, and where kibitz keeps its files."""

from __future__ import annotations

import json
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from kibitz import __version__
from kibitz.cli import output
from kibitz.cli.options import Json
from kibitz.cli.setup import extras
from kibitz.core.system.paths import cache_folder, config_folder


class ReportLine(NamedTuple):
    """One line of the report."""

    name: str
    ok: bool
    found: str
    advice: str = ""  # what to do if it is wanted; empty where nothing is missing
    details: dict[str, Any] | None = None  # for machines: path, bytes, sha256


def doctor(
    runs: Annotated[Path, typer.Option("--runs", help="Folder with the training runs")] = Path("runs"),
    store: Annotated[Path, typer.Option("--store", help="File of the live server's event store")] = Path("kibitz.db"),
    as_json: Json = False,
) -> None:
    """Report Python, extras, devices, model weights and folders, one line each. Changes nothing."""
    items = []
    for item in _items(runs, store):
        items.append(item)
        if not as_json:
            line = f"{'ok     ' if item.ok else 'missing'} {item.name}: {item.found}"
            output.out.print(line + (f"; {item.advice}" if item.advice else ""), markup=False, highlight=False,
                             soft_wrap=True)  # fmt: skip
    if as_json:
        rows = [{**item._asdict(), "details": item.details or {}} for item in items]
        print(json.dumps({"version": __version__, "items": rows}))


def _items(runs: Path, store: Path) -> Iterator[ReportLine]:
    yield ReportLine("kibitz", True, __version__)
    yield ReportLine("Python", True, f"{platform.python_version()} on {platform.system()}, {sys.executable}")
    yield _devices()
    for extra, purpose in extras.PURPOSES.items():
        absent = extras.missing(extra)
        present = [f"{name} {extras.version_of(name)}" for name in extras.packages()[extra] if name not in absent]
        found = f"{purpose} ({', '.join([*present, *(f'no {name}' for name in absent)])})"
        advice = extras.install_command(extra) if absent else ""
        yield ReportLine(f"extra {extra}", not absent, found, advice, {"missing": absent})
    yield from _weights()
    espeak = shutil.which("espeak-ng")
    yield ReportLine("espeak-ng", bool(espeak), espeak or "not found",
               "" if espeak else "commentary needs it only without the extra speech")  # fmt: skip
    yield _place(
        "cache", cache_folder(), "weights, compiled programs, answers of language models, fitted cricket models"
    )
    yield _place("configuration", config_folder(), "your presets of language models")
    yield _place("runs", runs, "trained policies")
    yield _place("store", store, "recorded episodes")


def _devices() -> ReportLine:
    import jax

    try:
        devices = [f"{device.platform}:{device.id} {device.device_kind}" for device in jax.devices()]
    except RuntimeError as error:  # a broken driver
        return ReportLine("JAX devices", False, str(error).partition("\n")[0], "see JAX's guide to installation")
    return ReportLine(
        "JAX devices", True, f"{', '.join(devices)} (JAX {jax.__version__})", details={"devices": devices}
    )


def _weights() -> Iterator[ReportLine]:
    from kibitz.llm.providers import weights

    for name, model, expected in (
        ("weights", weights.SMOLLM2, weights.SHA256),
        ("taught weights", weights.TAUGHT, weights.TAUGHT_SHA256),
    ):
        path = weights.installed_path(model)
        details = {"path": str(path), "sha256": weights.sha256(path) if path.is_file() else None}
        if details["sha256"] is None:
            yield ReportLine(name, False, f"{model} is not installed", "kibitz llm install", details)
        elif details["sha256"] != expected:
            yield ReportLine(
                name, False, f"{path} has the wrong SHA-256", "delete it, then kibitz llm install", details
            )
        else:
            yield ReportLine(name, True, f"{path}, SHA-256 {expected[:12]} as expected", details=details)


def _place(name: str, path: Path, purpose: str) -> ReportLine:
    """A folder or file and its size. One that does not exist yet is no fault."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file() and not file.is_symlink()]
    size = sum(file.stat().st_size for file in files)
    found = f"{path.absolute()}, {size / 1e6:,.1f} MB" if path.exists() else f"{path.absolute()}, not created yet"
    return ReportLine(name, True, f"{found} ({purpose})", details={"path": str(path.absolute()), "bytes": size})
