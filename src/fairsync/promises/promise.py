"""A promise: bounds on the exposures of a selection of items over the horizon."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.catalog.attributes import LabelColumn, ListColumn
from fairsync.catalog.conditions import no_attribute
from fairsync.errors import InvalidInputError
from fairsync.inputs import check_catalog
from fairsync.promises.selected_rows import SelectedRows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairsync.catalog import Catalog, Where

# Conditions that make sense have at most three levels: attributes, "not", and a list. What is wrong with others is said
# best by those that know the attributes, unless reading them would exhaust the stack.
_DEEPEST = 8
_FIELDS = ("where", "at_least", "at_most", "at_most_per_list", "name", "each", "priority", "max_price")


EVERY_SLOT = "every slot"
"""The name of a promise for all items and all slots, which is added where lists can be filled only by a plan."""


@dataclass(frozen=True)
class Promise:
    """Bounds on the exposures of a selection of items over the horizon.

    Parameters
    ----------
    where
        The items: conditions on attributes that all of them meet, as in `Catalog.select`. No condition selects all.
    at_least, at_most
        Bounds on the exposures: whole numbers of exposures, or floats up to 1.0, shares of all slots of the horizon.
    at_most_per_list
        The most items of the selection in one list of candidates.
    name
        How reports call it. By default it is made of the conditions.
    each
        The attribute over whose labels this promise is one of a series; see :func:`each`. If ``where`` has no condition
        on that attribute, it is the rule of the series: it stands for one promise for each label that items have, now
        or later.
    priority
        1, 2, …: where not all promises can be kept, those with a larger number give way first.
    max_price
        The highest subsidy that is paid for ``at_least``, in units of the mean relevance of the last candidate of a
        list, so that it means the same under another model. By default there is no limit.

    Examples
    --------
    >>> Promise({"category": "toys"}, at_least=0.05, at_most=0.30)
    Promise(category=toys: at least 5 %, at most 30 %)
    >>> Promise({"provider": "acme", "new": True}, at_least=1_000).name
    'provider=acme, new=True'
    """

    where: Where
    at_least: float | None = None
    at_most: float | None = None
    at_most_per_list: int | None = None
    name: str = ""
    each: str | None = field(default=None, kw_only=True)
    priority: int = field(default=1, kw_only=True)
    max_price: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not hasattr(self.where, "items"):
            raise InvalidInputError(
                f'a promise needs conditions such as {{"category": "toys"}}, got {self.where!r:.80}.'
            )
        object.__setattr__(self, "where", _plain(self.where))
        if not isinstance(self.name, str):
            raise InvalidInputError(f"the name of a promise must be a str, got {self.name!r:.80}.")
        if not self.name:
            object.__setattr__(self, "name", self._default_name)
        low, high = (
            _checked(self, value, which) for value, which in ((self.at_least, "least"), (self.at_most, "most"))
        )
        object.__setattr__(self, "at_least", low)
        object.__setattr__(self, "at_most", high)
        limit = self.at_most_per_list
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, Integral) or limit < 0):
            raise InvalidInputError(
                f"{self.name}: at_most_per_list must be a number of items, 0 or more, got {limit!r}."
            )
        if limit is not None:
            object.__setattr__(self, "at_most_per_list", int(limit))
        if low is None and high is None and limit is None:
            raise InvalidInputError(f"{self.name}: give at_least, at_most or at_most_per_list.")
        object.__setattr__(self, "priority", _checked_priority(self))
        object.__setattr__(self, "max_price", _checked_max_price(self))
        if low is not None and high is not None and isinstance(low, int) == isinstance(high, int) and low > high:
            raise InvalidInputError(f"{self.name}: at_least is {low}, more than at_most, {high}.")

    @property
    def has_default_name(self) -> bool:
        """Whether the name is made of the conditions."""
        return self.name == self._default_name

    @property
    def is_rule(self) -> bool:
        """Whether it stands for a promise for each label, and promises nothing itself.

        Examples
        --------
        >>> Promise({"new": True}, at_least=50, each="id").is_rule, Promise({"id": 7}, at_least=50, each="id").is_rule
        (True, False)
        """
        return self.each is not None and self.each not in self.where

    @property
    def _default_name(self) -> str:
        if not self.is_rule:
            return _name_of(self.where)
        return f"each {self.each}" + (f", {_name_of(self.where)}" if self.where else "")

    def floor(self, slots: int) -> int:
        """Return the floor for a number of slots.

        Examples
        --------
        >>> Promise({}, at_least=0.05).floor(1_010), Promise({}, at_most=7).floor(1_010)
        (51, 0)
        """
        if self.at_least is None:
            return 0
        return self.at_least if isinstance(self.at_least, int) else math.ceil(_exact(self.at_least) * slots)

    def cap(self, slots: int) -> int | None:
        """Return the cap for a number of slots; None if there is no limit.

        Examples
        --------
        >>> Promise({}, at_most=0.3).cap(1_010), Promise({}, at_least=7).cap(1_010)
        (303, None)
        """
        if self.at_most is None:
            return None
        return self.at_most if isinstance(self.at_most, int) else math.floor(_exact(self.at_most) * slots)

    def to_dict(self) -> dict[str, Any]:
        """Return the promise as values for JSON."""
        return {name: getattr(self, name) for name in _FIELDS}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Promise:
        """Return the promise that `to_dict` has written.

        Examples
        --------
        >>> promise = Promise({"provider": "acme"}, at_least=20, at_most=0.5)
        >>> Promise.from_dict(promise.to_dict()) == promise
        True
        """
        return cls(**values)

    def __repr__(self) -> str:
        bounds = [
            f"{word} {_text(value)}"
            for word, value in (("at least", self.at_least), ("at most", self.at_most))
            if value is not None
        ]
        if self.at_most_per_list is not None:
            bounds.append(f"at most {self.at_most_per_list} per list")
        if self.priority != 1:
            bounds.append(f"priority {self.priority}")
        if self.max_price is not None:
            bounds.append(f"max price {self.max_price:g}")
        return f"Promise({self.name}: {', '.join(bounds)})"


def each(
    catalog: Catalog,
    attribute: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    at_most_per_list: int | None = None,
    where: Where | None = None,
    priority: int = 1,
    max_price: float | None = None,
) -> list[Promise]:
    """Return one promise for each label of an attribute, or each item. Labels and items that come later get one, too.

    Parameters
    ----------
    catalog
        The items.
    attribute
        An attribute with labels, one or several per item; or ``"id"``, for one promise for each item. The promise of an
        item ends when the item is removed, or no longer meets the conditions.
    at_least, at_most, at_most_per_list
        As for :class:`Promise`, for every label.
    where
        Further conditions on the items. If no item meets them yet, the list holds the rule alone, so that later items
        get their promise.
    priority, max_price
        As for :class:`Promise`, for every label.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> each(Catalog(np.eye(3), {"provider": ["acme", "best", "acme"]}), "provider", at_least=20)
    [Promise(provider=acme: at least 20), Promise(provider=best: at least 20)]

    Every new item gets its first 50 exposures.

    >>> catalog = Catalog(np.eye(3), {"category": ["a", "b", "b"], "new": [True, False, True]}, ids=["x", "y", "z"])
    >>> each(catalog, "id", at_least=50, where={"new": True})
    [Promise(id=x, new=True: at least 50), Promise(id=z, new=True: at least 50)]

    No item is new yet: the rule makes promises to those that come later.

    >>> catalog = Catalog(np.eye(2), {"category": ["a", "b"], "new": [False, False]})
    >>> each(catalog, "id", at_least=50, where={"new": True})
    [Promise(each id, new=True: at least 50)]
    """
    rule = Promise(
        where or {}, at_least, at_most, at_most_per_list, each=attribute, priority=priority, max_price=max_price
    )
    rows = SelectedRows(check_catalog(catalog))
    found = promises_of_labels(rule, catalog, rows)
    rows.check_labels(rule.where)
    return found or [rule]


def promises_of_labels(rule: Promise, catalog: Catalog, rows: SelectedRows | None = None) -> list[Promise]:
    """Return one promise for each label of an attribute, or each item, that there is now; none if there is none.

    Parameters
    ----------
    rule
        What is promised for each of them: a promise with `each`.
    catalog
        The items.
    rows
        Finds items of the catalog, if there is one already.
    """
    attribute, rows = str(rule.each), SelectedRows(catalog) if rows is None else rows
    column = catalog.attributes.get(attribute)
    if column is None and not rows.speaks_of_ids(attribute):
        raise no_attribute(attribute, catalog.attributes)
    if column is not None and not isinstance(column, LabelColumn | ListColumn):
        raise InvalidInputError(f"{attribute!r} has numbers, not labels: a promise for each of them makes no sense.")
    return [
        replace(rule, where={attribute: label, **rule.where}, name="")
        for label in rows.labels_in_use(attribute, rule.where)
    ]


def _plain(value: Any, depth: int = 0) -> Any:
    """Return conditions as JSON can hold them, with lists in place of sets and arrays."""
    if depth > _DEEPEST:
        raise InvalidInputError(
            "the conditions of a promise are nested too deeply: a condition is a value, a list of values,"
            ' {"not": value or list}, or a range {"at_least": number, "at_most": number}.'
        )
    if hasattr(value, "items"):
        return {name: _plain(one, depth + 1) for name, one in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist(), depth) if value.ndim else value.item()
    if isinstance(value, set | frozenset):
        return sorted((_plain(one, depth + 1) for one in value), key=str)
    return [_plain(one, depth + 1) for one in value] if isinstance(value, list | tuple) else value


def _name_of(where: Mapping[str, Any]) -> str:
    def text(value: Any) -> str:
        if isinstance(value, list | tuple | set):
            return " or ".join(map(str, value))
        if isinstance(value, dict):
            return " and ".join(f"{word.replace('_', ' ')} {text(one)}" for word, one in value.items())
        return str(value)

    return ", ".join(f"{name}={text(value)}" for name, value in where.items()) or "all items"


def _checked(promise: Promise, value: object, which: str) -> int | float | None:
    """Return a bound as a plain number, or say what is wrong with it."""
    if value is None:
        return None
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real) or not math.isfinite(value) or value < 0:
        raise InvalidInputError(
            f"{promise.name}: at_{which} must be a number of exposures, or a share of all slots, got {value!r}."
        )
    if isinstance(value, Integral):
        if int(value) >= 2**53:
            raise InvalidInputError(f"{promise.name}: at_{which} is {value}: more exposures than can be counted.")
        return int(value)
    if float(value) > 1:
        raise InvalidInputError(
            f"{promise.name}: at_{which} is {float(value)!r}: a float is a share of all slots, at most 1.0; a number of"
            " exposures is an int."
        )
    return float(str(value)) if isinstance(value, np.floating) else float(value)  # float32 0.1 is a tenth, too


def _checked_priority(promise: Promise) -> int:
    value = promise.priority
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral) or value < 1:
        raise InvalidInputError(f"{promise.name}: priority must be 1 (first), 2, …, got {value!r}.")
    return int(value)


def _checked_max_price(promise: Promise) -> float | None:
    value = promise.max_price
    if value is None:
        return None
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real) or not math.isfinite(value) or value <= 0:
        raise InvalidInputError(
            f"{promise.name}: max_price must be a number above 0, in units of the mean relevance of the last candidate,"
            f" got {value!r}."
        )
    if promise.at_least is None:
        raise InvalidInputError(f"{promise.name}: max_price limits what at_least may cost: give at_least, too.")
    return float(value)


def _exact(share: float) -> Fraction:
    """Return the number that was meant by a float: 0.05 is a twentieth, not the nearest sum of powers of two."""
    return Fraction(str(share))


def _text(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{100 * value:g} %"
