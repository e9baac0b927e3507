"""Lists that another search has made under the prices of a lease: their exposures, and what a policy learns from them.

No guard has seen such a list. So nothing is certain of it: the coordinator counts on nothing that an open lease might
deliver (:mod:`fairsync.coordination.lease_table`), and what the lists did not deliver is missing in the next lease.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync.candidates import Candidates
from fairsync.catalog.names import are_words, is_name
from fairsync.coordination.lease import Settlement
from fairsync.errors import InvalidInputError, LostLeaseError, RepeatedRequestError
from fairsync.ledger import Entry
from fairsync.loop.samples import make_sample
from fairsync.search import Hits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.catalog.groups import Label
    from fairsync.coordination.coordinator import Coordinator
    from fairsync.coordination.searched_items import SearchedItems
    from fairsync.policies import Sample


@dataclass(frozen=True)
class OutsideList:
    """The answer to one request, by a search that is not ours.

    Attributes
    ----------
    items : sequence
        Ids of the candidates that were returned.
    request_id : str or None
        Id of the request. One that was answered before is not counted again.
    fetched, scores : sequence or None
        Ids and scores without prices of the items that the search has ranked, returned or not: prices are learnt from
        them.
    """

    items: Sequence[Label]
    request_id: str | None = None
    fetched: Sequence[Label] | None = None
    scores: Sequence[float] | None = None


@dataclass(frozen=True)
class SettledLists:
    """What became of the lists of a lease.

    Attributes
    ----------
    requests : int
        Requests that were counted.
    exposures : int
        Items that were counted.
    repeated : int
        Requests that were not counted, because they had been counted before.
    unknown : tuple
        Ids that the catalog does not hold (any more), and that were not counted.
    expired : bool
        Whether the lease had expired, so that its requests were granted again and only the exposures were counted.
    learned : int
        Requests from which prices are learnt.
    """

    requests: int
    exposures: int
    repeated: int
    unknown: tuple[Label, ...]
    expired: bool
    learned: int


def settle_outside(
    coordinator: Coordinator,
    items: SearchedItems,
    number: int,
    lists: Sequence[OutsideList],
    prices: NDArray[np.float64] | None = None,
) -> SettledLists:
    """Settle a lease with the lists of another search. Idempotent: what is known is not counted again.

    Parameters
    ----------
    coordinator, items
        The coordinator that has granted the lease, and the items of a front end of it.
    number
        Number of the lease.
    lists
        One list per request.
    prices
        (P,) the prices of the lease; None if they are not known any more, and the present ones are to serve.
    """
    read = [_ReadList.of(one, items.catalog, coordinator.k) for one in lists]
    repeated: set[str] = set()
    times = Counter(one.request_id for one in lists if one.request_id is not None)
    twice = next((name for name, n in times.items() if n > 1), None)
    if twice is not None:
        raise InvalidInputError(f"the request {twice!r} is there twice: report it once.")
    while True:
        kept = [one for one in read if one.request_id not in repeated]
        entry, sample = _entry(kept, items, coordinator), _sample(kept, items, coordinator, prices)
        try:
            counted, expired = _record(coordinator, items, number, entry, sample, kept)
        except RepeatedRequestError as error:
            repeated.update(error.request_ids)
        else:
            break
    return SettledLists(
        requests=0 if counted is None else counted.requests,
        exposures=0 if counted is None else sum(len(one.rows) for one in kept),
        repeated=len(lists) if counted is None else len(lists) - len(kept),
        unknown=tuple(dict.fromkeys(name for one in read for name in one.unknown)),
        expired=expired,
        learned=0 if counted is None or sample is None else len(sample),
    )


@dataclass(frozen=True)
class _ReadList:
    """A list, with the rows of its items.

    Attributes
    ----------
    rows, unknown
        Rows of the items that were returned, and the ids that are not known.
    fetched, scores
        Rows and scores of the items that were ranked; empty if they were not reported.
    """

    request_id: str | None
    rows: NDArray[np.int64]
    unknown: tuple[Label, ...]
    fetched: NDArray[np.int64]
    scores: NDArray[np.float64]

    @classmethod
    def of(cls, given: OutsideList, catalog: Catalog, k: int) -> _ReadList:
        names = list(dict.fromkeys(given.items))
        if len(names) > k:
            raise InvalidInputError(
                f"a list has {len(names)} items, and k is {k}: promises count on k candidates a request."
            )
        if (given.fetched is None) != (given.scores is None) or len(given.fetched or ()) != len(given.scores or ()):
            raise InvalidInputError("'fetched' and 'scores' go together: one score for each item that was fetched.")
        rows = rows_of(names, catalog)
        unknown = tuple(name for name, row in zip(names, rows.tolist(), strict=True) if row < 0)
        scores = np.array(given.scores or (), dtype=np.float64)
        if not np.isfinite(scores).all():
            raise InvalidInputError("scores must be finite numbers.")
        fetched = rows_of(list(given.fetched or ()), catalog)
        there = np.flatnonzero(fetched >= 0)
        _, first = np.unique(fetched[there], return_index=True)
        there = there[np.sort(first)]
        return cls(given.request_id, rows[rows >= 0], unknown, fetched[there], scores[there])

    @property
    def relevance(self) -> NDArray[np.float64]:
        """The score of each item that was returned; 0 where it was not reported."""
        known = dict(zip(self.fetched.tolist(), self.scores.tolist(), strict=True))
        return np.array([known.get(row, 0.0) for row in self.rows.tolist()])

    def cost(self) -> float:
        """Return the relevance given up against the best items that were fetched; nan if these are not known."""
        if not len(self.fetched) or not np.isin(self.rows, self.fetched).all():
            return math.nan
        best = np.sort(self.scores)[::-1][: len(self.rows)]
        return max(float(best.sum() - self.relevance.sum()), 0.0)


def _record(
    coordinator: Coordinator,
    items: SearchedItems,
    number: int,
    entry: Entry,
    sample: Sample | None,
    lists: Sequence[_ReadList],
) -> tuple[Entry | None, bool]:
    """Settle the lease; return the entry as it counts, None if it was settled before, and whether it has expired."""
    answers, membership = _answers(lists, items, coordinator.k), coordinator.terms.membership
    shown = None if membership is None else items.shown_for(membership, _all_rows(lists))
    try:
        counted = coordinator.settle(
            number, Settlement(entry, sample, certified=shown, answers=answers, membership=membership)
        )
    except LostLeaseError:  # there are caps; but these lists were shown
        late = replace(entry, requests=0)
        return late if coordinator.record_late(number, late, answers) else None, True
    return counted, counted is not None and counted.requests < entry.requests


def _entry(lists: Sequence[_ReadList], items: SearchedItems, coordinator: Coordinator) -> Entry:
    counts = items.exposures(_all_rows(lists), len(coordinator.labels))
    relevance = float(sum(one.relevance.sum() for one in lists))
    return Entry(counts, len(lists), relevance, float(sum(one.cost() for one in lists)))


def _sample(
    lists: Sequence[_ReadList], items: SearchedItems, coordinator: Coordinator, prices: NDArray[np.float64] | None
) -> Sample | None:
    """Return the lists for the policy: what was fetched, best first under the prices, with empty places at the end."""
    k, membership = coordinator.k, coordinator.terms.membership
    long = [one for one in lists if len(one.fetched) > k]
    if not long or (membership is None) != (items.atoms is None):
        return None
    by_promise = coordinator.prices() if prices is None else prices
    by_atom, width = items.atom_prices(by_promise), max(len(one.fetched) for one in long)
    rows, relevance = np.full((len(long), width), -1, dtype=np.int64), np.full((len(long), width), -np.inf)
    for at, one in enumerate(long):
        order = np.argsort(by_atom[items.searched.group_of[one.fetched]] - one.scores, kind="stable")
        rows[at, : len(order)], relevance[at, : len(order)] = one.fetched[order], one.scores[order]
    groups = np.where(rows >= 0, items.searched.group_of[rows], 0)
    return items.sample_for(membership, make_sample(k, groups, Hits(rows, relevance), by_promise))


def _answers(lists: Sequence[_ReadList], items: SearchedItems, k: int) -> dict[str, bytes]:
    """Return the lists as saved answers, by request id: reports of impressions refer to them."""
    answers = {}
    for one in lists:
        if one.request_id is not None:
            rows, relevance = np.full((1, k), -1, dtype=np.int64), np.full((1, k), -np.inf)
            rows[0, : len(one.rows)], relevance[0, : len(one.rows)] = one.rows, one.relevance
            answers[one.request_id] = Candidates.of(items.catalog, rows, relevance, np.ones(1)).dump(0)
    return answers


def _all_rows(lists: Sequence[_ReadList]) -> NDArray[np.int64]:
    return np.concatenate([np.empty(0, dtype=np.int64), *(one.rows for one in lists)])


def rows_of(names: Sequence[Label], catalog: Catalog) -> NDArray[np.int64]:
    """Return the row of each item; -1 for ids that the catalog does not hold, also for those of another type.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> rows_of([8, "8", 9], Catalog(np.eye(2), ["a", "b"], ids=[7, 8])).tolist()
    [1, -1, -1]
    """
    kind = str if are_words(catalog.ids) else int
    rows = np.full(len(names), -1, dtype=np.int64)
    fitting = [at for at, name in enumerate(names) if isinstance(name, kind) and is_name(name)]
    if fitting:
        rows[fitting] = catalog.rows_of(np.array([names[at] for at in fitting]))
    return rows
