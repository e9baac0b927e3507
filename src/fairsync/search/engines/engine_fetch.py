"""Over-fetching from an engine that may rank under prices and may filter: what it cannot do is done here."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.search.base import Index
from fairsync.search.certified_search import CertifiedSearch
from fairsync.search.eligibility import Eligibility
from fairsync.search.engines.engine import Engine, Restricted
from fairsync.search.engines.priced_ranking import PricedRanking
from fairsync.search.over_fetch import Eligible, Fetched
from fairsync.search.rounding import Float32Items, Float32Queries

_U = 2.0**-24


class EngineFetch(CertifiedSearch):
    """Search under prices and eligibility on top of an engine, with the certificate of `CertifiedSearch`.

    Prices are given to the engine as far as it can rank under them (`PricedRanking`). Conditions are given to it if it
    stores their attributes.

    Parameters
    ----------
    catalog, items, exact, most, alive
        As for `CertifiedSearch`.
    engine
        The engine.
    stored
        The attributes that the engine stores.
    """

    def __init__(
        self,
        catalog: Catalog,
        items: Float32Items,
        engine: Engine,
        exact: Index,
        most: int,
        alive: float,
        stored: Sequence[str],
    ) -> None:
        super().__init__(catalog, items, exact, most, alive)
        self.engine, self.stored = engine, frozenset(stored)
        self._ranking = PricedRanking(catalog, engine, stored)
        self.applies_prices = self._ranking.applies_prices

    def ranks_under(self, prices: npt.NDArray[np.float64]) -> bool:
        """Return whether the engine ranks items under prices; see `CertifiedSearch`."""
        return self._ranking.ranks

    def filters(self, eligible: Eligibility) -> bool:
        """Return whether the engine evaluates the conditions and exclusions; see `CertifiedSearch`."""
        return all(
            chosen.conditions is not None and {one.attribute for one in chosen.conditions} <= self.stored
            for chosen in eligible.selections
        )

    def margin(self, queries: Float32Queries) -> npt.NDArray[np.float64]:
        """Return the margin; engines may add the bonus in float32, with a rounding of its own."""
        if queries.bonus is None:
            return queries.margin
        finite = queries.bonus[queries.bonus > -np.inf]
        return queries.margin + 4 * _U * float(np.abs(finite).max(initial=0.0))

    def fetch(self, queries: Float32Queries, count: int, eligible: Eligible | None) -> Fetched:
        """Ask the engine; see `OverFetching`."""
        restricted = None
        if isinstance(eligible, Eligibility) and self.filters(eligible):
            restricted = self._restricted(eligible)
        return self._ranking.fetch(queries, count, restricted, self.catalog)

    def _restricted(self, eligible: Eligibility) -> list[Restricted]:
        conditions = [tuple(chosen.conditions or ()) for chosen in eligible.selections]
        conditions.append(())  # at -1: all items
        excluded = self.catalog.ids_of(eligible.excluded).tolist()
        edges = eligible.offsets.tolist()
        return [
            Restricted(conditions[at], excluded[edges[i] : edges[i + 1]])
            for i, at in enumerate(eligible.selection_of.tolist())
        ]
