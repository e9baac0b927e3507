"""The loop: equal to the plainest one, untouched by what goes wrong."""

import threading
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairsync.catalog import Catalog
from fairsync.errors import FairSyncError, InfeasibleFloorsError, InvalidInputError, UnknownGroupError
from fairsync.ledger import MemoryLedger
from fairsync.policies import Feedback, NoPolicy, Terms
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


def test_prices_change_every_batch_only() -> None:
    world = make_world(5, horizon=64, tightness=0.5)
    retriever = FairRetriever(
        world.catalog, k=world.k, floors=world.floors, horizon=64, policy="fairsync", batch_size=8
    )
    seen = []
    for user in world.users:
        retriever.retrieve(user[None])
        seen.append(tuple(retriever.report().prices.values()))
    # The price of a batch is made when its first request arrives.
    changes = [t for t in range(1, 64) if seen[t] != seen[t - 1]]
    assert changes == list(range(8, 64, 8))


def test_the_cost_is_what_plain_retrieval_would_have_had_more() -> None:
    world = make_world(6, groups=6, items=400, horizon=200, k=5, tightness=0.6, dim=8)
    plain = (
        FairRetriever(world.catalog, k=world.k, floors=0, horizon=200, policy="none")
        .retrieve(world.users)
        .relevance.sum()
    )
    retriever = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=200)
    given_up = plain - retriever.retrieve(world.users).relevance.sum()
    cost = retriever.report().cost
    assert cost is not None
    assert given_up <= cost + 1e-9 <= 1.05 * given_up + 1e-9


def test_a_cost_that_was_not_measured_is_not_zero() -> None:
    world = make_world(6, groups=6, items=400, horizon=200, k=5, tightness=0.6, dim=8)
    retriever = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=200, policy="fairsync")
    retriever.retrieve(world.users)
    assert retriever.report().cost is None


def test_calibration_counts_nothing_and_sets_prices() -> None:
    world = make_world(8, groups=5, items=200, horizon=300, k=5, tightness=0.7, dim=8)
    retriever = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=300)
    assert retriever.calibrate(world.users) is retriever
    report = retriever.report()
    assert report.requests == 0
    assert min(report.prices.values()) < 0
    with pytest.raises(InvalidInputError, match="nothing to calibrate"):
        FairRetriever(world.catalog, policy="none", k=2).calibrate(world.users)
    with pytest.raises(InvalidInputError, match="empty"):
        retriever.calibrate(world.users[:0])


@pytest.mark.parametrize("batch_size", [16, 200])
def test_it_goes_on_once_the_sample_is_full(batch_size: int) -> None:
    """More requests than the policy remembers, from the past and in the horizon; cut anywhere, as ever."""
    world = make_world(18, groups=6, items=500, horizon=2600, k=5, tightness=0.4, dim=8)

    def fresh() -> FairRetriever:
        retriever = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=2600, batch_size=batch_size)
        return retriever.calibrate(world.users)

    whole, parts = fresh(), fresh()
    expected = whole.retrieve(world.users)
    pieces = [parts.retrieve(part) for part in np.array_split(world.users, 171)]
    assert (np.concatenate([piece.ids for piece in pieces]) == expected.ids).all()
    assert whole.report().esp == 1.0


def test_a_new_horizon_starts_counting_anew_and_keeps_its_prices() -> None:
    world = make_world(9, groups=5, items=200, horizon=100, k=5, tightness=0.8, dim=8)
    retriever = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=100)
    retriever.retrieve(world.users)
    first = retriever.report()
    assert first.requests == 100  # the horizon that has just ended stays in view
    retriever.retrieve(world.users[:1])
    report = retriever.report()
    assert report.requests == 1
    assert sum(report.exposures.values()) == world.k
    assert report.completed == 1
    assert min(report.prices.values()) < 0  # a cold start would have none


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


class MasksAll(NoPolicy):
    name = "masks-all"

    def prices(self, state: int) -> Floats:
        return np.full(state, np.inf)


def test_a_policy_that_leaves_too_few_items_is_told() -> None:
    world = make_world(15)
    with pytest.raises(FairSyncError, match="fewer than k"):
        FairRetriever(world.catalog, k=world.k, floors=0, horizon=40, policy=MasksAll()).retrieve(world.users)


@pytest.fixture
def world() -> World:
    return make_world(16, groups=3, items=20, horizon=30, k=4)


@pytest.mark.parametrize(
    ("users", "message"),
    [
        (np.full((2, 5), np.nan), "request 0"),
        (np.array([[0.0] * 5, [0, 0, np.inf, 0, 0]]), "request 1"),
        (np.ones((2, 4)), "4 dimensions"),
        (np.ones(5), r"users\[None, :\]"),
        (np.ones((2, 0, 5)), "no interest"),
        (np.ones((1, 2, 3, 5)), "shape"),
        (np.array([["a"] * 5]), "float32"),
        ([[1.0, 2.0], [3.0]], "users"),
        (np.ones((2, 5), dtype=complex), "float32"),
        (np.full((2, 5), 3e307), "scale them"),
    ],
)
def test_bad_users_are_refused_and_nothing_is_counted(world: World, users: Any, message: str) -> None:
    retriever = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=world.horizon)
    retriever.retrieve(world.users[:5])
    before = retriever.report().to_dict()
    with pytest.raises(InvalidInputError, match=message):
        retriever.retrieve(users)
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


def test_unknown_groups_are_named(world: World) -> None:
    with pytest.raises(UnknownGroupError) as caught:
        FairRetriever(world.catalog, floors={0: 1, 9: 1, "0": 1})  # type: ignore[arg-type]
    assert caught.value.labels == (9, "0")


