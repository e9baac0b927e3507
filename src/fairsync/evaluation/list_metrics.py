"""All metrics of candidate lists at once: accuracy, exposure, coverage and diversity."""

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
    """The metrics of :mod:`fairsync.metrics` for candidate lists. None: undefined without targets, floors or pairs.

    Attributes
    ----------
    recall, ndcg, ndcg_of_hits, hit_rate : float or None
        Accuracy, mean over the requests that have targets. ``ndcg`` is the standard definition, ``ndcg_of_hits`` that
        of the paper's program.
    esp : float or None
        Fraction of the groups with a floor that reach it.
    gini : float
        Gini coefficient of the exposures of groups. 0 means equal exposures.
    least_exposures : int
        Exposures of the group that has the fewest.
    group_coverage, item_coverage : float
        Fraction of the groups, and of the items, with at least one exposure.
    category_diversity : float or None
        Fraction of the pairs in a list whose groups differ, as defined by ComiRec.
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


def measure_lists(
    catalog: Catalog,
    rows: NDArray[np.int64],
    targets: Ragged | None = None,
    floors: dict[Label, int] | None = None,
) -> tuple[ListMetrics, dict[Label, int]]:
    """Return the metrics of candidate lists, and the exposures of each group.

    Parameters
    ----------
    catalog
        The items.
    rows
        (n, k) Candidates as catalog rows, best first.
    targets
        Relevant items of each request, as catalog rows.
    floors
        {label: floor}.

    Examples
    --------
    >>> import numpy as np
    >>> from fairsync.catalog import Catalog
    >>> from fairsync.ragged import Ragged
    >>> catalog = Catalog(np.eye(4), ["toys", "books", "books", "games"])
    >>> wanted = Ragged(np.array([1, 3], dtype=np.int32), np.array([0, 1, 2]))
    >>> metrics, exposures = measure_lists(catalog, np.array([[0, 1], [1, 2]]), wanted, {"games": 1, "toys": 1})
    >>> exposures, metrics.recall, metrics.item_coverage
    ({'books': 3, 'games': 0, 'toys': 1}, 0.5, 0.75)
    >>> metrics.esp  # books have no floor, and do not count
    0.5
    """
    groups = catalog.labels_of(catalog.group_of)
    exposures: dict[Label, int] = count_exposures(rows, groups)
    unknown = dict.fromkeys(("recall", "ndcg", "ndcg_of_hits", "hit_rate"))
    accuracy = unknown if targets is None else accuracy_of_each(rows, targets).means()
    metrics = ListMetrics(
        **accuracy,
        esp=esp(exposures, floors) if floors and any(floors.values()) else None,
        gini=gini(exposures),
        least_exposures=min(exposures.values()),
        group_coverage=coverage(exposures),
        item_coverage=coverage(count_exposures(rows, range(len(catalog)))),
        category_diversity=category_diversity(rows, groups) if rows.shape[1] > 1 else None,
    )
    return metrics, exposures
