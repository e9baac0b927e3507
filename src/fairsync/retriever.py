"""The loop: prices to the search, counts to the ledger, and after every batch back to the policy."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fairsync.calibration import calibrate
from fairsync.candidates import Candidates
from fairsync.catalog import Catalog
from fairsync.catalog.changes import CatalogChange, remove_items, upsert_items
from fairsync.catalog.groups import Label
from fairsync.coordination.books import LoopState, changed_terms, make_terms
from fairsync.floors import Floors
from fairsync.hindsight import Hindsight
from fairsync.inputs import check_users
from fairsync.ledger import Entry, Ledger, MemoryLedger
from fairsync.policies import Policy, Terms, make_policy
from fairsync.report import Report, make_report
from fairsync.search import Index, make_index, replace_index
from fairsync.search.overlay import follow
from fairsync.serving import serve


class FairRetriever:
    """Retrieves candidates so that every group gets at least its floor of exposures over the horizon.

    Parameters
    ----------
    catalog
        The items.
    k
        Candidates per request.
    floors
        Minimum exposures of every group in the horizon: one number for all, or {label: number}.
    horizon
        Requests over which the floors are spread. After so many, counts start anew and prices carry on.
    policy
        ``"guaranteed"`` (floors hold, nothing to tune), ``"fairsync"`` (the paper's), ``"none"``, one of the paper's
        baselines (``"regularized-fair"``, ``"ipw"``, ``"k-neighbor"``, ``"uncalibrated"``), or a policy object.
    batch_size
        Requests between two price changes.
    index
        ``"exact"``, ``"one-hot"``, or an index object.
    ledger
        Where exposures are recorded; in memory unless given.

    Examples
    --------
    Everybody prefers red; blue is promised 30 of the 200 slots.

    >>> rng = np.random.default_rng(0)
    >>> embeddings = rng.normal(size=(40, 8)) + np.repeat([[1.0], [0.0]], 20, axis=0)
    >>> catalog = Catalog(embeddings, ["red"] * 20 + ["blue"] * 20)
    >>> retriever = FairRetriever(catalog, k=2, floors={"blue": 30}, horizon=100, batch_size=10)
    >>> found = retriever.retrieve(rng.normal(size=(100, 8)) + 1.0)
    >>> found.ids.shape
    (100, 2)
    >>> report = retriever.report()
    >>> report.exposures["blue"], report.esp
    (30, 1.0)
    """

    def __init__(
        self,
        catalog: Catalog,
        k: int = 20,
        floors: Floors = 0,
        horizon: int = 10_000,
        policy: str | Policy = "guaranteed",
        batch_size: int = 16,
        index: str | Index = "exact",
        ledger: Ledger | None = None,
    ) -> None:
        self.catalog = catalog
        self.terms = make_terms(catalog, k, floors, horizon, batch_size)
        self.policy = make_policy(policy)
        self.index = make_index(index, catalog)
        self.ledger: Ledger = MemoryLedger(catalog.n_groups) if ledger is None else ledger
        self._lock = threading.Lock()
        self._books = LoopState.open(self.terms, self.policy, self.ledger.totals())

    def retrieve(self, users: npt.ArrayLike) -> Candidates:
        """Return the candidates of requests in order of arrival.

        Parameters
        ----------
        users
            (n, d) one vector per request, or (n, interests, d) several. Any n: the prices change after every
            ``batch_size`` requests, inside a call as across calls. A call that fails leaves no trace.
        """
        with self._lock:
            catalog, vectors = self.catalog, check_users(users, self.catalog)
            n, k = len(vectors), self.terms.k
            rows, relevance, searched = np.empty((n, k), dtype=np.int64), np.empty((n, k)), np.empty(n)
            books, start = self._books, 0
            entries: list[Entry] = []
            while start < n:
                granted = books.lease(self.terms, self.policy, n - start)
                assert granted is not None  # nobody else holds a lease
                books, lease = granted
                here = slice(start, start + lease.requests)
                served = serve(catalog, self.index, lease, vectors[here])
                settled = books.settle(self.policy, lease.number, served.entry, served.sample)
                assert settled is not None  # it was leased a moment ago
                books, entry = settled
                rows[here], relevance[here] = served.hits.rows, served.hits.relevance
                searched[here] = served.searched
                if entries and not entry.opens_horizon:
                    entry = entries.pop().plus(entry)
                entries.append(entry)
                start += lease.requests
            self.ledger.record(entries)
            self._books = books
        return Candidates.of(catalog, rows, relevance, searched)

    def calibrate(self, past_users: npt.ArrayLike) -> "FairRetriever":
        """Learn prices from past requests, so that the first batch is already well priced. Nothing is counted.

        Parameters
        ----------
        past_users
            (n, d) or (n, interests, d): requests like those to come, latest last. A few hundred help, a few
            thousand are plenty.

        Returns
        -------
        FairRetriever
            This retriever.
        """
        with self._lock:
            self._books = calibrate(self._books, self.terms, self.policy, self.catalog, self.index, past_users)
        return self

    def upsert(
        self,
        embeddings: npt.ArrayLike,
        groups: Sequence[Label] | npt.NDArray[Any],
        ids: Sequence[Label] | npt.NDArray[Any],
        floors: Floors | None = None,
    ) -> None:
        """Add items, or replace those whose ids are known: another embedding, another group.

        It takes effect from the next request on. Gather changes into one call: each copies the catalog's embeddings.

        Parameters
        ----------
        embeddings, groups, ids
            As in :class:`Catalog`. A label that is new becomes a group, which has no floor unless one is given.
        floors
            New floors from now on, where the old ones are not to stay; see :meth:`promise`.
        """
        self._change(lambda catalog: upsert_items(catalog, embeddings, groups, ids), floors)

    def remove(self, ids: Sequence[Label] | npt.NDArray[Any], floors: Floors | None = None) -> None:
        """Take items out, from the next request on.

        A group that has lost its last item stays in the report with what it has had. It cannot get more: if it was
        promised anything, it must be released from its floor in the same call.

        Parameters
        ----------
        ids
            Known ids.
        floors
            New floors from now on, where the old ones are not to stay; see :meth:`promise`.
        """
        self._change(lambda catalog: remove_items(catalog, ids), floors)

    def replace(
        self, catalog: Catalog, index: str | Callable[[Catalog], Index] | None = None, floors: Floors | None = None
    ) -> None:
        """Replace the catalog, because there is a new version of the model, or the index should be rebuilt.

        Exposures and floors stay with their labels. The state of the policy is reset, since it was learnt on other
        scores: `calibrate` with past requests of the new model, if there are any.

        Parameters
        ----------
        catalog
            All items, with the embeddings of the new model.
        index
            A name, or a function of the catalog. Defaults to an index of the present kind with the same settings.
        floors
            New floors from now on. Defaults to the present ones; see :meth:`promise`.
        """
        with self._lock:
            under = catalog.under(self.catalog.labels)
            made = replace_index(self.index, index, under)
            self._swap(under, made, floors, self.policy.start)

    def promise(self, floors: Floors, horizon: int | None = None) -> None:
        """Promise other floors, in the present horizon and those to come.

        Parameters
        ----------
        floors
            One number for all groups, or {label: number}; groups that are not named are promised nothing.
        horizon
            Requests over which they are spread, from the beginning of the present horizon; as before unless given.
        """
        with self._lock:
            self._swap(self.catalog, self.index, floors, horizon=horizon)

    def report(self, hindsight: Hindsight | None = None) -> Report:
        """Return where the promise stands.

        Parameters
        ----------
        hindsight
            The best possible plan for the same requests, to compare the cost with.
        """
        with self._lock:
            books, past, labels, terms = self._books, self.ledger.past(), self.catalog.labels, self.terms
        prices = books.prices_in_force(terms, self.policy)
        return make_report(labels, terms, self.policy.name, books.accounts.totals, past, prices, hindsight)

    def _change(self, change: Callable[[Catalog], CatalogChange], floors: Floors | None) -> None:
        with self._lock:
            changed = change(self.catalog)
            self._swap(changed.catalog, follow(self.index, changed, self.catalog), floors)

    def _swap(
        self,
        catalog: Catalog,
        index: Index,
        floors: Floors | None,
        restart: Callable[[Terms], Any] | None = None,
        horizon: int | None = None,
    ) -> None:
        """Go on with these; whatever cannot be kept is refused before anything is changed."""
        terms = changed_terms(self.terms, self.catalog.labels, catalog, floors, horizon)
        books = self._books.under(terms, self.policy, self.terms, restart)
        assert books is not None  # nobody holds a lease
        if catalog.n_groups > self.catalog.n_groups:
            self.ledger.grow(catalog.n_groups)
        self.catalog, self.index, self.terms, self._books = catalog, index, terms, books
