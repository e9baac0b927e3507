"""The feasibility condition of requirements against a linear program."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fairsync.schedule.allocation import deliverable
from fairsync.schedule.requirements import Requirements
from schedule.linear_program import can_deliver, requirements_cases


def is_feasible(requirements: Requirements) -> bool:
    alone = (
        requirements.missing
        <= requirements.capacities[requirements.group] * requirements.requests[requirements.deadline]
    )
    return bool(alone.all() and (requirements.slack() >= 0).all())


@settings(max_examples=50)
@given(requirements_cases())
def test_the_condition_equals_the_linear_program(requirements: Requirements) -> None:
    assert is_feasible(requirements) == can_deliver(requirements)


@settings(max_examples=50)
@given(requirements_cases(), st.lists(st.integers(0, 6), min_size=3, max_size=3))
def test_later_windows_need_slots_too(requirements: Requirements, hourly: list[int]) -> None:
    """Promises that recur in every block, beside those that were drawn."""
    groups, blocks = len(requirements.capacities), len(requirements.requests)
    floor = np.array(hourly[:groups])
    busier = replace(
        requirements,
        group=np.concatenate([np.arange(groups), requirements.group]),
        missing=np.concatenate([floor, requirements.missing]),
        floor=np.concatenate([floor, requirements.floor]),
        deadline=np.concatenate([np.zeros(groups, dtype=np.int64), requirements.deadline]),
        later_windows=np.concatenate([np.tile(np.arange(blocks), (groups, 1)), requirements.later_windows]),
    )
    if can_deliver(requirements, every_block=floor):
        assert is_feasible(busier)
        assert (deliverable(busier) == busier.missing).all()
