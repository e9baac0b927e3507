"""A plan that surely keeps all promises, made from their certificate. Only a last resort: it knows no relevance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairsync.policies.base import NO_CAP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.catalog.atoms import Membership
    from fairsync.hindsight.priced_lists import PricedLists
    from fairsync.policies.base import Terms


def deal(terms: Terms, by_atom: Catalog, lists: PricedLists) -> tuple[NDArray[np.int64], float]:
    """Deal the certificate's exposures to the requests in turn, and fill the lists with the best items that fit.

    No request is dealt more of an atom than it can show, more than k in all, or more of a promise than its limit per
    list, because the certificate holds that many for all requests together. The rest of a list can be filled, because k
    items outside all caps fit into it.

    Parameters
    ----------
    terms
        The promises, with a certificate for all requests.
    by_atom
        The items, with atoms as their groups.
    lists
        The requests, and a search for them.

    Returns
    -------
    rows
        (T, k) the plan, best first.
    relevance
        Its relevance, in the unit of the lists.
    """
    membership, requests = terms.membership, len(lists.users)
    assert membership is not None
    assert terms.certificate is not None
    order = _tree_order(terms, membership, by_atom.group_sizes)
    deck = np.repeat(order, terms.certificate[order])
    room = np.full(membership.n_promises, NO_CAP) if terms.caps is None else terms.caps.copy()
    room = np.where(room < NO_CAP, room - membership.exposures(terms.certificate), NO_CAP)
    plan, total = np.empty((requests, terms.k), dtype=np.int64), 0.0
    for request in range(requests):
        hits = lists.search(lists.users[request : request + 1], None, len(by_atom))
        atoms = by_atom.group_of[hits.rows[0]]
        chosen = _filled(atoms, np.bincount(deck[request::requests], minlength=membership.n_atoms), terms, room)
        plan[request] = hits.rows[0, chosen]
        total += float(hits.relevance[0, chosen].sum())
        lists.progress("dealing", request + 1, requests)
    return plan, total


def _tree_order(terms: Terms, membership: Membership, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the atoms in an order in which those of each promise with a limit per list stand side by side."""
    if terms.list_limits is None:
        return np.arange(membership.n_atoms)
    limited, held = terms.list_limits < terms.k, membership.exposures(sizes)
    chains = [
        sorted(
            (code for code in membership.of_atom(atom).tolist() if limited[code]), key=lambda code: (-held[code], code)
        )
        for atom in range(membership.n_atoms)
    ]
    return np.array(sorted(range(membership.n_atoms), key=lambda atom: chains[atom]), dtype=np.int64)


def _filled(
    atoms: NDArray[np.integer], due: NDArray[np.int64], terms: Terms, room: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the places of a list: the best items of each atom that is due, then the best that fit.

    Parameters
    ----------
    atoms
        (n,) the atoms of all items, best first.
    due
        (A,) the exposures of each atom that the list must have.
    terms
        The promises.
    room
        (P,) what caps have left beside the certificate; it is lowered by what is taken.
    """
    membership = terms.membership
    assert membership is not None
    starts = np.concatenate([[0], np.cumsum(np.bincount(atoms, minlength=len(due)))])
    by_atom = np.argsort(atoms, kind="stable")
    place = np.arange(len(atoms)) - starts[atoms[by_atom]]
    taken = np.zeros(len(atoms), dtype=np.bool_)
    taken[by_atom[place < due[atoms[by_atom]]]] = True
    in_list = (terms.list_limits if terms.list_limits is not None else np.full(len(room), terms.k)).copy()
    in_list -= membership.exposures(due)
    missing = terms.k - int(due.sum())
    while missing:
        full = ((room <= 0) | (in_list <= 0)).astype(np.float64)
        first = int(np.argmax(~taken & (membership.atom_prices(full) == 0)[atoms]))
        taken[first] = True
        for left in (room, in_list):
            left[membership.of_atom(int(atoms[first]))] -= 1
        missing -= 1
    return np.flatnonzero(taken)
