"""Small random worlds with promises that overlap, at the edge: no floor could be one higher, no cap one lower."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, milp

from fairsync.catalog import Catalog
from fairsync.catalog.atoms import Atoms
from fairsync.policies.base import NO_CAP, Terms

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class OverlapWorld:
    """Items whose scores are any numbers (their vectors are unit vectors), and promises about them.

    ``members`` (P, n) says which items belong to each promise.
    """

    catalog: Catalog
    atoms: Atoms
    terms: Terms
    members: npt.NDArray[np.bool_]
    certificate: Counts

    def recount(self, rows: npt.NDArray[np.int64]) -> Counts:
        """Return the exposures of each promise in lists, item by item."""
        exposures = np.zeros(len(self.members), dtype=np.int64)
        for row in rows[rows >= 0].ravel().tolist():
            exposures += self.members[:, row]
        return exposures


def plan(
    terms: Terms,
    left: int,
    goal: npt.NDArray[np.float64] | None = None,
    floors: Counts | None = None,
    caps: Counts | None = None,
) -> Counts | None:
    """Return a certificate by an integer program, one with the greatest sum over ``goal``; None if there is none."""
    matrix = np.eye(terms.n_atoms) if terms.membership is None else terms.membership.matrix.toarray()
    floors = terms.floors if floors is None else floors
    upper = np.full(len(matrix), np.inf)
    caps = terms.caps if caps is None else caps
    if caps is not None:
        upper = np.where(caps >= NO_CAP // 2, np.inf, caps)
    if terms.list_limits is not None:
        upper = np.minimum(upper, left * terms.list_limits)
    found = milp(
        np.zeros(terms.n_atoms) if goal is None else -goal,
        integrality=np.ones(terms.n_atoms, dtype=np.int64),
        bounds=Bounds(0, left * terms.capacities),
        constraints=[
            LinearConstraint(matrix, floors, upper),
            LinearConstraint(np.ones((1, terms.n_atoms)), -np.inf, left * terms.k),
        ],
        options={"mip_rel_gap": 0},
    )
    return None if found.x is None else np.round(found.x).astype(np.int64)


def random_members(rng: np.random.Generator, n_items: int, n_promises: int) -> npt.NDArray[np.bool_]:
    """Return selections of items, some large, some small, at least one item each."""
    members = rng.random((n_promises, n_items)) < rng.uniform(0.05, 0.7, size=(n_promises, 1))
    if rng.random() < 0.5:  # few atoms with many items
        members = members[:, rng.integers(rng.integers(2, min(7, n_items)), size=n_items)]
    members[np.arange(n_promises), rng.integers(n_items, size=n_promises)] = True
    return members


def random_tree(rng: np.random.Generator, n_items: int) -> npt.NDArray[np.bool_]:
    """Return selections that are disjoint or contain one another."""
    inner = rng.integers(rng.integers(1, 6), size=n_items)
    outer = rng.integers(3, size=inner.max() + 1)[inner]
    sets = [inner == code for code in np.unique(inner)] + [outer == code for code in range(2) if (outer == code).any()]
    return np.array(sets)


def longest_list(limits: Counts, members: npt.NDArray[np.bool_], items: npt.NDArray[np.int64]) -> int:
    """Return the most items of a list under list limits of a tree: greedy is exact there."""
    room, length = limits.copy(), 0
    for item in items.tolist():
        mine = members[:, item]
        if (room[mine] > 0).all():
            room[mine] -= 1
            length += 1
    return length


def make_overlap_world(
    seed: int, *, caps: bool = False, limits: bool = False, covered: bool = False, max_exclude: int = 0
) -> OverlapWorld:
    """Make a world with 2 to 12 promises at the edge of what is possible.

    With ``covered``, some caps leave no item outside, so that every slot must be planned: the last promise says so.
    """
    rng = np.random.default_rng(seed)
    n_items = int(rng.integers(4 + max_exclude, 24 + max_exclude))
    members = random_members(rng, n_items, int(rng.integers(2, 7)))
    n_floors = len(members)
    k = int(rng.integers(1, min(n_items - max_exclude, 8) + 1))
    if limits:
        members = np.concatenate([members, random_tree(rng, n_items)])
    n_limited = len(members)
    if covered:
        part = rng.integers(rng.integers(1, 6), size=n_items)
        members = np.concatenate([members, [part == code for code in np.unique(part)], np.ones((1, n_items), bool)])
    n_promises = len(members)
    list_limits = np.full(n_promises, n_items)
    list_limits[n_floors:n_limited] = rng.integers(1, k + 1, size=n_limited - n_floors)
    is_capped = np.zeros(n_promises, dtype=bool)
    if caps:
        is_capped[rng.permutation(n_promises)[: rng.integers(1, 4)]] = True
    while True:  # lists can be filled with items outside all caps, within the list limits
        outside = np.flatnonzero(~members[is_capped].any(axis=0))
        length = longest_list(list_limits, members, outside) - max_exclude
        if length > 0:
            k = min(k, length)
            break
        if is_capped.any():
            is_capped[np.flatnonzero(is_capped)[0]] = False
        else:
            list_limits += 1
    is_capped[n_limited : n_promises - 1] = covered
    atoms = Atoms.of([np.flatnonzero(row) for row in members], n_items)
    horizon = int(rng.integers(1, 25))
    terms = Terms(
        np.zeros(n_promises, dtype=np.int64),
        np.minimum(np.maximum(atoms.sizes - max_exclude, 0), k),
        k,
        horizon,
        1,
        max_exclude=max_exclude,
        membership=atoms.membership,
        list_limits=np.minimum(list_limits, k) if limits else None,
    )
    floors, bounds = np.zeros(n_promises, dtype=np.int64), np.full(n_promises, NO_CAP)
    matrix = atoms.membership.matrix.toarray()
    if covered:
        best = plan(terms, horizon, matrix[-1])
        assert best is not None
        if int(best.sum()) < horizon * k:  # atoms are too small beside the exclusions
            return make_overlap_world(seed + 1_000_000, caps=caps, limits=limits, covered=covered)
        floors[-1] = horizon * k
    with_floor = rng.permutation(n_floors)[: rng.integers(1, n_floors + 1)]
    steps = [(promise, share) for share in (rng.random(), 1.0) for promise in rng.permutation(with_floor)]
    for promise, share in steps:  # first a part of what is possible, then all of it
        best = plan(terms, horizon, matrix[promise], floors, bounds)
        assert best is not None
        floors[promise] = max(floors[promise], int(share * (matrix[promise] @ best)))
    for promise in np.flatnonzero(is_capped):
        best = plan(terms, horizon, -matrix[promise], floors, bounds)
        assert best is not None
        bounds[promise] = int(matrix[promise] @ best) + int(rng.choice([0, 0, 3]))
    terms = replace(terms, floors=floors, caps=bounds if is_capped.any() else None)
    certificate = plan(terms, horizon, rng.normal(size=terms.n_atoms))
    assert certificate is not None
    catalog = atoms.catalog(Catalog(np.eye(n_items), np.zeros(n_items, dtype=np.int64)))
    return OverlapWorld(catalog, atoms, terms, members, certificate)
