"""Answering requests that share one price vector: search, the guard, and what is to be written down."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync import guard
from fairsync.errors import BackendUnavailableError, FairSyncError
from fairsync.ledger import Entry
from fairsync.policies import Sample
from fairsync.search import Hits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.coordination.books import Lease
    from fairsync.search import Index


@dataclass(frozen=True)
class Served:
    """The candidates of some requests, and what the books need to know of them.

    Attributes
    ----------
    hits : Hits
        (n, k) candidates.
    entry : Entry
        For the ledger.
    sample : Sample or None
        For the policy, if it watches.
    searched : float
        Share of the catalog that was searched.
    """

    hits: Hits
    entry: Entry
    sample: Sample | None
    searched: float = 1.0


def serve(catalog: Catalog, index: Index, lease: Lease, users: NDArray[np.floating[Any]]) -> Served:
    """Find the candidates of the requests of a lease.

    Parameters
    ----------
    catalog, index
        The items.
    lease
        What was promised, where it stands, and the prices.
    users
        (requests, interests, d) the requests of the lease.
    """
    terms, prices = lease.terms, lease.prices
    k, n_groups = lease.k, catalog.n_groups
    width = min(len(catalog), k + lease.lookahead)
    hits = index.search(users, prices, width)
    if hits.rows[:, k - 1].min() < 0:
        raise _too_few(hits, k, len(catalog))
    searched = 1.0
    if hits.reached is not None:
        terms = replace(terms, caps=np.minimum(terms.caps, hits.reached))
        searched = float(hits.reached.sum() / len(catalog))
    groups = catalog.group_of[hits.rows]
    found, forced = Hits(hits.rows[:, :k], hits.relevance[:, :k]), 0
    counts = np.bincount(groups[:, :k].ravel(), minlength=n_groups)
    if lease.keeps_floors and guard.needs_guard(terms, lease.missing, prices, counts, len(users), lease.left):
        found, forced = guard.keep_floors(
            lambda i, p, n: index.search(users[i : i + 1], p, n),
            catalog, terms, prices, hits, lease.missing, lease.left, k,
        )  # fmt: skip
        counts = np.bincount(catalog.group_of[found.rows].ravel(), minlength=n_groups)
    relevance = float(found.relevance.sum())
    # Rounding can take it below 0. What was not measured stays nan: np.maximum passes that on, max() does not.
    most = _most_relevance(k, len(catalog), prices, hits, groups)
    cost = float(np.maximum(most - relevance, 0.0))
    sample = make_sample(k, groups, hits, prices) if lease.watched and width > k else None
    return Served(found, Entry(counts, len(users), relevance, cost, forced), sample, searched)


def make_sample(k: int, groups: NDArray[np.int32], hits: Hits, prices: NDArray[np.float64] | None = None) -> Sample:
    """Return what a policy may see of lists, made under these prices."""
    beyond_last = hits.relevance - hits.relevance[:, k - 1, None]
    return Sample(groups.astype(np.intp), np.clip(beyond_last, -1e30, 1e30).astype(np.float32), prices)


def _too_few(hits: Hits, k: int, n_items: int) -> FairSyncError:
    if hits.reached is not None:
        return BackendUnavailableError(
            f"Only {int(hits.reached.sum()):,} of {n_items:,} items are within reach, too few for k = {k} candidates:"
            " ask again when more of the shards are up."
        )
    return FairSyncError(f"The policy masked so many groups that fewer than k = {k} items were left.")


def _most_relevance(k: int, n_items: int, prices: NDArray[np.float64], hits: Hits, groups: NDArray[np.int32]) -> float:
    """Return the relevance that these requests could have had without prices, at most; nan if that is not known.

    The best k may lie outside the list, but no item there has more relevance than the list's last score plus the
    highest price: with that as a stand-in the sum is never too low. Where prices suit the data it is hardly
    ever too high either.
    """
    width = hits.rows.shape[1]
    if not prices.any():
        return float(hits.relevance[:, :k].sum())
    if width == k < n_items or np.isinf(prices).any():  # of masked items the list says nothing
        return float("nan")
    best = np.partition(hits.relevance, width - k, axis=1)[:, width - k :]
    if width < n_items:
        last = hits.relevance[:, -1] - prices[groups[:, -1]]
        np.maximum(best, (last + float(prices.max()))[:, None], out=best)
    return float(best.sum())
