"""An index over a catalog in the Milvus vector database: Milvus ranks, prices and ties are settled here."""

import copy
import re
import secrets
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.catalog.attributes import Column
from fairsync.catalog.changes import CatalogChange
from fairsync.catalog.files import Watch
from fairsync.errors import InvalidInputError
from fairsync.search.base import Hits
from fairsync.search.eligibility import Eligibility
from fairsync.search.exact import ExactIndex
from fairsync.search.milvus.collection import MOST_COLUMNS, MOST_RESULTS, MilvusCollection
from fairsync.search.milvus.connection import Connection
from fairsync.search.milvus.expressions import fields_of, stored_columns, values_of
from fairsync.search.milvus.filtered_fetch import FilteredFetch
from fairsync.search.one_hot import OneHotFetch
from fairsync.search.over_fetch import Floats, OverFetch, Rows
from fairsync.search.overlay import Overlay
from fairsync.search.row_encoding import RowEncoding, RowKeys

# Up to this many times the width, wider vectors nearly always cost less than fetching more (benchmarks/milvus.py). The
# limit would be higher for small catalogs.
_WORTH_WIDENING = 6
# Spare columns for new groups: one for each eight groups, and at least this many.
_LEAST_SPARE, _SPARE_SHARE = 8, 8
# Beyond one item in this many of the catalog, another fetch takes far longer than scoring every item here.
_MOST_SHARE, _LEAST_MOST = 64, 1000


