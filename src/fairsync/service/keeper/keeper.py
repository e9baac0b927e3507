"""The keeper of promises: it answers requests, takes reports and changes, and says where everything stands."""

from __future__ import annotations

import json
import logging
import uuid
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.changes import find_rows, put_items, remove_items
from fairsync.errors import (
    FairSyncError,
    InfeasibleFloorsError,
    InvalidInputError,
    UnknownPromiseError,
)
from fairsync.service.keeper.clock import SteadyClock
from fairsync.service.keeper.meter import CostMeter
from fairsync.service.keeper.notes import Notes
from fairsync.service.keeper.planner import Planner
from fairsync.service.keeper.preview import Recent
from fairsync.service.keeper.promises import as_before, check_alone, one_after_the_other, promise_of
from fairsync.service.keeper.prospects import Prospects
from fairsync.service.keeper.readiness import Readiness
from fairsync.service.keeper.views import Paces, make_overview, shards_of
from fairsync.service.records import Preview, ShownResult
from fairsync.serving import Found
from fairsync.windows import SLUMP, check_promise

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from fairsync.catalog import Catalog
    from fairsync.changes import Change
    from fairsync.coordination.bookkeeper import Bookkeeper
    from fairsync.front_end import FrontEnd
    from fairsync.groups import Label
    from fairsync.service.records import Overview, Pace, PastWindow, PromiseRecord, PromiseView, ShownReport
    from fairsync.windows import Forecast, Promise, Verdict

_log = logging.getLogger(__name__)
# How fast the share of degraded answers is forgotten, per answer.
_FORGETTING = 0.01
# An alert that was not told for so long has ended.
_PASSED = timedelta(minutes=5)
# Between two plans, however many requests come.
_SOON = timedelta(seconds=0.25)


