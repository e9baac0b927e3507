"""Active windows: the windows of all promises at a moment, their deadlines, and the end of the period."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from fairsync.errors import InvalidInputError, UnknownGroupError
from fairsync.inputs import check_positive
from fairsync.schedule.datetimes import check_aware
from fairsync.schedule.requirements import Requirements

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from fairsync.catalog.groups import Label
    from fairsync.schedule.promise import ScheduledPromise
    from fairsync.schedule.seasonal_profile import Floats, Ints
    from fairsync.schedule.window import Span, Window

MOST_DEADLINES = 64
"""Deadlines that a plan tells apart: its time grows with their square."""

# A period does not wait longer than this for a window to begin: the forecast would have to reach that far.
_LONGEST_WAIT = timedelta(days=7)


@dataclass(frozen=True)
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
    labels : tuple
        Labels of the groups that have promises.
    capacities : numpy.ndarray
        (G,) The most exposures of each group that one request can hold.
    k : int
        Candidates per request.
    impression_rates : numpy.ndarray
        (G,) Fraction of each group's retrieved exposures that counts.
    """

    now: datetime
    promises: tuple[ScheduledPromise, ...]
    spans: tuple[Span | None, ...]
    end: datetime
    deadlines: tuple[datetime, ...]
    labels: tuple[Label, ...]
    capacities: Ints
    k: int
    impression_rates: Floats

    @classmethod
    def of(
        cls,
        promises: Iterable[ScheduledPromise],
        now: datetime,
        k: int,
        capacities: Mapping[Label, int],
        impression_rates: Mapping[Label, float] | None = None,
    ) -> ActiveWindows:
        """Validate promises and return their active windows at a moment.

        Examples
        --------
        >>> from datetime import UTC, date, datetime
        >>> from fairsync.schedule import ScheduledPromise, Window
        >>> daily = ScheduledPromise.of_group("toys", 100, Window.day("UTC"))
        >>> sale = ScheduledPromise.of_group("toys", 900, Window.campaign(date(2026, 3, 2), date(2026, 3, 8), "UTC"))
        >>> active = ActiveWindows.of([daily, sale], datetime(2026, 3, 4, 9, tzinfo=UTC), k=20, capacities={"toys": 20})
        >>> active.end.isoformat(), len(active.deadlines)
        ('2026-03-05T00:00:00+00:00', 2)
        """
        now, k = check_aware(now, "now"), check_positive(k, "k")
        every = tuple(dict.fromkeys(promises))
        unknown = [promise.group for promise in every if promise.group not in capacities]
        if unknown:
            raise UnknownGroupError(list(dict.fromkeys(unknown)), list(capacities))
        labels = tuple(dict.fromkeys(promise.group for promise in every))
        for label in labels:
            if not 0 <= capacities[label] <= k:
                raise InvalidInputError(
                    f"the cap of group {label!r} is {capacities[label]}: give min(k, items), 0 to {k}."
                )
        # Thousands of promises may have the same few windows.
        windows = dict.fromkeys(promise.window for promise in every)
        at = {window: window.at(now) for window in windows}
        next_of = {window: window.after(now) for window in windows if at[window] is None}
        active = tuple(promise for promise in every if at[promise.window] or next_of[promise.window])
        spans = tuple(at[promise.window] for promise in active)
        ends = {span.end for span in at.values() if span}
        full_hour = now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
        end = min(ends | {span.start for span in next_of.values() if span}, default=full_hour)
        if end not in ends and end - now > _LONGEST_WAIT:
            end = full_hour
        deadlines = thin_out(now, sorted({end} | ends))
        sizes = np.array([int(capacities[label]) for label in labels], dtype=np.int64)
        rates = np.array([1.0 if impression_rates is None else impression_rates.get(label, 1.0) for label in labels])
        if not ((rates > 0) & (rates <= 1)).all():
            raise InvalidInputError("impression_rates must be fractions above 0 and at most 1.")
        return cls(now, active, spans, end, deadlines, labels, sizes, k, rates)

    def required_exposures(self, counted: Sequence[int]) -> Ints:
        """Return (P,) the exposures to retrieve for each promise so that at least ``counted`` of them count."""
        # The tolerance keeps an integer that floating-point arithmetic made slightly too large.
        needed: Ints = np.ceil(np.array(counted) / self.impression_rates[self._group] - 1e-6).astype(np.int64)
        return needed

    def counted_exposures(self, retrieved: Ints) -> list[int]:
        """Return (P,) the exposures that count for each promise out of those retrieved."""
        counted: list[int] = np.floor(retrieved * self.impression_rates[self._group] + 1e-6).astype(np.int64).tolist()
        return counted

    def requirements(self, missing: Sequence[int], requests: Sequence[int]) -> Requirements:
        """Return the requirements, given (P,) missing exposures and (S,) the requests until each deadline."""
        return Requirements(
            group=self._group,
            missing=self.required_exposures(missing),
            floor=self._floor,
            deadline=self.deadline,
            later_windows=self._later_windows,
            requests=np.maximum.accumulate(np.array(requests, dtype=np.int64)),
            capacities=self.capacities,
            k=self.k,
        )

    @cached_property
    def _group(self) -> Ints:
        """(P,) The group of each promise."""
        group_of = {label: group for group, label in enumerate(self.labels)}
        return np.array([group_of[promise.group] for promise in self.promises], dtype=np.int64)

    @cached_property
    def _floor(self) -> Ints:
        """(P,) The exposures to retrieve for the floor of each promise."""
        return self.required_exposures([promise.floor for promise in self.promises])

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
    def _later_windows(self) -> Ints:
        """(P, S) Number of later windows of each promise that end by each deadline."""
        windows, rows = self._windows
        counts = [_count_windows(window, span.end if span else self.now, self.deadlines) for window, span in windows]
        table: Ints = np.array(counts, dtype=np.int64).reshape(len(windows), len(self.deadlines))[rows]
        return table


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
def _count_windows(window: Window, start: datetime, deadlines: tuple[datetime, ...]) -> tuple[int, ...]:
    """Return how many windows lie wholly between a moment and each deadline."""
    if not window.recurs:
        only = window.after(start)
        return tuple(int(only is not None and only.end <= deadline) for deadline in deadlines)
    ends = [span.end for span in window.between(start, deadlines[-1])]
    return tuple(bisect_right(ends, deadline) for deadline in deadlines)
