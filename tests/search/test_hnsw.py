import numpy as np
import numpy.typing as npt
import pytest

from fairsync.catalog import Catalog
from fairsync.errors import InvalidInputError
from fairsync.search import HnswIndex
from search.approximate import assert_honest, make_case, recall

SOME_PRICES = np.array([0.0, -0.8, 0.4, -0.2, -1.5, 0.0])


@pytest.fixture(scope="module")
def case() -> tuple[Catalog, npt.NDArray[np.float64], HnswIndex]:
    catalog, users = make_case(0, n=6000, dim=16, users=200)
    return catalog, users, HnswIndex(catalog, recall=0.95, exact_below=0).tune(users)


@pytest.mark.parametrize("prices", [None, SOME_PRICES, 10 * SOME_PRICES])
@pytest.mark.parametrize("k", [1, 10, 50])
def test_the_recall_asked_for_is_reached_with_and_without_prices(
    case: tuple[Catalog, npt.NDArray[np.float64], HnswIndex], prices: npt.NDArray[np.float64] | None, k: int
) -> None:
    catalog, users, index = case
    hits = assert_honest(index, catalog, users, prices, k)
    assert recall(hits, catalog, users, prices, k) >= 0.93


@pytest.mark.parametrize("k", [7, 500, 6000, 6100])
def test_the_answer_is_as_long_as_it_can_be(case: tuple[Catalog, npt.NDArray[np.float64], HnswIndex], k: int) -> None:
    catalog, users, index = case
    users = users[:4].copy()
    users[1] = 0.0
    for closed in ([], [0], [0, 1, 2, 4, 5], [0, 1, 2, 3, 4, 5]):
        prices = np.where(np.isin(np.arange(6), closed), np.inf, SOME_PRICES)
        assert_honest(index, catalog, users, prices, k)


def test_more_recall_is_a_broader_search() -> None:
    catalog, _ = make_case(1, n=6000, dim=16)
    assert HnswIndex(catalog, 0.8, exact_below=0).breadth < HnswIndex(catalog, 0.999, exact_below=0).breadth


def test_recall_has_limits() -> None:
    with pytest.raises(InvalidInputError, match="exact"):
        HnswIndex(make_case(2, n=50)[0], recall=0.0)
