"""Where things are: shipped files, the user's own, and the cache."""

from __future__ import annotations

import os
from pathlib import Path

from kibitz.core.paths import SHIPPED, cache_folder, find

__all__ = ["SHIPPED", "cache_folder", "find", "own_folder"]


def own_folder() -> Path:
    """What the user wrote."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "kibitz"
