"""The promise does not need an exact search: every floor is kept on indexes that miss a good part of the best items."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairsync.catalog import Catalog
from fairsync.retriever import FairRetriever
from fairsync.search import ExactIndex, HnswIndex, Index, IvfIndex, ShardedIndex
from worlds import World, make_world

INDEXES: dict[str, Callable[[Catalog], Index]] = {
    "ivf": lambda catalog: IvfIndex(catalog, recall=0.3, storage="2-bit", exact_below=0),
    "hnsw": lambda catalog: HnswIndex(catalog, recall=0.3, exact_below=0),
    "sharded": lambda catalog: ShardedIndex(catalog, 3),
    "sharded ivf": lambda catalog: ShardedIndex(catalog, 3, lambda part: IvfIndex(part, 0.3, exact_below=0)),
}


def assert_kept(world: World, index: Index, batch_size: int) -> None:
    retriever = FairRetriever(
        world.catalog, k=world.k, floors=world.floors, horizon=world.horizon, batch_size=batch_size, index=index
    )
    found = retriever.retrieve(world.users)
    groups, counts = np.unique(found.groups, return_counts=True)
    exposures = dict(zip(groups.tolist(), counts.tolist(), strict=True))
    assert all(exposures.get(group, 0) >= floor for group, floor in world.floors.items())
    assert all(len(set(row)) == world.k for row in found.ids.tolist())
    assert retriever.report().esp == 1.0


@pytest.mark.parametrize("name", INDEXES)
@given(
    world=st.builds(
        make_world,
        seed=st.integers(0, 2**32 - 1),
        groups=st.integers(1, 8),
        items=st.integers(1, 60),
        horizon=st.integers(1, 40),
        k=st.integers(1, 9),
        tightness=st.sampled_from([0.3, 0.9, 1.0]),
        even=st.booleans(),
        order=st.sampled_from(["random", "first", "last"]),
        interests=st.integers(1, 2),
        dim=st.integers(1, 6),
    ),
    batch_size=st.sampled_from([1, 3, 16, 64]),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_feasible_world_breaks_it(name: str, world: World, batch_size: int) -> None:
    assert_kept(world, INDEXES[name](world.catalog), batch_size)


@pytest.mark.parametrize("name", INDEXES)
@pytest.mark.parametrize("tightness", [0.5, 1.0])
def test_it_holds_where_the_search_really_misses_items(name: str, tightness: float) -> None:
    world = make_world(
        5, groups=12, items=9000, horizon=300, k=10, tightness=tightness, even=False, order="last", dim=8
    )
    index = INDEXES[name](world.catalog)
    truth = ExactIndex(world.catalog).search(world.users[:, None], None, 10).rows
    rows = index.search(world.users[:, None], None, 10).rows
    recall = np.mean([np.isin(wanted, found).mean() for wanted, found in zip(truth, rows, strict=True)])
    assert (recall == 1.0) == (name == "sharded")
    assert_kept(world, index, 16)
