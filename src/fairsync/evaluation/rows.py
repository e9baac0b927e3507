"""The targets of requests as rows of the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.errors import InvalidInputError
from fairsync.ragged import Ragged

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fairsync.catalog import Catalog


def target_rows(catalog: Catalog, targets: Ragged | Sequence[Iterable[Any]], requests: int) -> tuple[Ragged, int]:
    """Return targets as rows of the catalog, and how many are no item of it.

    Such a target can never be found, and counts as missed: it gets a row behind the last.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> rows, unknown = target_rows(Catalog(np.eye(2), ["a", "b"], ids=["x", "y"]), [["y", "gone"], ["x"]], requests=2)
    >>> [one.tolist() for one in rows], unknown
    ([[1, 2], [0]], 1)
    """
    if len(targets) != requests:
        raise InvalidInputError(f"there are {requests} requests and {len(targets)} targets: give a list for each.")
    if isinstance(targets, Ragged):
        return targets, 0
    lists = [list(one) for one in targets]
    given = [item for one in lists for item in one]
    # A file of text does not know numbers from words: ids are the same if they read the same.
    row_of = {str(name): row for row, name in enumerate(catalog.ids.tolist())}
    rows = np.fromiter((row_of.get(str(name), -1) for name in given), dtype=np.int64, count=len(given))
    lost = np.flatnonzero(rows < 0)
    if len(lost) == len(given):
        example = f", such as {given[0]!r}; ids look like {catalog.ids[:1].tolist()[0]!r}" if given else ""
        raise InvalidInputError(f"none of the {len(given)} targets is the id of an item{example}: give ids of items.")
    behind = {given[place]: len(catalog) + number for number, place in enumerate(lost)}
    rows[lost] = [behind[given[place]] for place in lost]
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in lists])])
    return Ragged(rows.astype(np.int32), offsets), len(lost)
