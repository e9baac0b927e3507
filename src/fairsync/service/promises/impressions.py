"""Impression reports: the groups of the items that were shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairsync.candidates import Candidates
from fairsync.catalog.names import are_words, is_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairsync.catalog import Catalog
    from fairsync.catalog.groups import Label


def items_shown(items: Sequence[Label], answer: bytes | None, catalog: Catalog) -> list[Label]:
    """Return the items of a report that can have been shown; see :func:`groups_shown`.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> items_shown([8, 8, 9], None, Catalog(np.eye(2), ["a", "b"], ids=[7, 8]))
    [8]
    """
    return [one for one in dict.fromkeys(items) if groups_shown([one], answer, catalog)[0]]


def groups_shown(items: Sequence[Label], answer: bytes | None, catalog: Catalog) -> tuple[list[Label], int]:
    r"""Return the groups of the items that a report names, and the number of items that cannot have been shown.

    Parameters
    ----------
    items
        Ids of the items that were shown; repeated ones count once.
    answer
        The stored answer to the request. Without one, every item of the catalog may have been shown.
    catalog
        The items.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> catalog = Catalog(np.eye(2), ["a", "b"], ids=[7, 8])
    >>> groups_shown([8, 8, 9, "8"], None, catalog)
    (['b'], 2)
    >>> groups_shown(["x\0"], None, Catalog(np.eye(2), ["a", "b"], ids=["x", "y"]))
    ([], 1)
    """
    items = list(dict.fromkeys(items))
    if answer:
        found = Candidates.load(answer)
        there = np.isfinite(found.relevance[0])  # a short list has empty places, whose ids are no items
        group_of = dict(zip(found.ids[0][there].tolist(), found.groups[0][there].tolist(), strict=True))
        labels = [group_of[item] for item in items if item in group_of]
        return labels, len(items) - len(labels)
    kind = str if are_words(catalog.ids) else int
    fitting = [item for item in items if isinstance(item, kind) and is_name(item)]
    if not fitting:
        return [], len(items)
    rows = catalog.rows_of(np.array(fitting))
    labels = catalog.labels_of(catalog.group_of[rows[rows >= 0]]).tolist()
    return labels, len(items) - len(labels)
