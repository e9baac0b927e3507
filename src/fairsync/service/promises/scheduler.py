"""The scheduler: plans by the clock, and sets the coordinator's targets until the next plan."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from fairsync.errors import BackendUnavailableError
from fairsync.promises import Promise
from fairsync.promises.selection import conditions_of, selection_name
from fairsync.schedule import WORST_CASE_TRAFFIC, Span, active_spans
from fairsync.service.promises.audit import audit_changes, audit_start
from fairsync.service.promises.budget import Spent, longest_window
from fairsync.service.promises.clock import TOLERANCE
from fairsync.service.promises.columns import column_of, group_of
from fairsync.service.promises.impressions import ImpressionRate
from fairsync.service.promises.leadership import Leadership
from fairsync.service.promises.past_windows import (
    clock_change,
    describe_clock_change,
    describe_outage,
    past_window,
    windows_ended,
)
from fairsync.service.promises.periods import Periods
from fairsync.service.promises.planning import Planner, alike
from fairsync.service.promises.promise_changes import split_at
from fairsync.service.promises.promise_series import days_of, series_of
from fairsync.service.promises.saved_state import MOST_PAST, SavedState
from fairsync.service.promises.window_archive import WindowArchive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.catalog.groups import Label
    from fairsync.coordination.coordinator import Coordinator
    from fairsync.ledger import Totals
    from fairsync.ledger.audit import AuditRecord
    from fairsync.schedule import FeasibilityCheck, Plan, PromiseStatus, ScheduledPromise, TrafficForecast
    from fairsync.service.promises.clock import ClockReading
    from fairsync.service.promises.cost_book import CostBook, GivenUp

_log = logging.getLogger(__name__)
# Seconds between two saves, at most: they keep the traffic that the forecast has observed.
_SAVE_SECONDS = 60.0
# Requests wait for a plan. If one takes longer than this, in seconds, passed horizons make others for at most this part
# of the time.
_LONG_PLAN = 0.5
_PLANNING = 0.1
# Plans that show how many requests come between two of them.
_PLANS = 8
# Seconds until the next plan, at most, for which requests are forecast.
_LONGEST_PAUSE = 3600.0
# A window that ended longer ago than this was not observed: the service was down.
_UNOBSERVED = timedelta(minutes=1)
# A service that has not answered a request yet, and is away for longer than this, was not in use: it missed nothing.
_TRIAL = timedelta(days=1)
# Selections of promises that are over and still counted, as a part of the promises, at most.
_MOST_OVER = 0.25


class Scheduler:
    """Divides time into periods, each ending where the next window begins or ends, and plans each of them.

    A period is one horizon of the ledger, so that the exposures of a window are those of its periods
    (:mod:`fairsync.service.promises.periods`). If several replicas share a ledger, the leader plans, and the others
    load its saved state (:mod:`fairsync.service.promises.leadership`).

    A caller of several methods in a row holds `lock`.

    Parameters
    ----------
    coordinator
        Gets targets; it must not restart its horizon by itself.
    initial
        The state to begin with if the ledger has none.
    count, clock, plan_seconds, report_within, worst_case_traffic, budget
        As for :class:`fairsync.service.promises.promise_service.PromiseService`.
    read_clock
        Returns a reading of the clock, if it has readings: they tell an outage from a clock that was set.
    catalog
        Returns the items, if promises may be about other selections than groups.

    Attributes
    ----------
    state : SavedState
        Promises, forecast, plan and past windows.
    periods : Periods
        Counts by period.
    planner : Planner
        Makes the plans.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        initial: SavedState,
        count: str,
        clock: Callable[[], float],
        plan_seconds: float,
        report_within: float,
        worst_case_traffic: float = WORST_CASE_TRAFFIC,
        read_clock: Callable[[], ClockReading] | None = None,
        catalog: Callable[[], Catalog] | None = None,
        budget: float | None = None,
    ) -> None:
        self.attribute, self._budget = coordinator.group_attribute, budget
        self._read_clock: Callable[[], ClockReading | None] = read_clock or (lambda: None)
        self.coordinator, self.lock = coordinator, threading.RLock()
        self._rate = ImpressionRate(report_within) if count == "impressions" else None
        self.planner = Planner(coordinator, self._rate, worst_case_traffic, catalog)
        self._clock, self._plan_seconds = clock, plan_seconds
        self._saved_at = self._planned_at = self._loaded_at = self._rests_until = 0.0
        self._planned_requests: int | None = None  # requests ever at the last plan
        self._came: deque[int] = deque(maxlen=_PLANS)  # requests between two plans
        self._leadership = Leadership(coordinator)
        self._leadership.wait_for_state(lambda: SavedState.load(coordinator.ledger, self.attribute) is not None)
        found = SavedState.load(coordinator.ledger, self.attribute)
        self.state = self._under_budget(found or initial)
        self._archive = WindowArchive(coordinator.ledger)
        self._audit: list[AuditRecord] = []  # saved together with the change that it is about
        self.periods = Periods(coordinator, count, self.state.ledger_time)
        if self._leadership.is_leader:
            if not coordinator.ledger.audit(0).total:
                self._audit = audit_start(self.state.promises, self.now(), is_new=found is None)
            self._resume()
        else:
            self._recount()

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        assert self.state.plan is not None
        return self.state.plan

    @property
    def is_leader(self) -> bool:
        """Whether this replica led when that was last asked."""
        return self._leadership.is_leader

    def now(self) -> datetime:
        """Return the time."""
        return datetime.fromtimestamp(self._clock(), UTC)

    def refresh(self) -> bool:
        """Read clock and counts, and plan if it is time; return whether there is a new plan."""
        with self.lock:
            if not self._lead():
                return self._follow()
            now, totals = self.now(), self.coordinator.totals()
            if self.periods.is_stale:  # the former leader has begun another period
                self._recount()
            self.state = self.state.with_requests(self.periods.before.requests + totals.requests, now)
            if self._rate is not None:
                self._rate.observe(now.timestamp(), *self.periods.ever())
            exceeded = totals.requests >= self.coordinator.terms.horizon
            planned = True
            if self._is_over(now):
                self._begin_period(now)
            elif (exceeded and time.monotonic() >= self._rests_until) or (
                now.timestamp() - self._planned_at >= self._plan_seconds
            ):
                self._make_plan(now)
            else:
                planned = False
            if now.timestamp() - self._saved_at >= _SAVE_SECONDS:
                self._end_reached(now)
                self.save()
            return planned

    def change(
        self,
        decide: Callable[[Mapping[str, ScheduledPromise]], Mapping[str, ScheduledPromise]],
        by: str = "",
        series: Mapping[str, ScheduledPromise] | None = None,
    ) -> None:
        """Replace the promises by what `decide` makes of them; an exception that it raises changes nothing.

        Parameters
        ----------
        decide
            Returns the promises by id, given those that there are.
        by
            Who asks for it, for the audit.
        series
            The series from now on; those so far by default.
        """
        self.take_lead()
        now = self.now()
        if self._is_over(now):  # windows that have ended belong to the promises as they were
            self._begin_period(now)
        before, promises = self.state, decide(self.state.promises)
        series = before.series if series is None else series
        self.state = replace(before, promises=dict(promises), series=series, labels=tuple(self.coordinator.labels))
        unsaved, self._audit = self._audit, [*self._audit, *audit_changes(before.promises, promises, by, now)]
        try:
            self._recount()
            now = self.now()
            if self._window_began(now):
                self._begin_period(now)
            else:
                self._make_plan(now, saves=True)
        except BaseException:
            self.state, self._audit = before, unsaved
            raise

    def take_lead(self) -> None:
        """Become the leader: only the leader changes promises, items and plans."""
        if not (self._lead() or self._lead(take=True)):
            raise BackendUnavailableError("nothing can be changed while the ledger is out of reach. Try again.")

    def save_labels(self, labels: Sequence[Label]) -> None:
        """Save the labels of groups that are about to be counted."""
        self.state = replace(self.state, labels=tuple(labels))
        self.save()

    def exposures(self) -> dict[ScheduledPromise, int]:
        """Return the exposures of each promise in its present window."""
        if self.periods.is_stale:
            self._recount()
        start = self.plan.span.start
        return self.periods.exposures(one for one in self.state.promises.values() if one.window.at(start) is not None)

    def missing_at_start(self) -> NDArray[np.float64]:
        """Return (G,) the exposures that promises lacked when the present period began, by column."""
        floors = {promise: promise.promise.floor(slots) for promise, slots in self._slots().items()}
        return self.periods.missing_at_start(self.exposures(), floors)

    def room_at_start(self) -> NDArray[np.float64]:
        """Return (G,) the exposures that caps allowed when the present period began, by column; inf without one."""
        slots = self._slots()
        caps = {one: cap for one, n in slots.items() if (cap := one.promise.cap(n)) is not None}
        return self.periods.room_at_start(self.exposures(), caps)

    def _slots(self) -> dict[ScheduledPromise, int]:
        """Return the slots of the present window of each promise: those so far, and those that are expected."""
        traffic, now, k = self.traffic(), self.now(), self.coordinator.k
        spans = active_spans(self.state.promises.values(), now)
        slots = {
            span: k * (self.periods.requests(span) + round(traffic.expected(now, span.end, now)))
            for span in set(spans.values())
        }
        return {one: slots[span] for one, span in spans.items()}

    def traffic(self) -> TrafficForecast:
        """Return the forecast of requests whose exposures count in time."""
        return self.planner.traffic(self.state.forecast)

    def requests(
        self, promises: Iterable[ScheduledPromise], present: Totals | None = None
    ) -> dict[ScheduledPromise, int]:
        """Return the requests so far in the present window of each promise."""
        spans = active_spans(promises, self.now())
        came = {span: self.periods.requests(span, present) for span in set(spans.values())}
        return {one: came[span] for one, span in spans.items()}

    def prepare_checks(
        self,
        promises: Mapping[str, ScheduledPromise],
        others: Mapping[str, ScheduledPromise],
        most: int | None = None,
    ) -> list[tuple[FeasibilityCheck, list[str]]]:
        """Return checks of new promises beside each other and others, with the ids that each check is about.

        Running them needs no lock. One promise of each window, priority and kind of bounds is enough: if it fits beside
        all others, all of them fit.

        Parameters
        ----------
        promises, others
            New promises, and those that there are, by id.
        most
            The most checks: of more windows, as the first days of items have them, those that end first are checked.
        """
        checks, groups = [], alike(promises)
        if most is not None and len(groups) > most:
            groups.sort(key=lambda names: promises[names[0]].window.end or datetime.max.replace(tzinfo=UTC))
            rest = [name for names in groups[most:] for name in names]
            groups = [*groups[: most - 1], [*groups[most - 1], *rest]]
        now, forecast, counted = self.now(), self.state.forecast, self.exposures()
        for names in groups:
            promise = promises[names[0]]
            beside = {**others, **{name: one for name, one in promises.items() if name != names[0]}}.values()
            exposures = {**counted, promise: self._exposures_of(promise)}
            requests = self.requests([*beside, promise])
            check = self.planner.prepare_check(promise, beside, exposures, forecast, now, requests)
            checks.append((check, names))
        return checks

    def start_of(self, promise: ScheduledPromise, start: datetime, now: datetime) -> datetime:
        """Return when a promise can begin that should begin at `start`: not within a window that was not counted."""
        following = promise.window.after(now)
        if not promise.window.recurs or following is None or self.counts_since_start(promise, now):
            return start
        return max(start, following.start)

    def begun(
        self, promises: Mapping[str, ScheduledPromise], others: Mapping[str, ScheduledPromise]
    ) -> dict[str, ScheduledPromise]:
        """Return recurring promises with their start: the next window, if the rest of the present one is too short.

        Parameters
        ----------
        promises, others
            New promises, and those that there are, by id.
        """
        now, begun = self.now(), dict(promises)
        for check, names in self.prepare_checks(promises, others):
            following = check.promise.window.after(now)
            start = self.start_of(check.promise, now, now)
            if start == now:
                verdict = check.run(up_to_asked=True)
                start = verdict.effective_from or (now if following is None else following.start)
            for name in names:
                (begun[name], *_) = split_at(None, promises[name], self.start_of(promises[name], start, now), now)
        return begun

    def save(self) -> None:
        """Save the state in the ledger, if this replica leads."""
        if self._leadership.is_leader:
            self.state = replace(self.state, reading=self._read_clock())
            self.state.save(self.coordinator.ledger, self._audit)
            self._audit = []
            self.coordinator.announce()
            self._saved_at = self.now().timestamp()

    def _lead(self, *, take: bool = False) -> bool:
        """Return whether this replica leads; if it has just been elected, go on from the former leader's state."""
        if self._leadership.was_elected(take=take):
            self._load()
        return self._leadership.is_leader

    def _follow(self) -> bool:
        """Load the leader's state if it was announced, or if it is time; return whether it was loaded."""
        now = self.now().timestamp()
        if not self.coordinator.take_news() and now - self._loaded_at < self._plan_seconds:
            return False
        self._loaded_at = now
        self._load()
        return True

    def _load(self) -> None:
        self.state = self._under_budget(SavedState.load(self.coordinator.ledger, self.attribute) or self.state)
        self.periods.time, self._audit = self.state.ledger_time, []
        self._archive.forget()
        self._recount()

    def _under_budget(self, state: SavedState) -> SavedState:
        """Return a state under the budget of this process; the process that saved the state may have had another."""
        return replace(state, costs=state.costs.with_share(self._budget))

    def _resume(self) -> None:
        """Continue the period of the ledger after a start, or begin another one if that one is over."""
        totals = [*self.coordinator.ledger.past(), self.coordinator.totals()]
        requests, labels = sum(one.requests for one in totals), tuple(self.coordinator.labels)
        self.state = replace(self.state, labels=labels, requests=requests)
        now, plan = self.now(), self.state.plan
        if plan is not None and (plan.span.start - now).total_seconds() > TOLERANCE:
            _log.warning(
                "the clock is %.0f s behind the last plan: it was set back, or was wrong before. Exposures that were"
                " counted since then stay in their windows.",
                (plan.span.start - now).total_seconds(),
            )
            self.state = replace(self.state, plan=None)  # its warnings lie in the future
        if not self._is_under_way(now):
            self._begin_period(now)
            return
        self._recount()
        self._make_plan(now)
        self.save()

    def _is_under_way(self, now: datetime) -> bool:
        """Return whether the last period of the ledger can continue after a start.

        It can if each window is the same now as when the period began: then no exposure gets into another window. A new
        period would count from zero, and make the policy solve its prices for a whole period.
        """
        plan, began = self.state.plan, self.periods.started(self.periods.present)
        if plan is None or began is None or self._is_over(now):
            return False
        windows = [promise.window for promise in self.state.promises.values()]
        return began <= now + timedelta(seconds=TOLERANCE) and all(one.at(began) == one.at(now) for one in windows)

    def _is_over(self, now: datetime) -> bool:
        """Return whether the period is over, or was begun by a replica whose clock is far ahead of this one's."""
        span = self.plan.span
        return now >= span.end or now < span.start - timedelta(seconds=TOLERANCE)

    def _begin_period(self, now: datetime) -> None:
        """End the present period and begin the next one; windows may have ended, also while the service was down."""
        last, promises = self.state.plan, self.state.promises
        change = clock_change(self.state.reading, self._read_clock())
        began, time = self.periods.present.began, self.periods.time
        if time.is_ahead(began, now.timestamp()):
            # Saved before the period begins, so that a crash in between cannot lose when it began.
            self.periods.time = time.following(began, now.timestamp())
            self.state = replace(self.state, ledger_time=self.periods.time)
            self.save()
        lost = {} if last is None else self.given_up(last.statuses)
        self._make_plan(now, begins_period=True)
        if last is not None:  # from now on no replica adds to the period that has ended
            periods = self.periods.all()
            outage = describe_outage(Span(last.span.start, now)) if now - last.span.end > _UNOBSERVED else ""
            not_in_use = not self.state.requests and now - last.span.end > _TRIAL
            known_since = now if not_in_use else None
            if change is not None and outage:
                outage, known_since = describe_clock_change(change), max(change.end, known_since or change.end)
                _log.warning("%s: windows in between are not listed as missed", outage)
            ended = windows_ended(last, promises, now, known_since, MOST_PAST)
            exposures = self.periods.exposures_in_each([(one.promise, one.span) for _, one in ended], periods)
            requests = {span: self.periods.requests_in(span, periods) for span in {one.span for _, one in ended}}
            k, attribute = self.coordinator.k, self.attribute
            past = [
                past_window(name, one, count, requests[one.span], outage, k, attribute, lost.get(one.promise))
                for (name, one), count in zip(ended, exposures, strict=True)
            ]
            self._archive.add([(one, status) for one, (_, status) in zip(past, ended, strict=True)], now)
            self.state = self.state.with_past(past).without_ended(now)
            self._audit += audit_changes(promises, self.state.promises, "", now, "its last window is over")
        self.save()

    def _end_reached(self, now: datetime) -> None:
        """End the promises of first days that have what was promised, each for itself, before the state is saved."""
        state = self.state
        if not any(days_of(one.window) is not None for one in state.series.values()):
            return
        names = {promise: name for name, promise in state.promises.items()}
        reached = [
            (names[one.promise], replace(one, span=Span(one.span.start, now)))
            for one in self.plan.statuses
            if 0 < one.floor <= one.exposures and one.span.start < now and one.promise in names
            and (series := series_of(names[one.promise], state.series)) is not None
            and days_of(state.series[series].window) is not None
        ]  # fmt: skip
        if not reached:
            return
        k, attribute = self.coordinator.k, self.attribute
        past = [past_window(name, one, one.exposures, one.requests, "", k, attribute) for name, one in reached]
        self._archive.add([(one, status) for one, (_, status) in zip(past, reached, strict=True)], now)
        over = {name: replace(one.promise, window=replace(one.promise.window, end=now)) for name, one in reached}
        promises = {**state.promises, **over}
        self._audit += audit_changes(state.promises, promises, "", now, "it has what was promised")
        self.state = replace(state, promises=promises).with_past(past)

    def _make_plan(self, now: datetime, *, begins_period: bool = False, saves: bool = False) -> None:
        """Plan, and set the coordinator's targets; with `saves`, save the state in the same transaction."""
        began = time.thread_time()
        start, since, until_next = None, None, self._requests_until_next_plan(now)
        promises = tuple(one for one in self.state.promises.values() if one.window.end is None or one.window.end > now)
        self._save_columns(promises, now)
        prices = dict(zip(self.coordinator.labels, self.coordinator.prices().tolist(), strict=False))
        costs = self.state.costs.with_prices(prices, {column_of(one, self.attribute) for one in promises})
        if begins_period:
            start = self.periods.recount_for_next(promises, now)
            exposures = {one: self.periods.before.exposures.get(one, 0) for one in promises}
            in_window = self.periods.before.in_window
            requests = {one: in_window.get(span, 0) for one, span in active_spans(promises, now).items()}
        else:
            since = self.coordinator.totals()
            exposures, requests = self.periods.exposures(promises, since), self.requests(promises, since)
        forecast, before = self.state.forecast, self.state.plan
        plan = self.planner.plan(promises, exposures, forecast, now, before, requests, until_next)
        targets = self._targets(plan, promises)
        costs = self._after_spending(costs, plan, now)
        budget = costs.budget
        if budget is not None and budget.cut is not None:
            in_force = budget.in_force(promises)
            had, came = (
                {kept: counts[one] for kept, one in in_force.items() if one in counts}
                for counts in (exposures, requests)
            )
            kept = self.planner.plan([*in_force], had, forecast, now, None, came, until_next, logs=False)
            targets, plan = self._targets(kept, promises), replace(plan, horizon=kept.horizon)
        if budget != self.state.costs.budget and not begins_period:  # a new period is saved when it has begun
            saves = True  # replicas, and the next process, must know what has given way
        state, saved = replace(self.state, plan=plan, costs=costs), None
        if saves:
            state = replace(state, reading=self._read_clock())
            saved = state.dump()
        audit = self._audit if saves else []
        self.coordinator.set_targets(
            requests=plan.horizon, restart_at=start, saves=saved, audit=audit,
            promises=targets, since=since,
        )  # fmt: skip
        self.state = replace(state, plan=replace(plan, statuses=self._with_limits_in_force(plan.statuses, now)))
        self._planned_at = now.timestamp()
        seconds = time.thread_time() - began
        if seconds > _LONG_PLAN:
            self._rests_until = time.monotonic() + seconds / _PLANNING
        if tuple(self.coordinator.labels) != self.state.labels:  # the coordinator may count every slot, too
            self.save_labels(self.coordinator.labels)
        self._archive.observe({one: name for name, one in state.promises.items()}, plan.statuses, now)
        if saves:
            self._audit = []
            self.coordinator.announce()
            self._saved_at = now.timestamp()
        if begins_period:  # other replicas may have added to the period before until it ended
            self._recount()

    def _with_limits_in_force(self, statuses: Iterable[PromiseStatus], now: datetime) -> tuple[PromiseStatus, ...]:
        """Return the statuses, with the moment at which limits per list were left out of the coordinator's terms."""
        in_force, groups, k = self.coordinator.terms.list_limits, self.coordinator.groups, self.coordinator.k

        def is_left_out(one: ScheduledPromise) -> bool:
            limit, code = one.promise.at_most_per_list, groups.code_of(column_of(one, self.attribute))
            # An item that is in no list, or in all of them, needs no limit.
            return limit is not None and limit < min(k, int(groups.group_sizes[code])) and (
                in_force is None or int(in_force[code]) > limit
            )  # fmt: skip

        return tuple(
            replace(one, unlimited_since=now) if one.unlimited_since is None and is_left_out(one.promise) else one
            for one in statuses
        )

    def learn_exposure_costs(self, costs: Mapping[Label, float]) -> None:
        """Keep estimates of what exposures of columns without a subsidy would cost."""
        self.state = replace(self.state, costs=self.state.costs.with_estimates(costs))

    def missing_without_cost(self) -> dict[Label, float]:
        """Return the exposures per request that promises give up which were never subsidised, by column."""
        lost = self.given_up(self.plan.statuses)
        return self.state.costs.never_subsidised(lost, self._slots(), self.coordinator.k, self.attribute)

    def _requests_until_next_plan(self, now: datetime) -> int:
        """Return how many requests may come before the next plan: those expected, or as many as lately."""
        ever, before = self.state.requests, self._planned_requests
        came, self._planned_requests = 0 if before is None else max(ever - before, 0), ever
        self._came.append(came)
        seconds = timedelta(seconds=min(self._plan_seconds, _LONGEST_PAUSE))
        expected = self.state.forecast.expected(now, now + seconds, now)
        return max(math.ceil(expected), *self._came, 1)

    def _targets(self, plan: Plan, promises: Sequence[ScheduledPromise]) -> list[Promise]:
        """Return the targets of a plan, and all other selections: they are counted before their windows begin.

        Where items end one by one, those of promises that are over are counted on until they are many: to count others
        than before, all items have to be looked at again.
        """
        aimed = {selection_name(one.where) for one in plan.targets}
        others = {one.selection: one.promise.where for one in promises if one.selection not in aimed}
        over = self.coordinator.selections - {one.selection for one in promises} - aimed
        if len(over) <= _MOST_OVER * len(promises):
            others |= {name: conditions_of(name) for name in over}
        return [*plan.targets, *(Promise(where, at_least=0) for where in others.values())]

    def _save_columns(self, promises: Iterable[ScheduledPromise], now: datetime) -> None:
        """Save which selections will be counted, before the ledger counts them."""
        selections = {one.selection for one in promises if group_of(one, self.attribute) is None}
        counted = {name: self.state.counted.get(name, now) for name in sorted(selections)}
        self.state = replace(self.state, counted=counted)
        known = self.coordinator.labels
        if not selections <= set(known):
            self.save_labels([*known, *sorted(selections - set(known))])

    def _after_spending(self, costs: CostBook, plan: Plan, now: datetime) -> CostBook:
        """Return the cost book after what was spent in the longest window under way."""
        if costs.budget is None:
            return costs
        longest = longest_window(self.state.promises.values(), now)
        left = 0.0 if longest is None else self.state.forecast.expected(now, longest.end, now)
        return costs.after(self.spent(now), plan.statuses, left, self.attribute)

    def spent(self, now: datetime) -> Spent:
        """Return what promises have cost in the longest window under way."""
        longest = longest_window(self.state.promises.values(), now)
        return Spent.of([self.periods.present] if longest is None else self.periods.within(longest))

    def given_up(self, statuses: Iterable[PromiseStatus]) -> dict[ScheduledPromise, GivenUp]:
        """Return which of the promises are given up, why, and what keeping them would cost."""
        limited = self.coordinator.gave_way() if self.coordinator.terms.max_prices is not None else {}
        return self.state.costs.given_up(statuses, limited, self.attribute)

    def counts_since_start(self, promise: ScheduledPromise, now: datetime) -> bool:
        """Return whether all exposures of a promise in its present window are counted.

        Labels of the groups are always counted, other selections from the moment at which a promise is about them.
        """
        span = promise.window.at(now)
        if span is None or group_of(promise, self.attribute) is not None:
            return True
        since = self.state.counted.get(promise.selection)
        return since is not None and since <= span.start

    def _exposures_of(self, promise: ScheduledPromise) -> int:
        """Return the exposures that any promise, made or not, has in its present window."""
        span = promise.window.at(self.now())
        return 0 if span is None else self.periods.exposures_in(span, promise, self.periods.all())

    def _recount(self) -> None:
        self.periods.recount(self.state.promises.values(), self.now())

    def _window_began(self, now: datetime) -> bool:
        """Return whether a window has begun since the period did, so that its exposures need a period of their own."""
        began = self.periods.time.to_clock(self.periods.present.began)
        spans = active_spans(self.state.promises.values(), now)
        return any(span.start.timestamp() > began for span in spans.values())
