"""Prices as a score-boosting formula of Qdrant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairsync.search.engines.qdrant.payload import path_of
from fairsync.search.engines.written_conditions import write_conditions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairsync.catalog.attributes import AttributeLabel
    from fairsync.search.engines.price_formulas.price_terms import Conditions, PriceTerms


def qdrant_prices(terms: PriceTerms) -> dict[str, Any]:
    """Return the ``query`` and the ``filter`` of a search under prices, as the REST API takes them.

    The query ranks what a prefetch has fetched. The filter belongs into the prefetch, which must fetch many more items
    than are needed: an item that was not fetched cannot be lifted.
    """
    writer = _Filters(terms)

    def clause(conditions: Conditions) -> dict[str, Any]:
        written = write_conditions(conditions, writer)
        return written[0] if len(written) == 1 else {"must": written}

    boosts = [{"mult": [-price, clause(conditions)]} for conditions, price in terms]
    masked = {"must_not": [clause(conditions) for conditions in terms.masked]} if terms.masked else {}
    return {"query": {"formula": {"sum": ["$score", *boosts]}}, "filter": masked}


class _Filters:
    """Writes conditions as filters of Qdrant; see `ConditionWriter`."""

    def __init__(self, terms: PriceTerms) -> None:
        self._terms = terms

    def one_of(self, attribute: str, values: Sequence[AttributeLabel | float]) -> dict[str, Any]:
        path = path_of(self._terms.column(attribute))
        if not isinstance(values[0], bool | float):
            return {"key": path, "match": {"any": list(values)}}
        each: list[dict[str, Any]] = [
            {"key": path, "match": {"value": one}} if isinstance(one, bool) else self.within(attribute, one, one)
            for one in values
            if isinstance(one, bool | float)
        ]
        return each[0] if len(each) == 1 else {"should": each}

    def within(self, attribute: str, low: float | None, high: float | None) -> dict[str, Any]:
        bounds = {name: one for name, one in (("gte", low), ("lte", high)) if one is not None}
        return {"key": path_of(self._terms.column(attribute)), "range": bounds or {"gte": -1.7976931348623157e308}}

    def negate(self, clause: dict[str, Any]) -> dict[str, Any]:
        return {"must_not": [clause]}
