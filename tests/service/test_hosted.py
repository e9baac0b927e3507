"""The service without a copy of the catalog: only the engine holds the items."""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
import pytest

import fairsync as fs
from fairsync.catalog.files import save_catalog
from fairsync.errors import BackendUnavailableError, FairSyncError, InvalidInputError
from fairsync.search.engines import make_engine_index
from fairsync.search.engines.engine import Engine, EngineQuery, Ranking, StoredItems
from fairsync.search.engines.hosted_catalog import HostedCatalog
from fairsync.service.check import check
from fairsync.service.run import make_promise_service
from fairsync.service.schema import PromiseRecord, WindowRecord
from fairsync.service.settings import load_settings, parse_settings
from postgres_server import PostgresServer
from service.running import running, shop_catalog
from service.service_process import WINDOW

if TYPE_CHECKING:
    from pathlib import Path

    from fairsync.service.settings import Settings

_numbers = count()
DAY = WindowRecord(every="day")
PROMISES = f"""
[[promises]]
where = {{category = "wine"}}
at_least = 200
window = {WINDOW}
[[promises]]
where = {{category = "toys", region = "DE"}}
at_most = 100
window = {WINDOW}
[[promises]]
where = {{region = "CH"}}
at_least = 0.4
window = {WINDOW}
"""


@pytest.fixture
def table(postgres: PostgresServer) -> str:
    postgres.execute("CREATE EXTENSION IF NOT EXISTS vector")
    return f"hosted_items_{next(_numbers)}"


def write_settings(folder: Path, engine: str, url: str, table: str, more: str = "", ledger: str = "") -> Settings:
    """Write items to an engine, and settings without a catalog."""
    place = {"table": table} if engine == "pgvector" else {"collection": table}
    make_engine_index(engine, shop_catalog(), upload=True, url=url, **place)
    path = folder / "service.toml"
    (key, name), *_ = place.items()
    path.write_text(
        f'[search]\nengine = "{engine}"\nurl = "{url}"\n{key} = "{name}"\nattributes = ["category", "region", "tags"]\n'
        f'filters = ["price", "in_stock"]\nupload = true\n[promise]\nk = 3\nmax_exclude = 2\n'
        f'[ledger]\nurl = "{ledger or "sqlite:///exposures.db"}"\n[traffic]\nper_second = 1\n[http]\nport = 0\n{more}'
    )
    return load_settings(path, {})


@pytest.mark.usefixtures("midday")
@pytest.mark.parametrize("engine", ["pgvector", "qdrant"])
def test_promises_are_kept_without_a_copy(engine: str, tmp_path: Path, postgres: PostgresServer, table: str) -> None:
    url = postgres.url if engine == "pgvector" else str(tmp_path / "vectors")
    ledger = postgres.schema(f"of_{table}") if engine == "pgvector" else ""
    settings = write_settings(tmp_path, engine, url, table, PROMISES, ledger)
    result = check(settings, {})
    assert result.problems == []
    assert "60 items, 3 groups, dimension 8, in the engine only; 15 combinations" in result.facts["catalog"]
    service = make_promise_service(settings)
    assert isinstance(service.catalog, HostedCatalog)
    whole, rng = shop_catalog(), np.random.default_rng(0)
    group_of = dict(zip(whole.ids.tolist(), whole.attributes["category"].values(), strict=True))
    price_of = dict(zip(whole.ids.tolist(), whole.attributes["price"].values(), strict=True))
    with running(service, settings, refresh_seconds=0.05) as there, fs.Client(there.url, timeout=60) as client:
        for _ in range(8):
            users = rng.normal(size=(40, 8))
            found = client.retrieve(
                users, exclude=[["i1", "i2"]] * 40, where=[{"price": {"at_most": 50}}, *[None] * 39]
            )
            assert not {"i1", "i2"} & set(found.ids.ravel().tolist())
            assert all(price_of[item] <= 50 for item in found.ids[0].tolist())
            assert found.groups.ravel().tolist() == [group_of[item] for item in found.ids.ravel().tolist()]
        wine, cap, share = client.promises()
        assert wine.exposures >= 200
        assert cap.exposures <= 100
        assert share.exposures > 0
        assert client.overview().items == 60
        with pytest.raises(FairSyncError, match="need a copy of the catalog"):
            client.retrieve(users[:1], explain=True)
        with pytest.raises(FairSyncError, match="single items"):
            client.preview(PromiseRecord(each="id", at_least=5, window=DAY))
        with pytest.raises(FairSyncError, match="single items need a copy of the catalog: name an attribute"):
            client.make_promise(PromiseRecord(where={"id": "i1"}, at_least=5, window=DAY))
        preview = client.preview(PromiseRecord(where={"region": "AT"}, at_least=5, window=DAY))
        assert preview.feasible
        assert [one.name for one in client.attributes()] == ["category", "region", "tags"]
    service.close()
    service.coordinator.ledger.close()
    again = make_promise_service(settings)
    assert again.coordinator.totals().exposures.sum() >= 200, "the ledger has the counts"
    again.close()
    again.coordinator.ledger.close()


