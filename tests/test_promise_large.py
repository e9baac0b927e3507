"""Floors over indexes that are approximate by their own choice, on catalogs of 20,000 items and more."""

from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from effort import HOURS, effort
from fairsync.catalog import Catalog
from fairsync.retriever import FairRetriever
from fairsync.search import ExactIndex, HnswIndex, Index, IvfIndex
from worlds import make_world

INDEXES = {"ivf": IvfIndex, "hnsw": HnswIndex}
GROUPS = 40


@lru_cache(maxsize=2)
def large_catalog(name: str, seed: int) -> tuple[Catalog, Index, bool]:
    """Return a catalog, an index, and whether the index really misses some of the best items."""
    catalog = make_world(seed, groups=GROUPS, items=20_000 + 10_000 * (seed % 3), horizon=1, even=seed % 2 == 0).catalog
    index = INDEXES[name](catalog, recall=0.7)
    users = np.random.default_rng(seed).normal(size=(200, 1, catalog.dim))
    best, found = ExactIndex(catalog).search(users, None, 20).rows, index.search(users, None, 20).rows
    return catalog, index, bool((np.sort(best) != np.sort(found)).any())


@pytest.mark.parametrize("name", INDEXES)
@given(
    catalog_seed=st.integers(0, 50 if HOURS else 0),
    seed=st.integers(0, 2**32 - 1),
    k=st.integers(1, 30),
    horizon=st.integers(1, 120),
    batch_size=st.sampled_from([1, 7, 16, 64]),
    tightness=st.sampled_from([0.2, 0.8, 0.99, 1.0]),
    few=st.booleans(),
    calibrated=st.booleans(),
)
@effort(examples=12, seconds_each=0.5)
def test_every_floor_is_kept(
    name: str,
    catalog_seed: int,
    seed: int,
    k: int,
    horizon: int,
    batch_size: int,
    tightness: float,
    few: bool,
    calibrated: bool,
) -> None:
    catalog, index, misses = large_catalog(name, catalog_seed)
    assert misses, "the index is exact: this would prove nothing"
    rng = np.random.default_rng(seed)
    # A few groups that users do not like, or all of them.
    promised = rng.permutation(GROUPS)[: 3 if few else GROUPS]
    capacities = np.minimum(catalog.group_sizes, k)
    floors, left = np.zeros(GROUPS, dtype=int), int(tightness * k * horizon)
    for group in promised:
        floors[group] = min(left, int(rng.integers(0, 2 * left // len(promised) + 2)), horizon * capacities[group])
        left -= floors[group]
    retriever = FairRetriever(
        catalog, k=k, floors=dict(enumerate(floors.tolist())), horizon=horizon, batch_size=batch_size, index=index
    )
    if calibrated:
        retriever.calibrate(rng.normal(size=(64, catalog.dim)))
    users, parts, start = rng.normal(size=(horizon, catalog.dim)), [], 0
    while start < horizon:
        stop = start + int(rng.integers(1, horizon + 1))
        parts.append(retriever.retrieve(users[start:stop]))
        start = stop
    groups = np.concatenate([part.groups for part in parts])
    ids = np.concatenate([part.ids for part in parts])
    assert all(len(set(row)) == k for row in ids.tolist())
    counts = np.bincount(groups.ravel(), minlength=GROUPS)
    assert (counts >= floors).all()
    assert list(retriever.report().exposures.values()) == counts.tolist()
    relevance = np.concatenate([part.relevance for part in parts])
    exact = np.einsum("nd,nkd->nk", users, catalog.embeddings[ids])
    assert relevance == pytest.approx(exact, rel=1e-6, abs=1e-6)
