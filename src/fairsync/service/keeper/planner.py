"""Planning by the clock: what has come, what is expected, and what the coordinator is to aim at until the next look."""

from __future__ import annotations

import logging
import math
import threading
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np

from fairsync.errors import BackendUnavailableError
from fairsync.floors import group_caps
from fairsync.service.keeper.notes import Notes
from fairsync.service.keeper.past import past_window, why_unseen, windows_ended
from fairsync.service.keeper.set_back import SLACK, TickTimes, count_again, without_future
from fairsync.service.keeper.shown import InTime, ShownShare
from fairsync.windows import SLUMP, Span, make_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from fairsync.coordination.coordinator import Coordinator
    from fairsync.coordination.redis import RedisCoordinator
    from fairsync.groups import Label
    from fairsync.ledger import Standing
    from fairsync.windows import Outlook, Plan, Promise, Traffic

_log = logging.getLogger(__name__)
# Notes are written down at least so often, for the sake of the traffic they hold.
_NOTED_EVERY = 60.0
# Whoever looks so long after a window has ended was not there when it did.
_ABSENT = timedelta(minutes=1)
# Who starts beside another waits for its first notes, and looks for them so often.
_GLANCE_SECONDS = 0.1


@dataclass(frozen=True)
class Earlier:
    """What came before the present tick.

    Attributes
    ----------
    began : float
        When the tick began.
    retrieved, shown : numpy.ndarray
        (G,) ever.
    requests : int
        Ever.
    counts : dict
        What counts for each promise, in its window.
    """

    began: float
    retrieved: NDArray[np.int64]
    shown: NDArray[np.int64]
    requests: int
    counts: Mapping[Promise, int]


