"""The feasibility of requirements by a linear program, to compare the closed form with."""

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from scipy.optimize import linprog

from fairsync.schedule.requirements import Requirements


def can_deliver(requirements: Requirements, every_block: npt.NDArray[np.int64] | None = None) -> bool:
    """Return whether some allocation delivers all missing exposures, and at least ``every_block`` in each block.

    Variables are the exposures of each group in each block of requests between two deadlines. The matrix is that of a
    network, so an integral solution exists if any does.
    """
    groups, blocks = len(requirements.capacities), np.diff(requirements.requests, prepend=0)
    rows, limits = [], []
    for s, requests in enumerate(blocks):  # slots
        row = np.zeros((groups, len(blocks)))
        row[:, s] = 1
        rows.append(row)
        limits.append(requests * requirements.k)
    for group, missing, deadline in zip(requirements.group, requirements.missing, requirements.deadline, strict=True):
        row = np.zeros((groups, len(blocks)))
        row[group, : deadline + 1] = -1
        rows.append(row)
        limits.append(-missing)
    least = np.zeros(groups, dtype=np.int64) if every_block is None else every_block
    most = [
        (low, cap * requests) for low, cap in zip(least, requirements.capacities, strict=True) for requests in blocks
    ]
    if any(low > high for low, high in most):
        return False
    found = linprog(np.zeros(groups * len(blocks)), np.array(rows).reshape(len(rows), -1), limits, bounds=most)
    return bool(found.status == 0)


@st.composite
def requirements_cases(draw: st.DrawFn, tight: bool = True) -> Requirements:
    """Draw requirements of a few promises that need about as many slots as there are."""
    k, groups = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    deadlines, promises = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    capacities = np.array(draw(st.lists(st.integers(0, k), min_size=groups, max_size=groups)))
    blocks = draw(st.lists(st.integers(0, 4), min_size=deadlines, max_size=deadlines))
    most = (8 if tight else 4) * k
    number = st.tuples(st.integers(0, groups - 1), st.integers(0, most), st.integers(0, deadlines - 1))
    drawn = np.array(draw(st.lists(number, min_size=promises, max_size=promises)))
    later = np.zeros((promises, deadlines), dtype=np.int64)
    return Requirements(drawn[:, 0], drawn[:, 1], drawn[:, 1], drawn[:, 2], later, np.cumsum(blocks), capacities, k)
