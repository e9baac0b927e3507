"""Shards on a cluster: the answers of one index, from whatever source, for several threads and processes."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from rich.console import Console

from contract.test_eligibility import random_eligibility
from fairsync.catalog import Catalog
from fairsync.catalog.files import open_catalog, save_catalog
from fairsync.errors import BackendUnavailableError, InvalidInputError
from fairsync.retriever import FairRetriever
from fairsync.search import ExactIndex, Hits, Index, ShardedIndex, make_index
from fairsync.search.filtering import search_eligible
from search.approximate import make_case
from worlds import make_world

pytest.importorskip("ray")

if TYPE_CHECKING:
    from search.ray_cluster import RayCluster


CATALOG, USERS = make_case(0, n=3000, dim=12, users=7, interests=2)
PRICES = {
    "none": None,
    "subsidies": np.array([0.0, -0.4, 0.3, -1.0, 0.0, 0.1]),
    "masked": np.array([np.inf, -0.5, 0.0, 0.2, np.inf, 0.0]),
    "little left": np.array([np.inf, np.inf, np.inf, np.inf, np.inf, 1.0]),
}
SMALL = {"cpus": 0.25}

ELSEWHERE = """
import sys
import ray
from fairsync.catalog.files import open_catalog
from fairsync.search.ray import RayIndex

ray.init(address=sys.argv[1], log_to_driver=False, configure_logging=False)
RayIndex(open_catalog(sys.argv[2]), shards=2, replicas=2, cpus=0.25, name="shop")
print("started")
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator["RayCluster"]:
    from search.ray_cluster import RayCluster

    with RayCluster(nodes=2, cpus=2) as one:
        yield one


def start(catalog: Catalog, *given: Any, **options: Any) -> Any:
    from fairsync.search.ray import RayIndex

    return RayIndex(catalog, *given, **SMALL | options)


def assert_same(index: Index, other: Index, catalog: Catalog = CATALOG) -> None:
    for prices in PRICES.values():
        for k, users in ((1, USERS[:1]), (40, USERS), (700, USERS.astype(np.float32)), (5, USERS[:0])):
            hits, expected = index.search(users, prices, k), other.search(users, prices, k)
            assert hits.rows.tolist() == expected.rows.tolist()
            assert hits.relevance.tolist() == expected.relevance.tolist()
            assert hits.reached is None
            if len(users):
                eligible = random_eligibility(np.random.default_rng(k), len(catalog), len(users))
                hits, expected = (search_eligible(one, users, prices, k, eligible) for one in (index, other))
                assert hits.rows.tolist() == expected.rows.tolist()


