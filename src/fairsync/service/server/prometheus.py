"""Metrics for Prometheus: requests, micro-batches, and the state of the promises."""

from __future__ import annotations

import threading
from bisect import bisect_left
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from fairsync.errors import FairSyncError
from fairsync.text import shortened

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.metrics_core import Metric

    from fairsync.service.promises.promise_service import PromiseService
    from fairsync.service.schema import Overview

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
# Seconds to wait for the state of the promises, which may wait for the ledger.
_PATIENCE_SECONDS = 1.0
_LONGEST_NAME = 100  # characters of a promise's name, which may list thousands of labels: its id tells it apart
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """The metrics of one service.

    Parameters
    ----------
    service
        Gives the state of the promises whenever the metrics are read.
    """

    def __init__(self, service: PromiseService) -> None:
        self.registry = CollectorRegistry()
        self._calls = _CallCollector()
        self.call = self._calls.call
        self.registry.register(self._calls)
        self._batches = Histogram(
            "fairsync_batch_requests", "Requests per micro-batch.", buckets=_SIZES, registry=self.registry
        )
        self.waiting = Gauge(
            "fairsync_waiting_requests", "Requests in the queue or the search.", registry=self.registry
        )
        ready = Gauge("fairsync_ready", "Whether requests can be answered: 1 or 0.", registry=self.registry)
        ready.set_function(lambda: service.ready()[0])
        self.registry.register(_RequestCollector(service))
        self.registry.register(_PromiseCollector(service))

    def batch(self, size: int) -> None:
        """Count a micro-batch."""
        self._batches.observe(size)

    def text(self) -> bytes:
        """Return the metrics in the text format of Prometheus."""
        return generate_latest(self.registry)


class _CallCollector:
    """Counts requests, and their latency by path. The event loop writes, Prometheus reads.

    The counters of the client library take a lock for each of five numbers, which is longer than the sums take.
    """

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str, int], int] = {}
        # Of each path: requests by bucket, and seconds in all.
        self._latency: dict[str, tuple[list[int], list[float]]] = {}

    def call(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a request."""
        key = method, path, status
        self._calls[key] = self._calls.get(key, 0) + 1
        latency = self._latency.get(path)
        if latency is None:
            latency = self._latency[path] = [0] * (len(_SECONDS) + 1), [0.0]
        latency[0][bisect_left(_SECONDS, seconds)] += 1
        latency[1][0] += seconds

    def describe(self) -> Iterable[Metric]:
        """Return the families without their samples."""
        return [
            CounterMetricFamily("fairsync_calls", "Requests answered.", labels=["method", "path", "status"]),
            HistogramMetricFamily("fairsync_call_seconds", "Latency of requests.", labels=["path"]),
        ]

    def collect(self) -> Iterable[Metric]:
        """Return the counts."""
        calls, seconds = self.describe()
        assert isinstance(calls, CounterMetricFamily)
        assert isinstance(seconds, HistogramMetricFamily)
        for (method, path, status), n in list(self._calls.items()):
            calls.add_metric([method, path, str(status)], n)
        for path, (counts, total) in list(self._latency.items()):
            sums = accumulate(counts)
            seconds.add_metric([path], list(zip([*map(str, _SECONDS), "+Inf"], sums, strict=True)), total[0])
        return [calls, seconds]


class _RequestCollector:
    """Collects how many requests were answered by a fallback, or could not be counted on."""

    def __init__(self, service: PromiseService) -> None:
        self._front = service.front

    def collect(self) -> Iterable[Metric]:
        """Return the counters."""
        for name, what, value in (
            ("cold", "Requests of users of whom nothing was known.", self._front.cold_requests),
            (
                "limited",
                "Requests that could not show what floors count on.",
                self._front.limited_requests,
            ),
        ):
            yield CounterMetricFamily(f"fairsync_{name}_requests", what, value=float(value))


class _PromiseCollector:
    """Collects the state of groups and promises when Prometheus scrapes.

    While the ledger is away, that state may have to wait for it. Then these metrics are left out.
    """

    def __init__(self, service: PromiseService) -> None:
        self._service, self._thread, self._lock = service, ThreadPoolExecutor(1, "metrics"), threading.Lock()
        self._pending: Future[Overview] | None = None

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the groups are not known in advance."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Return the gauges of all groups and promises."""
        now = self._overview()
        if now is None:
            return
        for name, what in (
            ("retrieved", "Candidates in the current period."),
            ("impressions", "Impressions in the current period."),
            ("floor", "Exposures needed in the current period."),
            ("price", "Subtracted from relevance."),
            ("cost_share", "Relevance lost to its items, as a share; an estimate."),
        ):
            family = GaugeMetricFamily(f"fairsync_group_{name}", what, labels=["group"])
            for group in now.groups:
                if getattr(group, name) is not None:
                    family.add_metric([str(group.group)], float(getattr(group, name)))
            yield family
        for name, what in (
            ("floor", "Floor of the current window."),
            ("cap", "Cap of the current window."),
            ("priority", "Priority: 1 is kept first."),
            ("exposures", "Exposures in the current window so far."),
            ("projected", "Exposures expected at the end of the window."),
            ("shortfall", "Exposures that will be missing at the end."),
            ("possible", "Whether all of it can still be kept in its window: 1 or 0."),
            ("would_cost", "Relevance that the exposures which are given up would cost, about."),
        ):
            family = GaugeMetricFamily(f"fairsync_promise_{name}", what, labels=["promise", "name", "group"])
            for promise in now.promises:
                if getattr(promise, name) is not None:
                    label = "" if promise.group is None else str(promise.group)
                    labels = [promise.id, shortened(promise.name, _LONGEST_NAME), label]
                    family.add_metric(labels, float(getattr(promise, name)))
            yield family
        for name, what, value in (
            ("items", "Items in the catalog.", now.items),
            ("requests", "Requests in the current period.", now.requests),
            ("expected_requests", "Requests forecast for the whole period.", now.expected_requests),
            ("degraded_share", "Share of recent answers that lacked a part of the catalog.", now.degraded),
            ("cost_share", "Relevance given up, as a share of the relevance without promises.", now.cost_share),
            ("least_cost_share", "Least possible cost share; an estimate.", now.least.least_share),
            ("cost_ratio", "Cost over least possible cost; an estimate.", now.least.ratio),
            ("budget_share", "Part of the relevance that promises may cost.", now.budget),
            (
                "budget_spent_share",
                "Part of the relevance that they have cost, of which that is the limit.",
                now.budget_spent,
            ),
            ("alerts", "Active alerts.", len(now.alerts)),
            ("shards_down", "Replicas of shards that do not answer.", sum(not shard.up for shard in now.shards)),
        ):
            if value is not None:
                yield GaugeMetricFamily(f"fairsync_{name}", what, value=float(value))

    def _overview(self) -> Overview | None:
        """Return the state of the service; None if it cannot be read in time."""
        with self._lock:
            if self._pending is None or self._pending.done():  # one that waits for the ledger is enough
                self._pending = self._thread.submit(self._service.overview)
            try:
                return self._pending.result(_PATIENCE_SECONDS)
            except (FairSyncError, TimeoutError):
                return None
