"""Real and synthetic days for a promise service, and a plain calculation of which promises could be kept."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

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
        self.served: list[tuple[float, npt.NDArray[np.float64]]] = []
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
        at = promise_service.scheduler.now().timestamp()
        self.given += [(at, label) for label in found.groups.ravel().tolist()]
        self.served += [(at, user) for user in users]

    def vectors(self, first: int, last: int) -> npt.NDArray[np.float64]:
        """Return the users of some requests."""
        return np.take(self.users, range(first, last), axis=0, mode="wrap")

    def had(self, window: PastWindow) -> int:
        """Return what a window has had, counted one by one."""
        start, end = window.start.timestamp(), window.end.timestamp()
        return sum(label == window.group and start <= at < end for at, label in self.given)


@dataclass(frozen=True)
class Outcome:
    """How a window ended.

    Attributes
    ----------
    labels : frozenset
        The groups that it was promised to.
    span : Span
        The window.
    exposures : int
        The exposures of these groups in it.
    floor, cap : int
        The bounds that were promised; a cap may be None.
    promise : str
        The promise, in words.
    """

    labels: frozenset[Label]
    span: Span
    exposures: int
    floor: int
    cap: int | None = None
    promise: str = ""

    @property
    def missing(self) -> int:
        """The exposures that are missing."""
        return max(self.floor - self.exposures, 0)

    @property
    def is_exceeded(self) -> bool:
        """Whether there are more exposures than the cap allows."""
        return self.cap is not None and self.exposures > self.cap


def outcomes(shop: Shop, start: datetime, end: datetime, came: Times) -> list[Outcome]:
    """Return how every window between two moments ended. Shares are of the requests that came."""
    at = np.array([moment for moment, _ in shop.given])
    found = []
    for promise in shop.promises:
        (wanted,) = promise.promise.where.values()
        labels: frozenset[Label] = frozenset(wanted if isinstance(wanted, (list, tuple)) else [wanted])
        first = promise.window.at(start) or promise.window.after(start)
        spans = ([first] if first else []) + list(promise.window.between(first.end if first else end, end))
        for span in spans:
            if span.end > end:
                continue
            low, high = np.searchsorted(at, [span.start.timestamp(), span.end.timestamp()])
            had = sum(label in labels for _, label in shop.given[low:high])
            slots = K * len(within(came, span))
            one = promise.promise
            found.append(Outcome(labels, span, had, one.floor(slots), one.cap(slots), str(promise)))
    return found


def could_have_been_kept(
    capacities: Mapping[Label, int], missed: Outcome, every: Sequence[Outcome], came: Times
) -> bool:
    """Say whether a missed floor could have been met without any other window getting less than it got.

    Variables are the exposures of each group in each stretch of time between two edges of windows.
    """
    held = sum(capacities[label] for label in missed.labels)
    if missed.floor > len(within(came, missed.span)) * min(held, K):
        return False
    edges = sorted({edge.timestamp() for one in every for edge in (one.span.start, one.span.end)})
    requests = np.diff(np.searchsorted(came, edges))
    labels, n = list(capacities), len(requests)
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
    most = [(0, int(capacities[label] * count)) for label in labels for count in requests]
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


def audit(past: Sequence[PastWindow], came: Times, capacities: Mapping[Label, int]) -> Audit:
    """Compare the windows that a service has recorded with what the requests that came could carry."""
    every = [Outcome(frozenset([group_of(one)]), Span(one.start, one.end), one.exposures, one.floor) for one in past]
    could: dict[bool, list[PastWindow]] = {True: [], False: []}
    for one, outcome in zip(past, every, strict=True):
        if not one.kept:
            could[could_have_been_kept(capacities, outcome, every, came)].append(one)
    return Audit([one for one in past if one.kept], impossible=could[False], surprised=could[True])


def group_of(window: PastWindow) -> Label:
    """Return the label that a window was promised to."""
    assert window.group is not None
    return window.group


def least_given_up(shop: Shop, every: Sequence[Outcome]) -> float:
    """Return the least part of the relevance that hindsight would give up so that no window gets less than it got.

    A linear program over all requests: each has K slots, and of each group its K best items at most.
    """
    at, users = np.array([moment for moment, _ in shop.served]), np.array([user for _, user in shop.served])
    scores, n = users @ np.asarray(shop.catalog.embeddings, dtype=np.float64).T, len(users)
    best = [-np.sort(-scores[:, shop.catalog.group_of == code], axis=1)[:, :K] for code in range(len(shop.capacities))]
    group = np.concatenate([np.full(one.size, code) for code, one in enumerate(best)])
    request = np.concatenate([np.repeat(np.arange(n), one.shape[1]) for one in best])
    entries: list[npt.NDArray[np.float64]] = [np.zeros((3, 0))]
    limits: list[int] = []

    def add(inside: npt.NDArray[np.int64], sign: int, limit: int) -> None:
        rows = [np.full(len(inside), len(limits)), inside, np.full(len(inside), sign)]
        entries.append(np.array(rows, dtype=np.float64))
        limits.append(limit)

    for one in every:
        wanted = np.array([label in one.labels for label in shop.catalog.labels])
        during = (at >= one.span.start.timestamp()) & (at < one.span.end.timestamp())
        inside = np.flatnonzero(wanted[group] & during[request])
        add(inside, -1, -min(one.floor, one.exposures))
        if one.cap is not None:
            add(inside, 1, max(one.cap, one.exposures))
    row, column, sign = np.concatenate(entries, axis=1)
    windows = coo_array((sign, (row.astype(int), column.astype(int))), shape=(len(limits), len(group)))
    slots = coo_array((np.ones(len(group)), (request, np.arange(len(group)))), shape=(n, len(group)))
    found = linprog(  # type: ignore[call-overload]  # stubs know no sparse matrix
        -np.concatenate([one.ravel() for one in best]), windows.tocsr(), limits, slots.tocsr(), np.full(n, K), (0, 1)
    )
    return float(1 + found.fun / shop.plain_relevance)


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
