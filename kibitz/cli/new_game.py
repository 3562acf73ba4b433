"""`kibitz new-game`: a game as a package of its own, ready to train, serve and edit."""

from __future__ import annotations

import keyword
import re
from pathlib import Path
from typing import Annotated

import typer

from kibitz.cli.options import Json
from kibitz.core.errors import BadInput
from kibitz.core.registry import game_names

TEMPLATE = Path(__file__).parent / "new_game_files"
NAME = re.compile(r"[a-z][a-z0-9_]{1,40}")
NEXT = """Wrote {folder}. Next:
  pip install -e {folder}
  pytest {folder}
  kibitz train --game {name} --steps 200000
  kibitz serve
"""


def new_game(
    name: Annotated[str, typer.Argument(help="Package name, as in my_game")],
    out: Annotated[Path, typer.Option("--out", help="Folder in which to create the package")] = Path(),
    as_json: Json = False,
) -> None:
    """Create a package with a new game that you can train, play and serve immediately."""
    from kibitz.cli import output

    folder = write_package(name, out)
    if as_json:
        output.facts({"game": name, "folder": str(folder)}, as_json)
    else:
        output.out.print(NEXT.format(folder=folder, name=name), end="", markup=False, highlight=False)


def write_package(name: str, out: Path) -> Path:
    """Fills in the template and returns the package's folder."""
    if not NAME.fullmatch(name) or keyword.iskeyword(name):
        raise BadInput(f"{name!r} cannot name a package; use lower-case letters, digits and _, as in my_game.")
    if name in game_names():
        raise BadInput(f"There is already a game {name!r}; choose another name.")
    folder = out / name
    if folder.exists():
        raise BadInput(f"{str(folder)!r} already exists; choose another name or --out.")
    title = name.replace("_", " ").capitalize()
    for source in sorted(TEMPLATE.rglob("*.tmpl")):
        relative = source.relative_to(TEMPLATE).as_posix().removesuffix(".tmpl").replace("@NAME@", name)
        target = folder / re.sub(r"^package/", f"{name}/", relative)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = source.read_text(encoding="utf-8").replace("@NAME@", name).replace("@TITLE@", title)
        target.write_text(text, encoding="utf-8")
    return folder
