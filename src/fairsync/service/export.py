"""The items of a service: the catalog's files, and what was changed through the API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairsync.catalog.files import open_catalog
from fairsync.errors import InvalidInputError
from fairsync.ledger.reader import LedgerReader
from fairsync.ledger.urls import MEMORY, is_postgres, sqlite_path
from fairsync.service.promises.item_changes import ItemChanges, apply_changes

if TYPE_CHECKING:
    from fairsync.catalog import Catalog
    from fairsync.service.settings import Settings


def read_items(settings: Settings) -> tuple[Catalog, int]:
    """Return the items of a service, which may be running, and the number of the latest change in them."""
    if settings.catalog.path is None:
        raise InvalidInputError(
            "the items are in an engine only, and so are their changes: there is nothing to export."
        )
    files, url = open_catalog(settings.catalog.path), settings.ledger.url
    known = files.changes or 0
    if url == MEMORY or not (is_postgres(url) or sqlite_path(url).exists()):
        return files, known
    with LedgerReader(url) as reader:
        if reader.summary().format < 3:  # tables of an earlier format have no items
            return files, known
        changes = ItemChanges(reader.database, files)
        return apply_changes(files, changes.load()), max(changes.latest, known)
