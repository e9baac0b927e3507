"""A bound on the relevance of all plans that meet floors: descent on the dual, and searches where it leads.

This is the loop of :mod:`fairsync.hindsight`. By itself it is for estimates, which need neither the last digit nor a
plan: what promises have cost, and what they would cost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.hindsight.bound_rows import BoundRows
from fairsync.hindsight.dual import descend
from fairsync.hindsight.priced_lists import ListSizes, PricedLists

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.hindsight.limited_lists import ListLimits
    from fairsync.hindsight.priced_lists import Floats, Search
    from fairsync.search.eligibility import Eligibility

ROUNDS = 5
"""Rounds of descent and search that an estimate needs at most."""
# The gain of a round, as a share of the cost, that is worth another one.
_TOLERANCE = 0.005


def lower_dual(
    lists: PricedLists, subsidies: Floats, rounds: int, tolerance: float = 0.0, unconstrained: float = 0.0
) -> Floats:
    """Alternate between descent on the lists and search where it leads, while the dual's value falls.

    Parameters
    ----------
    lists
        As fetched under `subsidies`, or refreshed for them.
    subsidies
        (J,) where to start.
    rounds
        Searches at most, not counting those of the requests that have to be fetched a second time.
    tolerance
        Stop when a round gains less than this share of the cost.
    unconstrained
        The relevance without floors, from which the cost is measured; only a tolerance needs it.

    Returns
    -------
    numpy.ndarray
        (J,) the best subsidies found, for which the lists are right.
    """
    value, bold = lists.value(subsidies), 1.0
    for _ in range(rounds):
        spread = lists.pool.spread(subsidies)
        moved = descend(lists.pool, subsidies, reach=bold * spread, near=4.0 * subsidies.size)
        far = float(np.abs(moved - subsidies).max())
        if moved.max(initial=0.0) > lists.farthest:
            break
        renewed = lists.refresh(moved)
        reached = lists.pool.best(moved).value
        enough = abs(value - reached) < tolerance * (unconstrained - min(value, reached))
        if reached >= value:  # the lists knew too little of where it went
            lists.refresh(subsidies)
            if enough or far < spread / 20:
                break
            bold = far / spread / 4
            continue
        value, subsidies = reached, moved
        # Floors close to the largest possible ones need subsidies far away: take longer steps towards them.
        stopped = far > 0.999 * bold * spread
        if enough or (not stopped and (far < spread / 5 or renewed < len(lists.users) / 100)):
            break
        bold = 2 * bold if stopped else max(bold, 1.0)
    return subsidies


@dataclass(frozen=True)
class DualBound:
    """A relevance that no plan which meets the floors can exceed.

    Attributes
    ----------
    relevance : float
        The bound: ``lists.sum() + floors @ prices``.
    lists : numpy.ndarray
        (T,) of the best list of each request, the sum of relevance minus price.
    prices : numpy.ndarray
        (G,) the prices that prove it; 0 for groups without a floor.
    """

    relevance: float
    lists: Floats
    prices: Floats


def dual_bound(
    catalog: Catalog,
    search: Search,
    users: NDArray[np.floating[Any]],
    k: int,
    floors: Floats,
    prices: Floats,
    unconstrained: float,
    rounds: int = ROUNDS,
    eligible: Eligibility | None = None,
) -> DualBound:
    """Bound the relevance of all plans that meet floors, by a few rounds of the search for the best plan.

    Under any subsidies, the best lists less the subsidies that the floors earn are worth at least as much as any plan
    that meets the floors. So every round yields a bound, and the lowest counts. More rounds bring it closer to
    :attr:`Hindsight.relevance`.

    Parameters
    ----------
    catalog, search, users, k
        The items, a search for the best of them, and all requests, (T, interests, d).
    floors
        (G,) least exposures of each group; they need not be whole numbers.
    prices
        (G,) where to start, for example the prices in force.
    unconstrained
        The relevance without floors.
    rounds
        Rounds of descent and search at most. Without any, the bound is that of the starting prices.
    eligible
        The items that each request may get, given to ``search`` as its fourth argument; None for all items.

    Examples
    --------
    Both requests prefer "big"; showing "small" once costs the second one 0.2.

    >>> from fairsync.catalog import Catalog
    >>> from fairsync.search import ExactIndex
    >>> catalog = Catalog([[0.9, 0.8], [0.1, 0.6]], groups=["big", "small"])
    >>> search, floors = ExactIndex(catalog).search, np.array([0.0, 1.0])
    >>> bound = dual_bound(catalog, search, np.eye(2)[:, None], 1, floors, np.zeros(2), unconstrained=1.7)
    >>> bool(1.5 <= bound.relevance < 1.55)
    True
    """
    rows, least = BoundRows.of_groups(floors)
    start = np.clip(-prices[rows.promise_of], 0.0, 1e30)
    bound = promised_bound(
        catalog.group_of, search, users, k, rows, least, start, unconstrained, eligible, rounds=rounds
    )
    return replace(bound, prices=rows.prices(-bound.prices, len(floors)))


def promised_bound(
    atom_of: NDArray[np.integer[Any]],
    search: Search,
    users: NDArray[np.floating[Any]],
    k: int,
    rows: BoundRows,
    least: Floats,
    subsidies: Floats,
    unconstrained: float,
    eligible: Eligibility | None = None,
    limits: ListLimits | None = None,
    rounds: int = ROUNDS,
) -> DualBound:
    """Bound the relevance of all plans that keep promises which may overlap; see :func:`dual_bound`.

    Leaving out rows leaves a bound, only a higher one.

    Parameters
    ----------
    atom_of
        (n,) the atom of each item.
    search, users, k, unconstrained, eligible, rounds
        As for :func:`dual_bound`; prices are those of atoms.
    rows, least
        The bounds of promises, and (J,) the least value of each.
    subsidies
        (J,) where to start.
    limits
        Limits per list.

    Returns
    -------
    DualBound
        With the subsidy of each row, (J,), as a negative price.

    Examples
    --------
    Both requests prefer item 0; showing item 1 once costs the second one 0.2.

    >>> from fairsync.catalog import Catalog
    >>> from fairsync.catalog.atoms import Membership
    >>> from fairsync.hindsight.bound_rows import BoundRows
    >>> from fairsync.search import ExactIndex
    >>> catalog = Catalog([[0.9, 0.8], [0.1, 0.6], [0.0, 0.0]], groups=["a", "b", "c"])
    >>> rows, least = BoundRows.of(Membership.of([(), (0, 1), (0,)], 2), np.array([1, 1]), None)
    >>> search, users = ExactIndex(catalog).search, np.eye(2)[:, None]
    >>> bound = promised_bound(catalog.group_of, search, users, 1, rows, least, np.zeros(2), unconstrained=1.7)
    >>> round(bound.relevance, 6)
    1.5
    """
    sizes = ListSizes()
    if sizes.width(k, len(atom_of)) == k or (not len(least) and limits is None):
        hits = search(users, None, k) if eligible is None else search(users, None, k, eligible)
        values = np.where(hits.rows >= 0, hits.relevance, 0.0).sum(axis=1)
        return DualBound(float(values.sum()), values, np.zeros(len(least)))
    lists = PricedLists(atom_of, search, users, k, rows, least, sizes, eligible=eligible, limits=limits)
    lists.fetch(subsidies)
    lists, subsidies = lists.in_unit(subsidies)
    exponent = lists.exponent
    if len(least):
        subsidies = lower_dual(lists, subsidies, rounds, _TOLERANCE, float(np.ldexp(unconstrained, -exponent)))
    else:  # only limits per list: the best lists that keep them are the best plan
        lists.refresh(subsidies)
    best = lists.pool.best(subsidies)
    values = np.where(best.inside, best.priced, 0.0).sum(axis=1)
    return DualBound(
        float(np.ldexp(best.value, exponent)),
        np.ldexp(values, exponent),
        np.ldexp(-subsidies, exponent),
    )
