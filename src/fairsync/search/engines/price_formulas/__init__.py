"""Prices in the language of an engine that is searched without FairSync: a formula, function score, tensor or SQL.

The price of an item is the sum of the prices of all selections that it belongs to, and it is subtracted from the item's
score. Each format is one function of the same terms (:mod:`.price_terms`).

Labels may hold anything: they are literals of the format, whatever is in them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fairsync.catalog.attributes import Column
from fairsync.errors import InvalidInputError
from fairsync.search.engines.price_formulas.elasticsearch import elasticsearch_prices
from fairsync.search.engines.price_formulas.milvus import milvus_prices
from fairsync.search.engines.price_formulas.price_terms import PricedSelection, PriceTerms
from fairsync.search.engines.price_formulas.qdrant import qdrant_prices
from fairsync.search.engines.price_formulas.sql import sql_prices
from fairsync.search.engines.price_formulas.vespa import vespa_prices

__all__ = ["FORMATS", "PricedSelection", "write_prices"]

FORMATS: Mapping[str, Callable[[PriceTerms], dict[str, Any]]] = {
    "elasticsearch": elasticsearch_prices,
    "milvus": milvus_prices,
    "qdrant": qdrant_prices,
    "sql": sql_prices,
    "vespa": vespa_prices,
}
"""The formats by name."""


def write_prices(
    form: str,
    prices: Sequence[PricedSelection],
    attributes: Mapping[str, Column],
    columns: Mapping[str, str] | None = None,
    scale: float = 1.0,
) -> dict[str, Any]:
    """Return prices in the language of an engine, as values that can be sent as JSON.

    Parameters
    ----------
    form
        ``"sql"``, ``"qdrant"``, ``"milvus"``, ``"elasticsearch"`` or ``"vespa"``.
    prices
        The price of each selection of items; infinity leaves its items out.
    attributes
        The attributes of the catalog: :attr:`fairsync.Catalog.attributes`.
    columns
        The column or field of each attribute whose name is another one in the engine.
    scale
        What one unit of relevance is in the engine's scores: 0.5 if they are (1 + inner product) / 2.

    Examples
    --------
    >>> from fairsync.catalog.attributes import make_column
    >>> attributes = {"category": make_column("category", ["toys", "wine"], 2)}
    >>> prices = [PricedSelection({"category": "toys"}, -0.25), PricedSelection({"category": "wine"}, 0.5)]
    >>> print(write_prices("sql", prices, attributes)["expression"])
    CASE WHEN "category" IN ('toys') THEN -0.25 WHEN "category" IN ('wine') THEN 0.5 ELSE 0 END
    """
    if form not in FORMATS:
        raise InvalidInputError(f"there is no format {form!r}: choose one of {', '.join(FORMATS)}.")
    return FORMATS[form](PriceTerms.of(prices, attributes, columns or {}, scale))
