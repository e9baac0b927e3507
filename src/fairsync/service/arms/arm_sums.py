"""What the users of an arm got, summed by day and by bucket of users."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

COLUMNS = ("requests", "relevance", "plain", "prices", "exposures", "held")
"""Requests; relevance of their candidates, and what it would be without promises; prices of the candidates; candidates
that a promise selects, and those of them that have a price."""


@dataclass
class ArmSums:
    """Sums over the requests of an arm.

    Requests of one user are alike, and requests of one day share the prices and promises of that day, so that they are
    no independent observations. Buckets of users are (a user is in one of them, by a hash), and so are days.

    Attributes
    ----------
    buckets : int
        Number of buckets.
    days : dict
        (6, buckets) sums of `COLUMNS`, by day (a number that grows by one each day).

    Examples
    --------
    >>> sums = ArmSums(4)
    >>> sums.add(7, 2, requests=1, relevance=0.5, plain=0.75)
    >>> sums.total("plain").tolist(), sums.cells("requests", [6, 7]).tolist()
    ([0.0, 0.0, 0.75, 0.0], [[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]])
    """

    buckets: int
    days: dict[int, NDArray[np.float64]] = field(default_factory=dict)

    def add(self, day: int, bucket: int, **values: float) -> None:
        """Add requests of one user, as values by column. `plain` may be nan: then it is unknown."""
        self._of(day)[:, bucket] += [values.get(name, 0.0) for name in COLUMNS]

    def add_sums(self, days: Mapping[int, NDArray[np.float64]]) -> None:
        """Add the sums of other days, or of the same days in another process."""
        for day, rows in days.items():
            self._of(day)[...] += rows

    def cells(self, column: str, days: list[int]) -> NDArray[np.float64]:
        """Return (days, buckets) the sums of a column; zero on days without requests."""
        row, none = COLUMNS.index(column), np.zeros((len(COLUMNS), self.buckets))
        return np.array([self.days.get(day, none)[row] for day in days]).reshape(len(days), self.buckets)

    def total(self, column: str) -> NDArray[np.float64]:
        """Return (buckets,) the sums of a column over all days."""
        total: NDArray[np.float64] = self.cells(column, list(self.days)).sum(axis=0)
        return total

    def _of(self, day: int) -> NDArray[np.float64]:
        return self.days.setdefault(day, np.zeros((len(COLUMNS), self.buckets)))


def dump(rows: NDArray[np.float64]) -> bytes:
    """Return the sums of a day as bytes."""
    return rows.astype("<f8").tobytes()


def load(saved: bytes) -> NDArray[np.float64]:
    """Return the sums that `dump` has written."""
    return np.frombuffer(saved, dtype="<f8").reshape(len(COLUMNS), -1).astype(np.float64)
