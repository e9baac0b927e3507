"""Prices as filters of Milvus with the weight of each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fairsync.errors import InvalidInputError
from fairsync.search.engines.milvus.expressions import ExpressionWriter
from fairsync.search.engines.written_conditions import write_conditions

if TYPE_CHECKING:
    from fairsync.search.engines.price_formulas.price_terms import Conditions, PriceTerms

_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def milvus_prices(terms: PriceTerms) -> dict[str, Any]:
    """Return ``boosts``, a ``filter`` and what is added to the score of its items each, and a ``filter`` for all.

    Milvus 2.6.2 and later take boosts as boost rankers with ``boost_mode`` "Sum". On any version, one search for each
    boost, and one for the ``rest``, gives lists to be merged by score plus weight: exact if no item meets two filters,
    as with promises to the labels of one attribute.
    """

    def field(attribute: str) -> str:
        name = terms.column(attribute)
        if not _FIELD.fullmatch(name):
            raise InvalidInputError(
                f"Milvus has fields of letters, digits and _ only, not {name!r}: give the name in columns."
            )
        return name

    writer = ExpressionWriter(terms.attributes, field)

    def clause(conditions: Conditions) -> str:
        return " and ".join(f"({part})" for part in write_conditions(conditions, writer))

    boosts = [{"filter": clause(conditions), "weight": -price} for conditions, price in terms]
    masked = [f"not ({clause(conditions)})" for conditions in terms.masked]
    rest = [*masked, *(f"not ({one['filter']})" for one in boosts)]
    return {"boosts": boosts, "filter": " and ".join(masked), "rest": " and ".join(rest)}
