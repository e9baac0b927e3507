"""A front end without a catalog: a search engine holds the items, and candidates come with their vectors and labels."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from fairsync.batch import ServedBatch, serve
from fairsync.candidates import Candidates
from fairsync.catalog.groups import Groups
from fairsync.closing import NoCopies
from fairsync.errors import ExpiredRequestError, InvalidInputError, LostLeaseError, RepeatedRequestError
from fairsync.inputs import check_request_ids
from fairsync.policies import Sample
from fairsync.search.engines.hosted_items import FoundItems, HostedIndex, HostedItems

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from fairsync.batch import Batch
    from fairsync.catalog import Catalog
    from fairsync.catalog.groups import Label
    from fairsync.coordination.lease import Lease
    from fairsync.coordination.protocol import CoordinatorProtocol


class HostedFrontEnd(NoCopies):
    """A front end whose memory does not grow with the items: an engine holds them.

    It keeps floors of the labels of one attribute. Promises about other selections need a `FrontEnd` with a catalog, as
    do conditions (`where`). Items that others add, change or remove in the engine are seen by the next request.
    Labels that appear are noticed by `HostedItems.refresh`, and must be made known to the coordinator.

    Parameters
    ----------
    items
        The items of the engine.
    coordinator
        The coordinator, made with the groups of the items: ``Coordinator(items.groups, ...)``.

    Examples
    --------
    >>> import tempfile
    >>> from fairsync.catalog import Catalog
    >>> from fairsync.coordination.coordinator import Coordinator
    >>> from fairsync.search.engines import make_engine, make_engine_index
    >>> catalog = Catalog(np.eye(6, dtype=np.float32), {"kind": ["a", "a", "a", "a", "b", "b"]}, list("uvwxyz"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     engine = make_engine_index("qdrant", catalog, url=folder, upload=True).engine
    ...     items = HostedItems(engine, "kind", dim=6)
    ...     coordinator = Coordinator(items.groups, k=2, floors={"b": 3}, horizon=4)
    ...     found = HostedFrontEnd(items, coordinator).retrieve(np.eye(6)[:4] + 0.5)
    >>> coordinator.totals().exposures.tolist()
    [5, 3]
    """

    use_instead = "it holds leases; make one in each process with HostedFrontEnd(items, coordinator)"

    def __init__(self, items: HostedItems, coordinator: CoordinatorProtocol) -> None:
        self.items, self.coordinator = items, coordinator
        if coordinator.promises is not None:
            raise InvalidInputError("a front end without a catalog keeps floors of groups: give others a catalog.")
        if list(coordinator.labels) != items.groups.labels[: len(coordinator.labels)]:
            raise InvalidInputError(
                "the coordinator has other groups than the engine: make it with Coordinator(items.groups, ...)."
            )

    def retrieve(
        self,
        users: ArrayLike,
        request_ids: Sequence[str | None] | None = None,
        *,
        exclude: Sequence[Sequence[Label]] | None = None,
    ) -> Candidates:
        """Return the candidates of requests in order of arrival; see :meth:`fairsync.FrontEnd.retrieve`.

        Parameters
        ----------
        users
            (n, d) one vector per request, or (n, interests, d) several.
        request_ids
            (n,) idempotency key of each request, or None.
        exclude
            For each request, ids that it must not get, at most the coordinator's ``max_exclude``.
        """
        vectors = self._checked(users)
        ids, excluded = check_request_ids(request_ids, len(vectors)), self._excluded(exclude, len(vectors))
        if len({name for name in ids if name is not None}) < sum(name is not None for name in ids):
            raise InvalidInputError("a request id is there twice: repeat a request in another call.")
        found = self._saved([name for name in ids if name is not None])
        waiting = [at for at, name in enumerate(ids) if name not in found]
        parts: dict[int, Candidates] = {at: found[name] for at, name in enumerate(ids) if name in found}
        while waiting:
            lease = self.coordinator.lease(len(waiting))
            here, rest = waiting[: lease.batch.requests], waiting[lease.batch.requests :]
            try:
                _check_excluded(excluded, lease.batch.terms.max_exclude)
                answers = self._serve(lease, vectors[here], [ids[at] for at in here], [excluded[at] for at in here])
            except LostLeaseError:
                continue
            except BaseException:
                self.coordinator.release(lease.number)
                raise
            parts |= dict(zip(here, answers, strict=True))
            waiting = rest
        if not parts:
            nothing = np.empty((0, self.coordinator.k))
            return Candidates(nothing.astype(str), nothing.astype(str), nothing, np.empty(0))
        return Candidates.join([parts[at] for at in range(len(ids))])

    def _serve(
        self, lease: Lease, users: NDArray[np.float64], ids: Sequence[str | None], excluded: Sequence[Sequence[Label]]
    ) -> list[Candidates]:
        """Answer the requests of a lease and settle it."""
        found = FoundItems(self._groups(len(lease.batch.prices)))
        served = self._search(lease.batch, found, users, excluded)
        hits, entry = served.hits, served.entry
        lists = [
            Candidates.of(cast("Catalog", found), hits.rows[at : at + 1], hits.relevance[at : at + 1], np.ones(1))
            for at in range(len(users))
        ]
        answers = {name: one.dump(0) for name, one in zip(ids, lists, strict=True) if name is not None}
        while True:
            try:
                self.coordinator.settle(lease.number, entry, served.sample, answers, costs=served.costs)
            except RepeatedRequestError as error:  # another front end has answered and counted some of them meanwhile
                again = [at for at, name in enumerate(ids) if name in error.request_ids]
                rows = hits.rows[again]
                counts = np.bincount(found.group_of[rows[rows >= 0]], minlength=len(entry.counts))
                relevance = hits.relevance[again]
                entry = entry.without(counts, float(relevance[rows >= 0].sum()), len(again))
                known = self._saved(error.request_ids)
                answers = {name: one for name, one in answers.items() if name not in known}
                lists = [known.get(name or "", one) for name, one in zip(ids, lists, strict=True)]
            else:
                return lists

    def _search(
        self, batch: Batch, found: FoundItems, users: NDArray[np.float64], excluded: Sequence[Sequence[Label]]
    ) -> ServedBatch:
        """Search and guard; one request after the other if they exclude items, which the guard must not return."""
        catalog = cast("Catalog", found)  # it has the members that search and guard use
        if not any(excluded):
            return serve(batch, catalog, HostedIndex(self.items, found), users)
        parts: list[ServedBatch] = []
        for at, names in enumerate(excluded):
            index = HostedIndex(self.items, found, names)
            one = serve(replace(batch, requests=1), catalog, index, users[at : at + 1])
            missing = np.maximum(batch.missing - one.entry.counts, 0)
            batch = replace(batch, missing=missing, left=batch.left - 1)
            parts.append(one)
        return _joined(parts)

    def _groups(self, n: int) -> Groups:
        """Return the groups that a lease counts: the coordinator may know fewer labels than the engine, or more."""
        if n > len(self.items.groups.labels):
            self.items.refresh()
        labels, sizes = self.items.groups.labels[:n], self.items.groups.group_sizes[:n]
        if labels != list(self.coordinator.labels)[:n]:
            raise InvalidInputError("the coordinator has groups that the engine does not have: give it items.groups.")
        return Groups(labels, sizes)

    def _checked(self, users: ArrayLike) -> NDArray[np.float64]:
        vectors = np.asarray(users, dtype=np.float64)
        vectors = vectors[:, None] if vectors.ndim == 2 else vectors
        if vectors.ndim != 3 or vectors.shape[2] != self.items.dim:
            raise InvalidInputError(f"users must be (n, {self.items.dim}) or (n, interests, {self.items.dim}).")
        if not np.isfinite(vectors).all():
            raise InvalidInputError("users must be finite numbers.")
        return vectors

    def _excluded(self, exclude: Sequence[Sequence[Label]] | None, n: int) -> Sequence[Sequence[Label]]:
        if exclude is None:
            return [()] * n
        if len(exclude) != n:
            raise InvalidInputError(f"exclude has {len(exclude)} entries for {n} requests: give one list for each.")
        return exclude

    def _saved(self, request_ids: Sequence[str]) -> dict[str | None, Candidates]:
        """Return the saved answers to requests that were answered before."""
        saved = self.coordinator.answers(request_ids) if request_ids else {}
        expired = next((name for name, answer in saved.items() if not answer), None)
        if expired is not None:
            raise ExpiredRequestError(expired)
        return {name: Candidates.load(answer) for name, answer in saved.items()}


def _check_excluded(excluded: Sequence[Sequence[Label]], most: int) -> None:
    longest = max(map(len, excluded))
    if longest > most:
        raise InvalidInputError(
            f"a request excludes {longest} items, and the coordinator counts on {most} at most: make it with"
            f" max_exclude={longest}."
        )


def _joined(parts: Sequence[ServedBatch]) -> ServedBatch:
    """Return what was served one after the other as one batch."""
    first = parts[0]
    entries, costs = [one.entry for one in parts], first.costs
    for one in parts[1:]:
        costs = None if costs is None or one.costs is None else costs.plus(one.costs)
    samples = [one.sample for one in parts if one.sample is not None]
    entry = replace(
        first.entry,
        counts=np.sum([one.counts for one in entries], axis=0),
        requests=len(parts),
        relevance=sum(one.relevance for one in entries),
        cost=sum(one.cost for one in entries),
        forced=sum(one.forced for one in entries),
    )
    hits = replace(
        first.hits,
        rows=np.concatenate([one.hits.rows for one in parts]),
        relevance=np.concatenate([one.hits.relevance for one in parts]),
    )
    return replace(first, hits=hits, entry=entry, costs=costs, sample=Sample.join(samples) if samples else None)
