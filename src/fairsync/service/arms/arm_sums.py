"""What the users of an arm got, summed by day and by bucket of users, over all processes that serve the arm."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fairsync.ledger.base import Ledger

COLUMNS = ("requests", "relevance", "plain", "prices", "exposures", "held")
"""Requests; relevance of their candidates, and what it would be without promises; prices of the candidates; candidates
that a promise selects, and those of them that have a price."""
_NAMES = "arm days"


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


class SavedSums:
    """The sums of one arm: those of this process, which grow, and those that others have saved in the same ledger.

    Every process saves each day under a name of its own, so that none overwrites another's, and days that are over are
    not written again. The names are listed in the ledger. Two processes that start at once may overwrite each other's
    entry in that list: each save repairs it.

    Parameters
    ----------
    ledger
        The ledger of the arm.
    buckets
        Buckets of users.

    Examples
    --------
    >>> from fairsync.ledger import MemoryLedger
    >>> ledger = MemoryLedger(1)
    >>> one, other = SavedSums(ledger, 4), SavedSums(ledger, 4)
    >>> one.own.add(7, 0, requests=2)
    >>> one.save()
    >>> other.own.add(7, 1, requests=1)
    >>> other.total().total("requests").tolist(), one.total().total("requests").tolist()
    ([2.0, 1.0, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0])
    """

    def __init__(self, ledger: Ledger, buckets: int) -> None:
        self._ledger, self._process = ledger, secrets.token_hex(8)
        self.own = ArmSums(buckets)
        self._saved: dict[int, bytes] = {}

    def save(self) -> None:
        """Save what this process has added since the last time."""
        for day, rows in list(self.own.days.items()):
            if (now := _dump(rows)) != self._saved.get(day):
                self._ledger.save(_name(self._process, day), now)
                self._saved[day] = now
        names = self._names()
        if new := [name for day in self._saved if (name := [self._process, day]) not in names]:
            self._ledger.save(_NAMES, json.dumps([*names, *new]).encode())

    def total(self) -> ArmSums:
        """Return the sums over all processes: of this one up to now, of others up to their last save."""
        total = ArmSums(self.own.buckets)
        total.add_sums(dict(self.own.days))
        for process, day in self._names():
            saved = self._ledger.load(_name(process, day)) if process != self._process else None
            if saved is not None:
                total.add_sums({day: _load(saved)})
        return total

    def _names(self) -> list[list[Any]]:
        saved = self._ledger.load(_NAMES)
        names: list[list[Any]] = [] if saved is None else json.loads(saved)
        return names


def _name(process: str, day: int) -> str:
    return f"{_NAMES} {process} {day}"


def _dump(rows: NDArray[np.float64]) -> bytes:
    return rows.astype("<f8").tobytes()


def _load(saved: bytes) -> NDArray[np.float64]:
    return np.frombuffer(saved, dtype="<f8").reshape(len(COLUMNS), -1).astype(np.float64)
