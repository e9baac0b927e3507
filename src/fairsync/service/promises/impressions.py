"""Impression reports: the items that were shown, and their groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairsync.candidates import Candidates
from fairsync.catalog.names import are_words, is_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairsync.catalog import Catalog
    from fairsync.catalog.groups import Label


def groups_shown(items: Sequence[Label], answer: bytes | None, catalog: Catalog) -> dict[Label, Label]:
    r"""Return the group of each item of a report that can have been shown, by its id.

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
    >>> groups_shown([8, 8, 9, "8"], None, Catalog(np.eye(2), ["a", "b"], ids=[7, 8]))
    {8: 'b'}
    >>> groups_shown(["x\0"], None, Catalog(np.eye(2), ["a", "b"], ids=["x", "y"]))
    {}
    """
    items = list(dict.fromkeys(items))
    if answer:
        found = Candidates.load(answer)
        there = np.isfinite(found.relevance[0])  # a short list has empty places, whose ids are no items
        group_of = dict(zip(found.ids[0][there].tolist(), found.groups[0][there].tolist(), strict=True))
        return {item: group_of[item] for item in items if item in group_of}
    kind = str if are_words(catalog.ids) else int
    fitting = [item for item in items if isinstance(item, kind) and is_name(item)]
    if not fitting:
        return {}
    rows = catalog.rows_of(np.array(fitting))
    labels = catalog.labels_of(catalog.group_of[rows[rows >= 0]]).tolist()
    known = [item for item, row in zip(fitting, rows.tolist(), strict=True) if row >= 0]
    return dict(zip(known, labels, strict=True))
