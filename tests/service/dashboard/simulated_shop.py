"""A simulated shop for the dashboard: a real promise service, with a clock and traffic that tests control."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.catalog.groups import Label
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.schedule import Forecast, ScheduledPromise
from fairsync.search import ExactIndex, Hits, Index, ShardedIndex
from fairsync.search.eligibility import Eligibility
from fairsync.search.sharded import merge
from fairsync.service.promises.promise_service import PromiseService
from fairsync.service.schema import PromiseView

K, DIM = 10, 16
RATE = 0.01
# Traffic by hour of the day, relative to the mean: low at night, high in the evening.
_HOURS = np.array([3, 2, 1, 1, 1, 2, 4, 7, 9, 10, 11, 12, 13, 12, 11, 11, 12, 14, 17, 19, 18, 14, 9, 5]) / 9.08


class SimulatedShop:
    """A promise service under simulated traffic. Each test advances its clock."""

    def __init__(
        self,
        labels: Sequence[Label],
        promises: Sequence[ScheduledPromise],
        start: datetime,
        seed: int = 0,
        index: Callable[[Catalog], Index] = ExactIndex,
    ) -> None:
        self._rng = np.random.default_rng(seed)
        self._seconds = start.timestamp()
        catalog = self._make_catalog(labels)
        forecast = Forecast(RATE, slot=3600).learn(self._month_before(start), start - timedelta(days=28), start)
        coordinator = Coordinator(catalog, k=K, floors=0, horizon=1, auto_restart=False)
        front = FrontEnd(catalog, coordinator, index=index(catalog))
        # With more caution, most promises would be kept by noon.
        self.promise_service = PromiseService(
            front, coordinator, promises, forecast, clock=lambda: self._seconds, worst_case_traffic=1 / 3
        )
        self.promise_service.cost_monitor.every = math.inf

    def advance(self, hours: int, traffic: float = 1.0) -> None:
        """Advance the clock hour by hour. ``traffic`` is relative to the usual traffic."""
        for _ in range(hours):
            mean = 3600 * RATE * traffic * _HOURS[int(self._seconds) // 3600 % 24]
            self.serve(int(self._rng.poisson(mean)))
            self._seconds += 3600
            self.promise_service.refresh()

    def serve(self, requests: int, where: Mapping[str, object] | None = None) -> None:
        """Answer a batch of random requests, all of them under a condition if there is one."""
        if requests:
            conditions = None if where is None else [where] * requests
            self.promise_service.retrieve(self._rng.normal(size=(requests, DIM)), where=conditions)

    def estimate_cost(self) -> None:
        """Estimate the cost of the promises now."""
        self.promise_service.cost_monitor.measure()

    def view(self, label: Label) -> PromiseView:
        """Return the first promise of a group with its status."""
        return next(view for view in self.promise_service.promises() if view.group == label)

    def _make_catalog(self, labels: Sequence[Label]) -> Catalog:
        """Return a catalog whose groups are clusters of different sizes."""
        codes = np.repeat(np.arange(len(labels)), self._rng.integers(20, 90, size=len(labels)))
        centres = self._rng.normal(size=(len(labels), DIM))
        vectors = centres[codes] + 1.4 * self._rng.normal(size=(len(codes), DIM))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return Catalog(vectors, np.array(labels, dtype=object)[codes].tolist())

    def _month_before(self, start: datetime) -> npt.NDArray[np.float64]:
        hours = start.timestamp() - 3600 * np.arange(28 * 24, 0, -1)
        counts = self._rng.poisson(3600 * RATE * _HOURS[(hours // 3600).astype(int) % 24])
        return np.asarray(np.repeat(hours, counts) + self._rng.uniform(0, 3600, size=counts.sum()))


@dataclass(frozen=True)
class ShardHealth:
    """The health of a shard, as a Ray index reports it."""

    shard: int
    replica: int
    items: int
    up: bool
    error: str


class FailingShards(ShardedIndex):
    """A sharded index whose shards can fail, as those of a cluster: answers then lack their items."""

    failed: frozenset[int] = frozenset()

    def search(
        self,
        users: npt.NDArray[np.floating],
        prices: npt.NDArray[np.float64] | None,
        k: int,
        eligible: Eligibility | None = None,
    ) -> Hits:
        alive = [shard for number, shard in enumerate(self.shards) if number not in self.failed]
        answers = [shard.search(users, prices, k, eligible) for shard in alive]
        merged = merge(answers, self.catalog.group_of, self.catalog.rank, prices, k)
        if not self.failed:
            return merged
        rows = np.concatenate([shard.rows for shard in alive])
        reached = np.bincount(self.catalog.group_of[rows], minlength=self.catalog.n_groups).astype(np.int64)
        return replace(merged, reached=reached)

    def health(self) -> list[ShardHealth]:
        return [
            ShardHealth(
                number, 0, len(shard.rows), number not in self.failed, "no answer" if number in self.failed else ""
            )
            for number, shard in enumerate(self.shards)
        ]


def utc(text: str) -> datetime:
    """Return a datetime in UTC from ISO text."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
