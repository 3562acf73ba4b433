"""Warnings that would repeat with every step or file."""

from __future__ import annotations

import logging
from functools import lru_cache


@lru_cache(maxsize=256)
def log_once(logger: logging.Logger, message: str) -> None:
    """Logs a warning the first time a process gives this message."""
    logger.warning(message)
