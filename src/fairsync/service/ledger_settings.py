"""Open the ledger that the settings name, or describe it for ``fairsync check``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fairsync.coordination.shared_terms import SharedTerms
from fairsync.errors import FairSyncError, InvalidInputError
from fairsync.ledger import open_ledger
from fairsync.ledger.reader import LedgerReader
from fairsync.ledger.urls import MEMORY, describe_url, is_postgres, may_exist, sqlite_path
from fairsync.policies import make_policy
from fairsync.promises.floors import make_terms
from fairsync.promises.selection import counted_text
from fairsync.service.promises.saved_state import SavedState
from fairsync.text import count

if TYPE_CHECKING:
    from fairsync.catalog import Catalog
    from fairsync.catalog.groups import Label
    from fairsync.ledger import Ledger
    from fairsync.ledger.base import Saved
    from fairsync.service.settings import Settings

# Promises that are named in a description. Of more, their number is given.
_MAX_NAMED = 5


def open_service_ledger(settings: Settings, n_groups: int) -> Ledger:
    """Open the ledger; one in Postgres is shared with other services."""
    # A call may have to wait for the server, or for a replica that died: for less than its own deadline.
    return open_ledger(
        settings.ledger.url,
        n_groups,
        shared=True,
        timeout=settings.http.request_seconds / 2,
        retention=settings.ledger.retention,
    )


def fit_groups(catalog: Catalog, ledger: Saved) -> Catalog:
    """Return the catalog with its groups in the order of the ledger's counts; refuse a ledger of another catalog.

    Groups that were added since the last start follow the others. Groups that lost all their items stay, with their
    counts and promises.
    """
    labels = _saved_labels(ledger)
    if labels is None or catalog.labels == labels:
        return catalog
    if set(labels).isdisjoint(catalog.labels):
        raise InvalidInputError(
            f"the ledger is of another catalog: it counts {_named(labels)}, and this catalog has"
            f" {_named(catalog.labels)}. Name the ledger of this catalog, or a new one."
        )
    return catalog.under(labels)


def fit_ledger(catalog: Catalog, ledger: Ledger) -> Catalog:
    """Return the catalog with its groups in the order of the ledger's counts, to which new groups are added."""
    fitted = fit_groups(catalog, ledger)
    if len(ledger.totals().exposures) < fitted.n_groups:
        ledger.grow(fitted.n_groups)
    return fitted


def read_groups(settings: Settings, catalog: Catalog) -> Catalog:
    """Return the catalog with its groups in the order of the ledger's counts, without writing to the ledger."""
    url = settings.ledger.url
    if not may_exist(url):
        return catalog
    with LedgerReader(url, settings.http.request_seconds / 2) as reader:
        return fit_groups(catalog, reader)


def describe_ledger(settings: Settings, catalog: Catalog | None) -> tuple[str, list[str]]:
    """Return the contents of the ledger in words, and what may be lost; refuse one that the service could not use.

    It writes nothing.
    """
    url = settings.ledger.url
    if url == MEMORY:
        return "in memory: lost when the service ends", []
    address = describe_url(url)
    check_writable(url)
    if not may_exist(url):
        return f"{address}, a new file", []
    with LedgerReader(url) as reader:
        found = reader.summary()
        if found.format == 0:
            return f"{address}, a new ledger", reader.check()
        if catalog is not None:
            _check_agrees(settings, fit_groups(catalog, reader), reader, address)
        counted = counted_text(_saved_labels(reader) or [], found.groups)
        return (
            f"{address}, {count(found.requests, 'request')} so far, {counted}; {_promises(reader)}",
            reader.check(),
        )


def check_writable(url: str) -> None:
    """Refuse the URL of an SQLite ledger whose file can neither be written to nor made."""
    if url == MEMORY or is_postgres(url):
        return
    path = sqlite_path(url)
    if not path.parent.is_dir():
        raise FairSyncError(f"the ledger is {path}, but there is no folder {path.parent}: make it.")
    target = path if path.exists() else path.parent
    if not os.access(target, os.W_OK):
        raise FairSyncError(f"the ledger is {path}, but {target} cannot be written to: name another.")


def _check_agrees(settings: Settings, catalog: Catalog, ledger: Saved, address: str) -> None:
    """Refuse settings with which the service could not join those that share the ledger."""
    shared, wanted = SharedTerms.saved_in(ledger), settings.promise
    if shared is not None:
        terms = make_terms(
            catalog, wanted.k, 0, 1, wanted.batch_size, auto_restart=False, max_exclude=wanted.max_exclude
        )
        mine = SharedTerms.of(0, catalog.groups, terms, keeps_floors=make_policy(wanted.policy).keeps_floors)
        mine.check_agrees(shared, address)


def _promises(ledger: Saved) -> str:
    saved = SavedState.load(ledger)
    if saved is None:
        return "no promises"
    made = [str(one) for one in saved.promises.values()]
    named = "; ".join(made[:_MAX_NAMED]) + (f"; and {len(made) - _MAX_NAMED} more" if len(made) > _MAX_NAMED else "")
    return f"the promises in it apply, not those of the settings: {named or 'none'}"


def _saved_labels(ledger: Saved) -> list[Label] | None:
    shared = SharedTerms.saved_in(ledger)
    if shared is not None:
        return shared.groups.labels
    saved = SavedState.load(ledger)
    return None if saved is None else list(saved.labels)


def _named(labels: list[Label]) -> str:
    some = ", ".join(repr(label) for label in labels[:3])
    return f"{some} and {len(labels) - 3:,} more groups" if len(labels) > 3 else f"the groups {some}"
