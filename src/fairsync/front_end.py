"""A front end: it has the items, and shares a promise with others through a coordinator."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.changes import Change, put_items, remove_items
from fairsync.errors import InvalidInputError
from fairsync.floors import group_caps
from fairsync.inputs import check_users
from fairsync.search import Index, make_index
from fairsync.search.overlay import follow
from fairsync.serving import Found, serve

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray

    from fairsync.books import Lease
    from fairsync.catalog import Catalog
    from fairsync.coordinator import Coordination
    from fairsync.groups import Label


class FrontEnd:
    """One of several retrievers that share a coordinator.

    When items come or go, each front end is told so. It does not matter who is told first, and meanwhile each answers
    from the items it has; a new group must be known to the coordinator before.

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
        self.coordinator = coordinator
        self._check_groups(catalog)
        # One reference to both, so that a change cannot come between them.
        self._items = (catalog, make_index(index, catalog))
        self._changing = threading.Lock()

    @property
    def catalog(self) -> Catalog:
        """The items as they are now."""
        return self._items[0]

    @property
    def index(self) -> Index:
        """What searches them."""
        return self._items[1]

    def retrieve(self, users: ArrayLike) -> Found:
        """Return the candidates of requests in order of arrival.

        Prices are those of the moment when requests are handed out, a batch at a time. If it fails in the middle of a
        long call, what was decided before stays counted.

        Parameters
        ----------
        users
            (n, d) one vector per request, or (n, interests, d) several.
        """
        catalog, index = self._items
        vectors = check_users(users, catalog)
        n, k = len(vectors), self.coordinator.k
        rows, relevance, searched = np.empty((n, k), dtype=np.int64), np.empty((n, k)), np.empty(n)
        start = 0
        while start < n:
            lease = self.coordinator.lease(n - start)
            here = slice(start, start + lease.requests)
            try:
                served = serve(catalog, index, _fitted(lease, catalog), vectors[here])
            except BaseException:
                self.coordinator.give_back(lease.number)
                raise
            self.coordinator.settle(lease.number, served.entry, served.sample)
            rows[here], relevance[here] = served.hits.rows, served.hits.relevance
            searched[here] = served.searched
            start += lease.requests
        return Found.of(catalog, rows, relevance, searched)

    def put(
        self,
        embeddings: ArrayLike,
        groups: Sequence[Label] | NDArray[Any],
        ids: Sequence[Label] | NDArray[Any],
    ) -> None:
        """Add items, or replace those whose ids are known; see :meth:`fairsync.FairRetriever.put`.

        A group that is new must be known to the coordinator: `Coordinator.promise(catalog=...)`.
        """
        self._change(lambda catalog: put_items(catalog, embeddings, groups, ids))

    def remove(self, ids: Sequence[Label] | NDArray[Any]) -> None:
        """Take items out; see :meth:`fairsync.FairRetriever.remove`.

        Floors are the coordinator's: where a group becomes too small for its own, lower it there first.
        """
        self._change(lambda catalog: remove_items(catalog, ids))

    def replace(self, catalog: Catalog, index: str | Callable[[Catalog], Index] = "exact") -> None:
        """Go on with another catalog: a new version of the model, or an index built anew."""
        with self._changing:
            under = catalog.under(self.coordinator.labels)
            self._check_groups(under)
            self._items = (under, index(under) if callable(index) else make_index(index, under))

    def _change(self, change: Callable[[Catalog], Change]) -> None:
        with self._changing:
            before, index = self._items
            changed = change(before)
            self._check_groups(changed.catalog)
            self._items = (changed.catalog, follow(index, changed, before))

    def _check_groups(self, catalog: Catalog) -> None:
        known = list(self.coordinator.labels)
        if catalog.labels != known[: len(catalog.labels)]:
            raise InvalidInputError(
                "the catalog has other groups than the coordinator: give both the same catalog, and tell the"
                " coordinator first when groups are added (Coordinator.promise(catalog=...))."
            )


def _fitted(lease: Lease, catalog: Catalog) -> Lease:
    """Return the lease as it concerns these items, where the coordinator knows of others: groups or items."""
    g, terms = catalog.n_groups, lease.terms
    caps = np.minimum(terms.caps[:g], group_caps(catalog, terms.k))
    if g == len(terms.floors) and (caps == terms.caps).all():
        return lease
    return replace(
        lease,
        prices=lease.prices[:g],
        missing=lease.missing[:g],
        terms=replace(terms, floors=terms.floors[:g], caps=caps),
    )
