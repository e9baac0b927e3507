"""An independent check of promises on small cases: an integer program over all lists, slot by slot."""

from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from fairsync.catalog.atoms import Membership
from fairsync.policies.base import Counts, Terms


def lists_exist(terms: Terms, missing: Counts, room: Counts | None, left: int) -> bool:
    """Return whether full lists exist that keep all promises. Variables: items of each atom in each request."""
    membership = terms.membership
    assert membership is not None
    n_atoms, n = membership.n_atoms, membership.n_atoms * left
    matrix = membership.matrix
    each_request, ones = sparse.eye_array(left), np.ones((1, left))
    parts: list[tuple[Any, Any, Any]] = [
        (sparse.kron(matrix, ones), missing, np.inf if room is None else room),
        (sparse.kron(np.ones((1, n_atoms)), each_request), terms.k, terms.k),
    ]
    if terms.list_limits is not None:
        limits = np.repeat(terms.list_limits, left)
        parts.append((sparse.kron(matrix, each_request), -np.inf, limits))
    found = milp(
        np.zeros(n),
        integrality=np.ones(n, dtype=np.int64),
        bounds=Bounds(0, np.repeat(terms.capacities, left).astype(float)),
        constraints=[LinearConstraint(sparse.csr_array(rows), low, high) for rows, low, high in parts],
    )
    assert found.status in (0, 2)
    return bool(found.status == 0)


def random_terms(rng: np.random.Generator, *, caps: bool, limits: bool, closed: float = 0.0) -> tuple[Terms, int]:
    """Return small promises near the edge of what is possible, and a number of requests.

    There are enough items outside all promises to fill every list, or, in the share ``closed`` of the cases, there are
    none, and the last promise is that of every slot.
    """
    n_promises, n_atoms, k = int(rng.integers(1, 6)), int(rng.integers(1, 7)), int(rng.integers(1, 4))
    left = int(rng.integers(1, 5))
    belongs = rng.random((n_promises, n_atoms)) < rng.uniform(0.2, 0.8)
    if limits:  # a tree: the halves of a promise, and their halves
        belongs[0] = rng.random(n_atoms) < 0.8
        for p in range(1, n_promises):
            parent = belongs[(p - 1) // 2]
            side = rng.random(n_atoms) < 0.5
            belongs[p] = parent & side if p % 2 else parent & ~belongs[p - 1]
    sizes = np.concatenate([[k], rng.integers(1, 3, size=n_atoms)])
    is_closed = bool(sizes[1:].sum() >= k and rng.random() < closed)
    belongs = np.column_stack([np.zeros(n_promises, dtype=bool), belongs])  # items outside all promises
    if is_closed:
        belongs = np.vstack([belongs, np.ones(n_atoms + 1, dtype=bool)])
        sizes[0], n_promises = 0, n_promises + 1
    membership = Membership.of([np.flatnonzero(column).tolist() for column in belongs.T], n_promises)
    capacities = np.minimum(sizes, k)
    # What random lists give, and a little more or less: close to the edge.
    lists = np.zeros(n_atoms + 1, dtype=np.int64)
    for _ in range(left):
        items = np.repeat(np.arange(n_atoms + 1), sizes)
        items = items[items > 0] if rng.random() < 0.8 and (items > 0).sum() >= k else items
        lists += np.bincount(rng.choice(items, size=k, replace=False), minlength=n_atoms + 1)
    given = membership.exposures(lists)
    floors = np.maximum(given + rng.integers(-1, 2, size=n_promises), 0) * (rng.random(n_promises) < 0.8)
    room = np.maximum(given + rng.integers(-1, 2, size=n_promises), 0)
    caps_given = np.where(rng.random(n_promises) < 0.5, room, 2**62)
    list_limits = np.minimum(rng.integers(0, 4, size=n_promises), k)
    if is_closed:
        floors[-1], caps_given[-1], list_limits[-1] = left * k, 2**62, k
    terms = Terms(
        floors.astype(np.int64), capacities, k, left, 1,
        caps=caps_given.astype(np.int64) if caps else None,
        membership=membership,
        list_limits=list_limits.astype(np.int64) if limits else None,
    )  # fmt: skip
    return terms, left
