"""Several front ends under any order of calls: other numbers of candidates, and items that change in each of them."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from effort import effort
from fairsync.catalog import Catalog
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.promises.floors import can_be_met
from worlds import make_world

DIM = 5


def check_answer(front: FrontEnd, users: Any, ids: Any, groups: Any, relevance: Any) -> None:
    """Compare an answer with the items that the front end has."""
    rows = front.catalog.rows_of(ids)
    assert (rows >= 0).all(), "an item that is not there"
    assert front.catalog.labels_of(front.catalog.group_of[rows]).tolist() == groups.tolist()
    assert all(len(set(row)) == ids.shape[1] for row in ids.tolist())
    exact = np.einsum("nd,nkd->nk", users, front.catalog.embeddings[rows])
    np.testing.assert_allclose(relevance, exact, rtol=1e-6, atol=1e-9)


@given(
    seed=st.integers(0, 2**32 - 1),
    fronts=st.integers(1, 3),
    calls=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9), st.integers(1, 12)), min_size=1, max_size=25),
    tightness=st.sampled_from([0.3, 0.9, 1.0]),
    batch_size=st.sampled_from([1, 3, 16]),
    index=st.sampled_from(["exact", "one-hot"]),
)
@effort(examples=40, seconds_each=0.1)
def test_k_may_change_with_every_call(
    seed: int, fronts: int, calls: list[tuple[int, int, int]], tightness: float, batch_size: int, index: str
) -> None:
    """Floors are kept if the requests that are left can do it, each with at least the promised number of candidates."""
    world = make_world(seed, items=60, horizon=60, k=4, tightness=tightness)
    coordinator = Coordinator(world.catalog, k=4, floors=world.floors, horizon=60, batch_size=batch_size)
    ends = [FrontEnd(world.catalog, coordinator, index=index) for _ in range(fronts)]
    returned: Counter[Any] = Counter()
    start, certain = 0, True
    for which, n, k in [*calls, (0, 60, 4)]:
        users = world.users[start : start + n]
        if not len(users):
            break
        if k < 4:  # the promise cannot count on later requests any more
            certain = False
        elif not certain:
            missing = np.array([max(floor - returned[label], 0) for label, floor in world.floors.items()])
            certain = can_be_met(missing, 60 - start, coordinator.terms)
        front = ends[which % fronts]
        found = front.retrieve(users, k=k)
        assert found.ids.shape == (len(users), k)
        check_answer(front, users, found.ids, found.groups, found.relevance)
        returned.update(found.groups.ravel().tolist())
        start += len(users)
    report = coordinator.report()
    assert report.requests == 60
    assert report.exposures == {label: returned[label] for label in world.catalog.labels}
    if certain:
        assert all(returned[label] >= floor for label, floor in world.floors.items())


class Shop:
    """A front end whose items change, so that every group keeps at least k items."""

    def __init__(self, front: FrontEnd, k: int, rng: np.random.Generator) -> None:
        self.front, self.k, self.rng, self.added = front, k, rng, 0

    def change(self, how: str) -> None:
        catalog, rng = self.front.catalog, self.rng
        spare = np.flatnonzero(catalog.group_sizes[catalog.group_of] > self.k)
        label = catalog.labels[int(rng.integers(catalog.n_groups))]
        if how == "add":
            ids = [10_000 + self.added, 10_001 + self.added]
            self.added += 2
            self.front.upsert(3 * rng.normal(size=(2, DIM)), [label, label], ids)
        elif how == "re-embed":
            row = int(rng.integers(len(catalog)))
            own = catalog.labels[int(catalog.group_of[row])]
            self.front.upsert(rng.normal(size=(1, DIM)), [own], catalog.ids[[row]])
        elif how == "replace":
            labels = catalog.labels_of(catalog.group_of)
            self.front.replace(Catalog(rng.normal(size=catalog.embeddings.shape), labels, catalog.ids))
        elif len(spare):
            row = int(rng.choice(spare))
            if how == "move":
                self.front.upsert(catalog.embeddings[[row]], [label], catalog.ids[[row]])
            else:
                self.front.remove(catalog.ids[[row]])


CHANGES = st.sampled_from(["add", "remove", "move", "re-embed", "replace"])


@given(
    seed=st.integers(0, 2**32 - 1),
    fronts=st.integers(1, 3),
    steps=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9) | CHANGES), max_size=40),
    tightness=st.sampled_from([0.3, 0.9, 1.0]),
    batch_size=st.sampled_from([1, 3, 16]),
)
@effort(examples=40, seconds_each=0.1)
def test_items_may_change_in_each_front_end(
    seed: int, fronts: int, steps: list[tuple[int, int | str]], tightness: float, batch_size: int
) -> None:
    """Every floor is kept while all groups stay large enough, whichever items each front end has."""
    world, rng = make_world(seed, items=60, horizon=60, k=3, tightness=tightness), np.random.default_rng(seed)
    coordinator = Coordinator(world.catalog, k=3, floors=world.floors, horizon=60, batch_size=batch_size)
    shops = [Shop(FrontEnd(world.catalog, coordinator), 3, rng) for _ in range(fronts)]
    returned: Counter[Any] = Counter()
    start = 0
    for which, what in [*steps, (0, 60)]:
        shop, users = shops[which % fronts], world.users[start : start + (what if isinstance(what, int) else 0)]
        if isinstance(what, str):
            shop.change(what)
        elif len(users):
            found = shop.front.retrieve(users)
            check_answer(shop.front, users, found.ids, found.groups, found.relevance)
            returned.update(found.groups.ravel().tolist())
            start += len(users)
    report = coordinator.report()
    assert report.exposures == {label: returned[label] for label in world.catalog.labels}
    assert report.requests == 60
    capacities = np.minimum(world.catalog.group_sizes, 3)
    if (capacities == 3).all():
        assert all(returned[label] >= floor for label, floor in world.floors.items())


@given(
    seed=st.integers(0, 2**32 - 1),
    fronts=st.integers(2, 4),
    e=st.integers(0, 6),
    batch_size=st.sampled_from([1, 3, 16]),
    k=st.integers(1, 4),
    neediest=st.booleans(),
)
@effort(examples=25, seconds_each=0.3)
def test_floors_hold_at_the_very_edge_whatever_up_to_e_items_are_excluded(
    seed: int, fronts: int, e: int, batch_size: int, k: int, neediest: bool
) -> None:
    """Front ends answer side by side, and each request excludes e items of the group that misses most, or any."""
    horizon, rng = 48, np.random.default_rng(seed)
    world = make_world(seed, groups=int(rng.integers(1, 5)), items=int(rng.integers(k + e + 1, 30)), horizon=horizon)
    catalog = world.catalog
    capacities = np.minimum(np.maximum(catalog.group_sizes - e, 0), k)
    floors, slots = np.zeros(catalog.n_groups, dtype=int), horizon * k
    for code in rng.permutation(catalog.n_groups):
        floors[code] = min(horizon * capacities[code], slots)
        slots -= floors[code]
    coordinator = Coordinator(
        catalog, k=k, floors=dict(enumerate(floors.tolist())), horizon=horizon, batch_size=batch_size, max_exclude=e
    )
    assert coordinator.terms.capacities.tolist() == capacities.tolist()
    ends = [FrontEnd(catalog, coordinator) for _ in range(fronts)]
    parts = np.array_split(rng.permutation(horizon), fronts)

    def work(front: FrontEnd, mine: Any, rng: np.random.Generator) -> Counter[Any]:
        returned: Counter[Any] = Counter()
        while len(mine):
            here, mine = np.split(mine, [int(rng.integers(1, 4))])
            code = int(np.argmax(floors - coordinator.totals().exposures))
            rows = np.flatnonzero(catalog.group_of == code) if neediest else np.arange(len(catalog))
            excluded = [rng.permutation(rows)[:e].tolist() for _ in here]
            found = front.retrieve(world.users[here], exclude=excluded)
            assert not found.short.any()
            for ids, left_out in zip(found.ids.tolist(), excluded, strict=True):
                assert not set(ids) & set(left_out)
            returned.update(found.groups.ravel().tolist())
        return returned

    with ThreadPoolExecutor(fronts) as pool:
        seeds = [np.random.default_rng([seed, i]) for i in range(fronts)]
        returned = sum(pool.map(work, ends, parts, seeds), Counter[Any]())
    report = coordinator.report()
    assert report.exposures == {label: returned[label] for label in catalog.labels}
    assert all(returned[code] >= floor for code, floor in enumerate(floors.tolist()))
    assert sum(front.limited_requests for front in ends) == 0