@pytest.mark.usefixtures("midday")
def test_items_are_changed_in_the_engine(tmp_path: Path, postgres: PostgresServer, table: str) -> None:
    settings = write_settings(tmp_path, "pgvector", postgres.url, table)
    service = make_promise_service(settings)
    with running(service, settings, refresh_seconds=0.05) as there, fs.Client(there.url, timeout=60) as client:
        new = {"category": ["games"], "region": ["DE"], "tags": [["new"]], "price": [4.0], "in_stock": [True]}
        assert client.upsert_items(np.full((1, 8), 9.0), new, ["novelty"]) == 61
        assert client.retrieve(np.ones((1, 8))).ids[0, 0] == "novelty"
        client.upsert_items(None, {"region": ["AT"]}, ["novelty"])
        assert postgres.execute(f"SELECT region, price FROM {table} WHERE id = 'novelty'") == [("AT", 4.0)]
        assert client.remove_items(["novelty"]) == 60
        assert client.retrieve(np.ones((1, 8))).ids[0, 0] != "novelty"
        for given, message in (
            ({"category": ["games"]}, "give all attributes"),
            ({**new, "colour": ["red"]}, "no attribute 'colour'"),
            ({**new, "price": ["cheap"]}, "convert them"),
        ):
            with pytest.raises(FairSyncError, match=message):
                client.upsert_items(np.ones((1, 8)), given, ["novelty"])
        with pytest.raises(FairSyncError, match="no item 'novelty'"):
            client.remove_items(["novelty"])
        # What others write is noticed: an unknown combination when it is found.
        vector = str([8.0] * 8)
        postgres.execute(
            f"INSERT INTO {table} (id, embedding, category, region, in_stock, price, tags)"
            f" VALUES ('others', '{vector}', 'music', 'DE', true, 1, '{{}}')"
        )
        end = time.monotonic() + 120
        while client.retrieve(np.ones((1, 8))).ids[0, 0] != "others":
            assert time.monotonic() < end, "the new combination was not noticed"
            time.sleep(0.1)
        assert "music" in service.coordinator.labels
    service.coordinator.ledger.close()


@pytest.mark.usefixtures("midday")
def test_an_engine_that_is_away_is_503_and_nothing_is_counted(tmp_path: Path) -> None:
    with PostgresServer() as server:
        server.execute("CREATE EXTENSION vector")
        settings = write_settings(tmp_path, "pgvector", server.url, "items")
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
            assert service.coordinator.ledger.totals().requests == 2
        service.coordinator.ledger.close()