class MilvusIndex:
    """Search a catalog that a Milvus server holds.

    Milvus nominates candidates and the client decides: the items, their order and their relevance are settled in
    float64 on the catalog's own embeddings, so the answer is that of `ExactIndex`, to the last tie. If a large part of
    the catalog would have to be fetched, it is searched in this process.

    Rows in Milvus are append-only, and the key of a row is a hash of its content. When the catalog changes (`follow`),
    new rows are written to the same collection. Every index knows its own rows and ignores all others, so that
    retrievers that still use the old catalog stay exact.

    Parameters
    ----------
    catalog
        The items to search.
    uri
        The address of the server, or a path that ends in ``.db`` for Milvus Lite.
    collection
        The prefix of the names of collections.
    token
        ``"user:password"`` or an API key, if the server asks for one.
    prices
        ``"one-hot"``: Milvus ranks under prices, on vectors widened by one column per group. ``"over-fetch"``: Milvus
        ranks without prices, and items are fetched until the answer is certain. ``"auto"``: one-hot if that makes
        vectors at most six times as wide.
    timeout
        Seconds that a call to the server may take. Until then it is retried if the server is down or starting.
    upload
        Whether to write to the server: the catalog, if the server does not hold it yet, and its changes.
    watch
        A progress callback of the upload: called with the number of items written and the total.

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
        self.collection, self.applies_prices, self.upload = collection, _way(prices, catalog), upload
        self._prices = prices
        exact = ExactIndex(catalog)
        self._encoding = RowEncoding.of(exact.items, wide=self.applies_prices == "one-hot")
        if (width := self._encoding.width(catalog)) > MOST_COLUMNS:
            raise InvalidInputError(
                f"Milvus takes at most {MOST_COLUMNS:,} columns and this needs {width:,}: use prices='over-fetch'."
            )
        self.server = Connection(uri, token, timeout)
        everything = np.arange(len(catalog))
        self._take(catalog, exact, RowKeys(self._encoding.keys(catalog, everything, stored_columns(catalog))))
        held_by = self.server.collection_of(self.name)
        if held_by is not None:
            self.stored = MilvusCollection.open(self.server, held_by)
        if held_by is None or self.stored.size < len(catalog) or self.stored.width < width:
            if not upload:
                raise InvalidInputError(self._absent())
            self.stored = self._write(held_by, watch)
        self._ready()

    @property
    def name(self) -> str:
        """The alias of the catalog in Milvus: ``collection`` and a fingerprint of the rows of the catalog."""
        return f"{self.collection}_{self._rows.fingerprint}"

    @property
    def wear(self) -> float:
        """Rows of other catalogs in the same collection, as a share of this one's. Searches scan them; see `renew`."""
        return (self.stored.size - len(self.catalog)) / len(self.catalog)

    def search(
        self,
        users: npt.NDArray[np.floating],
        prices: npt.NDArray[np.float64] | None,
        k: int,
        eligible: Eligibility | None = None,
    ) -> Hits:
        """Find the k items of highest relevance minus price for each user; see `Index.search`.

        Raises
        ------
        BackendUnavailableError
            The server did not answer in time. Nothing was changed: search again when it is up.
        """
        return self.over_fetch.search(users, prices, k, eligible)

    def follow(self, change: CatalogChange) -> "MilvusIndex | Overlay":
        """Return an index over the catalog after a change, and write the new rows to Milvus.

        This index stays valid and exact. If writing fails, no index is affected, and the call can be repeated. If the
        index may not write (``upload=False``), or there is no column left for a new group, new items are searched in
        this process instead.

        Parameters
        ----------
        change
            A change of the catalog of this index; see `fairsync.catalog.changes`.

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
        catalog, encoding = change.catalog, self._encoding
        exact = ExactIndex(catalog)
        if not (self.upload and encoding.fits(exact.items) and encoding.width(catalog) <= self.stored.width):
            return Overlay(self, change.rows, self.catalog.group_sizes, catalog)
        stored = stored_columns(catalog)
        if [*stored] != [*self._stored]:  # a label that Milvus cannot hold
            return Overlay(self, change.rows, self.catalog.group_sizes, catalog)
        keys = np.zeros(len(catalog), dtype=np.int64)
        kept = (change.rows >= 0) & ~self._has_changed(change.rows, stored)
        keys[change.rows[kept]] = self._rows.keys[kept]
        fresh = np.ones(len(catalog), dtype=bool)
        fresh[change.rows[kept]] = False
        new = np.flatnonzero(fresh)
        keys[new] = encoding.keys(catalog, new, stored)
        after = copy.copy(self)
        after._take(catalog, exact, RowKeys(keys))
        new = new[self._rows.find(keys[new]) < 0]
        after.stored = self.stored.append(
            keys[new], lambda at: (encoding.vectors(catalog, new[at]), values_of(stored, new[at]))
        )
        # The alias comes last: without it, the write is incomplete and is not used.
        self.server.set_alias(after.name, self.stored.name)
        after._ready()
        return after

    def renew(self, watch: Watch | None = None) -> None:
        """Write the catalog to a new collection that holds nothing else, and use that from then on.

        Searches continue meanwhile. The old collection stays, for other indexes that use it, until `drop_others`.

        Parameters
        ----------
        watch
            A progress callback: called with the number of items written and the total.
        """
        if not self.upload:
            raise InvalidInputError("this index may not write: make it with upload=True to renew it.")
        self.stored = self._write(self.stored.name, watch)
        self._ready()

    def rebuild(self, catalog: Catalog) -> "MilvusIndex":
        """Return an index with the same settings over another catalog on the same server; see `rebuild_index`.

        The catalog is uploaded if this index may write, and must be on the server otherwise.
        """
        server = self.server
        return MilvusIndex(
            catalog, server.uri, self.collection, server.token, self._prices, server.timeout, self.upload
        )

    def drop_others(self) -> list[str]:
        """Remove everything stored under the same ``collection`` that this catalog does not need; return the aliases.

        Indexes over other catalogs fail from then on, unless they share the collection with this one.
        """
        dropped = []
        for held_by in self._collections():
            names = [name for name in self.server.aliases(held_by) if name != self.name]
            for name in names:
                self.server.drop_alias(name)
            if held_by != self.stored.name:
                self.server.drop_collection(held_by)
            dropped += names
        return sorted(dropped)

    def _take(self, catalog: Catalog, exact: ExactIndex, rows: RowKeys) -> None:
        self.catalog, self.exact, self._rows, self._stored = catalog, exact, rows, stored_columns(catalog)

    def _has_changed(self, rows: Rows, stored: Mapping[str, Column]) -> npt.NDArray[np.bool_]:
        """Return which items have other attributes in their new rows than the collection stores."""
        changed = np.zeros(len(rows), dtype=bool)
        kept = np.flatnonzero(rows >= 0)
        for name, column in self._stored.items():
            pairs = zip(column.take(kept).values(), stored[name].take(rows[kept]).values(), strict=True)
            changed[kept] |= np.fromiter((one != other for one, other in pairs), bool, len(kept))
        return changed

    def _ready(self) -> None:
        """Search the collection that holds the catalog from now on."""
        stored, rows = self.stored, self._rows

        def fetch(vectors: Floats, count: int) -> tuple[Floats, Rows]:
            scores, keys = stored.search(vectors, count)
            return scores, rows.find(keys)

        make = OneHotFetch if self._encoding.wide else OverFetch
        most = min(max(len(self.catalog) // _MOST_SHARE, _LEAST_MOST), MOST_RESULTS - 1)
        scale = self._encoding.scale(self.exact.items)
        alive = len(self.catalog) / stored.size
        filtered = FilteredFetch(self.catalog, self._stored, stored, rows)
        self.over_fetch = make(self.catalog, scale, fetch, self.exact, most, alive, filtered)

    def _write(self, old: str | None, watch: Watch | None) -> MilvusCollection:
        """Write the whole catalog to a new collection, to which the alias of the catalog then points."""
        spare = max(self.catalog.n_groups // _SPARE_SHARE, _LEAST_SPARE) if self._encoding.wide else 0
        width = min(self._encoding.width(self.catalog) + spare, MOST_COLUMNS)
        # Names are never reused: an index whose collection was dropped must not find another one under its name.
        name, fields = f"{self.name}_rows_{secrets.token_hex(4)}", fields_of(self._stored)
        stored = MilvusCollection(self.server, name, width, fields)
        stored.create(
            self._rows.keys,
            lambda at: (self._encoding.vectors(self.catalog, at), values_of(self._stored, at)),
            watch,
        )
        held_by = self.server.collection_of(self.name)
        if held_by is not None and held_by != old:  # another process was faster: use its copy
            self.server.drop_collection(stored.name)
            return MilvusCollection.open(self.server, held_by)
        self.server.set_alias(self.name, stored.name)
        return stored

    def _collections(self) -> list[str]:
        pattern = re.compile(rf"{self.collection}_[0-9a-f]{{16}}_rows_[0-9a-f]{{8}}")
        return [name for name in self.server.collections() if pattern.fullmatch(name)]

    def _absent(self) -> str:
        names = sorted({name for held_by in self._collections() for name in self.server.aliases(held_by)})
        others = [name for name in names if name != self.name]
        held = f"; it holds other catalogs ({', '.join(others[:3])})" if others else ""
        return (
            f"Milvus at {self.server.uri} does not hold {self.catalog} in full under {self.name!r}{held}."
            " Upload it: MilvusIndex(..., upload=True)."
        )


def _way(prices: str, catalog: Catalog) -> str:
    if prices == "auto":
        return "one-hot" if catalog.dim + catalog.n_groups <= _WORTH_WIDENING * catalog.dim else "over-fetch"
    if prices not in ("one-hot", "over-fetch"):
        raise InvalidInputError(f"prices must be 'auto', 'one-hot' or 'over-fetch', got {prices!r}.")
    return prices
