"""A range of numbers, such as episodes, in parts that workers compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kibitz.core.interrupt import finishing
from kibitz.core.work.executor import Executor, Item, Work


def in_parts(
    executor: Executor, work: Work, total: int, size: int, progress: Callable[[int], None]
) -> tuple[list[Any], bool]:
    """The results of all parts, in their order. After Ctrl-C only those before the first gap, and True."""
    starts = range(0, total, size)
    items = (Item({"start": start, "count": min(size, total - start)}) for start in starts)
    found: dict[int, Any] = {}
    try:
        for item, result in executor.run(work, items):
            found[item.arguments["start"]] = result
            progress(item.arguments["count"])
    except KeyboardInterrupt:
        if 0 not in found:
            raise
        finishing()
        whole = next(place for place, start in enumerate(starts) if start not in found)
        return [found[start] for start in starts[:whole]], True
    return [found[start] for start in starts], False
