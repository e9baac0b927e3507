"""The interface of a ledger: the durable record of exposures, horizon after horizon."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fairsync.catalog.groups import grow
from fairsync.ledger.audit import AuditPage, AuditRecord


@dataclass(frozen=True)
class Entry:
    """One row of the ledger: the exposures of some requests of one horizon.

    Attributes
    ----------
    counts : numpy.ndarray
        (G,) exposures of each group.
    requests : int
        Number of requests.
    relevance : float
        Sum of the candidates' relevance.
    cost : float
        Upper bound of the relevance given up against no floors; nan if it was not measured.
    forced : int
        Forced slots: candidates that the guard put in place of better ones.
    opens_horizon : bool
        Whether this entry is the first of a new horizon.
    began : float
        Start of the horizon that it opens, in seconds since 1970; 0 if horizons do not end by the clock.
    impressions : numpy.ndarray or None
        (G,) exposures of this and earlier entries that were reported as really shown; None for none.
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
        """Return the same entry with zeros for groups that were added later."""
        impressions = None if self.impressions is None else grow(self.impressions, n_groups)
        return replace(self, counts=grow(self.counts, n_groups), impressions=impressions)

    def counting(self, requests: int) -> "Entry":
        """Return the same entry with another number of requests that count."""
        return self if requests == self.requests else replace(self, requests=requests)

    def without(self, counts: npt.NDArray[np.int64], relevance: float, requests: int) -> "Entry":
        """Return the entry without some of its requests, and without their share of the cost."""
        share_left = (self.requests - requests) / self.requests
        return replace(
            self,
            counts=self.counts - counts,
            requests=self.requests - requests,
            relevance=self.relevance - relevance,
            cost=self.cost * share_left,
        )

    def plus(self, other: "Entry") -> "Entry":
        """Return the sum of this entry and the next one of the same horizon."""
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
    """The totals of a horizon: the sum of its entries.

    Attributes
    ----------
    exposures, requests, relevance, cost, forced, began, impressions
        Sums of the fields of :class:`Entry`, and when the horizon began.

    Examples
    --------
    >>> totals = Totals.zero(2).after(Entry(np.array([3, 1]), 2, 1.5, 0.0))
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
    def zero(cls, n_groups: int, began: float = 0.0) -> "Totals":
        """Return the totals before the first request."""
        return cls(np.zeros(n_groups, dtype=np.int64), began=began)

    @classmethod
    def of(cls, entry: Entry) -> "Totals":
        """Return the totals of a single entry."""
        return cls(
            entry.counts, entry.requests, entry.relevance, entry.cost, entry.forced, impressions=entry.impressions
        )

    def after(self, entry: Entry) -> "Totals":
        """Return the totals with an entry of the same horizon added."""
        exposures, impressions = self.exposures, self.impressions
        counts = entry.counts if len(entry.counts) == len(exposures) else grow(entry.counts, len(exposures))
        if entry.impressions is not None:
            impressions = _sum(impressions, grow(entry.impressions, len(exposures)))
        return Totals(
            exposures + counts,
            self.requests + entry.requests,
            self.relevance + entry.relevance,
            self.cost + entry.cost,
            self.forced + entry.forced,
            self.began,
            impressions,
        )

    def plus(self, other: "Totals") -> "Totals":
        """Return the sum of these totals and those of more requests of the horizon, which may have fewer groups."""
        other = other.grown(len(self.exposures))
        return Totals(
            self.exposures + other.exposures,
            self.requests + other.requests,
            self.relevance + other.relevance,
            self.cost + other.cost,
            self.forced + other.forced,
            self.began,
            _sum(self.impressions, other.impressions),
        )

    def grown(self, n_groups: int) -> "Totals":
        """Return the same totals with zeros for groups that were added later."""
        if len(self.exposures) == n_groups:
            return self
        impressions = None if self.impressions is None else grow(self.impressions, n_groups)
        return replace(self, exposures=grow(self.exposures, n_groups), impressions=impressions)


def sum_entries(entries: Sequence[Entry]) -> Entry:
    """Return the sum of entries of one horizon."""
    return reduce(Entry.plus, entries)


def _sum(one: npt.NDArray[np.int64] | None, other: npt.NDArray[np.int64] | None) -> npt.NDArray[np.int64] | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other


class Saved(Protocol):
    """Values that are saved beside the record."""

    def load(self, name: str) -> bytes | None:
        """Return the value saved under this name, or None."""
        ...


class Ledger(Saved, Protocol):
    """The durable record of exposures. It knows neither items nor floors nor prices."""

    def totals(self) -> Totals:
        """Return the totals of the horizon under way."""
        ...

    def past(self) -> Sequence[Totals]:
        """Return the totals of the horizons before it, oldest first."""
        ...

    def record(
        self, entries: Sequence[Entry], key: str | None = None, answers: Mapping[str, bytes] | None = None
    ) -> bool:
        """Add entries atomically: all of them, or none if it raises.

        Parameters
        ----------
        entries
            The entries, in order.
        key
            Idempotency key. A write that is repeated with the same key, because its outcome is unknown, has no effect.
        answers
            The serialized answer to each request that has a request id, saved with the entries, so that a repeated
            request gets the same answer.

        Returns
        -------
        bool
            False if entries were recorded under this key before; then nothing changes.

        Raises
        ------
        RepeatedRequestError
            The ledger has answers to some of the requests. Nothing is recorded.
        """
        ...

    def knows(self, key: str) -> bool:
        """Return whether something was recorded under this idempotency key."""
        ...

    def answers(self, request_ids: Sequence[str]) -> dict[str, bytes]:
        """Return the saved answers to requests, by request id.

        An answer is empty if it is too old to be saved still (:class:`fairsync.ledger.Retention`). Requests that were
        not answered are missing.
        """
        ...

    def grow(self, n_groups: int) -> None:
        """Add groups, whose codes follow the known ones, with zero exposures."""
        ...

    def save(self, name: str, value: bytes, audit: Sequence[AuditRecord] = ()) -> None:
        """Save a value beside the record, such as the state of a policy, replacing the one of the same name.

        Records of the audit are added in the same transaction.
        """
        ...

    def audit(self, limit: int, before: int | None = None) -> AuditPage:
        """Return the latest entries of the audit, or the latest ones before a number; see :mod:`.audit`."""
        ...

    def close(self) -> None:
        """Release files and connections. What was recorded stays, for the next one that is opened."""
        ...