def test_floors_that_cannot_be_met_are_refused(world: World) -> None:
    sizes = world.catalog.group_sizes
    largest = 30 * min(4, int(sizes[1]))
    with pytest.raises(InfeasibleFloorsError, match="group 1") as one:
        FairRetriever(world.catalog, k=4, floors={1: largest + 1}, horizon=30)
    assert (one.value.group, one.value.floor, one.value.largest_feasible) == (1, largest + 1, largest)
    FairRetriever(world.catalog, k=4, floors={1: largest}, horizon=30)
    with pytest.raises(InfeasibleFloorsError, match="add up to 123") as total:
        FairRetriever(world.catalog, k=4, floors=41, horizon=30)
    assert (total.value.group, total.value.largest_feasible) == (None, 120)
    FairRetriever(world.catalog, k=4, floors=40, horizon=30)


def test_numpy_labels_are_as_good_as_pythons() -> None:
    catalog = Catalog(np.eye(3), np.array(["x", "y", "x"]))
    retriever = FairRetriever(catalog, k=1, floors={np.str_("y"): 1}, horizon=2)  # type: ignore[arg-type]
    assert retriever.report().floors == {"x": 0, "y": 1}


def test_terms_reach_the_policy() -> None:
    seen: list[tuple[Terms, Feedback]] = []

    class Spy(NoPolicy):
        def step(self, state: int, terms: Terms, feedback: Feedback) -> int:
            seen.append((terms, feedback))
            return state

    world = make_world(17, groups=2, items=20, horizon=10, k=2)
    FairRetriever(world.catalog, k=2, floors=world.floors, horizon=10, policy=Spy(), batch_size=4).retrieve(
        np.concatenate([world.users] * 2)
    )
    # Batches of 4, 4 and 2: a batch ends with its horizon.
    assert [feedback.requests for _, feedback in seen] == [4, 4, 2, 4, 4]
    assert [feedback.remaining for _, feedback in seen] == [6, 2, 10, 6, 2]
    assert [int(feedback.exposures.sum()) for _, feedback in seen] == [8, 16, 0, 8, 16]


def test_every_item_may_be_a_candidate() -> None:
    """With k = catalog size there is nothing to choose, nor to learn; horizons of one request roll over."""
    catalog = Catalog(np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) % 5)
    users = np.random.default_rng(1).normal(size=(40, 4))
    for horizon in (40, 1):
        retriever = FairRetriever(catalog, k=30, floors=horizon * 6, horizon=horizon)
        assert retriever.retrieve(users).ids.shape == (40, 30)
        assert retriever.report().esp == 1.0


@pytest.mark.parametrize("at", [5, 2400, 2405, 2416, 2431])
def test_calibration_may_come_at_any_time(at: int) -> None:
    world = make_world(19, groups=6, items=300, horizon=3000, k=5, tightness=0.4, dim=8)
    retriever = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=3000)
    retriever.retrieve(world.users[:at])
    retriever.calibrate(world.users[:100])
    retriever.retrieve(world.users[at:])
    assert retriever.report().esp == 1.0


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12, 1e30, 1e100])
def test_scores_of_any_size_will_do(scale: float) -> None:
    world = make_world(20, horizon=80, tightness=0.8)
    catalog = Catalog(world.catalog.embeddings * scale, world.catalog.group_of)
    retriever = FairRetriever(catalog, k=world.k, floors=world.floors, horizon=80, batch_size=8)
    retriever.retrieve(world.users)
    assert retriever.report().esp == 1.0


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


def test_a_ledger_that_does_not_fit_is_refused() -> None:
    world = make_world(24, groups=3, horizon=40, tightness=0.9)
    ledger = MemoryLedger(3)
    FairRetriever(world.catalog, k=world.k, floors=0, horizon=40, policy="none", ledger=ledger).retrieve(
        world.users[:39]
    )
    with pytest.raises(InvalidInputError, match="new ledger"):
        FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=40, ledger=ledger)
    with pytest.raises(InvalidInputError, match="new ledger"):
        FairRetriever(world.catalog, k=world.k, floors=0, horizon=30, ledger=ledger)
    with pytest.raises(InvalidInputError, match="another catalog"):
        FairRetriever(world.catalog, k=world.k, floors=0, horizon=40, ledger=MemoryLedger(2))
    resumed = FairRetriever(world.catalog, k=world.k, floors=1, horizon=40, ledger=ledger)
    resumed.retrieve(world.users[39:])
    assert resumed.report().requests == 40


def test_an_index_of_another_catalog_is_refused() -> None:
    world = make_world(25)
    other = make_index("exact", make_world(26).catalog)
    with pytest.raises(InvalidInputError, match="very catalog"):
        FairRetriever(world.catalog, k=world.k, index=other)


class Forgetful:
    """An index that never finds anything of group 0 once it is asked for it alone."""

    applies_prices = "bias"

    def __init__(self, catalog: Catalog) -> None:
        self.index = make_index("exact", catalog)

    def search(self, users: npt.NDArray[Any], prices: Floats | None, k: int) -> Hits:
        if prices is not None and np.isinf(prices).any():
            return Hits.empty(len(users), k)
        return self.index.search(users, prices, k)


def test_an_index_that_loses_items_is_told() -> None:
    world = make_world(27, horizon=20, tightness=1.0)
    retriever = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=20, index=Forgetful(world.catalog))
    with pytest.raises(FairSyncError, match="too few items"):
        retriever.retrieve(world.users)
