"""Figures for Prometheus, as text."""

from __future__ import annotations

import resource
import time
from typing import Any

BEGAN = time.time()


def page(state: Any) -> str:
    """Every figure with its kind and meaning."""
    bus, runner, guard = state.bus, state.runner, state.guard
    used = resource.getrusage(resource.RUSAGE_SELF)
    writer = bus.store.writer
    figures: list[tuple[str, str, str, float]] = [
        ("kibitz_episodes_running", "gauge", "episodes this server plays", len(runner.running)),
        ("kibitz_episodes_played_total", "counter", "episodes this server has played", runner.played),
        ("kibitz_episodes_unclosed", "gauge", "episodes that could not be closed yet", len(bus.unclosed)),
        ("kibitz_events_committed_total", "counter", "events committed to the store", bus.committed),
        ("kibitz_events_sent_total", "counter", "events handed to watchers, each counted once", bus.hub.sent),
        (
            "kibitz_store_commits_total",
            "counter",
            "transactions; less than events when they were grouped",
            writer.commits,
        ),
        ("kibitz_store_retries_total", "counter", "commits tried again because the store was away", writer.retries),
        ("kibitz_watchers", "gauge", "sockets and streams that look on", bus.hub.watchers),
        ("kibitz_resyncs_total", "counter", "times a watcher lagged and was told to fetch the rest", bus.hub.resyncs),
        ("kibitz_bus_away", "gauge", "1 while the bus to other servers is away", bool(bus.link and bus.link.away)),
        (
            "kibitz_bus_left_out_total",
            "counter",
            "events that other servers have to read from the store, because too many waited for the bus",
            bus.link.left_out if bus.link else 0,
        ),
        ("process_cpu_seconds_total", "counter", "of this process", used.ru_utime + used.ru_stime),
        ("process_resident_memory_bytes", "gauge", "of this process", _resident()),
        ("process_start_time_seconds", "gauge", "since 1970", BEGAN),
    ]
    lines: list[str] = []
    for name, kind, meaning, value in figures:
        lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}", f"{name} {value:.17g}"]
    lines += ["# HELP kibitz_refused_total requests refused, by status", "# TYPE kibitz_refused_total counter"]
    lines += [f'kibitz_refused_total{{status="{status}"}} {count}' for status, count in sorted(guard.refused.items())]
    return "\n".join(lines) + "\n"


def _resident() -> float:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:  # not Linux: the most it ever was
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
