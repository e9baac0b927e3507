"""Indexes of search engines for a measurement: items are written to a table of its own, which is dropped after it."""

from __future__ import annotations

import os
import secrets
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairsync.errors import InvalidInputError
from fairsync.extras import explain_missing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairsync.catalog import Catalog
    from fairsync.search import Index

ENGINE_NAMES = ("pgvector", "pgvector-hnsw", "qdrant", "qdrant-hnsw", "milvus", "milvus-hnsw", "ray")
"""Engines that can be measured. They run in the process, or on this machine, unless FAIRSYNC_SEARCH_URL has an address;
pgvector needs one."""
URL = "FAIRSYNC_SEARCH_URL"
_RAY_SHARDS = 2


@contextmanager
def engine_index(name: str, catalog: Catalog) -> Iterator[Index]:
    """Write a catalog to an engine, and return the index over it; drop what was written afterwards."""
    engine, _, kind = name.partition("-")
    url, place = os.environ.get(URL, ""), f"fairsync_bench_{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder:
        if engine == "pgvector":
            yield from _pgvector(catalog, url, place, kind or "exact")
        elif engine == "qdrant":
            yield from _qdrant(catalog, url or folder, place, kind or "exact")
        elif engine == "ray":
            yield from _ray(catalog, url)
        else:
            yield from _milvus(catalog, url or str(Path(folder) / "items.db"), place, kind or "exact")


def _pgvector(catalog: Catalog, url: str, table: str, kind: Any) -> Iterator[Index]:
    if not url.startswith("postgres"):
        raise InvalidInputError(f"pgvector needs a server: set {URL}=postgresql://user:password@host/database.")
    from fairsync.search.engines.pgvector import PgvectorIndex

    index = PgvectorIndex(catalog, url, table, index=kind, timeout=600.0, upload=True)
    try:
        yield index
    finally:
        index.engine.server.run(lambda one: one.execute(f"DROP TABLE {table}".encode()), writes=True)
        index.close()


def _qdrant(catalog: Catalog, url: str, collection: str, kind: Any) -> Iterator[Index]:
    from fairsync.search.engines.qdrant import QdrantIndex

    try:
        yield QdrantIndex(catalog, url, collection, index=kind, timeout=600.0, upload=True)
    finally:
        if "://" in url:
            with explain_missing("a measurement of Qdrant"):
                from qdrant_client import QdrantClient
            QdrantClient(url).delete_collection(collection)


def _milvus(catalog: Catalog, url: str, collection: str, kind: Any) -> Iterator[Index]:
    from fairsync.search.engines.milvus import MilvusIndex

    index = MilvusIndex(catalog, url, collection, index=kind, timeout=600.0, upload=True)
    try:
        yield index
    finally:
        server = index.engine.server
        held_by = server.collection_of(collection)
        server.call("drop_alias", collection)
        server.call("drop_collection", held_by)


def _ray(catalog: Catalog, url: str) -> Iterator[Index]:
    if not url:  # a cluster of its own has a token of its own, for which Ray looks when it is imported
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with explain_missing("a measurement of Ray"):
        import ray
    from fairsync.search.ray import RayIndex

    processors = None if url else _RAY_SHARDS
    ray.init(url or "local", num_cpus=processors, include_dashboard=False, log_to_driver=False)
    try:
        with RayIndex(catalog, _RAY_SHARDS) as index:
            yield index
    finally:
        ray.shutdown()
