"""Several front ends, one promise: a coordinator hands out requests, and what came of them comes back."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Protocol

import numpy as np

from fairsync.books import Books, Lease, make_terms
from fairsync.errors import InvalidInputError
from fairsync.inputs import check_positive, check_users
from fairsync.ledger import Ledger, MemoryLedger
from fairsync.policies import Policy, Terms, make_policy
from fairsync.report import Report, make_report
from fairsync.search import make_index
from fairsync.serving import Found, serve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from fairsync.catalog import Catalog, Label
    from fairsync.floors import Floors
    from fairsync.hindsight import Hindsight
    from fairsync.ledger import Entry
    from fairsync.policies import Sample
    from fairsync.search import Index


class Coordination(Protocol):
    """What a front end needs of a coordinator, wherever it runs."""

    @property
    def terms(self) -> Terms: ...  # noqa: D102

    @property
    def policy(self) -> Policy: ...  # noqa: D102

    @property
    def labels(self) -> Sequence[Label]: ...  # noqa: D102

    def lease(self, n: int) -> Lease:
        """Hand out up to n requests; wait where the promise asks for it."""
        ...

    def settle(self, number: int, entry: Entry, sample: Sample | None) -> None:
        """Write down what came of a lease; saying it again changes nothing."""
        ...

    def give_back(self, number: int) -> None:
        """Take a lease back that was not answered."""
        ...


class Coordinator:
    """The one place where counts meet and prices are made, for any number of front ends.

    It knows groups and no items. All its methods may be called from many threads at once. Floors hold for any number of
    front ends (:mod:`fairsync.books` says why).

    Parameters
    ----------
    catalog
        Of which the groups count.
    k, floors, horizon, policy, batch_size, ledger
        As for :class:`fairsync.FairRetriever`.
    lease_seconds
        A lease that is not settled for so long is given to others: its front end is taken for dead.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> rng = np.random.default_rng(0)
    >>> catalog = Catalog(rng.normal(size=(40, 8)), ["red"] * 20 + ["blue"] * 20)
    >>> coordinator = Coordinator(catalog, k=2, floors={"blue": 30}, horizon=20)
    >>> left, right = FrontEnd(catalog, coordinator), FrontEnd(catalog, coordinator)
    >>> _ = left.retrieve(rng.normal(size=(10, 8))), right.retrieve(rng.normal(size=(10, 8)))
    >>> coordinator.report().exposures["blue"] >= 30
    True
    """

    def __init__(
        self,
        catalog: Catalog,
        k: int = 20,
        floors: Floors = 0,
        horizon: int = 10_000,
        policy: str | Policy = "guaranteed",
        batch_size: int = 16,
        ledger: Ledger | None = None,
        lease_seconds: float = 30.0,
    ) -> None:
        if not lease_seconds > 0:
            raise InvalidInputError(f"lease_seconds must be above 0, got {lease_seconds}.")
        self.labels = catalog.labels
        self.terms = make_terms(catalog, k, floors, horizon, batch_size)
        self.policy = make_policy(policy)
        self.ledger: Ledger = MemoryLedger(catalog.n_groups) if ledger is None else ledger
        self.lease_seconds = lease_seconds
        self._books = Books.open(self.terms, self.policy, self.ledger.standing())
        self._deadlines: dict[int, float] = {}
        self._changed = threading.Condition()

    def lease(self, n: int) -> Lease:
        """Hand out up to n requests; wait where the promise asks for it."""
        n = check_positive(n, "n")
        with self._changed:
            while True:
                self._expire()
                granted = self._books.lease(self.terms, self.policy, n)
                if granted is not None:
                    self._books, lease = granted
                    self._deadlines[lease.number] = time.monotonic() + self.lease_seconds
                    return lease
                soonest = min(self._deadlines.values()) - time.monotonic()
                self._changed.wait(max(soonest, 0.001))

    def settle(self, number: int, entry: Entry, sample: Sample | None) -> None:
        """Write down what came of a lease; saying it again changes nothing."""
        with self._changed:
            settled = self._books.settle(self.policy, number, entry, sample)
            if settled is None:
                return
            books, entry = settled
            self.ledger.record([entry])
            self._books = books
            self._deadlines.pop(number, None)
            self._changed.notify_all()

    def give_back(self, number: int) -> None:
        """Take a lease back that was not answered."""
        with self._changed:
            self._books = self._books.give_back(number)
            self._deadlines.pop(number, None)
            self._changed.notify_all()

    def report(self, hindsight: Hindsight | None = None) -> Report:
        """Return where the promise stands, as far as it is settled."""
        with self._changed:
            standing, past, prices = self.ledger.standing(), self.ledger.past(), self._books.prices
        if self.policy.keeps_floors:  # a subsidy ends with its floor
            prices = np.where((standing.exposures >= self.terms.floors) & (prices < 0), 0.0, prices)
        return make_report(self.labels, self.terms, self.policy.name, standing, past, prices, hindsight)

    def _expire(self) -> None:
        now = time.monotonic()
        for number in [number for number, deadline in self._deadlines.items() if deadline <= now]:
            self._books = self._books.give_back(number)
            del self._deadlines[number]


class FrontEnd:
    """One of several retrievers that share a coordinator.

    Parameters
    ----------
    catalog
        The items; its groups are those of the coordinator.
    coordinator
        Where counts meet.
    index
        A name or an object.
    """

    def __init__(self, catalog: Catalog, coordinator: Coordination, index: str | Index = "exact") -> None:
        if catalog.labels != list(coordinator.labels):
            raise InvalidInputError("the catalog has other groups than the coordinator: give both the same catalog.")
        self.catalog, self.coordinator = catalog, coordinator
        self.index = make_index(index, catalog)

    def retrieve(self, users: ArrayLike) -> Found:
        """Return the candidates of requests in order of arrival.

        Prices are those of the moment when requests are handed out, a batch at a time. If it fails in the middle of a
        long call, what was decided before stays counted.

        Parameters
        ----------
        users
            (n, d) one vector per request, or (n, interests, d) several.
        """
        vectors = check_users(users, self.catalog)
        terms, policy = self.coordinator.terms, self.coordinator.policy
        rows = np.empty((len(vectors), terms.k), dtype=np.int64)
        relevance, searched = np.empty((len(vectors), terms.k)), np.empty(len(vectors))
        start = 0
        while start < len(vectors):
            lease = self.coordinator.lease(len(vectors) - start)
            here = slice(start, start + lease.requests)
            try:
                served = serve(self.catalog, self.index, terms, policy, lease, vectors[here])
            except BaseException:
                self.coordinator.give_back(lease.number)
                raise
            self.coordinator.settle(lease.number, served.entry, served.sample)
            rows[here], relevance[here] = served.hits.rows, served.hits.relevance
            searched[here] = served.searched
            start += lease.requests
        return Found.of(self.catalog, rows, relevance, searched)
