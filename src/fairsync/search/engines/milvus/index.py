"""An index over a catalog in Milvus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fairsync.search.engines.engine_index import EngineIndex
from fairsync.search.engines.milvus.engine import MilvusEngine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairsync.catalog import Catalog
    from fairsync.catalog.files import Watch


class MilvusIndex(EngineIndex):
    """Search a catalog that a collection of Milvus holds; see `EngineIndex` for what is certain.

    Parameters
    ----------
    catalog
        The items to search. The collection has a field for each of their attributes.
    url
        The address of the server, or a path that ends in ``.db`` for Milvus Lite.
    collection
        The name of the collection, or an alias of it.
    api_key
        ``"user:password"`` or an API key, if the server asks for one.
    id_column, embedding_column
        The fields of ids (the primary key) and of vectors.
    columns
        The field of each attribute whose name is another one.
    index
        ``"exact"``: Milvus compares all vectors (a ``FLAT`` index), and misses nothing. ``"hnsw"``: it uses its HNSW
        index.
    ef_search
        For HNSW: the size of the candidate list. A larger one finds more of the best items and takes longer.
    timeout
        Seconds that a call may take. Until then it is retried if the server is down or starting.
    upload
        Whether to write: make the collection if there is none, write items that are missing or different, and later
        changes. Other items are left alone.
    watch
        A progress callback of the upload: called with the number of items written and the total.

    Examples
    --------
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> from fairsync.catalog import Catalog
    >>> catalog = Catalog(np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]], dtype=np.float32), ["a", "b", "b"])
    >>> with TemporaryDirectory() as folder:
    ...     index = MilvusIndex(catalog, folder + "/items.db", upload=True)
    ...     index.search(np.array([[[1.0, 0.0]]]), np.array([0.5, 0.0]), k=2).rows
    array([[1, 0]])
    """

    engine: MilvusEngine

    def __init__(
        self,
        catalog: Catalog,
        url: str = "http://localhost:19530",
        collection: str = "items",
        *,
        api_key: str = "",
        id_column: str = "id",
        embedding_column: str = "embedding",
        columns: Mapping[str, str] | None = None,
        index: Literal["exact", "hnsw"] = "exact",
        ef_search: int = 200,
        timeout: float = 10.0,
        upload: bool = False,
        watch: Watch | None = None,
    ) -> None:
        engine = MilvusEngine(
            url, collection, api_key=api_key, id_column=id_column, embedding_column=embedding_column, columns=columns,
            index=index, ef_search=ef_search, timeout=timeout,
        )  # fmt: skip
        super().__init__(catalog, engine, upload=upload, watch=watch)
