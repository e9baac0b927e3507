"""Promises pro rata: each arm gets its share of every number, and the parts add up to the whole."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairsync.service.schema import PromiseRecord

_FLOORS, _CAPS = ("at_least", "floor"), ("at_most",)


def split_whole(total: int, shares: Sequence[float]) -> list[int]:
    """Return whole numbers that add up to a total, each within one of its share (largest remainders).

    Examples
    --------
    >>> split_whole(10, [0.5, 0.25, 0.25]), split_whole(1, [0.5, 0.5])
    ([5, 3, 2], [1, 0])
    """
    exact = [total * share / sum(shares) for share in shares]
    parts = [math.floor(one) for one in exact]
    by_remainder = sorted(range(len(parts)), key=lambda place: (parts[place] - exact[place], place))
    for place in by_remainder[: total - sum(parts)]:
        parts[place] += 1
    return parts


def split_promise(promise: PromiseRecord, shares: Sequence[float]) -> list[PromiseRecord | None]:
    """Return the part of a promise that each arm gets; None for an arm to which nothing is left of it.

    Numbers of exposures are split. Shares of all slots, limits per list, priorities and prices hold in each arm as they
    are: if every arm gives a selection 5 % of its slots, so do all arms together.

    Parameters
    ----------
    promise
        The promise for all users.
    shares
        The share of each arm.
    """
    changes: list[dict[str, Any]] = [{} for _ in shares]
    for name in (*_FLOORS, *_CAPS):
        total = getattr(promise, name, None)
        if type(total) is not int:
            continue
        for change, part in zip(changes, split_whole(total, shares), strict=True):
            change[name] = None if part == 0 and name in _FLOORS else part
    return [None if _is_empty(promise, change) else msgspec.structs.replace(promise, **change) for change in changes]


def _is_empty(promise: PromiseRecord, change: dict[str, Any]) -> bool:
    bounds = (*_FLOORS, *_CAPS, "at_most_per_list")
    return all(change.get(name, getattr(promise, name, None)) is None for name in bounds)
