"""Prices as tensors of a query of Vespa."""

from __future__ import annotations

import json
import re
from itertools import product
from typing import TYPE_CHECKING, Any

from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from fairsync.catalog.attributes import AttributeLabel
    from fairsync.catalog.conditions import Condition
    from fairsync.search.engines.price_formulas.price_terms import Conditions, PriceTerms

_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def vespa_prices(terms: PriceTerms) -> dict[str, Any]:
    """Return tensors for the ``input`` of a query, their ``types``, the rank ``expression``, and a ``filter`` in YQL.

    There is a tensor for each set of attributes that prices speak of, with a cell for each combination of labels. The
    expression goes into the rank profile and changes only when other attributes are priced. Fields are attributes of
    strings or integers; bools are the strings true and false.
    """
    tensors: dict[tuple[str, ...], dict[tuple[str, ...], float]] = {}
    for conditions, price in terms:
        fields = tuple(_field(terms, one.attribute) for one in conditions)
        cells = tensors.setdefault(fields, {})
        for labels in product(*(_labels(terms, one) for one in conditions)):
            cells[labels] = cells.get(labels, 0.0) - price
    inputs, types, parts = {}, {}, []
    for fields, cells in tensors.items():
        name = f"query(price_{'_'.join(fields)})"
        inputs[name] = {
            "cells": [
                {"address": dict(zip(fields, labels, strict=True)), "value": bonus} for labels, bonus in cells.items()
            ]
        }
        types[name] = f"tensor<double>({','.join(f'{one}{{}}' for one in fields)})"
        factors = [name, *(f"tensorFromLabels(attribute({one}), {one})" for one in fields)]
        parts.append(f"sum({' * '.join(factors)})")
    masked = [f"!({_yql(terms, conditions)})" for conditions in terms.masked]
    return {
        "input": inputs,
        "types": types,
        "expression": " + ".join(parts) or "0",
        "filter": " and ".join(masked) or "true",
    }


def _field(terms: PriceTerms, attribute: str) -> str:
    name = terms.column(attribute)
    if not _FIELD.fullmatch(name):
        raise InvalidInputError(f"Vespa has fields of letters, digits and _ only, not {name!r}: give it in columns.")
    return name


def _labels(terms: PriceTerms, condition: Condition) -> list[str]:
    """Return the labels of a condition as those of a tensor."""
    several = terms.has_lists(condition.attribute) and len(condition.values) > 1
    if not condition.values or condition.negated or several or isinstance(condition.values[0], float):
        raise InvalidInputError(
            f"a tensor of Vespa can price labels, not the condition on {condition.attribute!r}: it is a range, a number"
            " with a fraction, 'not', or one of several labels of an item."
        )
    return [_label(one) for one in condition.values]


def _label(value: AttributeLabel | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _yql(terms: PriceTerms, conditions: Conditions) -> str:
    parts = []
    for one in conditions:
        field, words = _field(terms, one.attribute), _labels(terms, one)
        is_number = isinstance(one.values[0], int) and not isinstance(one.values[0], bool)
        parts.append(f"{field} in ({', '.join(words if is_number else map(_quoted, words))})")
    return " and ".join(parts)


def _quoted(text: str) -> str:
    """Return a string of YQL, whose escapes are those of JSON."""
    return json.dumps(text, ensure_ascii=False)
