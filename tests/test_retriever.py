"""The retriever: equal to the plainest loop, and unchanged by calls that fail."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairsync.catalog import Catalog
from fairsync.errors import FairSyncError, InvalidInputError
from fairsync.policies import NoPolicy
from fairsync.policies.base import Floats
from fairsync.retriever import FairRetriever
from fairsync.search import Hits, make_index
from plain_loop import PlainLoop
from worlds import World, make_world


@given(
    seed=st.integers(0, 2**32 - 1),
    policy=st.sampled_from(["none", "fairsync", "guaranteed"]),
    batch_size=st.sampled_from([1, 4, 9, 64]),
    tightness=st.sampled_from([0.1, 0.6, 0.95, 1.0]),
    order=st.sampled_from(["random", "first", "last"]),
    interests=st.integers(1, 2),
    index=st.sampled_from(["exact", "one-hot"]),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_it_equals_the_plainest_loop(
    seed: int, policy: str, batch_size: int, tightness: float, order: str, interests: int, index: str
) -> None:
    world = make_world(seed, items=25, horizon=20, k=3, tightness=tightness, order=order, interests=interests)
    retriever = FairRetriever(
        world.catalog, k=world.k, floors=world.floors, horizon=20, policy=policy, batch_size=batch_size, index=index
    )
    users = np.concatenate([world.users, world.users[:7]])  # into the next horizon
    found = retriever.retrieve(users)
    assert found.ids.tolist() == PlainLoop(world.catalog, retriever.terms, policy).retrieve(users)


def test_the_public_face() -> None:
    rng = np.random.default_rng(0)
    ids = [f"item-{i}" for i in range(50)]
    groups = np.array(["a", "b"])[rng.integers(2, size=50)]
    catalog = Catalog(rng.normal(size=(50, 4)).astype(np.float16), groups, ids)
    retriever = FairRetriever(catalog, k=5, floors={"a": 10}, horizon=8)
    users = rng.normal(size=(8, 4)).astype(np.float32)
    found = retriever.retrieve(users)
    assert found.ids.shape == found.groups.shape == found.relevance.shape == (8, 5)
    group_of = dict(zip(ids, groups.tolist(), strict=True))
    assert [[group_of[i] for i in row] for row in found.ids.tolist()] == found.groups.tolist()
    row = {item: i for i, item in enumerate(ids)}
    exact = [[float(users[t] @ catalog.embeddings[row[i]]) for i in found.ids[t]] for t in range(8)]
    assert found.relevance == pytest.approx(np.array(exact), rel=1e-3)
    report = retriever.report()
    assert report.relevance == pytest.approx(found.relevance.sum())
    assert report.satisfied == {"a": report.exposures["a"] >= 10, "b": True}


class Breaking:
    """An index whose server dies at the third search."""

    applies_prices = "bias"

    def __init__(self, catalog: Catalog) -> None:
        self.index, self.calls, self.dead = make_index("exact", catalog), 0, True

    def search(self, users: npt.NDArray[Any], prices: Floats | None, k: int) -> Hits:
        self.calls += 1
        if self.dead and self.calls == 3:
            raise ConnectionError("shard 3 is gone")
        return self.index.search(users, prices, k)


def test_a_call_that_fails_leaves_no_trace() -> None:
    world = make_world(10, horizon=60, tightness=0.8)
    index = Breaking(world.catalog)
    retriever = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=60, batch_size=8, index=index)
    before = retriever.report().to_dict()
    with pytest.raises(ConnectionError):
        retriever.retrieve(world.users)
    assert retriever.report().to_dict() == before
    index.dead = False
    expected = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=60, batch_size=8).retrieve(
        world.users
    )
    assert (retriever.retrieve(world.users).ids == expected.ids).all()


def test_threads_may_share_a_retriever() -> None:
    world = make_world(14, horizon=200, tightness=0.9)
    retriever = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=200)
    threads = [threading.Thread(target=retriever.retrieve, args=(part,)) for part in np.split(world.users, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    report = retriever.report()
    assert report.requests == 200
    assert report.esp == 1.0


@pytest.fixture
def world() -> World:
    return make_world(16, groups=3, items=20, horizon=30, k=4)


def test_bad_users_are_refused_and_nothing_is_counted(world: World) -> None:
    retriever = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=world.horizon)
    retriever.retrieve(world.users[:5])
    before = retriever.report().to_dict()
    with pytest.raises(InvalidInputError, match="request 7"):
        retriever.retrieve(np.where(np.arange(30)[:, None] == 7, np.nan, world.users))
    assert retriever.report().to_dict() == before


def test_no_users_no_candidates(world: World) -> None:
    found = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=world.horizon).retrieve(
        np.empty((0, 5))
    )
    assert found.ids.shape == (0, world.k)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 21}, "only 20 items"),
        ({"k": 0}, "k must"),
        ({"k": 2.5}, "k must"),
        ({"k": True}, "k must"),
        ({"horizon": 0}, "horizon must"),
        ({"batch_size": -1}, "batch_size must"),
        ({"floors": -1}, "0 or more"),
        ({"floors": 1.5}, "whole number"),
        ({"floors": {0: None}}, "group 0"),
        ({"policy": "fair"}, "no policy 'fair'"),
        ({"index": "hsnw"}, "hsnw"),
        ({"index": 7}, "index"),
        ({"policy": None}, "policy must be"),
        ({"policy": NoPolicy}, "policy must be"),
        ({"horizon": 10**19}, "more than can be counted"),
    ],
)
def test_bad_settings_are_refused(world: World, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        FairRetriever(world.catalog, **arguments)


def test_every_item_may_be_a_candidate() -> None:
    """With k = catalog size there is nothing to choose, nor to learn; horizons of one request roll over."""
    catalog = Catalog(np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) % 5)
    users = np.random.default_rng(1).normal(size=(40, 4))
    for horizon in (40, 1):
        retriever = FairRetriever(catalog, k=30, floors=horizon * 6, horizon=horizon)
        assert retriever.retrieve(users).ids.shape == (40, 30)
        assert retriever.report().esp == 1.0


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12, 1e30])
def test_scores_of_any_size_will_do(scale: float) -> None:
    world = make_world(20, horizon=80, tightness=0.8)
    catalog = Catalog(world.catalog.embeddings * scale, world.catalog.group_of)
    retriever = FairRetriever(catalog, k=world.k, floors=world.floors, horizon=80, batch_size=8)
    retriever.retrieve(world.users)
    assert retriever.report().esp == 1.0


def test_sums_of_the_largest_vectors_are_numbers(tmp_path: Path) -> None:
    world, largest = make_world(20, horizon=80, tightness=0.8), 1e38
    items, users = (
        np.clip(np.asarray(one) * largest, -largest, largest) for one in (world.catalog.embeddings, world.users)
    )
    catalog, url = Catalog(items, world.catalog.group_of), f"sqlite:///{tmp_path / 'a.db'}"
    relevance = 0.0
    for part in (users[:40], users[40:]):
        with FairRetriever(catalog, k=world.k, floors=world.floors, horizon=80, batch_size=8, ledger=url) as retriever:
            relevance += float(retriever.retrieve(part).relevance.sum())
            report = retriever.report()
    assert report.esp == 1.0
    assert report.relevance == pytest.approx(relevance)
    assert report.cost is not None
    assert 0 < report.cost < 1e100


def test_a_large_common_part_of_all_scores_changes_nothing_much() -> None:
    world = make_world(23, groups=6, items=300, horizon=500, k=5, tightness=0.5, dim=8)
    costs = []
    for offset in (0.0, 1e7):
        lifted = np.concatenate([world.catalog.embeddings, np.full((300, 1), offset)], axis=1)
        users = np.concatenate([world.users, np.ones((500, 1))], axis=1)
        retriever = FairRetriever(Catalog(lifted, world.catalog.group_of), k=5, floors=world.floors, horizon=500)
        retriever.retrieve(users)
        costs.append(retriever.report().cost)
    assert costs[1] == pytest.approx(costs[0], rel=0.05)


def test_an_index_of_another_catalog_is_refused() -> None:
    world = make_world(25)
    other = make_index("exact", make_world(26).catalog)
    with pytest.raises(InvalidInputError, match="another catalog than the one that is searched"):
        FairRetriever(world.catalog, k=world.k, index=other)


def test_a_condition_that_no_item_meets_says_which_label_was_meant() -> None:
    catalog = Catalog(np.eye(4), {"category": ["toys", "toys", "books", "books"]}, ids=["i1", "i2", "i3", "i4"])
    retriever = FairRetriever(catalog, k=2)
    with pytest.raises(InvalidInputError, match=r"no item meets .*: no item has 'toyz'.* Did you mean 'toys'\?"):
        retriever.retrieve(np.ones((1, 4)), where={"category": "toyz"})
    with pytest.raises(InvalidInputError, match="no item has the id 'i9'"):
        retriever.retrieve(np.ones((1, 4)), where={"id": "i9"})
    assert retriever.retrieve(np.ones((1, 4)), where={"category": ["toyz", "toys"]}).ids.tolist() == [["i1", "i2"]]
    assert retriever.retrieve(np.ones((1, 4)), where={"id": ["i4", "i2"]}).ids.tolist() == [["i2", "i4"]]


def test_a_second_retriever_of_this_process_is_told_to_close_the_first(tmp_path: Path) -> None:
    catalog, url = Catalog(np.eye(2), ["a", "b"]), f"sqlite:///{tmp_path / 'a.db'}"
    first = FairRetriever(catalog, k=1, floors=1, horizon=10, ledger=url)
    with pytest.raises(FairSyncError, match=r"is open in this process: call close\(\) on the retriever"):
        FairRetriever(catalog, k=1, floors=1, horizon=10, ledger=url)
    first.close()
    FairRetriever(catalog, k=1, floors=1, horizon=10, ledger=url).close()
