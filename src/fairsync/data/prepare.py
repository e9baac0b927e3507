"""Prepare a log as in the paper: frequent users and items only, small groups merged, sequences in order of time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairsync.catalog.series import column_of
from fairsync.data.dataset import Dataset, Facts
from fairsync.errors import InvalidInputError
from fairsync.extras import polars as pl
from fairsync.inputs import check_positive
from fairsync.ragged import Ragged

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.data.log import Log, Part

INFREQUENT = "infrequent group"
"""The label of the group that small groups are merged into, as in the paper."""


def prepare(log: Log, name: str, *, least_interactions: int = 5, least_items: int = 50, history: int = 20) -> Dataset:
    """Make a data set from a log.

    Parameters
    ----------
    log
        A log from one of the readers. It is consumed, so that a long log is not held in memory twice.
    name
        Name of the data set.
    least_interactions
        Minimum number of interactions of users and items. Others are removed repeatedly until all remaining users and
        items have that many.
    least_items
        Groups with fewer remaining items are merged into one, labelled :data:`INFREQUENT`. The paper uses 50 for
        Amazon and 200 for Taobao.
    history
        Number of items of a history that models should use: 20 for Amazon, 50 for Taobao. It is only recorded.

    Returns
    -------
    Dataset
        The data set, with users and items sorted by id. The interactions of a user are in order of time, and in the
        order of the log if times are equal.

    Examples
    --------
    >>> from fairsync.data.log import Log, Part
    >>> rows = Part(np.array([0, 0, 1, 1], np.int32), np.array([1, 0, 0, 2], np.int32), np.array([9, 3, 5, 6]))
    >>> log = Log([rows], pl.Series(["b", "a"]), pl.Series(["x", "y", "z"]), pl.Series(["g", "g", "h"]), raw_rows=4)
    >>> data = prepare(log, "tiny", least_interactions=1, least_items=2)
    >>> data.user_ids.tolist(), [data.item_ids[one].tolist() for one in data.sequences]
    (['a', 'b'], [['x', 'z'], ['x', 'y']])
    >>> data.item_groups.tolist(), data.facts.groups
    (['g', 'g', 'infrequent group'], 2)
    """
    least_interactions = check_positive(least_interactions, "least_interactions")
    least_items = check_positive(least_items, "least_items")
    history = check_positive(history, "history")
    good_rows = sum(len(part.users) for part in log.parts)
    parts = keep_frequent(log.parts, len(log.user_ids), len(log.item_ids), least_interactions)
    log.parts = []
    n_rows = sum(len(part.users) for part in parts)
    if not n_rows:
        raise InvalidInputError(
            f"Nothing is left: no users and items have {least_interactions} interactions with each other"
            f" ({good_rows:,} rows were good). Choose a smaller least_interactions (--least-interactions)."
        )
    user_ids, user_rows, _ = _order([part.users for part in parts], log.user_ids)
    item_ids, item_rows, items = _order([part.items for part in parts], log.item_ids)
    groups = merge_infrequent(_to_text(log.item_groups.gather(items)), least_items)
    sequences, times = _sort(parts, user_rows, item_rows, len(user_ids))
    if log.units_per_second > 1:
        times //= log.units_per_second
    left_out = dict(log.left_out)
    if n_rows < good_rows:
        left_out["too few interactions"] = good_rows - n_rows
    facts = Facts(
        name=name,
        users=len(user_ids),
        items=len(item_ids),
        groups=len(np.unique(groups)),
        interactions=n_rows,
        raw_rows=log.raw_rows,
        bad_rows=log.bad_rows,
        first_bad=log.first_bad,
        left_out=left_out,
        least_interactions=least_interactions,
        least_items=least_items,
        history=history,
        has_clock=log.has_clock,
        group_attribute=log.group_attribute,
        bad_items=log.bad_items,
        first_bad_items=log.first_bad_items,
        notes=log.notes,
    )
    attributes = {name: column_of(name, values.gather(items)) for name, values in log.attributes.items()}
    return Dataset(facts, user_ids, item_ids, groups, sequences, times, attributes)


def keep_frequent(parts: list[Part], n_users: int, n_items: int, least: int) -> list[Part]:
    """Remove users and items with fewer than ``least`` rows until none are left.

    The list is modified in place, so that each old part can be freed as soon as its successor exists.

    Examples
    --------
    Removing item 2 removes a row of user 0, who then has too few.

    >>> from fairsync.data.log import Part
    >>> users, items = np.array([0, 0, 1, 1, 2, 2], np.int32), np.array([0, 2, 0, 1, 0, 1], np.int32)
    >>> [part] = keep_frequent([Part(users, items, np.arange(6))], 3, 3, least=2)
    >>> part.users.tolist(), part.items.tolist()
    ([1, 1, 2, 2], [0, 1, 0, 1])
    """
    while True:
        frequent_users = _count([part.users for part in parts], n_users) >= least
        frequent_items = _count([part.items for part in parts], n_items) >= least
        changed = False
        for place, part in enumerate(parts):
            kept = frequent_users[part.users] & frequent_items[part.items]
            parts[place] = part.take(kept)
            changed |= parts[place] is not part
        if not changed:
            return parts


def merge_infrequent(groups: NDArray[np.str_], least: int) -> NDArray[np.str_]:
    """Return the group of each item, with groups of fewer than ``least`` items merged into one.

    Examples
    --------
    >>> merge_infrequent(np.array(["a", "b", "a", "c"]), least=2).tolist()
    ['a', 'infrequent group', 'a', 'infrequent group']
    """
    labels, rows, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    if (sizes >= least).all():
        return groups
    return np.where(sizes < least, INFREQUENT, labels)[rows]


def _count(columns: list[NDArray[np.int32]], n: int) -> NDArray[np.int64]:
    """Return (n,) the number of occurrences of each integer below ``n``."""
    counts = np.zeros(n, dtype=np.int64)
    for column in columns:
        np.add.at(counts, column, 1)
    return counts


def _order(
    columns: list[NDArray[np.int32]], ids: pl.Series
) -> tuple[NDArray[np.str_], NDArray[np.int32], NDArray[np.int64]]:
    """Sort the ids that occur. Return them, the new row of each old code, and the old code of each new row."""
    present = np.flatnonzero(_count(columns, len(ids)))
    texts = _to_text(ids.gather(present))
    order = np.argsort(texts, kind="stable")
    rows = np.full(len(ids), -1, dtype=np.int32)
    rows[present[order]] = np.arange(len(order), dtype=np.int32)
    return texts[order], rows, present[order]


def _sort(
    parts: list[Part], user_rows: NDArray[np.int32], item_rows: NDArray[np.int32], n_users: int
) -> tuple[Ragged, NDArray[np.int64]]:
    """Sort the rows by user and time, in the order of the log if both are equal. ``parts`` is emptied."""
    users = np.concatenate([user_rows[part.users] for part in parts])
    items = np.concatenate([item_rows[part.items] for part in parts])
    times = np.concatenate([part.times for part in parts])
    parts.clear()
    order = np.lexsort((times, users))
    offsets = np.concatenate([[0], np.cumsum(_count([users], n_users))])
    del users
    return Ragged(items[order], offsets), times[order]


def _to_text(column: pl.Series) -> NDArray[np.str_]:
    return column.cast(pl.String).to_numpy().astype(str)
