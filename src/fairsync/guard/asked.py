"""What requests that are limited by exclusions or conditions are asked to show."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.eligibility.eligible_slots import CountedSlots
from fairsync.eligibility.own_sizes import OwnSizes
from fairsync.policies.base import NO_CAP, Counts, Terms
from fairsync.search.eligibility import Eligibility


@dataclass(frozen=True)
class AskedSlots:
    """What a forecast asks of one request, as far as its eligible items can give it.

    Attributes
    ----------
    groups : numpy.ndarray
        (G,) exposures of each group.
    total : int
        Exposures that count towards some floor.
    """

    groups: Counts
    total: int

    @classmethod
    def of(cls, due: Counts, own: Counts, counted: CountedSlots, k: int) -> "AskedSlots":
        """Return what is asked of a request that can show ``own`` items of each group.

        Examples
        --------
        >>> asked = AskedSlots.of(np.array([5, 9]), np.array([2, 2]), CountedSlots(np.array([4, 9]), 11), k=3)
        >>> asked.groups.tolist(), asked.total
        ([1, 0], 3)
        """
        possible = min(int(np.minimum(due, own).sum()), k)
        total = max(min(int(due.sum()) - counted.total, possible), 0)
        groups: Counts = np.minimum(np.maximum(due - counted.groups, 0), own)
        if int(groups.sum()) > k:  # more than a list holds: first what is scarcest against what it still misses
            order = np.argsort(-due / (counted.groups + np.maximum(own, 1)), kind="stable")
            upto = np.minimum(np.cumsum(groups[order]), k)
            groups[order] = np.diff(upto, prepend=0)
        return cls(groups, total)

    def has(self, counts: Counts, due: Counts) -> bool:
        """Return whether a list with these counts gives what is asked."""
        return bool((counts >= self.groups).all()) and int(np.minimum(counts, due).sum()) >= self.total


def exceeds_declared(eligible: Eligibility, terms: Terms) -> npt.NDArray[np.bool_]:
    """Return which requests exclude more than was declared, or have a condition.

    Examples
    --------
    >>> terms = Terms(np.array([4]), np.array([1]), k=1, horizon=9, batch_size=1, max_exclude=1)
    >>> exceeds_declared(Eligibility.of(3, [None, None], [[0], [0, 2]]), terms).tolist()
    [False, True]
    """
    exceeds: npt.NDArray[np.bool_] = (eligible.selection_of >= 0) | (eligible.lengths > terms.max_exclude)
    return exceeds


def is_limited(
    eligible: Eligibility, terms: Terms, catalog: Catalog, reached: Counts | None = None
) -> npt.NDArray[np.bool_]:
    """Return which requests the promises cannot count on: they cannot show what any request was assumed to show.

    That is the capacity of every atom with a floor, and k items outside all caps. A request that excludes no more than
    was declared can show it. One that excludes more, or has a condition, may still do so.

    Parameters
    ----------
    eligible
        What each request may get.
    terms
        The promise.
    catalog
        The items, whose groups are the atoms of the promise.
    reached
        (A,) the items of each atom that were within reach, if not all were. Then more excluded items than declared, and
        any condition, limit a request: they may leave what is out of reach.

    Examples
    --------
    Each group can show one item. The second request excludes more than was declared, but has two items of group 0 left;
    the third has none of group 1.

    >>> catalog = Catalog(np.eye(5), [0, 0, 0, 0, 1])
    >>> terms = Terms(np.array([4, 1]), np.array([1, 1]), k=1, horizon=9, batch_size=1)
    >>> is_limited(Eligibility.of(5, [None, None, None], [[], [0, 2], [4]]), terms, catalog).tolist()
    [False, False, True]
    """
    limited = exceeds_declared(eligible, terms)
    if reached is not None or terms.list_limits is not None or not limited.any():
        return limited
    n_groups = len(catalog.group_sizes)
    least = np.where(terms.has_floor, terms.capacities, 0)[:n_groups]
    if terms.caps is None and not least.any():  # nothing is counted on
        return np.zeros_like(limited)
    suspects = np.flatnonzero(limited)
    own = OwnSizes.of(eligible.take(suspects), catalog, terms.home)
    limited[suspects] = own.lacks(least)
    if terms.caps is not None and terms.membership is not None:
        free = ~terms.membership.in_any(terms.caps < NO_CAP)
        sizes = np.where(free[:n_groups], terms.at_home(catalog.group_sizes), 0)
        if sizes.sum() >= terms.k:  # else every slot is planned, and lists need no others
            limited[suspects] |= own.shown(sizes) < terms.k
    return limited
