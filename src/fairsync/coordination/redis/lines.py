"""How a record on a server is written: where a horizon stands, and lines that each add something to it.

A line costs little to write, and lines of several writers can be added in any order. Now and then whoever adds one
writes the whole down anew, and the lines that are in it are dropped.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairsync.ledger.base import Entry, Totals

if TYPE_CHECKING:
    from collections.abc import Iterable

_STANDING = struct.Struct("<qddqdq")
_LINE = struct.Struct("<Qqd")


def pack(totals: Totals) -> bytes:
    """Return a standing as bytes.

    Examples
    --------
    >>> unpack(pack(Totals(np.array([3, 1]), 2, 1.5, float("nan"))))
    Totals(exposures=array([3, 1]), requests=2, relevance=1.5, cost=nan, forced=0, began=0.0, impressions=None)
    """
    head = _STANDING.pack(
        totals.requests, totals.relevance, totals.cost, totals.forced, totals.began, len(totals.exposures)
    )
    counts = [totals.exposures] if totals.impressions is None else [totals.exposures, totals.impressions]
    return head + np.concatenate(counts).astype("<i8").tobytes()


def unpack(packed: bytes, start: int = 0) -> Totals:
    """Return the standing that was made into these bytes, from so many of them on."""
    requests, relevance, cost, forced, began, n_groups = _STANDING.unpack_from(packed, start)
    counts = np.frombuffer(packed, dtype="<i8", offset=start + _STANDING.size).astype(np.int64)
    impressions = counts[n_groups:] if len(counts) > n_groups else None
    return Totals(counts[:n_groups], requests, relevance, cost, forced, began, impressions)


@dataclass(frozen=True)
class Line:
    """Requests that were handed out, or what came of them.

    Attributes
    ----------
    lease : int
        The number of the lease; 0 for an entry that belongs to none.
    size : int
        How many requests were handed out; 0 if the lease is settled.
    deadline : float
        When the lease is taken for lost, by the server's clock.
    entry : Entry or None
        What came of it.

    Examples
    --------
    >>> Line.load(Line(7, size=16, deadline=100.0).dump())
    Line(lease=7, size=16, deadline=100.0, entry=None)
    >>> Line.load(Line(7, entry=Entry(np.array([2, 0]), 1, 0.5, 0.0)).dump()).entry.counts
    array([2, 0])
    """

    lease: int = 0
    size: int = 0
    deadline: float = 0.0
    entry: Entry | None = None

    def dump(self) -> bytes:
        """Return it as bytes."""
        head = _LINE.pack(self.lease, self.size, self.deadline)
        if self.entry is None:
            return head
        return head + pack(Totals.zero(len(self.entry.counts)).after(self.entry))

    @classmethod
    def load(cls, packed: bytes) -> Line:
        """Return the line that was made into these bytes."""
        lease, size, deadline = _LINE.unpack_from(packed)
        if len(packed) == _LINE.size:
            return cls(lease, size, deadline)
        one = unpack(packed, _LINE.size)
        entry = Entry(one.exposures, one.requests, one.relevance, one.cost, one.forced, impressions=one.impressions)
        return cls(lease, size, deadline, entry)


def add_up(totals: Totals, lines: Iterable[Line]) -> Totals:
    """Return where a horizon stands after some more lines.

    Examples
    --------
    >>> lines = [Line(7, size=1, deadline=100.0), Line(7, entry=Entry(np.array([2, 0]), 1, 0.5, 0.0))]
    >>> add_up(Totals.zero(3), lines).exposures  # a group has come since
    array([2, 0, 0])
    """
    for line in lines:
        entry = line.entry
        if entry is not None:
            n_groups = len(totals.exposures)
            totals = totals.after(entry if len(entry.counts) == n_groups else entry.grown(n_groups))
    return totals
