from collections.abc import Callable, Iterator
from itertools import count
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings

import fairsync as fs
import plain
from contract.test_indexes import (  # noqa: F401
    Build,
    Prices,
    assert_plain,
    cases,
    random_case,
    test_a_price_is_subtracted_and_a_subsidy_added,
    test_a_user_of_zeros_gets_the_cheapest_items_by_id,
    test_an_item_counts_once_with_its_best_interest,
    test_calls_at_once_with_different_prices_are_not_torn,
    test_it_agrees_on_a_larger_catalog,
    test_items_that_float32_cannot_tell_apart_are_told_apart,
    test_masked_groups_leave_empty_places,
    test_no_users_give_no_hits,
    test_one_extreme_price_does_not_blur_the_others,
    test_prices_without_meaning_are_refused,
    test_ties_go_to_the_smaller_id_not_the_smaller_row,
    test_users_and_items_of_any_float_type,
)
from fairsync.catalog import Catalog
from fairsync.eligibility.eligible_items import make_eligibility
from fairsync.errors import BackendUnavailableError, InvalidInputError
from fairsync.search import ExactIndex
from fairsync.search.engines import EngineIndex
from fairsync.search.engines.pgvector import PgvectorIndex
from postgres_server import PostgresServer
from search.approximate import recall
from search.engines import engine_contract as contract

_numbers = count()


@pytest.fixture(scope="module")
def server(postgres: PostgresServer) -> Iterator[PostgresServer]:
    postgres.execute("CREATE EXTENSION IF NOT EXISTS vector")
    postgres.execute("CREATE SCHEMA IF NOT EXISTS shop")
    yield postgres
    postgres.execute("DROP SCHEMA shop CASCADE")


def new_table() -> str:
    return f"shop.items_{next(_numbers)}"


@pytest.fixture(scope="module")
def build(server: PostgresServer) -> Build:
    """Return what makes an index over a table of its own, for the tests of every index."""
    return lambda catalog: PgvectorIndex(catalog, server.url, new_table(), upload=True)


Make = Callable[[Catalog], PgvectorIndex]


@pytest.fixture
def make(server: PostgresServer) -> Make:
    table = new_table()
    return lambda catalog: PgvectorIndex(catalog, server.url, table, upload=True)


@pytest.fixture
def pair(server: PostgresServer) -> tuple[Make, Make]:
    """Return what makes an index that writes to a table, and one that may only read it."""
    table = new_table()
    return (
        lambda catalog: PgvectorIndex(catalog, server.url, table, upload=True),
        lambda catalog: PgvectorIndex(catalog, server.url, table),
    )


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases())
def test_the_answer_is_that_of_the_plainest_search(
    build: Build, case: tuple[Catalog, npt.NDArray[np.floating], Prices, int]
) -> None:
    assert_plain(build, *case)


@pytest.mark.parametrize("prices", [None, np.linspace(-0.5, 0.5, 5)])
def test_selections_without_conditions_are_filtered_here(build: Build, prices: Prices) -> None:
    contract.check_random_eligibility(build, prices)


@pytest.mark.parametrize("words", [True, False])
def test_conditions_are_sql(make: Make, words: bool) -> None:
    contract.check_conditions(make(contract.shop(words=words)))


