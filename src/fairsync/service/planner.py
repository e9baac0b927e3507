"""Planning by the clock: what has come, what is expected, and what the coordinator is to aim at until the next look."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from fairsync.floors import group_caps
from fairsync.service.records import PastWindow
from fairsync.service.shown import ShownShare
from fairsync.windows import make_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from fairsync.coordinator import Coordinator
    from fairsync.groups import Label
    from fairsync.ledger import Standing
    from fairsync.service.notes import Notes
    from fairsync.windows import Outlook, Plan, Promise, Span

# Notes are written down at least so often, for the sake of the traffic they hold.
_NOTED_EVERY = 60.0


class Planner:
    """Divides time into ticks, each ending where the next window ends, and steers the coordinator through them.

    A tick is one horizon of the ledger. So the exposures of a window are those of its ticks, and each tick knows when
    it began: whatever is killed when, the counts of every window can be read from the ledger alone.

    Whoever calls several of its methods in a row holds `lock`.

    Parameters
    ----------
    coordinator
        To steer; it must not roll over by itself.
    notes
        Promises and forecast, and what is known from before.
    count
        ``"retrieved"`` or ``"shown"``.
    clock
        Seconds since 1970.
    plan_seconds
        Plans are made anew so often.
    shown_within
        Seconds within which reports of what was shown usually come.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        notes: Notes,
        count: str,
        clock: Callable[[], float],
        plan_seconds: float,
        shown_within: float,
    ) -> None:
        self.coordinator, self.count = coordinator, count
        self.notes = replace(notes, labels=tuple(coordinator.labels))
        self.lock = threading.RLock()
        self.share = ShownShare.of(len(coordinator.labels), shown_within)
        if notes.shown:
            self.share.restore(notes.shown)
        self._clock, self._plan_seconds = clock, plan_seconds
        self._noted_at = self._planned_at = 0.0
        self._begin_where_the_ledger_stands()

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        assert self.notes.plan is not None
        return self.notes.plan

    def now(self) -> datetime:
        """Return the time."""
        return datetime.fromtimestamp(self._clock(), UTC)

    def look(self) -> bool:
        """Look at clock and traffic, and do what is due; return whether a plan was made."""
        with self.lock:
            now, standing = self.now(), self.coordinator.standing()
            self._note_traffic(now, standing)
            self.share.settle(now.timestamp())
            exceeded = standing.requests >= self.coordinator.terms.horizon
            planned = True
            if now >= self.plan.span.end:
                self._turn(now, standing)
            elif exceeded or now.timestamp() - self._planned_at >= self._plan_seconds:
                self.replan()
            else:
                planned = False
            if now.timestamp() - self._noted_at >= _NOTED_EVERY:
                self.save()
            return planned

    def replan(self) -> None:
        """Make a plan for the rest of the tick."""
        self._steer(self.now(), self.counted(), anew=False)

    def change(self, promises: Mapping[str, Promise]) -> None:
        """Go on with other promises."""
        now, past = self.now(), None
        for promise in promises.values():
            if promise not in self._before:
                past = self.coordinator.ledger.past() if past is None else past
                span = promise.window.at(now)
                self._before[promise] = 0 if span is None else self._sum(span, promise, past)
        self.notes = replace(self.notes, promises=dict(promises), labels=tuple(self.coordinator.labels))
        if len(self.coordinator.labels) > len(self.share.shown):
            self.share.grow(len(self.coordinator.labels))
        self.replan()
        self.save()

    def counted(self) -> NDArray[np.int64]:
        """Return (G,) what counts in the present tick."""
        standing = self.coordinator.standing()
        if self.count == "retrieved":
            return standing.exposures
        return np.zeros_like(standing.exposures) if standing.shown is None else standing.shown

    def exposures(self) -> dict[Promise, int]:
        """Return the exposures of each promise in its present window."""
        counts = dict(zip(self.coordinator.labels, self.counted().tolist(), strict=True))
        return {
            promise: self._before.get(promise, 0) + counts[promise.group]
            for promise in self.notes.promises.values()
            if promise.window.at(self.plan.span.start) is not None
        }

    def caps(self) -> dict[Label, int]:
        """Return the most exposures of each group that one request can hold."""
        caps = group_caps(self.coordinator.groups, self.coordinator.k)
        return dict(zip(self.coordinator.labels, caps.tolist(), strict=True))

    def save(self) -> None:
        """Write down what must not be forgotten."""
        self.notes = replace(self.notes, shown=self.share.to_dict() if self.count == "shown" else {})
        self.notes.save(self.coordinator.ledger)
        self._noted_at = self.now().timestamp()

    def _begin_where_the_ledger_stands(self) -> None:
        now, standings = self.now(), [*self.coordinator.ledger.past(), self.coordinator.standing()]
        self._requests_before = self._requests_seen = sum(one.requests for one in standings)
        outlooks = () if self.notes.plan is None else self.notes.plan.outlooks
        # Windows may have ended while nobody was there.
        ended = [one for one in outlooks if one.span.end <= now]
        self._close(ended, {one.promise: self._sum(one.span, one.promise, standings) for one in ended})
        spans = {promise: promise.window.at(now) for promise in self.notes.promises.values()}
        self._before = {promise: self._sum(span, promise, standings) for promise, span in spans.items() if span}
        self._steer(now, np.zeros(len(self.coordinator.labels), dtype=np.int64), anew=True)
        self.save()

    def _turn(self, now: datetime, standing: Standing) -> None:
        """End the tick, and begin the next."""
        exposures, began = self.exposures(), self.plan.span.start
        self._close([outlook for outlook in self.plan.outlooks if outlook.span.end <= now], exposures)
        self._before = {
            promise: count for promise, count in exposures.items() if promise.window.at(now) == promise.window.at(began)
        }
        self._requests_before += standing.requests
        self._steer(now, np.zeros(len(self.coordinator.labels), dtype=np.int64), anew=True)
        self.save()

    def _steer(self, now: datetime, counts: NDArray[np.int64], *, anew: bool) -> None:
        labels = self.coordinator.labels
        here = dict(zip(labels, counts.tolist(), strict=True))
        promises = tuple(self.notes.promises.values())
        exposures = {promise: self._before.get(promise, 0) + here[promise.group] for promise in promises}
        forecast, k = self.notes.forecast, self.coordinator.k
        plan = make_plan(promises, exposures, forecast, now, k, self.caps(), self.notes.plan)
        more: Mapping[Label, int] = plan.floors
        if self.count == "shown":
            wanted = np.array([plan.floors.get(label, 0) for label in labels], dtype=np.int64)
            more = dict(zip(labels, self.share.needed(wanted).tolist(), strict=True))
        self.coordinator.steer(more, plan.horizon, anew=now.timestamp() if anew else None)
        self.notes = replace(self.notes, plan=plan)
        self._planned_at = now.timestamp()

    def _close(self, ended: Sequence[Outlook], exposures: Mapping[Promise, int]) -> None:
        """Write down how windows have ended."""
        names = {promise: name for name, promise in self.notes.promises.items()}
        self.notes = self.notes.with_past(
            [
                PastWindow(
                    promise=names[one.promise],
                    group=one.promise.group,
                    start=one.span.start,
                    end=one.span.end,
                    floor=one.promise.floor,
                    exposures=exposures.get(one.promise, 0),
                    kept=exposures.get(one.promise, 0) >= one.promise.floor,
                    impossible_since=one.impossible_since,
                )
                for one in ended
                if one.promise in names
            ]
        )

    def _note_traffic(self, now: datetime, standing: Standing) -> None:
        """Tell the forecast what has come in the present slot."""
        total = self._requests_before + standing.requests
        came, self._requests_seen = max(total - self._requests_seen, 0), total
        forecast = self.notes.forecast
        at = np.flatnonzero(forecast.slots == int(now.timestamp()) // forecast.slot)
        known = int(forecast.counts[at[0]]) if len(at) else 0
        if came or not len(at):
            self.notes = replace(self.notes, forecast=forecast.observe(now, known + came))

    def _sum(self, span: Span, promise: Promise, standings: Sequence[Standing]) -> int:
        """Return the exposures of a promise in the ticks of a window."""
        if promise.group not in self.coordinator.labels:
            return 0
        code, total = self.coordinator.groups.code_of(promise.group), 0
        for one in standings:
            counts = one.exposures if self.count == "retrieved" else one.shown
            if counts is not None and one.began and datetime.fromtimestamp(one.began, UTC) in span:
                total += int(counts[code])
        return total
