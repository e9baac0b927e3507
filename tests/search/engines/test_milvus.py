"""The contract of engines on a real Milvus server and on Milvus Lite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

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
from fairsync.catalog.conditions import Condition
from fairsync.eligibility.eligible_items import make_eligibility
from fairsync.errors import InvalidInputError
from fairsync.search.engines import make_engine
from fairsync.search.engines.engine import EngineQuery
from fairsync.search.engines.milvus import MilvusIndex
from search.approximate import recall
from search.engines import engine_contract as contract

if TYPE_CHECKING:
    from benchmarks.milvus_server import MilvusServer

Make = Callable[[Catalog], MilvusIndex]
_numbers = count()


@pytest.fixture(scope="module")
def url(milvus_server: MilvusServer) -> str:
    return milvus_server.uri


@pytest.fixture(autouse=True)
def no_collections_stay(request: pytest.FixtureRequest) -> Iterator[None]:
    """Drop the collections of each test: the server works for every one that is loaded."""
    yield
    if "url" in request.fixturenames:
        request.getfixturevalue("milvus_server").clear()


def new_collection() -> str:
    return f"items_{next(_numbers)}"


@pytest.fixture(scope="module")
def build(url: str) -> Build:
    """Return what makes an index over a collection of its own, for the tests of every index."""
    return lambda catalog: MilvusIndex(catalog, url, new_collection(), upload=True)


@pytest.fixture(scope="module")
def lite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the path of a file of Milvus Lite."""
    pytest.importorskip("pymilvus")
    milvus_lite = pytest.importorskip("milvus_lite")
    path = str(tmp_path_factory.mktemp("lite") / "items.db")
    yield path
    milvus_lite.server_manager_instance.release_server(path)


@pytest.fixture
def pair(url: str) -> tuple[Make, Make]:
    return makers(url)


def makers(url: str) -> tuple[Make, Make]:
    """Return what makes an index that writes to a collection, and one that may only read it."""
    name = new_collection()
    return (
        lambda catalog: MilvusIndex(catalog, url, name, upload=True),
        lambda catalog: MilvusIndex(catalog, url, name),
    )


@pytest.fixture
def make(pair: tuple[Make, Make]) -> Make:
    return pair[0]


@settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases())
def test_the_answer_is_that_of_the_plainest_search(
    build: Build, case: tuple[Catalog, npt.NDArray[np.floating], Prices, int]
) -> None:
    assert_plain(build, *case)


@pytest.mark.parametrize("prices", [None, np.linspace(-0.5, 0.5, 5)])
def test_selections_without_conditions_are_filtered_here(build: Build, prices: Prices) -> None:
    contract.check_random_eligibility(build, prices)


