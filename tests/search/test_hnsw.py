"""The graph index: a higher recall needs a broader search."""

import numpy as np

from fairsync.search import ExactIndex, HnswIndex
from search.approximate import make_case


def test_more_recall_is_a_broader_search() -> None:
    catalog, _ = make_case(1, n=6000, dim=16)
    assert HnswIndex(catalog, 0.8, exact_below=0).breadth < HnswIndex(catalog, 0.999, exact_below=0).breadth


def test_one_interest_of_several_may_be_zero() -> None:
    """It scores every item 0, and no warning is given."""
    catalog, _ = make_case(2, n=3000, dim=8)
    users = np.random.default_rng(3).normal(size=(20, 3, 8))
    users[:, 1] = 0.0
    found = HnswIndex(catalog, exact_below=0).search(users, None, 5)
    best = ExactIndex(catalog).search(users, None, 5)
    assert np.isfinite(found.relevance).all()
    assert np.mean(found.rows == best.rows) > 0.8
