"""An index over a catalog in a Postgres table with pgvector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fairsync.search.engines.engine_index import EngineIndex
from fairsync.search.engines.pgvector.engine import PgvectorEngine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairsync.catalog import Catalog
    from fairsync.catalog.files import Watch


class PgvectorIndex(EngineIndex):
    """Search a catalog that a Postgres table holds; see `EngineIndex` for what is certain.

    Parameters
    ----------
    catalog
        The items to search. The table has a column for each of their attributes.
    url
        ``postgresql://user:password@host/database``. The URL of a ledger serves, too: its ``schema`` is ignored.
    table
        The name of the table, with its schema if that is not on the search path: ``"shop.items"``.
    id_column, embedding_column
        The names of these columns.
    columns
        The column of each attribute whose name is another one.
    index
        ``"exact"``: every search reads the whole table, ranks under prices, and misses nothing. ``"hnsw"``: pgvector's
        HNSW index ranks without prices, and items are fetched until the answer is as certain as its ranking.
    ef_search
        For HNSW: the size of the candidate list. A larger one finds more of the best items and takes longer.
    timeout
        Seconds that a call may take. Until then it is retried if the server is down or starting.
    upload
        Whether to write: make the table if there is none, write items that are missing or different, and later changes.
        Other rows of the table are left alone.
    watch
        A progress callback of the upload: called with the number of items written and the total.
    """

    engine: PgvectorEngine

    def __init__(
        self,
        catalog: Catalog,
        url: str,
        table: str = "items",
        *,
        id_column: str = "id",
        embedding_column: str = "embedding",
        columns: Mapping[str, str] | None = None,
        index: Literal["exact", "hnsw"] = "exact",
        ef_search: int = 200,
        timeout: float = 10.0,
        upload: bool = False,
        watch: Watch | None = None,
    ) -> None:
        engine = PgvectorEngine(
            url, table, id_column=id_column, embedding_column=embedding_column, columns=columns, index=index,
            ef_search=ef_search, timeout=timeout,
        )  # fmt: skip
        super().__init__(catalog, engine, upload=upload, watch=watch)

    def close(self) -> None:
        """Close the connections that are not in use."""
        self.engine.close()
