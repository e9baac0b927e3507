"""Home atoms: where items of small atoms are planned, so that promises are certain although requests exclude items.

If requests exclude up to e items, an atom of n items can surely show min(k, n - e) of them, and one of e items or fewer
nothing. Promises that overlap make atoms small: a promise to 60 items may have no atom of more than e, although every
request can show 60 - e of its items. So small atoms of a promise may get a common *home*: the atom of items that belong
to this promise, to promises to all items, and to those with a cap or a limit per list that small atoms at this home
belong to. There may be no such item. What is planned of the home may be shown with any item of any of the small atoms,
and these are planned nothing themselves. If they have n items together, every request can show min(k, n - e).

Every atom has one home, so that items which serve different homes are different ones. The proof holds with homes in the
place of atoms: an item that serves its home counts for every floor of the home, and for no cap that the home does not
count for. For floors it may count for more, and for caps for less.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fairsync.catalog.atoms import Membership, keeps_codes
from fairsync.policies.base import NO_CAP, sum_at_home
from fairsync.promises.floors import capacities_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairsync.catalog.atoms import Atoms
    from fairsync.policies.base import Counts, Floats, Terms

# Atoms that no floor needs are given away in this many rounds.
_ROUNDS = 16


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
    floors, horizon, sizes = terms.floors, terms.horizon, atoms.sizes
    if not terms.max_exclude or not horizon:
        return atoms, terms
    needy = floors > horizon * np.minimum(atoms.membership.exposures(terms.capacities), terms.k)
    if not needy.any():
        return atoms, terms
    # Numbers that depend on the promises of atoms only: the same homes are chosen whatever the order of the items.
    order = _numbers(atoms.membership, np.ones(len(floors), dtype=bool))
    supplies = _supplies(atoms, terms, needy, order)
    found, codes = atoms.extended([supply.home for supply in supplies])
    if not may_add:
        supplies = [supply for supply, code in zip(supplies, codes, strict=True) if code < len(sizes)]
        found, codes = atoms, [code for code in codes if code < len(sizes)]
    if not supplies:
        return atoms, terms
    home = _choose(supplies, np.array(codes), found.sizes, order, terms)
    return (atoms, terms) if home is None else (found, _at(home, found, terms))


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


def with_homes_before(atoms: Atoms, terms: Terms, before: Terms | None) -> Terms | None:
    """Return terms in which atoms keep the homes that they had before a change; None if there were none.

    An atom stays at home as long as what is planned of the home keeps the promises when items of the atom are shown.

    Parameters
    ----------
    atoms, terms
        As in `with_homes`.
    before
        The terms before the change.
    """
    if before is None or before.home is None or not keeps_codes(before.membership, atoms.membership):
        return None
    home = np.concatenate([before.home, np.arange(len(before.home), atoms.membership.n_atoms)])
    _leave(home, atoms.membership, terms)
    return _at(home, atoms, terms)


def _leave(home: Counts, members: Membership, terms: Terms) -> None:
    """Give each atom itself as its home, if the home lacks a cap or limit of it, or has a floor or limit it lacks."""
    limits, capped = _limits(terms)
    small = np.flatnonzero(home != np.arange(len(home)))
    at, own = members.expand(small)
    home_at, common = members.expand(home[small])
    pairs, home_pairs = at * members.n_promises + own, home_at * members.n_promises + common
    lacks = (limits | capped)[own] & ~np.isin(pairs, home_pairs)
    more = (limits | (terms.floors > 0))[common] & ~np.isin(home_pairs, pairs)
    leaving = small[np.concatenate([at[lacks], home_at[more]])]
    home[leaving] = leaving


def _at(home: Counts, atoms: Atoms, terms: Terms) -> Terms:
    capacities = capacities_of(sum_at_home(atoms.sizes, home), terms.k, terms.max_exclude)
    return replace(terms, membership=atoms.membership, capacities=capacities, home=home)


class _Supply(NamedTuple):
    """The small atoms of a promise that may have a common home, and the promises of that home."""

    promise: int
    small: NDArray[np.int64]
    home: list[int]


def _supplies(atoms: Atoms, terms: Terms, needy: NDArray[np.bool_], order: Floats) -> list[_Supply]:
    """Return for each of some promises the small atoms that may have a common home with it.

    They belong to the same promises with caps and limits: of several such sets, the one with the most items. If these
    are too few for the floor, they may belong to different promises with a cap alone: the home then belongs to all of
    these. Atoms are in the order of some numbers. A promise of which requests may exclude all these items is left out.
    """
    members, sizes = atoms.membership, atoms.sizes
    limits, capped = _limits(terms)
    small = np.flatnonzero((terms.capacities == 0) & (sizes > 0) & members.in_any(needy))
    found = _largest_parts(atoms, small, needy, _numbers(members, limits | capped), order)
    least = terms.max_exclude - (-terms.floors // terms.horizon)
    poor = needy.copy()
    poor[[promise for promise, part in found.items() if sizes[part].sum() >= least[promise]]] = False
    if capped.any() and poor.any():
        found |= _largest_parts(atoms, small, poor, _numbers(members, limits | (capped & (terms.floors > 0))), order)
    there = sizes > 0
    of_all = members.sums(there.astype(np.float64)) == np.count_nonzero(there)
    supplies = []
    for promise, part in sorted(found.items()):
        if sizes[part].sum() > terms.max_exclude:
            home = of_all.copy()
            home[promise] = True
            mine = members.expand(part)[1]
            home[mine[(limits | capped)[mine]]] = True
            supplies.append(_Supply(promise, part, np.flatnonzero(home).tolist()))
    return supplies


def _largest_parts(
    atoms: Atoms, small: Counts, promises: NDArray[np.bool_], keys: Floats, order: Floats
) -> dict[int, Counts]:
    """Return for each of some promises, of its small atoms with the same key, those that have the most items."""
    members, sizes = atoms.membership, atoms.sizes
    small = small[np.lexsort((order[small], keys[small]))]
    at, owners = members.expand(small)
    at, owners = at[promises[owners]], owners[promises[owners]]
    by_promise = np.argsort(owners, kind="stable")
    flat, owners = small[at[by_promise]], owners[by_promise]
    starts = np.flatnonzero((np.diff(owners, prepend=-1) > 0) | (np.diff(keys[flat], prepend=0.0) != 0))
    if not len(starts):
        return {}
    totals, first = np.add.reduceat(sizes[flat], starts), owners[starts]
    best = np.lexsort((totals, first))
    best = best[np.flatnonzero(np.diff(first, append=-1))]
    ends = np.append(starts, len(flat))[best + 1]
    return {int(first[one]): flat[starts[one] : end] for one, end in zip(best.tolist(), ends.tolist(), strict=True)}


def _limits(terms: Terms) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return (P,) which promises have a limit per list, and which have a cap."""
    nothing = np.zeros(len(terms.floors), dtype=bool)
    limits = nothing if terms.list_limits is None else terms.list_limits < terms.k
    return limits, nothing if terms.caps is None else terms.caps < NO_CAP


