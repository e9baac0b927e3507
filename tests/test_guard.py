"""The guard: its lists are the best that keep the floors reachable."""

from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairsync.catalog import Catalog
from fairsync.errors import FairSyncError
from fairsync.guard import choose, compose
from fairsync.policies.base import Floats, Terms
from fairsync.promises.floors import can_be_met
from fairsync.retriever import FairRetriever
from fairsync.search import Hits, make_index
from worlds import make_world

seeds = st.integers(0, 2**32 - 1)


def terms_for(capacities: list[int], k: int) -> Terms:
    array = np.array(capacities)
    return Terms(np.zeros_like(array), array, k, horizon=100, batch_size=1)


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


class Forgetful:
    """An index that never finds anything of group 0 once it is asked for it alone."""

    applies_prices = "bias"

    def __init__(self, catalog: Catalog) -> None:
        self.index = make_index("exact", catalog)

    def search(self, users: npt.NDArray[Any], prices: Floats | None, k: int) -> Hits:
        if prices is not None and np.isinf(prices).any():
            return Hits.empty(len(users), k)
        return self.index.search(users, prices, k)


def test_an_index_that_loses_items_is_an_error() -> None:
    world = make_world(27, horizon=20, tightness=1.0)
    retriever = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=20, index=Forgetful(world.catalog))
    with pytest.raises(FairSyncError, match="too few items"):
        retriever.retrieve(world.users)
