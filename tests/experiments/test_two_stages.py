"""The oracle of stage 2 against trying everything, and against a linear program."""

from collections.abc import Callable
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

from experiments.conftest import run_work
from fairsync import Catalog, FairRetriever, InvalidInputError
from fairsync.experiments import two_stages
from fairsync.experiments.experiment import Lab
from fairsync.experiments.two_stages import EXPERIMENT, Regulated, best_minimum


def by_trying(groups: NDArray[np.int64], n_groups: int, shown: int) -> int:
    choices = [list(combinations(row, shown)) for row in groups.tolist()]
    return max(int(np.bincount(np.ravel(plan), minlength=n_groups).min()) for plan in product(*choices))


def by_program(groups: NDArray[np.integer[Any]], n_groups: int, shown: int) -> int:
    """Maximise m: a variable for each request and group, at most what it offers, and m itself."""
    n = len(groups)
    offered = np.stack([np.bincount(row, minlength=n_groups) for row in groups])
    limits = np.zeros((n + n_groups, n * n_groups + 1))
    for request, group in np.ndindex(n, n_groups):
        limits[request, request * n_groups + group] = 1
        limits[n + group, request * n_groups + group] = -1
    limits[n:, -1] = 1
    most = np.concatenate([np.full(n, shown), np.zeros(n_groups)])
    bounds = [*((0, count) for count in offered.ravel()), (0, None)]
    found = linprog(np.append(np.zeros(n * n_groups), -1), A_ub=limits, b_ub=most, bounds=bounds)
    assert found.x is not None
    return int(np.floor(found.x[-1] + 1e-6))


@settings(deadline=None, max_examples=60)
@given(data=st.data(), n_groups=st.integers(1, 3), k=st.integers(1, 4), n=st.integers(1, 4))
def test_the_oracle_is_as_good_as_trying_everything(data: st.DataObject, n_groups: int, k: int, n: int) -> None:
    row = st.lists(st.integers(0, n_groups - 1), min_size=k, max_size=k)
    groups = np.array(data.draw(st.lists(row, min_size=n, max_size=n)))
    shown = data.draw(st.integers(1, k))
    assert best_minimum(groups, n_groups, shown) == by_trying(groups, n_groups, shown)


@pytest.mark.parametrize("seed", range(4))
def test_the_oracle_is_as_good_as_a_linear_program(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = rng.choice(6, size=(60, 8), p=[0.5, 0.3, 0.1, 0.05, 0.03, 0.02])
    found = best_minimum(groups, 6, 3)
    assert found == by_program(groups, 6, 3)
    assert 0 < found < 60 * 3 // 6


def test_a_group_that_is_held_stops_at_its_target() -> None:
    """One request at a time, so that a group can pass its target by one list at most."""
    rng = np.random.default_rng(1)
    catalog = Catalog(rng.normal(size=(40, 4)), np.repeat(["a", "b", "c", "d"], 10))
    held = np.array([True, False, False, False])
    retriever = FairRetriever(catalog, k=5, floors=20, horizon=100, policy=Regulated(held), batch_size=1)
    retriever.retrieve(rng.normal(size=(100, 4)))
    exposures = retriever.report().exposures
    assert 20 <= exposures["a"] < 25
    assert min(exposures.values()) >= 20


def test_the_exhibit_shows_both_stages(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    run_work(EXPERIMENT, lab)
    exhibit = EXPERIMENT.show(lab)
    base = lab.trials.bases.get("svd", 0)
    for k, shown in ((5, 1), (10, 2)):
        rows = [row for row in exhibit.table.rows if row[0] == k]
        plain = FairRetriever(base.catalog, k=k, floors=0, horizon=30, policy="none").retrieve(base.test.users)
        groups = np.array([[base.catalog.code_of(label) for label in row] for row in plain.groups.tolist()])
        least = int(np.bincount(groups.ravel(), minlength=8).min())
        assert rows[0][1:6] == [shown, "none", least, by_program(groups, 8, shown), 30 * shown // 8]
        first, second = np.array([row[3:5] for row in rows[1:]]).T
        assert (second <= np.minimum(first, 30 * shown // 8)).all()
        assert [row[6] for row in rows] == [pytest.approx(np.corrcoef(first, second)[0, 1])] * len(rows)
        assert f"at K = {k}" in exhibit.words
    for _, _, target, first, *_ in exhibit.table.rows:
        assert target == "none" or int(str(first)) >= int(str(target))  # targets are reached

    monkeypatch.setattr(two_stages, "FairRetriever", None)  # from what is kept: nothing is retrieved again
    assert EXPERIMENT.show(lab) == exhibit


def test_lists_longer_than_what_may_be_shown_are_refused(make_lab: Callable[..., Lab], tmp_path: Any) -> None:
    lab = make_lab(tmp_path, ks=(90,), floor=1)
    with pytest.raises(InvalidInputError, match="K = 90"):
        EXPERIMENT.show(lab)
