"""The solver of the dual: descent comes near, and linear programs settle the rest."""

import numpy as np
import pytest

from fairsync.hindsight.bound_rows import BoundRows
from fairsync.hindsight.dual import Pool, descend, polish
from hindsight.test_hindsight import make


def test_descent_comes_near_and_polish_settles() -> None:
    case = make(7, requests=400, items=50, groups=5, k=4, tight=0.9)
    pool = Pool(case.scores, np.tile(case.groups, (400, 1)), 4, *BoundRows.of_groups(case.floors))
    near = descend(pool, np.zeros(5), reach=100.0, near=20)
    lacking = np.maximum(case.floors - pool.exposures(pool.best(near).inside), 0)
    assert lacking.sum() <= 0.02 * case.floors.sum()
    settled = polish(pool, near, free=500)
    assert settled.final
    assert settled.short == 0
    assert pool.scores[settled.plan].sum() == pytest.approx(pool.best(settled.subsidies).value, rel=1e-12)


def test_polish_in_a_box_never_goes_up_and_arrives() -> None:
    case = make(8, requests=60, items=20, groups=4, k=3, tight=0.9)
    pool = Pool(case.scores, np.tile(case.groups, (60, 1)), 3, *BoundRows.of_groups(case.floors))
    subsidies, values = np.zeros(4), [np.inf]
    for _ in range(200):
        settled = polish(pool, subsidies, free=60)
        subsidies = settled.subsidies
        values.append(pool.best(subsidies).value)
        if settled.final:
            break
    assert settled.final
    assert (np.diff(values[1:]) <= 1e-9).all()
    assert values[-1] == pytest.approx(case.optimum(whole=True), rel=1e-9)
