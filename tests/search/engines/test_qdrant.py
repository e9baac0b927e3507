import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import qdrant_client
from hypothesis import HealthCheck, given, settings
from qdrant_client import models

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
from fairsync.search.engines.qdrant import QdrantIndex
from search.approximate import recall
from search.engines import engine_contract as contract

pytest.importorskip("qdrant_edge")
_numbers = count()
Place = str | qdrant_client.QdrantClient
Make = Callable[[Catalog], QdrantIndex]


@pytest.fixture(scope="module", params=["edge", "local"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Return a folder for Qdrant's own engine, and a client in local mode."""
    if request.param == "edge":
        yield str(tmp_path_factory.mktemp("qdrant"))
        return
    client = qdrant_client.QdrantClient(":memory:")
    yield client
    client.close()


def new_name() -> str:
    return f"items_{next(_numbers)}"


@pytest.fixture(scope="module", params=["formula", "over-fetch"])
def build(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Return what makes an index over a folder of its own, for the tests of every index. Local mode takes too long."""
    folder = str(tmp_path_factory.mktemp("qdrant"))
    return lambda catalog: QdrantIndex(catalog, folder, new_name(), prices=request.param, upload=True)


@pytest.fixture
def make(place: Place) -> Make:
    name = new_name()
    return lambda catalog: QdrantIndex(catalog, place, name, upload=True)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Make, Make]:
    """Return what makes an index that writes to a folder, and one that may only read it."""
    return (
        lambda catalog: QdrantIndex(catalog, str(tmp_path), upload=True),
        lambda catalog: QdrantIndex(catalog, str(tmp_path)),
    )


@pytest.fixture
def fast(tmp_path: Path) -> Make:
    """Return what makes an index over a folder; local mode takes long."""
    return lambda catalog: QdrantIndex(catalog, str(tmp_path), upload=True)


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases())
def test_the_answer_is_that_of_the_plainest_search(
    build: Build, case: tuple[Catalog, npt.NDArray[np.floating], Prices, int]
) -> None:
    assert_plain(build, *case)


@pytest.mark.parametrize("prices", [None, np.linspace(-0.5, 0.5, 5)])
def test_selections_without_conditions_are_filtered_here(build: Build, prices: Prices) -> None:
    contract.check_random_eligibility(build, prices)


def test_conditions_are_filters(make: Make) -> None:
    contract.check_conditions(make(contract.shop(n=300)))


def test_conditions_on_items_whose_ids_are_numbers(fast: Make) -> None:
    contract.check_conditions(fast(contract.shop(words=False)))


def test_a_formula_is_deepened_until_the_answer_is_certain(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = contract.shop(n=900)
    index = make(catalog)
    queries = contract.record_queries(index.engine, monkeypatch)
    certified = contract.without_exact(index)
    users, number = contract.some_users(4, 8), np.arange(catalog.n_groups)
    certified.search(users, np.linspace(0.0, 0.7, len(number)), 10)
    assert len(queries) == 1
    assert queries[0].bonus is not None
    queries.clear()
    steep = np.where(number == 1, -6.0, 0.0)
    hits = certified.search(users, steep, 10)
    assert len(queries) > 1
    assert queries[-1].depth > queries[0].depth
    assert (hits.rows == ExactIndex(catalog).search(users, steep, 10).rows).all()
    queries.clear()
    certified.search(users, np.where(number == 2, 0.0, np.inf), 10)  # masks are filters
    assert len(queries) == 1


def test_promises_that_overlap_are_over_fetched(fast: Make) -> None:
    contract.check_atoms(fast)


@pytest.mark.parametrize("words", [True, False])
def test_a_retriever_keeps_its_floors_and_finds_the_same_as_with_exact_search(fast: Make, words: bool) -> None:
    contract.check_floors(fast, words)


def test_changes_are_written(pair: tuple[Make, Make]) -> None:
    contract.check_changes(*pair)


def test_other_points_are_ignored(fast: Make) -> None:
    contract.check_other_items(fast)


@pytest.mark.parametrize("words", [True, False])
def test_it_counts_and_fetches_by_id(make: Make, words: bool) -> None:
    contract.check_abilities(make(contract.shop(words=words)))


def test_a_catalog_that_is_not_there_is_refused(pair: tuple[Make, Make]) -> None:
    catalog = contract.shop()
    with pytest.raises(InvalidInputError, match=r"there is no (collection|folder) .*upload=True"):
        pair[1](catalog)
    pair[0](catalog)
    contract.check_a_catalog_that_is_not_there(pair[1], catalog)


def test_a_folder_outlives_the_index(tmp_path: Path) -> None:
    catalog, users = contract.shop(), contract.some_users(3, 8)
    first = QdrantIndex(catalog, str(tmp_path), upload=True)
    assert (QdrantIndex(catalog, str(tmp_path)).search(users, None, 7).rows == first.search(users, None, 7).rows).all()
    with pytest.raises(InvalidInputError, match=r"8 dimensions, and the catalog has 4"):
        QdrantIndex(Catalog(np.eye(4), ["a"] * 4), str(tmp_path))


def test_numbers_of_which_the_engine_rounds_the_last_digit_are_the_same(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    catalog = Catalog(rng.normal(size=(400, 4)), {"kind": ["a", "b"] * 200, "eur": rng.random(400) * 100})
    first = QdrantIndex(catalog, str(tmp_path), upload=True)
    held = np.concatenate([np.array(batch.attributes["eur"]) for batch in first.engine.items()])
    assert not np.isin(held, catalog.attributes["eur"].values()).all()
    del first
    QdrantIndex(catalog, str(tmp_path))  # raises if an item is different there
    other = Catalog(
        catalog.embeddings, {"kind": ["a", "b"] * 200, "eur": np.array(catalog.attributes["eur"].values()) + 1e-9}
    )
    with pytest.raises(InvalidInputError, match=r"400 items are missing or different; item .* has another 'eur' there"):
        QdrantIndex(other, str(tmp_path))


class TestExistingCollection:
    """A collection that somebody else has made, under names of its own; the client's local mode."""

    CATALOG = Catalog(np.eye(3, dtype=np.float32), {"kind": ["toys", "books", "toys"], "stock": [3, 0, 7]}, list("abc"))

    def collection(
        self, distance: models.Distance = models.Distance.DOT, size: int = 3, name: str = ""
    ) -> qdrant_client.QdrantClient:
        client = qdrant_client.QdrantClient(":memory:")
        params = models.VectorParams(size=size, distance=distance)
        client.create_collection("wares", {name: params} if name else params)
        vectors = np.eye(3, size).tolist()
        payloads = [
            {"sku": a, "the kind": b, "stock": c}
            for a, b, c in zip("abc", ["toys", "books", "toys"], [3, 0, 7], strict=True)
        ]
        points = [
            models.PointStruct(id=i, vector={name: vector} if name else vector, payload=payload)
            for i, (vector, payload) in enumerate(zip(vectors, payloads, strict=True))
        ]
        client.upsert("wares", points)
        return client

    def index(self, client: qdrant_client.QdrantClient, **given: Any) -> QdrantIndex:
        named = {"id_key": "sku", "columns": {"kind": "the kind"}} | given
        return QdrantIndex(self.CATALOG, client, "wares", **named)

    @pytest.mark.parametrize("name", ["", "dense"])
    def test_it_is_searched_under_its_own_names(self, name: str) -> None:
        index = contract.without_exact(self.index(self.collection(name=name), vector_name=name))
        users = np.array([[[3.0, 2.0, 1.0]]])
        assert index.search(users, None, 2).rows.tolist() == [[0, 1]]
        assert index.search(users, np.array([0.0, 1.5]), 2).rows.tolist() == [[1, 0]]
        eligible, _ = make_eligibility(None, {"stock": {"at_least": 1}}, index.catalog, 1)
        assert index.search(users, None, 2, eligible).rows.tolist() == [[0, 2]]

    def test_ids_may_be_those_of_the_points(self) -> None:
        catalog = Catalog(np.eye(3, dtype=np.float32), {"the kind": ["toys", "books", "toys"]})
        index = QdrantIndex(catalog, self.collection(), "wares")
        assert contract.without_exact(index).search(np.array([[[3.0, 4.0, 1.0]]]), None, 2).rows.tolist() == [[1, 0]]

    @pytest.mark.parametrize(
        ("made", "given", "message"),
        [
            ({"distance": models.Distance.COSINE}, {}, "metric .* is Cosine, and relevance is the inner product"),
            ({"size": 4}, {}, "have 4 dimensions, and the catalog has 3"),
            ({"name": "dense"}, {}, "has no vector ''; it has 'dense': name one with vector_name="),
            ({}, {"vector_name": "dense"}, "one vector without a name"),
            ({}, {"columns": {"kind": "kind"}}, "no payload field 'kind' for .*; it has sku, stock, the kind"),
            (
                {},
                {"columns": {"knd": "the kind"}},
                "columns= names 'knd', which is no attribute .* Did you mean 'kind'",
            ),
            ({}, {"id_key": "nothing"}, "3 items are missing"),
        ],
    )
    def test_what_does_not_fit_is_said(self, made: dict[str, Any], given: dict[str, Any], message: str) -> None:
        with pytest.raises(InvalidInputError, match=message):
            self.index(self.collection(**made), **given)


def test_hnsw_is_honest_and_finds_most(tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    catalog = Catalog(rng.standard_normal((3000, 16)).astype(np.float32), [f"g{i}" for i in rng.integers(0, 8, 3000)])
    index = QdrantIndex(catalog, str(tmp_path), index="hnsw", upload=True)
    users = rng.standard_normal((12, 1, 16))
    for prices in (None, np.linspace(-1, 1, 8)):
        assert recall(index.search(users, prices, 10), catalog, users, prices, 10) >= 0.9


class Stub(BaseHTTPRequestHandler):
    """A server that answers with what a test wants: there is no Qdrant server to be had here."""

    status, body = 200, dict[str, Any]()

    def do_GET(self) -> None:
        answer = json.dumps(self.body).encode()
        self.send_response(self.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def stub() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Stub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_server_without_formulas_is_said(stub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stub, "body", {"title": "qdrant", "version": "1.13.4", "commit": None})
    with pytest.raises(InvalidInputError, match=r"is 1.13.4, and formulas need 1.14: update it, or set prices="):
        QdrantIndex(contract.shop(), stub, timeout=2.0)


def test_a_wrong_key_is_said(stub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stub, "status", 403)
    monkeypatch.setattr(Stub, "body", {"status": {"error": "Invalid API key"}})
    with pytest.raises(InvalidInputError, match=r"refuses: .*Invalid API key.*\(status 403\).*api_key="):
        QdrantIndex(contract.shop(), stub, timeout=2.0)


def test_a_server_that_is_away_is_said(stub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BackendUnavailableError, match="Start it, check url="):
        QdrantIndex(contract.shop(), "http://127.0.0.1:1", timeout=0.2)
    monkeypatch.setattr(Stub, "status", 503)
    with pytest.raises(BackendUnavailableError, match="503"):
        QdrantIndex(contract.shop(), stub, timeout=0.2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"index": "ivf"}, "'exact' or 'hnsw'"),
        ({"prices": "bias"}, "'formula' or 'over-fetch'"),
        ({"timeout": 0}, "timeout"),
        ({"collection": ""}, "collection"),
        ({"url": "ftp://host"}, "url must be"),
        ({"url": "folder", "vector_name": "x"}, "neither vector_name= nor api_key="),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_asked(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        QdrantIndex(contract.shop(), **({"url": "http://127.0.0.1:1"} | wrong))


def test_ids_that_no_point_can_have_are_refused(place: Place) -> None:
    with pytest.raises(InvalidInputError, match=r"the id -1 .* numbers from 0"):
        QdrantIndex(Catalog(np.eye(2), ["a", "b"], ids=[-1, 4]), place, new_name(), upload=True)
    with pytest.raises(InvalidInputError, match=r"'x' is no UUID: give id_key="):
        QdrantIndex(Catalog(np.eye(2), ["a", "b"], ids=["x", "y"]), place, new_name(), id_key=None, upload=True)
