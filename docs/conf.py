"""The documentation site: Sphinx builds it from the Markdown pages beside this file.

`kibitz docs` opens the result. The build of a wheel (`tools/backend.py`) includes it.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

_PROJECT = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text(encoding="utf-8"))["project"]

project = "kibitz"
author = "the kibitz authors"
version = release = _PROJECT["version"]

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_theme"]
# A reader follows Markdown links, so a link that leads nowhere is an error: the site is built with --fail-on-warning.
nitpicky = True

html_theme = "kibitz"
html_theme_path = ["_theme"]
html_title = f"kibitz {version}"
html_show_sourcelink = False
html_copy_source = False
html_show_sphinx = False
html_permalinks_icon = "#"
html_domain_indices = False
html_use_index = False
pygments_style = "default"
highlight_language = "text"

REPOSITORY = _PROJECT["urls"]["Repository"]


# Pages that show a file at the root of the repository.
SHOWN = {
    "project/contributing": "CONTRIBUTING.md",
    "project/changelog": "CHANGELOG.md",
    "project/conduct": "CODE_OF_CONDUCT.md",
}


def _read(app, docname, source):  # type: ignore[no-untyped-def]
    """Shows files of the root as pages, and leads links to other files outside docs/ to the repository."""
    up = "../" * (docname.count("/") + 1)
    if docname in SHOWN:
        path = Path(__file__).parents[1] / SHOWN[docname]
        app.env.note_dependency(str(path))
        source[0] = re.sub(r"\]\((?!https?:)", f"]({up}", path.read_text(encoding="utf-8")).replace(
            f"]({up}docs/", "](../"
        )
    source[0] = source[0].replace(f"]({up}", f"]({REPOSITORY}/blob/main/")


def setup(app):  # type: ignore[no-untyped-def]
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
