"""The paper's construction on an engine that is only asked: prices are part of the query, and so of its ranking."""

import numpy as np
import numpy.typing as npt

from fairsync.search.over_fetch import OverFetch, Rows
from fairsync.search.rounding import Float32Queries

_U = 2.0**-24
# No product with infinity: this is below anything an open group can score, and what is masked is dropped later.
_MASKED = np.float32(-8.0)


class OneHotFetch(OverFetch):
    """Search under prices on top of an engine that holds items ‖ one-hot(group) and ranks by inner product.

    The query is user ‖ -price, so that the engine's own scores carry the prices and a few more than k items are enough.
    The parameters are those of `OverFetch`, with ``items`` not widened; `widen` makes what the engine holds.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> from fairsync.search import ExactIndex
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

    def _try(self, queries: Float32Queries, n: int, k: int, count: int) -> tuple[npt.NDArray[np.bool_], Rows, Rows]:
        """As in `OverFetch`, with queries that leave nothing of the prices to add but what is masked."""
        if queries.bonus is None:
            bonus, masked = np.zeros(self.catalog.n_groups, dtype=np.float32), None
        else:
            bonus = np.maximum(queries.bonus, _MASKED)
            masked = np.where(queries.bonus == -np.inf, queries.bonus, np.float32(0.0))
        wide = np.vstack([queries.columns, np.repeat(bonus[:, None], queries.columns.shape[1], axis=1)])
        # The bonus is part of the sum of products and shares in its rounding, on both sides of the comparison.
        margin = queries.margin + 4 * (self.catalog.dim + 8) * _U * float(np.abs(bonus).max())
        return super()._try(Float32Queries(wide, masked, margin), n, k, count)


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