def test_the_answer_is_that_of_one_index_from_any_source(cluster: "RayCluster", tmp_path: Path) -> None:
    save_catalog(CATALOG, tmp_path / "items")
    columns = {"id": CATALOG.ids, "group": CATALOG.labels_of(CATALOG.group_of), "embedding": CATALOG.embeddings}
    pl.DataFrame(columns).write_parquet(tmp_path / "items.parquet")
    truth = ExactIndex(CATALOG)
    with start(CATALOG, 3) as index:
        assert index.applies_prices == "bias"
        assert_same(index, truth)
        assert_same(index, ShardedIndex(CATALOG, 3))
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(lambda _: assert_same(index, truth), range(6)))
        wait_until_up(index)
        assert [(one.shard, one.replica) for one in index.health()] == [(0, 0), (1, 0), (2, 0)]
        assert sum(one.items for one in index.health()) == len(CATALOG)
    with pytest.raises(BackendUnavailableError, match="closed"):
        index.search(USERS, None, 1)
    stored = open_catalog(tmp_path / "items")
    chosen = np.array([0, 2])[stored.group_of // 3]  # the second and the fourth shard stay empty
    with start(stored, 4, placement=chosen) as index:
        assert_same(index, truth)
        assert [(one.shard, one.items) for one in index.health()] == [(at, int((chosen == at).sum())) for at in (0, 2)]
    with start(stored, 2, index="one-hot") as index:
        assert index.applies_prices == "one-hot"
        assert_same(index, make_index("one-hot", CATALOG))
    with start(open_catalog(tmp_path / "items.parquet"), 2) as index:
        assert_same(index, truth)


def test_the_whole_loop_is_the_same_also_after_changes(cluster: "RayCluster") -> None:
    world = make_world(3, groups=5, items=200, horizon=96, k=5, tightness=0.8, even=False)
    runs = []
    with start(world.catalog, 3) as index:
        for one in ("exact", index):
            retriever = FairRetriever(
                world.catalog, k=world.k, floors=world.floors, horizon=world.horizon, batch_size=8, index=one
            )
            retriever.calibrate(world.users[:30])
            found = [retriever.retrieve(world.users[:50])]
            retriever.remove([3, 70, 140])
            retriever.upsert(world.catalog.embeddings[[5, 9]] * 1.5, [0, 1], [5, 900])
            found.append(retriever.retrieve(world.users[50:]))
            assert not any(one.degraded for one in found)
            runs.append((retriever.report(), np.concatenate([one.ids for one in found]).tolist()))
    assert runs[0][1] == runs[1][1]
    assert runs[0][0].exposures == runs[1][0].exposures
    assert all(runs[1][0].satisfied.values())


def test_processes_attach_to_shards_that_outlive_their_starter(cluster: "RayCluster", tmp_path: Path) -> None:
    from fairsync.search.ray import RayIndex
    from search.ray_cluster import wait_for

    save_catalog(CATALOG, tmp_path / "items")
    catalog = open_catalog(tmp_path / "items")
    with pytest.raises(InvalidInputError, match="no index 'shop'"):
        RayIndex.attach("shop", catalog)
    command = [sys.executable, "-c", ELSEWHERE, cluster.address, str(tmp_path / "items")]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    index = RayIndex.attach("shop", catalog)
    assert_same(index, ExactIndex(CATALOG))
    with pytest.raises(InvalidInputError, match="runs already"):
        start(catalog, name="shop")
    other = Catalog(CATALOG.embeddings[:50], CATALOG.group_of[:50])
    with pytest.raises(InvalidInputError, match="another catalog"):
        RayIndex.attach("shop", other)
    RayIndex.attach("shop", CATALOG).close()  # the same items from memory; others go on
    for one in index.health():
        os.kill(one.pid, signal.SIGKILL)
    wait_until_up(index)  # they load again, though their starter is gone
    assert_same(index, ExactIndex(CATALOG))
    assert RayIndex.end("shop")
    assert not RayIndex.end("shop")
    wait_for(lambda: _free_cpus() == 4)


def test_a_catalog_is_replaced_by_shards_of_the_same_kind(cluster: "RayCluster") -> None:
    other, _ = make_case(1, n=500, dim=12)
    with start(CATALOG, 2, index="one-hot", deadline=7.0) as index:
        retriever = FairRetriever(CATALOG, k=5, index=index)
        retriever.replace(other)
        with retriever.index as rebuilt:  # type: ignore[attr-defined]
            assert rebuilt.applies_prices == "one-hot"
            assert len(rebuilt.health()) == 2
            assert_same(rebuilt, ExactIndex(other), other)
    with start(CATALOG, 2, placement=np.arange(len(CATALOG)) % 2) as placed:
        refused = pytest.raises(InvalidInputError, match=r"placement=.*give index=")
        with refused:
            placed.rebuild(other)


def test_missing_resources_are_reported(cluster: "RayCluster", caplog: pytest.LogCaptureFixture) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"replicas": 3}, r"different nodes, and 2 of 3 have 0.25 CPU, not 3"),
        ({"cpus": 3.0}, r"0 of 3 have 3 CPU"),
        ({"shards": 5, "cpus": 1.0}, r"5 CPU are needed, and 4 of 4 are free"),
        ({"shards": 2, "cpus": 1.5, "replicas": 2}, r"6 CPU are needed, and 4 of 4"),
        ({"shards": 1, "memory": 1 << 50}, r"have 0.25 CPU and 1.1259e\+15 memory, not 1"),
    ]
    for options, said in cases:
        wait_for_room()
        with pytest.raises(BackendUnavailableError, match=said):
            start(CATALOG, place_within=0.5, **options)
        assert "Waiting 0.5 s" in caplog.records[-1].getMessage()
    wait_for_room()


