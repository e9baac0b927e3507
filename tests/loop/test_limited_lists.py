"""The best lists under limits per list, against all lists."""

import itertools

import numpy as np
import pytest

from fairsync.catalog.atoms import Membership
from fairsync.loop.limited_lists import LimitedLists
from fairsync.search import Hits

# Promises 0 and 1 share no item, and promise 2 contains promise 0.
MEMBERSHIP = Membership.of([(), (0, 2), (1,), (2,)], 3)


@pytest.mark.parametrize("seed", range(40))
def test_they_are_the_best_of_all_lists(seed: int) -> None:
    rng = np.random.default_rng(seed)
    k, width, n_items = 3, 7, 9
    atom_of, limits = rng.integers(0, 4, n_items), np.minimum(rng.integers(0, 4, 3), k)
    atom_of[rng.choice(n_items, k, replace=False)] = 0  # without a limit, so that some list is possible
    relevance = np.sort(rng.permutation(n_items) * 1.0)[::-1]
    found = np.sort(rng.choice(n_items, width, replace=False))

    def counts(items: tuple[int, ...]) -> np.ndarray:
        return np.asarray(MEMBERSHIP.exposures(np.bincount(atom_of[list(items)], minlength=4)))

    allowed = [items for items in itertools.combinations(range(n_items), k) if (counts(items) <= limits).all()]
    chosen = np.array([allowed[int(rng.integers(len(allowed)))]])
    known = {*found.tolist(), *chosen[0].tolist()}
    best = max((items for items in allowed if known.issuperset(items)), key=lambda items: relevance[[*items]].sum())
    limited = LimitedLists.of(
        Hits(found[None], relevance[found][None]), Hits(chosen, relevance[chosen]), atom_of, MEMBERSHIP, limits,
        np.bincount(atom_of, minlength=4),
    )  # fmt: skip
    assert limited.best.tolist() == [relevance[[*best]].sum()]
    assert limited.came[0].tolist() == [item not in best for item in chosen[0].tolist()]
    plain = sorted(known)[:k]
    assert bool(limited.binding.any()) is bool((counts(tuple(plain)) > limits).any())