def test_prices_conditions_and_exclusions_need_one_query(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = contract.shop()
    index = make(catalog)
    assert index.applies_prices == "bias"
    queries = contract.record_queries(index.engine, monkeypatch)
    certified = contract.without_exact(index)
    eligible, _ = make_eligibility([catalog.ids_of([1, 2]).tolist()] * 4, {"new": False}, catalog, 4)
    users = contract.some_users(4, 8)
    prices = np.linspace(-2, 2, catalog.n_groups)
    certified.search(users, prices, 20, eligible)
    certified.search(users, np.where(np.arange(catalog.n_groups) == 1, 0.0, np.inf), 20)
    assert len(queries) == 2
    assert max(query.count for query in queries) <= 25


def test_promises_that_overlap_are_over_fetched(make: Make) -> None:
    contract.check_atoms(make)


@pytest.mark.parametrize("words", [True, False])
def test_a_retriever_keeps_its_floors_and_finds_the_same_as_with_exact_search(make: Make, words: bool) -> None:
    contract.check_floors(make, words)


def test_changes_are_written(pair: tuple[Make, Make]) -> None:
    contract.check_changes(*pair)


def test_other_rows_of_the_table_are_ignored(make: Make) -> None:
    contract.check_other_items(make)


def test_it_counts_and_fetches_by_id(make: Make) -> None:
    contract.check_abilities(make(contract.shop()))


def test_a_catalog_that_the_table_does_not_hold_is_refused(pair: tuple[Make, Make]) -> None:
    catalog = contract.shop()
    with pytest.raises(InvalidInputError, match=r"there is no table 'shop.items_\d+' .*upload=True"):
        pair[1](catalog)
    pair[0](catalog)
    contract.check_a_catalog_that_is_not_there(pair[1], catalog)


def test_another_model_replaces_all_embeddings(make: Make) -> None:
    catalog, other = contract.shop(1), contract.shop(2)
    assert set(catalog.ids) == set(other.ids)
    retriever = fs.FairRetriever(catalog, k=5, index=make)
    retriever.replace(other)
    index = retriever.index
    assert isinstance(index, EngineIndex)
    users = contract.some_users(3, 8)
    assert index.search(users, None, 9).rows.tolist() == plain.search(other, users, None, 9)[0]


class TestExistingTable:
    """A table that somebody else has made, under names of its own."""

    @pytest.fixture
    def table(self, server: PostgresServer) -> str:
        name = f"Wares {next(_numbers)}"
        server.execute(
            f'CREATE TABLE shop."{name}" (sku varchar(20) UNIQUE, v vector(3), "the kind" varchar(9), stock smallint,'
            " note text)"
        )
        server.execute(
            f"""INSERT INTO shop."{name}" VALUES ('a', '[1,0,0]', 'toys', 3, 'x'), ('b', '[0,1,0]', 'books', 0, 'y'),
            ('c', '[0,0,1]', 'toys', 7, NULL), ('draft', NULL, 'toys', 1, NULL)"""
        )
        return f"shop.{name}"

    def index(self, server: PostgresServer, table: str, **settings: object) -> PgvectorIndex:
        catalog = Catalog(
            np.eye(3, dtype=np.float32), {"kind": ["toys", "books", "toys"], "stock": [3, 0, 7]}, list("abc")
        )
        named = {"id_column": "sku", "embedding_column": "v", "columns": {"kind": "the kind"}} | settings
        return PgvectorIndex(catalog, server.url, table, **named)  # type: ignore[arg-type]

    def test_it_is_searched_under_its_own_names(self, server: PostgresServer, table: str) -> None:
        index = contract.without_exact(self.index(server, table))
        users = np.array([[[3.0, 2.0, 1.0]]])
        assert index.search(users, None, 2).rows.tolist() == [[0, 1]]
        assert index.search(users, np.array([0.0, 1.5]), 2).rows.tolist() == [[1, 0]]
        eligible, _ = make_eligibility(None, {"stock": {"at_least": 1}}, index.catalog, 1)
        assert index.search(users, None, 2, eligible).rows.tolist() == [[0, 2]]

    def test_the_other_columns_are_left_alone(self, server: PostgresServer, table: str) -> None:
        index = self.index(server, table, upload=True)
        change = fs.catalog.changes.upsert_items(index.catalog, [[5.0, 0, 0]], {"kind": ["books"], "stock": [9]}, ["a"])
        index.follow(change)
        name = table.partition(".")[2]
        assert server.execute(f'SELECT sku, stock, note FROM shop."{name}" ORDER BY 1') == [
            ("a", 9, "x"), ("b", 0, "y"), ("c", 7, None), ("draft", 1, None),
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"columns": {}}, r"no column 'kind' for the attribute 'kind'; it has .*the kind"),
            ({"embedding_column": "note"}, r"'note' .* is text, and embeddings need vector\(d\)"),
            ({"id_column": "stock"}, r"ids of .* are numbers, and those of the items are words"),
            (
                {"columns": {"kind": "the kind", "stock": "note"}},
                r"words for .* 'stock', which needs whole numbers",
            ),
            ({"id_column": "note", "upload": True}, r"no unique index"),
            ({"index": "hnsw"}, r"no HNSW index of the inner product: run CREATE INDEX"),
        ],
    )
    def test_what_does_not_fit_is_said(
        self, server: PostgresServer, table: str, wrong: dict[str, object], message: str
    ) -> None:
        with pytest.raises(InvalidInputError, match=message):
            self.index(server, table, **wrong)

    def test_another_metric_is_said(self, server: PostgresServer, table: str) -> None:
        name = table.partition(".")[2]
        server.execute(f'CREATE INDEX ON shop."{name}" USING hnsw (v vector_cosine_ops)')
        with pytest.raises(InvalidInputError, match="one of vector_cosine_ops, another metric"):
            self.index(server, table, index="hnsw")

    def test_another_number_of_dimensions_is_said(self, server: PostgresServer, table: str) -> None:
        catalog = Catalog(np.eye(4)[:3], {"kind": ["toys"] * 3}, list("abc"))
        named = {"id_column": "sku", "embedding_column": "v", "columns": {"kind": "the kind"}}
        with pytest.raises(InvalidInputError, match="have 3 dimensions, and the catalog has 4"):
            PgvectorIndex(catalog, server.url, table, **named)  # type: ignore[arg-type]

    def test_missing_rights_are_said(self, server: PostgresServer, table: str) -> None:
        name, role = table.partition(".")[2], f"reader_{next(_numbers)}"
        server.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
        server.execute(f"GRANT USAGE ON SCHEMA shop TO {role}")
        url = f"postgresql://{role}:x@127.0.0.1:{server.port}/postgres"
        catalog = Catalog(np.eye(3, dtype=np.float32), {"the kind": ["toys", "books", "toys"]}, list("abc"))

        def read(upload: bool) -> PgvectorIndex:
            return PgvectorIndex(catalog, url, table, id_column="sku", embedding_column="v", upload=upload)

        with pytest.raises(InvalidInputError, match="may not SELECT"):
            read(upload=False)
        server.execute(f'GRANT SELECT ON shop."{name}" TO {role}')
        assert read(upload=False).search(np.ones((1, 1, 3)), None, 1).rows.tolist() == [[0]]
        with pytest.raises(InvalidInputError, match="may not INSERT"):
            read(upload=True)


