"""Folders of the user."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Where kibitz keeps what can be made or fetched again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kibitz"
