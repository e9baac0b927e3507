"""Prices as SQL and as a formula, on the real engines and with labels that hurt."""

import numpy as np
import psycopg
import pytest
import qdrant_client
from qdrant_client import models

import plain
from fairsync.errors import InvalidInputError
from fairsync.search.engines.pgvector import PgvectorIndex
from fairsync.search.engines.price_formula import qdrant_prices, sql_prices
from fairsync.search.engines.qdrant import QdrantIndex
from postgres_server import PostgresServer
from search.engines.engine_contract import shop, some_users

CATALOG = shop(21, n=200)
USERS = some_users(4, 8, seed=22)
NUMBERS = np.linspace(-1.5, 1.5, CATALOG.n_groups)
NUMBERS[2] = np.inf
PRICES = dict(zip(CATALOG.labels, NUMBERS.tolist(), strict=True))


def expected() -> list[list[str]]:
    rows, _ = plain.search(CATALOG, USERS, NUMBERS, 12)
    return [CATALOG.ids_of(row).tolist() for row in rows]


@pytest.mark.parametrize("conforming", ["on", "off"])
def test_sql_ranks_under_prices(postgres: PostgresServer, conforming: str) -> None:
    postgres.execute("CREATE EXTENSION IF NOT EXISTS vector")
    PgvectorIndex(CATALOG, postgres.url, "formula_items", upload=True)
    price = sql_prices(PRICES, "brand")
    found = []
    with psycopg.connect(postgres.url) as connection:
        connection.execute(f"SET standard_conforming_strings = {conforming}".encode())
        for user in USERS[:, 0]:
            vector = f"[{','.join(map(str, user.astype(np.float32).tolist()))}]"
            order = f"(embedding <#> '{vector}') + ({price})"
            query = f"SELECT id FROM formula_items WHERE {order} < 'Infinity' ORDER BY {order} LIMIT 12"
            found.append([name for (name,) in connection.execute(query.encode()).fetchall()])
    assert found == expected()
    postgres.execute("DROP TABLE formula_items")


def test_qdrant_ranks_under_prices() -> None:
    client = qdrant_client.QdrantClient(":memory:")
    QdrantIndex(CATALOG, client, "wares", upload=True)
    made = qdrant_prices(PRICES, "brand")
    formula, only = models.FormulaQuery(**made["query"]), models.Filter(**made["filter"])
    found = []
    for user in USERS[:, 0]:
        fetch = models.Prefetch(query=user.tolist(), filter=only, limit=len(CATALOG))
        points = client.query_points("wares", prefetch=[fetch], query=formula, limit=12).points
        found.append([(point.payload or {})["id"] for point in points])
    assert found == expected()
    client.close()


def test_names_of_columns_are_quoted_and_numbers_and_bools_are_labels() -> None:
    assert (
        sql_prices({1: 0.5, 2: -1.0}, 'the "kind"') == 'CASE "the ""kind""" WHEN 1 THEN 0.5 WHEN 2 THEN -1.0 ELSE 0 END'
    )
    assert sql_prices({True: -0.5}, "new") == 'CASE "new" WHEN TRUE THEN -0.5 ELSE 0 END'
    assert sql_prices({}, "new") == "0"
    assert qdrant_prices({}, "new") == {"query": {"formula": {"sum": ["$score"]}}, "filter": {}}


@pytest.mark.parametrize("price", [float("nan"), -float("inf")])
def test_what_is_no_price_is_refused(price: float) -> None:
    with pytest.raises(InvalidInputError, match="price of 'a'"):
        sql_prices({"a": price}, "x")
    with pytest.raises(InvalidInputError, match="price of 'a'"):
        qdrant_prices({"a": price}, "x")


def test_labels_that_an_engine_cannot_hold_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="NUL"):
        sql_prices({"a\0b": 1.0}, "x")
    with pytest.raises(InvalidInputError, match="bool"):
        qdrant_prices({True: 1.0}, "x")
    with pytest.raises(InvalidInputError, match="without quotes"):
        qdrant_prices({"a": 1.0}, 'x"y')
