"""Active windows: the windows of all promises at a moment, their deadlines, and what they demand."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fairsync.errors import InvalidInputError
from fairsync.plan import NO_CAP, Demands, Program
from fairsync.schedule.datetimes import check_aware

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from fairsync.schedule.promise import ScheduledPromise
    from fairsync.schedule.seasonal_profile import Floats, Ints
    from fairsync.schedule.supply import Supply
    from fairsync.schedule.window import Span, Window

MOST_DEADLINES = 64
"""Deadlines that a plan tells apart."""

# With more selections than this by deadlines, a plan has fewer deadlines: the time of a plan grows with both.
_MOST_CELLS = 60_000
# A period does not wait longer than this for a window to begin: the forecast would have to reach that far.
_LONGEST_WAIT = timedelta(days=7)
# Windows that cover this part of some segments, or more, cover them.
_COVERED = 0.999


class WindowProgress(NamedTuple):
    """How far the active window of each promise has come.

    Attributes
    ----------
    exposures : numpy.ndarray
        (P,) exposures that count, so far.
    pending : numpy.ndarray
        (P,) exposures that were retrieved before and will still count.
    requests : numpy.ndarray
        (P,) requests so far, for shares.
    """

    exposures: Ints
    pending: Ints
    requests: Ints


@dataclass(frozen=True, eq=False)
class ActiveWindows:
    """The promises at a moment, with their active windows and deadlines.

    Attributes
    ----------
    now : datetime
        The moment, in UTC.
    promises : tuple of ScheduledPromise
        Promises whose window is active or will begin later.
    spans : tuple of Span or None
        The active window of each promise, or None if it begins later.
    end : datetime
        End of the current *period*: the nearest moment at which any window begins or ends, so that no count has to be
        split. Without any such moment in sight, it is the next full hour.
    deadlines : tuple of datetime
        The end of the period, and all later ends of active windows; if these are very many, some of them
        (:func:`thin_out`).
    supply : Supply
        What one list can hold, of the selections that have promises.
    impression_rates : numpy.ndarray
        (selections,) Fraction of each selection's retrieved exposures that counts.
    """

    now: datetime
    promises: tuple[ScheduledPromise, ...]
    spans: tuple[Span | None, ...]
    end: datetime
    deadlines: tuple[datetime, ...]
    supply: Supply
    impression_rates: Floats

    @classmethod
    def of(
        cls,
        promises: Iterable[ScheduledPromise],
        now: datetime,
        supply: Supply,
        impression_rates: Mapping[str, float] | None = None,
    ) -> ActiveWindows:
        """Validate promises and return their active windows at a moment.

        Examples
        --------
        >>> from datetime import UTC, date, datetime
        >>> from fairsync.schedule import ScheduledPromise, Supply, Window
        >>> daily = ScheduledPromise.of_group("toys", 100, Window.day("UTC"))
        >>> sale = ScheduledPromise.of_group("toys", 900, Window.campaign(date(2026, 3, 2), date(2026, 3, 8), "UTC"))
        >>> now, supply = datetime(2026, 3, 4, 9, tzinfo=UTC), Supply.of_groups({"toys": 20}, k=20)
        >>> active = ActiveWindows.of([daily, sale], now, supply)
        >>> active.end.isoformat(), len(active.deadlines)
        ('2026-03-05T00:00:00+00:00', 2)
        """
        now = check_aware(now, "now")
        every = tuple(dict.fromkeys(promises))
        codes = np.array(supply.codes_of([promise.selection for promise in every]), dtype=np.int64)
        # Thousands of promises may have the same few windows.
        windows = dict.fromkeys(promise.window for promise in every)
        at = {window: window.at(now) for window in windows}
        next_of = {window: window.after(now) for window in windows if at[window] is None}
        is_active = [bool(at[promise.window] or next_of[promise.window]) for promise in every]
        active = tuple(promise for promise, is_one in zip(every, is_active, strict=True) if is_one)
        spans = tuple(at[promise.window] for promise in active)
        ends = {span.end for span in at.values() if span}
        full_hour = now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
        end = min(ends | {span.start for span in next_of.values() if span}, default=full_hour)
        if end not in ends and end - now > _LONGEST_WAIT:
            end = full_hour
        used = supply.restricted(np.unique(codes[np.array(is_active, dtype=bool)]))
        most = max(min(MOST_DEADLINES, _MOST_CELLS // max(len(used.selections), 1)), 4)
        rates = np.array([(impression_rates or {}).get(name, 1.0) for name in used.selections], dtype=np.float64)
        if not ((rates > 0) & (rates <= 1)).all():
            raise InvalidInputError("impression_rates must be fractions above 0 and at most 1.")
        return cls(now, active, spans, end, thin_out(now, sorted({end} | ends), most), used, rates)

    def program(
        self, progress: WindowProgress, requests: Ints, ahead: int | None = None, *, later: bool = True
    ) -> Program:
        """Return the linear program, given (S,) the requests until each deadline.

        Parameters
        ----------
        progress
            How far each window has come.
        requests
            (S,) requests until each deadline, ascending.
        ahead
            If given, a segment of this many requests, which is spared, comes before all others.
        later
            Whether windows that begin later have demands, too.
        """
        requests = np.maximum.accumulate(np.asarray(requests, dtype=np.int64))
        segments = np.diff(requests, prepend=0)
        has_window = self.with_window
        floors = self.retrieved(self.missing(progress, requests[self.deadline]))
        caps = self.caps(progress, requests[self.deadline])
        caps = np.where(caps < NO_CAP, np.maximum(caps - progress.exposures, 0), NO_CAP)
        selection, last = self.selection[has_window], self.deadline[has_window]
        columns = [
            np.stack([selection, np.zeros_like(last), last, floors[has_window], caps[has_window]]),
            self._later_demands(segments),
        ]
        every = np.concatenate(columns, axis=1)
        order = np.concatenate([self.priority[has_window], self.priority[self._later.promise]])
        first, last = every[1], every[2]
        if ahead is not None:
            segments = np.concatenate([[ahead], segments])
            first, last = np.where(np.arange(len(first)) < len(has_window), 0, first + 1), last + 1
        if not later:
            n = len(has_window)
            every, first, last, order = every[:, :n], first[:n], last[:n], order[:n]
        demands = Demands(every[0], first, last, every[3], every[4], order)
        supply = self.supply
        return Program(
            supply.membership, supply.capacities, supply.k, segments, demands, self.list_limits, ahead is not None
        )

    def multiples(self, promise: int, progress: WindowProgress, requests: Ints) -> tuple[Floats, Floats]:
        """Return (D,) factors and summands that make the floors of a promise's demands out of its floor.

        A factor is 0 for demands of other promises.

        Parameters
        ----------
        promise
            The promise.
        progress, requests
            As for :meth:`program`.
        """
        is_share = isinstance(self.promises[promise].promise.at_least, float)
        until = np.concatenate([[0], np.maximum.accumulate(requests)])
        later, rate = self._later, float(self.impression_rates[self.selection[promise]])
        with_window = self.with_window
        times, offset = np.zeros((2, len(with_window) + len(later.promise)))
        until_end = int(progress.requests[promise]) + int(until[self.deadline[promise] + 1])
        times[: len(with_window)] = (with_window == promise) * (self.supply.k * until_end if is_share else 1) / rate
        offset[: len(with_window)] = (with_window == promise) * -int(progress.exposures[promise]) / rate
        slots = self.supply.k * (until[later.last + 1] - until[later.first]) * later.part
        own = np.where(later.promise == promise, slots if is_share else later.number, 0.0)
        times[len(with_window) :] = own / rate
        return times, offset

    def promise_of(self, demand: int) -> int:
        """Return the promise of a demand of the program."""
        n = len(self.with_window)
        return int(self.with_window[demand] if demand < n else self._later.promise[demand - n])

    def missing(self, progress: WindowProgress, requests: Ints) -> Ints:
        """Return (P,) the exposures that count and that floors miss, given (P,) the requests until the end."""
        floors, missing = self.floors(progress, requests), np.zeros(len(self.promises), dtype=np.int64)
        some = self.with_window
        missing[some] = np.maximum(floors - progress.exposures - progress.pending, 0)[some]
        return missing

    def floors(self, progress: WindowProgress, requests: Ints) -> Ints:
        """Return (P,) the floors of the active windows, given (P,) the requests until the end."""
        floors = self._floor.copy()
        for p in self._shares.tolist():
            slots = self.supply.k * (int(progress.requests[p]) + int(requests[p]))
            floors[p] = self.promises[p].promise.floor(slots)
        return floors

    def caps(self, progress: WindowProgress, requests: Ints) -> Ints:
        """Return (P,) the caps of the active windows, given (P,) the requests until the end."""
        caps = np.full(len(self.promises), NO_CAP)
        for p, promise in enumerate(self.promises):
            if promise.promise.at_most is not None:
                slots = self.supply.k * (int(progress.requests[p]) + int(requests[p]))
                caps[p] = promise.promise.cap(slots)
        return caps

    def retrieved(self, counted: Ints) -> Ints:
        """Return (P,) the exposures to retrieve for each promise so that at least ``counted`` of them count."""
        # The tolerance keeps an integer that floating-point arithmetic made slightly too large.
        needed: Ints = np.ceil(counted / self.impression_rates[self.selection] - 1e-6).astype(np.int64)
        return needed

    def counted(self, retrieved: Ints) -> Ints:
        """Return (P,) the exposures that count for each promise out of those retrieved."""
        count: Ints = np.floor(retrieved * self.impression_rates[self.selection] + 1e-6).astype(np.int64)
        return count

    @cached_property
    def with_window(self) -> Ints:
        """The promises that have an active window. The first demands of a program are theirs."""
        return np.array([p for p, span in enumerate(self.spans) if span is not None], dtype=np.int64)

    @cached_property
    def selection(self) -> Ints:
        """(P,) The selection of each promise."""
        names = [promise.selection for promise in self.promises]
        return np.array(self.supply.codes_of(names), dtype=np.int64)

    @cached_property
    def priority(self) -> Ints:
        """(P,) The priority of each promise."""
        return np.array([promise.promise.priority for promise in self.promises], dtype=np.int64)

    @cached_property
    def list_limits(self) -> Ints | None:
        """(selections,) The most items of each selection in one list, as promised for now; None without a limit."""
        limits = np.full(len(self.supply.selections), self.supply.k)
        for p, (promise, span) in enumerate(zip(self.promises, self.spans, strict=True)):
            limit = promise.promise.at_most_per_list
            if limit is not None and span is not None:
                limits[self.selection[p]] = min(int(limits[self.selection[p]]), limit)
        return limits if (limits < self.supply.k).any() else None

    @cached_property
    def _shares(self) -> Ints:
        """The promises with a floor that is a share."""
        shares = [p for p, one in enumerate(self.promises) if isinstance(one.promise.at_least, float)]
        return np.array(shares, dtype=np.int64)

    @cached_property
    def _floor(self) -> Ints:
        """(P,) The floors that are numbers."""
        return np.array([promise.promise.floor(0) for promise in self.promises], dtype=np.int64)

    @cached_property
    def _windows(self) -> tuple[list[tuple[Window, Span | None]], Ints]:
        """The different windows with their active spans, and (P,) which of them each promise has."""
        row_of: dict[Window, int] = {}
        rows = [row_of.setdefault(promise.window, len(row_of)) for promise in self.promises]
        span_of = dict(zip(rows, self.spans, strict=True))
        return [(window, span_of[row]) for window, row in row_of.items()], np.array(rows, dtype=np.int64)

    @cached_property
    def deadline(self) -> Ints:
        """(P,) The last deadline that is not after the end of each promise's window."""
        windows, rows = self._windows
        last = [bisect_right(self.deadlines, span.end) - 1 if span else 0 for _, span in windows]
        return np.array(last, dtype=np.int64)[rows]

    @cached_property
    def _later(self) -> _LaterWindows:
        """Later windows of all promises, by the segments in which they lie."""
        windows, rows = self._windows
        found = [_later_windows(window, span.end if span else self.now, self.deadlines) for window, span in windows]
        counts = np.array([len(one) for one in found], dtype=np.int64)
        flat = np.array([row for one in found for row in one], dtype=np.float64).reshape(-1, 4)
        starts = np.cumsum(counts) - counts
        promise = np.repeat(np.arange(len(rows)), counts[rows]) if len(rows) else np.zeros(0, dtype=np.int64)
        lengths = counts[rows] if len(rows) else np.zeros(0, dtype=np.int64)
        place = np.arange(len(promise)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        table = flat[starts[rows[promise]] + place] if len(promise) else flat[:0]
        first, last, number = (table[:, column].astype(np.int64) for column in range(3))
        return _LaterWindows(promise, first, last, number, table[:, 3])

    def _later_demands(self, segments: Ints) -> Ints:
        """Return (5, ·) the demands of later windows: selection, first and last segment, floor and cap."""
        later = self._later
        floors, caps = self._floor[later.promise] * later.number, np.full(len(later.promise), NO_CAP)
        until = np.concatenate([[0], np.cumsum(segments)])
        slots = self.supply.k * (until[later.last + 1] - until[later.first]) * later.part
        for row in np.flatnonzero(np.isin(later.promise, self._shares)).tolist():
            floors[row] = self.promises[later.promise[row]].promise.floor(int(slots[row]))
        floors = np.ceil(floors / self.impression_rates[self.selection[later.promise]] - 1e-6).astype(np.int64)
        for row in np.flatnonzero(later.part >= _COVERED).tolist():
            promise = self.promises[later.promise[row]].promise
            if isinstance(promise.at_most, int):
                caps[row] = promise.at_most * later.number[row]
            elif promise.at_most is not None:
                caps[row] = promise.cap(int(slots[row]))
        return np.stack([self.selection[later.promise], later.first, later.last, floors, caps])


class _LaterWindows(NamedTuple):
    """Windows that begin later, by the segments in which they lie.

    Attributes
    ----------
    promise, first, last : numpy.ndarray
        The promise, and the first and the last segment.
    number : numpy.ndarray
        The number of windows.
    part : numpy.ndarray
        The part of the time of these segments that they cover.
    """

    promise: Ints
    first: Ints
    last: Ints
    number: Ints
    part: Floats


def thin_out(now: datetime, deadlines: Sequence[datetime], most: int = MOST_DEADLINES) -> tuple[datetime, ...]:
    """Return at most ``most`` of some deadlines in ascending order, from which the others differ by little.

    Each deadline that is left out has an earlier one in its place, which is nearer by a small part of the time that is
    left until then: what is in time for that one is in time for both. The nearest deadlines are all kept, and every
    deadline is among them when it comes close.

    Examples
    --------
    >>> from datetime import UTC, datetime, timedelta
    >>> now = datetime(2026, 3, 2, tzinfo=UTC)
    >>> kept = thin_out(now, [now + timedelta(hours=hours) for hours in range(1, 101)], most=10)
    >>> [int((deadline - now).total_seconds()) // 3600 for deadline in kept]
    [1, 2, 3, 4, 5, 6, 11, 20, 36, 64]
    """
    if len(deadlines) <= most:
        return tuple(deadlines)
    near, far = deadlines[: most // 2], deadlines[most // 2 :]
    parts = most - len(near)
    nearest, farthest = (max((moment - now).total_seconds(), 1.0) for moment in (far[0], far[-1]))
    ratio = (farthest / nearest) ** (1 / parts)
    kept = [far[0]]
    for moment in far:
        if len(kept) < parts and (moment - now) > ratio * (kept[-1] - now):
            kept.append(moment)
    return (*near, *kept)


@lru_cache(maxsize=4096)
def _later_windows(
    window: Window, start: datetime, deadlines: tuple[datetime, ...]
) -> tuple[tuple[int, int, int, float], ...]:
    """Return the windows that lie wholly between a moment and the last deadline, by their segments.

    Each entry is a first and a last segment, the number of windows in them, and the part of their time that is covered.
    """
    if window.recurs:
        spans = list(window.between(start, deadlines[-1]))
    else:
        only = window.after(start)
        spans = [only] if only is not None and only.end <= deadlines[-1] else []
    edges = (start, *deadlines)
    counts: dict[tuple[int, int], tuple[int, float]] = {}
    for span in spans:
        first, last = bisect_right(deadlines, span.start), bisect_left(deadlines, span.end)
        number, seconds = counts.get((first, last), (0, 0.0))
        counts[first, last] = number + 1, seconds + (span.end - span.start).total_seconds()
    return tuple(
        (first, last, number, min(seconds / max((edges[last + 1] - edges[first]).total_seconds(), 1e-9), 1.0))
        for (first, last), (number, seconds) in counts.items()
    )
