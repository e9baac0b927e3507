"""Open the items that the settings name: files, or what only a search engine holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairsync.search.engines.hosted_catalog import HostedCatalog
from fairsync.service.search_settings import open_engine

if TYPE_CHECKING:
    from fairsync.catalog import Catalog
    from fairsync.service.settings import Settings


def open_items(settings: Settings) -> Catalog:
    """Return the catalog. Items that only an engine holds are counted by it, and stay there."""
    if settings.catalog.path is not None:
        from fairsync.catalog.files import open_catalog  # it needs polars, which takes memory

        return open_catalog(settings.catalog.path)
    search = settings.search
    return HostedCatalog(open_engine(search), search.attributes, filters=search.filters, writes=search.upload)


def describe_items(catalog: Catalog) -> str:
    """Return what a catalog holds, in words."""
    held = f"{len(catalog):,} items, {catalog.n_groups:,} groups, dimension {catalog.dim}"
    if not isinstance(catalog, HostedCatalog):
        return held
    left_out = catalog.without_labels
    lacking = f"; {left_out:,} items that lack one of these are left out" if left_out else ""
    names = ", ".join(catalog.promised)
    return f"{held}, in the engine only; {catalog.n_rows:,} combinations of {names}{lacking}"
