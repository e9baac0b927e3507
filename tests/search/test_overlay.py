"""Overlays: after any changes of the catalog the answers are those of a new index."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import plain
from fairsync.catalog import Catalog
from fairsync.catalog.changes import CatalogChange, remove_items, upsert_items
from fairsync.retriever import FairRetriever
from fairsync.search import HnswIndex, Index, IvfIndex, OneHotIndex, ShardedIndex
from fairsync.search.overlay import Overlay, follow
from search.approximate import assert_honest, make_case, recall

DIM = 4
BUILD: dict[str, Callable[[Catalog], Index]] = {
    "one-hot": OneHotIndex,
    "shards": lambda catalog: ShardedIndex(catalog, shards=3),
}


def random_change(catalog: Catalog, rng: np.random.Generator) -> CatalogChange:
    """Put a few items, known and new, in groups old and new; or remove a few."""
    ids = catalog.ids.tolist()
    if len(ids) > 4 and rng.random() < 0.4:
        return remove_items(catalog, rng.choice(ids, size=int(rng.integers(1, len(ids) // 2)), replace=False).tolist())
    known = rng.choice(ids, size=min(len(ids), int(rng.integers(0, 4))), replace=False).tolist()
    new = [f"n{rng.integers(10**9)}" for _ in range(rng.integers(1, 5))]
    names = known + new
    labels = [f"g{rng.integers(7)}" for _ in names]
    # Coarse values: ties must be settled by id, wherever an item lies.
    return upsert_items(catalog, rng.integers(-2, 3, size=(len(names), DIM)), labels, names)


@pytest.mark.parametrize("kind", ["exact", *sorted(BUILD)])
@given(seed=st.integers(0, 10**6))
@settings(max_examples=15, deadline=None)
def test_after_any_changes_search_equals_the_plainest_over_what_is_there_now(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 30))
    catalog = Catalog(
        rng.integers(-2, 3, size=(n, DIM)).astype(np.float32), [f"g{g}" for g in rng.integers(4, size=n)],
        ids=[f"i{name}" for name in rng.permutation(n)],
    )  # fmt: skip
    retriever = FairRetriever(catalog, k=1, index="exact" if kind == "exact" else BUILD[kind](catalog))
    index = retriever.index
    for _ in range(int(rng.integers(1, 5))):
        change = random_change(catalog, rng)
        index, catalog = follow(index, change, catalog), change.catalog
    users = rng.integers(-2, 3, size=(3, 2, DIM)).astype(float)
    prices = np.where(rng.random(catalog.n_groups) < 0.2, np.inf, rng.integers(-2, 3, size=catalog.n_groups) / 2)
    for asked in (None, prices):
        k = int(rng.integers(1, len(catalog) + 2))
        rows, relevance = plain.search(catalog, users, asked, k)
        found = index.search(users, asked, k)
        assert found.rows.tolist() == rows
        assert found.relevance.tolist() == relevance


def test_wear_is_the_share_of_changed_items() -> None:
    rng = np.random.default_rng(2)
    catalog = Catalog(rng.normal(size=(100, DIM)), rng.integers(3, size=100))
    retriever = FairRetriever(catalog, k=5, floors=0, horizon=100, index="one-hot")
    retriever.upsert(rng.normal(size=(10, DIM)), [0] * 10, list(range(95, 105)))
    retriever.remove([0, 1, 2, 3, 4])
    assert isinstance(retriever.index, Overlay)
    assert retriever.index.wear == (10 + 10) / 100
    retriever.replace(retriever.catalog, index="one-hot")
    assert isinstance(retriever.index, OneHotIndex)


@pytest.mark.parametrize("kind", [IvfIndex, HnswIndex])
def test_an_overlay_over_an_approximate_index_is_honest(kind: type[IvfIndex | HnswIndex]) -> None:
    catalog, users = make_case(3, n=2000, users=10)
    index: Index = kind(catalog, recall=0.9, exact_below=0)
    rng = np.random.default_rng(3)
    removed = remove_items(catalog, rng.choice(catalog.ids, 200, replace=False))
    index, catalog = follow(index, removed, catalog), removed.catalog
    added = upsert_items(catalog, rng.normal(size=(100, 8)), rng.integers(0, 8, 100), np.arange(1950, 2050))
    index, catalog = follow(index, added, catalog), added.catalog
    assert isinstance(index, Overlay)
    prices = rng.normal(size=catalog.n_groups)
    for asked in (None, prices, np.where(np.arange(catalog.n_groups) % 3 == 0, np.inf, prices)):
        for k in (1, 20, len(catalog)):
            hits = assert_honest(index, catalog, users, asked, k)
            assert recall(hits, catalog, users, asked, k) >= 0.85
