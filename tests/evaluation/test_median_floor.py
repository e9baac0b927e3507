"""The default floor of the demo is the median exposure of a group, capped at half of the largest feasible floor."""

import numpy as np
import pytest

from fairsync import Catalog
from fairsync.evaluation.median_floor import median_floor


@pytest.mark.parametrize("liked", [0.0, 1.5])
def test_it_is_the_median_and_at_most_half_of_the_largest_feasible(liked: float) -> None:
    rng = np.random.default_rng(1)
    bonus = np.repeat([[liked], [0.0]], [30, 60], axis=0)  # three of nine groups are liked more
    catalog = Catalog(rng.normal(size=(90, 4)) + bonus, np.repeat(np.arange(9), 10))
    past = rng.normal(1, 1, size=(200, 4))
    lists = np.argsort(-(past @ catalog.embeddings.T), axis=1)[:, :3]
    middle = np.median(np.bincount(catalog.group_of[lists].ravel(), minlength=9))
    half_of_all = 2000 * 3 // 9 // 2
    assert (10 * middle < half_of_all) == (liked > 0)
    assert median_floor(catalog, past.astype(np.float32), 3, 2000) == min(float(f"{10 * middle:.1g}"), half_of_all)