def _numbers(members: Membership, promises: NDArray[np.bool_]) -> Floats:
    """Return (A,) a whole number for each atom that tells which of some promises it belongs to."""
    numbers = np.random.default_rng(0).integers(2**40, size=members.n_promises)
    return members.atom_prices(np.where(promises, numbers, 0).astype(np.float64))


def _choose(supplies: list[_Supply], codes: Counts, sizes: Counts, order: Floats, terms: Terms) -> Counts | None:
    """Return (A,) the home of each atom, given those that promises may have; None if none of them gets enough items."""
    promises = np.array([supply.promise for supply in supplies])
    home, free = np.arange(len(sizes)), np.ones(len(sizes), dtype=bool)
    free[codes] = False  # a home is its own home
    small = [supply.small[free[supply.small]] for supply in supplies]
    claims = _by_atom(small, len(sizes))
    lacking = terms.max_exclude - (-terms.floors[promises] // terms.horizon) - sizes[codes]
    spare = np.array([sizes[mine].sum() for mine in small]) - lacking.astype(np.float64)
    served = np.zeros(len(supplies), dtype=bool)
    while np.isfinite(known := spare[place := int(spare.argmin())]):
        spare[place] = np.inf
        if known < 0:
            continue
        served[place] = True
        mine = small[place][free[small[place]]]
        at, others = claims.expand(mine)
        least = np.minimum.reduceat(spare[others], np.flatnonzero(np.diff(at, prepend=-1)))
        best = np.lexsort((-sizes[mine], -least))
        best = best[: np.searchsorted(np.cumsum(sizes[mine[best]]), lacking[place]) + 1]
        home[mine[best]], free[mine[best]] = codes[place], False
        gone = ~free[mine][at]
        np.subtract.at(spare, others[gone], sizes[mine[at[gone]]])
    if not served.any():
        return None
    rest = np.flatnonzero(free & claims.in_any(served))
    rest = rest[np.argsort(order[rest])]
    held = sum_at_home(sizes, home)[codes]
    for some in (rest[start::_ROUNDS] for start in range(_ROUNDS)):
        at, places = claims.expand(some)
        has = np.where(served, (held - terms.max_exclude) / terms.floors[promises], np.inf)
        poorest = places[np.lexsort((has[places], at))[np.flatnonzero(np.diff(at, prepend=-1))]]
        home[some] = codes[poorest]
        held += np.bincount(poorest, sizes[some], len(held)).astype(np.int64)
    return home


def _by_atom(lists: list[NDArray[np.int64]], n_atoms: int) -> Membership:
    """Return which of some lists each atom is in."""
    flat = np.concatenate(lists)
    places = np.repeat(np.arange(len(lists)), [len(one) for one in lists])
    ends = np.cumsum(np.bincount(flat, minlength=n_atoms))
    return Membership(len(lists), places[np.argsort(flat, kind="stable")], np.concatenate([[0], ends]))
