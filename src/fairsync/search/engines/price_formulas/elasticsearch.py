"""Prices as functions of a function_score query of Elasticsearch and OpenSearch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairsync.search.engines.written_conditions import write_conditions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairsync.catalog.attributes import AttributeLabel
    from fairsync.search.engines.price_formulas.price_terms import Conditions, PriceTerms


def elasticsearch_prices(terms: PriceTerms) -> dict[str, Any]:
    """Return the members of ``function_score`` beside the ``query``, and a ``filter`` for that query.

    Scores must not be negative, and weights neither: a positive price is a weight for all other items, which ranks in
    the same way. The function without a filter is met by every item, because a document that meets none would get 1.
    """
    writer = _Queries(terms)

    def clause(conditions: Conditions) -> dict[str, Any]:
        written = write_conditions(conditions, writer)
        return written[0] if len(written) == 1 else {"bool": {"filter": written}}

    functions: list[dict[str, Any]] = [{"weight": 1.0}]
    for conditions, price in terms:
        one = clause(conditions)
        functions.append({"filter": one if price < 0 else writer.negate(one), "weight": abs(price)})
    masked = {"bool": {"must_not": [clause(one) for one in terms.masked]}} if terms.masked else {"match_all": {}}
    return {"function_score": {"functions": functions, "score_mode": "sum", "boost_mode": "sum"}, "filter": masked}


class _Queries:
    """Writes conditions as queries of Elasticsearch; see `ConditionWriter`."""

    def __init__(self, terms: PriceTerms) -> None:
        self._terms = terms

    def one_of(self, attribute: str, values: Sequence[AttributeLabel | float]) -> dict[str, Any]:
        return {"terms": {self._terms.column(attribute): list(values)}}

    def within(self, attribute: str, low: float | None, high: float | None) -> dict[str, Any]:
        bounds = {name: one for name, one in (("gte", low), ("lte", high)) if one is not None}
        field = self._terms.column(attribute)
        return {"range": {field: bounds}} if bounds else {"exists": {"field": field}}

    def negate(self, clause: dict[str, Any]) -> dict[str, Any]:
        return {"bool": {"must_not": [clause]}}
