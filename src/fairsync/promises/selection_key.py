"""Keys of selections: one text for all ways to write the same conditions, by which exposures are counted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairsync.catalog import Where


def selection_key(where: Where) -> str:
    """Return the text by which a selection is known: the same for the same conditions, however they are written.

    Examples
    --------
    >>> selection_key({"category": ["toys"], "new": True}) == selection_key({"new": True, "category": "toys"})
    True
    >>> selection_key({"tags": ["b", "a", "b"], "price": {"at_most": 9}})
    '{"price": {"at_most": 9}, "tags": ["a", "b"]}'
    """
    return json.dumps(_canonical(where), sort_keys=True, ensure_ascii=False)


def where_of_key(key: str) -> dict[str, Any]:
    """Return the conditions of a selection.

    Examples
    --------
    >>> where_of_key(selection_key({"category": "toys"}))
    {'category': 'toys'}
    """
    found: dict[str, Any] = json.loads(key)
    return found


def _canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _canonical(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        texts = sorted({json.dumps(_canonical(one), ensure_ascii=False) for one in value})
        return json.loads(texts[0]) if len(texts) == 1 else [json.loads(text) for text in texts]
    return value.item() if hasattr(value, "item") else value
