"""Eligibility on any index: by its own search, or by asking it for more items and dropping those that do not count."""

import inspect
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fairsync.search.base import Hits, Index
from fairsync.search.eligibility import Eligibility

# The first number of items to ask for, in multiples of k. It is doubled until enough of them are eligible.
_FIRST = 2


def search_eligible(
    index: Index,
    users: npt.NDArray[np.floating],
    prices: npt.NDArray[np.float64] | None,
    k: int,
    eligible: Eligibility | None,
) -> Hits:
    """Find the best k eligible items of each user on any index; see `Index.search`.

    Parameters
    ----------
    index, users, prices, k
        The index, and what it is asked.
    eligible
        The items that each user may get; None for all items.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> from fairsync.search import ExactIndex
    >>> index = ExactIndex(Catalog(np.array([[3.0], [2.0], [1.0]]), ["a", "b", "b"]))
    >>> search_eligible(index, np.ones((1, 1, 1)), None, 2, Eligibility.of(3, [None], [[0]])).rows
    array([[1, 2]])
    """
    if eligible is None:
        return index.search(users, prices, k)
    if _takes_eligible(type(index)):
        hits: Hits = index.search(users, prices, k, eligible)  # type: ignore[call-arg]
        return hits
    return _search_deeper(index, users, prices, k, eligible)


@lru_cache(maxsize=64)
def _takes_eligible(kind: type[Any]) -> bool:
    return "eligible" in inspect.signature(kind.search).parameters


def _search_deeper(
    index: Index,
    users: npt.NDArray[np.floating],
    prices: npt.NDArray[np.float64] | None,
    k: int,
    eligible: Eligibility,
) -> Hits:
    """Ask for more and more items until k of them are eligible, or there are no more."""
    hits, reached = Hits.empty(len(users), k), None
    waiting, ask = np.arange(len(users)), min(_FIRST * k, eligible.n_items)
    while len(waiting):
        found = index.search(users[waiting], prices, ask)
        if found.reached is not None:  # the part out of reach may change from one search to the next
            reached = found.reached if reached is None else np.minimum(reached, found.reached)
        owners = np.broadcast_to(waiting[:, None], found.rows.shape)
        valid = found.rows >= 0
        valid[valid] = eligible.allows(owners[valid], found.rows[valid])
        done = (valid.sum(axis=1) >= k) | (found.rows[:, -1] < 0) | (ask == eligible.n_items)
        at = np.flatnonzero(done)
        first = np.argsort(~valid[at], axis=1, kind="stable")[:, :k]  # eligible items first, in their order
        here = np.take_along_axis(valid[at], first, axis=1)
        width = first.shape[1]
        hits.rows[waiting[at], :width] = np.where(here, np.take_along_axis(found.rows[at], first, axis=1), -1)
        relevance = np.take_along_axis(found.relevance[at], first, axis=1)
        hits.relevance[waiting[at], :width] = np.where(here, relevance, -np.inf)
        waiting, ask = waiting[~done], min(2 * ask, eligible.n_items)
    return hits if reached is None else replace(hits, reached=reached)