def test_prices_are_asked_for_in_tiers_if_very_many_items_would_not_do(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairsync.search.engines.priced_ranking._MOST_PLAIN", 0)
    catalog, users = random_case(1)
    index = build(catalog)
    assert isinstance(index, MilvusIndex)
    queries = contract.record_queries(index.engine, monkeypatch)
    for scale in (0.5, 5.0):
        prices = np.random.default_rng(2).normal(scale=scale, size=catalog.n_groups)
        hits = contract.without_exact(index).search(users, prices, 10)
        assert hits.rows.tolist() == plain.search(catalog, users, prices, 10)[0]
    assert all(one.restricted is not None for one in queries)


@pytest.mark.parametrize("words", [True, False])
def test_conditions_are_expressions(make: Make, words: bool) -> None:
    contract.check_conditions(make(contract.shop(words=words)))


def test_conditions_and_exclusions_are_evaluated_by_milvus(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = contract.shop()
    index = make(catalog)
    queries = contract.record_queries(index.engine, monkeypatch)
    certified = contract.without_exact(index)
    eligible, _ = make_eligibility([catalog.ids_of([1, 2]).tolist()] * 4, {"new": False}, catalog, 4)
    certified.search(contract.some_users(4, 8), None, 20, eligible)
    assert [query.count for query in queries] == [24]


def test_promises_that_overlap_are_over_fetched(make: Make) -> None:
    contract.check_atoms(make)


@pytest.mark.parametrize("words", [True, False])
def test_a_retriever_keeps_its_floors_and_finds_the_same_as_with_exact_search(make: Make, words: bool) -> None:
    contract.check_floors(make, words)


def test_changes_are_written(pair: tuple[Make, Make]) -> None:
    contract.check_changes(*pair)


def test_other_items_of_the_collection_are_ignored(make: Make) -> None:
    contract.check_other_items(make)


def test_it_counts_and_fetches_by_id(make: Make) -> None:
    contract.check_abilities(make(contract.shop()))


@pytest.mark.parametrize("received", [1 << 17, 8])
def test_it_tells_its_form_and_returns_items_with_their_ranking(
    make: Make, received: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the answers to searches, or part by part if they would be too large."""
    monkeypatch.setattr("fairsync.search.engines.milvus.engine._RECEIVED_AT_ONCE", received)
    monkeypatch.setattr("fairsync.search.engines.milvus.engine._NAMED_AT_ONCE", 2)
    catalog = contract.shop()
    engine = make(catalog).engine
    schema = engine.schema([*catalog.attributes])
    assert (schema.dim, schema.ids) == (8, str)
    kinds = {name: (type(column), column.kind) for name, column in schema.columns.items()}
    assert kinds == {name: (type(column), column.kind) for name, column in catalog.attributes.items()}
    with pytest.raises(InvalidInputError, match=r"no field 'colour'; it has id, embedding, brand"):
        engine.schema(["colour"])
    query = EngineQuery(contract.some_users(2, 8)[:, 0].astype(np.float32), 5, 5, with_items=True)
    for ranking in engine.search(query):
        assert ranking.items is not None
        rows = catalog.rows_of(np.asarray(ranking.items.ids))
        assert sorted(ranking.items.ids) == sorted(ranking.ids)
        assert (ranking.items.vectors == catalog.embeddings[rows]).all()
        assert ranking.items.attributes["tags"] == catalog.attributes["tags"].take(rows).values()
    counted = engine.count(["new", "tags"], [Condition("year", (2001,))])
    chosen = np.flatnonzero(np.array(catalog.attributes["year"].values()) == 2001)
    pairs = zip(*(catalog.attributes[name].take(chosen).values() for name in ("new", "tags")), strict=True)
    assert counted == Counter((new, tuple(sorted(tags))) for new, tags in pairs)


def test_a_catalog_that_the_collection_does_not_hold_is_refused(pair: tuple[Make, Make]) -> None:
    catalog = contract.shop()
    with pytest.raises(InvalidInputError, match=r"there is no collection 'items_\d+' of Milvus .*upload=True"):
        pair[1](catalog)
    pair[0](catalog)
    contract.check_a_catalog_that_is_not_there(pair[1], catalog)


def test_another_model_replaces_all_embeddings(make: Make) -> None:
    catalog, other = contract.shop(1), contract.shop(2)
    retriever = fs.FairRetriever(catalog, k=5, index=make)
    retriever.replace(other)
    assert isinstance(retriever.index, MilvusIndex | fs.search.engines.EngineIndex)
    users = contract.some_users(3, 8)
    assert retriever.index.search(users, None, 9).rows.tolist() == plain.search(other, users, None, 9)[0]


def test_many_items_are_written_and_read_in_batches(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    ids = [f'"{i}" \\' for i in rng.permutation(3000)]
    catalog = Catalog(rng.standard_normal((3000, 300)), {"group": rng.integers(0, 3, 3000).tolist()}, ids)
    seen: list[int] = []
    name = new_collection()
    index = MilvusIndex(catalog, url, name, upload=True, watch=lambda done, _: seen.append(done))
    assert seen == sorted(set(seen))
    assert seen[-1] == 3000
    sizes = [len(batch) for batch in index.engine.items()]
    assert (sum(sizes), len(sizes) > 1) == (3000, True)
    # What is there is not written again.
    MilvusIndex(catalog, url, name, upload=True, watch=lambda *_: pytest.fail("written twice"))


class TestLite:
    """The same in a file of Milvus Lite."""

    @pytest.fixture
    def pair(self, lite: str) -> tuple[Make, Make]:
        return makers(lite)

    def test_conditions_are_expressions(self, make: Make) -> None:
        contract.check_conditions(make(contract.shop()))

    def test_changes_are_written(self, pair: tuple[Make, Make]) -> None:
        contract.check_changes(*pair)

    def test_it_counts_and_fetches_by_id(self, make: Make) -> None:
        index = make(contract.shop(words=False))
        contract.check_abilities(index)
        assert sum(len(batch) for batch in index.engine.items()) == 600

    def test_a_retriever_keeps_its_floors(self, make: Make) -> None:
        contract.check_floors(make, words=True)


class TestExistingCollection:
    """A collection that somebody else has made, under names of its own."""

    @pytest.fixture
    def collection(self, url: str) -> str:
        return self.made(url, "IP", "FLAT")

    def made(self, url: str, metric: str, kind: str) -> str:
        from pymilvus import DataType, MilvusClient

        client, name = MilvusClient(url), new_collection()
        schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("sku", DataType.VARCHAR, is_primary=True, max_length=20)
        schema.add_field("v", DataType.FLOAT_VECTOR, dim=3)
        schema.add_field("kind", DataType.VARCHAR, max_length=20)
        schema.add_field("stock", DataType.INT16)
        client.create_collection(name, schema=schema)
        rows = [("a", "toys", 3), ("b", "books", 0), ("c", "toys", 7)]
        vectors = np.eye(3, dtype=np.float32)
        client.insert(
            name, [{"sku": a, "kind": b, "stock": c, "v": v} for (a, b, c), v in zip(rows, vectors, strict=True)]
        )
        params = client.prepare_index_params()
        params.add_index("v", index_type=kind, metric_type=metric, params={"M": 8, "efConstruction": 40})
        client.create_index(name, params, sync=False)
        return name

    def index(self, url: str, name: str, dim: int = 3, **given: Any) -> MilvusIndex:
        embeddings = np.eye(dim, dtype=np.float32)[:3]
        catalog = Catalog(embeddings, {"category": ["toys", "books", "toys"], "stock": [3, 0, 7]}, list("abc"))
        named = {"id_column": "sku", "embedding_column": "v", "columns": {"category": "kind"}} | given
        return MilvusIndex(catalog, url, name, **named)

    def test_it_is_searched_under_its_own_names(self, url: str, collection: str) -> None:
        index = self.index(url, collection)
        users = np.array([[[3.0, 2.0, 1.0]]])
        assert index.search(users, None, 2).rows.tolist() == [[0, 1]]
        assert index.search(users, np.array([0.0, 1.5]), 2).rows.tolist() == [[1, 0]]
        eligible, _ = make_eligibility(None, {"stock": {"at_least": 1}}, index.catalog, 1)
        assert index.search(users, None, 2, eligible).rows.tolist() == [[0, 2]]
        index.engine.server.set_alias(f"{collection}_now", collection)
        assert self.index(url, f"{collection}_now").search(users, None, 2).rows.tolist() == [[0, 1]]

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"columns": {}}, r"no field 'category'; it has sku, v, kind, stock: name it with .*columns="),
            ({"id_column": "kind"}, r"'kind' is not the primary key .*id_column='sku'"),
            ({"embedding_column": "kind"}, r"'kind' .* is VARCHAR, and embeddings need FLOAT_VECTOR"),
            (
                {"columns": {"category": "kind", "stock": "kind"}},
                r"has words for .* 'stock', which needs whole numbers",
            ),
            ({"dim": 4}, r"have 3 dimensions, and the catalog has 4"),
            ({"index": "hnsw"}, r"is FLAT, and index='hnsw' needs HNSW"),
        ],
    )
    def test_what_does_not_fit_is_said(self, url: str, collection: str, wrong: dict[str, Any], message: str) -> None:
        with pytest.raises(InvalidInputError, match=message):
            self.index(url, collection, **wrong)

    @pytest.mark.parametrize(
        ("metric", "kind", "message"),
        [("COSINE", "FLAT", r"metric .* is COSINE.*normalize=True"), ("IP", "HNSW", r"is HNSW, and .*index='hnsw'")],
    )
    def test_another_metric_or_index_is_said(self, url: str, metric: str, kind: str, message: str) -> None:
        with pytest.raises(InvalidInputError, match=message):
            self.index(url, self.made(url, metric, kind))


def test_hnsw_finds_most_and_keeps_floors(url: str) -> None:
    rng = np.random.default_rng(11)
    catalog = Catalog(
        rng.standard_normal((2000, 16)).astype(np.float32), {"group": [f"g{i}" for i in rng.integers(0, 8, 2000)]}
    )
    index = MilvusIndex(catalog, url, new_collection(), index="hnsw", upload=True)
    users = rng.standard_normal((80, 1, 16))
    for prices in (None, np.linspace(-1, 1, 8)):
        assert recall(index.search(users[:12], prices, 10), catalog, users[:12], prices, 10) >= 0.9
    retriever = fs.FairRetriever(catalog, k=10, floors=60, horizon=80, batch_size=8, index=index)
    retriever.retrieve(users)
    assert all(retriever.report().satisfied.values())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"index": "ivf"}, "'exact' or 'hnsw'"),
        ({"ef_search": 0}, "ef_search"),
        ({"timeout": 0}, "timeout"),
        ({"collection": ""}, "collection"),
        ({"id_column": "a b"}, "letters, digits and _"),
        ({"columns": {"kind": "größe"}}, "letters, digits and _"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_asked(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make_engine("milvus", **({"url": "http://127.0.0.1:1"} | wrong))
