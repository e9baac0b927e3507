"""Embeddings of a new model replace the old ones at one moment, under load, on the real engines."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import fairsync as fs
from fairsync.catalog import Catalog
from fairsync.search import ExactIndex
from fairsync.search.engines import make_engine, make_engine_index

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fairsync.search.engines import EngineIndex
    from postgres_server import PostgresServer

ENGINES = ["pgvector", "qdrant-edge", "qdrant-local", "milvus", "milvus-lite"]
USERS = np.random.default_rng(1).standard_normal((4, 1, 8))


def model(seed: int, dim: int = 8) -> Catalog:
    rng = np.random.default_rng(seed)
    labels = [f"brand {at % 5}" for at in range(300)]
    return Catalog(rng.standard_normal((300, dim)).astype(np.float32), {"brand": labels}, np.arange(300).astype(str))


@pytest.fixture(scope="module")
def milvus_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("pymilvus")
    pytest.importorskip("milvus")
    from benchmarks.milvus_server import MilvusServer

    server = MilvusServer(tmp_path_factory.mktemp("milvus"))
    try:
        server.start()
        yield server.uri
    finally:
        server.kill()


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """The name and the settings of an engine that holds nothing yet."""
    name: str = request.param
    if name == "pgvector":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        postgres.execute("CREATE EXTENSION IF NOT EXISTS vector")
        postgres.execute("DROP TABLE IF EXISTS switched, switched_new, switched_old")
        return {"name": "pgvector", "url": postgres.url, "table": "switched"}
    if name == "milvus":
        return {"name": "milvus", "url": request.getfixturevalue("milvus_url"), "collection": "switched"}
    if name == "milvus-lite":
        pytest.importorskip("milvus_lite")
        return {"name": "milvus", "url": str(tmp_path / "items.db"), "collection": "switched"}
    if name == "qdrant-edge":
        pytest.importorskip("qdrant_edge")
        return {"name": "qdrant", "url": str(tmp_path), "collection": "switched"}
    models = pytest.importorskip("qdrant_client").models
    client = pytest.importorskip("qdrant_client").QdrantClient(":memory:")
    client.create_collection("first", models.VectorParams(size=8, distance=models.Distance.DOT))
    alias = models.CreateAlias(collection_name="first", alias_name="switched")
    client.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])
    return {"name": "qdrant", "url": client, "collection": "switched"}


def open_index(engine: dict[str, Any], catalog: Catalog, *, upload: bool = False) -> EngineIndex:
    given = {key: value for key, value in engine.items() if key != "name"}
    return make_engine_index(engine["name"], catalog, upload=upload, timeout=60.0, **given)


def best(catalog: Catalog) -> list[list[int]]:
    rows: list[list[int]] = ExactIndex(catalog).search(USERS, None, 10).rows.tolist()
    return rows


class Searching:
    """Searches an index in threads, before, during and after a change, and counts the wrong answers."""

    def __init__(self, *indexes: EngineIndex) -> None:
        self._stop, self._searched = threading.Event(), threading.Barrier(len(indexes) + 1)
        self.wrong, self.failures = 0, list[BaseException]()
        self._threads = [threading.Thread(target=self._work, args=(one,)) for one in indexes]

    def _work(self, index: EngineIndex) -> None:
        truth = best(index.catalog)
        try:
            self._search(index, truth)
            self._searched.wait()
            while not self._stop.is_set():
                self._search(index, truth)
            self._search(index, truth)
        except BaseException as error:
            self.failures.append(error)
            self._searched.abort()

    def _search(self, index: EngineIndex, truth: list[list[int]]) -> None:
        self.wrong += index.certified.search(USERS, None, 10).rows.tolist() != truth

    @contextmanager
    def running(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        with suppress(threading.BrokenBarrierError):
            self._searched.wait()
        try:
            yield
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join()
        assert not self.failures, self.failures
        assert self.wrong == 0


def test_searches_see_all_of_the_old_model_or_all_of_the_new_one(engine: dict[str, Any]) -> None:
    first, second, third = model(0), model(1), model(2)
    writer = open_index(engine, first, upload=True)
    reader = open_index(engine, first)  # as in another process: it is not told
    with Searching(writer, reader).running():
        after = writer.rebuild(second)
    assert after.search(USERS, None, 10).rows.tolist() == best(second)
    assert open_index(engine, second).search(USERS, None, 10).rows.tolist() == best(second)
    with pytest.raises(fs.InvalidInputError, match="another embedding"):
        open_index(engine, first)
    # Once more: what had the name before the last one is gone.
    with Searching(after).running():
        last = after.rebuild(third)
    assert last.search(USERS, None, 10).rows.tolist() == best(third)
    assert after.search(USERS, None, 10).rows.tolist() == best(second)


def test_a_process_that_starts_with_a_new_model_switches_too(engine: dict[str, Any]) -> None:
    first, second = model(0), model(1)
    old = open_index(engine, first, upload=True)
    with Searching(old).running():
        new = open_index(engine, second, upload=True)
    assert new.search(USERS, None, 10).rows.tolist() == best(second)
    assert old.search(USERS, None, 10).rows.tolist() == best(first)


def test_another_number_of_dimensions_in_a_retriever(engine: dict[str, Any]) -> None:
    first, wider = model(0), model(3, dim=12)
    retriever = fs.FairRetriever(first, k=5, floors=10, horizon=40, index=open_index(engine, first, upload=True))
    retriever.retrieve(USERS[:, 0])
    retriever.replace(wider)
    users = np.random.default_rng(2).standard_normal((36, 12))
    found = retriever.retrieve(users)
    assert found.ids.shape == (36, 5)
    assert all(retriever.report().satisfied.values())


def test_a_table_with_other_columns_is_changed_in_place(postgres: PostgresServer) -> None:
    postgres.execute("CREATE EXTENSION IF NOT EXISTS vector")
    postgres.execute("DROP TABLE IF EXISTS wares")
    postgres.execute("CREATE TABLE wares (id text PRIMARY KEY, embedding vector(8), brand text, note text)")
    first, second = model(0), model(1)
    index = make_engine_index("pgvector", first, upload=True, url=postgres.url, table="wares")
    postgres.execute("UPDATE wares SET note = 'kept'")
    after = index.rebuild(second)
    assert after.search(USERS, None, 10).rows.tolist() == best(second)
    assert postgres.execute("SELECT DISTINCT note FROM wares") == [("kept",)]
    assert make_engine("pgvector", url=postgres.url, table="wares").beside() is None
