"""Catalogs that only Postgres or Qdrant holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fairsync.search.engines import make_engine
from fairsync.search.engines.pgvector import PgvectorIndex
from fairsync.search.engines.qdrant import QdrantIndex
from search.engines.hosted_contract import (  # noqa: F401 -- the tests of every engine
    SHOP,
    test_changes_in_the_engine_are_seen_and_combinations_noticed,
    test_combinations_are_counted,
    test_equal_vectors_are_in_the_order_of_ids,
    test_it_finds_what_a_plain_search_finds,
    test_lists_are_those_of_a_front_end_with_the_catalog,
    test_what_needs_a_copy_is_refused,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fairsync.search.engines.engine import Engine
    from postgres_server import PostgresServer


@pytest.fixture(params=["pgvector", "pgvector hnsw", "qdrant", "qdrant over-fetch"])
def engine(request: pytest.FixtureRequest, postgres: PostgresServer, tmp_path: Path) -> Iterator[Engine]:
    """The items in a real engine."""
    kind, *how = request.param.split()
    if kind == "pgvector":
        postgres.execute("CREATE EXTENSION IF NOT EXISTS vector")
        index = PgvectorIndex(SHOP, postgres.url, "hosted", upload=True, index="hnsw" if how else "exact")
        yield index.engine
        index.close()
        postgres.execute("DROP TABLE hosted")
    else:
        QdrantIndex(SHOP, str(tmp_path), "hosted", upload=True)
        yield make_engine("qdrant", url=str(tmp_path), collection="hosted", prices="over-fetch" if how else "formula")
