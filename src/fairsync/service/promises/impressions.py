"""How much of what is retrieved counts: all of it, or what is really shown, of which is heard late."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from fairsync.catalog.groups import Label
    from fairsync.ledger import Totals
    from fairsync.schedule import TrafficForecast
    from fairsync.service.promises.periods import EarlierTotals

# As many retrieved candidates of a group as its own share of shown ones must rest on, to weigh as much as that of all.
_PRIOR = 50.0
_LEAST_SHARE = 0.01


class ImpressionRate:
    """Learns the share of candidates that are shown, of each group, from the totals of both as time goes by.

    Reports come late. What was retrieved within the last ``within`` seconds is taken to be still on its way: it is not
    held against the share, and is expected to bring its part.

    Parameters
    ----------
    within
        Seconds within which a report is expected, if it comes at all.

    Examples
    --------
    >>> share = ImpressionRate(within=60.0)
    >>> share.refresh(0.0, np.array([10**6, 10**6]), np.array([5 * 10**5, 10**6]))
    >>> share.refresh(10.0, np.array([10**6 + 40, 10**6]), np.array([5 * 10**5, 10**6]))
    >>> share.shares(2).round(2).tolist(), share.coming(2).tolist()
    ([0.5, 1.0], [20, 0])
    """

    def __init__(self, within: float) -> None:
        self._within = within
        self._retrieved: deque[tuple[float, NDArray[np.int64]]] = deque()
        self._shown: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def refresh(self, now: float, retrieved: NDArray[np.int64], impressions: NDArray[np.int64]) -> None:
        """Take in the totals (G,) of what was ever retrieved and shown, at a moment."""
        self._shown = impressions
        if len(self._retrieved) > 1 and now - self._retrieved[-2][0] < self._within / 60:
            self._retrieved.pop()
        self._retrieved.append((now, retrieved))
        while len(self._retrieved) > 1 and self._retrieved[1][0] <= now - self._within:
            self._retrieved.popleft()

    def coming(self, n_groups: int) -> NDArray[np.int64]:
        """Return (G,) how many that were retrieved are likely to be reported yet."""
        if not self._retrieved:
            return np.zeros(n_groups, dtype=np.int64)
        waiting = _grown(self._retrieved[-1][1], n_groups) - _grown(self._retrieved[0][1], n_groups)
        return (waiting * self.shares(n_groups) + 1e-6).astype(np.int64)

    def shares(self, n_groups: int) -> NDArray[np.float64]:
        """Return (G,) the share that is shown; of a group of which little is known, nearly that of all."""
        if not self._retrieved:
            return np.ones(n_groups)
        impressions = _grown(self._shown, n_groups)
        reported = np.maximum(_grown(self._retrieved[0][1], n_groups), impressions)
        # Before anything has come back, everything is taken to be shown: asking for more would be a guess.
        overall = (impressions.sum() + _PRIOR) / (reported.sum() + _PRIOR)
        shares: NDArray[np.float64] = np.clip((impressions + _PRIOR * overall) / (reported + _PRIOR), _LEAST_SHARE, 1.0)
        return shares


@dataclass(frozen=True)
class ReportedInTime:
    """Traffic whose reports come before a window's end: the last requests before it are too late to count.

    Parameters
    ----------
    traffic
        All of it.
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
        """Return the requests expected between two moments, of which will be heard by the second."""
        return self.traffic.expected(start, self._last(start, end), now)

    def lower_bound(self, start: datetime, end: datetime, now: datetime | None = None) -> float:
        """Return the requests that can be counted on between two moments, of which will be heard by the second."""
        return self.traffic.lower_bound(start, self._last(start, end), now)

    def _last(self, start: datetime, end: datetime) -> datetime:
        return max(start, end - timedelta(seconds=self.within))


class Counting:
    """Which part of the candidates counts, and which part of the traffic can carry promises.

    Parameters
    ----------
    count
        ``"retrieved"``: all; ``"impressions"``: what is reported to be shown.
    within
        Seconds within which reports usually come.

    Examples
    --------
    >>> Counting("retrieved", within=60.0).shares(["toys"]), Counting("retrieved", within=60.0).coming(["toys"])
    ({'toys': 1.0}, {})
    """

    def __init__(self, count: str, within: float) -> None:
        self._shown, self._within = count == "impressions", within
        self.forget()

    def forget(self) -> None:
        """Begin anew: what was seen, was seen by another clock."""
        self._share = ImpressionRate(self._within)

    def refresh(self, now: datetime, earlier: EarlierTotals, period: Totals, n_groups: int) -> None:
        """Take in what came before the present tick, and in it."""
        if self._shown:
            impressions = (
                earlier.impressions
                if period.impressions is None
                else earlier.impressions + period.impressions[: len(earlier.impressions)]
            )
            retrieved = earlier.retrieved + period.exposures[: len(earlier.retrieved)]
            self._share.refresh(now.timestamp(), retrieved[:n_groups], impressions[:n_groups])

    def shares(self, labels: Sequence[Label]) -> dict[Label, float]:
        """Return which part of the candidates of each group counts."""
        counting = self._share.shares(len(labels)) if self._shown else np.ones(len(labels))
        return dict(zip(labels, counting.tolist(), strict=True))

    def coming(self, labels: Sequence[Label]) -> dict[Label, int]:
        """Return what was retrieved and is likely to be shown yet, where that counts."""
        if not self._shown:
            return {}
        return dict(zip(labels, self._share.coming(len(labels)).tolist(), strict=True))

    def traffic(self, traffic: TrafficForecast) -> TrafficForecast:
        """Return the requests to come that can carry promises."""
        return ReportedInTime(traffic, self._within) if self._shown else traffic


def _grown(counts: NDArray[np.int64], n_groups: int) -> NDArray[np.int64]:
    return np.concatenate([counts, np.zeros(n_groups - len(counts), dtype=np.int64)])
