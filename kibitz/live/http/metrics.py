"""Metrics for Prometheus. Counters are plain attributes of the server's parts, read only when they are scraped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics(Collector):
    """One server's metrics: its own registry, so that several servers may share a process."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self._registry = CollectorRegistry()
        for collector in (self, state.bus.commit_seconds, state.bus.hub.delivery_seconds):
            self._registry.register(collector)
        ProcessCollector(registry=self._registry)

    def page(self) -> bytes:
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Nothing: registering must not read the server's parts."""
        return []

    def collect(self) -> Iterator[Metric]:
        bus, runner, guard = self._state.bus, self._state.runner, self._state.guard
        sessions = self._state.sessions
        hub, link, writer = bus.hub, bus.link, bus.store.writer
        yield GaugeMetricFamily("kibitz_episodes_running", "Episodes this server plays", len(runner.running))
        yield CounterMetricFamily("kibitz_episodes_played", "Episodes this server has played", runner.played)
        yield GaugeMetricFamily("kibitz_episodes_unclosed", "Episodes that could not be closed yet", len(bus.unclosed))
        yield CounterMetricFamily("kibitz_events_committed", "Events committed to the store", bus.committed)
        yield CounterMetricFamily("kibitz_events_sent", "Events sent, counted once for each watcher", hub.sent)
        yield CounterMetricFamily(
            "kibitz_store_commits", "Transactions; fewer than events when several were grouped", writer.commits
        )
        yield CounterMetricFamily(
            "kibitz_store_retries", "Commits retried because the store was unavailable", writer.retries
        )
        yield GaugeMetricFamily("kibitz_watchers", "Connected sockets and streams", hub.watchers)
        yield GaugeMetricFamily("kibitz_backlog_bytes", "Bytes that wait for slow readers", hub.backlog.bytes)
        yield CounterMetricFamily(
            "kibitz_readers_dropped", "Connections closed because their reader did not read", hub.backlog.dropped
        )
        yield CounterMetricFamily(
            "kibitz_resyncs", "Times a watcher lagged and had to fetch the rest itself", hub.resyncs
        )
        yield GaugeMetricFamily(
            "kibitz_bus_away", "1 while the bus to other servers is unreachable", bool(link and link.away)
        )
        yield CounterMetricFamily(
            "kibitz_bus_left_out",
            "Events dropped from a full queue to the bus; other servers read them from the store",
            link.left_out if link else 0,
        )
        yield GaugeMetricFamily("kibitz_sessions", "Open OpenEnv sessions", len(sessions))
        yield CounterMetricFamily("kibitz_sessions_refused", "OpenEnv sessions refused at the limit", sessions.refused)
        for name, help_text, label, counts in (
            ("kibitz_refused", "Requests and connections refused, by status", "status", guard.refused),
            ("kibitz_sockets_refused", "Watchers' sockets closed with an error, by close code", "code", hub.refused),
        ):
            family = CounterMetricFamily(name, help_text, labels=[label])
            for value, count in sorted(counts.items()):
                family.add_metric([str(value)], count)
            yield family
