"""Prices of selections as terms: conditions of the catalog, and what is subtracted from the scores of their items."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from fairsync.catalog.attributes import LabelColumn, ListColumn
from fairsync.catalog.conditions import Condition, parse_conditions
from fairsync.errors import InvalidInputError
from fairsync.search.engines.written_conditions import can_be_held

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fairsync.catalog import Where
    from fairsync.catalog.attributes import Column

Conditions: TypeAlias = tuple[Condition, ...]
"""Conditions that an item must meet all; none of them for all items."""


@dataclass(frozen=True)
class PricedSelection:
    """The price of all items that meet some conditions.

    Attributes
    ----------
    where : dict
        The conditions, as in :class:`fairsync.Promise`.
    price : float
        Subtracted from their relevance: negative for a subsidy, infinity to leave them out.
    """

    where: Where
    price: float


@dataclass(frozen=True)
class PriceTerms:
    """The prices of selections, in a form that is easy to write.

    Attributes
    ----------
    alternatives : list of list of pairs
        Conditions and their price. An item meets at most one of the conditions of an inner list, and its price is the
        sum over all lists. No price is 0.
    masked : list of tuple of Condition
        Conditions of items that are left out.
    attributes : dict
        The attributes of the catalog.
    """

    alternatives: list[list[tuple[Conditions, float]]]
    masked: list[Conditions]
    attributes: Mapping[str, Column]
    _columns: Mapping[str, str]

    @classmethod
    def of(
        cls,
        prices: Sequence[PricedSelection],
        attributes: Mapping[str, Column],
        columns: Mapping[str, str],
        scale: float,
    ) -> PriceTerms:
        """Return the terms; see `fairsync.search.engines.price_formulas.write_prices`."""
        if not (math.isfinite(scale) and scale > 0):
            raise InvalidInputError(f"scale must be a positive number, got {scale}.")
        unknown = [name for name in columns if name not in attributes]
        if unknown:
            raise InvalidInputError(f"there is no attribute {unknown[0]!r}. There are {', '.join(attributes)}.")
        by_label: dict[str, dict[object, float]] = {}
        others: list[list[tuple[Conditions, float]]] = []
        masked: list[Conditions] = []
        for one in prices:
            if math.isnan(one.price) or one.price == -math.inf:
                raise InvalidInputError(f"the price of {dict(one.where)!r:.80} is {one.price}: use finite numbers.")
            conditions = _possible(parse_conditions(one.where, attributes))
            if not conditions or not one.price:  # the same price for all items changes no order
                continue
            first = conditions[0]
            has_one_label = isinstance(attributes[first.attribute], LabelColumn)
            if one.price == math.inf:
                masked.append(conditions)
            elif len(conditions) == 1 and first.values and not first.negated and has_one_label:
                labels = by_label.setdefault(first.attribute, {})
                for label in first.values:
                    labels[label] = labels.get(label, 0.0) + scale * one.price
            else:
                others.append([(conditions, scale * one.price)])
        alternatives = [_by_price(attribute, labels) for attribute, labels in by_label.items()]
        return cls([one for one in alternatives if one] + others, masked, attributes, columns)

    def __iter__(self) -> Iterator[tuple[Conditions, float]]:
        return (term for some in self.alternatives for term in some)

    def column(self, attribute: str) -> str:
        """Return the name that an attribute has in the engine."""
        return self._columns.get(attribute, attribute)

    def has_lists(self, attribute: str) -> bool:
        """Return whether an item may have several labels in an attribute."""
        return isinstance(self.attributes[attribute], ListColumn)


def _by_price(attribute: str, labels: Mapping[object, float]) -> list[tuple[Conditions, float]]:
    """Return one condition for all labels that have the same price."""
    by_price: dict[float, list[object]] = {}
    for label, price in labels.items():
        if price:
            by_price.setdefault(price, []).append(label)
    return [((Condition(attribute, tuple(some)),), price) for price, some in by_price.items()]  # type: ignore[arg-type]


def _possible(conditions: Conditions) -> Conditions | None:
    """Return the conditions without what no engine can hold; None if no item can meet them."""
    possible = []
    for one in conditions:
        if not one.values:
            if one.low == math.inf or one.high == -math.inf or one.low > one.high:
                return None
            if max(one.low, -one.high) > -math.inf:
                possible.append(one)
            continue
        held = tuple(value for value in one.values if can_be_held(value))
        if held:
            possible.append(replace(one, values=held))
        elif not one.negated:
            return None
    return tuple(possible)
