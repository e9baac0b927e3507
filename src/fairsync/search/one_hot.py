"""The paper's construction: groups as extra columns, prices as extra query values."""

import faiss
import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.search.base import Hits, check_prices
from fairsync.search.rounding import Float32Items, Float32Queries
from fairsync.search.scoring import reference_price, settle, settle_indifferent

_U = 2.0**-24


class OneHotIndex:
    """Search with h = item ‖ one-hot(group) and q = user ‖ -price by faiss, as the paper does.

    It gives the answers of `ExactIndex`, and is kept to reproduce and compare: with G groups every vector is
    G columns wider, so memory and time grow by (d + G) / d, 20 times at d = 64 and 1,246 groups.

    Examples
    --------
    >>> import numpy as np
    >>> catalog = Catalog(np.array([[1.0, 0.0], [0.8, 0.6]], dtype=np.float32), ["a", "b"])
    >>> OneHotIndex(catalog).search(np.array([[[1.0, 0.0]]]), np.array([0.5, 0.0]), k=1).rows
    array([[1]])
    """

    applies_prices = "one-hot"

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._items = Float32Items.of(catalog.embeddings)
        n, dim = self._items.values.shape
        wide = np.zeros((n, dim + catalog.n_groups), dtype=np.float32)
        wide[:, :dim] = self._items.values
        wide[np.arange(n), dim + catalog.group_of] = 1.0
        self._faiss = faiss.IndexFlatIP(wide.shape[1])
        self._faiss.add(wide)

    def search(self, users: npt.NDArray[np.floating], prices: npt.NDArray[np.float64] | None, k: int) -> Hits:
        """Find the k items of highest relevance minus price for each user; see `Index.search`."""
        vectors = np.asarray(users, dtype=np.float64)
        prices = check_prices(prices, self.catalog.n_groups)
        hits = Hits.empty(len(vectors), k)
        spread = np.zeros(self.catalog.n_groups) if prices is None else prices
        goal, reference = reference_price(self.catalog, spread, k)
        real = vectors.any(axis=(1, 2))
        if not real.all():
            same = settle_indifferent(self.catalog, prices, k)
            hits.rows[~real], hits.relevance[~real] = same.rows, same.relevance
        kept = np.flatnonzero(real)
        if goal == 0 or len(kept) == 0:
            return hits
        queries = Float32Queries.of(self._items, vectors[kept], spread, reference)
        assert queries.bonus is not None
        # No product with infinity: -8 is below anything an open group can score, and what is masked is
        # dropped later.
        bonus = np.maximum(queries.bonus, -8.0)
        interests = vectors.shape[1]
        wide = np.hstack([queries.columns.T, np.tile(bonus, (queries.columns.shape[1], 1))])
        # Here the bonus is part of the sum of products and shares in its rounding, on both sides of the
        # comparison.
        margin = queries.margin + 4 * (self.catalog.dim + 8) * _U * float(np.abs(bonus).max())
        waiting = np.arange(len(kept))
        fetch = min(len(self.catalog), k + 16)
        while len(waiting):
            asked = waiting + len(kept) * np.arange(interests)[:, None]
            scores, rows = self._faiss.search(wide[asked.ravel()], fetch)
            left = []
            for i, user in enumerate(waiting):
                found = self._complete(scores[i :: len(waiting)], rows[i :: len(waiting)], spread, goal, margin[user])
                if found is None:
                    left.append(user)
                    continue
                one = settle(
                    self.catalog,
                    vectors[kept[[user]]],
                    prices,
                    k,
                    np.zeros(len(found), dtype=np.int64),
                    found,
                )
                hits.rows[kept[user]], hits.relevance[kept[user]] = one.rows[0], one.relevance[0]
            waiting = np.asarray(left, dtype=np.int64)
            fetch = min(len(self.catalog), 2 * fetch)
        return hits

    def _complete(
        self,
        scores: npt.NDArray[np.float32],
        rows: npt.NDArray[np.int64],
        prices: npt.NDArray[np.float64],
        k: int,
        margin: float,
    ) -> npt.NDArray[np.int64] | None:
        """Return the candidates among what was fetched, or None when an item not fetched could be one."""
        order = np.argsort(-scores, axis=None, kind="stable")
        distinct, first = np.unique(rows.ravel()[order], return_index=True)
        best = scores.ravel()[order][first]
        open_ = prices[self.catalog.group_of[distinct]] < np.inf
        distinct, best = distinct[open_], best[open_]
        everything = rows.shape[1] == len(self.catalog)
        if len(best) < k:
            return distinct if everything else None
        needed = np.partition(best, len(best) - k)[len(best) - k] - margin
        if not everything and needed <= scores[:, -1].max():
            return None
        kept: npt.NDArray[np.int64] = distinct[best >= needed]
        return kept
