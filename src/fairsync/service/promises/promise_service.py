"""The promise service: answers requests, counts impressions, changes promises and items, and reports on all of it."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import time
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from fairsync.candidates import Candidates
from fairsync.catalog.changes import CatalogChange, remove_items, upsert_items
from fairsync.errors import CallCancelledError, FairSyncError, InfeasibleFloorsError, InvalidInputError
from fairsync.inputs import check_k
from fairsync.schedule import WORST_CASE_TRAFFIC
from fairsync.search.engines.hosted_catalog import HostedCatalog
from fairsync.service.promises.audit import audit_view
from fairsync.service.promises.clock import MonotonicClock
from fairsync.service.promises.cost_monitor import Conditions, CostMonitor
from fairsync.service.promises.costs import AskedOfAtoms
from fairsync.service.promises.first_days import days_of
from fairsync.service.promises.hosted_items import Recount, nothing_written, removed_hosted, upsert_hosted
from fairsync.service.promises.impressions import groups_shown, items_shown
from fairsync.service.promises.list_limits import check_list_limits
from fairsync.service.promises.overview import StatusReporter
from fairsync.service.promises.preview import PreviewLimit, RecentRequests, exposure_rates
from fairsync.service.promises.promise_changes import all_but, check_known, check_unique_all, split_at, with_start_of
from fairsync.service.promises.promise_series import promises_of, series_of, with_labels
from fairsync.service.promises.promise_texts import promise_texts
from fairsync.service.promises.readiness import Readiness
from fairsync.service.promises.saved_state import SavedState
from fairsync.service.promises.scheduler import Scheduler
from fairsync.service.promises.shards import shard_views
from fairsync.service.promises.statement import make_statement
from fairsync.service.schema import ImpressionResult, Preview

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray

    from fairsync.catalog import Catalog, Where
    from fairsync.catalog.groups import Groups, Label
    from fairsync.coordination.coordinator import Coordinator
    from fairsync.coordination.front_end import FrontEnd
    from fairsync.explain import Explanation
    from fairsync.schedule import Feasibility, Forecast, ScheduledPromise
    from fairsync.search.engines.engine import StoredItems
    from fairsync.service.promises.item_changes import ItemChanges
    from fairsync.service.promises.planning import FeasibilityCheck
    from fairsync.service.promises.reservoir import RequestRules
    from fairsync.service.schema import AuditView, Overview, Pace, PastWindow, PromiseView
    from fairsync.service.schema.statement import Statement

_log = logging.getLogger(__name__)
# Weight of one answer in the moving average of degraded answers.
_DEGRADED_WEIGHT = 0.01
# Least time between two plans that are made because more requests came than planned.
_REPLAN_AFTER = timedelta(seconds=0.25)
# Least time between them, as a multiple of the time that the last one took.
_SEARCHES_PER_REPLAN = 4
# Checks of the first days of items when a promise for each is changed, at most.
_MOST_CHECKS = 16
_NOT_ESTIMATED = "The least possible cost is not estimated where only a search engine holds the items."
# Promises that a refusal names.
_MOST_NAMED = 3
# A refusal of more promises together than this names the first window that has no room for them, and no more.
_MANY = 100


class _PromisesChanged(Exception):  # noqa: N818
    """Promises were changed while another was checked beside them."""


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
    item_changes
        Saves changes of items. Without it, they last as long as the process.
    budget
        The part of the relevance that all promises together may cost; see :mod:`fairsync.service.promises.budget`.
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
        item_changes: ItemChanges | None = None,
        budget: float | None = None,
    ) -> None:
        if count not in ("retrieved", "impressions"):
            raise InvalidInputError(f"count must be 'retrieved' or 'impressions', got {count!r}.")
        self.front, self.coordinator, self._item_changes = front, coordinator, item_changes
        self.count: Literal["retrieved", "impressions"] = "retrieved" if count == "retrieved" else "impressions"
        self._clock = clock or MonotonicClock()
        given = {_new_id(): promise for promise in promises}
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
            front.catalog.group_attribute, lambda: self.front.catalog, budget,
        )  # fmt: skip
        self.cost_monitor = CostMonitor(self._conditions)
        if isinstance(front.catalog, HostedCatalog):
            self.cost_monitor.reason = _NOT_ESTIMATED
        self.readiness, self._preview_limit = Readiness(coordinator.ledger), PreviewLimit()
        self.experiment = ""  # the A/B test that this is an arm of
        self._recount = Recount()
        self.is_saved = False  # whether it was closed, and its state saved
        self.degraded, self._recent, self._replanned_at = 0.0, RecentRequests(), self.scheduler.now()
        self._reporter = StatusReporter(self.scheduler, self.cost_monitor, self.count)
        with self.scheduler.lock:
            self._follow_items()

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
        labels, unknown = groups_shown(items, answer, self.catalog)
        if answer and not self.front.count_cold and Candidates.load(answer).cold.any():
            return ImpressionResult(counted=0, repeated=0, unknown=unknown)
        if self.coordinator.promises is None:
            codes = np.array([self.groups.code_of(label) for label in labels], dtype=np.int64)
            counts = np.bincount(codes, minlength=len(self.coordinator.labels))
        else:
            counts = self.front.count(items_shown(items, answer, self.catalog))
        key = json.dumps(["shown", request_id, report_id])  # as all versions have written it
        with self.readiness.serving():
            is_new = self.coordinator.record_impressions(counts, key)
        return ImpressionResult(counted=len(labels) if is_new else 0, repeated=int(not is_new), unknown=unknown)

    def refresh(self) -> None:
        """Read clock and traffic, and plan or estimate costs if it is time. To be called every second or so."""
        with self.scheduler.lock:
            if self.scheduler.refresh():
                self._reporter.record_paces()
            self.scheduler.learn_exposure_costs(self.cost_monitor.exposure_costs)
            self._follow_items()
        self._recount_items()
        self.cost_monitor.refresh()

    def preview(
        self, promise: ScheduledPromise, replacing: str | None = None, is_cancelled: Callable[[], bool] = lambda: False
    ) -> Preview:
        """Return what a promise would lead to, without making it.

        It is computed on a snapshot, and few at a time, so that planning and requests go on meanwhile.

        Parameters
        ----------
        promise
            The promise.
        replacing
            Id of the promise that it would replace.
        is_cancelled
            Asked every now and then; whether nobody waits for the answer any longer.
        """
        with self._preview_limit:
            return self._preview(promise, replacing, partial(_check_wanted, is_cancelled))

    def _preview(self, promise: ScheduledPromise, replacing: str | None, checkpoint: Callable[[], None]) -> Preview:
        with self.scheduler.lock:
            promises, others = self.scheduler.state.promises, self._all_but(replacing)
            asked = self._asked({replacing or _new_id(): promise}, promises)
            checks = [check for check, _ in self._prepare_checks({"": promise}, asked, others)]
            names = {one: name for name, one in others.items()}
            rates = exposure_rates(
                [*others.values(), *asked.values()], self.scheduler.state.forecast, self.scheduler.now(), self.k,
                self.catalog.group_attribute,
            )  # fmt: skip
            prices, catalog, index = self.coordinator.prices(), self.catalog, self.front.index
        verdicts = [(check, check.run(checkpoint)) for check in checks]
        check, verdict = next(((one, found) for one, found in verdicts if not found.accepted), verdicts[0])
        estimate = None
        is_known = catalog.weights is None and all(label in catalog.labels for label in rates)
        if verdict.accepted and self.coordinator.promises is None and is_known:
            estimate = self._recent.estimate(catalog, index, self.k, rates, prices, checkpoint)
        largest, safe, share = verdict.largest, verdict.largest_safe, None
        if isinstance(verdict.promise.promise.at_least, float):
            span, share = verdict.tightest, verdict.largest
            slots = self.k * check.traffic.expected(span.start, span.end, check.now)
            largest, safe = (math.floor(one * slots) for one in (largest, safe))
        return Preview(
            feasible=verdict.accepted,
            largest=int(largest),
            safe=int(safe),
            largest_share=share,
            pushes_out=[names[one] for one in check.pushes_out(verdict) if one in names],
            least_cost=None if estimate is None else estimate.cost,
            least_cost_share=None if estimate is None else estimate.share,
            message=verdict.message,
        )

    def set_promise(
        self,
        promise: ScheduledPromise,
        name: str | None = None,
        by: str = "",
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> PromiseView:
        """Make a promise, or change one; refused if the expected traffic cannot deliver it.

        The rest of an hour, a day or a week may be too short for it. Then it begins with the next window, so that
        promises made before do not suffer. If it changes a promise, that one holds until then, under another id.

        Parameters
        ----------
        promise
            The promise. One with `each` stands for a promise to each label, of which the first is returned.
        name
            Id of the promise that it changes; a new one is made without it.
        by
            Who asks for it, for the audit.
        is_cancelled
            Asked every now and then; whether nobody waits for the answer any longer. Then nothing is changed.
        """
        return self._set_promises({name or _new_id(): promise}, name, by, is_cancelled)[0]

    def make_promises(
        self,
        promises: Sequence[ScheduledPromise],
        by: str = "",
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> list[PromiseView]:
        """Make promises together, or none of them if they cannot all be kept; see `set_promise`."""
        return self._set_promises({_new_id(): promise for promise in promises}, None, by, is_cancelled)

    def _set_promises(
        self, given: Mapping[str, ScheduledPromise], changed: str | None, by: str, is_cancelled: Callable[[], bool]
    ) -> list[PromiseView]:
        """Set promises by id, if all of them can be kept; one of them may be known."""
        checkpoint = partial(_check_wanted, is_cancelled)
        while True:
            with self.scheduler.lock:
                self.scheduler.take_lead()
                seen, known = self.scheduler.state.promises, self.scheduler.state.series
                others = self._all_but(changed)
                asked = self._asked(given, seen)
                check_unique_all(asked, others)
                self._check_budget(asked)
                series = {name: one for name, one in known.items() if name != changed}
                series |= {name: one for name, one in given.items() if one.promise.each is not None}
                checks = self._prepare_checks(given, asked, others)
            check_list_limits(self.catalog, asked.values(), others.values())
            # Beside thousands of promises a check takes seconds, and planning and requests go on meanwhile.
            starts = {}
            for check, names in checks:
                verdict = check.run(checkpoint, up_to_asked=True)
                if not verdict.accepted and len(asked) > _MANY:
                    raise _refusal(verdict, (), len(asked))
                if not verdict.accepted:
                    verdict = check.run(checkpoint)
                    raise _refusal(verdict, check.pushes_out(verdict), len(asked))
                assert verdict.effective_from is not None, "it was accepted"
                starts.update(dict.fromkeys(names, verdict.effective_from))
            with self.scheduler.lock, contextlib.suppress(_PromisesChanged):
                checkpoint()
                self.scheduler.change(partial(self._change, asked, starts, others, seen), by, series)
                views = self._reporter.promises()
                return [views[name] for name in asked if name in views]

    def _prepare_checks(
        self,
        given: Mapping[str, ScheduledPromise],
        asked: Mapping[str, ScheduledPromise],
        others: Mapping[str, ScheduledPromise],
    ) -> list[tuple[FeasibilityCheck, list[str]]]:
        """Return the checks of what is asked for. First days that are over stay over, and need none."""
        if all(days_of(one.window) is None for one in given.values()):
            return self.scheduler.prepare_checks(asked, others)
        now = self.scheduler.now()
        open_ = {name: one for name, one in asked.items() if one.window.end is None or one.window.end > now}
        if not open_:
            raise InvalidInputError("all items have had their first days: make another promise for those that come.")
        return self.scheduler.prepare_checks(open_, others, _MOST_CHECKS)

    def _check_budget(self, asked: Mapping[str, ScheduledPromise]) -> None:
        """Refuse floors that would give way to the budget at once."""
        budget = self.scheduler.budget
        for promise in asked.values():
            if budget is not None and budget.gives_way(promise):
                reason = f"{promise} cannot be kept: {budget.text(self.scheduler.spent(self.scheduler.now()))}"
                higher = "Give it a smaller number as its priority, end" if (budget.cut or 1) > 1 else "End"
                remedy = f"{higher} other promises, or raise the budget."
                names = [promise.promise.name]
                raise InfeasibleFloorsError(promise.promise.name, 0, reason.rstrip("."), 0, remedy, names)

    def _all_but(self, name: str | None) -> dict[str, ScheduledPromise]:
        """Return all promises but one, or but those of one series."""
        state = self.scheduler.state
        if name in state.series:
            return {other: one for other, one in state.promises.items() if series_of(other, state.series) != name}
        series = None if name is None else series_of(name, state.series)
        if series is not None:
            raise InvalidInputError(f"{name!r} is one of a promise for each label: change or delete {series!r}.")
        return all_but(name, state.promises)

    def _asked(
        self, given: Mapping[str, ScheduledPromise], seen: Mapping[str, ScheduledPromise]
    ) -> dict[str, ScheduledPromise]:
        """Return what is asked for by id: promises for each label one by one, with the starts of those they replace."""
        asked: dict[str, ScheduledPromise] = {}
        for name, promise in given.items():
            each_label = promise.promise.each is not None
            now = self.scheduler.now()
            asked |= promises_of(name, promise, self.catalog, now, seen) if each_label else {name: promise}
        if not asked:
            raise InvalidInputError("no item has a label of that attribute: add items first.")
        return {name: with_start_of(one, seen.get(name)) for name, one in asked.items()}

    def _change(
        self,
        asked: Mapping[str, ScheduledPromise],
        starts: Mapping[str, datetime],
        others: Mapping[str, ScheduledPromise],
        seen: Mapping[str, ScheduledPromise],
        promises: Mapping[str, ScheduledPromise],
    ) -> Mapping[str, ScheduledPromise]:
        """Return the promises with new ones, if they are still those beside which these were checked."""
        if promises != seen:
            raise _PromisesChanged
        made, now = dict(others), self.scheduler.now()
        for name, promise in asked.items():
            start, following = starts.get(name, now), promise.window.after(now)
            if promise.window.recurs and following is not None and not self.scheduler.counts_since_start(promise, now):
                start = max(start, following.start)  # nobody knows what the present window has had
            parts = split_at(promises.get(name), promise, start, now)
            made |= dict(zip([name, _new_id()], parts, strict=False))
        return made

    def delete_promise(self, name: str, by: str = "") -> None:
        """End a promise, or a promise for each label; `by` is who asks for it, for the audit."""
        with self.scheduler.lock:
            self.scheduler.take_lead()
            others, series = self._all_but(name), self.scheduler.state.series
            self.scheduler.change(lambda _: others, by, {other: one for other, one in series.items() if other != name})

    def upsert_items(
        self,
        embeddings: ArrayLike | None,
        groups: Sequence[Label] | NDArray[Any] | Mapping[str, Any],
        ids: Sequence[Label] | NDArray[Any],
    ) -> None:
        """Add items, or change those with known ids, from the next request on; see :meth:`FairRetriever.upsert`.

        With a durable ledger the change survives a restart (:mod:`fairsync.service.promises.item_changes`). Items that
        only an engine holds are changed there.
        """
        hosted = self.catalog
        if isinstance(hosted, HostedCatalog):
            self._write_hosted(hosted, upsert_hosted(hosted, embeddings, groups, ids), [])
            return

        def save(changes: ItemChanges, after: Catalog) -> None:
            rows = after.rows_of(np.asarray(ids))
            given = groups if isinstance(groups, Mapping) else [after.group_attribute]
            changed = [*after.attributes] if embeddings is not None else [*given]
            attributes = {name: after.attributes[name].take(rows).values() for name in changed}
            changes.upsert(after.ids[rows].tolist(), attributes, None if embeddings is None else after.embeddings[rows])

        self._change_items(lambda catalog: upsert_items(catalog, embeddings, groups, ids), save)

    def remove_items(self, ids: Sequence[Label] | NDArray[Any]) -> None:
        """Remove items, from the next request on; as durable as `upsert_items`."""
        hosted = self.catalog
        if isinstance(hosted, HostedCatalog):
            self._write_hosted(hosted, nothing_written(hosted), removed_hosted(hosted, ids))
            return
        self._change_items(
            lambda catalog: remove_items(catalog, ids), lambda changes, _: changes.remove(np.asarray(ids).tolist())
        )

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
            counted = np.maximum(scheduler.periods.counted(), 1)
            floors = np.clip(scheduler.missing_at_start() / counted, 0.0, 1.0)
            prices, labels, now = self.coordinator.prices(), tuple(self.coordinator.labels), scheduler.now()
            terms, catalog, missing = self.coordinator.terms, self.catalog, scheduler.missing_without_cost()
            if terms.membership is None:
                n = catalog.n_groups
                return Conditions(catalog, self.front.index, floors[:n], prices[:n], labels[:n], missing, now)
            items = self.front.items_under(terms.membership)
            assert items.atoms is not None, "the coordinator has atoms"
            caps = np.maximum(scheduler.room_at_start() / counted, 1.0)
            asked = AskedOfAtoms(items.searched.group_of, items.atoms.membership, floors, caps, terms.list_limits)
            return Conditions(items.catalog, items.index, asked, prices, labels, missing, now)

    def _change_items(
        self, change: Callable[[Catalog], CatalogChange], save: Callable[[ItemChanges, Catalog], None]
    ) -> None:
        with self.scheduler.lock:
            self.scheduler.take_lead()
            self._follow_items()
            changed = change(self._fitted_catalog())  # raises for invalid input, before anything is saved
            check_k(self.k, changed.catalog)
            if self._item_changes is None:
                self._follow_change(changed)
            else:
                # It is applied like a change of another service, so that one that was saved is always applied.
                save(self._item_changes, changed.catalog)
                self.coordinator.announce()
                self._follow_items()
            now, series = self.scheduler.now(), self.scheduler.state.series
            self.scheduler.change(lambda promises: with_labels(promises, series, self.catalog, now))

    def _write_hosted(self, catalog: HostedCatalog, items: StoredItems, removed: Sequence[Label]) -> None:
        """Change items in the engine, and count them again."""
        with self.scheduler.lock:
            self.scheduler.take_lead()
            self._follow_count(catalog.write(items, removed))

    def _recount_items(self) -> None:
        """Count the items of an engine again, if it is time. Requests and plans go on meanwhile."""
        catalog = self.catalog
        if isinstance(catalog, HostedCatalog) and (counted := self._recount.counted(catalog)) is not catalog:
            with self.scheduler.lock:
                self._follow_count(counted)

    def _follow_count(self, counted: HostedCatalog) -> None:
        """Continue with items that were counted again; promises for each label get those that are new."""
        before, labels = self.catalog, self.coordinator.labels
        if counted is before:
            return
        counted = counted if counted.labels == labels else counted.under(labels)
        self._follow_change(CatalogChange(counted, np.arange(before.n_rows)))
        now, series = self.scheduler.now(), self.scheduler.state.series
        if series and self.coordinator.lead():
            self.scheduler.change(lambda promises: with_labels(promises, series, self.catalog, now))

    def _follow_items(self) -> None:
        """Apply the changes of items that were saved since the last call, by this service or another one."""
        for change in [] if self._item_changes is None else self._item_changes.load():
            changed = change(self._fitted_catalog())
            if changed is not None:
                self._follow_change(changed)

    def _fitted_catalog(self) -> Catalog:
        """Return the items with the groups of the coordinator: other services may have added some."""
        labels = self.coordinator.labels
        return self.catalog if self.catalog.labels == labels else self.catalog.under(labels)

    def _follow_change(self, changed: CatalogChange) -> None:
        groups, known = changed.catalog.groups, self.groups
        overlap = self.coordinator.promises is not None
        if overlap or groups.labels != known.labels or (groups.group_sizes != known.group_sizes).any():
            # Labels are saved before the ledger counts them, or a crash in between would leave counts without a label;
            # and the coordinator must know a group before any of its items can be retrieved.
            new = [label for label in groups.labels if label not in set(known.labels)]
            self.scheduler.save_labels([*known.labels, *new])
            self.coordinator.change_items(changed.catalog)
        self.front.follow(changed)


def _by_request(
    exclude: Sequence[Any] | None, where: Where | Sequence[Where | None] | None, of: NDArray[np.bool_]
) -> list[RequestRules]:
    """Return the rules of some of the requests."""
    n = len(of)
    conditions = [where] * n if where is None or isinstance(where, Mapping) else where
    rules = zip([None] * n if exclude is None else exclude, conditions, strict=True)
    return list(compress(rules, of.tolist()))


def _refusal(verdict: Feasibility, pushed_out: Sequence[ScheduledPromise], n: int) -> InfeasibleFloorsError:
    """Return the error that refuses promises, one of which cannot be kept beside all others."""
    asked, reason = verdict.promise, f"{verdict.promise} cannot be kept: {verdict.reason}"
    if n > 1:
        reason += f", {n:,} new ones included; none of them was made"
    if pushed_out:
        some = ", ".join(str(one) for one in pushed_out[:_MOST_NAMED])
        more = f" and {len(pushed_out) - _MOST_NAMED:,} more" if len(pushed_out) > _MOST_NAMED else ""
        reason += f". It would push out {some}{more}"
    names = [asked.promise.name, *(one.promise.name for one in pushed_out)]
    largest = math.floor(verdict.largest)
    return InfeasibleFloorsError(asked.promise.name, asked.promise.floor(0), reason, largest, verdict.remedy, names)


def _check_wanted(is_cancelled: Callable[[], bool]) -> None:
    """End a call for whose answer nobody waits any longer."""
    if is_cancelled():
        raise CallCancelledError("nobody waits for the answer any longer.")


def _new_id() -> str:
    return uuid.uuid4().hex[:12]
