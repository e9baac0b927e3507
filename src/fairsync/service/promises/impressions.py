"""Impressions: the items that reports name, and the share of candidates that are shown, learnt from late reports."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np

from fairsync.candidates import Candidates
from fairsync.coordination.outside_lists import rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.catalog.groups import Label
    from fairsync.schedule import TrafficForecast

# Weight of the overall rate, in candidates: a group with this many weighs its own rate as much as the overall one.
_PRIOR = 50.0
_LEAST_SHARE = 0.01


def groups_shown(items: Sequence[Label], answer: bytes | None, catalog: Catalog) -> dict[Label, Label]:
    r"""Return the group of each item of a report that can have been shown, by its id.

    Parameters
    ----------
    items
        Ids of the items that were shown; repeated ones count once.
    answer
        The stored answer to the request. Without one, every item of the catalog may have been shown.
    catalog
        The items.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> groups_shown([8, 8, 9, "8"], None, Catalog(np.eye(2), ["a", "b"], ids=[7, 8]))
    {8: 'b'}
    >>> groups_shown(["x\0"], None, Catalog(np.eye(2), ["a", "b"], ids=["x", "y"]))
    {}
    """
    items = list(dict.fromkeys(items))
    if answer:
        found = Candidates.load(answer)
        there = np.isfinite(found.relevance[0])  # a short list has empty places, whose ids are no items
        group_of = dict(zip(found.ids[0][there].tolist(), found.groups[0][there].tolist(), strict=True))
        return {item: group_of[item] for item in items if item in group_of}
    rows = rows_of(items, catalog)
    labels = catalog.labels_of(catalog.group_of[rows[rows >= 0]]).tolist()
    known = [item for item, row in zip(items, rows.tolist(), strict=True) if row >= 0]
    return dict(zip(known, labels, strict=True))


class ImpressionRate:
    """Learns the share of each group's candidates that are shown, from the totals of both over time.

    Reports arrive late. Candidates retrieved within the last `within` seconds are pending: they do not lower the share,
    and are expected to be shown in proportion to it.

    Parameters
    ----------
    within
        Seconds within which a report is expected, if it arrives at all.

    Examples
    --------
    >>> rate = ImpressionRate(within=60.0)
    >>> rate.observe(0.0, np.array([10**6, 10**6]), np.array([5 * 10**5, 10**6]))
    >>> rate.observe(10.0, np.array([10**6 + 40, 10**6]), np.array([5 * 10**5, 10**6]))
    >>> rate.shares(2).round(2).tolist(), rate.pending(2).tolist()
    ([0.5, 1.0], [20, 0])
    """

    def __init__(self, within: float) -> None:
        self.within = within
        self._retrieved: deque[tuple[float, NDArray[np.int64]]] = deque()
        self._impressions: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def observe(self, now: float, retrieved: NDArray[np.int64], impressions: NDArray[np.int64]) -> None:
        """Learn from the totals (G,) of candidates and impressions ever, as of now."""
        self._impressions = impressions
        if len(self._retrieved) > 1 and now - self._retrieved[-2][0] < self.within / 60:
            self._retrieved.pop()
        self._retrieved.append((now, retrieved))
        while len(self._retrieved) > 1 and self._retrieved[1][0] <= now - self.within:
            self._retrieved.popleft()

    def pending(self, n_groups: int) -> NDArray[np.int64]:
        """Return (G,) the impressions that are likely to be reported yet."""
        if not self._retrieved:
            return np.zeros(n_groups, dtype=np.int64)
        waiting = _grown(self._retrieved[-1][1], n_groups) - _grown(self._retrieved[0][1], n_groups)
        return (waiting * self.shares(n_groups) + 1e-6).astype(np.int64)

    def shares(self, n_groups: int) -> NDArray[np.float64]:
        """Return (G,) the share of candidates that are shown; for a group with few candidates, nearly that of all."""
        if not self._retrieved:
            return np.ones(n_groups)
        impressions = _grown(self._impressions, n_groups)
        reported = np.maximum(_grown(self._retrieved[0][1], n_groups), impressions)
        # Before the first report the share is 1: a lower one would be a guess.
        overall = (impressions.sum() + _PRIOR) / (reported.sum() + _PRIOR)
        shares: NDArray[np.float64] = np.clip((impressions + _PRIOR * overall) / (reported + _PRIOR), _LEAST_SHARE, 1.0)
        return shares


@dataclass(frozen=True)
class ReportedInTime:
    """A forecast of the requests whose reports arrive before a window ends: the last ones are too late to count.

    Parameters
    ----------
    traffic
        The forecast of all requests.
    within
        Seconds within which a report is expected.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> from fairsync.schedule import Forecast
    >>> noon, one = datetime(2026, 3, 2, 12, tzinfo=UTC), datetime(2026, 3, 2, 13, tzinfo=UTC)
    >>> ReportedInTime(Forecast(rate=1.0), within=60.0).expected(noon, one)
    3540.0
    """

    traffic: TrafficForecast
    within: float

    def expected(self, start: datetime, end: datetime, now: datetime | None = None) -> float:
        """Return the requests expected between two moments that are reported by the second."""
        return self.traffic.expected(start, self._last(start, end), now)

    def lower_bound(self, start: datetime, end: datetime, now: datetime | None = None) -> float:
        """Return the requests that can be counted on between two moments and are reported by the second."""
        return self.traffic.lower_bound(start, self._last(start, end), now)

    def sustained(self, end: datetime, now: datetime) -> float:
        """Return the requests from now to a moment that are reported by then, if the present level lasts."""
        return self.traffic.sustained(self._last(now, end), now)

    def _last(self, start: datetime, end: datetime) -> datetime:
        return max(start, end - timedelta(seconds=self.within))


def _grown(counts: NDArray[np.int64], n_groups: int) -> NDArray[np.int64]:
    return np.concatenate([counts, np.zeros(n_groups - len(counts), dtype=np.int64)])
