"""Items in Qdrant: it filters them, and ranks what it has fetched by a formula with the prices."""

from fairsync.search.engines.qdrant.engine import QdrantEngine
from fairsync.search.engines.qdrant.index import QdrantIndex

__all__ = ["QdrantEngine", "QdrantIndex"]
