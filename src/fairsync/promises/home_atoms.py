"""Home atoms: where items of small atoms are planned, so that promises are certain although requests exclude items.

If requests exclude up to e items, an atom of n items can surely show min(k, n - e) of them, and one of e items or fewer
nothing. Promises that overlap make atoms small: a promise to 60 items may have no atom of more than e, although every
request can show 60 - e of its items. So small atoms of a promise may get a common *home*: the atom of items that belong
to this promise and, beside it, only to those promises with a cap or a limit per list that all the small atoms belong
to. There may be no such item. What is planned of the home may be shown with any item of any of the small atoms, and
these are planned nothing themselves. If they have n items together, every request can show min(k, n - e).

Every atom has one home, so that items which serve different homes are different ones. The proof holds with homes in the
place of atoms: an item that serves its home counts for every promise of the home. For floors it may count for more.
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fairsync.policies.base import NO_CAP, sum_at_home
from fairsync.promises.floors import capacities_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairsync.catalog.atoms import Atoms
    from fairsync.policies.base import Counts, Floats, Terms

_MANY = 2**62


def with_homes(atoms: Atoms, terms: Terms, *, may_add: bool = True) -> tuple[Atoms, Terms]:
    """Return atoms and terms in which small atoms have a home, where floors could not be certain without.

    These are the floors that cannot be reached with what each atom can surely show by itself. One after another, those
    with the fewest items to spare first, gets small atoms until a request can surely show what the floor needs on
    average: those that the others can best do without. Atoms that are left then go to the promise that can surely show
    least for what it needs.

    Parameters
    ----------
    atoms, terms
        The atoms, and the promises about them.
    may_add
        Whether a home that does not exist among the atoms is added. Otherwise its promise goes without.

    Examples
    --------
    Promise 0 has three items, in two atoms. A request may exclude both items of one of them, but always leaves one.

    >>> from fairsync.catalog.atoms import Atoms
    >>> from fairsync.policies.base import Terms
    >>> atoms = Atoms.of([np.array([0, 1, 2]), np.array([0, 1, 3, 4, 5, 6])], 7)
    >>> floors, nothing = np.array([4, 0]), np.array([0, 0, 2])
    >>> terms = Terms(floors, nothing, k=2, horizon=9, batch_size=1, max_exclude=2, membership=atoms.membership)
    >>> _, terms = with_homes(atoms, terms)
    >>> terms.home.tolist(), terms.capacities.tolist()
    ([1, 1, 2], [0, 1, 2])
    """
    members, excluded, horizon = atoms.membership, terms.max_exclude, terms.horizon
    if not excluded or not horizon:
        return atoms, terms
    reach = horizon * np.minimum(members.exposures(terms.capacities), terms.k)
    needy = np.flatnonzero(terms.floors > reach).tolist()
    if not needy:
        return atoms, terms
    # Numbers that depend on the promises of atoms only: the same homes are chosen whatever the order of the items.
    order = members.atom_prices(np.random.default_rng(0).integers(2**40, size=members.n_promises).astype(np.float64))
    supplies = [one for one in (_supply(atoms, terms, promise, order) for promise in needy) if one is not None]
    codes = atoms.extended([supply.home for supply in supplies])[1]
    n = members.n_atoms
    if not may_add:
        supplies = [supply for supply, code in zip(supplies, codes, strict=True) if code < n]
        codes = [code for code in codes if code < n]
    if not supplies:
        return atoms, terms
    own = {supply.promise: code for supply, code in zip(supplies, codes, strict=True) if code < n}
    taken = np.zeros(n, dtype=bool)
    taken[list(own.values())] = True  # a home is its own home
    served = _choose(supplies, own, atoms.sizes, taken, terms)
    if not served:
        return atoms, terms
    atoms, homes = atoms.extended([supply.home for supply in served])
    home = np.arange(atoms.membership.n_atoms)
    for supply, at in zip(served, homes, strict=True):
        home[supply.small] = at
    _share_out(served, homes, home, atoms.sizes, taken, terms)
    return atoms, _at(home, atoms, terms)


def homes_by_promises(terms: Terms) -> tuple[tuple[list[int], list[int]], ...]:
    """Return the promises of each atom that has another home, and those of its home.

    Examples
    --------
    >>> from fairsync.catalog.atoms import Membership
    >>> from fairsync.policies.base import Terms
    >>> members, home = Membership.of([(0, 1), (0, 2), (0,)], 3), np.array([2, 2, 2])
    >>> zero = np.zeros(3, dtype=np.int64)
    >>> homes_by_promises(Terms(zero, zero, k=2, horizon=9, batch_size=1, membership=members, home=home))
    (([0, 1], [0]), ([0, 2], [0]))
    """
    members, home = terms.membership, terms.home
    if members is None or home is None:
        return ()
    small = np.flatnonzero(home != np.arange(len(home))).tolist()
    return tuple((members.of_atom(atom).tolist(), members.of_atom(int(home[atom])).tolist()) for atom in small)


def under_homes(atoms: Atoms, terms: Terms, homes: Sequence[tuple[list[int], list[int]]]) -> Terms:
    """Return terms in which atoms have these homes, as far as there are such atoms here; see `homes_by_promises`."""
    if not homes:
        return terms
    n = atoms.membership.n_atoms
    codes = np.array(atoms.extended([one for pair in homes for one in pair])[1]).reshape(-1, 2)
    codes = codes[(codes < n).all(axis=1)]
    home = np.arange(n)
    home[codes[:, 0]] = codes[:, 1]
    return _at(home, atoms, terms)


def _at(home: Counts, atoms: Atoms, terms: Terms) -> Terms:
    capacities = capacities_of(sum_at_home(atoms.sizes, home), terms.k, terms.max_exclude)
    return replace(terms, membership=atoms.membership, capacities=capacities, home=home)


class _Supply(NamedTuple):
    """The small atoms of a promise that may have a common home, and the promises of that home."""

    promise: int
    small: NDArray[np.int64]
    home: tuple[int, ...]
    others: NDArray[np.int64] = np.empty(0, dtype=np.int64)


def _supply(atoms: Atoms, terms: Terms, promise: int, order: Floats) -> _Supply | None:
    """Return the most items of a promise in small atoms that belong to the same promises with caps and limits.

    The atoms are sorted by the numbers of ``order``. None is returned if requests may exclude all items in small atoms.
    """
    members = atoms.membership
    small = members.atoms_of(promise)
    small = small[(terms.capacities[small] == 0) & (atoms.sizes[small] > 0)]
    if int(atoms.sizes[small].sum()) <= terms.max_exclude:
        return None
    small = small[np.argsort(order[small])]
    limits = np.zeros(members.n_promises, dtype=bool)
    if terms.caps is not None:
        limits |= terms.caps < NO_CAP
    if terms.list_limits is not None:
        limits |= terms.list_limits < terms.k
    limits[promise] = True
    by_limits: dict[tuple[int, ...], list[int]] = {}
    for atom in small.tolist():
        mine = members.of_atom(atom)
        by_limits.setdefault(tuple(mine[limits[mine]].tolist()), []).append(atom)
    home = max(by_limits, key=lambda one: int(atoms.sizes[by_limits[one]].sum()))
    return _Supply(promise, np.array(by_limits[home], dtype=np.int64), home)


def _choose(
    supplies: list[_Supply], own: dict[int, int], sizes: Counts, taken: NDArray[np.bool_], terms: Terms
) -> list[_Supply]:
    """Return the promises that get a home, each with the atoms that it cannot do without, and those it could have too.

    The atoms chosen are marked as taken.
    """
    small = [supply.small[~taken[supply.small]] for supply in supplies]
    needed = terms.max_exclude - (-terms.floors // terms.horizon)
    lacking = [
        int(needed[supply.promise]) - (int(sizes[own[supply.promise]]) if supply.promise in own else 0)
        for supply in supplies
    ]
    spare = [int(sizes[atoms].sum()) - lack for atoms, lack in zip(small, lacking, strict=True)]
    claims: dict[int, set[int]] = {}
    for place, atoms in enumerate(small):
        for atom in atoms.tolist():
            claims.setdefault(atom, set()).add(place)
    heap, served = [(one, place) for place, one in enumerate(spare)], []
    heapq.heapify(heap)
    while heap:
        known, place = heapq.heappop(heap)
        if known != spare[place] or known < 0:  # it has less by now, and will come again; or it cannot be served
            continue
        free = small[place][~taken[small[place]]]
        for atom in free.tolist():
            claims[atom].discard(place)
        left = np.array([min((spare[other] for other in claims[atom]), default=_MANY) for atom in free.tolist()])
        free = free[np.lexsort((-sizes[free], -left))]
        count = int(np.searchsorted(np.cumsum(sizes[free]), lacking[place])) + 1
        for atom in free[:count].tolist():
            taken[atom] = True
            for other in claims[atom]:
                spare[other] -= int(sizes[atom])
                heapq.heappush(heap, (spare[other], other))
        served.append(supplies[place]._replace(small=free[:count], others=free[count:]))
    return served


def _share_out(
    served: list[_Supply], homes: list[int], home: Counts, sizes: Counts, taken: NDArray[np.bool_], terms: Terms
) -> None:
    """Give the small atoms that are left to the promise that can surely show least for what it needs."""
    held = sum_at_home(sizes, home)[homes]
    choices: dict[int, list[int]] = {}
    for place, supply in enumerate(served):
        for atom in supply.others[~taken[supply.others]].tolist():
            choices.setdefault(atom, []).append(place)
    for atom, places in choices.items():
        poorest = min(places, key=lambda at: (held[at] - terms.max_exclude) / int(terms.floors[served[at].promise]))
        home[atom] = homes[poorest]
        held[poorest] += sizes[atom]
