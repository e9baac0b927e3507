"""The keeper of promises: it answers requests, watches the clock and the traffic, and steers."""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.changes import find_rows, put_items, remove_items
from fairsync.errors import InfeasibleFloorsError, InvalidInputError, UnknownGroupError, UnknownPromiseError
from fairsync.floors import group_caps
from fairsync.service.clock import SteadyClock
from fairsync.service.notes import Notes
from fairsync.service.preview import Recent
from fairsync.service.records import PastWindow, Preview, PromiseRecord, ShownReport, ShownResult
from fairsync.service.shown import ShownShare
from fairsync.service.views import Paces, make_overview, make_view
from fairsync.serving import Found
from fairsync.windows import Plan, Promise, Window, check_promise, make_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from fairsync.catalog import Catalog
    from fairsync.changes import Change
    from fairsync.coordinator import Coordinator
    from fairsync.front_end import FrontEnd
    from fairsync.groups import Label
    from fairsync.ledger import Standing
    from fairsync.service.records import Overview, Pace, PromiseView
    from fairsync.windows import Forecast, Span

# Notes are written down at least so often, for the sake of the traffic they hold.
_NOTED_EVERY = 60.0
# How fast the share of degraded answers is forgotten.
_FORGETTING = 0.01


class Keeper:
    """Keeps promises that end by the clock. All methods may be called from many threads at once.

    Parameters
    ----------
    front
        Answers requests, with a coordinator that does not roll over by itself.
    promises
        Made at the very start; afterwards those in the ledger count.
    forecast
        Of traffic, as long as none was seen.
    count
        ``"retrieved"``: a candidate is an exposure. ``"shown"``: what is reported to be shown is one.
    clock
        Seconds since 1970.
    plan_seconds
        Plans are made anew so often.
    shown_within
        Seconds within which reports of what was shown usually come.
    """

    def __init__(
        self,
        front: FrontEnd,
        coordinator: Coordinator,
        promises: Sequence[Promise],
        forecast: Forecast,
        *,
        count: str = "retrieved",
        clock: Callable[[], float] | None = None,
        plan_seconds: float = 5.0,
        shown_within: float = 60.0,
    ) -> None:
        if count not in ("retrieved", "shown"):
            raise InvalidInputError(f"count must be 'retrieved' or 'shown', got {count!r}.")
        self.front, self.coordinator, self.count = front, coordinator, count
        self._clock, self._plan_seconds = clock or SteadyClock(), plan_seconds
        self._lock = threading.RLock()
        self.recent, self.paces = Recent(), Paces()
        self.degraded = 0.0
        self.started = self.now()
        labels = tuple(coordinator.labels)
        made = {uuid.uuid4().hex[:12]: promise for promise in promises}
        self.notes = Notes.load(coordinator.ledger) or Notes(labels, made, forecast)
        self.notes = replace(self.notes, labels=labels)
        self.share = ShownShare.of(len(labels), shown_within)
        if self.notes.shown:
            self.share.restore(self.notes.shown)
        self._before: dict[Promise, int] = {}
        self._requests_before = 0
        self._noted_at = self._planned_at = 0.0
        self._go_on()

    @property
    def catalog(self) -> Catalog:
        """The items as they are now."""
        return self.front.catalog

    @property
    def k(self) -> int:
        """Candidates per request, unless it asks for another number."""
        return self.coordinator.k

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        assert self.notes.plan is not None
        return self.notes.plan

    def retrieve(
        self, users: NDArray[np.floating[Any]], request_ids: Sequence[str | None] | None = None, k: int | None = None
    ) -> Found:
        """Return the candidates of requests; see :meth:`fairsync.FrontEnd.retrieve`."""
        found = self.front.retrieve(users, k, request_ids)
        vectors = np.asarray(users)
        self.recent.add(vectors if vectors.ndim == 3 else vectors[:, None])
        if len(found):
            self.degraded += _FORGETTING * len(found) * (float((found.searched < 1).mean()) - self.degraded)
            self.degraded = min(max(self.degraded, 0.0), 1.0)
        if self.count == "shown" and len(found):
            with self._lock:
                self.share.note_retrieved(self._clock(), self._count(found.groups.ravel().tolist()))
        if self.coordinator.standing().requests >= self.coordinator.terms.horizon:
            self.look()  # more came than the plan counted on
        return found

    def show(self, reports: Sequence[ShownReport]) -> ShownResult:
        """Count what was really shown. Reports may come late, out of order, and twice."""
        counted = repeated = unknown = 0
        for report in reports:
            labels, strange = self._shown_groups(report)
            unknown += strange
            counts = self._count(labels)
            if self.coordinator.note_shown(counts, f"shown {report.request_id} {report.report_id or ''}"):
                counted += len(labels)
                with self._lock:
                    self.share.note_shown(counts)
            else:
                repeated += 1
        return ShownResult(counted=counted, repeated=repeated, unknown=unknown)

    def look(self) -> None:
        """Look at clock and traffic, and do what is due. To be called every second or so."""
        with self._lock:
            now, standing = self.now(), self.coordinator.standing()
            self._note_traffic(now, standing)
            self.share.settle(now.timestamp())
            if now >= self.plan.span.end:
                self._begin(now, standing)
            elif (
                now.timestamp() - self._planned_at >= self._plan_seconds
                or standing.requests >= self.coordinator.terms.horizon
            ):
                self._replan(now)
            if now.timestamp() - self._noted_at >= _NOTED_EVERY:
                self._save(now)

    def preview(self, given: PromiseRecord, replacing: str | None = None) -> Preview:
        """Return what would come of a promise, without making it."""
        promise = self._promise_of(given)
        with self._lock:
            now = self.now()
            others = {name: other for name, other in self.notes.promises.items() if name != replacing}
            verdict = check_promise(
                promise, others.values(), self._exposures(), self.notes.forecast, now, self.k, self._caps()
            )
        rates = self._rates([*others.values(), promise], now)
        estimate = self.recent.estimate(self.catalog, self.front.index, self.k, rates) if verdict.accepted else None
        return Preview(
            feasible=verdict.accepted,
            largest=verdict.largest,
            safe=verdict.largest_cautious,
            cost=None if estimate is None else estimate.cost,
            cost_share=None if estimate is None else estimate.share,
            message=verdict.message,
        )

    def set_promise(self, given: PromiseRecord, name: str | None = None) -> PromiseView:
        """Make a promise, or change one; refused if the expected traffic cannot carry it."""
        promise = self._promise_of(given)
        with self._lock:
            now, promises = self.now(), self.notes.promises
            if name is not None and name not in promises:
                raise UnknownPromiseError(f"there is no promise {name!r}.")
            others = {other: made for other, made in promises.items() if other != name}
            twin = [
                other for other, made in others.items() if (made.group, made.window) == (promise.group, promise.window)
            ]
            if twin:
                raise InvalidInputError(
                    f"there is a promise for group {promise.group!r} and this window already: change {twin[0]!r}."
                )
            verdict = check_promise(
                promise, others.values(), self._exposures(), self.notes.forecast, now, self.k, self._caps()
            )
            if not verdict.accepted:
                reason = f"the traffic expected from {verdict.tightest.start:%Y-%m-%d %H:%M} UTC has no room for more"
                raise InfeasibleFloorsError(promise.group, promise.floor, reason, verdict.largest)
            name = name or uuid.uuid4().hex[:12]
            before = promises.get(name)
            # Where only the floor is another, the window goes on with what it has had.
            had = self._before.get(before, 0) if before and _same_place(before, promise) else self._had(promise, now)
            self.notes = replace(self.notes, promises={**others, name: promise})
            self._before[promise] = had
            self._replan(now)
            self._save(now)
            return make_view(self, name, promise)

    def delete_promise(self, name: str) -> None:
        """Take a promise back."""
        with self._lock:
            if name not in self.notes.promises:
                raise UnknownPromiseError(f"there is no promise {name!r}.")
            kept = {other: promise for other, promise in self.notes.promises.items() if other != name}
            self.notes = replace(self.notes, promises=kept)
            self._replan(self.now())
            self._save(self.now())

    def put_items(
        self, embeddings: ArrayLike, groups: Sequence[Label] | NDArray[Any], ids: Sequence[Label] | NDArray[Any]
    ) -> None:
        """Add items, or replace those whose ids are known, from the next request on, until the next restart.

        A restart reads the catalog's files again: write changes there too.
        """
        self._change(lambda catalog: put_items(catalog, embeddings, groups, ids))

    def remove_items(self, ids: Sequence[Label] | NDArray[Any]) -> None:
        """Take items out, from the next request on, until the next restart."""
        self._change(lambda catalog: remove_items(catalog, ids))

    def overview(self) -> Overview:
        """Return where everything stands."""
        return make_overview(self)

    def promises(self) -> list[PromiseView]:
        """Return every promise and where it stands."""
        with self._lock:
            return [make_view(self, name, promise) for name, promise in self.notes.promises.items()]

    def pace(self, name: str) -> Pace:
        """Return how a promise has come along in its present window."""
        with self._lock:
            if name not in self.notes.promises:
                raise UnknownPromiseError(f"there is no promise {name!r}.")
            return self.paces.of(self, name, self.notes.promises[name])

    def past(self, limit: int = 200) -> list[PastWindow]:
        """Return the latest windows that are over, the latest first."""
        return list(self.notes.past[::-1][:limit])

    def ready(self) -> tuple[bool, str]:
        """Return whether requests can be answered, and if not, why."""
        return True, "ready"

    def close(self) -> None:
        """Write down what was learnt. The ledger stays open: it is the caller's."""
        with self._lock:
            self._save(self.now())
            self.coordinator.keep()

    def exposures_of(self, promise: Promise) -> int:
        """Return the exposures of a promise in its present window."""
        return self._exposures().get(promise, 0)

    def counted(self) -> NDArray[np.int64]:
        """Return (G,) what counts in the present tick."""
        standing = self.coordinator.standing()
        if self.count == "retrieved":
            return standing.exposures
        return np.zeros_like(standing.exposures) if standing.shown is None else standing.shown

    def now(self) -> datetime:
        """Return the time by the keeper's clock."""
        return datetime.fromtimestamp(self._clock(), UTC)

    def _caps(self) -> dict[Label, int]:
        return dict(zip(self.coordinator.labels, group_caps(self.coordinator.groups, self.k).tolist(), strict=True))

    def _count(self, labels: Sequence[Label]) -> NDArray[np.int64]:
        codes = [self.coordinator.groups.code_of(label) for label in labels]
        return np.bincount(np.array(codes, dtype=np.int64), minlength=len(self.coordinator.labels))

    def _exposures(self) -> dict[Promise, int]:
        """Return the exposures of each promise in its present window."""
        counts = dict(zip(self.coordinator.labels, self.counted().tolist(), strict=True))
        return {
            promise: self._before.get(promise, 0) + counts.get(promise.group, 0)
            for promise in self.notes.promises.values()
            if promise.window.at(self.plan.span.start) is not None
        }

    def _promise_of(self, given: PromiseRecord) -> Promise:
        if given.group not in self.coordinator.labels:
            raise UnknownGroupError([given.group], self.coordinator.labels)
        window = given.window
        if window.every == "campaign":
            if window.start is None or window.end is None:
                raise InvalidInputError("a campaign needs a start and an end.")
            made = Window.campaign(window.start, window.end, window.zone)
        else:
            made = Window(window.every, window.zone, window.start, window.end)
        return Promise(given.group, given.floor, made)

    def _go_on(self) -> None:
        """Begin a tick, where the ledger stands."""
        now, standing = self.now(), self.coordinator.standing()
        past = [*self.coordinator.ledger.past(), standing]
        self._requests_before = sum(one.requests for one in past[:-1])
        self._traffic_seen = self._requests_before + standing.requests
        self._close_windows(now, past)
        self._before = self._sums(now, past)
        self._requests_before += standing.requests
        self._start(now)
        self._save(now)

    def _begin(self, now: datetime, standing: Standing) -> None:
        """End the tick, and begin the next."""
        exposures = self._exposures()
        ended = [
            _past(name, promise, outlook.span, exposures.get(promise, 0), outlook.impossible_since)
            for outlook in self.plan.outlooks
            for name, promise in self.notes.promises.items()
            if promise == outlook.promise and outlook.span.end <= now
        ]
        self.notes = self.notes.with_past(ended)
        self._before = {
            promise: count
            for promise, count in exposures.items()
            if promise.window.at(now) == promise.window.at(self.plan.span.start)
        }
        self._requests_before += standing.requests
        self._start(now)
        self._save(now)

    def _start(self, now: datetime) -> None:
        self._plan(now, counts=np.zeros(len(self.coordinator.labels), dtype=np.int64), anew=True)

    def _replan(self, now: datetime) -> None:
        self._plan(now, self.counted(), anew=False)

    def _plan(self, now: datetime, counts: NDArray[np.int64], *, anew: bool) -> None:
        labels = self.coordinator.labels
        here = dict(zip(labels, counts.tolist(), strict=True))
        promises = tuple(self.notes.promises.values())
        exposures = {promise: self._before.get(promise, 0) + here[promise.group] for promise in promises}
        plan = make_plan(promises, exposures, self.notes.forecast, now, self.k, self._caps(), self.notes.plan)
        more: Mapping[Label, int] = plan.floors
        if self.count == "shown":
            wanted = np.array([plan.floors.get(label, 0) for label in labels], dtype=np.int64)
            more = dict(zip(labels, self.share.needed(wanted).tolist(), strict=True))
        self.coordinator.steer(more, plan.horizon, anew=now.timestamp() if anew else None)
        self.notes = replace(self.notes, plan=plan)
        self._planned_at = now.timestamp()
        self.paces.note(self, now)

    def _note_traffic(self, now: datetime, standing: Standing) -> None:
        """Tell the forecast what has come in the present slot, and that slots passed without a word had none."""
        total = self._requests_before + standing.requests
        came, self._traffic_seen = max(total - self._traffic_seen, 0), total
        forecast = self.notes.forecast
        slot = int(now.timestamp()) // forecast.slot
        at = np.flatnonzero(forecast.slots == slot)
        known = int(forecast.counts[at[0]]) if len(at) else 0
        if came or not len(at):
            self.notes = replace(self.notes, forecast=forecast.observe(now, known + came))

    def _close_windows(self, now: datetime, standings: Sequence[Standing]) -> None:
        """Write down windows that ended while nobody was there."""
        if self.notes.plan is None:
            return
        ended = []
        for outlook in self.notes.plan.outlooks:
            for name, promise in self.notes.promises.items():
                if promise == outlook.promise and outlook.span.end <= now:
                    had = self._sum(outlook.span, promise, standings)
                    ended.append(_past(name, promise, outlook.span, had, outlook.impossible_since))
        self.notes = self.notes.with_past(ended)

    def _sums(self, now: datetime, standings: Sequence[Standing]) -> dict[Promise, int]:
        spans = {promise: promise.window.at(now) for promise in self.notes.promises.values()}
        return {promise: self._sum(span, promise, standings) for promise, span in spans.items() if span is not None}

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

    def _had(self, promise: Promise, now: datetime) -> int:
        """Return the exposures of a new promise in its window before the present tick."""
        span = promise.window.at(now)
        return 0 if span is None else self._sum(span, promise, self.coordinator.ledger.past())

    def _shown_groups(self, report: ShownReport) -> tuple[list[Label], int]:
        """Return the groups of the items that a report names, and how many it names that cannot have been shown."""
        items = list(dict.fromkeys(report.items))
        answer = self.coordinator.answer(report.request_id)
        if answer:
            found = Found.load(answer)
            group_of = dict(zip(found.ids[0].tolist(), found.groups[0].tolist(), strict=True))
            labels = [group_of[item] for item in items if item in group_of]
            return labels, len(items) - len(labels)
        catalog, kind = self.catalog, str if self.catalog.ids.dtype.kind == "U" else int
        fitting = [item for item in items if isinstance(item, kind)]
        if not fitting:
            return [], len(items)
        rows = find_rows(catalog, np.array(fitting))
        labels = catalog.labels_of(catalog.group_of[rows[rows >= 0]]).tolist()
        return labels, len(items) - len(labels)

    def _change(self, change: Callable[[Catalog], Change]) -> None:
        with self._lock:
            changed = change(self.catalog)
            left = max(self.coordinator.terms.horizon - self.coordinator.standing().requests, 1)
            missing = np.maximum(self.coordinator.terms.floors - self.coordinator.standing().exposures, 0)
            more = dict(zip(self.coordinator.labels, missing.tolist(), strict=True))
            self.coordinator.steer(more, left, groups=changed.catalog.groups)
            self.front.follow(changed)
            if len(self.coordinator.labels) > len(self.share.shown):
                self.share.grow(len(self.coordinator.labels))
            self.notes = replace(self.notes, labels=tuple(self.coordinator.labels))
            self._replan(self.now())
            self._save(self.now())

    def _rates(self, promises: Sequence[Promise], now: datetime) -> dict[Label, float]:
        """Return the exposures per request that promises ask for in the long run."""
        rates: dict[Label, float] = {}
        for promise in promises:
            span = promise.window.at(now) or promise.window.after(now)
            if span is not None:
                requests = max(self.notes.forecast.expected(span.start, span.end, now), 1.0)
                rates[promise.group] = max(rates.get(promise.group, 0.0), promise.floor / requests)
        return rates

    def _save(self, now: datetime) -> None:
        self.notes = replace(self.notes, shown=self.share.to_dict() if self.count == "shown" else {})
        self.notes.save(self.coordinator.ledger)
        self._noted_at = now.timestamp()


def _past(name: str, promise: Promise, span: Span, had: int, since: datetime | None) -> PastWindow:
    return PastWindow(
        promise=name,
        group=promise.group,
        start=span.start,
        end=span.end,
        floor=promise.floor,
        exposures=had,
        kept=had >= promise.floor,
        impossible_since=since,
    )


def _same_place(one: Promise, other: Promise) -> bool:
    return (one.group, one.window) == (other.group, other.window)
