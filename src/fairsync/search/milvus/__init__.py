"""Search in the Milvus vector database: Milvus ranks, and prices and ties are settled in this process."""

from fairsync.errors import BackendUnavailableError
from fairsync.search.milvus.index import MilvusIndex

__all__ = ["BackendUnavailableError", "MilvusIndex"]
