"""Demands against a linear program, and the dealing out of slots against what it must and may do."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fairsync.windows.allot import allot, deliverable, split
from fairsync.windows.demand import Demand
from windows.flows import can_deliver, demands


def is_possible(demand: Demand) -> bool:
    alone = demand.missing <= demand.caps[demand.group] * demand.requests[demand.place]
    return bool(alone.all() and (demand.slack() >= 0).all())


@settings(max_examples=50)
@given(demands())
def test_the_condition_is_that_of_a_linear_program(demand: Demand) -> None:
    assert is_possible(demand) == can_deliver(demand)


@settings(max_examples=50)
@given(demands())
def test_all_that_can_be_delivered_is(demand: Demand) -> None:
    got = deliverable(demand)
    assert (got >= 0).all()
    assert (got <= demand.missing).all()
    assert (got == demand.missing).all() == can_deliver(demand)


@settings(max_examples=50)
@given(demands(tight=False), st.data())
def test_a_possible_demand_stays_possible_whatever_is_wanted_besides(demand: Demand, data: st.DataObject) -> None:
    if not can_deliver(demand):
        return
    wanted = np.array([data.draw(st.integers(0, int(missing))) for missing in demand.missing])
    given_ = allot(demand, wanted, int(demand.requests[0]))
    ending = demand.place == 0
    assert (given_[demand.group] >= demand.missing)[ending].all()
    if len(demand.requests) > 1:
        assert can_deliver(demand.after(given_))


@settings(max_examples=50)
@given(demands(), st.integers(0, 6))
def test_never_more_than_there_is_room_for(demand: Demand, requests: int) -> None:
    given_ = allot(demand, demand.missing, requests)
    assert (given_ >= 0).all()
    assert (given_ <= demand.caps * requests).all()
    assert given_.sum() <= requests * demand.k


@settings(max_examples=50)
@given(demands(), st.lists(st.integers(0, 6), min_size=3, max_size=3))
def test_later_windows_take_room_away(demand: Demand, hourly: list[int]) -> None:
    """Promises that recur in every block, beside those that were drawn."""
    groups, blocks = len(demand.caps), len(demand.requests)
    floor = np.array(hourly[:groups])
    busier = replace(
        demand,
        group=np.concatenate([np.arange(groups), demand.group]),
        missing=np.concatenate([floor, demand.missing]),
        floor=np.concatenate([floor, demand.floor]),
        place=np.concatenate([np.zeros(groups, dtype=np.int64), demand.place]),
        later=np.concatenate([np.tile(np.arange(blocks), (groups, 1)), demand.later]),
    )
    if can_deliver(demand, every_block=floor):
        assert is_possible(busier)
        assert (deliverable(busier) == busier.missing).all()


def test_scarce_slots_go_to_the_nearest_deadline_and_then_in_proportion() -> None:
    demand = Demand(
        group=np.array([0, 1, 2]), missing=np.array([30, 10, 100]), floor=np.array([30, 10, 100]),
        place=np.array([0, 0, 1]), later=np.zeros((3, 2), dtype=np.int64),
        requests=np.array([5, 6]), caps=np.array([4, 4, 4]), k=4,
    )  # fmt: skip
    # Group 0 could be shown 20 times at most, and there are 20 slots for 20 + 10.
    assert allot(demand, demand.missing, 5).tolist() == [13, 7, 0]
    assert allot(demand, demand.missing, 12).tolist() == [30, 10, 8]


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