@pytest.mark.usefixtures("midday")
@pytest.mark.parametrize("engine", ["pgvector", "qdrant"])
@pytest.mark.parametrize("has_copy", [True, False])
def test_an_item_that_is_deleted_between_search_and_settle(
    engine: str, has_copy: bool, tmp_path: Path, postgres: PostgresServer, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = write_settings(tmp_path, engine, postgres.url if engine == "pgvector" else str(tmp_path / "v"), table)
    check_deletion(settings, has_copy, tmp_path, monkeypatch)


def check_deletion(settings: Settings, has_copy: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a list that was found is answered and counted once if an item is deleted meanwhile."""
    if has_copy:
        save_catalog(shop_catalog(), tmp_path / "items")
        text = (tmp_path / "service.toml").read_text()
        for line in ("attributes", "filters"):
            text = "\n".join(one for one in text.splitlines() if not one.startswith(line))
        (tmp_path / "service.toml").write_text(f'{text}\n[catalog]\npath = "items"\n')
        settings = load_settings(tmp_path / "service.toml", {})
    service = make_promise_service(settings)
    held: Engine = service.front.index.engine if has_copy else service.catalog.engine  # type: ignore[attr-defined]
    ask, user, gone = held.search, np.ones((1, 8)), list[str | int]()

    def delete_the_best(query: EngineQuery) -> list[Ranking]:
        found = ask(query)
        if not gone:
            gone.append(found[0].ids[0])
            nothing: dict[str, list[object]] = {name: [] for name in shop_catalog().attributes}
            held.change(StoredItems([], np.empty((0, 8), dtype=np.float32), nothing), gone)
        return found

    monkeypatch.setattr(held, "search", delete_the_best)
    with running(service, settings) as there, fs.Client(there.url, timeout=60) as client:
        first = client.retrieve(user, request_ids=["a"])
        assert gone[0] in first.ids[0]
        assert client.retrieve(user, request_ids=["a"]).ids.tolist() == first.ids.tolist()
        assert gone[0] not in client.retrieve(user, request_ids=["b"]).ids[0]
        totals = service.coordinator.ledger.totals()
        assert (totals.requests, int(totals.exposures.sum())) == (2, 6)
    service.coordinator.ledger.close()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DROP TABLE {}", "there is no table"),
        ("ALTER TABLE {} DROP COLUMN region", "no column 'region' for the attribute 'region'"),
        ("ALTER TABLE {} DROP COLUMN embedding", "no column 'embedding'"),
        ("ALTER TABLE {} ALTER COLUMN embedding TYPE vector", "has no number of dimensions: run ALTER TABLE"),
        ("ALTER TABLE {} ALTER COLUMN region TYPE json USING to_json(region)", "is json, and the attribute 'region'"),
        ("ALTER TABLE {} DROP CONSTRAINT {}_pkey", "add PRIMARY KEY or UNIQUE"),
        ("DELETE FROM {}", "holds no items with 'category'"),
        ("UPDATE {} SET category = NULL WHERE id = 'i1'", ""),
    ],
)
def test_check_says_what_does_not_fit(
    statement: str, message: str, tmp_path: Path, postgres: PostgresServer, table: str
) -> None:
    settings = write_settings(tmp_path, "pgvector", postgres.url, table)
    if "NULL" in statement:
        postgres.execute(f"ALTER TABLE {table} ALTER COLUMN category DROP NOT NULL")
    postgres.execute(statement.replace("{}", table))
    result = check(settings, {})
    if not message:
        assert result.problems == []
        assert "1 items that lack one of these are left out" in result.facts["catalog"]
        return
    assert len(result.problems) == 1
    assert message in result.problems[0]
    with pytest.raises(InvalidInputError):
        make_promise_service(settings)


SEARCH = {"engine": "pgvector", "url": "postgresql://db/shop", "attributes": ["category"]}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "catalog.path: is missing"),
        ({"search": {**SEARCH, "attributes": []}}, "name in search.attributes"),
        ({"search": SEARCH, "catalog": {"path": "items"}}, "leave them out"),
        (
            {"search": SEARCH, "arms": [{"name": "a", "share": 0.5}, {"name": "b", "share": 0.5}]},
            r"needs a \[catalog\]",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        parse_settings({"ledger": "memory://", **given})
