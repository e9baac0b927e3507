"""The figures of some lists of candidates, all metrics at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairsync.metrics import accuracy_of_each, category_diversity, count_exposures, coverage, esp, gini

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.catalog.groups import Label
    from fairsync.ragged import Ragged


@dataclass(frozen=True)
class ListMetrics:
    """What :mod:`fairsync.metrics` says of lists. None: it cannot be said, for want of targets, floors or pairs.

    Attributes
    ----------
    recall, ndcg, ndcg_of_hits, hit_rate : float or None
        Accuracy, mean over the requests that have targets. ``ndcg`` is the standard one, ``ndcg_of_hits`` that of the
        program of the paper's authors.
    esp : float or None
        Share of the groups that reach their floor.
    gini : float
        How unequal the exposures of groups are: 0 is equal.
    least_exposures : int
        Of the group that is shown least.
    group_coverage, item_coverage : float
        Share of groups, and of items, that are shown at all.
    category_diversity : float or None
        Share of the pairs in a list whose groups differ, as ComiRec defines it.
    """

    recall: float | None
    ndcg: float | None
    ndcg_of_hits: float | None
    hit_rate: float | None
    esp: float | None
    gini: float
    least_exposures: int
    group_coverage: float
    item_coverage: float
    category_diversity: float | None


def measure(
    catalog: Catalog,
    rows: NDArray[np.int64],
    targets: Ragged | None = None,
    floors: dict[Label, int] | None = None,
) -> tuple[ListMetrics, dict[Label, int]]:
    """Measure lists of candidates; return the figures, and the exposures of each group.

    Parameters
    ----------
    catalog
        The items.
    rows
        (n, k) rows of the catalog, best first.
    targets
        What each request should find, as rows of the catalog.
    floors
        What each group was promised.

    Examples
    --------
    >>> import numpy as np
    >>> from fairsync.catalog import Catalog
    >>> from fairsync.ragged import Ragged
    >>> catalog = Catalog(np.eye(4), ["toys", "books", "books", "games"])
    >>> wanted = Ragged(np.array([1, 3], dtype=np.int32), np.array([0, 1, 2]))
    >>> figures, exposures = measure(catalog, np.array([[0, 1], [1, 2]]), wanted, {"games": 1, "toys": 1})
    >>> exposures, figures.recall, figures.item_coverage
    ({'books': 3, 'games': 0, 'toys': 1}, 0.5, 0.75)
    >>> figures.esp  # books had no floor, which is a floor of 0
    0.6666666666666666
    """
    groups = catalog.labels_of(catalog.group_of)
    exposures: dict[Label, int] = count_exposures(rows, groups)
    each = accuracy_of_each(rows, targets) if targets is not None else None
    figures = ListMetrics(
        recall=float(each.recall.mean()) if each else None,
        ndcg=float(each.ndcg.mean()) if each else None,
        ndcg_of_hits=float(each.ndcg_of_hits.mean()) if each else None,
        hit_rate=float(each.hit_rate.mean()) if each else None,
        esp=esp(exposures, floors) if floors and any(floors.values()) else None,
        gini=gini(exposures),
        least_exposures=min(exposures.values()),
        group_coverage=coverage(exposures),
        item_coverage=coverage(count_exposures(rows, range(len(catalog)))),
        category_diversity=category_diversity(rows, groups) if rows.shape[1] > 1 else None,
    )
    return figures, exposures
