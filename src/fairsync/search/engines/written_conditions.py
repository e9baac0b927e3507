"""Conditions in the language of an engine: one traversal for all, and a writer for each."""

import math
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from fairsync.catalog.attributes import AttributeLabel
from fairsync.catalog.conditions import Condition

Clause = TypeVar("Clause")


class ConditionWriter(Protocol[Clause]):
    """Writes conditions on one attribute: SQL, a filter object, an expression."""

    def one_of(self, attribute: str, values: Sequence[AttributeLabel | float]) -> Clause:
        """Return a clause that items with one of these values meet; for lists of labels, with at least one of them.

        There may be no value left: then no item meets it.
        """
        ...

    def within(self, attribute: str, low: float | None, high: float | None) -> Clause:
        """Return a clause that items with a number in this range meet, bounds included; None for no bound."""
        ...

    def negate(self, clause: Clause) -> Clause:
        """Return a clause that exactly the other items meet, also those without a value."""
        ...


def write_conditions(conditions: Iterable[Condition], writer: ConditionWriter[Clause]) -> list[Clause]:
    """Return a clause for each condition: an item must meet all of them.

    Parameters
    ----------
    conditions
        Conditions in their standard form; see `fairsync.catalog.conditions.parse_conditions`.
    writer
        Writes a condition in the language of the engine.

    Examples
    --------
    >>> class Words:
    ...     def one_of(self, attribute, values):
    ...         return f"{attribute} in {list(values)}"
    ...     def within(self, attribute, low, high):
    ...         return f"{attribute} from {low} to {high}"
    ...     def negate(self, clause):
    ...         return f"not ({clause})"
    >>> write_conditions([Condition("size", ("L",), negated=True), Condition("price", high=5.0)], Words())
    ["not (size in ['L'])", 'price from None to 5.0']
    """
    return [_write(one, writer) for one in conditions]


def can_be_held(value: AttributeLabel | float) -> bool:
    """Return whether an item can have this value: others are within no engine's types, and would be refused."""
    if isinstance(value, str):
        return "\0" not in value
    return -(2**63) <= value < 2**63 if isinstance(value, int) else math.isfinite(value)


def _write(condition: Condition, writer: ConditionWriter[Clause]) -> Clause:
    if not condition.values:
        low, high = condition.low, condition.high
        return writer.within(condition.attribute, None if low == -math.inf else low, None if high == math.inf else high)
    clause = writer.one_of(condition.attribute, [value for value in condition.values if can_be_held(value)])
    return writer.negate(clause) if condition.negated else clause
