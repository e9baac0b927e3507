"""Search: the best k items of each user under prices."""

from collections.abc import Callable
from typing import cast

from fairsync.catalog import Catalog
from fairsync.errors import InvalidInputError
from fairsync.search.base import Hits, Index, rebuild_index
from fairsync.search.exact import ExactIndex
from fairsync.search.hnsw import HnswIndex
from fairsync.search.ivf import IvfIndex
from fairsync.search.one_hot import OneHotIndex
from fairsync.search.sharded import ShardedIndex

__all__ = [
    "INDEXES",
    "ExactIndex",
    "Hits",
    "HnswIndex",
    "Index",
    "IvfIndex",
    "OneHotIndex",
    "ShardedIndex",
    "make_index",
    "rebuild_index",
    "replace_index",
]

INDEXES: dict[str, Callable[[Catalog], Index]] = {
    "exact": ExactIndex,
    "one-hot": OneHotIndex,
    "ivf": IvfIndex,
    "hnsw": HnswIndex,
}


def make_index(index: str | Index | Callable[[Catalog], Index], catalog: Catalog) -> Index:
    """Return the index of this name over the catalog, what a function makes of it, or the index object itself.

    Examples
    --------
    >>> import numpy as np
    >>> make_index("exact", Catalog(np.eye(2, dtype=np.float32), ["a", "b"])).applies_prices
    'bias'
    """
    if not isinstance(index, str):
        if callable(index) and not hasattr(index, "search"):
            return index(catalog)
        if not callable(getattr(index, "search", None)):
            raise InvalidInputError(
                f"index must be one of {', '.join(INDEXES)} or an object with search(), got {index!r}."
            )
        if isinstance(index, type) or getattr(index, "catalog", catalog) is not catalog:
            raise InvalidInputError(
                "index was built over another catalog than the one that is searched; promises search one of their own:"
                " give the name of the index, or a function of the catalog, index=lambda items: IvfIndex(items)."
            )
        return cast("Index", index)
    if index not in INDEXES:
        raise InvalidInputError(
            f"there is no index {index!r}: choose one of {', '.join(INDEXES)}, or give a function of the catalog, such"
            " as index=lambda items: fs.PgvectorIndex(items, url)."
        )
    return INDEXES[index](catalog)


def replace_index(present: Index, index: str | Callable[[Catalog], Index] | None, catalog: Catalog) -> Index:
    """Return the index over a catalog that replaces the present one.

    Parameters
    ----------
    present
        The index in use.
    index
        A name, or a function of the catalog. None keeps the kind and the settings of the present index.
    catalog
        The new catalog.

    Examples
    --------
    >>> import numpy as np
    >>> before, after = Catalog(np.eye(2), ["a", "b"]), Catalog(np.ones((3, 2)), ["a", "b", "b"])
    >>> type(replace_index(OneHotIndex(before), None, after)).__name__
    'OneHotIndex'
    >>> type(replace_index(OneHotIndex(before), "ivf", after)).__name__
    'IvfIndex'
    """
    if index is None:
        return rebuild_index(present, catalog)
    return index(catalog) if callable(index) else make_index(index, catalog)
