"""Search by Milvus, for those who run a vector database: it ranks, prices and ties are settled here."""

import copy
import re
import secrets

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.catalog.changes import CatalogChange
from fairsync.errors import InvalidInputError
from fairsync.search.base import Hits
from fairsync.search.exact import ExactIndex
from fairsync.search.milvus.collection import MOST_COLUMNS, MOST_RESULTS, MilvusCollection, Watch
from fairsync.search.milvus.connection import Connection
from fairsync.search.milvus.row_encoding import RowEncoding, RowKeys
from fairsync.search.one_hot_fetch import OneHotFetch
from fairsync.search.over_fetch import Floats, OverFetch, Rows
from fairsync.search.overlay import Overlay

# Up to this many times the width, wider vectors cost less than fetching deeper (benchmarks/milvus.py), or as good as
# always: small catalogs would bear more.
_WORTH_WIDENING = 6
# Columns for groups to come: an eighth more, and at least so many.
_LEAST_SPARE, _SPARE_SHARE = 8, 8
# Beyond this share of the catalog, asking once more takes far longer than scoring every item here.
_MOST_SHARE, _LEAST_MOST = 64, 1000


class MilvusIndex:
    """Search a catalog that a Milvus server holds.

    Milvus nominates and the client decides: who is in, in which order and with which relevance is settled in float64 on
    the catalog's own embeddings, so the answer is that of `ExactIndex`, to the last tie. Where a large part of the
    catalog would have to be fetched, it is searched here.

    A row in Milvus has a key that says all about it, and rows are only ever added. So when the catalog changes, what is
    new is written beside what is there (`follow`), and every index knows its own rows and passes over all others:
    retrievers that still run with the old catalog stay exact.

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
        Whether to write: the catalog, if the server does not hold it yet, and its changes.
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
        self.collection, self.applies_prices, self._may_write = collection, _way(prices, catalog), upload
        exact = ExactIndex(catalog)
        self._form = RowEncoding.of(exact._items, wide=self.applies_prices == "one-hot")
        if (width := self._form.width(catalog)) > MOST_COLUMNS:
            raise InvalidInputError(
                f"Milvus takes at most {MOST_COLUMNS:,} columns and this needs {width:,}: use prices='over-fetch'."
            )
        self._server = Connection(uri, token, timeout)
        self._take(catalog, exact, RowKeys(self._form.keys(catalog, np.arange(len(catalog)))))
        held_by = self._server.target(self.name)
        if held_by is not None:
            self._table = MilvusCollection.open(self._server, held_by)
        if held_by is None or self._table.size < len(catalog) or self._table.width < width:
            if not upload:
                raise InvalidInputError(self._absent())
            self._table = self._write(held_by, watch)
        self._ready()

    @property
    def name(self) -> str:
        """Name of the catalog in Milvus, an alias: ``collection`` and a fingerprint of what must be held of it."""
        return f"{self.collection}_{self._rows.fingerprint}"

    @property
    def wear(self) -> float:
        """Rows of other catalogs in the same collection, as a share of this one's. Each search scans them: `renew`."""
        return (self._table.size - len(self.catalog)) / len(self.catalog)

    def search(self, users: npt.NDArray[np.floating], prices: npt.NDArray[np.float64] | None, k: int) -> Hits:
        """Find the k items of highest relevance minus price for each user; see `Index.search`.

        Raises
        ------
        BackendUnavailableError
            The server did not answer in time. Nothing was changed: ask again when it is up.
        """
        return self._search.search(users, prices, k)

    def follow(self, change: CatalogChange) -> "MilvusIndex | Overlay":
        """Return an index over the catalog after a change, and write what is new to Milvus.

        This one stays as it is, and exact. If writing fails, nothing that runs is affected: follow again.
        Where nothing is to be written (``upload=False``), or a new group finds no column left, what is new is searched
        here instead.

        Parameters
        ----------
        change
            Of the catalog of this index; see `fairsync.catalog.changes`.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> from fairsync.catalog.changes import upsert_items
        >>> catalog = Catalog(np.eye(3), ["a", "b", "b"], ids=["x", "y", "z"])
        >>> with TemporaryDirectory() as folder:
        ...     index = MilvusIndex(catalog, folder + "/items.db", upload=True)
        ...     after = index.follow(upsert_items(catalog, [[9.0, 0.0, 0.0]], ["a"], ["w"]))
        ...     after.search(np.ones((1, 1, 3)), None, k=1).rows
        array([[3]])
        """
        catalog, form = change.catalog, self._form
        exact = ExactIndex(catalog)
        if not (self._may_write and form.fits(exact._items) and form.width(catalog) <= self._table.width):
            return Overlay(self, change.rows, self.catalog.group_sizes, catalog)
        keys, kept = np.zeros(len(catalog), dtype=np.int64), change.rows >= 0
        keys[change.rows[kept]] = self._rows.keys[kept]
        fresh = np.ones(len(catalog), dtype=bool)
        fresh[change.rows[kept]] = False
        new = np.flatnonzero(fresh)
        keys[new] = form.keys(catalog, new)
        after = copy.copy(self)
        after._take(catalog, exact, RowKeys(keys))
        new = new[self._rows.find(keys[new]) < 0]
        after._table = self._table.append(keys[new], lambda at: form.vectors(catalog, new[at]))
        # The name comes last: without it, writing was interrupted.
        self._server.point(after.name, self._table.name)
        after._ready()
        return after

    def renew(self, watch: Watch | None = None) -> None:
        """Write the catalog to a new collection that holds nothing else, and search there from then on.

        Searches go on meanwhile. The old collection stays, for those who search it, until `drop_others`.

        Parameters
        ----------
        watch
            Called with the number of items written, and of all.
        """
        if not self._may_write:
            raise InvalidInputError("this index may not write: make it with upload=True to renew it.")
        self._table = self._write(self._table.name, watch)
        self._ready()

    def drop_others(self) -> list[str]:
        """Remove all that is stored under the same ``collection`` and not needed for this catalog; return the names.

        Retrievers that run with other catalogs fail from then on, unless these share the collection with this one.
        """
        dropped = []
        for held_by in self._collections():
            names = [name for name in self._server.aliases(held_by) if name != self.name]
            for name in names:
                self._server.forget(name)
            if held_by != self._table.name:
                self._server.drop(held_by)
            dropped += names
        return sorted(dropped)

    def _take(self, catalog: Catalog, exact: ExactIndex, rows: RowKeys) -> None:
        self.catalog, self._exact, self._rows = catalog, exact, rows

    def _ready(self) -> None:
        """Search the table that holds the catalog from now on."""
        table, rows = self._table, self._rows

        def fetch(vectors: Floats, count: int) -> tuple[Floats, Rows]:
            scores, keys = table.search(vectors, count)
            return scores, rows.find(keys)

        make = OneHotFetch if self._form.wide else OverFetch
        most = min(max(len(self.catalog) // _MOST_SHARE, _LEAST_MOST), MOST_RESULTS - 1)
        scale = self._form.scale(self._exact._items)
        self._search = make(self.catalog, scale, fetch, self._exact, most, len(self.catalog) / table.size)

    def _write(self, old: str | None, watch: Watch | None) -> MilvusCollection:
        """Write the whole catalog to a collection of its own, which takes over the catalog's name from the old one."""
        spare = max(self.catalog.n_groups // _SPARE_SHARE, _LEAST_SPARE) if self._form.wide else 0
        width = min(self._form.width(self.catalog) + spare, MOST_COLUMNS)
        # No name is ever used again: whoever searches a collection that was dropped must not find another.
        table = MilvusCollection(self._server, f"{self.name}_rows_{secrets.token_hex(4)}", width)
        table.create(self._rows.keys, lambda at: self._form.vectors(self.catalog, at), watch)
        if (held_by := self._server.target(self.name)) not in (old, None):  # somebody was faster: one copy is enough
            self._server.drop(table.name)
            return MilvusCollection.open(self._server, held_by)
        self._server.point(self.name, table.name)
        return table

    def _collections(self) -> list[str]:
        pattern = re.compile(rf"{self.collection}_[0-9a-f]{{16}}_rows_[0-9a-f]{{8}}")
        return [name for name in self._server.collections() if pattern.fullmatch(name)]

    def _absent(self) -> str:
        names = sorted({name for held_by in self._collections() for name in self._server.aliases(held_by)})
        others = [name for name in names if name != self.name]
        held = f"; it holds other catalogs ({', '.join(others[:3])})" if others else ""
        return (
            f"Milvus at {self._server.uri} does not hold {self.catalog} in full under {self.name!r}{held}."
            " Upload it: MilvusIndex(..., upload=True)."
        )


def _way(prices: str, catalog: Catalog) -> str:
    if prices == "auto":
        return "one-hot" if catalog.dim + catalog.n_groups <= _WORTH_WIDENING * catalog.dim else "over-fetch"
    if prices not in ("one-hot", "over-fetch"):
        raise InvalidInputError(f"prices must be 'auto', 'one-hot' or 'over-fetch', got {prices!r}.")
    return prices