class Planner:
    """Divides time into ticks, each ending where the next window ends, and steers the coordinator through them.

    A tick is one horizon of the ledger. So the exposures of a window are those of its ticks, and each tick knows when
    it began: whatever is killed when, the counts of every window can be read from the ledger alone. Where that was by a
    clock that proved wrong, :mod:`fairsync.service.keeper.set_back` knows better.

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
        ``"retrieved"`` or ``"shown"``.
    clock
        Seconds since 1970.
    plan_seconds
        Plans are made anew so often.
    shown_within
        Seconds within which reports of what was shown usually come.
    slump
        What to be prepared for; see :func:`fairsync.windows.make_plan`.
    """

    def __init__(
        self,
        coordinator: Coordinator | RedisCoordinator,
        notes: Notes,
        count: str,
        clock: Callable[[], float],
        plan_seconds: float,
        shown_within: float,
        slump: float = SLUMP,
    ) -> None:
        self.coordinator, self.count, self.slump = coordinator, count, slump
        self.lock = threading.RLock()
        self._share, self._shown_within = ShownShare(shown_within), shown_within
        self._clock, self._plan_seconds = clock, plan_seconds
        self._noted_at = self._planned_at = self._read_at = 0.0
        self._jumped = math.nan
        self._leads = coordinator.lead()
        while not self._leads and Notes.load(coordinator.ledger) is None:  # whoever leads is about to write some
            time.sleep(_GLANCE_SECONDS)
            self._leads = coordinator.lead()
        self.notes, self._times = Notes.load(coordinator.ledger) or notes, TickTimes.load(coordinator.ledger)
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

    def tick_began(self, standing: Standing) -> datetime | None:
        """Return when a tick really began; None if it never did, since nothing was planned before."""
        return datetime.fromtimestamp(self._times.of(standing.began), UTC) if standing.began else None

    def look(self) -> bool:
        """Look at clock and traffic, and do what is due; return whether there is a new plan."""
        with self.lock:
            if not self._lead():
                return self._read()
            now, standing = self.now(), self.coordinator.standing()
            if standing.began != self._earlier.began:  # whoever led before has begun a new tick
                self._recount()
            jump = self._follow_clock(now)
            self._note_traffic(now, standing)
            self._note_shown(now, standing)
            exceeded = standing.requests >= self.coordinator.terms.horizon
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
        return self._counts_of(self.coordinator.standing())

    def exposures(self) -> dict[Promise, int]:
        """Return the exposures of each promise in its present window."""
        if self.coordinator.standing().began != self._earlier.began:  # another process has begun a new tick
            self._recount()
        counts = dict(zip(self.coordinator.labels, self.counted().tolist(), strict=True))
        return {
            promise: self._earlier.counts.get(promise, 0) + counts.get(promise.group, 0)
            for promise in self.notes.promises.values()
            if promise.window.at(self.plan.span.start) is not None
        }

    def exposures_of(self, promise: Promise) -> int:
        """Return the exposures that any promise would have in its present window."""
        span = promise.window.at(self.now())
        if span is None:
            return 0
        return self._sum(span, promise, [*self._before(), self.coordinator.standing()])

    def caps(self) -> dict[Label, int]:
        """Return the most exposures of each group that one request can hold."""
        caps = group_caps(self.coordinator.groups, self.coordinator.k)
        return dict(zip(self.coordinator.labels, caps.tolist(), strict=True))

    def traffic(self) -> Traffic:
        """Return the requests to come that can carry promises."""
        forecast = self.notes.forecast
        return InTime(forecast, self._shown_within) if self.count == "shown" else forecast

    def shares(self) -> dict[Label, float]:
        """Return which part of the candidates of each group counts: those that are shown, if only they do."""
        labels = self.coordinator.labels
        counting = self._share.shares(len(labels)) if self.count == "shown" else np.ones(len(labels))
        return dict(zip(labels, counting.tolist(), strict=True))

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
        self.notes = Notes.load(self.coordinator.ledger) or self.notes
        self._times, self._jumped = TickTimes.load(self.coordinator.ledger), math.nan
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
        standings = [*self.coordinator.ledger.past(), self.coordinator.standing()]
        self.notes = replace(self.notes, labels=tuple(self.coordinator.labels))
        self.notes = replace(self.notes, requests=sum(one.requests for one in standings))
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
        jump = self._times.jump_to(self._clock) if math.isnan(self._jumped) else jumped - self._jumped
        if jump == 0:
            self._jumped = jumped
            return jump
        before, standings = self._times, [*self._before(), self.coordinator.standing()]
        ticks = [one.began for one in standings if one.began]
        after = before.after(jump, ticks, now.timestamp()).by(self._clock)
        # Also where nothing moved: whoever starts next has to know what the clock is since.
        after.save(self.coordinator.ledger)
        self._times, self._jumped = after, jumped
        moved = [tick for tick in ticks if before.of(tick) != after.of(tick)]
        if moved:
            self._recount()
            since = min(min(before.of(tick), after.of(tick)) for tick in moved)
            past = count_again(
                self.notes.past,
                self.notes.promises,
                since,
                lambda span, promise: self._tally(span, promise, standings),
            )
            self.notes = replace(self.notes, past=past)
        if jump < 0:
            plan = None if self.notes.plan is None else without_future(self.notes.plan, now)
            self.notes, self._share = replace(self.notes, plan=plan), ShownShare(self._shown_within)
        return jump

    def _turn(self, now: datetime, jump: float = 0.0) -> None:
        """End the tick, and begin the next; windows may have ended with it, while nobody was there, or by a jump."""
        last, promises = self.notes.plan, self.notes.promises
        self._steer(now, anew=True)
        if last is not None:  # only now nobody adds to the tick before
            standings = [*self._before(), self.coordinator.standing()]
            gap = Span(last.span.start, now) if now - last.span.end > _ABSENT else None
            why = "" if gap is None else why_unseen(gap, jump, self._times.jump)
            past = [
                past_window(name, one, *self._tally(one.span, one.promise, standings), why)
                for name, one in windows_ended(last, promises, now)
            ]
            self.notes = self.notes.with_past(past)
        self.save()

    def _steer(self, now: datetime, *, anew: bool) -> None:
        """Plan, and have the coordinator aim at it."""
        labels, standing = self.coordinator.labels, self.coordinator.standing()
        if anew:
            self._recount(now, standing)
            self._note_time(now)
        counts = np.zeros_like(standing.exposures) if anew else self.counted()
        here = dict(zip(labels, counts.tolist(), strict=True))
        promises = tuple(self.notes.promises.values())
        exposures = {one: self._earlier.counts.get(one, 0) + here[one.group] for one in promises}
        plan = make_plan(
            promises,
            exposures,
            self.traffic(),
            now,
            self.coordinator.k,
            self.caps(),
            self.notes.plan,
            self.shares(),
            self._coming(),
            self.slump,
        )
        self.coordinator.steer(plan.floors, plan.horizon, anew=self._earlier.began if anew else None)
        self.notes = replace(self.notes, plan=plan)
        _tell(plan.outlooks, now)
        self._planned_at = now.timestamp()
        if anew:  # others may have added to the tick before until it ended
            self._recount()

    def _recount(self, begins: datetime | None = None, ending: Standing | None = None) -> None:
        """Count again what came before the present tick, or before the one that begins now as another ends."""
        past, began = self._before(), self.coordinator.standing().began
        if begins is not None and ending is not None:
            past.append(ending)
            # Another process may have begun the tick that ends, by a clock that is ahead.
            began = max(begins.timestamp(), float(np.nextafter(began, np.inf)))
        now = self.now() if begins is None else begins
        n = len(self.coordinator.labels)  # another process may just have added groups
        nothing = np.zeros(n, dtype=np.int64)
        spans = {promise: promise.window.at(now) for promise in self.notes.promises.values()}
        self._earlier = Earlier(
            began,
            sum((one.exposures[:n] for one in past), nothing),
            sum((one.shown[:n] for one in past if one.shown is not None), nothing),
            sum(one.requests for one in past),
            {promise: self._sum(span, promise, past) for promise, span in spans.items() if span},
        )

    def _note_time(self, now: datetime) -> None:
        """Write down when the tick begins that is about to, where the ledger needs a later time for it."""
        times = self._times.at(self._earlier.began, now.timestamp()).by(self._clock)
        if times != self._times:
            times.save(self.coordinator.ledger)
            self._times = times

    def _window_began(self, now: datetime) -> bool:
        """Return whether a window has begun since the tick did, so that its exposures need a tick of their own."""
        began = self._times.of(self.coordinator.standing().began)
        spans = [promise.window.at(now) for promise in self.notes.promises.values()]
        return any(span.start.timestamp() > began for span in spans if span)

    def _before(self) -> list[Standing]:
        """Return the ticks before the present one, of which the ledger may not know yet."""
        began, last = self.coordinator.standing().began, self.coordinator.ledger.standing()
        past = list(self.coordinator.ledger.past())
        if not past or past[-1].began != last.began:  # otherwise it ended between the two questions
            past.append(last)
        return [one for one in past if one.began < began]

    def _note_traffic(self, now: datetime, standing: Standing) -> None:
        """Tell the forecast what has come in the present slot."""
        total = self._earlier.requests + standing.requests
        came = max(total - self.notes.requests, 0)
        forecast = self.notes.forecast
        at = np.flatnonzero(forecast.slots == int(now.timestamp()) // forecast.slot)
        known = int(forecast.counts[at[0]]) if len(at) else 0
        if came or not len(at):
            self.notes = replace(self.notes, forecast=forecast.observe(now, known + came), requests=total)

    def _note_shown(self, now: datetime, standing: Standing) -> None:
        if self.count == "shown":
            n, earlier = len(self.coordinator.labels), self._earlier
            shown = earlier.shown if standing.shown is None else earlier.shown + standing.shown[: len(earlier.shown)]
            retrieved = earlier.retrieved + standing.exposures[: len(earlier.retrieved)]
            self._share.look(now.timestamp(), retrieved[:n], shown[:n])

    def _coming(self) -> dict[Label, int]:
        """Return what was retrieved and is likely to be shown yet, where that counts."""
        if self.count == "retrieved":
            return {}
        labels = self.coordinator.labels
        return dict(zip(labels, self._share.coming(len(labels)).tolist(), strict=True))

    def _counts_of(self, standing: Standing) -> NDArray[np.int64]:
        if self.count == "retrieved":
            return standing.exposures
        return np.zeros_like(standing.exposures) if standing.shown is None else standing.shown

    def _sum(self, span: Span, promise: Promise, standings: Sequence[Standing]) -> int:
        """Return the exposures of a promise in the ticks of a window."""
        if promise.group not in self.coordinator.labels:
            return 0
        code = self.coordinator.groups.code_of(promise.group)
        within = map(self._counts_of, self._ticks(span, standings))
        return sum(int(counts[code]) for counts in within if code < len(counts))

    def _tally(self, span: Span, promise: Promise, standings: Sequence[Standing]) -> tuple[int, int]:
        """Return the exposures of a promise in the ticks of a window, and the requests of all."""
        requests = sum(tick.requests for tick in self._ticks(span, standings))
        return self._sum(span, promise, standings), requests

    def _ticks(self, span: Span, standings: Sequence[Standing]) -> list[Standing]:
        """Return the ticks of a window."""
        began = [(one, self.tick_began(one)) for one in standings]
        return [one for one, at in began if at is not None and at in span]


def _tell(outlooks: Sequence[Outlook], now: datetime) -> None:
    """Raise the alarm when it becomes known that a promise may fail, or will."""
    for one in outlooks:
        until = f"{one.promise} until {one.span.end:%Y-%m-%d %H:%M} UTC"
        if one.impossible_since == now:
            _log.warning("%s cannot be kept: %d will be missing", until, one.shortfall)
        elif one.at_risk_since == now:
            _log.info("%s is at risk: %d may be missing", until, one.promise.floor - one.certain)
