"""Open the items that the settings name: files with the changes through the API, or what only a search engine holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairsync.errors import InvalidInputError
from fairsync.ledger.reader import LedgerReader
from fairsync.ledger.urls import may_exist
from fairsync.search.engines.hosted_catalog import HostedCatalog
from fairsync.service.promises.saved_items import SavedItems, apply_changes
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


def read_items(settings: Settings) -> tuple[Catalog, int]:
    """Return the items of a service with all changes, and the number of the latest. The service may be running."""
    if settings.catalog.path is None:
        raise InvalidInputError(
            "the items are in an engine only, and so are their changes: there is nothing to export."
        )
    from fairsync.catalog.files import open_catalog  # it needs polars, which takes memory

    files, url = open_catalog(settings.catalog.path), settings.ledger.url
    known = files.changes or 0
    if not may_exist(url):
        return files, known
    with LedgerReader(url) as reader:
        if reader.summary().format < 3:  # tables of an earlier format have no items
            return files, known
        changes = SavedItems(reader.database, files)
        return apply_changes(files, changes.load()), max(changes.latest, known)
