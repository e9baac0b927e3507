"""What is special to the IVF index: reading, recall under prices, and answers of full length."""

import functools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairsync.catalog import Catalog
from fairsync.catalog.atoms import Atoms
from fairsync.data import synthetic
from fairsync.errors import InvalidInputError
from fairsync.search import ExactIndex, IvfIndex
from fairsync.search.inverted_lists import MIXED
from search.approximate import assert_honest, items_read, make_case, recall

SOME_PRICES = np.array([0.0, -0.8, 0.4, -0.2, -1.5, 0.0])


@pytest.fixture(scope="module")
def case() -> tuple[Catalog, npt.NDArray[np.float64], IvfIndex]:
    catalog, users = make_case(0, n=12_000, users=100)
    return catalog, users, IvfIndex(catalog, recall=0.9, exact_below=0)


@pytest.mark.parametrize("prices", [None, SOME_PRICES, 10 * SOME_PRICES])
def test_the_recall_asked_for_is_reached_with_and_without_prices(
    case: tuple[Catalog, npt.NDArray[np.float64], IvfIndex], prices: npt.NDArray[np.float64] | None
) -> None:
    catalog, users, index = case
    assert items_read(index, users, prices, 50) < 0.5
    for k in (10, 50, 150):
        hits = assert_honest(index, catalog, users, prices, k)
        assert recall(hits, catalog, users, prices, k) >= 0.88  # tuned on other vectors than these


def test_several_interests_count_with_the_best() -> None:
    catalog, users = make_case(6, interests=3)
    index = IvfIndex(catalog, recall=0.95, exact_below=0).tune(users)
    assert recall(assert_honest(index, catalog, users, SOME_PRICES, 20), catalog, users, SOME_PRICES, 20) >= 0.93


def test_a_subsidised_small_group_is_really_searched(
    case: tuple[Catalog, npt.NDArray[np.float64], IvfIndex],
) -> None:
    catalog, users, index = case
    prices = np.where(np.arange(6) == 5, -100.0, 0.0)
    hits = index.search(users, prices, 20)
    assert (catalog.group_of[hits.rows] == 5).all()
    assert recall(hits, catalog, users, prices, 20) >= 0.97


@functools.cache
def rough(seed: int) -> tuple[Catalog, npt.NDArray[np.float64], IvfIndex]:
    catalog, users = make_case(seed, users=3, interests=1 + seed % 2)
    users[1] *= seed > 1  # a user of zeros, half of the time
    return catalog, users, IvfIndex(catalog, recall=0.5, exact_below=0)


@settings(max_examples=60, deadline=None)
@given(
    open_=st.lists(st.booleans(), min_size=6, max_size=6),
    k=st.sampled_from([1, 7, 60, 500, 3999, 4000, 4100]),
    scale=st.sampled_from([1.0, 1e-30, 1e18]),
    seed=st.integers(0, 3),
)
def test_the_answer_is_as_long_as_it_can_be(open_: list[bool], k: int, scale: float, seed: int) -> None:
    catalog, users, index = rough(seed)
    prices = np.where(open_, SOME_PRICES, np.inf)
    assert_honest(index, catalog, users * scale, prices * scale, k)


def test_small_catalogs_deep_answers_and_few_eligible_items_are_exact() -> None:
    catalog, users = make_case(7)
    exact, index = ExactIndex(catalog), IvfIndex(catalog, recall=0.5, exact_below=0)
    assert items_read(index, users, None, 20) < 0.5
    small_group = np.where(np.arange(6) == 3, 0.0, np.inf)
    for prices, k in ((None, 3000), (small_group, 20)):
        assert (index.search(users, prices, k).rows == exact.search(users, prices, k).rows).all()
    assert IvfIndex(catalog).lists is None


def test_users_of_zeros_alone_and_no_users() -> None:
    catalog, _, index = rough(0)
    for users in (np.zeros((2, 1, 8)), np.zeros((0, 1, 8))):
        hits = assert_honest(index, catalog, users, SOME_PRICES, 20)
        assert (hits.rows == ExactIndex(catalog).search(users, SOME_PRICES, 20).rows).all()


def test_the_same_seed_gives_the_same_answer() -> None:
    catalog, users = make_case(8)
    first, second = (IvfIndex(catalog, recall=0.6, exact_below=0, seed=3).search(users, None, 20) for _ in range(2))
    assert (first.rows == second.rows).all()


def test_items_that_are_all_alike_or_zero() -> None:
    for value in (0.0, 1.0):
        catalog = Catalog(np.full((600, 4), value, dtype=np.float32), np.arange(600) % 3)
        assert_honest(IvfIndex(catalog, exact_below=0), catalog, np.ones((2, 1, 4)), np.array([0.1, 0.0, np.inf]), 30)


def test_invalid_arguments_are_refused() -> None:
    catalog, users = make_case(9, n=100)
    with pytest.raises(InvalidInputError, match="exact"):
        IvfIndex(catalog, recall=1.0)
    with pytest.raises(InvalidInputError, match="4-bit"):
        IvfIndex(catalog, storage="5-bit", exact_below=0)
    with pytest.raises(InvalidInputError, match="past request"):
        IvfIndex(catalog).tune(users[:0])


def test_where_lists_mix_groups_small_selections_with_subsidies_are_found() -> None:
    data = synthetic(24_000, 120, 64, 32, 3, n_past=256, largest_share=0.3, tail_exponent=1.0)
    provider = np.random.default_rng(3).integers(300, size=len(data.groups))
    rows = [
        np.flatnonzero(codes == at) for codes, count in ((data.groups, 120), (provider, 300)) for at in range(count)
    ]
    atoms = Atoms.of(rows, len(data.groups))
    catalog = atoms.catalog(Catalog(data.embeddings, data.groups))
    # As a policy prices: the smaller a category, the larger its subsidy; a little for providers.
    sizes = np.array([len(some) for some in rows])
    scale = float((data.users @ data.embeddings[:2000].T).std())
    price = np.where(np.arange(420) < 120, -scale * np.clip(np.log(sizes[20] / sizes), 0, 1.5), -0.05 * scale)
    prices = 3 * atoms.membership.atom_prices(price)
    index, users = IvfIndex(catalog, exact_below=0).tune(data.past_users), data.users[:, None]
    assert index.lists is not None
    assert index.lists.group_of[0] == MIXED
    assert catalog.rarity is not None
    hits = assert_honest(index, catalog, users, prices, 50)
    assert recall(hits, catalog, users, prices, 50) >= 0.93
    # Items of one list are all rare, or none is.
    rare = catalog.rarity[catalog.group_of] > np.quantile(catalog.rarity[catalog.group_of], 0.75)
    listed = index.lists.list_of >= 0
    share = np.bincount(index.lists.list_of[listed], rare[listed]) / index.lists.sizes
    assert set(share.tolist()) == {0.0, 1.0}


def test_requests_that_are_unlike_items_get_nearly_the_recall_asked_for() -> None:
    """Items have a common mean that requests have not. Tuned on means of items alone, the index would find 0.963."""
    rng, spectrum = np.random.default_rng(2), (1 + np.arange(32)) ** -0.5
    embeddings = (rng.standard_normal((40_000, 32)) + rng.standard_normal(32)) * spectrum
    catalog = Catalog(embeddings.astype(np.float32), np.arange(40_000) % 10 // 9)
    users = rng.standard_normal((256, 1, 32)) * spectrum
    hits = IvfIndex(catalog, exact_below=0).search(users, None, 50)
    assert recall(hits, catalog, users, None, 50) >= 0.98