class Keeper:
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
        ``"retrieved"``: a candidate is an exposure. ``"shown"``: what is reported to be shown is one.
    clock
        Seconds since 1970.
    plan_seconds
        Plans are made anew so often.
    shown_within
        Seconds within which reports of what was shown usually come.
    slump
        Floors are to be met even if traffic falls to this part of what is expected, from one moment to the next.
    """

    def __init__(
        self,
        front: FrontEnd,
        coordinator: Bookkeeper,
        promises: Sequence[Promise],
        forecast: Forecast,
        *,
        count: str = "retrieved",
        clock: Callable[[], float] | None = None,
        plan_seconds: float = 5.0,
        shown_within: float = 60.0,
        slump: float = SLUMP,
    ) -> None:
        if count not in ("retrieved", "shown"):
            raise InvalidInputError(f"count must be 'retrieved' or 'shown', got {count!r}.")
        self.front, self.coordinator, self.count = front, coordinator, count
        made = {uuid.uuid4().hex[:12]: promise for promise in promises}
        notes = Notes(tuple(coordinator.labels), made, forecast)
        self.planner = Planner(coordinator, notes, count, clock or SteadyClock(), plan_seconds, shown_within, slump)
        self.recent, self.paces, self.meter, self.degraded = Recent(), Paces(), CostMeter(), 0.0
        self._told: dict[str, tuple[datetime, datetime]] = {}
        self.readiness = Readiness(coordinator.ledger)
        self.started = self._looked_at = self.planner.now()
        self.paces.note(self.planner)

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
        deliver: Callable[[Found], None] | None = None,
    ) -> Found:
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
        vectors, standing = np.asarray(users), self.coordinator.standing()
        vectors = vectors if vectors.ndim == 3 else vectors[:, None]
        self.recent.add(vectors)
        if self.catalog is catalog:  # otherwise it is not known from which items the answers came
            self.meter.note(catalog, self.k, standing.began, vectors, found)
        weight, lacking = min(_FORGETTING * len(found), 1.0), np.count_nonzero(found.searched < 1)
        self.degraded += weight * (lacking / len(found) - self.degraded)
        if standing.requests >= self.coordinator.terms.horizon:
            self._look_ahead()
        return found

    def show(self, reports: Sequence[ShownReport]) -> ShownResult:
        """Count what was really shown. Reports may come late, out of order, and twice."""
        counted = repeated = unknown = 0
        for report in reports:
            labels, strange = self._shown_groups(report)
            unknown += strange
            counts = self._count(labels)
            with self.readiness.serving():
                new = self.coordinator.note_shown(counts, json.dumps(["shown", report.request_id, report.report_id]))
            if new:
                counted += len(labels)
            else:
                repeated += 1
        return ShownResult(counted=counted, repeated=repeated, unknown=unknown)

    def look(self) -> None:
        """Look at clock and traffic, and do what is due. To be called every second or so."""
        with self.planner.lock:
            if self.planner.look():
                self.paces.note(self.planner)
        self.meter.look(self)

    def _look_ahead(self) -> None:
        """Plan anew because more came than the plan counted on; what goes wrong must not lose an answer."""
        if abs(self.planner.now() - self._looked_at) < _SOON:
            return
        self._looked_at = self.planner.now()
        try:
            self.look()
        except FairSyncError as error:
            _log.warning("no new plan could be made: %s", error)

    def promises(self) -> list[PromiseView]:
        """Return every promise and where it stands."""
        with self.planner.lock:
            prospects = Prospects(self)
            return [prospects.view(name, made) for name, made in self.planner.notes.promises.items()]

    def preview(self, given: PromiseRecord, replacing: str | None = None) -> Preview:
        """Return what would come of a promise, without making it."""
        asked = promise_of(given, self.coordinator.groups)
        with self.planner.lock:
            promises = self.planner.notes.promises
            others = _others(promises, replacing)
            promise = asked if replacing is None else as_before(asked, promises[replacing])
            verdict = self._verdict(promise, others)
            rates = self._rates([*others.values(), promise])
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
            assert verdict.holds_from is not None, "it was accepted"
            parts = one_after_the_other(before, promise, verdict.holds_from, self.planner.now())
            return {**promises, **dict(zip([made, uuid.uuid4().hex[:12]], parts, strict=False))}

        with self.planner.lock:
            self.planner.change(decide)
            return Prospects(self).view(made, self.planner.notes.promises[made])

    def delete_promise(self, name: str) -> None:
        """Take a promise back."""
        with self.planner.lock:
            self.planner.change(lambda promises: _others(promises, name))

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

    def since(self, what: str, now: datetime) -> datetime:
        """Return since when something has been so, that is told time and again."""
        known = self._told.get(what)
        # What was not told for a while had passed, and has begun again.
        began = now if known is None or abs(now - known[1]) > _PASSED else known[0]
        self._told[what] = (began, now)
        return began

    def pace(self, name: str) -> Pace:
        """Return how a promise has come along in its present window."""
        with self.planner.lock:
            _others(self.planner.notes.promises, name)
            return self.paces.of(Prospects(self), name, self.planner.notes.promises[name])

    def past(self, limit: int = 200) -> list[PastWindow]:
        """Return the latest windows that are over, the latest first."""
        now = self.planner.now()  # the clock may have been ahead, and set back
        return [one for one in self.planner.notes.past[::-1] if one.end <= now][:limit]

    def check_ready(self) -> None:
        """Find out whether requests can be answered, after a look. Apart from it, for shards may take a second."""
        self.readiness.look(shards_of(self))

    def ready(self) -> tuple[bool, str]:
        """Return whether requests can be answered, and if not, why."""
        return self.readiness.verdict()

    def close(self) -> None:
        """Write down what was learnt. The ledger stays open: it is the caller's."""
        self.readiness.end()
        self.meter.close()
        with self.planner.lock:
            self.planner.save()
            self.coordinator.keep()

    def _verdict(self, promise: Promise, others: Mapping[str, Promise]) -> Verdict:
        planner = self.planner
        exposures = {**planner.exposures(), promise: planner.exposures_of(promise)}
        now, caps, shares = planner.now(), planner.caps(), planner.shares()
        return check_promise(promise, others.values(), exposures, planner.traffic(), now, self.k, caps, shares)

    def _rates(self, promises: Sequence[Promise]) -> dict[Label, float]:
        """Return the exposures per request that promises ask for in the long run."""
        now, forecast = self.planner.now(), self.planner.notes.forecast
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
        with self.planner.lock:
            changed = change(self.catalog)
            terms, standing = self.coordinator.terms, self.coordinator.standing()
            missing = np.maximum(terms.floors - standing.exposures, 0).tolist()
            more = dict(zip(self.coordinator.labels, missing, strict=True))
            # Labels are noted before the ledger counts them, or a kill in between would leave counts without a name;
            # and the coordinator must know a group before anything of it can be found.
            self.planner.note_labels(changed.catalog.labels)
            self.coordinator.steer(more, max(terms.horizon - standing.requests, 1), groups=changed.catalog.groups)
            self.front.follow(changed)
            self.planner.change(lambda promises: promises)


def _others(promises: Mapping[str, Promise], name: str | None) -> dict[str, Promise]:
    """Return all promises but one."""
    if name is not None and name not in promises:
        raise UnknownPromiseError(f"there is no promise {name!r}.")
    return {other: promise for other, promise in promises.items() if other != name}
