"""The guard: its condition is exact, its lists are the best that satisfy it."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from fairsync.catalog import Catalog
from fairsync.floors import can_be_met
from fairsync.guard import choose, compose
from fairsync.policies.base import Terms
from fairsync.search import make_index

seeds = st.integers(0, 2**32 - 1)


def terms_for(caps: list[int], k: int) -> Terms:
    array = np.array(caps)
    return Terms(np.zeros_like(array), array, k, horizon=100, batch_size=1)


@given(
    missing=st.lists(st.integers(0, 12), min_size=1, max_size=4),
    left=st.integers(0, 4),
    k=st.integers(1, 5),
    seed=seeds,
)
@settings(max_examples=150, deadline=None)
def test_safe_means_that_a_plan_exists(missing: list[int], left: int, k: int, seed: int) -> None:
    """Against a linear program: x[t, g] exposures of g in request t, at most c_g each and k in all."""
    caps = np.minimum(np.random.default_rng(seed).integers(1, 6, size=len(missing)), k)
    n = len(missing)
    possible = not any(missing)
    if left:
        per_request = np.kron(np.eye(left), np.ones(n))
        per_group = -np.kron(np.ones(left), np.eye(n))
        plan = linprog(
            np.zeros(left * n),
            A_ub=np.vstack([per_request, per_group]),
            b_ub=np.concatenate([np.full(left, k), -np.array(missing)]),
            bounds=[(0, c) for c in np.tile(caps, left)],
        )
        possible = plan.status == 0
    assert can_be_met(np.array(missing), left, terms_for(caps.tolist(), k)) == possible


@given(seed=seeds)
@settings(max_examples=200, deadline=None)
def test_composed_lists_are_the_best_that_keep_the_rest_possible(seed: int) -> None:
    """Against every list of k items that there is."""
    rng = np.random.default_rng(seed)
    n_items, n_groups = int(rng.integers(3, 9)), int(rng.integers(1, 4))
    labels = np.concatenate([np.arange(n_groups), rng.integers(n_groups, size=n_items - n_groups)])
    catalog = Catalog(rng.normal(size=(n_items, 2)), labels)
    k = int(rng.integers(1, min(4, n_items) + 1))
    terms = terms_for(np.minimum(catalog.group_sizes, k).tolist(), k)
    left = int(rng.integers(0, 3))
    missing = rng.integers(0, 6, size=n_groups)
    if not can_be_met(missing, left + 1, terms):
        return
    prices = -rng.random(n_groups)
    index, user = make_index("exact", catalog), rng.normal(size=(1, 1, 2))
    hits = index.search(user, prices, k)
    rows, relevance = compose(
        lambda p, n: index.search(user, p, n),
        catalog.group_of, hits.rows[0], hits.relevance[0], terms, prices, missing, left,
    )  # fmt: skip
    everything = catalog.embeddings @ user[0, 0]
    assert relevance == pytest.approx(everything[rows])
    score = everything - prices[catalog.group_of]

    def allowed(items: list[int]) -> bool:
        counts = np.bincount(catalog.group_of[items], minlength=n_groups)
        return can_be_met(np.maximum(missing - counts, 0), left, terms)

    assert len(set(rows.tolist())) == k
    assert allowed(rows.tolist())
    best = max(score[list(items)].sum() for items in combinations(range(n_items), k) if allowed(list(items)))
    assert score[rows].sum() == pytest.approx(best)


@given(seed=seeds)
@settings(max_examples=200, deadline=None)
def test_a_subsidy_is_paid_for_missing_exposures_only(seed: int) -> None:
    """Against the rule itself, over the whole catalog; a list that is too short must say so."""
    rng = np.random.default_rng(seed)
    n_items, n_groups, k = 12, 3, 4
    group_of = rng.integers(n_groups, size=n_items)
    relevance = rng.integers(0, 8, size=n_items) / 8  # many ties
    prices = -rng.integers(0, 4, size=n_groups) / 8
    missing = rng.integers(0, 4, size=n_groups)
    paid = np.zeros(n_items)
    for group in range(n_groups):
        mine = np.flatnonzero(group_of == group)
        best = mine[np.lexsort((mine, -relevance[mine]))][: missing[group]]
        paid[best] = -prices[group]
    expected = np.lexsort((np.arange(n_items), -(relevance + paid)))[:k]
    listed = np.lexsort((np.arange(n_items), -(relevance - prices[group_of])))
    for width in range(k, n_items + 1):
        rows = listed[:width]
        beyond = -np.inf if width == n_items else float((relevance - prices[group_of])[rows[-1]])
        chosen = choose(group_of[rows], relevance[rows], rows, prices, missing, k, beyond)
        if chosen is not None:
            assert rows[chosen].tolist() == expected.tolist()
        else:
            assert width < n_items
