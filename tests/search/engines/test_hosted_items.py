"""Items that only an engine holds: the same answers as with a catalog, and labels that appear are noticed."""

from collections.abc import Callable, Iterator

import numpy as np
import psycopg
import pytest
import qdrant_client

import plain
from fairsync.catalog import Catalog
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.coordination.hosted_front_end import HostedFrontEnd
from fairsync.errors import InvalidInputError
from fairsync.promises import Promise
from fairsync.search.engines.engine import Engine, StoredItems
from fairsync.search.engines.hosted_items import FoundItems, HostedIndex, HostedItems
from fairsync.search.engines.pgvector import PgvectorIndex
from fairsync.search.engines.qdrant import QdrantIndex
from postgres_server import PostgresServer
from search.engines.engine_contract import shop, some_users

N, DIM, K = 160, 8, 5
SHOP = shop(31, n=N)
CATALOG = Catalog(SHOP.embeddings, {"brand": SHOP.attributes["brand"].values()}, SHOP.ids)


@pytest.fixture(params=["pgvector", "qdrant"])
def engine(request: pytest.FixtureRequest, postgres: PostgresServer) -> Iterator[Engine]:
    """The catalog in an engine."""
    if request.param == "pgvector":
        postgres.execute("CREATE EXTENSION IF NOT EXISTS vector")
        index = PgvectorIndex(CATALOG, postgres.url, "hosted", upload=True)
        yield index.engine
        index.close()
        postgres.execute("DROP TABLE hosted")
    else:
        client = qdrant_client.QdrantClient(":memory:")
        yield QdrantIndex(CATALOG, client, "hosted", upload=True).engine
        client.close()


@pytest.fixture
def items(engine: Engine) -> HostedItems:
    return HostedItems(engine, "brand", DIM)


def in_order(items: HostedItems) -> Catalog:
    """The catalog, with its groups in the order of the engine's."""
    return CATALOG.under(items.groups.labels)


def test_it_finds_what_a_plain_search_finds(items: HostedItems) -> None:
    catalog, rng = in_order(items), np.random.default_rng(1)
    assert items.groups.group_sizes.tolist() == catalog.group_sizes.tolist()
    steep = rng.normal(scale=3.0, size=catalog.n_groups)
    masked = np.where(np.arange(catalog.n_groups) % 3 == 0, np.inf, steep)
    only = np.where(np.arange(catalog.n_groups) == 4, -1.0, np.inf)
    for prices in (None, rng.normal(size=catalog.n_groups), steep, masked, only):
        for interests, k in ((1, 1), (1, 12), (3, 12), (1, N)):
            users = some_users(3, DIM, seed=k) if interests == 1 else rng.normal(size=(3, interests, DIM))
            found = FoundItems(items.groups)
            hits = HostedIndex(items, found).search(users, prices, k)
            rows, relevance = plain.search(catalog, users, prices, k)
            names = [[str(found.ids_of(np.array([row]))[0]) if row >= 0 else "" for row in one] for one in hits.rows]
            assert names == [[str(catalog.ids_of([row])[0]) if row >= 0 else "" for row in one] for one in rows]
            np.testing.assert_allclose(hits.relevance, relevance, atol=1e-9)


@pytest.mark.parametrize("excludes", [False, True])
def test_lists_are_those_of_a_front_end_with_the_catalog(items: HostedItems, excludes: bool) -> None:
    """The guard is at work: floors take most slots."""
    catalog, users = in_order(items), some_users(48, DIM, seed=4)
    floors = dict.fromkeys(catalog.labels[:3], 68)
    best = [catalog.ids_of(row[:2]).tolist() for row in np.argsort(-(users[:, 0] @ catalog.embeddings.T), axis=1)]
    exclude = best if excludes else None
    found = []
    for hosted in (False, True):
        coordinator = Coordinator(
            items.groups if hosted else catalog, k=K, floors=floors, horizon=48, batch_size=16, max_exclude=2
        )
        front: FrontEnd | HostedFrontEnd
        front = HostedFrontEnd(items, coordinator) if hosted else FrontEnd(catalog, coordinator)
        parts = []
        for start in range(0, 48, 24):
            some = None if exclude is None else exclude[start : start + 24]
            parts += front.retrieve(users[start : start + 24], exclude=some).ids.tolist()
        totals = coordinator.totals()
        assert (totals.exposures[:3] >= 68).all()
        assert totals.forced > 0
        found.append((parts, totals.exposures.tolist(), totals.forced))
    assert found[0] == found[1]
    if excludes:
        assert all(set(one).isdisjoint(left) for one, left in zip(found[1][0], best, strict=True))


