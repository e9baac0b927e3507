"""Prices as an expression of SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairsync.search.engines.written_conditions import write_conditions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairsync.catalog.attributes import AttributeLabel
    from fairsync.search.engines.price_formulas.price_terms import Conditions, PriceTerms

_ARRAYS = {"str": "text[]", "int": "bigint[]", "bool": "boolean[]", "": "text[]"}


def sql_prices(terms: PriceTerms) -> dict[str, Any]:
    """Return the ``expression`` of the price of a row of Postgres, and a ``filter`` for ``WHERE``.

    The price is added to a distance, such as ``embedding <#> q``. Literals are right whatever the server's setting of
    standard_conforming_strings. A driver that has parameters of the form ``%s`` needs every ``%`` doubled.
    """
    writer = _SqlText(terms)

    def clause(conditions: Conditions) -> str:
        return " AND ".join(write_conditions(conditions, writer)) or "TRUE"

    cases = []
    for some in terms.alternatives:
        parts = " ".join(f"WHEN {clause(conditions)} THEN {price!r}" for conditions, price in some)
        cases.append(f"CASE {parts} ELSE 0 END")
    masked = [f"({clause(conditions)}) IS NOT TRUE" for conditions in terms.masked]
    return {"expression": " + ".join(cases) or "0", "filter": " AND ".join(masked) or "TRUE"}


class _SqlText:
    """Writes conditions as SQL without parameters; see `ConditionWriter`."""

    def __init__(self, terms: PriceTerms) -> None:
        self._terms = terms

    def one_of(self, attribute: str, values: Sequence[AttributeLabel | float]) -> str:
        column, literals = self._column(attribute), ", ".join(map(_literal, values))
        if not self._terms.has_lists(attribute):
            return f"{column} IN ({literals})"
        return f"{column} && ARRAY[{literals}]::{_ARRAYS[self._terms.attributes[attribute].kind]}"

    def within(self, attribute: str, low: float | None, high: float | None) -> str:
        column = self._column(attribute)
        bounds = [f"{column} {sign} {one!r}" for sign, one in ((">=", low), ("<=", high)) if one is not None]
        return " AND ".join(bounds) or f"{column} IS NOT NULL"

    def negate(self, clause: str) -> str:
        return f"({clause}) IS NOT TRUE"

    def _column(self, attribute: str) -> str:
        return '"' + self._terms.column(attribute).replace('"', '""') + '"'


def _literal(value: AttributeLabel | float) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if not isinstance(value, str):
        return repr(value)
    quoted = value.replace("'", "''")
    return "E'" + quoted.replace("\\", "\\\\") + "'" if "\\" in value else f"'{quoted}'"
