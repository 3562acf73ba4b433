"""Work for the tests of executors; light enough for a process of its own."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kibitz.core.errors import BadInput
from kibitz.core.system import interrupt
from kibitz.core.work.executor import Item, Work


def prepare(spec: Any) -> Any:
    return spec["base"]


def square(base: int, item: Mapping[str, Any], report: Callable[[Any], None]) -> Any:
    """base + x², in a process that dies, raises or reports if the item says so."""
    if "die_unless" in item and not Path(item["die_unless"]).exists():
        Path(item["die_unless"]).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if item.get("raises"):
        raise BadInput("An item cannot be squared; give a number.")
    if item.get("always_dies"):
        os.kill(os.getpid(), signal.SIGKILL)
    if item.get("tells"):
        report({"pid": os.getpid(), "x": item["x"]})
    if "saves" in item:
        with interrupt.rescue(lambda: _save_slowly(Path(item["saves"]))):
            while True:
                report({"pid": os.getpid()})
    if item.get("waits"):
        time.sleep(600)
    return base + item["x"] ** 2


def _save_slowly(path: Path) -> None:
    time.sleep(0.3)
    path.touch()


def visible_gpus(base: int, item: Mapping[str, Any], report: Callable[[Any], None]) -> int:
    """How many GPUs Ray gave to this item."""
    return base + len([one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one])


def core_limit(base: int, item: Mapping[str, Any], report: Callable[[Any], None]) -> str | None:
    """How many threads XLA would have in this worker; None: as many as there are cores."""
    return os.environ.get("PJRT_NPROC")


WORK = Work(prepare, square, {"base": 100})


def items(count: int, **more: Any) -> list[Item]:
    return [Item({"x": x} | more) for x in range(count)]


def main() -> None:
    """Prints the pids of two workers that never finish; given a file, of one that saves it when it has to end."""
    from kibitz.core.work.processes import Processes
    from tests.core.work_items import WORK  # its functions by the names that a worker can import

    work = items(1, saves=sys.argv[1]) if sys.argv[1:] else items(2, tells=1, waits=1)
    for _ in Processes(2).run(WORK, work, lambda item, said: print(said["pid"], flush=True)):
        sys.exit("no item should finish")


if __name__ == "__main__":
    main()