def test_files_that_shards_cannot_load_are_reported(cluster: "RayCluster", tmp_path: Path) -> None:
    save_catalog(CATALOG, tmp_path / "items")
    catalog, path = open_catalog(tmp_path / "items"), tmp_path / "items" / "embeddings.npy"
    whole = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(-1000, os.SEEK_END)
        file.write(b"\x00\x01")
    with pytest.raises(InvalidInputError, match=r"Shard \d, replica 0 cannot load.*not those that were saved"):
        start(catalog, 2)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidInputError, match=r"cannot load its items: .*embeddings\.npy|cannot be read"):
        start(catalog, 2)
    wait_for_room()


class Broken:
    applies_prices = "bias"

    def search(self, *_: object) -> Hits:
        raise ZeroDivisionError("this index is broken")


def test_an_error_of_the_index_itself_reaches_the_caller(cluster: "RayCluster") -> None:
    import ray.cloudpickle

    # Shards cannot import tests.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    with start(CATALOG, 2, index=lambda _: Broken()) as index:
        with pytest.raises(ZeroDivisionError, match="broken"):
            index.search(USERS, None, 3)
        wait_until_up(index)  # nothing is wrong with the shards


def test_invalid_arguments_are_refused(cluster: "RayCluster") -> None:
    for options, said in (
        ({"shards": 0}, "shards"),
        ({"replicas": 0}, "replicas"),
        ({"cpus": 0.0}, "cpus"),
        ({"deadline": 0.0}, "deadline"),
        ({"hedge": 6.0}, "hedge"),
        ({"placement": [0]}, "placement"),
        ({"name": "a/b"}, "name"),
        ({"name": "shop"}, "save_catalog"),  # it could not be loaded again without this process
    ):
        with pytest.raises(InvalidInputError, match=said):
            start(CATALOG, **options)
    with start(CATALOG, 1) as index:
        for users in (USERS[:, 0], USERS[:, :, :5], USERS.astype(int)):
            with pytest.raises(InvalidInputError, match="users"):
                index.search(users, None, 1)
        with pytest.raises(InvalidInputError, match="prices"):
            index.search(USERS, np.ones(2), 1)


def test_the_benchmark_runs_from_end_to_end(cluster: "RayCluster", tmp_path: Path) -> None:
    sys.path.append(str(Path(__file__).parents[3]))  # the benchmarks are no part of the package
    from benchmarks import ray as benchmark

    size = ["--items", "400", "--rounds", "1", "--calls", "1", "--out", str(tmp_path)]
    assert benchmark.main(size, Console(file=io.StringIO(), width=160)) == 0
    document = json.loads((tmp_path / "ray.json").read_text())
    assert [one["batch"] for one in document["figures"]] == [1, 16, 64]
    assert all(one[way] > 0 for one in document["figures"] for way in ("exact", "sharded", "ray"))


def _free_cpus() -> float:
    import ray

    return float(ray.available_resources().get("CPU", 0.0))  # type: ignore[no-untyped-call]


def wait_until_up(index: Any) -> None:
    from search.ray_cluster import wait_for

    wait_for(lambda: all(one.up for one in index.health()))


def wait_for_room() -> None:
    from search.ray_cluster import wait_for

    wait_for(lambda: _free_cpus() == 4)
