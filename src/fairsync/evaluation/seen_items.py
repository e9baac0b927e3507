"""Items that users have seen before: what their histories hold is left out of candidates, and of targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.ragged import PADDING, Ragged

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.catalog import Catalog


def seen_ids(catalog: Catalog, histories: NDArray[np.integer]) -> list[NDArray[Any]]:
    """Return the ids of the items in each history, in the form that `exclude` takes.

    Parameters
    ----------
    catalog
        The items.
    histories
        (n, length) rows of the catalog, padded with -1.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> [ids.tolist() for ids in seen_ids(Catalog(np.eye(2), ["a", "b"], ids=["x", "y"]), np.array([[1, -1], [0, 1]]))]
    [['y'], ['x', 'y']]
    """
    ids = catalog.ids
    return [ids[history[history != PADDING]] for history in histories]


def new_targets(targets: Ragged, histories: NDArray[np.integer]) -> Ragged:
    """Return the targets that are not in the history of their request: the others cannot be found once it is left out.

    Examples
    --------
    >>> targets = Ragged(np.array([3, 1, 2], dtype=np.int32), np.array([0, 2, 3]))
    >>> [one.tolist() for one in new_targets(targets, np.array([[1, 7], [3, -1]]))]
    [[3], [2]]
    """
    owners = np.repeat(np.arange(len(targets)), targets.lengths)
    is_new = ~(histories[owners] == targets.items[:, None]).any(axis=1)
    lengths = np.bincount(owners[is_new], minlength=len(targets))
    return Ragged(targets.items[is_new], np.concatenate([[0], np.cumsum(lengths)]))
