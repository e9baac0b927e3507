"""Fetching eligible items from Milvus: conditions and long lists of excluded items are left to the server."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.catalog.attributes import Column
from fairsync.catalog.selection import Selection
from fairsync.search.eligibility import Eligibility
from fairsync.search.milvus.collection import KEY, MOST_RESULTS, MilvusCollection
from fairsync.search.milvus.expressions import write_expression
from fairsync.search.row_encoding import RowKeys

_Floats = npt.NDArray[np.float32]
_Rows = npt.NDArray[np.int64]

# The most keys in one expression. Beyond, items are dropped by the client.
_MOST_KEYS = 4096


class FilteredFetch:
    """Fetches items that Milvus has filtered. The client checks them again, so that an expression may be too wide.

    Milvus takes one expression per call. Requests with the same condition are searched together. A few excluded items
    are fetched and dropped; a request that excludes more than it asks for is searched alone.

    The collection holds the attributes that items had when they were written. Items that meet a condition now, and did
    not then, are named in the expression.

    Parameters
    ----------
    catalog
        The items, with their attributes as the collection stores them.
    stored
        The attributes that the collection stores.
    collection
        The collection.
    rows
        The keys of the items.
    """

    def __init__(
        self, catalog: Catalog, stored: Mapping[str, Column], collection: MilvusCollection, rows: RowKeys
    ) -> None:
        self._catalog, self._stored, self._collection, self._rows = catalog, stored, collection, rows

    def serves(self, eligible: Eligibility) -> bool:
        """Return whether Milvus can filter for these requests: some have conditions on attributes that it stores."""
        written = [self._expression(chosen) for chosen in eligible.selections]
        if any(one is None for one in written):
            return False
        return bool(written) or bool(self._alone(eligible, 0).any())

    def __call__(self, vectors: _Floats, count: int, eligible: Eligibility) -> tuple[_Floats, _Rows]:
        """Return scores and rows as `fairsync.search.over_fetch.Fetch` does, -inf and -1 where no more items are found.

        The vectors are those of the first interest of every request, then of the second, and so on.
        """
        n = len(eligible)
        alone = self._alone(eligible, count)
        parts: list[tuple[_Rows, str, int, int]] = []  # requests, expression, items to ask for, items that there are
        for at in np.unique(eligible.selection_of).tolist():
            chosen = None if at < 0 else eligible.selections[at]
            written = ("", len(self._catalog)) if chosen is None else self._expression(chosen) or ("", 0)
            mine = np.flatnonzero(eligible.selection_of == at)
            together = mine[~alone[mine]]
            if len(together):
                most = int(eligible.lengths[together].max(initial=0))
                parts.append((together, written[0], count + most, written[1]))
            for i in mine[alone[mine]].tolist():
                excluded = eligible.excluded[eligible.offsets[i] : eligible.offsets[i + 1]]
                left_out = f"{KEY} not in {self._rows.keys[excluded].tolist()}"
                expression = f"({written[0]}) and {left_out}" if written[0] else left_out
                parts.append((np.array([i]), expression, count, max(written[1] - len(excluded), 0)))
        found = []
        for who, expression, ask, there in parts:
            places = (np.arange(len(vectors) // n)[:, None] * n + who).ravel()
            ask = min(ask, self._collection.size, MOST_RESULTS)
            found.append((places, *self._collection.search(vectors[places], ask, expression, min(ask, there))))
        width = max(scores.shape[1] for _, scores, _ in found)
        scores = np.full((len(vectors), width), -np.inf, dtype=np.float32)
        rows = np.full((len(vectors), width), -1, dtype=np.int64)
        for places, some, keys in found:
            scores[places, : some.shape[1]] = some
            rows[places, : some.shape[1]] = np.where(some > -np.inf, self._rows.find(keys), -1)
            # A narrower answer that is full may not be all: nothing is known of what comes after it.
            if some.shape[1] < width:
                full = places[some[:, -1] > -np.inf]
                scores[full, some.shape[1] :] = some[some[:, -1] > -np.inf, -1:]
        return scores, rows

    def _alone(self, eligible: Eligibility, count: int) -> npt.NDArray[np.bool_]:
        """Return which requests exclude more items than they ask for, and not too many to name."""
        alone: npt.NDArray[np.bool_] = (eligible.lengths > max(count, 1)) & (eligible.lengths <= _MOST_KEYS)
        return alone

    def _expression(self, chosen: Selection) -> tuple[str, int] | None:
        """Return an expression that selected items meet, and how many of the stored items do at least.

        None if Milvus cannot say it in a few words.
        """
        conditions = chosen.conditions
        if conditions is None:
            return None
        known = [one for one in conditions if one.attribute in self._stored]
        written = write_expression(known, self._stored)
        if not written:
            return None
        before = self._catalog.select({one.attribute: one.given for one in known})
        assert before is not None
        lost = np.flatnonzero(chosen.mask & ~before.mask)
        if len(lost) > _MOST_KEYS:
            return None
        if len(lost):
            written = f"({written}) or {KEY} in {self._rows.keys[lost].tolist()}"
        return written, len(before) + len(lost)
