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
    from collections.abc import Iterator

    from fairsync.search.engines.engine import Engine

_numbers = count()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real server."""
    pytest.importorskip("pymilvus")
    pytest.importorskip("milvus")
    from benchmarks.milvus_server import MilvusServer

    one = MilvusServer(tmp_path_factory.mktemp("milvus"))
    try:
        one.start()
        yield one.uri
    finally:
        one.kill()


@pytest.fixture
def engine(address: str) -> Engine:
    """The items in a collection."""
    from fairsync.search.engines.milvus import MilvusIndex

    return MilvusIndex(SHOP, address, f"hosted_{next(_numbers)}", upload=True).engine
