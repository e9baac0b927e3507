"""Over-fetching from an engine that may rank under prices and may filter: what it cannot do is done here."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.catalog.attributes import AttributeLabel, LabelColumn
from fairsync.search.base import Index
from fairsync.search.eligibility import Eligibility
from fairsync.search.engines.engine import Bonus, Engine, EngineQuery, Ranking, Restricted
from fairsync.search.over_fetch import CertifiedSearch, Fetched
from fairsync.search.rounding import Float32Items, Float32Queries

_U = 2.0**-24
# Items beyond the count that a ranking under prices returns. They show how far behind the rest is, ties apart.
_SPARE = 4
# What a formula ranks, in multiples of the items that it returns.
_FIRST_DEPTH = 4


class EngineFetch(CertifiedSearch):
    """Search under prices and eligibility on top of an engine, with the certificate of `CertifiedSearch`.

    Prices are given to the engine if all items of a label have the same price, in some attribute with one label per
    item: then the engine ranks under prices. Conditions are given to it if it stores their attributes.

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
        self._labels: tuple[str, list[AttributeLabel], npt.NDArray[np.int64]] | None = None
        if engine.abilities.prices != "none":
            self._labels = priced_labels(catalog, stored, engine.abilities.most_labels)
        self.applies_prices = "over-fetch"
        if self._labels is not None and engine.abilities.prices == "bias":
            self.applies_prices = "bias"

    def ranks_under(self, prices: npt.NDArray[np.float64]) -> bool:
        """Return whether the engine ranks items under prices; see `CertifiedSearch`."""
        return self._labels is not None

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
        vectors, bonus = np.ascontiguousarray(queries.columns.T), None
        ask = min(count + _SPARE, self.engine.abilities.most_results)
        if queries.bonus is not None and self._labels is not None:
            attribute, labels, groups = self._labels
            bonus = Bonus(attribute, dict(zip(labels, queries.bonus[groups].tolist(), strict=True)))
        depth = min(_FIRST_DEPTH * ask, self.engine.abilities.most_results)
        restricted = None
        if eligible is not None and self.filters(eligible):
            each = self._restricted(eligible)
            restricted = each * (len(vectors) // len(each))
        rankings = self.engine.search(EngineQuery(vectors, ask, depth, bonus, restricted))
        fetched = self._to_rows(rankings)
        if queries.bonus is None or bonus is not None:
            return fetched
        priced = fetched.scores + queries.bonus[self.catalog.group_of[fetched.rows]]
        return Fetched(priced, fetched.rows, fetched.beyond + queries.bonus.max())

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


def priced_labels(
    catalog: Catalog, stored: Sequence[str], most: int
) -> tuple[str, list[AttributeLabel], npt.NDArray[np.int64]] | None:
    """Return an attribute by whose labels the items can be priced, its labels, and the group of the items of each.

    Parameters
    ----------
    catalog
        The items, with the groups that have prices: labels of an attribute, or atoms.
    stored
        The attributes to choose from.
    most
        The most labels that can have a price.

    Returns
    -------
    tuple or None
        None if there is no attribute of which every label lies within one group. Labels without an item are left out.

    Examples
    --------
    >>> catalog = Catalog(np.eye(3), {"category": ["toys", "books", "toys"], "shop": ["a", "b", "c"]})
    >>> priced_labels(catalog, ["category", "shop"], 10)
    ('category', ['books', 'toys'], array([0, 1]))
    >>> priced_labels(catalog.regrouped(np.array([0, 0, 1]), 2), ["category", "shop"], 10)
    ('shop', ['a', 'b', 'c'], array([0, 0, 1]))
    """
    for attribute, column in catalog.attributes.items():
        if attribute not in stored or not isinstance(column, LabelColumn):
            continue
        groups = np.full(len(column.labels), -1, dtype=np.int64)
        groups[column.codes] = catalog.group_of
        used = np.flatnonzero(groups >= 0)
        if len(used) <= most and bool((groups[column.codes] == catalog.group_of).all()):
            return attribute, [column.labels[code] for code in used.tolist()], groups[used]
    return None
