"""`kibitz docs`: the documentation, which a wheel contains and a checkout builds."""

from __future__ import annotations

import subprocess
import sys
import webbrowser
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from kibitz.core.errors import BadInput
from kibitz.core.system.paths import PACKAGE

SHIPPED_SITE = PACKAGE / "site"
CHECKOUT = PACKAGE.parent


def docs(
    page: Annotated[str, typer.Argument(help="Page to open, such as training", show_default=False)] = "index",
    browser: Annotated[bool, typer.Option(help="Open the page in the browser")] = True,
) -> None:
    """Open the documentation of this version in the browser, and print its address. Needs no network."""
    site = SHIPPED_SITE if SHIPPED_SITE.is_dir() else _build()
    found = (path.relative_to(site) for path in site.rglob("*.html"))
    pages = sorted(path.with_suffix("").as_posix() for path in found if not path.parts[0].startswith("_"))
    if page.removesuffix(".md") not in pages:
        raise BadInput(f"There is no page {page!r}; choose one of {', '.join(pages)}.")
    address = (site / f"{page.removesuffix('.md')}.html").resolve().as_uri()
    if browser:
        webbrowser.open(address)
    print(address)


def _build() -> Path:
    """The site of a checkout, in its folder build/. Sphinx rewrites only pages that have changed."""
    if not (CHECKOUT / "docs" / "conf.py").is_file():
        raise BadInput("This installation has no documentation; install kibitz from a wheel.")
    if find_spec("sphinx") is None or find_spec("myst_parser") is None:
        raise BadInput(
            "Sphinx, which builds a checkout's documentation, is not installed; "
            f"run `pip install -e '.[docs]'`, or read {CHECKOUT / 'docs'}."
        )
    site = CHECKOUT / "build" / "docs"
    print("kibitz: building the documentation with Sphinx.", file=sys.stderr)
    options = ["--quiet", "--doctree-dir", str(site.parent / "docs-doctrees")]
    command = [sys.executable, "-m", "sphinx", *options, str(CHECKOUT / "docs"), str(site)]
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode:
        raise BadInput("Sphinx could not build the documentation; its report is above.")
    return site
