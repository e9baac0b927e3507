"""The keeper of promises: it answers requests, takes reports and changes, and says where everything stands."""

from __future__ import annotations

import json
import logging
import uuid
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.candidates import Candidates
from fairsync.catalog.changes import remove_items, upsert_items
from fairsync.errors import (
    FairSyncError,
    InfeasibleFloorsError,
    InvalidInputError,
    UnknownPromiseError,
)
from fairsync.schedule import WORST_CASE_TRAFFIC, check_promise
from fairsync.service.promises.clock import SteadyClock
from fairsync.service.promises.cost_monitor import CostMonitor
from fairsync.service.promises.overview import Paces, make_overview, shards_of
from fairsync.service.promises.preview import RecentRequests
from fairsync.service.promises.projections import Projections
from fairsync.service.promises.promises import as_before, check_alone, promise_of, split_at
from fairsync.service.promises.readiness import Readiness
from fairsync.service.promises.saved_state import SavedState
from fairsync.service.promises.scheduler import Scheduler
from fairsync.service.schema import ImpressionResult, Preview

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from fairsync.catalog import Catalog
    from fairsync.catalog.changes import CatalogChange
    from fairsync.catalog.groups import Label
    from fairsync.coordination.base import CoordinatorBase
    from fairsync.coordination.front_end import FrontEnd
    from fairsync.schedule import Feasibility, Forecast, Promise
    from fairsync.service.schema import ImpressionReport, Overview, Pace, PastWindow, PromiseRecord, PromiseView

_log = logging.getLogger(__name__)
# How fast the share of degraded answers is forgotten, per answer.
_FORGETTING = 0.01
# An alert that was not told for so long has ended.
_PASSED = timedelta(minutes=5)
# Between two plans, however many requests come.
_SOON = timedelta(seconds=0.25)


