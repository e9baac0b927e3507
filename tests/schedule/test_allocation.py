"""Allocation delivers everything that is feasible, never exceeds the slots, and apportions scarce slots."""

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from fairsync.schedule.allocation import allocate, apportion, deliverable
from fairsync.schedule.requirements import Requirements
from schedule.linear_program import can_deliver, requirements_cases


@settings(max_examples=50)
@given(requirements_cases())
def test_everything_that_is_feasible_is_delivered(requirements: Requirements) -> None:
    got = deliverable(requirements)
    assert (got >= 0).all()
    assert (got <= requirements.missing).all()
    assert (got == requirements.missing).all() == can_deliver(requirements)


@settings(max_examples=50)
@given(requirements_cases(tight=False), st.data())
def test_feasible_requirements_stay_feasible_after_an_allocation(
    requirements: Requirements, data: st.DataObject
) -> None:
    if not can_deliver(requirements):
        return
    wanted = np.array([data.draw(st.integers(0, int(missing))) for missing in requirements.missing])
    given_ = allocate(requirements, wanted, int(requirements.requests[0]))
    ending = requirements.deadline == 0
    assert (given_[requirements.group] >= requirements.missing)[ending].all()
    if len(requirements.requests) > 1:
        assert can_deliver(requirements.after(given_))


@settings(max_examples=50)
@given(requirements_cases(), st.integers(0, 6))
def test_allocations_never_exceed_the_slots(requirements: Requirements, requests: int) -> None:
    given_ = allocate(requirements, requirements.missing, requests)
    assert (given_ >= 0).all()
    assert (given_ <= requirements.capacities * requests).all()
    assert given_.sum() <= requests * requirements.k


def test_scarce_slots_go_to_the_nearest_deadline_and_are_apportioned() -> None:
    requirements = Requirements(
        group=np.array([0, 1, 2]), missing=np.array([30, 10, 100]), floor=np.array([30, 10, 100]),
        deadline=np.array([0, 0, 1]), later_windows=np.zeros((3, 2), dtype=np.int64),
        requests=np.array([5, 6]), capacities=np.array([4, 4, 4]), k=4,
    )  # fmt: skip
    # Group 0 could be shown 20 times at most, and there are 20 slots for 20 + 10.
    assert allocate(requirements, requirements.missing, 5).tolist() == [13, 7, 0]
    assert allocate(requirements, requirements.missing, 12).tolist() == [30, 10, 8]


@given(st.integers(0, 10**12), st.lists(st.integers(0, 10**12), min_size=1, max_size=20))
def test_apportionment_by_largest_remainders(total: int, weights: list[int]) -> None:
    shares = apportion(total, weights)
    whole = sum(weights)
    if whole == 0:
        assert shares == [0] * len(weights)
        return
    assert sum(shares) == total
    for share, weight in zip(shares, weights, strict=True):
        assert share * whole - total * weight < whole
        assert total * weight - share * whole < whole


def allocate_one_by_one(requirements: Requirements, wanted: npt.NDArray[np.int64], requests: int) -> list[int]:
    """Allocate slots deadline by deadline, in plain Python."""
    allocated = [0] * len(requirements.capacities)
    deadlines = range(len(requirements.requests))

    def give(up_to: npt.NDArray[np.int64], extra: int | None = None) -> None:
        capacities = requirements.capacities.tolist()
        wish = [
            max(min(most, cap * requests) - has, 0)
            for most, cap, has in zip(up_to.tolist(), capacities, allocated, strict=True)
        ]
        total = min(sum(wish), requests * requirements.k - sum(allocated))
        for group, more in enumerate(apportion(total if extra is None else min(extra, total), wish)):
            allocated[group] += more

    mandatory = requirements.due_per_promise(0) + requirements.later_windows[:, 0] * requirements.floor
    give(requirements.reserved(0))
    for s in deadlines:
        give(requirements.per_group(np.where(requirements.deadline <= s, mandatory, 0)))
    for s in deadlines[1:]:
        due, after = requirements.due(s), int(requirements.requests[s] - requirements.requests[0]) * requirements.k
        useful = due - requirements.reserved(s)
        give(useful, max(int(due.sum()) - after - int(np.minimum(allocated, useful).sum()), 0))
    for s in deadlines:
        give(requirements.per_group(np.where(requirements.deadline <= s, wanted, 0)))
    return allocated


@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([3, 20, 200]), requests=st.integers(0, 100))
def test_slots_are_allocated_as_one_by_one(seed: int, scale: int, requests: int) -> None:
    rng = np.random.default_rng(seed)
    p, s, g, k = (int(rng.integers(1, most)) for most in (12, 7, 6, 6))
    later = np.sort(rng.integers(0, 3, (p, s)) * (rng.random((p, 1)) < 0.5), axis=1)
    requirements = Requirements(
        rng.integers(0, g, p), rng.integers(0, scale, p), rng.integers(0, scale, p), rng.integers(0, s, p), later,
        np.sort(rng.integers(0, int(rng.choice([5, 60, 600])), s)), rng.integers(0, k + 1, g), k, rng.random(g) < 0.5,
    )  # fmt: skip
    wanted = rng.integers(0, scale, p)
    assert allocate(requirements, wanted, requests).tolist() == allocate_one_by_one(requirements, wanted, requests)
