"""The contracts of indexes where groups are the atoms of overlapping promises: nearly as many groups as items."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

import plain
from fairsync.catalog import Catalog
from fairsync.catalog.atoms import Atoms
from fairsync.catalog.selection import Selection
from fairsync.search import ExactIndex, HnswIndex, Index, IvfIndex, OneHotIndex, ShardedIndex
from fairsync.search.eligibility import Eligibility
from fairsync.search.filtering import search_eligible
from search.approximate import assert_honest, recall

Prices = npt.NDArray[np.float64]
DIM = 16

EXACT: dict[str, Callable[[Catalog], Index]] = {
    "exact": lambda catalog: ExactIndex(catalog, threads=2),
    "one-hot": OneHotIndex,
    "shards": lambda catalog: ShardedIndex(catalog, 3),
}
APPROXIMATE: dict[str, Callable[[Catalog], Index]] = {
    "ivf": lambda catalog: IvfIndex(catalog, recall=0.95, exact_below=0),
    "hnsw": lambda catalog: HnswIndex(catalog, recall=0.95, exact_below=0),
    "shards of ivf": lambda catalog: ShardedIndex(catalog, 2, lambda part: IvfIndex(part, recall=0.95, exact_below=0)),
}


def world(seed: int, n: int, categories: int, providers: int) -> tuple[Catalog, Atoms, npt.NDArray[np.float64]]:
    """Items around the centres of their categories, with providers of any category; a tenth is new."""
    rng = np.random.default_rng(seed)
    category, provider = rng.integers(categories, size=n), rng.integers(providers, size=n)
    rows = [np.flatnonzero(category == one) for one in range(categories)]
    rows += [np.flatnonzero(provider == one) for one in range(providers)]
    atoms = Atoms.of([*rows, np.flatnonzero(rng.random(n) < 0.1)], n)
    items = rng.normal(size=(n, DIM)) + 0.7 * rng.normal(size=(categories, DIM))[category]
    ids = rng.permutation(n)
    return atoms.catalog(Catalog(items.astype(np.float32), category, ids)), atoms, rng.normal(size=(60, 1, DIM))


def price_vectors(atoms: Atoms, seed: int) -> dict[str, Prices]:
    """Prices of a policy, steep ones, and masks of most atoms or of some, as the guard and caps make them."""
    rng, count = np.random.default_rng(seed), atoms.membership.n_promises
    subsidies = -rng.exponential(0.5, count) * (rng.random(count) < 1 / 3)
    subsidies[rng.random(count) < 0.05] = 0.4
    some = atoms.membership.atom_prices(subsidies)
    number = np.arange(len(some))
    return {
        "policy": some,
        "steep": 10 * some,
        "charges": np.abs(some),
        "new only subsidised": atoms.membership.atom_prices(-2.0 * (np.arange(count) == count - 1)),
        "one atom extreme": np.where(number == 7, -1e6, some),
        "half masked": np.where(number % 2 == 0, some, np.inf),
        "few open": np.where(number % 200 == 3, some, np.inf),
        "one item open": np.where(number == int(np.argmin(atoms.sizes)), some, np.inf),
        "all masked": np.full(len(some), np.inf),
    }


SMALL = world(0, 900, 6, 150)
LARGE = world(1, 12_000, 20, 300)  # large enough for a scan in blocks


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("prices", price_vectors(SMALL[1], 0))
def test_exact_indexes_find_what_the_plainest_search_does(name: str, prices: str) -> None:
    catalog, atoms, users = SMALL
    assert (atoms.sizes == 1).sum() > 100
    index, price = EXACT[name](catalog), price_vectors(atoms, 0)[prices]
    for some in (users[:1], np.concatenate([users[:3], np.zeros((1, 1, DIM))])):
        hits = index.search(some, price, 20)
        rows, relevance = plain.search(catalog, some, price, 20)
        assert hits.rows.tolist() == rows
        assert hits.relevance.tolist() == relevance


@pytest.mark.parametrize("prices", price_vectors(LARGE[1], 1))
@pytest.mark.parametrize("batch", [1, 40])
def test_a_large_catalog_is_searched_exactly_also_if_most_items_are_masked(prices: str, batch: int) -> None:
    catalog, atoms, users = LARGE
    index, price = ExactIndex(catalog), price_vectors(atoms, 1)[prices]
    index._is_small = False  # or all items would be scored
    scores = (users[:batch, 0] @ catalog.embeddings.astype(float).T) - price[catalog.group_of]
    rng = np.random.default_rng(3)
    where = [None, Selection(rng.random(len(catalog)) < 0.5), Selection(rng.random(len(catalog)) < 0.02)]
    excluded = [rng.integers(len(catalog), size=200) for _ in range(batch)]
    restricted = Eligibility.of(len(catalog), [where[i % 3] for i in range(batch)], excluded)
    for eligible in (None, restricted):
        hits = search_eligible(index, users[:batch], price, 30, eligible)
        for i, row in enumerate(hits.rows):
            mine = np.full(len(catalog), True) if eligible is None else eligible.mask(i)
            rows = np.flatnonzero(mine & (scores[i] > -np.inf))
            assert row[row >= 0].tolist() == rows[np.argsort(-scores[i, rows])][:30].tolist()


@pytest.fixture(scope="module", params=APPROXIMATE)
def approximate(request: pytest.FixtureRequest) -> Index:
    return APPROXIMATE[request.param](LARGE[0])


@pytest.mark.parametrize("prices", price_vectors(LARGE[1], 1))
@pytest.mark.parametrize("interests", [1, 2])
def test_approximate_indexes_are_honest_and_reach_the_recall(approximate: Index, prices: str, interests: int) -> None:
    catalog, atoms, users = LARGE
    price, users = price_vectors(atoms, 1)[prices], users.reshape(-1, interests, DIM)
    hits = assert_honest(approximate, catalog, users, price, 30)
    if price.min() < np.inf:
        assert recall(hits, catalog, users, price, 30) >= 0.88


def test_approximate_indexes_return_eligible_items_only(approximate: Index) -> None:
    catalog, atoms, users = LARGE
    rng, price = np.random.default_rng(4), price_vectors(atoms, 1)["policy"]
    conditions = [None, Selection(rng.random(len(catalog)) < 0.5), Selection(rng.random(len(catalog)) < 0.02)]
    best = approximate.search(users, price, 60).rows
    eligible = Eligibility.of(len(catalog), [conditions[i % 3] for i in range(60)], [row[:10] for row in best])
    hits = search_eligible(approximate, users, price, 20, eligible)
    assert (hits.rows >= 0).all()
    assert eligible.allows(np.repeat(np.arange(60), 20), hits.rows.ravel()).all()
    assert all(len(set(row)) == 20 for row in hits.rows.tolist())


def test_lists_mix_atoms_and_nothing_stored_depends_on_prices() -> None:
    catalog, atoms, users = LARGE
    index, prices = IvfIndex(catalog, recall=0.95, exact_below=0), price_vectors(atoms, 1)
    assert index.lists is not None
    assert len(index.lists.sizes) < len(catalog) / 100
    alone = {name: index.search(users, price, 20).rows for name, price in prices.items()}
    overwritten = np.empty(catalog.n_groups)  # one array for all prices, as a caller may do
    for name, price in reversed(prices.items()):
        overwritten[:] = price
        assert (index.search(users, overwritten, 20).rows == alone[name]).all()
