"""Every way to the same answer gives the same answer, through the whole loop: prices, guard, ledger and all."""

from collections.abc import Callable

import numpy as np
import pytest

from fairsync.catalog import Catalog
from fairsync.retriever import FairRetriever
from fairsync.search import ExactIndex, HnswIndex, Index, IvfIndex, OneHotIndex, ShardedIndex
from worlds import World, make_world

WAYS: dict[str, Callable[[Catalog], Index]] = {
    "one thread": lambda catalog: ExactIndex(catalog, threads=1),
    "one-hot": OneHotIndex,
    "ivf below its size": IvfIndex,
    "hnsw below its size": HnswIndex,
    "1 shard": lambda catalog: ShardedIndex(catalog, 1),
    "5 shards": lambda catalog: ShardedIndex(catalog, 5),
    "60 shards, many empty": lambda catalog: ShardedIndex(catalog, 60),
    "3 shards, one-hot": lambda catalog: ShardedIndex(catalog, 3, "one-hot"),
    "one shard per group": lambda catalog: ShardedIndex(catalog, catalog.n_groups, placement=catalog.group_of),
}


@pytest.fixture(scope="module", params=[1, 2])
def world(request: pytest.FixtureRequest) -> World:
    return make_world(
        request.param, groups=6, items=150, horizon=120, k=5, tightness=0.8, even=False, interests=request.param
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("policy", ["guaranteed", "fairsync"])
def test_the_whole_loop_is_the_same(world: World, way: str, policy: str) -> None:
    def run(index: str | Index) -> FairRetriever:
        return FairRetriever(
            world.catalog,
            k=world.k,
            floors=world.floors,
            horizon=world.horizon,
            policy=policy,
            batch_size=8,
            index=index,
        )

    plain, other = run("exact"), run(WAYS[way](world.catalog))
    for start in range(0, world.horizon, 50):
        expected, found = (one.retrieve(world.users[start : start + 50]) for one in (plain, other))
        assert (found.ids == expected.ids).all()
        assert (found.relevance == expected.relevance).all()
    assert np.array_equal(list(plain.report().prices.values()), list(other.report().prices.values()))
    assert plain.report().exposures == other.report().exposures
