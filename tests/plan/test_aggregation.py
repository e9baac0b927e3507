"""A smaller program has the same solutions, and its plan can be divided among all selections."""

import time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from effort import effort
from fairsync.catalog.atoms import Membership
from fairsync.plan import Demands, Program, largest_value, least_shortfall
from fairsync.plan.aggregation import aggregate
from fairsync.plan.priorities import solve_phases
from fairsync.policies.base import NO_CAP

FAR = time.monotonic() + 10**6


def drawn_program(seed: int, *, spares_first: bool = False) -> Program:
    """Draw selections of which most share no item, with a few different windows; many slots are demanded."""
    rng = np.random.default_rng(seed)
    n, k, segments = int(rng.integers(3, 20)), int(rng.integers(1, 6)), int(rng.integers(1, 4))
    atoms: list[tuple[int, ...]] = [(one,) for one in range(n)]
    if rng.random() < 0.4:  # the last selection shares items with the first
        atoms.append((0, n - 1))
    capacities = rng.integers(0, k + 1, len(atoms))
    requests = rng.integers(0, 12, segments)
    windows = [sorted(rng.integers(0, segments, 2).tolist()) for _ in range(2)]
    rows = []
    for selection in range(n):
        first, last = windows[int(rng.integers(0, 2))]
        floor = int(rng.integers(0, 1 + max(2 * k * int(requests.sum()) // n, 1)))
        rows.append((selection, first, last, floor, NO_CAP, int(rng.integers(1, 3))))
        if last + 1 < segments and rng.random() < 0.5:  # and a later window
            rows.append((selection, last + 1, segments - 1, int(rng.integers(0, 9)), NO_CAP, rows[-1][-1]))
    if rng.random() < 0.3:
        rows[0] = (*rows[0][:4], rows[0][3] + 1, rows[0][5])
    limits = np.minimum(rng.integers(1, k + 3, n), k) if rng.random() < 0.3 else None
    columns = np.array(rows).T
    table = Membership.of(atoms, n)
    return Program(table, capacities, k, requests, Demands(*columns), limits, spares_first=spares_first)


def check_exposures(program: Program, exposures: np.ndarray) -> None:
    """Check the upper bounds."""
    requests = program.requests
    assert (exposures <= program.capacities[:, None] * requests + 1e-4).all()
    assert (exposures.sum(axis=0) <= program.k * requests + 1e-4).all()
    if program.list_limits is not None:
        assert (program.membership.matrix @ exposures <= program.list_limits[:, None] * requests + 1e-4).all()


@effort(60, 0.03)
@given(st.integers(0, 10**6), st.booleans())
def test_the_smaller_program_misses_as_much_and_its_plan_can_be_divided(seed: int, spares_first: bool) -> None:
    program = drawn_program(seed, spares_first=spares_first)
    smaller = aggregate(program)
    if smaller is None or not len(program.floors):
        return
    demands = program.demands
    whole = solve_phases(program, demands.at_least, FAR)
    found = solve_phases(smaller.program, smaller.largest, FAR)
    exposures, shortfall = smaller.exposures(found.exposures), smaller.shortfall(found.shortfall)
    check_exposures(program, exposures)
    if not spares_first:  # otherwise near deadlines weigh more, and the totals may differ
        for priority in (1, 2):
            own = demands.priority == priority
            assert np.isclose(whole.shortfall[own].sum(), shortfall[own].sum(), atol=1e-2)
    # What was divided delivers all but the shortfall, demand by demand of the smaller program.
    so_far = np.concatenate([np.zeros((len(exposures), 1)), np.cumsum(exposures, axis=1)], axis=1)
    by_selection = program.membership.matrix @ so_far
    had = by_selection[demands.selection, demands.last + 1] - by_selection[demands.selection, demands.first]
    missed = np.maximum(demands.at_least - had, 0.0)
    kept = smaller.demands >= 0
    totals = np.bincount(smaller.demands[kept], missed[kept], len(smaller.program.demands))
    assert (totals <= found.shortfall + 1e-2).all()
    assert (shortfall <= demands.at_least + 1e-6).all()


@effort(40, 0.03)
@given(st.integers(0, 10**6))
def test_the_largest_value_is_that_of_the_whole_program(seed: int) -> None:
    program = drawn_program(seed)
    times = (program.demands.selection == program.demands.selection[-1]).astype(np.float64)
    value = largest_value(program, times, np.zeros_like(times), most=200.0)

    def missed(value: float) -> np.ndarray:
        """Return by priority what all others miss, and then what the demand itself misses."""
        asked = np.where(times > 0, np.floor(value), program.demands.at_least).astype(np.int64)
        demands = Demands.of(
            program.demands.selection, program.demands.first, program.demands.last, asked, program.demands.at_most,
            np.where(times > 0, 3, program.demands.priority),
        )  # fmt: skip
        changed = Program(
            program.membership, program.capacities, program.k, program.requests, demands, program.list_limits
        )
        shortfall = solve_phases(changed, np.maximum(asked, 1), FAR).shortfall
        return np.bincount(demands.priority, shortfall, 4)

    assert missed(value + 1e-3)[3] <= 0.1
    if value < 199 and missed(0.0).sum() < 1e-3:  # otherwise others could miss as much in another way
        assert missed(value + 1.01)[3] > 1e-3


def test_ten_thousand_promises_are_a_few_demands() -> None:
    n = 10_000
    rng = np.random.default_rng(0)
    demands = Demands.of(np.arange(n), 0, rng.integers(0, 3, n), rng.integers(1, 50, n), priority=rng.integers(1, 3, n))
    table = Membership(n, np.arange(n), np.arange(n + 1))
    program = Program(table, rng.integers(1, 20, n), 20, np.array([1000, 2000, 5000]), demands)
    smaller = aggregate(program)
    assert smaller is not None
    assert len(smaller.program.demands) == 6
    shortfall = least_shortfall(program).shortfall
    missing = int(demands.at_least.sum()) - 20 * 8000
    assert shortfall.sum() >= missing - 1e-3
    assert np.count_nonzero(shortfall) < n / 2, "some are met in full"
