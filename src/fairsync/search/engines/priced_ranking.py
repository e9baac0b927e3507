"""Ask an engine for its best items under prices, as far as it can rank under them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.catalog.attributes import LabelColumn
from fairsync.search.engines.engine import Bonus, EngineQuery, Ranking, Restricted, StoredItems, ask_engine
from fairsync.search.engines.price_tiers import price_tiers
from fairsync.search.over_fetch import Fetched

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from fairsync.catalog import Catalog
    from fairsync.catalog.attributes import AttributeLabel
    from fairsync.search.engines.engine import Engine, Floats
    from fairsync.search.rounding import Float32Queries

# Items beyond the count that a ranking under prices returns. They show how far behind the rest is, ties apart.
_SPARE = 4
# What a formula ranks, in multiples of the items that it returns.
_FIRST_DEPTH = 4
# Tiers of prices for an engine that ranks without prices, and the most labels to name in its queries.
_TIERS, _MOST_TIER_LABELS = 4, 512
# Items that are asked for in one ranking before tiers are: conditions make engines several times slower.
_MOST_PLAIN = 4096
# Items that are returned with their vectors at once, for all requests together.
_ITEMS_AT_ONCE = 1 << 14


class PricedRanking:
    """Asks an engine under prices of groups.

    Prices are given to the engine if all items of a label have the same price, in some attribute with one label per
    item; or all items with the same labels in several such attributes, if the engine can. An engine that ranks without
    prices is asked for the best items without prices; and if very many of them would not do, for tiers of similar
    prices.

    Parameters
    ----------
    catalog
        The groups that have prices, and the attributes, by row: of items, or of combinations of labels.
    engine
        The engine.
    stored
        The attributes that the engine stores.
    """

    def __init__(self, catalog: Catalog, engine: Engine, stored: Sequence[str]) -> None:
        self.engine, can = engine, engine.abilities
        self._in_tiers = can.prices == "none"
        most = _MOST_TIER_LABELS if self._in_tiers else can.most_labels
        single = priced_labels(catalog, stored, most)
        self._labels: tuple[tuple[str, ...], list[Any], npt.NDArray[np.int64]] | None = (
            None if single is None else ((single[0],), single[1], single[2])
        )
        if self._labels is None and can.combined_prices and catalog.weights is not None:
            self._labels = priced_combinations(catalog, stored, most)
        self.ranks = self._labels is not None and not self._in_tiers
        """Whether the engine ranks items under prices."""
        self.applies_prices = "bias" if self.ranks and can.prices == "bias" else "over-fetch"
        """How prices enter, as for an index."""

    def fetch(
        self,
        queries: Float32Queries,
        count: int,
        restricted: Sequence[Restricted] | None,
        catalog: Catalog,
        *,
        found: Callable[[StoredItems], object] | None = None,
    ) -> Fetched:
        """Return the best items for each column of the queries, with their bonuses.

        Parameters
        ----------
        queries
            Users and bonuses: those of the first interest of every user, then of the second, and so on.
        count
            The number of items for each vector.
        restricted
            The items that may be returned for each user; None for all.
        catalog
            Tells the rows of items, and their groups.
        found
            Is given the items that were found, before their rows are asked for.
        """
        vectors = np.ascontiguousarray(queries.columns.T)
        if restricted is not None:
            restricted = [*restricted] * (len(vectors) // len(restricted))
        with_items = found is not None
        # Items come with their vectors: a few thousand at once.
        step = max(1, _ITEMS_AT_ONCE // count) if with_items else max(1, len(vectors))
        rankings, has_bonus = list[Ranking](), True
        for start in range(0, len(vectors), step):
            some = slice(start, start + step)
            mine = None if restricted is None else restricted[some]
            answer, has_bonus = self._ask(vectors[some], queries.bonus, count, mine, with_items)
            for one in answer:
                if found is not None and one.items is not None:
                    found(one.items)
                rankings.append(replace(one, items=None))  # vectors of many items, which are known now
        fetched = _to_rows(rankings, catalog)
        if has_bonus or queries.bonus is None:
            return fetched
        return replace(fetched, scores=fetched.scores + queries.bonus[catalog.group_of[fetched.rows]])

    def _ask(
        self,
        vectors: Floats,
        bonus: npt.NDArray[np.floating] | None,
        count: int,
        restricted: Sequence[Restricted] | None,
        with_items: bool,
    ) -> tuple[list[Ranking], bool]:
        """Return a ranking for each vector, and whether its scores have the bonus. What is beyond it always has."""
        most = self.engine.abilities.most_results
        if bonus is not None and self._labels is not None and self._in_tiers and count > _MOST_PLAIN:
            return self._ask_in_tiers(vectors, bonus, count, restricted, with_items), False
        given = None
        if bonus is not None and self.ranks and self._labels is not None:
            attributes, labels, groups = self._labels
            given = Bonus(attributes, dict(zip(labels, bonus[groups].tolist(), strict=True)))
        ask = min(count + _SPARE, most)
        query = EngineQuery(vectors, ask, min(_FIRST_DEPTH * ask, most), given, restricted, with_items)
        found = ask_engine(self.engine, query)
        if bonus is None or given is not None:
            return found, True
        highest = float(bonus.max())
        return [replace(one, beyond=one.beyond + highest) for one in found], False

    def _ask_in_tiers(
        self,
        vectors: Floats,
        bonus: npt.NDArray[np.floating],
        count: int,
        restricted: Sequence[Restricted] | None,
        with_items: bool,
    ) -> list[Ranking]:
        """Ask for the best items of each tier of prices: what is behind them gains at most the highest of its tier."""
        assert self._labels is not None
        (attribute,), labels, groups = self._labels
        tiers = price_tiers(attribute, labels, bonus[groups], _TIERS)
        ask = min(-(-count // len(tiers)) + _SPARE, self.engine.abilities.most_results)
        every = restricted or [Restricted()] * len(vectors)
        under = [
            one if tier.condition is None else Restricted((*one.conditions, tier.condition), one.excluded)
            for tier in tiers
            for one in every
        ]
        stacked = np.tile(vectors, (len(tiers), 1))
        found = ask_engine(self.engine, EngineQuery(stacked, ask, ask, None, under, with_items))
        n = len(vectors)
        return [
            _joined([replace(found[at + i * n], beyond=found[at + i * n].beyond + tier.highest)
                     for i, tier in enumerate(tiers)])
            for at in range(n)
        ]  # fmt: skip


def _to_rows(rankings: Sequence[Ranking], catalog: Catalog) -> Fetched:
    width = max((len(one.ids) for one in rankings), default=0)
    rows = np.full((len(rankings), width), -1, dtype=np.int64)
    scores = np.full((len(rankings), width), -np.inf)
    flat = [name for one in rankings for name in one.ids]
    if flat:
        lengths = np.array([len(one.ids) for one in rankings])
        there = np.arange(width) < lengths[:, None]
        rows[there] = catalog.rows_of(np.asarray(flat))
        scores[there] = [score for one in rankings for score in one.scores]
    return Fetched(scores, rows, np.array([one.beyond for one in rankings]))


def _joined(parts: Sequence[Ranking]) -> Ranking:
    """Return the items of all parts, whose scores are not in order."""
    items = [one.items for one in parts if one.items is not None]
    return Ranking(
        [name for one in parts for name in one.ids],
        [score for one in parts for score in one.scores],
        max(one.beyond for one in parts),
        StoredItems.joined(items) if items else None,
    )


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
    >>> from fairsync.catalog import Catalog
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


def priced_combinations(
    catalog: Catalog, stored: Sequence[str], most: int
) -> tuple[tuple[str, ...], list[tuple[AttributeLabel, ...]], npt.NDArray[np.int64]] | None:
    """Return attributes by whose labels together the items can be priced; see `priced_labels`.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> catalog = Catalog(np.eye(3), {"category": ["toys", "books", "toys"], "new": [True, True, False]})
    >>> priced_combinations(catalog.regrouped(np.array([2, 0, 1]), 3), ["category", "new"], 10)
    (('category', 'new'), [('toys', True), ('books', True), ('toys', False)], array([2, 0, 1]))
    """
    columns = {
        name: column
        for name, column in catalog.attributes.items()
        if name in stored and isinstance(column, LabelColumn)
    }
    group_of: dict[tuple[AttributeLabel, ...], int] = {}
    values = zip(*(column.values() for column in columns.values()), strict=True)
    for key, group in zip(values, catalog.group_of.tolist(), strict=True):
        if group_of.setdefault(key, group) != group:
            return None
    if not columns or len(group_of) > most:
        return None
    return tuple(columns), list(group_of), np.array(list(group_of.values()), dtype=np.int64)
