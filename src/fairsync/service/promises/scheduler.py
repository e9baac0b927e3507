"""Planning by the clock: what has come, what is expected, and what the coordinator is to aim at until the next look."""

from __future__ import annotations

import logging
import math
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np

from fairsync.errors import BackendUnavailableError
from fairsync.floors import group_caps
from fairsync.schedule import WORST_CASE_TRAFFIC, Span, make_plan
from fairsync.service.promises.impressions import Counting
from fairsync.service.promises.past_windows import past_window, why_unseen, windows_ended
from fairsync.service.promises.periods import Periods
from fairsync.service.promises.saved_state import SavedState
from fairsync.service.promises.set_back import SLACK, count_again, without_future

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from fairsync.catalog.groups import Label
    from fairsync.coordination.base import CoordinatorBase
    from fairsync.ledger import Totals
    from fairsync.schedule import Plan, Promise, PromiseStatus, TrafficForecast

_log = logging.getLogger(__name__)
# Notes are written down at least so often, for the sake of the traffic they hold.
_NOTED_EVERY = 60.0
# Whoever looks so long after a window has ended was not there when it did.
_ABSENT = timedelta(minutes=1)
# Who starts beside another waits for its first notes, and looks for them so often.
_GLANCE_SECONDS = 0.1


class Scheduler:
    """Divides time into ticks, each ending where the next window ends, and steers the coordinator through them.

    A tick is one horizon of the ledger, so that the exposures of a window are those of its ticks
    (:mod:`fairsync.service.promises.periods`).

    Where several processes share a ledger, one of them leads: it plans, and the others read its notes. If it dies,
    another takes over; and whoever is given a promise to change takes over too.

    Whoever calls several of its methods in a row holds `lock`.

    Parameters
    ----------
    coordinator
        To steer; it must not roll over by itself.
    notes
        Promises and forecast, where the ledger has no notes yet.
    count
        ``"retrieved"`` or ``"impressions"``.
    clock
        Seconds since 1970.
    plan_seconds
        Plans are made anew so often.
    shown_within
        Seconds within which reports of what was shown usually come.
    worst_case_traffic
        What to be prepared for; see :func:`fairsync.schedule.make_plan`.
    """

    def __init__(
        self,
        coordinator: CoordinatorBase,
        notes: SavedState,
        count: str,
        clock: Callable[[], float],
        plan_seconds: float,
        report_within: float,
        worst_case_traffic: float = WORST_CASE_TRAFFIC,
    ) -> None:
        self.coordinator, self.worst_case_traffic = coordinator, worst_case_traffic
        self.lock = threading.RLock()
        self._counting = Counting(count, report_within)
        self._clock, self._plan_seconds = clock, plan_seconds
        self._noted_at = self._planned_at = self._read_at = 0.0
        self._jumped = math.nan
        self._leads = coordinator.lead()
        while not self._leads and SavedState.load(coordinator.ledger) is None:  # whoever leads is about to write some
            time.sleep(_GLANCE_SECONDS)
            self._leads = coordinator.lead()
        self.notes, self._ticks = SavedState.load(coordinator.ledger) or notes, Periods(coordinator, count)
        if self._leads:
            self._begin_where_the_ledger_stands()
        else:
            self._recount()

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        assert self.notes.plan is not None
        return self.notes.plan

    def now(self) -> datetime:
        """Return the time."""
        return datetime.fromtimestamp(self._clock(), UTC)

    def period_began(self, totals: Totals) -> datetime | None:
        """Return when a tick really began; None if it never did, since nothing was planned before."""
        return self._ticks.began(totals)

    def refresh(self) -> bool:
        """Look at clock and traffic, and do what is due; return whether there is a new plan."""
        with self.lock:
            if not self._lead():
                return self._read()
            now, totals = self.now(), self.coordinator.totals()
            if totals.began != self._ticks.earlier.began:  # whoever led before has begun a new tick
                self._recount()
            jump = self._follow_clock(now)
            self.notes = self.notes.with_requests(self._ticks.earlier.requests + totals.requests, now)
            self._counting.refresh(now, self._ticks.earlier, totals, len(self.coordinator.labels))
            exceeded = totals.requests >= self.coordinator.terms.horizon
            planned = True
            if self._is_over(now):
                self._turn(now, jump)
            elif exceeded or now.timestamp() - self._planned_at >= self._plan_seconds:
                self._steer(now, anew=False)
            else:
                planned = False
            if now.timestamp() - self._noted_at >= _NOTED_EVERY:
                self.save()
            return planned

    def change(self, decide: Callable[[Mapping[str, Promise]], Mapping[str, Promise]]) -> None:
        """Go on with other promises, decided on those that are there; what it raises changes nothing."""
        if not (self._lead() or self._lead(take=True)):
            raise BackendUnavailableError("promises cannot be changed while the ledger is out of reach. Try again.")
        now = self.now()
        jump = self._follow_clock(now)
        if self._is_over(now):  # windows that have ended are those of the promises as they were
            self._turn(now, jump)
        before, promises = self.notes, decide(self.notes.promises)
        self.notes = replace(before, promises=dict(promises), labels=tuple(self.coordinator.labels))
        try:
            self._recount()
            now = self.now()
            if self._window_began(now):
                self._turn(now)
            else:
                self._steer(now, anew=False)
                self.save()
        except BaseException:
            self.notes = before
            raise

    def note_labels(self, labels: Sequence[Label]) -> None:
        """Write down the groups that are about to be counted."""
        self.notes = replace(self.notes, labels=tuple(labels))
        self.save()

    def counted(self) -> NDArray[np.int64]:
        """Return (G,) what counts in the present tick."""
        return self._ticks.counted(self.coordinator.totals())

    def exposures(self) -> dict[Promise, int]:
        """Return the exposures of each promise in its present window."""
        if self.coordinator.totals().began != self._ticks.earlier.began:  # another process has begun a new tick
            self._recount()
        counts = dict(zip(self.coordinator.labels, self.counted().tolist(), strict=True))
        return {
            promise: self._ticks.earlier.counts.get(promise, 0) + counts.get(promise.group, 0)
            for promise in self.notes.promises.values()
            if promise.window.at(self.plan.span.start) is not None
        }

    def exposures_of(self, promise: Promise) -> int:
        """Return the exposures that any promise would have in its present window."""
        span = promise.window.at(self.now())
        if span is None:
            return 0
        return self._ticks.sum(span, promise, self._ticks.all())

    def caps(self) -> dict[Label, int]:
        """Return the most exposures of each group that one request can hold."""
        caps = group_caps(self.coordinator.groups, self.coordinator.k)
        return dict(zip(self.coordinator.labels, caps.tolist(), strict=True))

    def traffic(self) -> TrafficForecast:
        """Return the requests to come that can carry promises."""
        return self._counting.traffic(self.notes.forecast)

    def shares(self) -> dict[Label, float]:
        """Return which part of the candidates of each group counts: those that are shown, if only they do."""
        return self._counting.shares(self.coordinator.labels)

    def save(self) -> None:
        """Write down what must not be forgotten, if this is who leads."""
        if self._leads:
            self.notes.save(self.coordinator.ledger)
            self._noted_at = self.now().timestamp()

    def _lead(self, *, take: bool = False) -> bool:
        """Return whether this process leads; if it did not before, go on from the notes of whoever did."""
        led, self._leads = self._leads, self.coordinator.lead(take=take)
        if self._leads and not led:
            self._load()
        return self._leads

    def _load(self) -> None:
        """Go on from the notes of whoever led."""
        self.notes = SavedState.load(self.coordinator.ledger) or self.notes
        self._ticks.load()
        self._jumped = math.nan
        self._recount()

    def _read(self) -> bool:
        """Read the notes of whoever leads, now and then."""
        now = self.now().timestamp()
        if abs(now - self._read_at) < self._plan_seconds:
            return False
        self._read_at = now
        self._load()
        return True

    def _begin_where_the_ledger_stands(self) -> None:
        totals_list = [*self.coordinator.ledger.past(), self.coordinator.totals()]
        self.notes = replace(self.notes, labels=tuple(self.coordinator.labels))
        self.notes = replace(self.notes, requests=sum(one.requests for one in totals_list))
        now = self.now()
        jump = self._follow_clock(now)
        self._turn(now, jump)

    def _is_over(self, now: datetime) -> bool:
        """Return whether the tick is over, or the clock was set back to before it."""
        span = self.plan.span
        return now >= span.end or now < span.start - timedelta(seconds=SLACK)

    def _follow_clock(self, now: datetime) -> float:
        """Where the clock has jumped, have everything count when it was, as far as that is known now.

        Returns by how much it has; nan if nobody looked before, and it is not known.
        """
        jumped = float(getattr(self._clock, "jumped", 0.0))  # a clock that cannot tell is taken to go on
        first = math.isnan(self._jumped)
        jump = self._ticks.times.jump_to(self._clock) if first else jumped - self._jumped
        since = None if jump == 0 else self._ticks.follow(jump, now, self._clock)
        self._jumped = jumped
        if since is not None:
            self._recount()
            periods = self._ticks.all()
            past = count_again(
                self.notes.past,
                self.notes.promises,
                since,
                lambda span, promise: self._ticks.tally(span, promise, periods),
            )
            self.notes = replace(self.notes, past=past)
        if jump < 0:
            plan = None if self.notes.plan is None else without_future(self.notes.plan, now)
            self.notes = replace(self.notes, plan=plan)
            self._counting.forget()
        return jump

    def _turn(self, now: datetime, jump: float = 0.0) -> None:
        """End the tick, and begin the next; windows may have ended with it, while nobody was there, or by a jump."""
        last, promises = self.notes.plan, self.notes.promises
        self._steer(now, anew=True)
        if last is not None:  # only now nobody adds to the tick before
            periods = self._ticks.all()
            gap = Span(last.span.start, now) if now - last.span.end > _ABSENT else None
            why = "" if gap is None else why_unseen(gap, jump, self._ticks.times.jump)
            past = [
                past_window(name, one, *self._ticks.tally(one.span, one.promise, periods), why)
                for name, one in windows_ended(last, promises, now)
            ]
            self.notes = self.notes.with_past(past).without_ended(now)
        self.save()

    def _steer(self, now: datetime, *, anew: bool) -> None:
        """Plan, and have the coordinator aim at it."""
        labels, totals = self.coordinator.labels, self.coordinator.totals()
        if anew:
            self._ticks.recount(self.notes.promises.values(), now, totals)
            self._ticks.note_time(now, self._clock)
        counts = np.zeros_like(totals.exposures) if anew else self.counted()
        here = dict(zip(labels, counts.tolist(), strict=True))
        promises = tuple(self.notes.promises.values())
        exposures = {one: self._ticks.earlier.counts.get(one, 0) + here[one.group] for one in promises}
        plan = make_plan(
            promises,
            exposures,
            self.traffic(),
            now,
            self.coordinator.k,
            self.caps(),
            self.notes.plan,
            self.shares(),
            self._counting.coming(labels),
            self.worst_case_traffic,
        )
        self.coordinator.set_targets(plan.floors, plan.horizon, restart_at=self._ticks.earlier.began if anew else None)
        self.notes = replace(self.notes, plan=plan)
        _tell(plan.statuses, now)
        self._planned_at = now.timestamp()
        if anew:  # others may have added to the tick before until it ended
            self._recount()

    def _recount(self) -> None:
        """Count again what came before the present tick."""
        self._ticks.recount(self.notes.promises.values(), self.now())

    def _window_began(self, now: datetime) -> bool:
        """Return whether a window has begun since the tick did, so that its exposures need a tick of their own."""
        began = self._ticks.times.of(self.coordinator.totals().began)
        spans = [promise.window.at(now) for promise in self.notes.promises.values()]
        return any(span.start.timestamp() > began for span in spans if span)


def _tell(statuses: Sequence[PromiseStatus], now: datetime) -> None:
    """Raise the alarm when it becomes known that a promise may fail, or will."""
    for one in statuses:
        until = f"{one.promise} until {one.promise.window.local(one.span.end)}"
        if one.impossible_since == now:
            _log.warning("%s cannot be kept: %d will be missing", until, one.shortfall)
        elif one.at_risk_since == now:
            _log.info("%s is at risk: %d may be missing", until, one.promise.floor - one.certain)
