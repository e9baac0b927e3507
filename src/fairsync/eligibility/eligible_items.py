"""Eligible items of requests, from what a caller says about them (`exclude`, `where`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairsync.eligibility.catalog_rules import CatalogRules
from fairsync.eligibility.hosted_rules import HostedRules
from fairsync.search.engines.hosted_catalog import HostedCatalog

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from fairsync.catalog import Catalog, Where
    from fairsync.eligibility.rules import Exclude, Rules
    from fairsync.search.eligibility import Eligibility


def make_rules(
    exclude: Exclude | None,
    where: Where | Sequence[Where | None] | None,
    catalog: Catalog,
    n: int,
    *,
    allow_empty: bool = False,
) -> Rules | None:
    """Return what each of n requests may get; None if all may get everything. The parameters: see `CatalogRules`."""
    if exclude is None and where is None:
        return None
    if isinstance(catalog, HostedCatalog):
        return HostedRules(exclude, where, catalog, n, allow_empty=allow_empty)
    return CatalogRules(exclude, where, catalog, n, allow_empty=allow_empty)


def make_eligibility(
    exclude: Exclude | None, where: Where | Sequence[Where | None] | None, catalog: Catalog, n: int
) -> tuple[Eligibility | None, NDArray[np.int64]]:
    """Return the items that each of n requests may get, and the number of unknown ids that each excludes.

    The parameters are those of `CatalogRules`, which does the same part by part.
    """
    rules = CatalogRules(exclude, where, catalog, n)
    return rules.eligibility(0, n), rules.unknown
