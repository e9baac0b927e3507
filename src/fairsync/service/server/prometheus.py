"""Metrics for Prometheus: requests, micro-batches, and the state of the promises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.metrics_core import Metric

    from fairsync.service.promises.promise_service import PromiseService

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
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
        self._calls = Counter(
            "fairsync_calls", "Requests answered.", ["method", "path", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "fairsync_call_seconds", "Latency of requests.", ["path"], buckets=_SECONDS, registry=self.registry
        )
        self._batches = Histogram(
            "fairsync_batch_requests", "Requests per micro-batch.", buckets=_SIZES, registry=self.registry
        )
        self._known: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self.waiting = Gauge(
            "fairsync_waiting_requests", "Requests in the queue or the search.", registry=self.registry
        )
        self.registry.register(_PromiseCollector(service))

    def call(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a request."""
        # Looking labels up takes longer than counting.
        known = self._known.get((method, path, status))
        if known is None:
            known = self._calls.labels(method, path, str(status)), self._seconds.labels(path)
            self._known[method, path, status] = known
        counter, histogram = known
        counter.inc()
        histogram.observe(seconds)

    def batch(self, size: int) -> None:
        """Count a micro-batch."""
        self._batches.observe(size)

    def text(self) -> bytes:
        """Return the metrics in the text format of Prometheus."""
        return generate_latest(self.registry)


class _PromiseCollector:
    """Collects the state of groups and promises when Prometheus scrapes."""

    def __init__(self, service: PromiseService) -> None:
        self._service = service

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the groups are not known in advance."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Return the gauges of all groups and promises."""
        now = self._service.overview()
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
            ("exposures", "Exposures in the current window so far."),
            ("projected", "Exposures expected at the end of the window."),
            ("shortfall", "Exposures that will be missing at the end."),
        ):
            family = GaugeMetricFamily(f"fairsync_promise_{name}", what, labels=["promise", "group"])
            for promise in now.promises:
                family.add_metric([promise.id, str(promise.group)], float(getattr(promise, name)))
            yield family
        for name, what, value in (
            ("items", "Items in the catalog.", now.items),
            ("requests", "Requests in the current period.", now.requests),
            ("expected_requests", "Requests forecast for the whole period.", now.expected_requests),
            ("degraded_share", "Share of recent answers that lacked a part of the catalog.", now.degraded),
            ("cost_share", "Relevance given up, as a share of the relevance without promises.", now.cost_share),
            ("least_cost_share", "Least possible cost share; an estimate.", now.least.least_share),
            ("cost_ratio", "Cost over least possible cost; an estimate.", now.least.ratio),
            ("alerts", "Active alerts.", len(now.alerts)),
            ("shards_down", "Replicas of shards that do not answer.", sum(not shard.up for shard in now.shards)),
        ):
            if value is not None:
                yield GaugeMetricFamily(f"fairsync_{name}", what, value=float(value))
