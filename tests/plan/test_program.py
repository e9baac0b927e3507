"""The program of a plan, compared with every way to deal out the slots of small worlds."""

from dataclasses import replace
from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from effort import effort
from fairsync.catalog.atoms import Membership
from fairsync.plan import Demands, Program, least_shortfall
from fairsync.policies.base import NO_CAP


@st.composite
def small_programs(draw: st.DrawFn) -> Program:
    """Draw two segments, two atoms and a few demands on two selections, with too few slots more often than not."""
    membership = Membership.of([(0,), draw(st.sampled_from([(1,), (0, 1)]))], 2)
    k = draw(st.integers(1, 2))
    capacities = np.array([draw(st.integers(0, k)) for _ in range(2)])
    requests = np.array([draw(st.integers(0, 2)) for _ in range(2)])
    one = st.tuples(
        st.integers(0, 1), st.sampled_from([(0, 0), (0, 1), (1, 1)]), st.integers(0, 5), st.integers(0, 7),
        st.integers(1, 2),
    )  # fmt: skip
    drawn = draw(st.lists(one, min_size=1, max_size=4))
    at_most = [NO_CAP if most > 4 else most for _, _, _, most, _ in drawn]
    spans = np.array([span for _, span, _, _, _ in drawn])
    demands = Demands.of(
        [one[0] for one in drawn], spans[:, 0], spans[:, 1], [one[2] for one in drawn], at_most,
        [one[4] for one in drawn],
    )  # fmt: skip
    limits = draw(st.sampled_from([None, np.array([1, 2]), np.array([2, 1])]))
    return Program(membership, capacities, k, requests, demands, limits)


def every_plan(program: Program) -> list[np.ndarray]:
    """Return all (A, S) plans of whole numbers that keep every upper bound."""
    most = program.capacities[:, None] * program.requests
    found = []
    for numbers in product(*(range(one + 1) for one in most.ravel().tolist())):
        plan = np.array(numbers).reshape(most.shape)
        if (plan.sum(axis=0) > program.k * program.requests).any():
            continue
        exposures = np.array([program.membership.exposures(column) for column in plan.T]).T
        if program.list_limits is not None and (exposures > program.list_limits[:, None] * program.requests).any():
            continue
        if all(had(program, plan, d) <= program.demands.at_most[d] for d in range(len(program.demands))):
            found.append(plan)
    return found


def had(program: Program, plan: np.ndarray, demand: int) -> int:
    demands = program.demands
    inside = plan[:, demands.first[demand] : demands.last[demand] + 1].sum(axis=1)
    return int(program.membership.exposures(inside)[demands.selection[demand]])


def missed(program: Program, plan: np.ndarray) -> tuple[int, ...]:
    """Return the total shortfall of each priority."""
    short = [max(int(least) - had(program, plan, d), 0) for d, least in enumerate(program.demands.at_least)]
    return tuple(
        sum(one for one, which in zip(short, program.demands.priority, strict=True) if which == priority)
        for priority in (1, 2)
    )


@effort(80, 0.03)
@given(small_programs())
def test_no_way_to_deal_out_the_slots_misses_less(program: Program) -> None:
    best = min(missed(program, plan) for plan in every_plan(program))
    for is_whole in (False, True):
        solution = least_shortfall(program, is_whole=is_whole)
        totals = tuple(float(solution.shortfall[program.demands.priority == one].sum()) for one in (1, 2))
        if is_whole:
            assert missed(program, np.rint(solution.exposures).astype(int)) == best
        # In fractions less may be missed of the first priority, and then anything of the second.
        assert totals[0] <= best[0] + 1e-3
        assert np.allclose(totals, best, atol=1e-3) or totals[0] < best[0] - 0.1 or totals[1] < best[1] - 0.1


@effort(40, 0.03)
@given(small_programs(), st.integers(0, 3))
def test_a_spared_segment_has_what_would_be_missed_otherwise(program: Program, requests: int) -> None:
    demands = program.demands
    # One deadline, so that none is nearer than another; and one priority.
    last = np.full(len(demands), len(program.requests) - 1)
    single = replace(program, demands=replace(demands, first=0 * last, last=last, priority=0 * last + 1))
    longer = np.concatenate([[requests], program.requests])
    ahead = replace(single, requests=longer, demands=replace(single.demands, last=last + 1))
    spared = least_shortfall(replace(ahead, spares_first=True))
    assert np.isclose(spared.shortfall.sum(), least_shortfall(ahead).shortfall.sum(), atol=1e-3)
    missed_without = float(least_shortfall(single).shortfall.sum() - spared.shortfall.sum())
    used = float(spared.exposures[:, 0].sum())
    assert (used > 1e-3) == (missed_without > 1e-3)
    assert used <= missed_without + 1e-2 or len(demands) > 1  # one exposure may count for several


def test_nothing_is_demanded() -> None:
    none = Demands.of([], [], [], [])
    program = Program(Membership.of([(0,)], 1), np.ones(1, dtype=int), 1, np.array([3]), none)
    assert least_shortfall(program).exposures.tolist() == [[0.0]]
