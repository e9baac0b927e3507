"""An index over a catalog in Qdrant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fairsync.search.engines.engine_index import EngineIndex
from fairsync.search.engines.qdrant.engine import QdrantEngine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qdrant_client import QdrantClient

    from fairsync.catalog import Catalog
    from fairsync.catalog.files import Watch


class QdrantIndex(EngineIndex):
    """Search a catalog that Qdrant holds; see `EngineIndex` for what is certain.

    Parameters
    ----------
    catalog
        The items to search. The payload of a point has a field for each of their attributes.
    url
        The address of a server, ``http://…`` or ``https://…``; the path of a folder, for Qdrant's own engine in this
        process (``pip install 'fairsync[qdrant-edge]'``); ``":memory:"``, for the local mode of Qdrant's client; or a
        client that was made elsewhere.
    collection
        The name of the collection, or an alias of it; for a folder, the name of the folder within it.
    api_key
        The API key of a server, if it asks for one.
    id_key
        The payload field with the id of an item, if ids are words. None or "" if these are the UUIDs of the points.
        Numbers are the ids of points.
    vector_name
        The name of the vector, if it has one.
    columns
        The payload field of each attribute whose name is another one.
    index
        ``"exact"``: Qdrant compares all vectors, and misses nothing. ``"hnsw"``: it uses its HNSW index.
    prices
        ``"formula"``: Qdrant fetches points by score, and ranks these by a formula with the prices; more are fetched
        until the answer is certain. ``"over-fetch"``: prices are subtracted here, for servers before 1.14.
    timeout
        Seconds that a call may take. Until then it is retried if the server is down or starting.
    upload
        Whether to write: make the collection if there is none, write items that are missing or different, and later
        changes. Other points are left alone.
    watch
        A progress callback of the upload: called with the number of items written and the total.
    """

    engine: QdrantEngine

    def __init__(
        self,
        catalog: Catalog,
        url: str | QdrantClient = "http://localhost:6333",
        collection: str = "items",
        *,
        api_key: str = "",
        id_key: str | None = "id",
        vector_name: str = "",
        columns: Mapping[str, str] | None = None,
        index: Literal["exact", "hnsw"] = "exact",
        prices: Literal["formula", "over-fetch"] = "formula",
        timeout: float = 10.0,
        upload: bool = False,
        watch: Watch | None = None,
    ) -> None:
        engine = QdrantEngine(
            url, collection, api_key=api_key, id_key=id_key, vector_name=vector_name, columns=columns, index=index,
            prices=prices, timeout=timeout,
        )  # fmt: skip
        super().__init__(catalog, engine, upload=upload, watch=watch)
