"""Items in a Postgres table with pgvector: SQL ranks them, under prices and conditions."""

from fairsync.search.engines.pgvector.engine import PgvectorEngine
from fairsync.search.engines.pgvector.index import PgvectorIndex

__all__ = ["PgvectorEngine", "PgvectorIndex"]
