"""Catalogs that only a Milvus server holds."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest

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
    from benchmarks.milvus_server import MilvusServer

    from fairsync.search.engines.engine import Engine

_numbers = count()


def written(server: MilvusServer) -> Engine:
    """Write the items to a new collection."""
    from fairsync.search.engines.milvus import MilvusIndex

    return MilvusIndex(SHOP, server.uri, f"hosted_{next(_numbers)}", upload=True).engine


@pytest.fixture(scope="module")
def unchanged(milvus_server: MilvusServer) -> Engine:
    """The items in a collection that no test changes: it takes seconds to make one."""
    return written(milvus_server)


@pytest.fixture
def engine(request: pytest.FixtureRequest, milvus_server: MilvusServer, unchanged: Engine) -> Engine:
    """The items in a collection, which is new for tests that write."""
    writes = (
        test_changes_in_the_engine_are_seen_and_combinations_noticed,
        test_equal_vectors_are_in_the_order_of_ids,
    )
    return written(milvus_server) if request.function in writes else unchanged
