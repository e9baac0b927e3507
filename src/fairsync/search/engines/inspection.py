"""Look at an engine without writing to it: whether it can be used for a catalog, and what it can do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairsync.errors import InvalidInputError
from fairsync.search.engines.item_schema import ItemSchema
from fairsync.search.engines.priced_ranking import PricedRanking
from fairsync.search.exact import ExactIndex
from fairsync.search.row_encoding import RowEncoding

if TYPE_CHECKING:
    from fairsync.catalog import Catalog
    from fairsync.search.engines.engine import Engine

# Items whose embeddings are compared. All of them are compared when an index is made.
_SAMPLE = 256


def inspect_engine(engine: Engine, catalog: Catalog, *, upload: bool) -> str:
    """Return what an engine holds and can do, in words; raise if an index over the catalog could not be made.

    It is much faster than making the index: items are counted by group, and some embeddings are compared.

    Parameters
    ----------
    engine
        The engine.
    catalog
        The items that it should hold.
    upload
        Whether what is missing or different will be written.
    """
    if upload and not engine.exists():
        return f"{engine.place}, which will be made"
    engine.prepare(ItemSchema.of(catalog), create=False, writes=upload)
    engine.finish(create=False)
    if not upload:
        _compare(engine, catalog)
    return f"{engine.place}, {engine.count()[()]:,} items, {describe_abilities(engine, catalog)}"


def _compare(engine: Engine, catalog: Catalog) -> None:
    """Raise if the engine has too few items of a group, or another embedding of an item of a sample."""
    remedy = "Read the catalog from there, or write it there with upload."
    held = engine.count([catalog.group_attribute])
    for label, size in zip(catalog.labels, catalog.group_sizes.tolist(), strict=True):
        there = held.get((label,), 0)
        if there < size:
            raise InvalidInputError(
                f"{engine.place} has {there:,} items of {label!r}, and the catalog {size:,}. {remedy}"
            )
    rows = np.sort(np.random.default_rng(0).choice(len(catalog), min(_SAMPLE, len(catalog)), replace=False))
    vectors = RowEncoding.of(ExactIndex(catalog).items).vectors(catalog, rows)
    names = catalog.ids_of(rows).tolist()
    stored = engine.fetch(names)
    found = dict(zip(stored.ids, stored.vectors, strict=True))
    for name, vector in zip(names, vectors, strict=True):
        if name not in found or not np.array_equal(found[name], vector):
            what = "has another embedding" if name in found else "is missing"
            raise InvalidInputError(f"item {name!r} {what} in {engine.place}. {remedy}")


def describe_abilities(engine: Engine, catalog: Catalog) -> str:
    """Return how the engine searches, in words."""
    can = engine.abilities
    how = "exact" if can.exact else "approximate"
    if not PricedRanking(catalog, engine, [*catalog.conditioned_attributes]).ranks:
        return f"{how}, over-fetches under prices"
    return f"{how}, {'ranks under prices' if can.prices == 'bias' else 'ranks by a formula over a prefetch'}"
