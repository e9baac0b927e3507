"""What every ledger promises: an exact record of exposures, horizon after horizon."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

# The latest keys are remembered, so many of them: hours of traffic, and a few megabytes.
KEYS_KEPT = 100_000


@dataclass(frozen=True)
class Entry:
    """Some requests of one horizon, and what they were shown.

    Attributes
    ----------
    counts : numpy.ndarray
        (G,) exposures of each group.
    requests : int
        How many requests.
    relevance : float
        Sum of the candidates' relevance.
    cost : float
        Relevance given up against no floors, at most; nan where it was not measured.
    forced : int
        Candidates that the guard put in place of better ones.
    opens_horizon : bool
        Whether counts start anew with this entry.
    """

    counts: npt.NDArray[np.int64]
    requests: int
    relevance: float
    cost: float
    forced: int = 0
    opens_horizon: bool = False

    def grown(self, n_groups: int) -> "Entry":
        """Return the same entry with zeros for groups that came later."""
        return replace(self, counts=_grown(self.counts, n_groups))

    def plus(self, other: "Entry") -> "Entry":
        """Return one entry for both; the other must follow in the same horizon."""
        return Entry(
            self.counts + other.counts,
            self.requests + other.requests,
            self.relevance + other.relevance,
            self.cost + other.cost,
            self.forced + other.forced,
            self.opens_horizon,
        )


@dataclass(frozen=True)
class Standing:
    """Where a horizon stands: the sum of its entries.

    Examples
    --------
    >>> standing = Standing.nothing(2).after(Entry(np.array([3, 1]), 2, 1.5, 0.0))
    >>> standing.exposures.tolist(), standing.requests
    ([3, 1], 2)
    """

    exposures: npt.NDArray[np.int64]
    requests: int = 0
    relevance: float = 0.0
    cost: float = 0.0
    forced: int = 0

    @classmethod
    def nothing(cls, n_groups: int) -> "Standing":
        """Return the standing before the first request."""
        return cls(np.zeros(n_groups, dtype=np.int64))

    def after(self, entry: Entry) -> "Standing":
        """Return the standing once an entry of the same horizon is added."""
        return Standing(
            self.exposures + entry.counts,
            self.requests + entry.requests,
            self.relevance + entry.relevance,
            self.cost + entry.cost,
            self.forced + entry.forced,
        )

    def grown(self, n_groups: int) -> "Standing":
        """Return the same standing with zeros for groups that came later."""
        return replace(self, exposures=_grown(self.exposures, n_groups))


def _grown(counts: npt.NDArray[np.int64], n_groups: int) -> npt.NDArray[np.int64]:
    return np.concatenate([counts, np.zeros(n_groups - len(counts), dtype=np.int64)])


class Ledger(Protocol):
    """The record of exposures. It knows neither items nor floors nor prices."""

    def standing(self) -> Standing:
        """Return where the present horizon stands."""
        ...

    def past(self) -> Sequence[Standing]:
        """Return the standings at the end of the horizons before it, oldest first."""
        ...

    def record(self, entries: Sequence[Entry], key: str | None = None) -> bool:
        """Add entries, all of them or, when it raises, none.

        Parameters
        ----------
        entries
            In order.
        key
            Names what is recorded, so that whoever does not know whether it was may say it again.

        Returns
        -------
        bool
            False if that was recorded before under this key; then nothing changes.
        """
        ...

    def grow(self, n_groups: int) -> None:
        """Go on with more groups, whose codes follow the old ones; they have had nothing so far."""
        ...

    def keep(self, name: str, value: bytes) -> None:
        """Keep something beside the record, such as what a policy has learnt, in place of what had this name."""
        ...

    def kept(self, name: str) -> bytes | None:
        """Return what is kept under this name."""
        ...
