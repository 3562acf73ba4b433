"""`kibitz bench start`: seconds from the command to the first update of a training, with imports and compilation.

Each measurement is a process of its own: the first one compiles into an empty cache, the others find it warm.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kibitz.core.errors import BadInput

WARM_RUNS = 3


def run(config: str, progress: Callable[[int], None] = lambda count: None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        first = _measure(config, Path(folder))
        progress(1)
        warm = []
        for _ in range(WARM_RUNS):
            warm.append(_measure(config, Path(folder)))
            progress(1)
    middle = {name: round(statistics.median(one[name] for one in warm), 2) for name in warm[0]}
    return {
        "config": config,
        "first_run_s": round(first["training"], 2),
        "warm_run_s": middle["training"],
        "warm_processor_s": middle["processor"],
        "warm_imports_s": middle["imports"],
        "load": round(os.getloadavg()[0], 1),
    }


def _measure(config: str, cache: Path) -> dict[str, float]:
    """Seconds since the process was started, and the processor's seconds until training."""
    began = time.time()
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)  # it would replace ours
    words = [sys.executable, "-m", "kibitz.bench.start", config, str(cache)]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise BadInput(f"The training did not start: {ended.stderr.strip().splitlines()[-1]}")
    imports, training, processor = (float(word) for word in ended.stdout.split())
    return {"imports": imports - began, "training": training - began, "processor": processor}


def main(config: str, folder: str) -> None:
    """Does what `kibitz train` does before its first update, and prints when it was ready."""
    import jax

    from kibitz.core.xla.stored import traced_programs_kept
    from kibitz.train.start import prepare

    imported = time.time()
    phase = prepare(config=config, out=str(Path(folder) / f"run-{time.time_ns()}")).phases[0][1]
    with traced_programs_kept():
        phase.compile_ahead()
        learner, _ = phase.advance(phase.begin(), phase.settings, 0)
    jax.block_until_ready(learner.weights)
    print(imported, time.time(), time.process_time())


if __name__ == "__main__":
    main(*sys.argv[1:])
