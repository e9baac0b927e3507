"""Demands against a linear program, and the dealing out of slots against what it must and may do."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fairsync.schedule.allocation import allocate, deliverable, split
from fairsync.schedule.requirements import Requirements
from schedule.flows import can_deliver, demands


def is_possible(requirements: Requirements) -> bool:
    alone = requirements.missing <= requirements.caps[requirements.group] * requirements.requests[requirements.place]
    return bool(alone.all() and (requirements.slack() >= 0).all())


@settings(max_examples=50)
@given(demands())
def test_the_condition_is_that_of_a_linear_program(requirements: Requirements) -> None:
    assert is_possible(requirements) == can_deliver(requirements)


@settings(max_examples=50)
@given(demands())
def test_all_that_can_be_delivered_is(requirements: Requirements) -> None:
    got = deliverable(requirements)
    assert (got >= 0).all()
    assert (got <= requirements.missing).all()
    assert (got == requirements.missing).all() == can_deliver(requirements)


@settings(max_examples=50)
@given(demands(tight=False), st.data())
def test_a_possible_demand_stays_possible_whatever_is_wanted_besides(
    requirements: Requirements, data: st.DataObject
) -> None:
    if not can_deliver(requirements):
        return
    wanted = np.array([data.draw(st.integers(0, int(missing))) for missing in requirements.missing])
    given_ = allocate(requirements, wanted, int(requirements.requests[0]))
    ending = requirements.place == 0
    assert (given_[requirements.group] >= requirements.missing)[ending].all()
    if len(requirements.requests) > 1:
        assert can_deliver(requirements.after(given_))


@settings(max_examples=50)
@given(demands(), st.integers(0, 6))
def test_never_more_than_there_is_room_for(requirements: Requirements, requests: int) -> None:
    given_ = allocate(requirements, requirements.missing, requests)
    assert (given_ >= 0).all()
    assert (given_ <= requirements.caps * requests).all()
    assert given_.sum() <= requests * requirements.k


@settings(max_examples=50)
@given(demands(), st.lists(st.integers(0, 6), min_size=3, max_size=3))
def test_later_windows_take_room_away(requirements: Requirements, hourly: list[int]) -> None:
    """Promises that recur in every block, beside those that were drawn."""
    groups, blocks = len(requirements.caps), len(requirements.requests)
    floor = np.array(hourly[:groups])
    busier = replace(
        requirements,
        group=np.concatenate([np.arange(groups), requirements.group]),
        missing=np.concatenate([floor, requirements.missing]),
        floor=np.concatenate([floor, requirements.floor]),
        place=np.concatenate([np.zeros(groups, dtype=np.int64), requirements.place]),
        later=np.concatenate([np.tile(np.arange(blocks), (groups, 1)), requirements.later]),
    )
    if can_deliver(requirements, every_block=floor):
        assert is_possible(busier)
        assert (deliverable(busier) == busier.missing).all()


def test_scarce_slots_go_to_the_nearest_deadline_and_then_in_proportion() -> None:
    requirements = Requirements(
        group=np.array([0, 1, 2]), missing=np.array([30, 10, 100]), floor=np.array([30, 10, 100]),
        place=np.array([0, 0, 1]), later=np.zeros((3, 2), dtype=np.int64),
        requests=np.array([5, 6]), caps=np.array([4, 4, 4]), k=4,
    )  # fmt: skip
    # Group 0 could be shown 20 times at most, and there are 20 slots for 20 + 10.
    assert allocate(requirements, requirements.missing, 5).tolist() == [13, 7, 0]
    assert allocate(requirements, requirements.missing, 12).tolist() == [30, 10, 8]


@given(st.integers(0, 10**12), st.lists(st.integers(0, 10**12), min_size=1, max_size=20))
def test_splitting(total: int, weights: list[int]) -> None:
    shares = split(total, weights)
    whole = sum(weights)
    if whole == 0:
        assert shares == [0] * len(weights)
        return
    assert sum(shares) == total
    for share, weight in zip(shares, weights, strict=True):
        assert share * whole - total * weight < whole
        assert total * weight - share * whole < whole
