"""What every ledger promises: an exact record of exposures, horizon after horizon."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fairsync.catalog.groups import grow

# The latest keys are remembered, and the latest answers, so many of them: a few megabytes, and some ten.
KEYS_KEPT = 100_000
ANSWERS_KEPT = 10_000


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
    began : float
        When the horizon that it opens began, in seconds since 1970; 0 where nobody looks at the clock.
    shown : numpy.ndarray or None
        (G,) of the exposures of this and earlier entries, how many were reported to be really shown; None: none.
    """

    counts: npt.NDArray[np.int64]
    requests: int
    relevance: float
    cost: float
    forced: int = 0
    opens_horizon: bool = False
    began: float = 0.0
    impressions: npt.NDArray[np.int64] | None = None

    def grown(self, n_groups: int) -> "Entry":
        """Return the same entry with zeros for groups that came later."""
        impressions = None if self.impressions is None else grow(self.impressions, n_groups)
        return replace(self, counts=grow(self.counts, n_groups), impressions=impressions)

    def less(self, counts: npt.NDArray[np.int64], relevance: float, requests: int) -> "Entry":
        """Return the entry without some of its requests. Of the cost, they take their share."""
        left = (self.requests - requests) / self.requests
        return replace(
            self,
            counts=self.counts - counts,
            requests=self.requests - requests,
            relevance=self.relevance - relevance,
            cost=self.cost * left,
        )

    def plus(self, other: "Entry") -> "Entry":
        """Return one entry for both; the other must follow in the same horizon."""
        return Entry(
            self.counts + other.counts,
            self.requests + other.requests,
            self.relevance + other.relevance,
            self.cost + other.cost,
            self.forced + other.forced,
            self.opens_horizon,
            self.began,
            _sum(self.impressions, other.impressions),
        )


@dataclass(frozen=True)
class Totals:
    """Where a horizon stands: the sum of its entries.

    Examples
    --------
    >>> totals = Totals.nothing(2).after(Entry(np.array([3, 1]), 2, 1.5, 0.0))
    >>> totals.exposures.tolist(), totals.requests
    ([3, 1], 2)
    """

    exposures: npt.NDArray[np.int64]
    requests: int = 0
    relevance: float = 0.0
    cost: float = 0.0
    forced: int = 0
    began: float = 0.0
    impressions: npt.NDArray[np.int64] | None = None

    @classmethod
    def nothing(cls, n_groups: int, began: float = 0.0) -> "Totals":
        """Return the standing before the first request."""
        return cls(np.zeros(n_groups, dtype=np.int64), began=began)

    def after(self, entry: Entry) -> "Totals":
        """Return the standing once an entry of the same horizon is added."""
        return Totals(
            self.exposures + entry.counts,
            self.requests + entry.requests,
            self.relevance + entry.relevance,
            self.cost + entry.cost,
            self.forced + entry.forced,
            self.began,
            _sum(self.impressions, entry.impressions),
        )

    def grown(self, n_groups: int) -> "Totals":
        """Return the same standing with zeros for groups that came later."""
        if len(self.exposures) == n_groups:
            return self
        impressions = None if self.impressions is None else grow(self.impressions, n_groups)
        return replace(self, exposures=grow(self.exposures, n_groups), impressions=impressions)


def _sum(one: npt.NDArray[np.int64] | None, other: npt.NDArray[np.int64] | None) -> npt.NDArray[np.int64] | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other


class Ledger(Protocol):
    """The record of exposures. It knows neither items nor floors nor prices."""

    def totals(self) -> Totals:
        """Return where the present horizon stands."""
        ...

    def past(self) -> Sequence[Totals]:
        """Return the standings at the end of the horizons before it, oldest first."""
        ...

    def record(
        self, entries: Sequence[Entry], key: str | None = None, answers: Mapping[str, bytes] | None = None
    ) -> bool:
        """Add entries, all of them or, when it raises, none.

        Parameters
        ----------
        entries
            In order.
        key
            Names what is recorded, so that whoever does not know whether it was may say it again.
        answers
            What was answered to each request that has an id, kept with the entries for whoever asks again.

        Returns
        -------
        bool
            False if that was recorded before under this key; then nothing changes.

        Raises
        ------
        RepeatedRequestError
            Some of the requests have been answered before; nothing is recorded.
        """
        ...

    def answer(self, request_id: str) -> bytes | None:
        """Return what was answered to a request; empty if that is too long ago to be kept, None if nothing was."""
        ...

    def grow(self, n_groups: int) -> None:
        """Go on with more groups, whose codes follow the old ones; they have had nothing so far."""
        ...

    def save(self, name: str, value: bytes) -> None:
        """Keep something beside the record, such as what a policy has learnt, in place of what had this name."""
        ...

    def load(self, name: str) -> bytes | None:
        """Return what is kept under this name."""
        ...
