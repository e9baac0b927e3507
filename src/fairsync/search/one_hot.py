"""The paper's construction: groups as one-hot columns of the items, prices as extra values of the query."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.search.base import Hits
from fairsync.search.certified_search import OverFetch
from fairsync.search.eligibility import Eligibility
from fairsync.search.exact import ExactIndex
from fairsync.search.over_fetch import Eligible, Fetched
from fairsync.search.rounding import Float32Queries

_U = 2.0**-24
# Stands for -inf, which must not enter a product. It is below any score of an open group; masked items are dropped
# later.
_MASKED = np.float32(-8.0)


class OneHotFetch(OverFetch):
    """Search under prices on top of an engine that holds items ‖ one-hot(group) and ranks by inner product.

    The query is user ‖ -price, so that the engine's own scores include the prices and a few more than k items are
    enough. The parameters are those of `OverFetch`, with ``items`` not widened; `widen` makes what the engine holds.

    Examples
    --------
    >>> from fairsync.search.rounding import Float32Items
    >>> catalog = Catalog(np.array([[3.0], [2.0], [1.0]], dtype=np.float32), ["a", "b", "b"])
    >>> items = Float32Items.of(catalog.embeddings)
    >>> held = widen(items.values, catalog.group_of, catalog.n_groups)
    >>> def fetch(vectors, count):
    ...     scores = vectors @ held.T
    ...     rows = np.argsort(-scores, axis=1)[:, :count]
    ...     return np.take_along_axis(scores, rows, axis=1), rows
    >>> index = OneHotFetch(catalog, items, fetch, ExactIndex(catalog), most=3)
    >>> index.search(np.ones((1, 1, 1)), np.array([0.0, -1.5]), k=1).rows
    array([[1]])
    """

    applies_prices = "one-hot"

    def fetch(self, queries: Float32Queries, count: int, eligible: Eligible | None) -> Fetched:
        """Fetch by widened queries; see `OverFetch`. Only masks are left to apply to the scores that come back."""
        if queries.bonus is None:
            bonus, masked = np.zeros(self.catalog.n_groups, dtype=np.float32), None
        else:
            bonus = np.maximum(queries.bonus, _MASKED)
            masked = np.where(queries.bonus == -np.inf, queries.bonus, np.float32(0.0))
        wide = np.vstack([queries.columns, np.repeat(bonus[:, None], queries.columns.shape[1], axis=1)])
        return super().fetch(replace(queries, columns=wide, bonus=masked), count, eligible)

    def margin(self, queries: Float32Queries) -> npt.NDArray[np.float64]:
        """Return the margin: the bonus is part of the sum of products and shares in its rounding, on both sides."""
        if queries.bonus is None:
            return queries.margin
        highest = float(np.abs(np.maximum(queries.bonus, _MASKED)).max())
        return queries.margin + 4 * (self.catalog.dim + 8) * _U * highest


class OneHotIndex:
    """Search with h = item ‖ one-hot(group) and q = user ‖ -price by faiss, as the paper does.

    It gives the answers of `ExactIndex`, and is kept to reproduce and compare: with G groups every vector is
    G columns wider, so memory and time grow by (d + G) / d, 20 times at d = 64 and 1,246 groups. Users of zeros, and
    prices that mask nearly all items, are left to `ExactIndex`.

    Parameters
    ----------
    catalog
        The items to search.

    Examples
    --------
    >>> catalog = Catalog(np.array([[1.0, 0.0], [0.8, 0.6]], dtype=np.float32), ["a", "b"])
    >>> OneHotIndex(catalog).search(np.array([[[1.0, 0.0]]]), np.array([0.5, 0.0]), k=1).rows
    array([[1]])
    """

    applies_prices = "one-hot"

    def __init__(self, catalog: Catalog) -> None:
        import faiss  # here, because it takes long to import

        self.catalog = catalog
        exact = ExactIndex(catalog)
        wide = widen(exact.items.values, catalog.group_of, catalog.n_groups)
        flat = faiss.IndexFlatIP(wide.shape[1])
        flat.add(wide)
        self._search = OneHotFetch(catalog, exact.items, flat.search, exact, most=2 * len(catalog))

    def search(
        self,
        users: npt.NDArray[np.floating],
        prices: npt.NDArray[np.float64] | None,
        k: int,
        eligible: Eligibility | None = None,
    ) -> Hits:
        """Find the k items of highest relevance minus price for each user; see `Index.search`."""
        return self._search.search(users, prices, k, eligible)

    def rebuild(self, catalog: Catalog) -> "OneHotIndex":
        """Return an index of the same kind over another catalog; see `rebuild_index`."""
        return OneHotIndex(catalog)


def widen(values: npt.NDArray[np.float32], group_of: npt.NDArray[np.integer], n_groups: int) -> npt.NDArray[np.float32]:
    """Return items ‖ one-hot(group).

    Examples
    --------
    >>> widen(np.array([[3.0], [2.0]], dtype=np.float32), np.array([1, 0]), 2).tolist()
    [[3.0, 0.0, 1.0], [2.0, 1.0, 0.0]]
    """
    n, dim = values.shape
    wide = np.zeros((n, dim + n_groups), dtype=np.float32)
    wide[:, :dim] = values
    wide[np.arange(n), dim + group_of] = 1.0
    return wide
