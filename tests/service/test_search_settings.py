"""Engines in the settings of the service: they search, `check` says what does not fit, and faults are status 503."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

import fairsync as fs
from fairsync.errors import BackendUnavailableError, InvalidInputError
from fairsync.search.engines import EngineIndex, make_engine
from fairsync.search.engines.pgvector import PgvectorIndex
from fairsync.service.check import check
from fairsync.service.run import make_promise_service
from fairsync.service.search_settings import make_search, open_engine
from fairsync.service.settings import SEARCH_KEYS, SearchSettings, load_settings, parse_settings
from postgres_server import PostgresServer
from service.config_file import configured
from service.running import make_settings, running, shop_catalog, small_catalog

if TYPE_CHECKING:
    from pathlib import Path

    from fairsync.service.settings import Settings

_numbers = count()


@pytest.fixture
def table(postgres: PostgresServer) -> str:
    postgres.execute("CREATE EXTENSION IF NOT EXISTS vector")
    return f"service_items_{next(_numbers)}"


def settings_for(folder: Path, search: str, **environ: str) -> Settings:
    return load_settings(configured(folder, f"[search]\n{search}\n"), environ)


@pytest.mark.parametrize("engine", ["pgvector", "qdrant"])
def test_the_service_searches_in_an_engine(engine: str, tmp_path: Path, postgres: PostgresServer, table: str) -> None:
    url = {"pgvector": postgres.url, "qdrant": "vectors"}[engine]
    lines = f'engine = "{engine}"\n{"table" if engine == "pgvector" else "collection"} = "{table}"\nupload = true'
    settings = settings_for(tmp_path, lines, FAIRSYNC_SEARCH_URL=url)
    before = check(settings, {})
    assert before.problems == []
    assert before.facts["search"].endswith("which will be made")
    service = make_promise_service(settings)
    assert isinstance(service.front.index, EngineIndex)
    users = np.random.default_rng(0).normal(size=(5, 8))
    found = service.front.retrieve(users)
    assert found.ids.tolist() == embedded(users)
    after = check(settings, {})
    assert after.problems == []
    words = {"pgvector": "60 items, exact, ranks under prices", "qdrant": "60 items, exact, ranks by a formula"}
    assert words[engine] in after.facts["search"]
    assert "secret" not in str(after.to_dict())
    service.coordinator.ledger.close()


def embedded(users: np.ndarray) -> list[list[int]]:
    hits = make_search(make_settings().search, small_catalog()).search(users[:, None], None, 3)
    return small_catalog().ids_of(hits.rows).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("", "there is no table"),
        ("CREATE TABLE {} (id bigint, embedding vector(8))", "no column 'group' for the attribute 'group'"),
        ('CREATE TABLE {} (id bigint, embedding vector(4), "group" text)', "have 4 dimensions, and the catalog has 8"),
        (
            'CREATE TABLE {} (id text, embedding vector(8), "group" text)',
            "are words, and those of the items are numbers",
        ),
        (
            'CREATE TABLE {} (id bigint, embedding vector(8), "group" text)',
            "has 0 items of 'books', and the catalog 20",
        ),
    ],
)
def test_check_says_what_does_not_fit(
    statement: str, message: str, tmp_path: Path, postgres: PostgresServer, table: str
) -> None:
    if statement:
        postgres.execute(statement.format(table))
    settings = settings_for(tmp_path, f'engine = "pgvector"\ntable = "{table}"', FAIRSYNC_SEARCH_URL=postgres.url)
    problems = check(settings, {}).problems
    assert len(problems) == 1
    assert message in problems[0]
    with pytest.raises(InvalidInputError):
        make_promise_service(settings)


def test_check_finds_another_embedding(tmp_path: Path, postgres: PostgresServer, table: str) -> None:
    PgvectorIndex(small_catalog(), postgres.url, table, upload=True)
    settings = settings_for(tmp_path, f'engine = "pgvector"\ntable = "{table}"', FAIRSYNC_SEARCH_URL=postgres.url)
    assert check(settings, {}).problems == []
    postgres.execute(f"UPDATE {table} SET embedding = embedding + embedding WHERE id = 7")
    (problem,) = check(settings, {}).problems
    assert "item 7 has another embedding" in problem
    postgres.execute(f"UPDATE {table} SET id = 77 WHERE id = 7")
    (problem,) = check(settings, {}).problems
    assert "item 7 is missing" in problem


def test_check_says_that_an_engine_is_away(tmp_path: Path) -> None:
    lines = 'engine = "qdrant"\nurl = "http://127.0.0.1:1"\ntimeout = 0.1'
    (problem,) = check(settings_for(tmp_path, lines), {}).problems
    assert "Start it, check url=" in problem


def test_changes_of_items_reach_the_engine(tmp_path: Path, postgres: PostgresServer, table: str) -> None:
    lines = f'engine = "pgvector"\ntable = "{table}"\nupload = true'
    service = make_promise_service(settings_for(tmp_path, lines, FAIRSYNC_SEARCH_URL=postgres.url))
    service.items.upsert(np.full((1, 8), 9.0), ["toys"], [1000])
    service.items.remove([0])
    assert postgres.execute(f'SELECT "group" FROM {table} WHERE id = 1000') == [("toys",)]
    assert postgres.execute(f"SELECT count(*) FROM {table}") == [(60,)]
    assert service.front.retrieve(np.ones((1, 8))).ids[0, 0] == 1000
    service.coordinator.ledger.close()


@pytest.mark.usefixtures("midday")
def test_an_engine_that_is_away_is_503_and_nothing_is_counted(tmp_path: Path) -> None:
    with PostgresServer() as server:
        server.execute("CREATE EXTENSION vector")
        lines = 'engine = "pgvector"\nupload = true\ntimeout = 4.0'
        settings = settings_for(tmp_path, lines, FAIRSYNC_SEARCH_URL=server.url)
        service = make_promise_service(settings)
        with running(service, settings) as there, fs.Client(there.url, attempts=1, timeout=60) as client:
            user = np.ones(8)
            first = client.retrieve([user], request_ids=["a"])
            server.kill()
            with pytest.raises(BackendUnavailableError, match="unavailable"):
                client.retrieve([user], request_ids=["b"])
            assert service.coordinator.ledger.totals().requests == 1
            server.start()
            assert client.retrieve([user], request_ids=["b"]).ids.tolist() == first.ids.tolist()
            assert client.retrieve([user], request_ids=["b"]).ids.tolist() == first.ids.tolist()
            assert service.coordinator.ledger.totals().requests == 2  # the repeated one was counted once
        service.coordinator.ledger.close()


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ({"engine": "pgvector"}, "there is no url"),
        ({"engine": "elastic", "url": "x"}, "engine"),
        ({"engine": "qdrant", "url": "http://x", "index": "ivf"}, "qdrant has no index 'ivf'"),
        ({"engine": "milvus", "url": "http://x", "index": "ivf"}, "milvus has no index 'ivf'"),
        (
            {"engine": "qdrant", "url": "http://x", "shards": 2},
            "search.shards: engine = 'qdrant' does not use it: remove it, or set engine to 'embedded'",
        ),
        (
            {"engine": "milvus", "url": "http://x", "table": "items"},
            "search.table: engine = 'milvus' does not use it: remove it, or set engine to 'pgvector'",
        ),
        (
            {"engine": "qdrant", "url": "http://x", "id_column": "id"},
            "search.id_column: engine = 'qdrant' does not use it: remove it, or set engine to 'pgvector' or 'milvus'",
        ),
        ({"engine": "pgvector", "url": "x", "api_key": "k"}, "search.api_key: engine = 'pgvector' does not use it"),
        ({"url": "http://x"}, "search.url: engine = 'embedded' does not use it"),
        ({"upload": False}, "search.upload: engine = 'embedded' does not use it"),
        ({"ray": "shop", "index": "ivf"}, "search.index: engine = 'ray' does not use it"),
        ({"engine": "embedded", "ray": "shop"}, "search.ray: engine = 'embedded' does not use it"),
        ({"engine": "ray"}, "give the name of the shards"),
    ],
)
def test_keys_that_contradict_each_other_are_refused(search: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        parse_settings({"catalog": {"path": "items"}, "search": search})


def test_a_variable_with_a_key_of_another_engine_is_named() -> None:
    lines = {"engine": "milvus", "url": "http://x", "table": "a"}
    variables: dict[tuple[int | str, ...], str] = {("search", "table"): "FAIRSYNC_SEARCH_TABLE"}
    with pytest.raises(InvalidInputError, match=r"search.table, set by FAIRSYNC_SEARCH_TABLE: engine = 'milvus'"):
        parse_settings({"catalog": {"path": "items"}, "search": lines}, variables)


@pytest.mark.parametrize("engine", SEARCH_KEYS)
def test_every_key_of_an_engine_can_be_set(engine: str) -> None:
    """The defaults of all keys that the table names, and every key of ``[search]`` is in the table."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(SearchSettings)}
    given = {key: defaults[key] for key in SEARCH_KEYS[engine] if isinstance(defaults[key], str | bool | int | float)}
    needed = {"url": "x", "attributes": [], "filters": [], "columns": {"a": "b"}} if "url" in given else {}
    needed |= {"ray": "shop"} if engine == "ray" else {}
    search = parse_settings({"catalog": {"path": "items"}, "search": {**given, **needed, "engine": engine}}).search
    assert search.engine == engine
    assert {"engine", *(key for keys in SEARCH_KEYS.values() for key in keys)} == set(defaults)


