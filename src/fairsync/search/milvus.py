"""Search by Milvus, for those who run a vector database: it ranks, prices and ties are settled here."""

import hashlib
import re

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.errors import BackendUnavailableError, InvalidInputError
from fairsync.search.base import Hits
from fairsync.search.exact import ExactIndex
from fairsync.search.milvus_table import MOST_RESULTS, Table, Watch
from fairsync.search.one_hot_fetch import OneHotFetch, widen
from fairsync.search.over_fetch import OverFetch
from fairsync.search.rounding import Float32Items

__all__ = ["BackendUnavailableError", "MilvusIndex"]

# Up to this many times the width, wider vectors cost less than fetching deeper: benchmarks/milvus.py measures it.
_WORTH_WIDENING = 6
# Beyond this share of the catalog, asking once more takes far longer than scoring every item here.
_MOST_SHARE, _LEAST_MOST = 64, 1000
_HASH_BLOCK = 1 << 16
_HASH_DIGITS = 16


class MilvusIndex:
    """Search a catalog that a Milvus server holds.

    Milvus nominates and the client decides: who is in, in which order and with which relevance is settled in float64 on
    the catalog's own embeddings, so the answer is that of `ExactIndex`, to the last tie. Where a large part of the
    catalog would have to be fetched, it is searched here.

    A collection is named after what it holds, so it never holds another catalog than the one searched. An update is the
    upload of a new catalog, beside the old one: retrievers that run with the old one go on undisturbed, until
    `drop_others`.

    Parameters
    ----------
    catalog
        What to search.
    uri
        Address of the server, or a path that ends in ``.db`` for Milvus Lite.
    collection
        What the names of collections start with.
    token
        ``"user:password"`` or an API key, where the server asks for one.
    prices
        ``"one-hot"``: Milvus ranks under prices, on vectors widened by one column per group. ``"over-fetch"``: it ranks
        without prices, and as many items are fetched as it takes to be certain. ``"auto"``: one-hot while that makes
        vectors at most six times as wide.
    timeout
        How many seconds a question to the server may take. Until then it is repeated if the server is away or starting.
    upload
        Whether to upload the catalog if the server does not hold it yet.
    watch
        Called during an upload with the number of items written, and of all.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> catalog = Catalog(np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]], dtype=np.float32), ["a", "b", "b"])
    >>> with TemporaryDirectory() as folder:
    ...     index = MilvusIndex(catalog, folder + "/items.db", upload=True)
    ...     index.search(np.array([[[1.0, 0.0]]]), np.array([0.5, 0.0]), k=2).rows
    array([[1, 0]])
    """

    def __init__(
        self,
        catalog: Catalog,
        uri: str = "http://localhost:19530",
        collection: str = "fairsync",
        token: str = "",
        prices: str = "auto",
        timeout: float = 10.0,
        upload: bool = False,
        watch: Watch | None = None,
    ) -> None:
        if not re.fullmatch(r"[A-Za-z_]\w{0,200}", collection, re.ASCII):
            raise InvalidInputError(f"collection must be letters, digits and _, no digit first, got {collection!r}.")
        if not timeout > 0:
            raise InvalidInputError(f"timeout must be a positive number of seconds, got {timeout}.")
        self.catalog, self.collection = catalog, collection
        self.applies_prices = _way(prices, catalog)
        wide = self.applies_prices == "one-hot"
        exact = ExactIndex(catalog)
        items = exact._items  # where these are a copy, one is enough
        name = f"{collection}_{_fingerprint(items, catalog, wide)}"
        columns = catalog.dim + catalog.n_groups * wide
        self._table = Table(uri, token, name, len(catalog), columns, timeout)
        if not self._table.is_complete():
            if not upload:
                raise InvalidInputError(self._absent())

            def block(at: slice) -> npt.NDArray[np.float32]:
                return widen(items.values[at], catalog.group_of[at], catalog.n_groups) if wide else items.values[at]

            self._table.write(block, watch)
        make = OneHotFetch if wide else OverFetch
        most = min(max(len(catalog) // _MOST_SHARE, _LEAST_MOST), MOST_RESULTS - 1)
        self._search = make(catalog, items, self._table.search, exact, most)

    @property
    def name(self) -> str:
        """Name of the collection in Milvus: ``collection`` and a fingerprint of what it holds."""
        return self._table.name

    def search(self, users: npt.NDArray[np.floating], prices: npt.NDArray[np.float64] | None, k: int) -> Hits:
        """Find the k items of highest relevance minus price for each user; see `Index.search`.

        Raises
        ------
        BackendUnavailableError
            The server did not answer in time. Nothing was changed: ask again when it is up.
        """
        return self._search.search(users, prices, k)

    def drop_others(self) -> list[str]:
        """Remove the uploads of other catalogs under the same ``collection``, and return their names.

        Retrievers that still run with those catalogs fail from then on.
        """
        others = [name for name in self._uploads() if name != self.name]
        for name in others:
            self._table.drop(name)
        return others

    def _uploads(self) -> list[str]:
        pattern = re.compile(rf"{self.collection}_[0-9a-f]{{{_HASH_DIGITS}}}")
        return [name for name in self._table.names(self.collection) if pattern.fullmatch(name)]

    def _absent(self) -> str:
        others = [name for name in self._uploads() if name != self.name]
        held = f"; it holds other catalogs ({', '.join(others[:3])})" if others else ""
        return (
            f"Milvus at {self._table.uri} does not hold {self.catalog} in full under {self.name!r}{held}."
            " Upload it: MilvusIndex(..., upload=True)."
        )


def _way(prices: str, catalog: Catalog) -> str:
    if prices == "auto":
        return "one-hot" if catalog.dim + catalog.n_groups <= _WORTH_WIDENING * catalog.dim else "over-fetch"
    if prices not in ("one-hot", "over-fetch"):
        raise InvalidInputError(f"prices must be 'auto', 'one-hot' or 'over-fetch', got {prices!r}.")
    return prices


def _fingerprint(items: Float32Items, catalog: Catalog, wide: bool) -> str:
    """Return a hash of what the collection holds: vectors in row order and, if they are widened, groups."""
    digest = hashlib.blake2b(digest_size=_HASH_DIGITS // 2)
    digest.update(f"{len(catalog)} {catalog.dim} {catalog.n_groups * wide}".encode())
    for start in range(0, len(catalog), _HASH_BLOCK):
        at = slice(start, start + _HASH_BLOCK)
        digest.update(items.values[at].astype("<f4", copy=False).tobytes())
        if wide:
            digest.update(catalog.group_of[at].astype("<i4", copy=False).tobytes())
    return digest.hexdigest()
