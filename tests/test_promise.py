"""The promise: whatever comes, every group has at least its floor when the horizon ends."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairsync.retriever import FairRetriever
from worlds import World, make_world

worlds = st.builds(
    make_world,
    seed=st.integers(0, 2**32 - 1),
    groups=st.integers(1, 8),
    items=st.integers(1, 40),
    horizon=st.integers(1, 60),
    k=st.integers(1, 9),
    tightness=st.sampled_from([0.01, 0.3, 0.7, 0.9, 0.99, 1.0]),
    even=st.booleans(),
    order=st.sampled_from(["random", "first", "last"]),
    scale=st.sampled_from([1e-3, 1.0, 1e3]),
    interests=st.integers(1, 3),
    dim=st.integers(1, 6),
)
batch_sizes = st.sampled_from([1, 2, 3, 7, 16, 64, 512])


def assert_kept(world: World, retriever: FairRetriever) -> None:
    found = retriever.retrieve(world.users)
    report = retriever.report()
    assert all(report.exposures[group] >= floor for group, floor in world.floors.items())
    assert report.esp == 1.0
    # Exposures are those of the lists that were returned: k different items each.
    groups, counts = np.unique(found.groups, return_counts=True)
    assert {g: c for g, c in report.exposures.items() if c} == dict(zip(groups.tolist(), counts.tolist(), strict=True))
    assert all(len(set(row)) == world.k for row in found.ids.tolist())
    assert (np.diff(found.relevance, axis=1) <= 0).all()


@given(world=worlds, batch_size=batch_sizes)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_feasible_world_breaks_it(world: World, batch_size: int) -> None:
    retriever = FairRetriever(
        world.catalog, k=world.k, floors=world.floors, horizon=world.horizon, batch_size=batch_size
    )
    assert_kept(world, retriever)


@given(world=worlds, batch_size=batch_sizes, other=st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_nor_does_misleading_calibration_or_a_second_horizon(world: World, batch_size: int, other: int) -> None:
    rng = np.random.default_rng(other)
    retriever = FairRetriever(
        world.catalog, k=world.k, floors=world.floors, horizon=world.horizon, batch_size=batch_size
    )
    retriever.calibrate(10 * rng.normal(size=world.users.shape))
    assert_kept(world, retriever)
    assert_kept(world, retriever)  # a second horizon: counts restart, prices continue
    assert retriever.report().completed == 1


@pytest.mark.parametrize("batch_size", [1, 16, 256, 512, 10_000])
@pytest.mark.parametrize("order", ["random", "first", "last"])
@pytest.mark.parametrize("tightness", [0.01, 0.5, 0.99])
def test_it_holds_on_a_stream_of_some_length(batch_size: int, order: str, tightness: float) -> None:
    world = make_world(7, groups=12, items=300, horizon=700, k=10, tightness=tightness, even=False, order=order, dim=8)
    assert_kept(
        world,
        FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=world.horizon, batch_size=batch_size),
    )


def test_a_policy_without_a_guard_does_break_it() -> None:
    """The test above could fail: here is a world in which plain retrieval and the paper's method miss floors."""
    world = make_world(7, groups=12, items=300, horizon=700, k=10, tightness=0.9, dim=8)
    for policy in ("none", "fairsync"):
        retriever = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=world.horizon, policy=policy)
        retriever.retrieve(world.users)
        assert retriever.report().esp < 1.0


def test_with_fewer_requests_than_the_horizon_the_report_says_what_is_missing() -> None:
    world = make_world(3, groups=3, horizon=40, tightness=0.9)
    retriever = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=400)
    retriever.retrieve(world.users)
    report = retriever.report()
    assert report.requests == 40
    assert report.horizon == 400
    assert report.missing == {g: max(0, floor - report.exposures[g]) for g, floor in world.floors.items()}