def test_settings_of_an_engine_reach_it(tmp_path: Path) -> None:
    lines = 'engine = "pgvector"\nurl = "postgresql://x/y"\nindex = "hnsw"\nef_search = 1001'
    with pytest.raises(InvalidInputError, match="ef_search must be from 1 to 1,000, got 1001"):
        open_engine(settings_for(tmp_path, lines).search)


def test_unknown_engines_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="choose one of pgvector, milvus, qdrant"):
        make_engine("elastic")


def test_attributes_are_filtered_by_the_engine(tmp_path: Path) -> None:
    search = make_settings(search={"engine": "qdrant", "url": str(tmp_path), "upload": True}).search
    index = make_search(search, shop_catalog())
    assert isinstance(index, EngineIndex)
    assert index.stores_attributes


def test_the_service_searches_in_milvus(tmp_path: Path) -> None:
    pytest.importorskip("pymilvus")
    milvus_lite = pytest.importorskip("milvus_lite")
    lines = 'engine = "milvus"\nurl = "lite.db"'
    (problem,) = check(settings_for(tmp_path, lines), {}).problems
    assert "there is no collection 'items' of Milvus" in problem
    settings = settings_for(tmp_path, f"{lines}\nupload = true")
    assert check(settings, {}).facts["search"].startswith("the collection 'items' of Milvus at")
    service = make_promise_service(settings)
    users = np.random.default_rng(0).normal(size=(5, 8))
    assert service.front.retrieve(users).ids.tolist() == embedded(users)
    assert check(settings_for(tmp_path, lines), {}).problems == []
    service.coordinator.ledger.close()
    milvus_lite.server_manager_instance.release_server(str(tmp_path / "lite.db"))
