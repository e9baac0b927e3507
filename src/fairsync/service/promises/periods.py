"""Periods: the time between two moments at which any window begins or ends, one horizon of the ledger each."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from fairsync.errors import UnknownGroupError
from fairsync.schedule import active_spans
from fairsync.service.promises.columns import column_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from fairsync.catalog.groups import Label
    from fairsync.coordination.coordinator import Coordinator
    from fairsync.ledger import Totals
    from fairsync.schedule import ScheduledPromise, Span
    from fairsync.service.promises.ledger_time import LedgerTime


@dataclass(frozen=True)
class CountsBefore:
    """Counts of all periods before the present one.

    Attributes
    ----------
    period : float
        When the present period began, in the ledger's time.
    retrieved, impressions : numpy.ndarray
        (G,) candidates, and impressions, ever.
    requests : int
        Requests ever.
    exposures : dict
        Exposures of each promise in its present window.
    in_window : dict
        Requests of each present window.
    """

    period: float
    retrieved: NDArray[np.int64]
    impressions: NDArray[np.int64]
    requests: int
    exposures: Mapping[ScheduledPromise, int]
    in_window: Mapping[Span, int]


class Periods:
    """The horizons of the ledger as the periods that make up windows.

    The ledger knows when each period began, so that the exposures of every window can be read from the ledger alone,
    whichever process was killed when.

    Parameters
    ----------
    coordinator
        The coordinator of the ledger. It may know settled requests that the ledger has not recorded yet.
    count
        ``"retrieved"`` or ``"impressions"``: what an exposure is.
    time
        The ledger's time.

    Attributes
    ----------
    before : CountsBefore
        Counts before the present period, as of the last :meth:`recount`.
    time : LedgerTime
        The ledger's time.
    """

    before: CountsBefore

    def __init__(self, coordinator: Coordinator, count: str, time: LedgerTime) -> None:
        self._coordinator, self._count, self.time = coordinator, count, time
        self._attribute = coordinator.group_attribute

    @property
    def present(self) -> Totals:
        """The present period, as far as it is settled and known here."""
        return self._coordinator.totals()

    @property
    def is_stale(self) -> bool:
        """Whether another replica has begun a period since the last :meth:`recount`."""
        return self.present.began != self.before.period

    def started(self, period: Totals) -> datetime | None:
        """Return when a period began; None if it began before the first plan."""
        return datetime.fromtimestamp(self.time.to_clock(period.began), UTC) if period.began else None

    def past(self) -> list[Totals]:
        """Return the periods before the present one. The ledger may not know the present one yet."""
        began, last = self.present.began, self._coordinator.ledger.totals()
        past = list(self._coordinator.ledger.past())
        if not past or past[-1].began != last.began:  # otherwise the period ended between the two calls
            past.append(last)
        return [one for one in past if one.began < began]

    def all(self) -> list[Totals]:
        """Return all periods, the present one last."""
        return [*self.past(), self.present]

    def counted(self, period: Totals | None = None) -> NDArray[np.int64]:
        """Return (G,) the exposures of a period, by default of the present one."""
        period = self.present if period is None else period
        if self._count == "retrieved":
            return period.exposures
        return np.zeros_like(period.exposures) if period.impressions is None else period.impressions

    def ever(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return (G,) the candidates, and the impressions, of all periods."""
        before, period, n = self.before, self.present, len(self.before.retrieved)
        impressions = before.impressions if period.impressions is None else before.impressions + period.impressions[:n]
        return before.retrieved + period.exposures[:n], impressions

    def recount(self, promises: Collection[ScheduledPromise], now: datetime) -> None:
        """Count again what came before the present period."""
        self._recount(promises, now, self.past(), self.present.began)

    def recount_for_next(self, promises: Collection[ScheduledPromise], now: datetime) -> float:
        """Count what comes before a period that begins now, and return its start in the ledger's time."""
        ending = self.present
        start = self.time.next_start(ending.began, now.timestamp())
        self._recount(promises, now, [*self.past(), ending], start)
        return start

    def _recount(
        self, promises: Collection[ScheduledPromise], now: datetime, past: Sequence[Totals], began: float
    ) -> None:
        n = len(self._coordinator.labels)  # another replica may just have added groups
        zeros = np.zeros(n, dtype=np.int64)
        spans = active_spans(promises, now)
        exposures = self.exposures_in_each(spans.items(), past)
        self.before = CountsBefore(
            began,
            sum((one.exposures[:n] for one in past), zeros),
            sum((one.impressions[:n] for one in past if one.impressions is not None), zeros),
            sum(one.requests for one in past),
            dict(zip(spans, exposures, strict=True)),
            {span: self.requests_in(span, past) for span in set(spans.values())},
        )

    def exposures(
        self, promises: Iterable[ScheduledPromise], present: Totals | None = None
    ) -> dict[ScheduledPromise, int]:
        """Return the exposures of promises in their present windows, with those of the present period so far."""
        counts = dict(zip(self._coordinator.labels, self.counted(present).tolist(), strict=False))
        return {
            promise: self.before.exposures.get(promise, 0) + counts.get(column_of(promise, self._attribute), 0)
            for promise in promises
        }

    def requests(self, span: Span, present: Totals | None = None) -> int:
        """Return the requests of a present window so far."""
        return self.before.in_window.get(span, 0) + (self.present if present is None else present).requests

    def exposures_in(self, span: Span, promise: ScheduledPromise, periods: Sequence[Totals]) -> int:
        """Return the exposures of a promise in those periods that belong to a window."""
        return self.exposures_in_each([(promise, span)], periods)[0]

    def requests_in(self, span: Span, periods: Sequence[Totals]) -> int:
        """Return the requests of those periods that belong to a window."""
        return sum(period.requests for period in self._within(span, periods))

    def exposures_in_each(
        self, windows: Iterable[tuple[ScheduledPromise, Span]], periods: Sequence[Totals]
    ) -> list[int]:
        """Return the exposures of promises in those periods that belong to their windows."""
        counts: dict[Span, list[NDArray[np.int64]]] = {}  # thousands of promises may have the same few windows
        exposures = []
        for promise, span in windows:
            if span not in counts:
                counts[span] = [self.counted(one) for one in self._within(span, periods)]
            code = self._code_of(column_of(promise, self._attribute))
            exposures.append(sum(int(one[code]) for one in counts[span] if 0 <= code < len(one)))
        return exposures

    def missing_at_start(
        self, exposures: Mapping[ScheduledPromise, int], floors: Mapping[ScheduledPromise, int]
    ) -> NDArray[np.float64]:
        """Return (G,) the exposures that floors lacked when the present period began, by column; 0 without a floor.

        Parameters
        ----------
        exposures, floors
            Exposures up to now, and the floor, of each promise in its present window.
        """
        missing = np.zeros(len(self.counted()))
        for code, lacked in self._left_at_start(exposures, floors):
            missing[code] = max(missing[code], lacked)
        return missing

    def room_at_start(
        self, exposures: Mapping[ScheduledPromise, int], caps: Mapping[ScheduledPromise, int]
    ) -> NDArray[np.float64]:
        """Return (G,) the exposures that caps allowed when the present period began, by column; inf without a cap."""
        room = np.full(len(self.counted()), np.inf)
        for code, allowed in self._left_at_start(exposures, caps):
            room[code] = min(room[code], max(allowed, 0))
        return room

    def _left_at_start(
        self, exposures: Mapping[ScheduledPromise, int], bounds: Mapping[ScheduledPromise, int]
    ) -> Iterator[tuple[int, int]]:
        """Yield the column of each bound, and its distance from the exposures when the present period began."""
        counted = self.counted()
        for promise, so_far in exposures.items():
            code = self._code_of(column_of(promise, self._attribute)) if promise in bounds else -1
            if code >= 0:  # others are counted from the next plan on
                yield code, bounds[promise] - so_far + int(counted[code])

    def _code_of(self, label: Label) -> int:
        try:
            return self._coordinator.groups.code_of(label)
        except UnknownGroupError:
            return -1

    def within(self, span: Span) -> list[Totals]:
        """Return the periods that belong to a window, with the present one."""
        return self._within(span, self.all())

    def _within(self, span: Span, periods: Sequence[Totals]) -> list[Totals]:
        started = [(one, self.started(one)) for one in periods]
        return [one for one, at in started if at is not None and at in span]
