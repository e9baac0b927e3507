"""Real and synthetic days for a promise service, and a plain calculation of which promises could be kept."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog
from scipy.sparse import coo_array

from fairsync.catalog import Catalog
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.data.synthetic import synthetic
from fairsync.ledger import MemoryLedger
from fairsync.schedule import WORST_CASE_TRAFFIC, Span
from fairsync.service.promises.promise_service import PromiseService

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fairsync.catalog.groups import Label
    from fairsync.schedule import Forecast, ScheduledPromise
    from fairsync.service.schema import PastWindow

Times = npt.NDArray[np.float64]
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
K = 5


class Shop:
    """A small catalog with a group of one item, and promise services on a ledger that outlives them."""

    def __init__(self, promises: Sequence[ScheduledPromise], forecast: Forecast, seed: int = 0, **options: Any) -> None:
        data = synthetic(n_items=200, n_groups=5, n_users=4_000, dim=8, seed=seed)
        self.catalog = Catalog(data.embeddings, ["rare", *(str(group) for group in data.groups[1:])])
        self.large = [label for label in self.catalog.labels if label != "rare"]
        self.users, self.promises, self.forecast, self.options = data.users, promises, forecast, options
        sizes = zip(self.catalog.labels, self.catalog.group_sizes.tolist(), strict=True)
        self.capacities: dict[Label, int] = {label: min(K, size) for label, size in sizes}
        self.ledger = MemoryLedger(self.catalog.n_groups)
        self.worst_case_traffic = float(options.get("worst_case_traffic", WORST_CASE_TRAFFIC))
        self.given: list[tuple[float, Label]] = []
        self.alerts: set[tuple[Label | None, datetime, str]] = set()
        self.relevance = self.plain_relevance = 0.0

    def open(self, clock: Callable[[], float]) -> PromiseService:
        """Return a promise service on the ledger of the shop."""
        coordinator = Coordinator(self.catalog, k=K, floors=0, horizon=1, ledger=self.ledger, auto_restart=False)
        front = FrontEnd(self.catalog, coordinator)
        return PromiseService(front, coordinator, self.promises, self.forecast, clock=clock, **self.options)

    def serve(self, promise_service: PromiseService, first: int, last: int) -> None:
        """Have requests answered, and take down what they got; in between, look at the alerts as people would."""
        if first == last:
            ends = {view.id: view.end for view in promise_service.promises()}
            self.alerts |= {
                (one.promise, ends[one.promise], one.kind) for one in promise_service.overview().alerts if one.promise
            }
            return
        users = self.vectors(first, last)
        found = promise_service.retrieve(users)
        scores = users @ np.asarray(self.catalog.embeddings, dtype=np.float64).T
        self.plain_relevance += float(-np.sort(-scores, axis=1)[:, :K].sum())
        rows = np.asarray(found.ids, dtype=np.int64)
        self.relevance += float(np.take_along_axis(scores, rows, axis=1).sum())
        self.given += [(promise_service.scheduler.now().timestamp(), label) for label in found.groups.ravel().tolist()]

    def vectors(self, first: int, last: int) -> npt.NDArray[np.float64]:
        """Return the users of some requests."""
        return np.take(self.users, range(first, last), axis=0, mode="wrap")

    def had(self, window: PastWindow) -> int:
        """Return what a window has had, counted one by one."""
        start, end = window.start.timestamp(), window.end.timestamp()
        return sum(label == window.group and start <= at < end for at, label in self.given)


@dataclass(frozen=True)
class Outcome:
    """How a window of a promise ended, counted one by one."""

    promise: ScheduledPromise
    span: Span
    exposures: int
    floor: int
    cap: int | None

    @property
    def missing(self) -> int:
        """The exposures that are missing."""
        return max(self.floor - self.exposures, 0)

    @property
    def is_exceeded(self) -> bool:
        """Whether there are more exposures than the cap allows."""
        return self.cap is not None and self.exposures > self.cap

    @property
    def labels(self) -> frozenset[Label]:
        """The groups that the promise is about."""
        (wanted,) = self.promise.promise.where.values()
        return frozenset(wanted if isinstance(wanted, (list, tuple)) else [wanted])


def outcomes(shop: Shop, start: datetime, end: datetime, came: Times) -> list[Outcome]:
    """Return how every window between two moments ended. Shares are of the requests that came."""
    at = np.array([moment for moment, _ in shop.given])
    found = []
    for promise in shop.promises:
        first = promise.window.at(start) or promise.window.after(start)
        spans = ([first] if first else []) + list(promise.window.between(first.end if first else end, end))
        for span in spans:
            if span.end > end:
                continue
            whole = Outcome(promise, span, 0, 0, None)
            low, high = np.searchsorted(at, [span.start.timestamp(), span.end.timestamp()])
            had = sum(label in whole.labels for _, label in shop.given[low:high])
            slots = K * len(within(came, span))
            one = promise.promise
            found.append(Outcome(promise, span, had, one.floor(slots), one.cap(slots)))
    return found


def could_have_been_kept(shop: Shop, missed: Outcome, every: Sequence[Outcome], came: Times) -> bool:
    """Say whether a missed floor could have been met without any other promise getting less than it got.

    Variables are the exposures of each group in each stretch of time between two edges of windows.
    """
    edges = sorted({edge.timestamp() for one in every for edge in (one.span.start, one.span.end)})
    requests = np.diff(np.searchsorted(came, edges))
    labels, n = list(shop.capacities), len(requests)
    entries: list[tuple[int, int, int]] = []
    limits: list[int] = []

    def add(groups: Sequence[int], first: int, last: int, sign: int, limit: int) -> None:
        entries.extend((len(limits), group * n + stretch, sign) for group in groups for stretch in range(first, last))
        limits.append(limit)

    for stretch in range(n):
        add(range(len(labels)), stretch, stretch + 1, 1, int(requests[stretch]) * K)
    for one in every:
        first, last = np.searchsorted(edges, [one.span.start.timestamp(), one.span.end.timestamp()]).tolist()
        groups = [group for group, label in enumerate(labels) if label in one.labels]
        floor = one.floor if one is missed else min(one.floor, one.exposures)
        if floor > 0:
            add(groups, first, last, -1, -floor)
        if one.cap is not None:
            add(groups, first, last, 1, max(one.cap, one.exposures))
    rows, columns, values = zip(*entries, strict=True)
    matrix = coo_array((values, (rows, columns)), shape=(len(limits), len(labels) * n))
    most = [(0, int(shop.capacities[label] * count)) for label in labels for count in requests]
    found = linprog(np.zeros(len(most)), matrix.tocsr(), limits, bounds=most)  # type: ignore[call-overload]  # stubs know no sparse matrix
    return bool(found.status == 0)


@dataclass(frozen=True)
class Audit:
    """How windows ended, next to what could have been.

    A window that was missed was *impossible* if no way of dealing out the slots of the requests that came would have
    kept it without taking from another promise what it had got; otherwise the service was *surprised*.
    """

    kept: list[PastWindow]
    impossible: list[PastWindow]
    surprised: list[PastWindow]

    @property
    def lead_times(self) -> dict[str, float]:
        """Of what was missed in windows longer than an hour: hours before the end, in the median."""
        long = [one for one in self.impossible if one.end - one.start > HOUR and not one.note]
        known = {
            "warned": [one.end - one.at_risk_since for one in long if one.at_risk_since],
            "known": [one.end - one.impossible_since for one in long if one.impossible_since],
        }
        return {what: float(np.median([one / HOUR for one in ahead])) for what, ahead in known.items() if ahead}

    @property
    def figures(self) -> Counter[str]:
        """The numbers of windows."""
        return Counter(
            kept=len(self.kept),
            possible=len(self.kept) + len(self.surprised),
            impossible=len(self.impossible),
            surprised=len(self.surprised),
            unforeseen=sum(one.impossible_since is None for one in self.impossible if not one.note),
            false_alarms=sum(one.impossible_since is not None for one in self.kept),
        )


def audit(past: Sequence[PastWindow], came: Times, capacities: Mapping[Label, int], k: int = K) -> Audit:
    """Compare windows with what the requests that came could carry, all together, by linear programs."""
    got = [msgspec.structs.replace(one, floor=min(one.floor, one.exposures)) for one in past]
    could: dict[bool, list[PastWindow]] = {True: [], False: []}
    for place, one in enumerate(past):
        if not one.kept:
            could[can_carry([*got[:place], one, *got[place + 1 :]], came, capacities, k)].append(one)
    return Audit([one for one in past if one.kept], impossible=could[False], surprised=could[True])


def group_of(window: PastWindow) -> Label:
    """Return the label that a window was promised to."""
    assert window.group is not None
    return window.group


def can_carry(windows: Sequence[PastWindow], came: Times, capacities: Mapping[Label, int], k: int) -> bool:
    """Say whether requests at these times can give all these windows their floors.

    Variables are the exposures of each group in each stretch of time between two edges of windows. The matrix is that
    of a network, so that a whole-numbered way exists if any does.
    """
    alone = [one.floor <= len(within(came, one)) * capacities[group_of(one)] for one in windows]
    if not all(alone):
        return False
    edges = sorted({edge.timestamp() for one in windows for edge in (one.start, one.end)})
    requests = np.diff(np.searchsorted(came, edges))
    labels = list(dict.fromkeys(map(group_of, windows)))
    n = len(requests)
    entries: list[tuple[int, int, int]] = []
    for group in range(len(labels)):  # the slots of every stretch
        entries += [(stretch, group * n + stretch, 1) for stretch in range(n)]
    limits = (requests * k).tolist()
    for row, one in enumerate(windows, start=n):
        first, last = np.searchsorted(edges, [one.start.timestamp(), one.end.timestamp()])
        entries += [(row, labels.index(group_of(one)) * n + stretch, -1) for stretch in range(first, last)]
        limits.append(-one.floor)
    rows, columns, values = zip(*entries, strict=True)
    matrix = coo_array((values, (rows, columns)), shape=(len(limits), len(labels) * n))
    most = [(0, int(capacities[label] * count)) for label in labels for count in requests]
    found = linprog(np.zeros(len(most)), matrix.tocsr(), limits, bounds=most)  # type: ignore[call-overload]  # stubs know no sparse matrix
    return bool(found.status == 0)


def within(came: Times, window: PastWindow | Span) -> Times:
    first, last = np.searchsorted(came, [window.start.timestamp(), window.end.timestamp()])
    return came[first:last]


def without(came: Times, down: Sequence[Span]) -> Times:
    """Return the requests that came while the service was there."""
    for gap in down:
        came = came[(came < gap.start.timestamp()) | (came >= gap.end.timestamp())]
    return came


def outages(start: datetime, end: datetime) -> list[Span]:
    """Return two outages in the middle of some days."""
    length = end - start
    return [Span(start + first * length, start + last * length) for first, last in ((0.3, 0.38), (0.6, 0.75))]


def with_trouble(times: Times, start: datetime, end: datetime, trouble: str, seed: int = 0) -> Times:
    """Return traffic with three times or a third of the requests in the middle, or with a tenth from some hour on."""
    length = end - start
    if trouble == "collapse":
        hour = np.random.default_rng([seed, 7]).uniform(0.15, 0.6)
        return changed(times, start + float(hour) * length, end, 0.1, seed)
    factor = {"surge": 3.0, "slump": 1 / 3}.get(trouble)
    return changed(times, start + 0.35 * length, start + 0.7 * length, factor) if factor else times


def changed(times: Times, start: datetime, end: datetime, factor: float, seed: int = 0) -> Times:
    """Return traffic multiplied by a factor between two moments: thinned out, or repeated a little later."""
    inside = (times >= start.timestamp()) & (times < end.timestamp())
    rng, here = np.random.default_rng(seed), times[inside]
    copies = int(factor) + (rng.random(len(here)) < factor - int(factor))
    more = np.repeat(here, copies)
    more = np.minimum(more + rng.random(len(more)) * 300, end.timestamp() - 1)
    return np.sort(np.concatenate([times[~inside], more]))


def spread(times: npt.NDArray[np.int64]) -> Times:
    """Spread the visits of each day evenly from 9:00 to 21:00, where a log knows the day only."""
    days, counts = np.unique(times // 86_400, return_counts=True)
    hours = [9 + 12 * (np.arange(count) + 0.5) / count for count in counts]
    return np.concatenate([day * 86_400 + 3_600 * hour for day, hour in zip(days, hours, strict=True)])


def usual_traffic(start: datetime, days: int, per_day: int, seed: int = 0) -> Times:
    """Return requests that come as in a shop: few at night, most in the evening, fewer at the weekend."""
    rng, first = np.random.default_rng(seed), start.astimezone(UTC).timestamp()
    hours = np.array([3, 2, 1, 1, 1, 2, 4, 7, 9, 10, 11, 12, 13, 12, 11, 11, 12, 14, 17, 19, 18, 14, 9, 5]) / 218
    times = [
        first + 86_400 * day + 3_600 * (rng.choice(24, n, p=hours) + rng.random(n))
        for day in range(days)
        for n in [int(rng.poisson(per_day * (0.7 if (start + day * DAY).weekday() > 4 else 1.0)))]
    ]
    return np.sort(np.concatenate(times))
