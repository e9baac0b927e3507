"""The real server: exact, and exact again after it was killed."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fairsync.errors import InvalidInputError
from fairsync.search import ExactIndex
from fairsync.search.milvus import BackendUnavailableError, MilvusIndex
from search.approximate import make_case

if TYPE_CHECKING:
    from search.milvus_server import Server

CATALOG, USERS = make_case(0, n=20_000, dim=16, users=6, interests=2)
TRUTH = ExactIndex(CATALOG)
WAYS = ("one-hot", "over-fetch")
PRICES = {
    "none": None,
    "subsidies": np.array([0.0, -0.4, 0.3, -1.0, 0.0, 0.1]),
    "steep": np.array([0.0, 0.0, -1e6, 0.0, 5.0, -3.0]),  # leaves nothing certain by fetching
    "masked": np.array([np.inf, -0.5, 0.0, 0.2, np.inf, 0.0]),
    "little left": np.array([np.inf, np.inf, np.inf, np.inf, np.inf, 1.0]),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Server"]:
    pytest.importorskip("pymilvus")
    pytest.importorskip("milvus")
    from search.milvus_server import Server

    one = Server(tmp_path_factory.mktemp("server"))
    try:
        one.start()
        yield one
    finally:
        one.kill()


def assert_exact(index: MilvusIndex) -> None:
    for prices in PRICES.values():
        for k in (5, 120):
            hits, truth = index.search(USERS, prices, k), TRUTH.search(USERS, prices, k)
            assert (hits.rows == truth.rows).all()
            assert (hits.relevance == truth.relevance).all()


def test_it_is_exact_and_exact_again_after_it_was_killed(server: "Server") -> None:
    with ThreadPoolExecutor() as pool:
        ways = [pool.submit(MilvusIndex, CATALOG, server.uri, prices=way, timeout=60, upload=True) for way in WAYS]
        index, other = (way.result() for way in ways)
    hasty = MilvusIndex(CATALOG, server.uri, timeout=0.5)
    assert hasty.name == index.name
    assert_exact(index)
    assert_exact(other)

    server.kill()
    with pytest.raises(BackendUnavailableError, match=r"does not answer.*Start it"):
        hasty.search(USERS, None, 5)
    with pytest.raises(BackendUnavailableError):
        MilvusIndex(CATALOG, server.uri, timeout=0.5)
    # A patient search sits the restart out.
    threading.Timer(0.5, server.start).start()
    assert_exact(index)
    assert_exact(other)
    assert_exact(MilvusIndex(CATALOG, server.uri, timeout=60))

    assert index.drop_others() == [other.name]
    with pytest.raises(InvalidInputError, match="is gone"):
        other.search(USERS, None, 5)
    assert_exact(hasty)
