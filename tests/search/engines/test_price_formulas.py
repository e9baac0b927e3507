"""Prices in the language of each engine: on the real engine where one can run, with labels that hurt."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg
import pymilvus
import pytest
import qdrant_client
from qdrant_client import models

from fairsync.errors import InvalidInputError
from fairsync.search.engines.pgvector import PgvectorIndex
from fairsync.search.engines.price_formulas import FORMATS, PricedSelection, write_prices
from fairsync.search.engines.qdrant import QdrantIndex
from postgres_server import PostgresServer
from search.engines.engine_contract import HOSTILE, WHERES, shop, some_users

CATALOG = shop(21, n=200)
USERS = some_users(4, 8, seed=22)
K = 12
NUMBERS = np.linspace(-1.5, 1.5, CATALOG.n_groups).tolist()
LABELS = [
    PricedSelection({"brand": label}, math.inf if code == 2 else NUMBERS[code])
    for code, label in enumerate(CATALOG.labels)
]
# Subsidies, charges and masks of selections of all kinds, which overlap.
OVERLAPPING = [
    *LABELS,
    *(PricedSelection(where, -0.75 + 0.08 * at) for at, where in enumerate(WHERES)),
    PricedSelection({"new": True}, -0.5),
    PricedSelection({"new": True, "tags": HOSTILE[1]}, -1.0),
    PricedSelection({"sizes": 42, "year": {"at_least": 2004}}, math.inf),
    PricedSelection({"year": [2001, 2003]}, 0.25),
    PricedSelection({"year": 2003}, -0.25),  # together 0 for 2003
    PricedSelection({}, -3.0),
]
# What a tensor can price.
OF_LABELS = [*LABELS, PricedSelection({"new": True, "tags": HOSTILE[1]}, -1.0), PricedSelection({"year": 2003}, 0.25)]


def meets(item: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    """Whether an item meets conditions, in the plainest words."""
    for name, given in where.items():
        value = item[name]
        if isinstance(given, Mapping) and "not" not in given:
            if not given.get("at_least", -math.inf) <= value <= given.get("at_most", math.inf):
                return False
            continue
        negated = isinstance(given, Mapping)
        wanted = given["not"] if isinstance(given, Mapping) else given
        wanted = wanted if isinstance(wanted, list) else [wanted]
        has = any(one in wanted for one in (value if isinstance(value, list) else [value]))
        if has == negated:
            return False
    return True


def items() -> list[dict[str, Any]]:
    columns = {name: column.values() for name, column in CATALOG.attributes.items()}
    return [{name: values[row] for name, values in columns.items()} for row in range(len(CATALOG))]


def item_prices(prices: Sequence[PricedSelection]) -> npt.NDArray[np.float64]:
    """Return the price of each item."""
    return np.array([sum((one.price for one in prices if meets(item, one.where)), start=0.0) for item in items()])


def expected(prices: Sequence[PricedSelection]) -> list[list[str]]:
    """Return the best items by relevance minus price, best first."""
    scores = USERS[:, 0] @ CATALOG.embeddings.T.astype(np.float64) - item_prices(prices)
    return [CATALOG.ids_of(row[:K]).tolist() for row in np.argsort(-scores, axis=1)]


@pytest.mark.parametrize("conforming", ["on", "off"])
@pytest.mark.parametrize("prices", [LABELS, OVERLAPPING], ids=["labels", "overlapping"])
def test_sql_ranks_under_prices(postgres: PostgresServer, conforming: str, prices: Sequence[PricedSelection]) -> None:
    postgres.execute("CREATE EXTENSION IF NOT EXISTS vector")
    columns = {"brand": 'the "kind"'}
    PgvectorIndex(CATALOG, postgres.url, "formula_items", columns=columns, upload=True)
    made, found = write_prices("sql", prices, CATALOG.attributes, columns), []
    with psycopg.connect(postgres.url) as connection:
        connection.execute(f"SET standard_conforming_strings = {conforming}".encode())
        for user in USERS[:, 0]:
            vector = f"[{','.join(map(str, user.astype(np.float32).tolist()))}]"
            query = (
                f"SELECT id FROM formula_items WHERE {made['filter']}"
                f" ORDER BY (embedding <#> '{vector}') + ({made['expression']}) LIMIT {K}"
            )
            found.append([name for (name,) in connection.execute(query.encode()).fetchall()])
    postgres.execute("DROP TABLE formula_items")
    assert found == expected(prices)


@pytest.mark.parametrize("prices", [LABELS, OVERLAPPING], ids=["labels", "overlapping"])
def test_qdrant_ranks_under_prices(prices: Sequence[PricedSelection]) -> None:
    client = qdrant_client.QdrantClient(":memory:")
    QdrantIndex(CATALOG, client, "wares", upload=True)
    made, found = json.loads(json.dumps(write_prices("qdrant", prices, CATALOG.attributes))), []
    formula, only = models.FormulaQuery(**made["query"]), models.Filter(**made["filter"])
    for user in USERS[:, 0]:
        fetch = models.Prefetch(query=user.tolist(), filter=only, limit=len(CATALOG))
        points = client.query_points("wares", prefetch=[fetch], query=formula, limit=K).points
        found.append([(point.payload or {})["id"] for point in points])
    client.close()
    assert found == expected(prices)


MILVUS_TYPES = {"str": pymilvus.DataType.VARCHAR, "int": pymilvus.DataType.INT64, "bool": pymilvus.DataType.BOOL}


@pytest.fixture(scope="module")
def wares(tmp_path_factory: pytest.TempPathFactory) -> pymilvus.MilvusClient:
    """The catalog in Milvus Lite, with every attribute as a field."""
    client = pymilvus.MilvusClient(str(tmp_path_factory.mktemp("milvus") / "wares.db"))
    schema = client.create_schema(auto_id=False)
    schema.add_field("id", pymilvus.DataType.VARCHAR, is_primary=True, max_length=100)
    schema.add_field("vector", pymilvus.DataType.FLOAT_VECTOR, dim=CATALOG.dim)
    for name, column in CATALOG.attributes.items():
        kind = MILVUS_TYPES.get(column.kind, pymilvus.DataType.DOUBLE)
        if name in ("tags", "sizes"):
            more = {"max_length": 100} if column.kind == "str" else {}
            schema.add_field(name, pymilvus.DataType.ARRAY, element_type=kind, max_capacity=10, **more)
        else:
            schema.add_field(name, kind, **({"max_length": 100} if column.kind == "str" else {}))
    index = client.prepare_index_params()
    index.add_index("vector", index_type="FLAT", metric_type="IP")
    client.create_collection("wares", schema=schema, index_params=index)
    rows = [
        {"id": name, "vector": vector.tolist(), **item}
        for name, vector, item in zip(CATALOG.ids.tolist(), CATALOG.embeddings, items(), strict=True)
    ]
    client.insert("wares", rows)
    client.load_collection("wares")
    return client


def test_searches_of_milvus_merge_to_the_ranking_under_prices(wares: pymilvus.MilvusClient) -> None:
    made, found = write_prices("milvus", LABELS, CATALOG.attributes), []
    for user in USERS[:, 0]:
        merged = []
        for filter_, weight in [(made["rest"], 0.0), *((one["filter"], one["weight"]) for one in made["boosts"])]:
            (hits,) = wares.search("wares", [user.tolist()], filter=filter_, limit=K, anns_field="vector")
            merged += [(hit["distance"] + weight, hit["id"]) for hit in hits]
        found.append([name for _, name in sorted(merged, key=lambda one: -one[0])[:K]])
    assert found == expected(LABELS)


def test_filters_of_milvus_select_what_is_priced(wares: pymilvus.MilvusClient) -> None:
    made = write_prices("milvus", OVERLAPPING, CATALOG.attributes)
    prices = dict.fromkeys(CATALOG.ids.tolist(), math.inf)
    for one in wares.query("wares", filter=made["filter"], output_fields=["id"], limit=len(CATALOG)):
        prices[one["id"]] = 0.0
    for boost in made["boosts"]:
        for one in wares.query("wares", filter=boost["filter"], output_fields=["id"], limit=len(CATALOG)):
            prices[one["id"]] -= boost["weight"]
    found, wanted = np.array([prices[name] for name in CATALOG.ids.tolist()]), item_prices(OVERLAPPING)
    assert (np.isinf(found) == np.isinf(wanted)).all()
    difference = found[np.isfinite(found)] - wanted[np.isfinite(wanted)]
    np.testing.assert_allclose(difference, difference[0], atol=1e-9)  # of prices that all items have


def elasticsearch_meets(item: Mapping[str, Any], query: Mapping[str, Any]) -> bool:
    """Whether a document meets a query, as the documentation of Elasticsearch defines it."""
    ((kind, body),) = query.items()
    if kind == "match_all":
        return True
    if kind == "bool":
        return all(elasticsearch_meets(item, one) for one in body.get("filter", [])) and not any(
            elasticsearch_meets(item, one) for one in body.get("must_not", [])
        )
    ((field, wanted),) = body.items()
    values = item[field] if isinstance(item[field], list) else [item[field]]
    if kind == "terms":
        return any(type(one) is type(value) and one == value for one in wanted for value in values)
    assert kind == "range"
    return all(wanted.get("gte", -math.inf) <= value <= wanted.get("lte", math.inf) for value in values)


def test_function_scores_differ_by_the_prices_and_are_never_negative() -> None:
    made = json.loads(json.dumps(write_prices("elasticsearch", OVERLAPPING, CATALOG.attributes, scale=0.5)))
    body = made["function_score"]
    assert (body["score_mode"], body["boost_mode"]) == ("sum", "sum")
    assert all(one["weight"] >= 0 for one in body["functions"])
    wanted = item_prices(OVERLAPPING)
    bonus = np.array(
        [
            sum(
                one["weight"]
                for one in body["functions"]
                if elasticsearch_meets(item, one.get("filter", {"match_all": {}}))
            )
            for item in items()
        ]
    )
    kept = np.array([elasticsearch_meets(item, made["filter"]) for item in items()])
    assert (kept == np.isfinite(wanted)).all()
    total = bonus[kept] + 0.5 * wanted[kept]
    np.testing.assert_allclose(total, total[0], atol=1e-9)
    assert elasticsearch_meets({}, write_prices("elasticsearch", [], CATALOG.attributes)["filter"])


def test_tensors_of_vespa_sum_to_the_prices() -> None:
    made = json.loads(json.dumps(write_prices("vespa", OF_LABELS, CATALOG.attributes)))
    assert made["types"] == {
        "query(price_brand)": "tensor<double>(brand{})",
        "query(price_new_tags)": "tensor<double>(new{},tags{})",
        "query(price_year)": "tensor<double>(year{})",
    }
    assert made["expression"].split(" + ") == [
        "sum(query(price_brand) * tensorFromLabels(attribute(brand), brand))",
        "sum(query(price_year) * tensorFromLabels(attribute(year), year))",
        "sum(query(price_new_tags) * tensorFromLabels(attribute(new), new) * tensorFromLabels(attribute(tags), tags))",
    ]
    masked = re.fullmatch(r'!\(brand in \(("(?:[^"\\]|\\.)*")\)\)', made["filter"])
    assert masked is not None
    bonus = []
    for item in items():
        words = {
            name: [
                str(one).lower() if isinstance(one, bool) else str(one)
                for one in (value if isinstance(value, list) else [value])
            ]
            for name, value in item.items()
        }
        value = sum(
            cell["value"]
            for tensor in made["input"].values()
            for cell in tensor["cells"]
            if all(label in words[field] for field, label in cell["address"].items())
        )
        bonus.append(-math.inf if item["brand"] == json.loads(masked[1]) else value)
    np.testing.assert_allclose(bonus, -item_prices(OF_LABELS), atol=1e-9)


@pytest.mark.parametrize(
    "where", [{"price": 1.5}, {"year": {"at_least": 2}}, {"brand": {"not": "0"}}, {"tags": ["0", ""]}]
)
def test_vespa_refuses_what_a_tensor_cannot_price(where: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="tensor of Vespa can price labels"):
        write_prices("vespa", [PricedSelection(where, 1.0)], CATALOG.attributes)


@pytest.mark.parametrize("form", FORMATS)
def test_prices_that_are_none_and_bad_names_are_refused(form: str) -> None:
    assert json.dumps(write_prices(form, [], CATALOG.attributes))
    for price in (math.nan, -math.inf):
        with pytest.raises(InvalidInputError, match="price of"):
            write_prices(form, [PricedSelection({"brand": "0"}, price)], CATALOG.attributes)
    with pytest.raises(InvalidInputError, match="no attribute 'colour'"):
        write_prices(form, [], CATALOG.attributes, {"colour": "x"})
    with pytest.raises(InvalidInputError, match="scale"):
        write_prices(form, [], CATALOG.attributes, scale=0.0)
    if form in ("milvus", "vespa", "qdrant"):
        with pytest.raises(InvalidInputError, match=r"fields of letters|without quotes"):
            write_prices(form, [PricedSelection({"brand": "0"}, 1.0)], CATALOG.attributes, {"brand": 'a"b'})


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="choose one of elasticsearch"):
        write_prices("solr", [], CATALOG.attributes)
