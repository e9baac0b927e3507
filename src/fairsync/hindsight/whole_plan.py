"""A plan of whole items that keeps every bound, from one that nearly does.

Where promises overlap, the linear program of :func:`fairsync.hindsight.dual.polish` may put halves of items into a few
lists. Rounding them leaves some bounds short by a few exposures. Swaps within lists, the cheapest first, make up for
that. Only where they do not suffice is an integer program solved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.hindsight.bound_rows import BoundRows
    from fairsync.hindsight.pool import Floats, Pool

    Plan = NDArray[np.bool_]
    Rows = NDArray[np.int64]

# Requests whose swaps are looked at for one short bound at a time, and items that each of them may take in.
_REQUESTS, _ITEMS = 64, 12
# The nodes that an integer program may search, and its time limit in seconds. It ends earlier as a rule.
_NODES, _SECONDS = 20_000, 120.0


def shortfall(pool: Pool, plan: Plan) -> Floats:
    """Return (J,) what the plan lacks of each bound."""
    return np.maximum(pool.least - pool.exposures(plan), 0)


class _Effects:
    """What taking an item of an atom into a list, and another one out, does to the bounds."""

    def __init__(self, rows: BoundRows, missing: Floats) -> None:
        atoms, width = rows.n_atoms, max(rows.most_rows, 1)
        self.of_atom = np.full((atoms, width), len(missing), dtype=np.int64)  # the last row of all is never short
        self.signs = np.zeros((atoms, width))
        owner, row, sign = rows.expand(np.arange(atoms))
        place = np.arange(len(owner)) - rows.by_atom.indptr[owner]
        self.of_atom[owner, place], self.signs[owner, place] = row, sign
        self.missing = np.append(missing, -np.inf)  # what each row lacks; negative if it has more than enough

    def gain(self, new: Rows, old: Rows) -> Floats:
        """Return how much less all bounds lack together after swapping atoms ``old`` for ``new``."""
        coming, going = self.of_atom[new], self.of_atom[old]
        both = coming[:, :, None] == going[:, None, :]  # bounds of both are left as they are
        before = np.maximum(self.missing, 0)
        less = before[coming] - np.maximum(self.missing[coming] - self.signs[new], 0)
        more = np.maximum(self.missing[going] + self.signs[old], 0) - before[going]
        total = np.where(both.any(axis=2), 0, less).sum(axis=1) - np.where(both.any(axis=1), 0, more).sum(axis=1)
        return np.asarray(total, dtype=np.float64)

    def swap(self, new: int, old: int) -> None:
        """Count a swap."""
        for atom, direction in ((new, -1.0), (old, 1.0)):
            used = self.signs[atom] != 0
            self.missing[self.of_atom[atom][used]] += direction * self.signs[atom][used]


def swap(pool: Pool, plan: Plan, subsidies: Floats) -> Plan | None:
    """Swap items within lists until no bound is short, the cheapest swaps first; None if no single swap helps.

    Parameters
    ----------
    pool
        What requests choose from.
    plan
        (T, N) the lists, which may leave bounds short.
    subsidies
        (J,) near the best ones, which say what a swap costs.
    """
    from scipy import sparse

    plan, priced = plan.copy(), pool.priced(subsidies)
    effects = _Effects(pool.bounds, pool.least - pool.exposures(plan))
    columns = sparse.csc_array(pool.bounds.by_atom)
    stuck = False
    while not stuck:
        stuck = True
        for row in np.argsort(-effects.missing, kind="stable").tolist():
            if effects.missing[row] <= 0:
                break
            counted = columns[:, [row]].toarray()[:, 0][pool.atoms]
            while effects.missing[row] > 0 and _swap_for(pool, plan, priced, counted, row, effects):
                stuck = False
    return None if (effects.missing > 0).any() else plan


def _swap_for(pool: Pool, plan: Plan, priced: Floats, counted: Floats, row: int, effects: _Effects) -> bool:
    """Make swaps that help one short bound; False if there is none.

    ``counted`` is what an item in each place counts for the bound. Lists are tried in the order of what the cheapest
    swap of theirs costs under the present subsidies, each at most once.
    """
    high = counted.max()  # a list gains by taking in what counts more than what goes out
    coming = np.where(~plan & (counted == high), priced, -np.inf)
    going = np.where(plan & (counted < high), priced, np.inf)
    loss = going.min(axis=1) - coming.max(axis=1)
    helped = False
    nearest = np.argsort(loss, kind="stable")
    for start in range(0, len(nearest), _REQUESTS):
        some = nearest[start : start + _REQUESTS]
        some = some[np.isfinite(loss[some])]
        if helped or not some.size:
            break
        wide = min(_ITEMS, priced.shape[1])
        new = np.argpartition(-coming[some], wide - 1, axis=1)[:, :wide]
        old = np.argpartition(going[some], pool.k - 1, axis=1)[:, : pool.k]
        who, into, out = (
            part.ravel() for part in np.broadcast_arrays(some[:, None, None], new[:, :, None], old[:, None, :])
        )
        real = np.isfinite(coming[who, into]) & np.isfinite(going[who, out])
        if pool.limits is not None:
            real &= pool.limits.allow(plan, pool.atoms, who, into, out)
        who, into, out = who[real], into[real], out[real]
        gain = effects.gain(pool.atoms[who, into], pool.atoms[who, out])
        cost = (pool.scores[who, out] - pool.scores[who, into]) / np.maximum(gain, 1)
        changed = set()
        for pair in np.lexsort((cost, gain <= 0)).tolist():
            if gain[pair] <= 0 or effects.missing[row] <= 0:
                break
            request, taken, given = who[pair], into[pair], out[pair]
            new_atom, old_atom = pool.atoms[request, taken], pool.atoms[request, given]
            if request in changed:
                continue
            if effects.gain(new_atom[None], old_atom[None])[0] <= 0:  # swaps before it have helped already
                continue
            plan[request, taken], plan[request, given] = True, False
            effects.swap(int(new_atom), int(old_atom))
            changed.add(request)
            helped = True
    return helped


def integer_program(pool: Pool, plan: Plan, subsidies: Floats, size: int) -> Plan | None:
    """Return the best plan that keeps all bounds and differs in about ``size`` places only; None if none is found.

    The places are those nearest to the edges of the lists, and all of the plan that are not among the best.
    """
    from scipy import sparse
    from scipy.optimize import Bounds, LinearConstraint, milp

    best = pool.best(subsidies)
    regret = best.regret
    loose = np.isfinite(regret)
    if size < plan.size:
        loose &= (regret <= np.partition(regret, size, axis=None)[size]) | (plan != best.inside)
    request, place = np.nonzero(loose)
    requests, row = np.unique(request, return_inverse=True)
    slots = np.bincount(row, plan[request, place])
    at, which, signs = pool.bounds.expand(pool.atoms[request, place])
    items = np.arange(request.size)
    lists = sparse.csr_array((np.ones(items.size), (row, items)), shape=(len(requests), items.size))
    bounds = sparse.csr_array((signs, (which, at)), shape=(pool.least.size, items.size))
    # Lists keep their lengths, so that relevance may be measured from any point; near the edge, sums are most exact.
    edge = pool.scores.min(axis=1, where=plan, initial=np.inf)
    gain = pool.scores[request, place] - edge[request]
    per_list = pool.list_rows(plan, request, place, items.size)
    solved = milp(
        -gain / max(float(np.abs(gain).max(initial=0.0)), 1e-300),
        integrality=np.ones(items.size, dtype=np.int64),
        bounds=Bounds(0, 1),
        constraints=[
            LinearConstraint(lists, slots, slots),
            LinearConstraint(bounds, pool.least - pool.exposures(plan & ~loose), np.inf),
            *([LinearConstraint(per_list["A_ub"], -np.inf, per_list["b_ub"])] if per_list else []),
        ],
        options={"node_limit": _NODES, "time_limit": _SECONDS, "mip_rel_gap": 1e-6},
    )
    if solved.x is None:
        return None
    found = plan.copy()
    found[request, place] = solved.x > 0.5
    return None if shortfall(pool, found).any() or (found.sum(axis=1) != plan.sum(axis=1)).any() else found