@pytest.mark.parametrize("interests", [1, 2])
def test_hnsw_is_honest_and_finds_most(server: PostgresServer, interests: int) -> None:
    rng = np.random.default_rng(11)
    labels = [f"g{i}" for i in rng.integers(0, 8, 2000)]
    catalog = Catalog(
        rng.standard_normal((2000, 16)).astype(np.float32), {"group": labels, "half": rng.random(2000) < 0.5}
    )
    index = PgvectorIndex(catalog, server.url, new_table(), index="hnsw", upload=True)
    assert index.applies_prices == "over-fetch"
    users = rng.standard_normal((12, interests, 16))
    for prices in (None, np.linspace(-1, 1, 8)):
        hits = index.search(users, prices, 10)
        assert recall(hits, catalog, users, prices, 10) >= 0.9
    eligible, _ = make_eligibility(None, {"half": True}, catalog, 12)
    assert eligible is not None
    hits = index.search(users, np.linspace(-1, 1, 8), 10, eligible)
    assert (hits.rows >= 0).all()
    assert eligible.allows(np.repeat(np.arange(12), 10), hits.rows.ravel()).all()


def test_hnsw_keeps_floors_as_well(server: PostgresServer) -> None:
    catalog = contract.shop(12, n=1500)
    index: Literal["hnsw"] = "hnsw"
    retriever = fs.FairRetriever(
        catalog, k=10, floors=60, horizon=80, batch_size=8,
        index=lambda items: PgvectorIndex(items, server.url, new_table(), index=index, upload=True),
    )  # fmt: skip
    retriever.retrieve(np.random.default_rng(13).normal(size=(80, 8)) + 0.4)
    assert all(retriever.report().satisfied.values())


