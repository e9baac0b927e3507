"""What the answers of an approximate index must hold, on catalogs small enough to check."""

import numpy as np
import numpy.typing as npt

import plain
from fairsync.catalog import Catalog
from fairsync.search import ExactIndex, Hits, Index, IvfIndex

Prices = npt.NDArray[np.float64] | None


def make_case(
    seed: int, n: int = 4000, dim: int = 8, groups: int = 6, users: int = 40, interests: int = 1
) -> tuple[Catalog, npt.NDArray[np.float64]]:
    """One group holds half of the items; ids are in another order than rows."""
    rng = np.random.default_rng(seed)
    group_of = np.where(rng.random(n) < 0.5, 0, rng.integers(0, groups, n))
    group_of[:groups] = np.arange(groups)
    items = rng.normal(size=(n, dim)) + 0.7 * rng.normal(size=(groups, dim))[group_of]
    return Catalog(items.astype(np.float32), group_of, rng.permutation(n)), rng.normal(size=(users, interests, dim))


def assert_honest(index: Index, catalog: Catalog, users: npt.NDArray[np.floating], prices: Prices, k: int) -> Hits:
    """As many items as there can be, all eligible, none twice, with their true relevance and in their true order."""
    hits = index.search(users, prices, k)
    price = np.zeros(catalog.n_groups) if prices is None else prices
    eligible = int(catalog.group_sizes[price < np.inf].sum())
    rank = np.arange(len(catalog)) if catalog.rank is None else catalog.rank
    embeddings = catalog.embeddings.astype(np.float64)
    assert hits.rows.shape == hits.relevance.shape == (len(users), k)
    for user, rows, relevance in zip(users, hits.rows.tolist(), hits.relevance.tolist(), strict=True):
        found = [row for row in rows if row >= 0]
        assert len(found) == len(set(found)) == min(k, eligible)
        assert rows == found + [-1] * (k - len(found))
        assert all(price[catalog.group_of[row]] < np.inf for row in found)
        vectors = user.astype(np.float64).tolist()
        true = [max(plain.dot(vector, embeddings[row].tolist()) for vector in vectors) for row in found]
        assert relevance == true + [-np.inf] * (k - len(found))
        keys = [(-(t - price[catalog.group_of[row]]), rank[row]) for t, row in zip(true, found, strict=True)]
        assert keys == sorted(keys)
    return hits


def recall(hits: Hits, catalog: Catalog, users: npt.NDArray[np.floating], prices: Prices, k: int) -> float:
    """The share of the true best k that was found."""
    truth = ExactIndex(catalog).search(users, prices, k).rows
    return float(np.mean([np.isin(wanted, found).mean() for wanted, found in zip(truth, hits.rows, strict=True)]))


def items_read(
    index: IvfIndex, users: npt.NDArray[np.float64], prices: npt.NDArray[np.float64] | None, k: int
) -> float:
    """The share of the catalog that is read for a request: the tests below would say nothing if it were all of it."""
    lists = index.lists
    assert lists is not None
    vectors = users[:, 0].astype(np.float32)
    scores = vectors @ lists.centres.T
    if prices is not None:
        scores -= prices[lists.group_of].astype(np.float32)
    chosen = index.tuning.choose(lists, vectors, scores, k)
    return float((chosen @ lists.sizes).mean()) / len(index.catalog)