def test_a_request_id_is_answered_and_counted_once(items: HostedItems) -> None:
    coordinator = Coordinator(items.groups, k=K, horizon=100)
    front, users = HostedFrontEnd(items, coordinator), some_users(3, DIM, seed=5)
    first = front.retrieve(users, ["a", "b", None])
    again = front.retrieve(users[::-1], ["c", "b", "a"])
    assert again.ids[[2, 1]].tolist() == first.ids[:2].tolist()
    assert coordinator.totals().requests == 4
    assert len(front.retrieve(np.empty((0, DIM)))) == 0


def test_changes_in_the_engine_are_seen_and_new_labels_noticed(items: HostedItems) -> None:
    coordinator = Coordinator(items.groups, k=K, horizon=1000)
    front, users = HostedFrontEnd(items, coordinator), some_users(1, DIM, seed=6)
    best = front.retrieve(users).ids[0, 0]
    items.engine.change(StoredItems([], np.empty((0, DIM), dtype=np.float32), {"brand": []}), [str(best)])
    assert best not in front.retrieve(users).ids[0]
    vector = 9 * users[0].astype(np.float32)
    items.engine.change(StoredItems(["novelty"], vector, {"brand": ["a new brand"]}), [])
    assert "novelty" not in front.retrieve(users).ids[0], "the coordinator cannot count it yet"
    assert items.refresh()
    assert items.groups.labels[-1] == "a new brand"
    assert "novelty" not in front.retrieve(users).ids[0], "the coordinator does not know it yet"
    coordinator.promise(catalog=items.groups)
    assert front.retrieve(users).ids[0, 0] == "novelty"
    assert coordinator.report().exposures["a new brand"] == 1
    assert not items.refresh()


def test_bad_input_is_refused_before_anything_is_counted(items: HostedItems) -> None:
    coordinator = Coordinator(items.groups, k=K, horizon=100, max_exclude=1)
    front, users = HostedFrontEnd(items, coordinator), some_users(2, DIM, seed=7)[:, 0]
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: front.retrieve(users[:, :3]), r"users must be \(n, 8\)"),
        (lambda: front.retrieve(users * np.nan), "finite"),
        (lambda: front.retrieve(users, ["a", "a"]), "twice"),
        (lambda: front.retrieve(users, exclude=[["x"]]), "1 entries for 2"),
        (lambda: front.retrieve(users, exclude=[["x", "y"], []]), "max_exclude=2"),
        (
            lambda: HostedFrontEnd(
                items, Coordinator(CATALOG, promises=[Promise({"brand": CATALOG.labels[0]}, at_least=1)])
            ),
            "floors",
        ),
        (lambda: HostedFrontEnd(items, Coordinator(Catalog(np.eye(2), ["x", "y"]), k=1)), "other groups"),
    ]
    for call, message in calls:
        with pytest.raises(InvalidInputError, match=message):
            call()
    assert coordinator.totals().requests == 0


def test_an_engine_that_does_not_fit_is_refused(postgres: PostgresServer) -> None:
    postgres.execute("CREATE EXTENSION IF NOT EXISTS vector")
    index = PgvectorIndex(CATALOG, postgres.url, "hosted", upload=True)
    with pytest.raises(InvalidInputError, match="no column 'maker'"):
        HostedItems(index.engine, "maker", DIM)
    with pytest.raises(InvalidInputError, match="8 dimensions"):
        HostedItems(index.engine, "brand", 9)
    index.close()
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("DROP TABLE hosted")
