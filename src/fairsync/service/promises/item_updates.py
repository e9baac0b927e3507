"""Adding, changing and removing items while requests are answered, in step with other services and engines."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.catalog.changes import CatalogChange, remove_items, upsert_items
from fairsync.inputs import check_k
from fairsync.search.engines.hosted_catalog import HostedCatalog
from fairsync.service.promises.hosted_items import nothing_written, removed_hosted, upsert_hosted
from fairsync.service.promises.promise_series import with_labels

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray

    from fairsync.catalog import Catalog
    from fairsync.catalog.groups import Label
    from fairsync.coordination.coordinator import Coordinator
    from fairsync.coordination.front_end import FrontEnd
    from fairsync.schedule import ScheduledPromise
    from fairsync.search.engines.engine import StoredItems
    from fairsync.service.promises.saved_items import SavedItems
    from fairsync.service.promises.scheduler import Scheduler

# Seconds between two counts of the items of an engine; and at least, if an item was found whose labels are not known.
_EVERY_SECONDS, _LEAST_SECONDS = 60.0, 2.0


class ItemUpdates:
    """Changes items, and follows changes that other services or an engine have made.

    Parameters
    ----------
    front, coordinator
        Search and count the items.
    scheduler
        Holds the promises: one for each label gets the new labels. Items change under its lock.
    changes
        Saves changes of items; None if they last as long as the process.
    """

    def __init__(
        self, front: FrontEnd, coordinator: Coordinator, scheduler: Scheduler, changes: SavedItems | None
    ) -> None:
        self._front, self._coordinator, self._scheduler, self._changes = front, coordinator, scheduler, changes
        self._counted_at = time.monotonic()
        # Items and series for which promises for each label were last made.
        self._labelled: tuple[Catalog, Mapping[str, ScheduledPromise]] | None = None

    def upsert(
        self,
        embeddings: ArrayLike | None,
        groups: Sequence[Label] | NDArray[Any] | Mapping[str, Any],
        ids: Sequence[Label] | NDArray[Any],
    ) -> None:
        """Add items, or change those with known ids, from the next request on; see :meth:`FairRetriever.upsert`.

        With a durable ledger the change survives a restart (:mod:`fairsync.service.promises.saved_items`). Items that
        only an engine holds are changed there.
        """
        hosted = self._front.catalog
        if isinstance(hosted, HostedCatalog):
            self._write_hosted(hosted, upsert_hosted(hosted, embeddings, groups, ids), [])
            return

        def save(changes: SavedItems, after: Catalog) -> None:
            rows = after.rows_of(np.asarray(ids))
            given = groups if isinstance(groups, Mapping) else [after.group_attribute]
            changed = [*after.attributes] if embeddings is not None else [*given]
            attributes = {name: after.attributes[name].take(rows).values() for name in changed}
            changes.upsert(after.ids[rows].tolist(), attributes, None if embeddings is None else after.embeddings[rows])

        self._change(lambda catalog: upsert_items(catalog, embeddings, groups, ids), save)

    def remove(self, ids: Sequence[Label] | NDArray[Any]) -> None:
        """Remove items, from the next request on; as durable as `upsert`."""
        hosted = self._front.catalog
        if isinstance(hosted, HostedCatalog):
            self._write_hosted(hosted, nothing_written(hosted), removed_hosted(hosted, ids))
            return
        self._change(
            lambda catalog: remove_items(catalog, ids), lambda changes, _: changes.remove(np.asarray(ids).tolist())
        )

    def _change(self, change: Callable[[Catalog], CatalogChange], save: Callable[[SavedItems, Catalog], None]) -> None:
        with self._scheduler.lock:
            self._scheduler.take_lead()
            self._follow_saved()
            changed = change(self._fitted_catalog())  # raises for invalid input, before anything is saved
            check_k(self._coordinator.k, changed.catalog)
            if self._changes is None:
                self._follow_change(changed)
            else:
                # It is applied like a change of another service, so that one that was saved is always applied.
                save(self._changes, changed.catalog)
                self._coordinator.announce()
                self._follow_saved()
            self._scheduler.change(self._with_labels)

    def _write_hosted(self, catalog: HostedCatalog, items: StoredItems, removed: Sequence[Label]) -> None:
        """Change items in the engine, and count them again."""
        with self._scheduler.lock:
            self._scheduler.take_lead()
            self._follow_count(catalog.write(items, removed))

    def recount(self) -> None:
        """Count the items of an engine again, if it is time. Requests and plans go on meanwhile."""
        catalog = self._front.catalog
        if not isinstance(catalog, HostedCatalog):
            return
        waited = time.monotonic() - self._counted_at
        if waited < (_LEAST_SECONDS if catalog.unknown_seen.is_set() else _EVERY_SECONDS):
            return
        try:
            counted = catalog.recounted()
        finally:
            self._counted_at = time.monotonic()  # after it, so that a slow engine is not counted all the time
        with self._scheduler.lock:
            self._follow_count(counted)

    def _follow_count(self, counted: HostedCatalog) -> None:
        """Continue with items that were counted again; promises for each label get those that are new."""
        before, labels = self._front.catalog, self._coordinator.labels
        if counted is before:
            return
        counted = counted if counted.labels == labels else counted.under(labels)
        self._follow_change(CatalogChange(counted, np.arange(before.n_rows)))
        self._follow_labels()

    def follow(self) -> None:
        """Apply the changes of items that were saved since the last call, by this service or another one.

        Promises for each label follow, also where files with other items were put in place, and where a process ended
        after it had saved items.
        """
        self._follow_saved()
        self._follow_labels()

    def _follow_labels(self) -> None:
        """If this replica leads, make promises for labels that came, and end those of labels without items."""
        items, series = self._front.catalog, self._scheduler.state.series
        if not self._scheduler.is_leader:
            self._labelled = None
        elif self._labelled is None or self._labelled[0] is not items or self._labelled[1] is not series:
            promises = self._scheduler.state.promises
            if with_labels(promises, series, items, self._scheduler.now()) != promises:
                self._scheduler.change(self._with_labels)
            self._labelled = items, self._scheduler.state.series

    def _with_labels(self, promises: Mapping[str, ScheduledPromise]) -> dict[str, ScheduledPromise]:
        """Return the promises by id for the labels that items have now.

        A label that comes within an hour, a day or a week has its promise from then on if what is left of that is
        enough, and otherwise from the next one on, like any other promise.
        """
        scheduler, now = self._scheduler, self._scheduler.now()
        wanted = with_labels(promises, scheduler.state.series, self._front.catalog, now)
        come = {name: one for name, one in wanted.items() if name not in promises and one.window.recurs}
        return {**wanted, **scheduler.begun(come, {name: one for name, one in wanted.items() if name not in come})}

    def _follow_saved(self) -> None:
        for change in [] if self._changes is None else self._changes.load():
            changed = change(self._fitted_catalog())
            if changed is not None:
                self._follow_change(changed)

    def _fitted_catalog(self) -> Catalog:
        """Return the items with the groups of the coordinator: other services may have added some."""
        labels = self._coordinator.labels
        return self._front.catalog if self._front.catalog.labels == labels else self._front.catalog.under(labels)

    def _follow_change(self, changed: CatalogChange) -> None:
        groups, known = changed.catalog.groups, self._coordinator.groups
        overlap = self._coordinator.promises is not None
        if overlap or groups.labels != known.labels or (groups.group_sizes != known.group_sizes).any():
            # Labels are saved before the ledger counts them, or a crash in between would leave counts without a label;
            # and the coordinator must know a group before any of its items can be retrieved.
            new = [label for label in groups.labels if label not in set(known.labels)]
            self._scheduler.save_labels([*known.labels, *new])
            self._coordinator.change_items(changed.catalog)
        self._front.follow(changed)
