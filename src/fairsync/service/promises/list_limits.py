"""Limits per list in the service: those that cross each other are refused before anything is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairsync.promises.list_limits import tree_of
from fairsync.promises.resolve import find_atoms

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairsync.catalog import Catalog
    from fairsync.schedule import ScheduledPromise


def check_list_limits(catalog: Catalog, asked: Iterable[ScheduledPromise], others: Iterable[ScheduledPromise]) -> None:
    """Refuse a promise that limits its items per list, if its items cross those of another one that does.

    Parameters
    ----------
    catalog
        The items.
    asked, others
        The promises that are asked for, and those that are made.
    """
    asked = list(asked)
    if all(one.promise.at_most_per_list is None for one in asked):
        return
    limited = {one.selection: one.promise for one in (*asked, *others) if one.promise.at_most_per_list is not None}
    atoms = find_atoms(catalog, tuple(limited.values()))
    names = [promise.name for promise in limited.values()]
    tree_of(atoms.membership, np.arange(len(names)), atoms.sizes, names)
