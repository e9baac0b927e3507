"""How much is read: more for more recall, less where subsidies narrow the choice."""

import numpy as np
import numpy.typing as npt
import pytest

from fairsync.catalog import Catalog
from fairsync.search import IvfIndex
from search.approximate import items_read, make_case, recall

SOME_PRICES = np.array([0.0, -0.8, 0.4, -0.2, -1.5, 0.0])


@pytest.fixture(scope="module")
def case() -> tuple[Catalog, npt.NDArray[np.float64], IvfIndex]:
    catalog, users = make_case(0, n=12_000, users=100)
    return catalog, users, IvfIndex(catalog, recall=0.9, exact_below=0)


def test_more_recall_is_more_reading() -> None:
    catalog, users = make_case(4, n=12_000, users=100)
    few, many = (IvfIndex(catalog, recall=share, exact_below=0) for share in (0.7, 0.98))
    assert items_read(few, users, None, 10) < items_read(many, users, None, 10)
    few_hits, many_hits = (index.search(users, None, 10) for index in (few, many))
    assert recall(few_hits, catalog, users, None, 10) < recall(many_hits, catalog, users, None, 10)


def test_subsidies_narrow_the_reading(case: tuple[Catalog, npt.NDArray[np.float64], IvfIndex]) -> None:
    _, users, index = case
    read = [items_read(index, users, prices, 50) for prices in (None, 4 * SOME_PRICES, 100 * SOME_PRICES)]
    assert read == sorted(read, reverse=True)
    assert read[2] < read[0] / 2
