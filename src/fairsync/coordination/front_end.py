"""A front end: it has the items, and shares a promise with others through a coordinator."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.candidates import Candidates
from fairsync.catalog.changes import CatalogChange, remove_items, upsert_items
from fairsync.errors import InvalidInputError, RepeatedRequestError
from fairsync.floors import group_caps
from fairsync.inputs import check_k, check_users
from fairsync.search import Index, make_index, replace_index
from fairsync.search.overlay import follow
from fairsync.serving import Served, serve

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray

    from fairsync.catalog import Catalog
    from fairsync.catalog.groups import Label
    from fairsync.coordination.books import Lease
    from fairsync.coordination.coordinator import CoordinatorProtocol


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

    def __init__(self, catalog: Catalog, coordinator: CoordinatorProtocol, index: str | Index = "exact") -> None:
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

    def retrieve(
        self, users: ArrayLike, k: int | None = None, request_ids: Sequence[str | None] | None = None
    ) -> Candidates:
        """Return the candidates of requests in order of arrival.

        Prices are those of the moment when requests are handed out, a batch at a time. If it fails in the middle of a
        long call, what was decided before stays counted.

        Parameters
        ----------
        users
            (n, d) one vector per request, or (n, interests, d) several.
        k
            Candidates of each, where it is to be another number than the coordinator's. The promise counts on the
            latter for the requests to come: where they ask for fewer, floors that take nearly all slots can be missed.
        request_ids
            (n,) a name for each request, or None. A request that was answered before under its name gets the same
            answer again, from whichever front end, and does not count again.
        """
        catalog, index = self._items
        vectors = check_users(users, catalog)
        k = self.coordinator.k if k is None else check_k(k, catalog)
        names = [None] * len(vectors) if request_ids is None else list(request_ids)
        if len(names) != len(vectors):
            raise InvalidInputError(f"there are {len(vectors)} requests, and {len(names)} request_ids.")
        first: dict[str, int] = {}
        for position, name in enumerate(names):
            if name is not None:
                first.setdefault(name, position)
        known = {position: answer for name, position in first.items() if (answer := self._known(name, k)) is not None}
        waiting = [
            position
            for position, name in enumerate(names)
            if position not in known and (name is None or first[name] == position)
        ]
        answers: dict[int, Candidates] = dict(known)
        start = 0
        while start < len(waiting):
            lease = self.coordinator.lease(len(waiting) - start)
            here = waiting[start : start + lease.requests]
            found = self._serve(catalog, index, lease, vectors[here], k, [names[position] for position in here])
            answers.update({position: found.take(slice(i, i + 1)) for i, position in enumerate(here)})
            start += lease.requests
        if not names:
            return Candidates.of(catalog, np.empty((0, k), dtype=np.int64), np.empty((0, k)), np.empty(0))
        return Candidates.join(
            [answers[position if name is None else first[name]] for position, name in enumerate(names)]
        )

    def _serve(
        self,
        catalog: Catalog,
        index: Index,
        lease: Lease,
        vectors: NDArray[np.floating[Any]],
        k: int,
        names: Sequence[str | None],
    ) -> Candidates:
        """Answer the requests of a lease, and have it written down."""
        try:
            return self._settled(catalog, serve(catalog, index, _fitted(lease, catalog, k), vectors), lease, k, names)
        except BaseException:
            # If it was settled after all, giving it back changes nothing.
            self.coordinator.release(lease.number)
            raise

    def _settled(
        self, catalog: Catalog, served: Served, lease: Lease, k: int, names: Sequence[str | None]
    ) -> Candidates:
        """Have what was served written down; return the answers, those of requests answered before as they were."""
        rows, relevance = served.hits.rows, served.hits.relevance
        found = Candidates.of(catalog, rows, relevance, np.full(len(rows), served.searched))
        entry, kept = served.entry, {name: found.dump(i) for i, name in enumerate(names) if name is not None}
        while True:
            try:
                self.coordinator.settle(lease.number, entry, served.sample, kept)
            except RepeatedRequestError as error:  # another front end was faster with some of them: those count there
                again = [i for i, name in enumerate(names) if name in error.request_ids]
                entry = entry.less(
                    np.bincount(catalog.group_of[rows[again]].ravel(), minlength=catalog.n_groups),
                    float(relevance[again].sum()),
                    len(again),
                )
                known = {names[i]: self._known(names[i], k) for i in again}
                kept = {name: answer for name, answer in kept.items() if name not in known}
                parts = [known.get(name) or found.take(slice(i, i + 1)) for i, name in enumerate(names)]
                found = Candidates.join(parts)
            else:
                return found

    def _known(self, name: str | None, k: int) -> Candidates | None:
        """Return the answer that a request has had before, if it has."""
        answer = None if name is None else self.coordinator.answer(name)
        if answer is None:
            return None
        if not answer:
            raise InvalidInputError(f"the request {name!r} was answered too long ago to be answered again.")
        found = Candidates.load(answer)
        if found.ids.shape[1] != k:
            raise InvalidInputError(
                f"the request {name!r} was answered with {found.ids.shape[1]} candidates, and now k is {k}: give"
                " another request another id."
            )
        return found

    def upsert(
        self,
        embeddings: ArrayLike,
        groups: Sequence[Label] | NDArray[Any],
        ids: Sequence[Label] | NDArray[Any],
    ) -> None:
        """Add items, or replace those whose ids are known; see :meth:`fairsync.FairRetriever.upsert`.

        A group that is new must be known to the coordinator: `Coordinator.promise(catalog=...)`.
        """
        self._change(lambda catalog: upsert_items(catalog, embeddings, groups, ids))

    def remove(self, ids: Sequence[Label] | NDArray[Any]) -> None:
        """Take items out; see :meth:`fairsync.FairRetriever.remove`.

        Floors are the coordinator's: where a group becomes too small for its own, lower it there first.
        """
        self._change(lambda catalog: remove_items(catalog, ids))

    def replace(self, catalog: Catalog, index: str | Callable[[Catalog], Index] | None = None) -> None:
        """Replace the catalog, because there is a new version of the model, or the index should be rebuilt.

        Parameters
        ----------
        catalog
            All items, with the embeddings of the new model.
        index
            A name, or a function of the catalog. Defaults to an index of the present kind with the same settings.
        """
        with self._changing:
            under = catalog.under(self.coordinator.labels)
            self._check_groups(under)
            self._items = (under, replace_index(self.index, index, under))

    def follow(self, change: CatalogChange) -> None:
        """Go on with the catalog after a change that was made elsewhere."""
        self._change(lambda _: change)

    def _change(self, change: Callable[[Catalog], CatalogChange]) -> None:
        with self._changing:
            before, index = self._items
            changed = change(before)
            check_k(self.coordinator.k, changed.catalog)
            self._check_groups(changed.catalog)
            self._items = (changed.catalog, follow(index, changed, before))

    def _check_groups(self, catalog: Catalog) -> None:
        known = list(self.coordinator.labels)
        if catalog.labels != known[: len(catalog.labels)]:
            raise InvalidInputError(
                "the catalog has other groups than the coordinator: give both the same catalog, and tell the"
                " coordinator first when groups are added (Coordinator.promise(catalog=...))."
            )


def _fitted(lease: Lease, catalog: Catalog, k: int) -> Lease:
    """Return the lease for so many candidates of these items, where the coordinator knows of other items or groups."""
    g, terms = catalog.n_groups, lease.terms
    caps = np.minimum(terms.caps[:g], group_caps(catalog, terms.k))
    if k == terms.k and g == len(terms.floors) and (caps == terms.caps).all():
        return lease
    return replace(
        lease,
        k=k,
        prices=lease.prices[:g],
        missing=lease.missing[:g],
        terms=replace(terms, floors=terms.floors[:g], caps=caps),
        watched=lease.watched and k == terms.k,  # a list is cut at k: another teaches nothing about this one
    )
