"""The promise service: answers requests, counts impressions, and reports on promises."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import compress
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from fairsync.candidates import Candidates
from fairsync.errors import FairSyncError, InvalidInputError
from fairsync.schedule import WORST_CASE_TRAFFIC
from fairsync.search.engines.hosted_catalog import HostedCatalog
from fairsync.service.promises.audit import audit_view
from fairsync.service.promises.clock import MonotonicClock
from fairsync.service.promises.cost_monitor import Conditions, CostMonitor
from fairsync.service.promises.costs import Asked
from fairsync.service.promises.impressions import groups_shown
from fairsync.service.promises.item_updates import ItemUpdates
from fairsync.service.promises.overview import StatusReporter
from fairsync.service.promises.preview import RecentRequests
from fairsync.service.promises.promise_changes import check_known
from fairsync.service.promises.promise_editor import PromiseEditor, new_id
from fairsync.service.promises.promise_series import with_labels
from fairsync.service.promises.promise_texts import promise_texts
from fairsync.service.promises.readiness import Readiness
from fairsync.service.promises.saved_state import SavedState
from fairsync.service.promises.scheduler import Scheduler
from fairsync.service.promises.shards import shard_views
from fairsync.service.promises.statement import make_statement
from fairsync.service.schema import ImpressionResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog, Where
    from fairsync.catalog.groups import Groups, Label
    from fairsync.coordination.coordinator import Coordinator
    from fairsync.coordination.front_end import FrontEnd
    from fairsync.explain import Explanation
    from fairsync.schedule import Forecast, ScheduledPromise
    from fairsync.service.promises.reservoir import RequestRules
    from fairsync.service.promises.saved_items import SavedItems
    from fairsync.service.schema import AuditView, Overview, Pace, PastWindow, PromiseView
    from fairsync.service.schema.statement import Statement

_log = logging.getLogger(__name__)
# Weight of one answer in the moving average of degraded answers.
_DEGRADED_WEIGHT = 0.01
# Least time between two plans that are made because more requests came than planned.
_REPLAN_AFTER = timedelta(seconds=0.25)
# Least time between them, as a multiple of the time that the last one took.
_SEARCHES_PER_REPLAN = 4
_NOT_ESTIMATED = "The least possible cost is not estimated where only a search engine holds the items."


class PromiseService:
    """Keeps promises that end by the clock. All methods are thread-safe.

    Parameters
    ----------
    front
        Answers requests.
    coordinator
        The coordinator of the front end; it must not restart its horizon by itself.
    promises
        Promises to begin with. If the ledger holds promises, those count.
    forecast
        Forecast of traffic before any was observed.
    count
        ``"retrieved"``: a candidate is an exposure. ``"impressions"``: a candidate that is reported as shown is one.
    clock
        Returns seconds since 1970; by default a :class:`MonotonicClock`, which also detects clock skew.
    plan_seconds
        Seconds between two plans.
    report_within
        Seconds within which reports of impressions usually arrive.
    worst_case_traffic
        Worst-case traffic, as a fraction of the forecast. Floors that this traffic can still
        deliver are brought forward far enough to be met.
    saved_items
        Saves changes of items. Without it, they last as long as the process.
    budget
        The part of the relevance that all promises together may cost; see :mod:`fairsync.service.promises.budget`.

    Attributes
    ----------
    editor : PromiseEditor
        Makes, changes, previews and ends promises.
    items : ItemUpdates
        Adds, changes and removes items.
    """

    def __init__(
        self,
        front: FrontEnd,
        coordinator: Coordinator,
        promises: Sequence[ScheduledPromise],
        forecast: Forecast,
        *,
        count: str = "retrieved",
        clock: Callable[[], float] | None = None,
        plan_seconds: float = 5.0,
        report_within: float = 60.0,
        worst_case_traffic: float = WORST_CASE_TRAFFIC,
        saved_items: SavedItems | None = None,
        budget: float | None = None,
    ) -> None:
        if count not in ("retrieved", "impressions"):
            raise InvalidInputError(f"count must be 'retrieved' or 'impressions', got {count!r}.")
        self.front, self.coordinator = front, coordinator
        self.count: Literal["retrieved", "impressions"] = "retrieved" if count == "retrieved" else "impressions"
        self._clock = clock or MonotonicClock()
        given = {new_id(): promise for promise in promises}
        series = {name: one for name, one in given.items() if one.promise.each is not None}
        single = {name: one for name, one in given.items() if name not in series}
        initial = SavedState(
            tuple(coordinator.labels),
            with_labels(single, series, front.catalog, datetime.fromtimestamp(self._clock(), UTC)),
            forecast,
            series=series,
        )
        read_clock = self._clock.read if isinstance(self._clock, MonotonicClock) else None
        self.scheduler = Scheduler(
            coordinator, initial, count, self._clock, plan_seconds, report_within, worst_case_traffic, read_clock,
            lambda: self.front.catalog, budget,
        )  # fmt: skip
        self.cost_monitor = CostMonitor(self._conditions)
        if isinstance(front.catalog, HostedCatalog):
            self.cost_monitor.reason = _NOT_ESTIMATED
        self.readiness = Readiness(coordinator.ledger)
        self.experiment = ""  # the A/B test that this is an arm of
        self.is_saved = False  # whether it was closed, and its state saved
        self.degraded, self._recent, self._replanned_at = 0.0, RecentRequests(), self.scheduler.now()
        self._reporter = StatusReporter(self.scheduler, self.cost_monitor, self.count)
        self.editor = PromiseEditor(front, coordinator, self.scheduler, self._reporter, self._recent)
        self.items = ItemUpdates(front, coordinator, self.scheduler, saved_items)
        with self.scheduler.lock:
            self.items.follow()

    @property
    def catalog(self) -> Catalog:
        """The items as they are now."""
        return self.front.catalog

    @property
    def groups(self) -> Groups:
        """The groups that promises can be made to."""
        return self.coordinator.groups

    @property
    def k(self) -> int:
        """Candidates per request, unless it asks for another number."""
        return self.coordinator.k

    def retrieve(
        self,
        users: NDArray[np.floating[Any]],
        request_ids: Sequence[str | None] | None = None,
        k: int | None = None,
        callback: Callable[[Candidates], None] | None = None,
        *,
        exclude: Sequence[Any] | None = None,
        where: Where | Sequence[Where | None] | None = None,
        explain: bool = False,
        checked: bool = False,
    ) -> Candidates:
        """Return the candidates of requests; see :meth:`fairsync.FrontEnd.retrieve`.

        A request whose condition no item meets gets an empty list. The candidates are passed to `callback` first, so
        that clients need not wait for sampling and planning.
        """
        catalog = self.catalog
        with self.readiness.serving():
            found = self.front.retrieve(
                users, k=k, request_ids=request_ids, exclude=exclude, where=where, checked=checked, allow_empty=True,
                explain=explain and promise_texts(
                    self.scheduler.state.promises.values(), self.scheduler.now(), self.scheduler.attribute
                ),
            )  # fmt: skip
        for one in found.explained:  # here, and not by the thread that encodes the answers of all callers
            if one is not None:
                one.explanation()
        if callback is not None:
            callback(found)
        if not len(found):
            return found
        vectors, totals = np.asarray(users), self.coordinator.totals()
        vectors = vectors if vectors.ndim == 3 else vectors[:, None]
        warm = found
        if found.cold.any():  # costs are estimated without cold requests, whose vectors are zero
            vectors, warm = vectors[~found.cold], found.take(np.flatnonzero(~found.cold))
        self._recent.add(vectors)
        # Otherwise the items that were searched are not known.
        if self.catalog is catalog and catalog.weights is None:
            rules = None if exclude is None and where is None else _by_request(exclude, where, ~found.cold)
            self.cost_monitor.observe(catalog, self.k, totals.began, vectors, warm, rules)
        weight, lacking = min(_DEGRADED_WEIGHT * len(found), 1.0), np.count_nonzero(found.searched < 1)
        self.degraded += weight * (lacking / len(found) - self.degraded)
        if totals.requests >= self.coordinator.terms.horizon:
            self._replan()
        return found

    def explain(self, request_id: str) -> Explanation:
        """Return why the candidates of an earlier request are there; see :meth:`fairsync.FrontEnd.explain`."""
        with self.readiness.serving():
            return self.front.explain(request_id)

    def record_impressions(
        self, request_id: str, items: Sequence[Label], report_id: str | None = None
    ) -> ImpressionResult:
        """Count the items of an answer that were shown. Idempotent: a repeated report counts once.

        Parameters
        ----------
        request_id
            The request that was answered.
        items
            Ids of the items that were shown.
        report_id
            Distinguishes several reports on one request.
        """
        answer = self.coordinator.answers([request_id]).get(request_id)
        shown = groups_shown(items, answer, self.catalog)
        unknown = len(set(items)) - len(shown)
        if answer and not self.front.count_cold and Candidates.load(answer).cold.any():
            return ImpressionResult(counted=0, repeated=0, unknown=unknown)
        if self.coordinator.promises is None:
            codes = np.array([self.groups.code_of(label) for label in shown.values()], dtype=np.int64)
            counts = np.bincount(codes, minlength=len(self.coordinator.labels))
        else:
            counts = self.front.count(list(shown))
        key = json.dumps(["shown", request_id, report_id])  # as all versions have written it
        with self.readiness.serving():
            is_new = self.coordinator.record_impressions(counts, key)
        return ImpressionResult(counted=len(shown) if is_new else 0, repeated=int(not is_new), unknown=unknown)

    def refresh(self) -> None:
        """Read clock and traffic, and plan or estimate costs if it is time. To be called every second or so."""
        with self.scheduler.lock:
            if self.scheduler.refresh():
                self._reporter.record_paces()
            self.scheduler.learn_exposure_costs(self.cost_monitor.exposure_costs)
            self.items.follow()
        self.items.recount()
        self.cost_monitor.refresh()

    def promises(self) -> list[PromiseView]:
        """Return every promise with its state."""
        return list(self._reporter.promises().values())

    def overview(self) -> Overview:
        """Return the state of the whole service."""
        skew = self._clock.skew if isinstance(self._clock, MonotonicClock) else 0.0
        overview = self._reporter.overview(len(self.catalog), shard_views(self.front.index), self.degraded, skew)
        return msgspec.structs.replace(overview, experiment=self.experiment) if self.experiment else overview

    def pace(self, name: str) -> Pace:
        """Return the pace of a promise in its present window."""
        with self.scheduler.lock:
            check_known(name, self.scheduler.state.promises)
            return self._reporter.pace(name)

    def past(self, limit: int = 200) -> list[PastWindow]:
        """Return the latest windows that are over, the latest first."""
        return self._reporter.past(limit)

    def audit(self, limit: int = 100, before: int | None = None) -> AuditView:
        """Return who made, changed and ended which promise, the latest first, and whether anything is missing.

        Parameters
        ----------
        limit
            Largest number of entries.
        before
            Number of an entry; only earlier ones are returned.
        """
        return audit_view(self.coordinator.ledger.audit(limit, before))

    def statement(self, attribute: str, label: str, month: str) -> Statement:
        """Return what was promised to a label in a month, and what it got; see :mod:`.statement`."""
        ledger, now = self.coordinator.ledger, self.scheduler.now()
        return make_statement(ledger, self.catalog, self.count, attribute, label, month, now)

    def check_ready(self) -> None:
        """Probe ledger and shards for :meth:`ready`. Apart from :meth:`refresh`, because shards may take a second."""
        self.readiness.refresh(shard_views(self.front.index))

    def ready(self) -> tuple[bool, str]:
        """Return whether requests can be answered, and if not, why."""
        return self.readiness.verdict()

    def close(self) -> None:
        """Save the state. The ledger stays open: it belongs to the caller."""
        self.readiness.drain()
        self.cost_monitor.close()
        with self.scheduler.lock:
            self.scheduler.save()
            self.coordinator.save()
        self.is_saved = True

    def _replan(self) -> None:
        """Plan because more requests came than planned; an error must not lose an answer."""
        now = self.scheduler.now()
        if now - self._replanned_at < _REPLAN_AFTER:
            return
        began = time.monotonic()
        try:
            self.refresh()
        except FairSyncError as error:
            _log.warning("no new plan could be made: %s", error)
        # The search thread plans: beside thousands of promises it must have time left to search.
        self._replanned_at = now + _SEARCHES_PER_REPLAN * timedelta(seconds=time.monotonic() - began)

    def _conditions(self) -> Conditions:
        """Return what an estimate of the costs depends on."""
        scheduler = self.scheduler
        with scheduler.lock:  # items change under this lock too
            terms = self.coordinator.terms
            items = self.front.items_under(terms.membership)
            n = items.membership.n_promises  # the ledger may count groups that these items do not have yet
            counted = np.maximum(scheduler.periods.counted(), 1)
            floors = np.clip(scheduler.missing_at_start() / counted, 0.0, 1.0)
            caps = np.maximum(scheduler.room_at_start() / counted, 1.0)
            asked = Asked(items.searched.group_of, items.membership, floors[:n], caps[:n], terms.list_limits)
            prices, labels = self.coordinator.prices()[:n], tuple(self.coordinator.labels[:n])
            missing = scheduler.missing_without_cost()
            return Conditions(items.catalog, items.index, asked, prices, labels, missing, scheduler.now())


def _by_request(
    exclude: Sequence[Any] | None, where: Where | Sequence[Where | None] | None, of: NDArray[np.bool_]
) -> list[RequestRules]:
    """Return the rules of some of the requests."""
    n = len(of)
    conditions = [where] * n if where is None or isinstance(where, Mapping) else where
    rules = zip([None] * n if exclude is None else exclude, conditions, strict=True)
    return list(compress(rules, of.tolist()))
