"""Search by Milvus, for those who run a vector database: it ranks, prices and ties are settled here."""

from fairsync.errors import BackendUnavailableError
from fairsync.search.milvus.index import MilvusIndex

__all__ = ["BackendUnavailableError", "MilvusIndex"]
