"""A front end: it holds the items, searches them, and shares a promise with other front ends through a coordinator."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.batch import ServedBatch, serve, uncounted_batch
from fairsync.candidates import Candidates
from fairsync.catalog.changes import CatalogChange, remove_items, upsert_items
from fairsync.closing import Closable, NoCopies
from fairsync.cold_start import MEAN, ColdStart
from fairsync.errors import ExpiredRequestError, FairSyncError, InvalidInputError, RepeatedRequestError
from fairsync.floors import group_caps
from fairsync.inputs import check_k, check_request_ids, check_users
from fairsync.search import Index, make_index, replace_index
from fairsync.search.overlay import follow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    from fairsync.batch import Batch
    from fairsync.catalog import Catalog
    from fairsync.catalog.groups import Label
    from fairsync.cold_start import Cold
    from fairsync.coordination.lease import Lease
    from fairsync.coordination.protocol import CoordinatorProtocol
    from fairsync.fixed_list import FixedList


class FrontEnd(NoCopies, Closable):
    """One of several retrievers that share a coordinator.

    Changes of items are made in each front end, in any order; until then a front end answers from the items it has. A
    new group must be known to the coordinator first.

    Parameters
    ----------
    catalog
        The items. Their groups are those of the coordinator.
    coordinator
        The coordinator, in this process or another.
    index
        The name of an index, or an index object, as for :class:`fairsync.FairRetriever`.
    cold, count_cold
        The fallback for cold requests, and whether their answers are exposures, as for
        :class:`fairsync.FairRetriever`. The mean is that of the requests of this front end.
    """

    use_instead = "it holds leases and an index; make one in each process with FrontEnd(catalog, coordinator)"

    def __init__(
        self,
        catalog: Catalog,
        coordinator: CoordinatorProtocol,
        *,
        index: str | Index = "exact",
        cold: Cold = MEAN,
        count_cold: bool = True,
    ) -> None:
        self.coordinator, self.count_cold = coordinator, count_cold
        self._check_groups(catalog)
        # One tuple, so that a request never sees the catalog of one version and the index of another.
        self._items = (catalog, make_index(index, catalog), ColdStart(catalog, cold))
        self._changing = threading.Lock()
        self._calls, self._closed, self._idle = 0, False, threading.Condition()

    @property
    def catalog(self) -> Catalog:
        """The current items."""
        return self._items[0]

    @property
    def index(self) -> Index:
        """The index of the current items."""
        return self._items[1]

    def retrieve(
        self,
        users: ArrayLike,
        k: int | None = None,
        request_ids: Sequence[str | None] | None = None,
        *,
        checked: bool = False,
    ) -> Candidates:
        """Return the candidates of requests in order of arrival.

        Prices are those of the moment when requests are leased, one batch at a time. If a long call fails, the batches
        answered before stay counted.

        Parameters
        ----------
        users
            (n, d) one vector per request, or (n, interests, d) several.
        k
            Candidates per request. Defaults to the coordinator's k, which the promise assumes for all later requests:
            floors that take nearly all slots can be missed if those ask for fewer.
        request_ids
            (n,) idempotency key of each request, or None. A request whose id was answered before, by any front end,
            gets the same answer and is not counted again, for as long as the ledger saves it
            (:class:`fairsync.Retention`: 24 hours by default); after that it is refused with
            :class:`ExpiredRequestError`.
        checked
            Whether :func:`fairsync.inputs.check_users` has returned these users, so that they are not checked again.
        """
        with self._under_way():
            return self._retrieve(users, k, request_ids, checked=checked)

    def close(self) -> None:
        """Refuse further requests, and wait for those under way, so that no lease is left to expire.

        The coordinator and an index object stay open: they belong to the caller.
        """
        with self._idle:
            self._closed = True
            self._idle.wait_for(lambda: not self._calls)

    @contextmanager
    def _under_way(self) -> Iterator[None]:
        """Count a call for as long as it may hold a lease; refuse it if the front end is closed."""
        with self._idle:
            if self._closed:
                raise FairSyncError("The front end is closed: make another one with FrontEnd(catalog, coordinator).")
            self._calls += 1
        try:
            yield
        finally:
            with self._idle:
                self._calls -= 1
                self._idle.notify_all()

    def _retrieve(
        self, users: ArrayLike, k: int | None, request_ids: Sequence[str | None] | None, *, checked: bool
    ) -> Candidates:
        catalog, index, cold_start = self._items
        vectors = users if checked and isinstance(users, np.ndarray) else check_users(users, catalog)
        vectors, cold = cold_start.fill(vectors, catalog)
        fixed = cold_start.fixed_list(cold, catalog)
        k = self.coordinator.k if k is None else check_k(k, catalog)
        ids = check_request_ids(request_ids, len(vectors))
        first: dict[str, int] = {}  # the first position of each request id
        for position, request_id in enumerate(ids):
            if request_id is not None:
                first.setdefault(request_id, position)
        saved = {first[request_id]: answer for request_id, answer in self._saved_answers(list(first), k).items()}
        waiting = [
            position
            for position, request_id in enumerate(ids)
            if position not in saved and (request_id is None or first[request_id] == position)
        ]
        uncounted = [] if self.count_cold or cold is None else [position for position in waiting if cold[position]]
        if cold is not None and uncounted:
            waiting = [position for position in waiting if not cold[position]]
        start, parts = 0, []
        while start < len(waiting):
            lease = self.coordinator.lease(len(waiting) - start)
            here = waiting[start : start + lease.batch.requests]
            names, marks = [ids[position] for position in here], None if cold is None else cold[here]
            listed = None if fixed is None else fixed.take(np.array(here))
            parts.append(self._serve(catalog, index, lease, vectors[here], k, names, marks, listed))
            start += lease.batch.requests
        if uncounted:
            names = [ids[position] for position in uncounted]
            listed = None if fixed is None else fixed.take(np.array(uncounted))
            parts.append(self._serve_uncounted(catalog, index, vectors[uncounted], k, names, listed))
        if not ids:
            return Candidates.of(catalog, np.empty((0, k), dtype=np.int64), np.empty((0, k)), np.empty(0))
        if len(waiting) == len(ids):
            cold_start.observe(vectors, cold)
        elif waiting:
            cold_start.observe(vectors[waiting], None if cold is None else cold[waiting])
        found = Candidates.join([*parts, *saved.values()])
        if len(waiting) == len(ids):
            return found
        place = {position: i for i, position in enumerate([*waiting, *uncounted, *saved])}
        return found.take(np.array([place[i if name is None else first[name]] for i, name in enumerate(ids)]))

    def _serve(
        self,
        catalog: Catalog,
        index: Index,
        lease: Lease,
        vectors: NDArray[np.floating[Any]],
        k: int,
        request_ids: Sequence[str | None],
        cold: NDArray[np.bool_] | None,
        fixed: FixedList | None,
    ) -> Candidates:
        """Answer the requests of a lease and settle it; release it on failure."""
        try:
            served = serve(_fit(lease.batch, catalog, k), catalog, index, vectors, None, fixed)
            return self._settle(catalog, served, lease, k, request_ids, cold, fixed)
        except BaseException:
            # If the lease was settled before the failure, releasing it changes nothing.
            self.coordinator.release(lease.number)
            raise

    def _serve_uncounted(
        self,
        catalog: Catalog,
        index: Index,
        vectors: NDArray[np.floating[Any]],
        k: int,
        request_ids: Sequence[str | None],
        fixed: FixedList | None,
    ) -> Candidates:
        """Answer cold requests that do not count: they need no lease. Their answers are saved all the same."""
        served = serve(uncounted_batch(len(vectors), k, catalog), catalog, index, vectors, None, fixed)
        found = _candidates(catalog, served, np.ones(len(vectors), dtype=bool), fixed)
        answers = {request_id: found.dump(i) for i, request_id in enumerate(request_ids) if request_id is not None}
        while answers:
            try:
                self.coordinator.save_answers(answers)
            except RepeatedRequestError as error:  # another front end has answered some of them meanwhile
                saved = self._saved_answers(error.request_ids, k)
                answers = {request_id: answer for request_id, answer in answers.items() if request_id not in saved}
                found = _with_saved(found, saved, request_ids)
            else:
                break
        return found

    def _settle(
        self,
        catalog: Catalog,
        served: ServedBatch,
        lease: Lease,
        k: int,
        request_ids: Sequence[str | None],
        cold: NDArray[np.bool_] | None,
        fixed: FixedList | None,
    ) -> Candidates:
        """Settle a lease; return its answers, with the saved answer for each request that was answered before."""
        rows, relevance = served.hits.rows, served.hits.relevance
        found = _candidates(catalog, served, cold, fixed)
        entry = served.entry
        answers = {request_id: found.dump(i) for i, request_id in enumerate(request_ids) if request_id is not None}
        while True:
            try:
                self.coordinator.settle(lease.number, entry, served.sample, answers)
            except RepeatedRequestError as error:  # another front end has answered and counted some of them meanwhile
                again = [i for i, request_id in enumerate(request_ids) if request_id in error.request_ids]
                entry = entry.without(
                    np.bincount(catalog.group_of[rows[again]].ravel(), minlength=catalog.n_groups),
                    float(relevance[again].sum()),
                    len(again),
                )
                saved = self._saved_answers(error.request_ids, k)
                answers = {request_id: answer for request_id, answer in answers.items() if request_id not in saved}
                found = _with_saved(found, saved, request_ids)
            else:
                return found

    def _saved_answers(self, request_ids: Sequence[str], k: int) -> dict[str, Candidates]:
        """Return the saved answers to requests that were answered before, by request id."""
        answers = self.coordinator.answers(request_ids) if request_ids else {}
        found = {}
        for request_id, answer in answers.items():
            if not answer:
                raise ExpiredRequestError(request_id)
            found[request_id] = Candidates.load(answer)
            before = found[request_id].ids.shape[1]
            if before != k:
                raise InvalidInputError(
                    f"the request {request_id!r} was answered with {before} candidates, and now k is {k}: give another"
                    " request another id."
                )
        return found

    def upsert(
        self,
        embeddings: ArrayLike,
        groups: Sequence[Label] | NDArray[Any],
        ids: Sequence[Label] | NDArray[Any],
    ) -> None:
        """Add items, or replace those whose ids are known; see :meth:`fairsync.FairRetriever.upsert`.

        A new group must be known to the coordinator first: `Coordinator.promise(catalog=...)`.
        """
        self._change(lambda catalog: upsert_items(catalog, embeddings, groups, ids))

    def remove(self, ids: Sequence[Label] | NDArray[Any]) -> None:
        """Remove items; see :meth:`fairsync.FairRetriever.remove`.

        Floors belong to the coordinator: where a group becomes too small for its floor, lower the floor there first.
        """
        self._change(lambda catalog: remove_items(catalog, ids))

    def replace(
        self,
        catalog: Catalog,
        index: str | Callable[[Catalog], Index] | None = None,
        cold: Cold | None = None,
    ) -> None:
        """Replace the catalog, because there is a new version of the model, or the index should be rebuilt.

        Parameters
        ----------
        catalog
            All items, with the embeddings of the new model.
        index
            A name, or a function of the catalog. Defaults to an index of the present kind with the same settings.
        cold
            The fallback for cold requests from now on; see :meth:`fairsync.FairRetriever.replace`.
        """
        with self._changing:
            under = catalog.under(self.coordinator.labels)
            self._check_groups(under)
            start = ColdStart(under, self._items[2].fallback if cold is None else cold)
            self._items = (under, replace_index(self.index, index, under), start)

    def follow(self, change: CatalogChange) -> None:
        """Continue with the catalog after a change that was made elsewhere."""
        self._change(lambda _: change)

    def _change(self, change: Callable[[Catalog], CatalogChange]) -> None:
        with self._changing:
            before, index, start = self._items
            changed = change(before)
            check_k(self.coordinator.k, changed.catalog)
            self._check_groups(changed.catalog)
            self._items = (changed.catalog, follow(index, changed, before), start)

    def _check_groups(self, catalog: Catalog) -> None:
        known = list(self.coordinator.labels)
        if catalog.labels != known[: len(catalog.labels)]:
            raise InvalidInputError(
                "the catalog has other groups than the coordinator: give both the same catalog, and tell the"
                " coordinator first when groups are added (Coordinator.promise(catalog=...))."
            )


def _candidates(
    catalog: Catalog, served: ServedBatch, cold: NDArray[np.bool_] | None, fixed: FixedList | None
) -> Candidates:
    """Return the candidates of a batch."""
    rows, relevance = served.hits.rows, served.hits.relevance
    found = Candidates.of(catalog, rows, relevance, np.full(len(rows), served.searched), cold=cold)
    return found if fixed is None else fixed.in_order(found)


def _with_saved(found: Candidates, saved: dict[str, Candidates], request_ids: Sequence[str | None]) -> Candidates:
    """Return the candidates with the saved answer of each request that has one."""
    return Candidates.join([saved.get(name or "", found.take(slice(i, i + 1))) for i, name in enumerate(request_ids)])


def _fit(batch: Batch, catalog: Catalog, k: int) -> Batch:
    """Return the batch for k candidates of this catalog, whose items or groups may differ from the coordinator's."""
    g, terms = catalog.n_groups, batch.terms
    caps = np.minimum(terms.caps[:g], group_caps(catalog, terms.k))
    if k == terms.k and g == len(terms.floors) and (caps == terms.caps).all():
        return batch
    return replace(
        batch,
        k=k,
        prices=batch.prices[:g],
        missing=batch.missing[:g],
        terms=replace(terms, floors=terms.floors[:g], caps=caps),
        watched=batch.watched and k == terms.k,  # a sample is cut at k: one of another k would mislead the policy
    )
