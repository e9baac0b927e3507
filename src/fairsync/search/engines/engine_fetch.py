"""Over-fetching from an engine that may rank under prices and may filter: what it cannot do is done here."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.search.base import Index
from fairsync.search.eligibility import Eligibility
from fairsync.search.engines.engine import Engine, Ranking, Restricted
from fairsync.search.engines.priced_ranking import PricedRanking
from fairsync.search.over_fetch import CertifiedSearch, Fetched
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
        if not self.engine.abilities.filters:
            return False
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

    def fetch(self, queries: Float32Queries, count: int, eligible: Eligibility | None) -> Fetched:
        """Ask the engine; see `CertifiedSearch`."""
        vectors, restricted = np.ascontiguousarray(queries.columns.T), None
        if eligible is not None and self.filters(eligible):
            each = self._restricted(eligible)
            restricted = each * (len(vectors) // len(each))
        rankings, has_bonus = self._ranking.ask(vectors, queries.bonus, count, restricted)
        fetched = self._to_rows(rankings)
        if has_bonus or queries.bonus is None:
            return fetched
        priced = fetched.scores + queries.bonus[self.catalog.group_of[fetched.rows]]
        return Fetched(priced, fetched.rows, fetched.beyond)

    def _restricted(self, eligible: Eligibility) -> list[Restricted]:
        conditions = [tuple(chosen.conditions or ()) for chosen in eligible.selections]
        conditions.append(())  # at -1: all items
        excluded = self.catalog.ids_of(eligible.excluded).tolist()
        edges = eligible.offsets.tolist()
        return [
            Restricted(conditions[at], excluded[edges[i] : edges[i + 1]])
            for i, at in enumerate(eligible.selection_of.tolist())
        ]

    def _to_rows(self, rankings: list[Ranking]) -> Fetched:
        width = max((len(one.ids) for one in rankings), default=0)
        rows = np.full((len(rankings), width), -1, dtype=np.int64)
        scores = np.full((len(rankings), width), -np.inf)
        flat = [name for one in rankings for name in one.ids]
        if flat:
            lengths = np.array([len(one.ids) for one in rankings])
            there = np.arange(width) < lengths[:, None]
            rows[there] = self.catalog.rows_of(np.asarray(flat))
            scores[there] = [score for one in rankings for score in one.scores]
        return Fetched(scores, rows, np.array([one.beyond for one in rankings]))
