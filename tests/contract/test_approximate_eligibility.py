"""The contract of approximate indexes under eligibility: honest answers, with the recall they have without it."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from fairsync.catalog import Catalog
from fairsync.catalog.selection import Selection
from fairsync.search import ExactIndex, HnswIndex, Index, IvfIndex, ShardedIndex
from fairsync.search.eligibility import Eligibility
from fairsync.search.filtering import search_eligible
from fairsync.search.overlay import Overlay
from search.approximate import make_case

Prices = npt.NDArray[np.float64] | None

ITEMS = 6000
CATALOG, USERS = make_case(0, n=ITEMS, dim=16, users=60)
RECALL, LEAST_RECALL = 0.95, 0.9
MILD = np.array([0.0, -0.8, 0.4, -0.2, -1.5, 0.0])
PRICES: dict[str, Prices] = {
    "none": None,
    "mild": MILD,
    "steep": 1e4 * MILD,
    "masked": np.where(MILD < 0, np.inf, MILD),
}


def changed(catalog: Catalog) -> Overlay:
    rng = np.random.default_rng(1)
    rows = rng.permutation(len(catalog))[: 9 * len(catalog) // 10]
    before = catalog.part(rows)
    built = IvfIndex(before, recall=RECALL, exact_below=0)
    return Overlay(built, np.where(rng.random(len(rows)) < 0.05, -1, rows), before.group_sizes, catalog)


KINDS: dict[str, Callable[[Catalog], Index]] = {
    "ivf": lambda catalog: IvfIndex(catalog, recall=RECALL, exact_below=0),
    "hnsw": lambda catalog: HnswIndex(catalog, recall=RECALL, exact_below=0),
    "shards of ivf": lambda catalog: ShardedIndex(catalog, 2, lambda part: IvfIndex(part, RECALL, exact_below=0)),
    "overlay on ivf": changed,
}


@pytest.fixture(scope="module", params=KINDS)
def index(request: pytest.FixtureRequest) -> Index:
    return KINDS[request.param](CATALOG)


def assert_good(index: Index, users: npt.NDArray[np.float64], prices: Prices, k: int, eligible: Eligibility) -> None:
    hits = search_eligible(index, users, prices, k, eligible)
    truth = ExactIndex(CATALOG).search(users, prices, k, eligible)
    assert ((hits.rows >= 0) == (truth.rows >= 0)).all(), "as long as it can be"
    there = hits.rows >= 0
    assert eligible.allows(np.nonzero(there)[0], hits.rows[there]).all()
    assert all(len(set(row[row >= 0].tolist())) == (row >= 0).sum() for row in hits.rows)
    price = np.zeros(6) if prices is None else prices
    priced = np.where(there, hits.relevance - price[CATALOG.group_of[hits.rows]], -np.inf)
    assert (np.diff(np.where(there, priced, -1e300), axis=1) <= 0).all()
    found = [
        np.isin(wanted[wanted >= 0], got).mean()
        for wanted, got in zip(truth.rows, hits.rows, strict=True)
        if wanted[0] >= 0
    ]
    assert np.mean(found) >= LEAST_RECALL


@pytest.mark.parametrize("prices", PRICES)
@pytest.mark.parametrize("share", [0.5, 0.1, 0.01, 0.001])
def test_it_keeps_its_recall_among_the_items_that_meet_a_condition(index: Index, prices: str, share: float) -> None:
    rng = np.random.default_rng(2)
    some = Selection(rng.random(ITEMS) < share)
    assert_good(index, USERS, PRICES[prices], 10, Eligibility.of(ITEMS, [some] * len(USERS)))


@pytest.mark.parametrize("prices", PRICES)
def test_it_keeps_its_recall_when_the_best_items_are_excluded(index: Index, prices: str) -> None:
    best = ExactIndex(CATALOG).search(USERS, PRICES[prices], 300).rows
    lengths = np.random.default_rng(3).choice([0, 5, 20, 300], size=len(USERS))
    excluded = [row[row >= 0][:length] for row, length in zip(best, lengths, strict=True)]
    assert_good(index, USERS, PRICES[prices], 10, Eligibility.of(ITEMS, [None] * len(USERS), excluded))


def test_it_keeps_its_recall_when_only_what_a_user_does_not_like_is_eligible(index: Index) -> None:
    """The condition goes against the user's taste, so that no number of the best items holds enough of them."""
    worst = [Selection(CATALOG.embeddings @ user[0] < 0) for user in USERS]
    assert_good(index, USERS, None, 10, Eligibility.of(ITEMS, worst))


def test_different_rules_in_one_batch_and_users_of_zeros(index: Index) -> None:
    rng = np.random.default_rng(4)
    pool = [None, *(Selection(rng.random(ITEMS) < share) for share in (0.7, 0.2, 0.02, 0.0))]
    users = USERS.copy()
    users[::7] = 0.0
    eligible = Eligibility.of(ITEMS, [pool[i % 5] for i in range(60)], [rng.integers(ITEMS, size=i) for i in range(60)])
    for prices in (None, MILD):
        assert_good(index, users, prices, 10, eligible)
    assert_good(index, users.reshape(30, 2, 16), MILD, 5, eligible.take(np.arange(30)))


def test_an_answer_as_long_as_the_catalog(index: Index) -> None:
    half = Selection(np.arange(ITEMS) % 2 == 0)
    assert_good(index, USERS[:2], MILD, ITEMS, Eligibility.of(ITEMS, [half, None], [[0, 1], [3]]))
