"""The rules of a call: what its requests exclude, and their conditions. Checked before they are put into a batch."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.catalog.conditions import parse_conditions
from fairsync.catalog.names import are_words
from fairsync.errors import InvalidInputError
from fairsync.service.server.problems import invalid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog, Where
    from fairsync.catalog.groups import Label
    from fairsync.service.schema import RetrieveRequest
    from fairsync.service.settings import HttpSettings

# Values that one condition may name.
_MOST_VALUES = 1_000


def check_rules(asked: RetrieveRequest, n: int, limits: HttpSettings, catalog: Catalog) -> None:
    """Refuse rules (422) that are malformed, exceed the limits of one call, or name an attribute that is not there.

    A condition that no item meets is no mistake: its request gets an empty list.

    Parameters
    ----------
    asked
        The call.
    n
        The number of its requests.
    limits, catalog
        The limits, and the items.
    """
    if asked.exclude is not None:
        _check_exclude(asked.exclude, n, limits, catalog)
    if isinstance(asked.where, list):
        if len(asked.where) != n:
            raise invalid(f"'where' must be one condition, or {n}, one per user; got {len(asked.where)}.")
        for i, where in enumerate(asked.where):
            if where is not None:
                _check_where(where, f"where[{i}]", catalog)
    elif asked.where is not None:
        _check_where(asked.where, "where", catalog)


def conditions_of(asked: RetrieveRequest, n: int) -> Sequence[Where | None] | None:
    """Return one condition per request; None if there are none."""
    return [asked.where] * n if isinstance(asked.where, dict) else asked.where


def join_lists(lists: Sequence[Sequence[Label]] | None, more: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return the ids of both for each request: those that a caller excludes, and those of its history.

    Examples
    --------
    >>> [one.tolist() for one in join_lists([["a"], []], [np.array(["b", "a"]), np.array([], dtype="U1")])]
    [['b', 'a', 'a'], []]
    """
    if lists is None:
        return list(more)
    return [
        np.concatenate([history, np.array(ids, dtype=None if ids else history.dtype)])
        for ids, history in zip(lists, more, strict=True)
    ]


def _check_exclude(exclude: Sequence[Sequence[Label]], n: int, limits: HttpSettings, catalog: Catalog) -> None:
    if len(exclude) != n:
        raise invalid(f"'exclude' must be {n} lists of ids, one per user; got {len(exclude)}.")
    lengths = [len(ids) for ids in exclude]
    if max(lengths, default=0) > limits.max_exclude:
        raise invalid(
            f"A request may exclude {limits.max_exclude:,} items, got {max(lengths):,}.",
            "Exclude the latest ones only, or state it as a condition in 'where'.",
        )
    if sum(lengths) > limits.max_exclude_per_call:
        raise invalid(
            f"The requests of a call may exclude {limits.max_exclude_per_call:,} items in all, got {sum(lengths):,}.",
            "Send the users in several calls.",
        )
    expected: type[Any] = str if are_words(catalog.ids[:1]) else int
    if not set(map(type, chain.from_iterable(exclude))) <= {expected}:
        kinds = {str: "strings", int: "integers"}
        raise invalid(f"'exclude' must hold {kinds[expected]}, as the ids of the catalog are.")


def _check_where(where: Where, place: str, catalog: Catalog) -> None:
    try:
        conditions = parse_conditions(where, catalog.condition_columns)
    except InvalidInputError as error:
        raise invalid(f"{place}: {error}") from None
    if any(len(one.values) > _MOST_VALUES for one in conditions):
        raise invalid(f"{place}: a condition has {_MOST_VALUES:,} values at most.")
