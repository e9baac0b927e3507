"""A part of the catalog out of reach: answers come from the rest and say so, and floors hold where they can."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairsync.catalog import Catalog
from fairsync.catalog.changes import remove_items
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.errors import BackendUnavailableError
from fairsync.ledger import MemoryLedger
from fairsync.promises.floors import can_be_met, capacities_of
from fairsync.retriever import FairRetriever
from fairsync.search import ExactIndex, Hits
from fairsync.search.overlay import Overlay
from fairsync.search.sharded import Shard, merge
from worlds import make_world


class Patchy:
    """Exact search over shards of which some are down."""

    applies_prices = "bias"

    def __init__(self, catalog: Catalog, shards: int = 4) -> None:
        self.catalog = catalog
        self.shard_of = np.arange(len(catalog)) % shards
        self.shards = [Shard(catalog.part(rows), rows, ExactIndex) for rows in map(self.rows_of, range(shards))]
        self.down: set[int] = set()

    def rows_of(self, shard: int) -> npt.NDArray[np.int64]:
        return np.flatnonzero(self.shard_of == shard)

    @property
    def alive(self) -> npt.NDArray[np.int64]:
        return np.flatnonzero(~np.isin(self.shard_of, list(self.down)))

    def search(self, users: npt.NDArray[np.floating], prices: npt.NDArray[np.float64] | None, k: int) -> Hits:
        answers = [shard.search(users, prices, k) for n, shard in enumerate(self.shards) if n not in self.down]
        hits = merge(answers or [Hits.empty(len(users), k)], self.catalog.group_of, self.catalog.rank, prices, k)
        if not self.down:
            return hits
        reached = np.bincount(self.catalog.group_of[self.alive], minlength=self.catalog.n_groups)
        return Hits(hits.rows, hits.relevance, reached)


@given(
    seed=st.integers(0, 10**6),
    batch=st.sampled_from([1, 5, 16]),
    tightness=st.sampled_from([0.2, 0.6, 0.95]),
    outages=st.lists(st.tuples(st.integers(0, 59), st.integers(1, 30), st.sets(st.integers(0, 3))), max_size=3),
)
@settings(max_examples=30, deadline=None)
def test_floors_hold_as_far_as_they_can(
    seed: int, batch: int, tightness: float, outages: list[tuple[int, int, set[int]]]
) -> None:
    """If they can be kept with the items that are there from some request to the end, they are kept."""
    world = make_world(seed, items=24, horizon=60, tightness=tightness)
    index = Patchy(world.catalog)
    retriever = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=60, batch_size=batch, index=index)
    terms, n_groups = retriever.terms, world.catalog.n_groups
    position = {name: row for row, name in enumerate(world.catalog.ids.tolist())}
    returned, certain = np.zeros(n_groups, dtype=np.int64), False
    for number, user in enumerate(world.users):
        before = set(index.down)
        index.down = set().union(*(who for start, length, who in outages if start <= number < start + length))
        alive = index.alive
        if len(alive) < world.k:
            with pytest.raises(BackendUnavailableError, match="reach"):
                retriever.retrieve(user[None])
            assert list(retriever.report().exposures.values()) == returned.tolist()
            return
        if number == 0 or index.down != before:
            reached = np.bincount(world.catalog.group_of[alive], minlength=n_groups)
            there = replace(terms, capacities=np.minimum(terms.capacities, reached))
            certain = can_be_met(np.maximum(terms.floors - returned, 0), 60 - number, there)
        found = retriever.retrieve(user[None])
        rows = [position[name] for name in found.ids[0].tolist()]
        assert len(set(rows)) == world.k
        assert set(rows) <= set(alive.tolist())
        assert found.searched.tolist() == [len(alive) / len(world.catalog)]
        assert found.degraded == bool(index.down)
        returned += np.bincount(world.catalog.group_of[rows], minlength=n_groups)
    assert list(retriever.report().exposures.values()) == returned.tolist()
    assert retriever.report().esp == 1 or not certain


@given(seed=st.integers(0, 10**6), batch=st.sampled_from([1, 7]), down=st.sets(st.integers(0, 3), max_size=2))
@settings(max_examples=15, deadline=None)
def test_a_lasting_outage_changes_nothing_that_is_possible_without_those_items(
    seed: int, batch: int, down: set[int]
) -> None:
    """From the first request to the last: floors that the rest of the catalog can keep are kept."""
    world = make_world(seed, items=40, horizon=60, tightness=0.9)
    index = Patchy(world.catalog)
    index.down = down
    rest = world.catalog.part(index.alive)
    capacities = capacities_of(rest.group_sizes, world.k)
    floors = {group: min(floor, 60 * int(capacities[group])) for group, floor in world.floors.items()}
    retriever = FairRetriever(world.catalog, k=world.k, floors=floors, horizon=60, batch_size=batch, index=index)
    retriever.retrieve(world.users)
    assert retriever.report().esp == 1


@pytest.mark.parametrize("front_ends", [1, 4])
def test_floors_hold_when_what_was_down_comes_back(front_ends: int) -> None:
    """The only shard with items of a group is down for half of the horizon; also with leases side by side."""
    rng = np.random.default_rng(5)
    catalog = Catalog(rng.normal(size=(40, 8)), ["a" if row % 4 else "rare" for row in range(40)])
    index = Patchy(catalog)
    coordinator = Coordinator(catalog, k=5, floors={"rare": 120}, horizon=200, ledger=MemoryLedger(2))
    fronts = [FrontEnd(catalog, coordinator, index=index) for _ in range(front_ends)]
    for number in range(200 // (5 * front_ends)):
        index.down = {0} if 0.2 < number * 5 * front_ends / 200 < 0.7 else set()
        for front in fronts:
            found = front.retrieve(rng.normal(size=(5, 8)))
            assert found.degraded == bool(index.down)
            assert not (index.down and (found.groups == "rare").any())
    assert coordinator.report().esp == 1


def test_what_came_too_late_is_not_made_worse() -> None:
    """The floor can no longer be kept in full; the group gets all it can, and nothing raises."""
    rng = np.random.default_rng(5)
    catalog = Catalog(rng.normal(size=(40, 8)), ["a" if row % 4 else "rare" for row in range(40)])
    index = Patchy(catalog)
    retriever = FairRetriever(catalog, k=5, floors={"rare": 250}, horizon=100, index=index)
    index.down = {0}
    retriever.retrieve(rng.normal(size=(60, 8)))
    index.down = set()
    retriever.retrieve(rng.normal(size=(40, 8)))
    assert retriever.report().exposures["rare"] == 40 * 5
    assert retriever.report().esp == 0
    retriever.retrieve(rng.normal(size=(100, 8)))
    assert retriever.report().esp == 1, "the next horizon is as it should be"


def test_a_changed_catalog_says_so_too() -> None:
    catalog = Catalog(np.random.default_rng(0).normal(size=(24, 4)), ["a", "b", "c"] * 8)
    index, change = Patchy(catalog), remove_items(catalog, [0, 1, 5])
    over = Overlay(index, change.rows, catalog.group_sizes, change.catalog)
    users = np.random.default_rng(1).normal(size=(3, 1, 4))
    assert over.search(users, None, 5).reached is None
    index.down = {1}
    hits = over.search(users, None, 5)
    assert hits.reached is not None
    alive = [row for row in range(24) if row % 4 != 1 and row not in (0, 1, 5)]
    true = np.bincount(catalog.group_of[alive], minlength=3)
    assert (hits.reached <= true).all()
    assert hits.reached.sum() >= len(alive) - 3