class PromiseService:
    """Keeps promises that end by the clock. All methods may be called from many threads at once.

    Parameters
    ----------
    front
        Answers requests.
    coordinator
        Of the front end; it must not roll over by itself.
    promises
        Made at the very start; afterwards those in the ledger count.
    forecast
        Of traffic, as long as none was seen.
    count
        ``"retrieved"``: a candidate is an exposure. ``"impressions"``: what is reported to be shown is one.
    clock
        Seconds since 1970.
    plan_seconds
        Plans are made anew so often.
    shown_within
        Seconds within which reports of what was shown usually come.
    worst_case_traffic
        Floors are to be met even if traffic falls to this part of what is expected, from one moment to the next.
    """

    def __init__(
        self,
        front: FrontEnd,
        coordinator: CoordinatorBase,
        promises: Sequence[Promise],
        forecast: Forecast,
        *,
        count: str = "retrieved",
        clock: Callable[[], float] | None = None,
        plan_seconds: float = 5.0,
        report_within: float = 60.0,
        worst_case_traffic: float = WORST_CASE_TRAFFIC,
    ) -> None:
        if count not in ("retrieved", "impressions"):
            raise InvalidInputError(f"count must be 'retrieved' or 'shown', got {count!r}.")
        self.front, self.coordinator, self.count = front, coordinator, count
        made = {uuid.uuid4().hex[:12]: promise for promise in promises}
        notes = SavedState(tuple(coordinator.labels), made, forecast)
        self.scheduler = Scheduler(
            coordinator, notes, count, clock or SteadyClock(), plan_seconds, report_within, worst_case_traffic
        )
        self.recent, self.paces, self.cost_monitor, self.degraded = RecentRequests(), Paces(), CostMonitor(), 0.0
        self._told: dict[str, tuple[datetime, datetime]] = {}
        self.readiness = Readiness(coordinator.ledger)
        self.started = self._looked_at = self.scheduler.now()
        self.paces.note(self.scheduler)

    @property
    def catalog(self) -> Catalog:
        """The items as they are now."""
        return self.front.catalog

    @property
    def k(self) -> int:
        """Candidates per request, unless it asks for another number."""
        return self.coordinator.k

    def retrieve(
        self,
        users: NDArray[np.floating[Any]],
        request_ids: Sequence[str | None] | None = None,
        k: int | None = None,
        deliver: Callable[[Candidates], None] | None = None,
    ) -> Candidates:
        """Return the candidates of requests; see :meth:`fairsync.FrontEnd.retrieve`.

        Who waits for them can be told by `deliver`, before the keeper takes notes of what was answered.
        """
        catalog = self.catalog
        with self.readiness.serving():
            found = self.front.retrieve(users, k, request_ids)
        if deliver is not None:
            deliver(found)
        if not len(found):
            return found
        vectors, totals = np.asarray(users), self.coordinator.totals()
        vectors = vectors if vectors.ndim == 3 else vectors[:, None]
        self.recent.add(vectors)
        if self.catalog is catalog:  # otherwise it is not known from which items the answers came
            self.cost_monitor.note(catalog, self.k, totals.began, vectors, found)
        weight, lacking = min(_FORGETTING * len(found), 1.0), np.count_nonzero(found.searched < 1)
        self.degraded += weight * (lacking / len(found) - self.degraded)
        if totals.requests >= self.coordinator.terms.horizon:
            self._look_ahead()
        return found

    def show(self, reports: Sequence[ImpressionReport]) -> ImpressionResult:
        """Count what was really shown. Reports may come late, out of order, and twice."""
        counted = repeated = unknown = 0
        for report in reports:
            labels, strange = self._shown_groups(report)
            unknown += strange
            counts = self._count(labels)
            with self.readiness.serving():
                new = self.coordinator.record_impressions(
                    counts, json.dumps(["impressions", report.request_id, report.report_id])
                )
            if new:
                counted += len(labels)
            else:
                repeated += 1
        return ImpressionResult(counted=counted, repeated=repeated, unknown=unknown)

    def refresh(self) -> None:
        """Look at clock and traffic, and do what is due. To be called every second or so."""
        with self.scheduler.lock:
            if self.scheduler.refresh():
                self.paces.note(self.scheduler)
        self.cost_monitor.refresh(self)

    def _look_ahead(self) -> None:
        """Plan anew because more came than the plan counted on; what goes wrong must not lose an answer."""
        if abs(self.scheduler.now() - self._looked_at) < _SOON:
            return
        self._looked_at = self.scheduler.now()
        try:
            self.refresh()
        except FairSyncError as error:
            _log.warning("no new plan could be made: %s", error)

    def promises(self) -> list[PromiseView]:
        """Return every promise and where it stands."""
        with self.scheduler.lock:
            projections = Projections(self)
            return [projections.view(name, made) for name, made in self.scheduler.notes.promises.items()]

    def preview(self, given: PromiseRecord, replacing: str | None = None) -> Preview:
        """Return what would come of a promise, without making it."""
        asked = promise_of(given, self.coordinator.groups)
        with self.scheduler.lock:
            promises = self.scheduler.notes.promises
            others = _others(promises, replacing)
            promise = asked if replacing is None else as_before(asked, promises[replacing])
            verdict = self._verdict(promise, others)
            rates = self._rates([*others.values(), promise])
        estimate = self.recent.estimate(self.catalog, self.front.index, self.k, rates) if verdict.accepted else None
        return Preview(
            feasible=verdict.accepted,
            largest=verdict.largest,
            safe=verdict.largest_safe,
            cost=None if estimate is None else estimate.cost,
            cost_share=None if estimate is None else estimate.share,
            message=verdict.message,
        )

    def set_promise(self, given: PromiseRecord, name: str | None = None) -> PromiseView:
        """Make a promise, or change one; refused if the expected traffic cannot carry it.

        What is left of an hour, a day or a week may be too little for it. Then it begins with the next: promises that
        were made before do not suffer. If it changes one, that one holds until then, under another name.
        """
        asked, made = promise_of(given, self.coordinator.groups), name or uuid.uuid4().hex[:12]

        def decide(promises: Mapping[str, Promise]) -> Mapping[str, Promise]:
            others, before = _others(promises, name), promises.get(made)
            promise = as_before(asked, before)
            check_alone(promise, others)
            verdict = self._verdict(promise, others)
            if not verdict.accepted:
                raise InfeasibleFloorsError(
                    promise.group, promise.floor, verdict.reason, verdict.largest, verdict.remedy
                )
            assert verdict.effective_from is not None, "it was accepted"
            parts = split_at(before, promise, verdict.effective_from, self.scheduler.now())
            return {**promises, **dict(zip([made, uuid.uuid4().hex[:12]], parts, strict=False))}

        with self.scheduler.lock:
            self.scheduler.change(decide)
            return Projections(self).view(made, self.scheduler.notes.promises[made])

    def delete_promise(self, name: str) -> None:
        """Take a promise back."""
        with self.scheduler.lock:
            self.scheduler.change(lambda promises: _others(promises, name))

    def upsert_items(
        self, embeddings: ArrayLike, groups: Sequence[Label] | NDArray[Any], ids: Sequence[Label] | NDArray[Any]
    ) -> None:
        """Add items, or replace those whose ids are known, from the next request on, until the next restart.

        A restart reads the catalog's files again: write changes there too.
        """
        self._change(lambda catalog: upsert_items(catalog, embeddings, groups, ids))

    def remove_items(self, ids: Sequence[Label] | NDArray[Any]) -> None:
        """Take items out, from the next request on, until the next restart."""
        self._change(lambda catalog: remove_items(catalog, ids))

    def overview(self) -> Overview:
        """Return where everything stands."""
        return make_overview(self)

    def since(self, what: str, now: datetime) -> datetime:
        """Return since when something has been so, that is told time and again."""
        known = self._told.get(what)
        # What was not told for a while had passed, and has begun again.
        began = now if known is None or abs(now - known[1]) > _PASSED else known[0]
        self._told[what] = (began, now)
        return began

    def pace(self, name: str) -> Pace:
        """Return how a promise has come along in its present window."""
        with self.scheduler.lock:
            _others(self.scheduler.notes.promises, name)
            return self.paces.of(Projections(self), name, self.scheduler.notes.promises[name])

    def past(self, limit: int = 200) -> list[PastWindow]:
        """Return the latest windows that are over, the latest first."""
        now = self.scheduler.now()  # the clock may have been ahead, and set back
        return [one for one in self.scheduler.notes.past[::-1] if one.end <= now][:limit]

    def check_ready(self) -> None:
        """Find out whether requests can be answered, after a look. Apart from it, for shards may take a second."""
        self.readiness.refresh(shards_of(self))

    def ready(self) -> tuple[bool, str]:
        """Return whether requests can be answered, and if not, why."""
        return self.readiness.verdict()

    def close(self) -> None:
        """Write down what was learnt. The ledger stays open: it is the caller's."""
        self.readiness.end()
        self.cost_monitor.close()
        with self.scheduler.lock:
            self.scheduler.save()
            self.coordinator.save()

    def _verdict(self, promise: Promise, others: Mapping[str, Promise]) -> Feasibility:
        scheduler = self.scheduler
        exposures = {**scheduler.exposures(), promise: scheduler.exposures_of(promise)}
        now, caps, shares = scheduler.now(), scheduler.caps(), scheduler.shares()
        return check_promise(promise, others.values(), exposures, scheduler.traffic(), now, self.k, caps, shares)

    def _rates(self, promises: Sequence[Promise]) -> dict[Label, float]:
        """Return the exposures per request that promises ask for in the long run."""
        now, forecast = self.scheduler.now(), self.scheduler.notes.forecast
        rates: dict[Label, float] = {}
        for promise in promises:
            span = promise.window.at(now) or promise.window.after(now)
            if span is not None:
                requests = max(forecast.expected(span.start, span.end, now), 1.0)
                rates[promise.group] = max(rates.get(promise.group, 0.0), promise.floor / requests)
        return rates

    def _count(self, labels: Sequence[Label]) -> NDArray[np.int64]:
        codes = np.array([self.coordinator.groups.code_of(label) for label in labels], dtype=np.int64)
        return np.bincount(codes, minlength=len(self.coordinator.labels))

    def _shown_groups(self, report: ImpressionReport) -> tuple[list[Label], int]:
        """Return the groups of the items that a report names, and how many it names that cannot have been shown."""
        items = list(dict.fromkeys(report.items))
        answer = self.coordinator.answer(report.request_id)
        if answer:
            found = Candidates.load(answer)
            group_of = dict(zip(found.ids[0].tolist(), found.groups[0].tolist(), strict=True))
            labels = [group_of[item] for item in items if item in group_of]
            return labels, len(items) - len(labels)
        catalog, kind = self.catalog, str if self.catalog.ids.dtype.kind == "U" else int
        fitting = [item for item in items if isinstance(item, kind)]
        if not fitting:
            return [], len(items)
        rows = catalog.rows_of(np.array(fitting))
        labels = catalog.labels_of(catalog.group_of[rows[rows >= 0]]).tolist()
        return labels, len(items) - len(labels)

    def _change(self, change: Callable[[Catalog], CatalogChange]) -> None:
        with self.scheduler.lock:
            changed = change(self.catalog)
            terms, totals = self.coordinator.terms, self.coordinator.totals()
            missing = np.maximum(terms.floors - totals.exposures, 0).tolist()
            more = dict(zip(self.coordinator.labels, missing, strict=True))
            # Labels are noted before the ledger counts them, or a kill in between would leave counts without a name;
            # and the coordinator must know a group before anything of it can be found.
            self.scheduler.note_labels(changed.catalog.labels)
            self.coordinator.set_targets(more, max(terms.horizon - totals.requests, 1), groups=changed.catalog.groups)
            self.front.follow(changed)
            self.scheduler.change(lambda promises: promises)


def _others(promises: Mapping[str, Promise], name: str | None) -> dict[str, Promise]:
    """Return all promises but one."""
    if name is not None and name not in promises:
        raise UnknownPromiseError(f"there is no promise {name!r}.")
    return {other: promise for other, promise in promises.items() if other != name}
