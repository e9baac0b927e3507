"""Prices in the language of an engine that is searched without FairSync: SQL, or a formula of Qdrant."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fairsync.errors import InvalidInputError
from fairsync.search.engines.qdrant.requests import path_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairsync.catalog.attributes import AttributeLabel


def sql_prices(prices: Mapping[AttributeLabel, float], column: str) -> str:
    """Return an SQL expression for the price of a row of Postgres, to be added to a distance.

    A label that is left out has the price infinity, and other labels the price 0. Labels may hold anything: they are
    written as literals, whatever the server's setting of standard_conforming_strings.

    Parameters
    ----------
    prices
        The price of each label, such as ``retriever.report().prices``.
    column
        The column that holds the labels.

    Examples
    --------
    >>> print(sql_prices({"toys": -0.25, "o'hara": math.inf}, "category"))
    CASE "category" WHEN 'toys' THEN -0.25 WHEN 'o''hara' THEN 'Infinity'::float8 ELSE 0 END
    """
    name = '"' + column.replace('"', '""') + '"'
    parts = [f"WHEN {_literal(label)} THEN {_number(label, price)}" for label, price in prices.items()]
    return f"CASE {name} {' '.join(parts)} ELSE 0 END" if parts else "0"


def qdrant_prices(prices: Mapping[AttributeLabel, float], key: str) -> dict[str, Any]:
    """Return the ``query`` and the ``filter`` of a search of Qdrant under prices, as its REST API takes them.

    The query ranks what a prefetch has fetched. Put the filter into the prefetch, and fetch many more items than are
    needed: an item that was not fetched cannot be lifted.

    Parameters
    ----------
    prices
        The price of each label, such as ``retriever.report().prices``. Infinity leaves a label out.
    key
        The payload field that holds the labels.

    Examples
    --------
    >>> made = qdrant_prices({"toys": -0.25, "books": 0.0, "wine": math.inf}, "category")
    >>> made["query"]
    {'formula': {'sum': ['$score', {'mult': [0.25, {'key': 'category', 'match': {'any': ['toys']}}]}]}}
    >>> made["filter"]
    {'must_not': [{'key': 'category', 'match': {'any': ['wine']}}]}
    """
    path = path_of(key)
    by_price: dict[float, list[AttributeLabel]] = {}
    for label, price in prices.items():
        if isinstance(label, bool):
            raise InvalidInputError(f"the label {label!r} is a bool, which no list of labels of Qdrant can hold.")
        _number(label, price)  # refuses what is no price
        by_price.setdefault(float(price), []).append(label)
    masked = by_price.pop(math.inf, [])
    terms = [{"mult": [-price, {"key": path, "match": {"any": labels}}]} for price, labels in by_price.items() if price]
    filtered = {"must_not": [{"key": path, "match": {"any": masked}}]} if masked else {}
    return {"query": {"formula": {"sum": ["$score", *terms]}}, "filter": filtered}


def _literal(label: AttributeLabel) -> str:
    if isinstance(label, bool):
        return "TRUE" if label else "FALSE"
    if isinstance(label, int):
        return str(label)
    if "\0" in label:
        raise InvalidInputError(f"the label {label!r:.80} has a NUL character, which Postgres cannot hold.")
    quoted = label.replace("'", "''")
    return "E'" + quoted.replace("\\", "\\\\") + "'" if "\\" in label else f"'{quoted}'"


def _number(label: AttributeLabel, price: float) -> str:
    if math.isnan(price) or price == -math.inf:
        raise InvalidInputError(f"the price of {label!r:.80} is {price}: use finite numbers, or infinity.")
    return "'Infinity'::float8" if price == math.inf else repr(float(price))
