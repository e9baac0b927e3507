"""A front end: it holds the items, searches them, and shares a promise with other front ends through a coordinator."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fairsync.candidates import Candidates
from fairsync.catalog.changes import CatalogChange, remove_items, upsert_items
from fairsync.closing import Closable, NoCopies
from fairsync.cold_start.cold_start import MEAN
from fairsync.coordination.lease import Settlement
from fairsync.coordination.request_part import RequestPart, with_saved
from fairsync.coordination.searched_items import SearchedItems
from fairsync.eligibility.eligible_items import make_rules
from fairsync.errors import (
    ExpiredRequestError,
    FairSyncError,
    InvalidInputError,
    LostLeaseError,
    RepeatedRequestError,
    UnknownRequestError,
)
from fairsync.explain.explained_promises import saved_why_not
from fairsync.explain.trace import RequestTrace
from fairsync.inputs import check_catalog, check_k, check_request_ids, check_users
from fairsync.loop.batch import uncounted_batch
from fairsync.search.engines.hosted_catalog import HostedCatalog
from fairsync.spans import span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from fairsync.catalog import Catalog, Where
    from fairsync.catalog.atoms import Membership
    from fairsync.catalog.groups import Label
    from fairsync.cold_start.cold_start import Cold
    from fairsync.coordination.lease import Lease
    from fairsync.eligibility.rules import Exclude, Rules
    from fairsync.explain import Explanation, WhyNot
    from fairsync.loop.batch import ServedBatch
    from fairsync.promises import Promise
    from fairsync.search import Index

# Leases that a call may lose, because its searches take longer than leases last, before it gives up.
_MOST_LOST = 3
# Requests without a lease that are answered together: conditions of many more may select more than fits the memory.
_TOGETHER = 256


class CoordinatorProtocol(Protocol):
    """The part of a coordinator that front ends use, in this process or another."""

    @property
    def labels(self) -> Sequence[Label]: ...  # noqa: D102

    @property
    def promises(self) -> tuple[Promise, ...] | None: ...  # noqa: D102

    @property
    def k(self) -> int: ...  # noqa: D102

    def lease(self, n: int, k: int | None = None) -> Lease:
        """Lease up to n requests of k candidates. Blocks while granting them could make a floor unreachable."""
        ...

    def settle(self, number: int, settlement: Settlement) -> object:
        """Record the counts of a lease, and answers by request id. Idempotent: settling again changes nothing."""
        ...

    def answers(self, request_ids: Sequence[str]) -> dict[str, bytes]:
        """Return the saved answers to requests, by request id; see `Ledger.answers`."""
        ...

    def save_answers(self, answers: Mapping[str, bytes]) -> None:
        """Save answers that do not count, by request id. Raises `RepeatedRequestError` if some are known."""
        ...

    def release(self, number: int) -> None:
        """Return a lease that was not answered. Its requests can be leased again."""
        ...


class FrontEnd(NoCopies, Closable):
    """One of several retrievers that share a coordinator.

    Changes of items are made in each front end, in any order; until then a front end answers from the items it has. A
    new group must be known to the coordinator first.

    Parameters
    ----------
    catalog
        The items. Their groups are those of the coordinator; with promises, they have the attributes that these need.
        A `HostedCatalog` has items that only a search engine holds, which searches them.
    coordinator
        The coordinator, in this process or another.
    index
        The name of an index, a function of the catalog, or an index object, as for :class:`fairsync.FairRetriever`;
        not for a `HostedCatalog`.
    cold, count_cold
        The fallback for cold requests, and whether their answers are exposures, as for
        :class:`fairsync.FairRetriever`. The mean is that of the requests of this front end.

    Attributes
    ----------
    limited_requests : int
        Requests of this front end that could not show what floors count on, because of what they excluded or required.
    cold_requests : int
        Requests of this front end that were cold, and were answered by the fallback.
    """

    use_instead = "it holds leases and an index; make one in each process with FrontEnd(catalog, coordinator)"

    def __init__(
        self,
        catalog: Catalog,
        coordinator: CoordinatorProtocol,
        *,
        index: str | Index | Callable[[Catalog], Index] = "exact",
        cold: Cold = MEAN,
        count_cold: bool = True,
    ) -> None:
        if not hasattr(coordinator, "lease"):
            raise InvalidInputError(f"a front end needs a coordinator, got {type(coordinator).__name__}.")
        self.coordinator, self.count_cold = coordinator, count_cold
        self._check_groups(check_catalog(catalog))
        # One object, so that a request never sees the catalog of one version and the index of another.
        self._items = SearchedItems.of(catalog, coordinator.promises, index, cold)
        self._changing = threading.Lock()
        self._calls, self._closed, self._idle = 0, False, threading.Condition()
        self.limited_requests = self.cold_requests = 0

    @property
    def catalog(self) -> Catalog:
        """The current items."""
        return self._items.catalog

    @property
    def index(self) -> Index:
        """The index of the current items."""
        return self._items.index

    def items_under(self, membership: Membership | None) -> SearchedItems:
        """Return the current items under the promises that a lease or the coordinator has; None for floors of groups.

        They are one version of catalog, index and atoms.
        """
        return self._following(self._items, membership, None)

    def item_prices(self, prices: NDArray[np.float64]) -> tuple[Catalog, NDArray[np.float64]]:
        """Return the items, and the price of each, from those that a coordinator has by column."""
        items = self._items
        return items.catalog, items.atom_prices(prices)[items.searched.group_of]

    def count(self, ids: ArrayLike) -> NDArray[np.int64]:
        """Return how many of some items each column of the coordinator counts; ids that are not known count nowhere."""
        items = self._items
        rows = items.catalog.rows_of(np.asarray(ids))
        return items.exposures(rows[rows >= 0], len(self.coordinator.labels))

    def retrieve(
        self,
        users: ArrayLike,
        *,
        k: int | None = None,
        request_ids: Sequence[str | None] | None = None,
        exclude: Exclude | None = None,
        where: Where | Sequence[Where | None] | None = None,
        explain: bool | Mapping[Label, str] = False,
        checked: bool = False,
        allow_empty: bool = False,
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
            :class:`ExpiredRequestError`. It gets that answer also if ``exclude`` or ``where`` are others than before:
            give a request with other rules another id.
        exclude, where
            The ids that each request must not get, and conditions on attributes; see
            :meth:`fairsync.FairRetriever.retrieve`.
        explain
            Whether `Candidates.explain` can say why the candidates are there. The call takes up to twice as long, and
            with a request id, `explain` can say it later. Texts of promises by label take the place of "label ≥ floor":
            a label without a text has no promise then.
        checked
            Whether :func:`fairsync.inputs.check_users` has returned these users, so that they are not checked again.
        allow_empty
            Whether a request gets an empty list if no item meets its condition. Otherwise the call is refused.
        """
        with self._under_way():
            items = self._items
            catalog = items.catalog
            vectors = users if checked and isinstance(users, np.ndarray) else check_users(users, catalog)
            if explain is not False and catalog.weights is not None:
                raise InvalidInputError("explanations need a copy of the catalog: ask without explain.")
            rules = make_rules(exclude, where, catalog, len(vectors), allow_empty=allow_empty)
            if rules is not None:
                rules.check()  # the batches before a request that is refused would be counted
            return self._retrieve(items, vectors, k, request_ids, rules, explain)

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
        self,
        items: SearchedItems,
        vectors: NDArray[np.floating[Any]],
        k: int | None,
        request_ids: Sequence[str | None] | None,
        rules: Rules | None,
        explain: bool | Mapping[Label, str],
    ) -> Candidates:
        catalog, cold_start = items.catalog, items.cold_start
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

        def part(here: list[int]) -> RequestPart:
            return RequestPart(
                vectors[here],
                k,
                [ids[position] for position in here],
                evaluate=None if rules is None else partial(rules.eligibility_of, here),
                cold=None if cold is None else cold[here],
                fixed=None if fixed is None else fixed.take(np.array(here)),
                explain=explain,
            )

        start, lost, parts = 0, 0, []
        while start < len(waiting):
            with span("lease"):
                lease = self.coordinator.lease(len(waiting) - start, k)
            here = waiting[start : start + lease.batch.requests]
            items = self._following(items, lease.batch.terms.membership, lease.batch.terms.home)
            try:
                parts.append(self._serve(items, lease, part(here)))
            except LostLeaseError:
                lost += 1
                if lost == _MOST_LOST:
                    raise
            else:
                start += lease.batch.requests
        parts += [
            self._serve_uncounted(items, part(uncounted[begin : begin + _TOGETHER]))
            for begin in range(0, len(uncounted), _TOGETHER)
        ]
        if cold is not None:
            with self._idle:
                self.cold_requests += int(np.count_nonzero(cold[[*waiting, *uncounted]]))
        if not ids:
            return Candidates.of(catalog, np.empty((0, k), dtype=np.int64), np.empty((0, k)), np.empty(0))
        if len(waiting) == len(ids):
            cold_start.observe(vectors, cold)
        elif waiting:
            cold_start.observe(vectors[waiting], None if cold is None else cold[waiting])
        found = Candidates.join([*parts, *saved.values()])
        if len(waiting) < len(ids):
            place = {position: i for i, position in enumerate([*waiting, *uncounted, *saved])}
            found = found.take(np.array([place[i if name is None else first[name]] for i, name in enumerate(ids)]))
        return found if rules is None else replace(found, unknown_excluded=rules.unknown)

    def _following(
        self, items: SearchedItems, membership: Membership | None, home: NDArray[np.int64] | None
    ) -> SearchedItems:
        """Return the items under the promises of a lease, which may be other ones than were known so far."""
        promises = None if membership is None else (self.coordinator.promises or ())[: membership.n_promises]
        is_known = promises is items.promises or promises == items.promises
        followed = items if is_known else items.with_promises(promises)
        if membership is not None and home is not None:
            followed = followed.with_homes(membership, home)
        if followed is items:
            return items
        with self._changing:
            if self._items is items:
                self._items = followed
        return followed

    def _serve(self, items: SearchedItems, lease: Lease, part: RequestPart) -> Candidates:
        """Answer the requests of a lease and settle it; release it on failure."""
        try:
            opened = items.opened()
            served = part.serve(items.fit(lease.batch, part.k), items, opened)
            with span("settle"):
                found = self._settle(items, opened, served, lease, part)
        except BaseException:
            # If the lease was settled before the failure, releasing it changes nothing.
            self.coordinator.release(lease.number)
            raise
        if served.limited:
            with self._idle:
                self.limited_requests += served.limited
        return found

    def _serve_uncounted(self, items: SearchedItems, part: RequestPart) -> Candidates:
        """Answer cold requests that do not count: they need no lease. Their answers are saved all the same."""
        opened = items.opened()
        served = part.serve(uncounted_batch(len(part.vectors), part.k, items.searched), items, opened)
        found, answers = part.candidates(opened, served)
        while answers:
            try:
                self.coordinator.save_answers(answers)
            except RepeatedRequestError as error:  # another front end has answered some of them meanwhile
                saved = self._saved_answers(error.request_ids, part.k)
                answers = {request_id: answer for request_id, answer in answers.items() if request_id not in saved}
                found = with_saved(found, saved, part.request_ids)
            else:
                break
        return found

    def _settle(
        self, items: SearchedItems, opened: SearchedItems, served: ServedBatch, lease: Lease, part: RequestPart
    ) -> Candidates:
        """Settle a lease; return its answers, with the saved answer for each request that was answered before."""
        rows, relevance, request_ids = served.hits.rows, served.hits.relevance, part.request_ids
        found, answers = part.candidates(opened, served)
        membership, searched = lease.batch.terms.membership, opened.searched
        settlement = Settlement(
            served.entry,
            items.sample_for(membership, served.sample),
            served.costs,
            items.slots_for(membership, served.slots),
            items.certified_for(lease.batch, served),
            last_relevance=served.last_relevance,
            answers=answers,
            membership=membership,
        )
        while True:
            try:
                self.coordinator.settle(lease.number, settlement)
            except RepeatedRequestError as error:  # another front end has answered and counted some of them meanwhile
                again = [i for i, request_id in enumerate(request_ids) if request_id in error.request_ids]
                there = rows[again] >= 0  # a short list has empty places
                counts = np.bincount(searched.group_of[rows[again][there]], minlength=searched.n_groups)
                by_promise = items.membership.exposures(counts)
                saved = self._saved_answers(error.request_ids, part.k)
                settlement = replace(
                    settlement,
                    entry=settlement.entry.without(by_promise, float(relevance[again][there].sum()), len(again)),
                    certified=items.certified_for(lease.batch, served, counts),
                    answers={name: answer for name, answer in settlement.answers.items() if name not in saved},
                )
                found = with_saved(found, saved, request_ids)
            else:
                return found

    def explain(self, request_id: str) -> Explanation:
        """Return the explanation of a request that any front end has answered with ``explain`` under this id.

        It can be had as long as the answer is saved (:class:`fairsync.Retention`). Its `why_not` speaks of the items as
        they are now.

        Parameters
        ----------
        request_id
            The id of the request. One that is not known, or has no explanation, raises
            :class:`fairsync.UnknownRequestError`, and one whose answer is no longer saved `ExpiredRequestError`.
        """
        check_request_ids([request_id], 1)
        answer = self.coordinator.answers([request_id]).get(request_id)
        if answer is None:
            raise UnknownRequestError(request_id)
        if not answer:
            raise ExpiredRequestError(request_id)
        saved = next(iter(Candidates.load(answer).explained), None)
        if saved is None:
            raise UnknownRequestError(request_id, "was answered without explain")
        trace, items = saved.to_dict().get("trace"), self._items
        why_not: Callable[[Label], WhyNot]
        if trace is None:  # saved by an earlier version, under promises that overlap
            return saved.explanation()
        if "promises" not in trace:
            why_not = partial(RequestTrace.from_dict(trace, items.catalog).why_not, items.catalog)
        else:
            names = [promise.name for promise in items.promises or ()]
            membership = None if items.atoms is None else items.atoms.membership
            why_not = saved_why_not(trace, items.searched, names, membership)
        return replace(saved.explanation(), answer_why_not=why_not)

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
        embeddings: ArrayLike | None,
        groups: Sequence[Label] | NDArray[Any] | Mapping[str, Any],
        ids: Sequence[Label] | NDArray[Any],
    ) -> None:
        """Add items, or change those whose ids are known; see :meth:`fairsync.FairRetriever.upsert`.

        A new group must be known to the coordinator first: `Coordinator.promise(catalog=...)`.
        """
        self._refuse_hosted()
        self._change(lambda catalog: upsert_items(catalog, embeddings, groups, ids))

    def remove(self, ids: Sequence[Label] | NDArray[Any]) -> None:
        """Remove items; see :meth:`fairsync.FairRetriever.remove`.

        Floors belong to the coordinator: where a group becomes too small for its floor, lower the floor there first.
        """
        self._refuse_hosted()
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
            promises = self.coordinator.promises
            if promises is None:
                catalog = catalog.under(self.coordinator.labels)
                self._check_groups(catalog)
            self._items = self._items.replaced(catalog, promises, index, cold)

    def follow(self, change: CatalogChange) -> None:
        """Continue with the catalog after a change that was made elsewhere."""
        self._change(lambda _: change)

    def _change(self, change: Callable[[Catalog], CatalogChange]) -> None:
        with self._changing:
            changed = change(self.catalog)
            check_k(self.coordinator.k, changed.catalog)
            self._check_groups(changed.catalog)
            self._items = self._items.changed(changed, self.coordinator.promises)

    def _refuse_hosted(self) -> None:
        if isinstance(self.catalog, HostedCatalog):
            raise InvalidInputError(
                "the items are in an engine only: change them there, or with HostedCatalog.write, and give what it"
                " returns to the coordinator, then to FrontEnd.replace."
            )

    def _check_groups(self, catalog: Catalog) -> None:
        if self.coordinator.promises is not None:
            return
        known = list(self.coordinator.labels)
        if catalog.labels != known[: len(catalog.labels)]:
            raise InvalidInputError(
                "the catalog has other groups than the coordinator: give both the same catalog, and tell the"
                " coordinator first when groups are added (Coordinator.promise(catalog=...))."
            )
