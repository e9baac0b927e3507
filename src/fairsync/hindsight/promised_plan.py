"""The best plan that keeps promises, all requests known."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.errors import InfeasibleFloorsError, InvalidInputError
from fairsync.hindsight.best_plan import Effort, Found, find_plan
from fairsync.hindsight.bound_rows import BoundRows
from fairsync.hindsight.dealt_plan import deal
from fairsync.hindsight.limited_lists import ListLimits
from fairsync.hindsight.priced_lists import PricedLists
from fairsync.hindsight.result import Hindsight
from fairsync.promises.list_limits import longest_list, tree_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.catalog.atoms import Membership
    from fairsync.catalog.groups import Label
    from fairsync.hindsight.priced_lists import Progress, Search
    from fairsync.policies.base import Terms
    from fairsync.search.eligibility import Eligibility

# Subsidies below this share of the largest are no part of a proof, and names of promises that an error shows.
_PROOF, _SHOWN = 1e-3, 5
# Rows of embeddings whose norms are computed at a time.
_ROWS = 65_536


def plan_promises(
    by_atom: Catalog,
    search: Search,
    users: NDArray[np.floating[Any]],
    terms: Terms,
    names: Sequence[Label],
    progress: Progress = lambda what, done, total: None,
    effort: Effort | None = None,
    eligible: Eligibility | None = None,
) -> Hindsight:
    """Find the plan of greatest relevance that keeps all promises.

    Parameters
    ----------
    by_atom, search
        The items with atoms as their groups, and a search under prices of atoms.
    users
        (T, interests, d): all requests.
    terms, names
        The promises, with membership and a certificate, over a horizon of T requests; and their names.
    progress
        Called as (what, done, total) while work goes on.
    effort
        How much work is put into it.
    eligible
        The items that each request may get, given to ``search`` as its fourth argument; None for all items.
    """
    membership, effort = terms.membership, effort or Effort()
    assert membership is not None
    if eligible is not None:
        _check_eligible(terms, membership, names, by_atom, eligible)
    bounds, least = BoundRows.of(membership, terms.floors, terms.caps, len(users) * terms.k)
    limits = ListLimits.of(membership, terms.list_limits, terms.k)
    lists = PricedLists(
        by_atom.group_of,
        search,
        users,
        terms.k,
        bounds,
        least,
        effort.sizes,
        progress,
        eligible=eligible,
        limits=limits,
    )
    found = find_plan(lists, effort, _worst(by_atom, users, terms.k) if eligible is not None else -np.inf)
    if found.rows is None and eligible is None:
        dealt, lower = deal(terms, by_atom, found.lists)
        found = replace(found, rows=dealt, lower=lower, upper=max(found.upper, lower))
    rows = found.rows
    if found.short:
        raise _conflict(terms, names, bounds, found)
    if rows is None:
        raise InvalidInputError(
            "no plan of eligible items was found that keeps all promises: each of them can be kept, but perhaps not all"
            " together. Lower them, or exclude less."
        )
    subsidies = bounds.netted(found.subsidies)
    found = replace(found, upper=max(found.lower, found.upper - float((found.subsidies - subsidies) @ -least)))
    shown = by_atom.group_of[rows[rows >= 0]]
    prices = np.ldexp(bounds.prices(subsidies, membership.n_promises), found.lists.exponent)
    exposures = membership.exposures(np.bincount(shown, minlength=membership.n_atoms).astype(np.int64))
    return Hindsight(
        *found.in_unit_of_catalog,
        prices={name: float(price) or 0.0 for name, price in zip(names, prices, strict=True)},
        floors=dict(zip(names, terms.floors.tolist(), strict=True)),
        exposures=dict(zip(names, exposures.tolist(), strict=True)),
        rows=rows,
    )


def _conflict(terms: Terms, names: Sequence[Label], bounds: BoundRows, found: Found) -> InfeasibleFloorsError:
    """Return the error for promises of which the dual proved that they cannot hold together."""
    # Subsidies that grow without end are the proof; others have stayed behind.
    used = found.subsidies > _PROOF * found.subsidies.max()
    promises = sorted(set(bounds.promise_of[used].tolist()))
    clashing = [str(names[code]) for code in promises]
    floor = int(terms.floors[promises].sum())
    shown = ", ".join(clashing[:_SHOWN]) + (f" and {len(clashing) - _SHOWN} more" if len(clashing) > _SHOWN else "")
    reason = f"no plan of eligible items keeps these promises: {shown}"
    return InfeasibleFloorsError(
        None, floor, reason, max(floor - found.short, 0), "Lower some of them, or exclude less.", clashing
    )


def _check_eligible(
    terms: Terms, membership: Membership, names: Sequence[Label], by_atom: Catalog, eligible: Eligibility
) -> None:
    """Raise :class:`InfeasibleFloorsError` for floors above what the eligible items of all requests can deliver."""
    most, limits, tree = np.zeros(membership.n_promises, dtype=np.int64), terms.list_limits, list[tuple[int, int]]()
    if limits is not None:
        limited = np.flatnonzero(limits < terms.k)
        tree = tree_of(membership, limited, by_atom.group_sizes, [str(name) for name in names])
    for request in range(len(eligible)):
        sizes = eligible.group_sizes(request, by_atom)
        is_limited = limits is not None and longest_list(membership, sizes, limits, tree) >= min(terms.k, sizes.sum())
        most += np.minimum(membership.exposures(sizes), limits if is_limited and limits is not None else terms.k)
    for code in np.flatnonzero(terms.floors > most)[:1].tolist():
        reason = f"requests can show eligible items of it {int(most[code])} times at most"
        raise InfeasibleFloorsError(names[code], int(terms.floors[code]), reason, int(most[code]))
    total, slots = int(terms.floors.sum()), int(np.minimum(eligible.counts, terms.k).sum())
    if total > slots and np.diff(membership.offsets).max(initial=0) <= 1:  # without overlap, each takes its own
        raise InfeasibleFloorsError(None, total, f"the requests have {slots} slots for eligible items", slots)


def _worst(catalog: Catalog, users: NDArray[np.floating[Any]], k: int) -> float:
    """Return a relevance that every plan exceeds: no score is below minus the product of the two norms."""
    longest = max(
        float(np.linalg.norm(catalog.embeddings[start : start + _ROWS].astype(np.float64), axis=1).max())
        for start in range(0, len(catalog), _ROWS)
    )
    return -2 * k * longest * float(np.linalg.norm(users.astype(np.float64), axis=-1).max(axis=-1).sum())
