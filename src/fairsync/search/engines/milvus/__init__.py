"""Items in a collection of Milvus: it ranks and filters, and prices are settled over what it returns."""

from fairsync.search.engines.milvus.engine import MilvusEngine
from fairsync.search.engines.milvus.index import MilvusIndex

__all__ = ["MilvusEngine", "MilvusIndex"]
