"""Limits per list: whether they form a tree, and whether every list can be filled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairsync.catalog.atoms import Membership
    from fairsync.policies.base import Counts


def tree_of(membership: Membership, limited: Counts, sizes: Counts, names: Sequence[str]) -> list[tuple[int, int]]:
    """Return the limited promises with their parents in a tree, smallest first, or refuse those that cross.

    A plan can be cut into lists that keep limits per list if of any two limited promises one contains the other or they
    share no item. Otherwise that may be impossible, although every sum fits.

    Parameters
    ----------
    membership
        The promises of each atom.
    limited
        The codes of the promises with a limit per list.
    sizes
        (A,) the number of items of each atom.
    names
        The names of all promises, for the message.

    Returns
    -------
    tree
        Pairs of a promise and the smallest limited promise that contains it, or -1.

    Examples
    --------
    >>> from fairsync.catalog.atoms import Membership
    >>> tree_of(Membership.of([(0,), (0, 1)], 2), np.array([0, 1]), np.array([5, 5]), ["toys", "dolls"])
    [(1, 0), (0, -1)]
    >>> tree_of(Membership.of([(0,), (0, 1), (1,)], 2), np.array([0, 1]), np.full(3, 5), ["toys", "acme"])
    Traceback (most recent call last):
    fairsync.errors.InvalidInputError: toys and acme both limit their items per list and share items: ...
    """
    held = membership.exposures(sizes)
    order = limited[np.lexsort((limited, -held[limited]))]  # largest first
    rank = np.full(membership.n_promises, -1)
    rank[order] = np.arange(len(order))
    at, promises = membership.expand(np.flatnonzero(sizes > 0))
    use = rank[promises] >= 0
    at, place = at[use], rank[promises[use]]
    by_atom = np.lexsort((place, at))
    at, place = at[by_atom], place[by_atom]
    parent = np.full(len(place), -1)
    parent[1:] = np.where(at[1:] == at[:-1], place[:-1], -1)
    # In a tree the next larger limited promise of an atom is the same for all atoms of a promise.
    parents = np.full(len(order), -2)
    parents[place] = parent
    wrong = np.flatnonzero(parents[place] != parent)
    if len(wrong):
        entry = wrong[0]
        other = max(int(parent[entry]), int(parents[place[entry]]))
        one, two = sorted((names[order[place[entry]]], names[order[other]]), reverse=True)
        raise InvalidInputError(
            f"{one} and {two} both limit their items per list and share items: at_most_per_list is possible for"
            " promises of which one contains the other, or that share no item, such as those of one attribute."
        )
    return [
        (int(order[child]), int(order[parents[child]]) if parents[child] >= 0 else -1)
        for child in reversed(range(len(order)))
    ]


def longest_list(membership: Membership, sizes: Counts, limits: Counts, tree: Sequence[tuple[int, int]]) -> int:
    """Return the most items of a list that keeps the limits per list.

    Parameters
    ----------
    membership, sizes
        The promises of each atom, and its number of items that may be used.
    limits
        (P,) the most items of each promise in one list.
    tree
        The limited promises, as :func:`tree_of` returns them.

    Examples
    --------
    >>> from fairsync.catalog.atoms import Membership
    >>> longest_list(Membership.of([(), (0,), (0, 1)], 2), np.array([1, 9, 9]), np.array([6, 2]), [(1, 0), (0, -1)])
    7
    """
    held = membership.exposures(sizes)
    lost = dict.fromkeys([-1, *(promise for promise, _ in tree)], 0)
    for promise, parent in tree:  # children come first
        inside = int(held[promise]) - lost[promise]
        lost[parent] += lost[promise] + max(inside - int(limits[promise]), 0)
    return int(sizes.sum()) - lost[-1]
