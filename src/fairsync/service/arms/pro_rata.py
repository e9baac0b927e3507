"""Promises pro rata: each arm gets its share of every number, and the parts add up to the whole."""

from __future__ import annotations

import math
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairsync.service.schema import PromiseRecord

# Multiples of it, modulo 1, are spread evenly, however many there are.
_GOLDEN = (math.sqrt(5) - 1) / 2
_FLOORS, _CAPS = ("at_least", "floor"), ("at_most",)


def split_whole(total: int, shares: Sequence[float], turn: int = 0) -> list[int]:
    """Return whole numbers that add up to a total, each within one of its share (systematic rounding).

    If the same arm always got what cannot be divided, it would have more of many small promises, and a test of two
    equal arms would find that. Turns change which arm gets it, each according to its share.

    Parameters
    ----------
    total
        The whole.
    shares
        The share of each arm.
    turn
        Number of the split.

    Examples
    --------
    >>> split_whole(10, [0.5, 0.25, 0.25]), [split_whole(1, [0.5, 0.5], turn) for turn in range(4)]
    ([5, 3, 2], [[1, 0], [0, 1], [1, 0], [0, 1]])
    """
    start = turn * _GOLDEN % 1.0
    whole = sum(shares)
    ends = [math.ceil(round(total * end / whole - start, 6)) for end in accumulate(shares, initial=0.0)]
    return [end - begin for begin, end in pairwise([*ends[:-1], total])]


def split_promise(promise: PromiseRecord, shares: Sequence[float], turn: int = 0) -> list[PromiseRecord | None]:
    """Return the part of a promise that each arm gets; None for an arm to which nothing is left of it.

    Numbers of exposures are split. Shares of all slots, limits per list, priorities and prices hold in each arm as they
    are: if every arm gives a selection 5 % of its slots, so do all arms together.

    Parameters
    ----------
    promise
        The promise for all users.
    shares
        The share of each arm.
    turn
        Number of the promise; see `split_whole`.
    """
    changes: list[dict[str, Any]] = [{} for _ in shares]
    floors = [0] * len(shares)
    for name in (*_FLOORS, *_CAPS):
        total = getattr(promise, name, None)
        if type(total) is not int:
            continue
        if name in _FLOORS:
            parts = floors = split_whole(total, shares, turn)
        else:  # what the cap allows beyond the floor is split, so that no arm's cap is below its floor
            more = split_whole(max(total - sum(floors), 0), shares, turn)
            parts = [floor + one for floor, one in zip(floors, more, strict=True)]
        for change, part in zip(changes, parts, strict=True):
            change[name] = None if part == 0 and name in _FLOORS else part
    return [None if _is_empty(promise, change) else msgspec.structs.replace(promise, **change) for change in changes]


def _is_empty(promise: PromiseRecord, change: dict[str, Any]) -> bool:
    bounds = (*_FLOORS, *_CAPS, "at_most_per_list")
    return all(change.get(name, getattr(promise, name, None)) is None for name in bounds)
