"""Search engines that hold the items: Postgres with pgvector, Qdrant, Milvus. They rank; ties are settled here."""

from importlib import import_module
from typing import Any

from fairsync.catalog import Catalog
from fairsync.errors import InvalidInputError
from fairsync.search.engines.engine import Abilities, Engine
from fairsync.search.engines.engine_index import EngineIndex

__all__ = ["ENGINES", "Abilities", "Engine", "EngineIndex", "make_engine", "make_engine_index"]

# The module of each engine and the name of its class. Their packages are imported when they are used.
ENGINES = {
    "pgvector": ("fairsync.search.engines.pgvector", "PgvectorEngine"),
    "milvus": ("fairsync.search.engines.milvus", "MilvusEngine"),
    "qdrant": ("fairsync.search.engines.qdrant", "QdrantEngine"),
}
"""The engines by name."""


def make_engine(name: str, **settings: Any) -> Engine:
    """Return the engine of this name, with its own settings, before anything is asked of it.

    Examples
    --------
    >>> make_engine("pgvector", url="postgresql://me:secret@db.internal/shop", table="items").place
    "the table 'items' at postgresql://db.internal/shop"
    """
    if name not in ENGINES:
        raise InvalidInputError(f"there is no engine {name!r}: choose one of {', '.join(ENGINES)}.")
    module, kind = ENGINES[name]
    made: Engine = getattr(import_module(module), kind)(**settings)
    return made


def make_engine_index(name: str, catalog: Catalog, *, upload: bool = False, **settings: Any) -> EngineIndex:
    """Return an index over a catalog that the engine of this name holds; see `EngineIndex`.

    Examples
    --------
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> catalog = Catalog(np.eye(3, dtype=np.float32), ["a", "b", "b"])
    >>> with TemporaryDirectory() as folder:
    ...     index = make_engine_index("qdrant", catalog, upload=True, url=folder)
    ...     index.search(np.array([[[1.0, 0.5, 0.0]]]), np.array([2.0, 0.0]), k=2).rows
    array([[1, 2]])
    """
    return EngineIndex(catalog, make_engine(name, **settings), upload=upload)