class TestFaults:
    """A server of its own, which is killed and suspended."""

    def test_a_server_that_is_away_is_a_clear_error_and_floors_are_kept_when_it_is_back(self) -> None:
        catalog = contract.shop(14)
        users = np.random.default_rng(15).normal(size=(60, 8)) + 0.4
        with PostgresServer() as server:
            server.execute("CREATE EXTENSION vector")
            index = PgvectorIndex(catalog, server.url, upload=True, timeout=4.0)
            retriever = fs.FairRetriever(catalog, k=10, floors=50, horizon=60, batch_size=8, index=index)
            whole = fs.FairRetriever(catalog, k=10, floors=50, horizon=60, batch_size=8)
            found = [retriever.retrieve(users[:20]).ids]
            server.kill()
            with pytest.raises(BackendUnavailableError, match=r"Postgres at postgresql://127.0.0.1.*Start it"):
                retriever.retrieve(users[20:40])
            assert retriever.report().requests == 20  # nothing was counted
            server.start()
            found.append(retriever.retrieve(users[20:40]).ids)
            server.suspend()
            with pytest.raises(BackendUnavailableError, match="no answer within"):
                retriever.retrieve(users[40:])
            server.resume()
            found.append(retriever.retrieve(users[40:]).ids)
            assert all(retriever.report().satisfied.values())
            assert (np.concatenate(found) == whole.retrieve(users).ids).all()

    def test_no_server_at_all(self) -> None:
        with pytest.raises(BackendUnavailableError, match="Start it, check url="):
            PgvectorIndex(contract.shop(), "postgresql://nobody@127.0.0.1:1/none", timeout=0.2)

    def test_an_item_that_was_deleted_elsewhere_is_not_missed(self, server: PostgresServer) -> None:
        catalog, table = contract.shop(16), new_table()
        index = PgvectorIndex(catalog, server.url, table, upload=True)
        users = contract.some_users(3, 8)
        best = index.search(users, None, 5).rows
        server.execute(f"DELETE FROM {table} WHERE id = '{catalog.ids_of(best[:1, 0])[0]}'".replace("it'em", "it''em"))
        later = index.search(users, None, 5)
        assert (later.rows >= 0).all()
        assert best[0, 0] not in later.rows[0]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"index": "ivf"}, "'exact' or 'hnsw'"),
        ({"table": ""}, "table or collection must be a name"),
        ({"table": "a.b.c"}, "table must be a name"),
        ({"ef_search": 0}, "ef_search"),
        ({"timeout": 0}, "timeout"),
        ({"url": "postgresql://me:se/cret@host/db"}, "URL of the items cannot be read"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_asked(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        PgvectorIndex(contract.shop(), **({"url": "postgresql://127.0.0.1:1/none"} | wrong))  # type: ignore[arg-type]


def test_the_url_of_a_ledger_serves(server: PostgresServer) -> None:
    index = PgvectorIndex(contract.shop(), server.schema("promises"), new_table(), upload=True)
    users = contract.some_users(2, 8)
    assert (index.search(users, None, 5).rows == ExactIndex(index.catalog).search(users, None, 5).rows).all()
    index.close()
