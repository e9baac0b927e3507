"""Active windows: the windows of all promises at a moment, their deadlines, and the end of the period."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
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
    from fairsync.schedule.promise import Promise
    from fairsync.schedule.seasonal_profile import Floats, Ints
    from fairsync.schedule.window import Span, Window


@dataclass(frozen=True)
class ActiveWindows:
    """The promises at a moment, with their active windows and deadlines.

    Attributes
    ----------
    now : datetime
        The moment, in UTC.
    promises : tuple of Promise
        Promises whose window is active or will begin later.
    spans : tuple of Span or None
        The active window of each promise, or None if it begins later.
    end : datetime
        End of the current *period*: the nearest moment at which any window begins or ends, so that no count has to be
        split. Without any such moment, it is the next full hour.
    deadlines : tuple of datetime
        The end of the period, and all later ends of active windows.
    labels : tuple
        Labels of the groups that have promises.
    caps : numpy.ndarray
        (G,) The most exposures of each group that one request can hold.
    k : int
        Candidates per request.
    impression_rates : numpy.ndarray
        (G,) Fraction of each group's retrieved exposures that counts.
    """

    now: datetime
    promises: tuple[Promise, ...]
    spans: tuple[Span | None, ...]
    end: datetime
    deadlines: tuple[datetime, ...]
    labels: tuple[Label, ...]
    caps: Ints
    k: int
    impression_rates: Floats

    @classmethod
    def of(
        cls,
        promises: Iterable[Promise],
        now: datetime,
        k: int,
        caps: Mapping[Label, int],
        impression_rates: Mapping[Label, float] | None = None,
    ) -> ActiveWindows:
        """Validate promises and return their active windows at a moment.

        Examples
        --------
        >>> from datetime import UTC, date, datetime
        >>> from fairsync.schedule import Promise, Window
        >>> daily = Promise("toys", 100, Window.day("UTC"))
        >>> sale = Promise("toys", 900, Window.campaign(date(2026, 3, 2), date(2026, 3, 8), "UTC"))
        >>> active = ActiveWindows.of([daily, sale], datetime(2026, 3, 4, 9, tzinfo=UTC), k=20, caps={"toys": 20})
        >>> active.end.isoformat(), len(active.deadlines)
        ('2026-03-05T00:00:00+00:00', 2)
        """
        now, k = check_aware(now, "now"), check_positive(k, "k")
        every = tuple(dict.fromkeys(promises))
        unknown = [promise.group for promise in every if promise.group not in caps]
        if unknown:
            raise UnknownGroupError(list(dict.fromkeys(unknown)), list(caps))
        labels = tuple(dict.fromkeys(promise.group for promise in every))
        for label in labels:
            if not 0 <= caps[label] <= k:
                raise InvalidInputError(f"the cap of group {label!r} is {caps[label]}: give min(k, items), 0 to {k}.")
        at = {promise: promise.window.at(now) for promise in every}
        next_of = {promise: promise.window.after(now) for promise in every if at[promise] is None}
        active = tuple(promise for promise in every if at[promise] or next_of[promise])
        spans = tuple(at[promise] for promise in active)
        edges = [span.end for span in spans if span] + [span.start for span in next_of.values() if span]
        full_hour = now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
        end = min(edges, default=full_hour)
        deadlines = tuple(sorted({end} | {span.end for span in spans if span}))
        sizes = np.array([int(caps[label]) for label in labels], dtype=np.int64)
        rates = np.array([1.0 if impression_rates is None else impression_rates.get(label, 1.0) for label in labels])
        if not ((rates > 0) & (rates <= 1)).all():
            raise InvalidInputError("impression_rates must be fractions above 0 and at most 1.")
        return cls(now, active, spans, end, deadlines, labels, sizes, k, rates)

    def required_exposures(self, counted: Sequence[int]) -> Ints:
        """Return (P,) the exposures to retrieve for each promise so that at least ``counted`` of them count."""
        # The tolerance keeps an integer that floating-point arithmetic made slightly too large.
        needed: Ints = np.ceil(np.array(counted) / self._rate_per_promise() - 1e-6).astype(np.int64)
        return needed

    def counted_exposures(self, retrieved: Ints) -> list[int]:
        """Return (P,) the exposures that count for each promise out of those retrieved."""
        counted: list[int] = np.floor(retrieved * self._rate_per_promise() + 1e-6).astype(np.int64).tolist()
        return counted

    def requirements(self, missing: Sequence[int], requests: Sequence[int]) -> Requirements:
        """Return the requirements, given (P,) missing exposures and (S,) the requests until each deadline."""
        group_of = {label: group for group, label in enumerate(self.labels)}
        order = {deadline: s for s, deadline in enumerate(self.deadlines)}
        later_windows = [
            [_count_windows(promise.window, span.end if span else self.now, deadline) for deadline in self.deadlines]
            for promise, span in zip(self.promises, self.spans, strict=True)
        ]
        return Requirements(
            group=np.array([group_of[promise.group] for promise in self.promises], dtype=np.int64),
            missing=self.required_exposures(missing),
            floor=self.required_exposures([promise.floor for promise in self.promises]),
            deadline=np.array([order[span.end] if span else 0 for span in self.spans], dtype=np.int64),
            later_windows=np.array(later_windows, dtype=np.int64).reshape(len(self.promises), len(self.deadlines)),
            requests=np.maximum.accumulate(np.array(requests, dtype=np.int64)),
            caps=self.caps,
            k=self.k,
        )

    def _rate_per_promise(self) -> Floats:
        rate = dict(zip(self.labels, self.impression_rates.tolist(), strict=True))
        return np.array([rate[promise.group] for promise in self.promises], dtype=np.float64)


@lru_cache(maxsize=4096)
def _count_windows(window: Window, start: datetime, end: datetime) -> int:
    return sum(1 for _ in window.between(start, end))
