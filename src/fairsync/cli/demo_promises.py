"""The promises of the demo: to categories, manufacturers and new products, and a cap on private brands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairsync.catalog import Catalog
from fairsync.catalog.attributes import LabelColumn
from fairsync.evaluation.median_floor import median_floor
from fairsync.promises import Promise, each
from fairsync.retriever import FairRetriever

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.data.dataset import Dataset
    from fairsync.evaluation.replayed_traffic import ReplayedTraffic

_NEW_DAYS = 60  # days before the replay in which a new product was first bought
_LARGE = 40  # manufacturers with this many products get a promise


def demo_catalog(data: Dataset, traffic: ReplayedTraffic) -> Catalog:
    """Return the products with category, manufacturer and brand, and whether they are new."""
    columns = traffic.catalog.attributes
    first = np.full(len(traffic.catalog), np.iinfo(np.int64).max)
    np.minimum.at(first, data.sequences.items, data.times)
    is_new = first > int(traffic.times[0]) - _NEW_DAYS * 86_400
    attributes = {
        "category": columns["product_category"].values(),
        "manufacturer": columns["manufacturer_id"].values(),
        "brand": columns["brand"].values(),
        "new": is_new.tolist(),
    }
    return Catalog(traffic.catalog.embeddings, attributes, traffic.catalog.ids)


def demo_promises(
    catalog: Catalog, past: NDArray[np.float32], k: int, horizon: int, floor: int | None
) -> list[Promise]:
    """Return the promises, set by what past requests get without any.

    Every category gets the median of categories (or a floor that is given), every large manufacturer the median of
    these, new products twice their share, and private brands at most three quarters of theirs.

    Parameters
    ----------
    catalog, past, k, horizon
        The items, the user vectors of past requests, and the terms of the promises.
    floor
        The floor of every category; None for the median.
    """
    rows = FairRetriever(catalog, k=k, horizon=len(past), policy="none").retrieve(past).rows
    scale, makers = horizon / len(past), catalog.attributes["manufacturer"]
    assert isinstance(makers, LabelColumn)
    sizes, shown = (
        np.bincount(codes, minlength=len(makers.labels)) for codes in (makers.codes, makers.codes[rows.ravel()])
    )
    large = np.flatnonzero(sizes >= _LARGE)
    of_makers = max(int(float(f"{np.median(shown[large]) * scale:.1g}")), 1)

    def share(attribute: str, label: str | bool) -> float:
        column = catalog.attributes[attribute]
        assert isinstance(column, LabelColumn)
        return float(np.mean(column.codes[rows] == column.code_of[label]))

    of_categories = median_floor(catalog, past, k, horizon) if floor is None else floor
    return [
        *each(catalog, "category", at_least=of_categories),
        *(Promise({"manufacturer": makers.labels[code]}, at_least=of_makers) for code in large.tolist()),
        Promise({"new": True}, at_least=float(f"{min(2 * share('new', True), 0.05):.1g}")),
        Promise({"brand": "Private"}, at_most=round(0.75 * share("brand", "Private"), 2)),
    ]
