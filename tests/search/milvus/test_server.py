"""The real server: exact, through updates too, and exact again after it or its client was killed."""

import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fairsync.catalog import Catalog
from fairsync.catalog.changes import CatalogChange, remove_items, upsert_items
from fairsync.errors import InvalidInputError
from fairsync.search import ExactIndex
from fairsync.search.milvus import BackendUnavailableError, MilvusIndex
from fairsync.search.milvus import collection as milvus_collection
from search.approximate import make_case
from search.milvus_conditions import assert_conditions_hold, described

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
    exact = TRUTH if index.catalog is CATALOG else ExactIndex(index.catalog)
    for prices in PRICES.values():
        for k in (5, 120):
            hits, truth = index.search(USERS, prices, k), exact.search(USERS, prices, k)
            assert (hits.rows == truth.rows).all()
            assert (hits.relevance == truth.relevance).all()


def test_it_is_exact_and_exact_again_after_it_was_killed(server: "Server") -> None:
    with ThreadPoolExecutor() as pool:
        ways = [pool.submit(MilvusIndex, CATALOG, server.uri, prices=way, timeout=60, upload=True) for way in WAYS]
        index, other = (way.result() for way in ways)
    hasty = MilvusIndex(CATALOG, server.uri, timeout=5)
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


def change_of(catalog: Catalog, seed: int, size: int = 3000) -> CatalogChange:
    """Return a change that replaces items by such as users like, and takes others out."""
    rng = np.random.default_rng(seed)
    rows = rng.choice(len(catalog), size, replace=False)
    liked = USERS.reshape(-1, 16)[rng.integers(0, 12, size)] + 0.3 * rng.normal(size=(size, 16))
    first = upsert_items(catalog, liked, catalog.group_of[rows], catalog.ids[rows])
    second = remove_items(first.catalog, rng.choice(catalog.ids, 500, replace=False))
    return CatalogChange(second.catalog, np.where(first.rows >= 0, second.rows[first.rows], -1))


def follow_slowly(uri: str, watch: "multiprocessing.sharedctypes.Synchronized[int]") -> None:
    """Write an update in many small steps, and count them."""
    milvus_collection.WRITTEN_AT_ONCE = 320
    index = MilvusIndex(CATALOG, uri, "updated", timeout=60, upload=True)
    upsert = index.server.client.upsert

    def counted(*given: object, **named: object) -> object:
        watch.value += 1
        time.sleep(0.02)
        return upsert(*given, **named)

    index.server.client.upsert = counted
    index.follow(change_of(CATALOG, 1))


@pytest.mark.skipif(not os.environ.get("FAIRSYNC_SLOW"), reason="takes a minute: FAIRSYNC_SLOW=1")
def test_updates_are_exact_at_once_and_survive_kills(server: "Server") -> None:
    index = MilvusIndex(CATALOG, server.uri, "updated", timeout=60, upload=True)
    change = change_of(CATALOG, 1)

    # The client is killed while it writes: no index sees the incomplete update.
    spawn = multiprocessing.get_context("spawn")
    steps = spawn.Value("i", 0)
    client = spawn.Process(target=follow_slowly, args=(server.uri, steps))
    client.start()
    end = time.monotonic() + 60
    while steps.value < 20 and time.monotonic() < end:
        time.sleep(0.01)
    client.kill()
    client.join()
    assert steps.value >= 20
    with pytest.raises(InvalidInputError, match="in full"):
        MilvusIndex(change.catalog, server.uri, "updated", timeout=60)
    assert_exact(index)

    # The same update, again and in full; the server is killed as soon as it is done.
    after = index.follow(change)
    assert isinstance(after, MilvusIndex)
    assert_exact(after)
    further = after.follow(change_of(after.catalog, 2, size=40))
    server.kill()
    threading.Timer(0.2, server.start).start()
    assert isinstance(further, MilvusIndex)
    for one in (further, after, index):
        assert_exact(one)
    assert_exact(MilvusIndex(further.catalog, server.uri, "updated", timeout=60))

    # The server is killed while an update is under way: it is written when the server is back.
    threading.Timer(0.1, server.kill).start()
    threading.Timer(1.0, server.start).start()
    last = further.follow(change_of(further.catalog, 3))
    assert isinstance(last, MilvusIndex)
    for one in (last, further, index):
        assert_exact(one)
    last.renew()
    assert last.wear == 0
    assert_exact(last)
    last.drop_others()
    with pytest.raises(InvalidInputError, match="is gone"):
        index.search(USERS, None, 5)
    assert_exact(last)


@pytest.mark.parametrize("way", WAYS)
def test_the_server_evaluates_conditions(server: "Server", way: str) -> None:
    catalog = described(5)
    index = MilvusIndex(catalog, server.uri, "conditions", prices=way, upload=True)
    assert_conditions_hold(index, catalog, 5)
    gone = upsert_items(catalog, None, {"in_stock": [False] * 30, "year": [1999] * 30}, catalog.ids[:30].tolist())
    assert_conditions_hold(index, gone.catalog, 6)
