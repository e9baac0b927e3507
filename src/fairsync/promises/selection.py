"""Selections by name: conditions in one standard form, the key by which exposures are counted."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fairsync.text import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairsync.catalog import Where


def selection_name(where: Where) -> str:
    """Return the canonical name of a selection: equal conditions have equal names, and the name says the conditions.

    Examples
    --------
    >>> selection_name({"new": True, "category": ["toys", "books", "toys"]})
    '{"category": ["books", "toys"], "new": true}'
    >>> selection_name({"category": ["toys"]}) == selection_name({"category": "toys"})
    True
    """
    if len(where) == 1:  # one label, as thousands of promises have it
        ((name, label),) = where.items()
        if type(label) is str or type(label) is int:
            return _name_of_label(name, label)
    return json.dumps(standard_form(where), sort_keys=True, ensure_ascii=False)


@lru_cache(maxsize=65_536)
def _name_of_label(name: str, label: str | int) -> str:
    return json.dumps({str(name): label}, ensure_ascii=False)


def standard_form(where: Where) -> dict[str, Any]:
    """Return conditions in the form in which equal ones are equal.

    Examples
    --------
    >>> standard_form({"category": {"toys", "books"}, "new": [True]})
    {'category': ['books', 'toys'], 'new': True}
    """
    form: dict[str, Any] = _standard(where)
    return form


def is_selection(label: object) -> bool:
    """Return whether a label of a ledger's count is the name of a selection, not a label of the group attribute.

    Examples
    --------
    >>> is_selection(selection_name({"new": True})), is_selection("{x,y}")
    (True, False)
    """
    return isinstance(label, str) and label.startswith("{") and label.endswith("}") and _is_canonical(label)


@lru_cache(maxsize=65_536)
def _is_canonical(name: str) -> bool:
    try:
        return selection_name(json.loads(name)) == name
    except ValueError:
        return False


def conditions_of(name: str) -> dict[str, Any]:
    """Return the conditions of a selection.

    Examples
    --------
    >>> conditions_of(selection_name({"new": True}))
    {'new': True}
    """
    conditions: dict[str, Any] = json.loads(name)
    return conditions


def counted_text(labels: Sequence[object], columns: int) -> str:
    """Return in words how many groups and selections a ledger counts.

    Parameters
    ----------
    labels
        The labels of its columns, as far as they are known.
    columns
        The number of columns.

    Examples
    --------
    >>> counted_text(["toys", "books", '{"new": true}'], 3), counted_text([], 3)
    ('2 groups and 1 selection', '3 groups')
    """
    selections = sum(map(is_selection, labels))
    groups = count(columns - selections, "group")
    return f"{groups} and {count(selections, 'selection')}" if selections else groups


def _standard(value: Any) -> Any:
    if hasattr(value, "items"):
        return {str(name): _standard(one) for name, one in value.items()}
    if hasattr(value, "tolist"):  # numpy
        value = value.tolist()
    if isinstance(value, list | tuple | set | frozenset):
        by_text = {json.dumps(_standard(one), ensure_ascii=False): _standard(one) for one in value}
        values = [by_text[text] for text in sorted(by_text)]
        return values[0] if len(values) == 1 else values
    return value
