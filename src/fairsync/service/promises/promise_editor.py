"""Making, changing, previewing and ending promises while requests are answered."""

from __future__ import annotations

import contextlib
import math
import uuid
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from fairsync.errors import CallCancelledError, InfeasibleFloorsError, InvalidInputError
from fairsync.service.promises.columns import selection_of
from fairsync.service.promises.preview import Estimate, PreviewLimit, asked_rates
from fairsync.service.promises.promise_changes import (
    all_but,
    check_list_limits,
    check_unique_all,
    split_at,
    with_start_of,
)
from fairsync.service.promises.promise_series import days_of, promises_of, series_of
from fairsync.service.schema import Preview
from fairsync.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from fairsync.coordination.coordinator import Coordinator
    from fairsync.coordination.front_end import FrontEnd
    from fairsync.schedule import Feasibility, FeasibilityCheck, ScheduledPromise
    from fairsync.service.promises.overview import StatusReporter
    from fairsync.service.promises.preview import RecentRequests
    from fairsync.service.promises.scheduler import Scheduler
    from fairsync.service.schema import PromiseView

# Checks of the first days of items when a promise for each is changed, at most.
_MOST_CHECKS = 16
# Promises that a refusal names.
_MOST_NAMED = 3
# A refusal of more promises together than this names the first window that has no room for them, and no more.
_MANY = 100


class _PromisesChanged(Exception):  # noqa: N818
    """Promises were changed while another was checked beside them."""


class PromiseEditor:
    """Makes, changes, previews and ends promises, each after a check that all of them can be kept.

    Parameters
    ----------
    front, coordinator
        Their items, prices and k are those that promises are made about.
    scheduler
        Holds the promises, and plans for them.
    reporter
        Describes promises to callers.
    recent
        Recent requests, on which the cost of a promise is estimated.
    """

    def __init__(
        self,
        front: FrontEnd,
        coordinator: Coordinator,
        scheduler: Scheduler,
        reporter: StatusReporter,
        recent: RecentRequests,
    ) -> None:
        self._front, self._coordinator, self._scheduler = front, coordinator, scheduler
        self._reporter, self._recent = reporter, recent
        self._preview_limit = PreviewLimit()

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
        with self._scheduler.lock:
            promises, others = self._scheduler.state.promises, self._all_but(replacing)
            asked = self._asked({replacing or new_id(): promise}, promises)
            checks = [check for check, _ in self._prepare_checks({"": promise}, asked, others, checkpoint)]
            names = {one: name for name, one in others.items()}
            state, now, k = self._scheduler.state, self._scheduler.now(), self._coordinator.k
            rates = asked_rates([*others.values(), *asked.values()], state.forecast, now, k)
            items = self._front.items_under(self._coordinator.terms.membership)
            labels, attribute = self._coordinator.labels, self._front.catalog.group_attribute
            in_force = zip(labels, self._coordinator.prices().tolist(), strict=True)
            prices = {selection_of(label, attribute): price for label, price in in_force if price}
        verdicts = [(check, check.run()) for check in checks]
        check, verdict = next(((one, found) for one, found in verdicts if not found.accepted), verdicts[0])
        estimate = Estimate()
        if verdict.accepted and items.catalog.weights is not None:
            estimate = Estimate(reason="only a search engine holds the items")
        elif verdict.accepted:
            estimate = self._recent.estimate(items, k, rates, prices, checkpoint)
        largest, safe, share = verdict.largest, verdict.largest_safe, None
        if isinstance(verdict.promise.promise.at_least, float):
            span, share = verdict.tightest, verdict.largest
            slots = self._coordinator.k * check.traffic.expected(span.start, span.end, check.now)
            largest, safe = (math.floor(one * slots) for one in (largest, safe))
        return Preview(
            feasible=verdict.accepted,
            largest=int(largest),
            safe=int(safe),
            largest_share=share,
            pushes_out=[names[one] for one in check.pushes_out(verdict) if one in names],
            least_cost=estimate.cost,
            least_cost_share=estimate.share,
            message=f"{verdict.message} {estimate.note}".rstrip(),
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
        return self._set_promises({name or new_id(): promise}, name, by, is_cancelled)[0]

    def make_promises(
        self,
        promises: Sequence[ScheduledPromise],
        by: str = "",
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> list[PromiseView]:
        """Make promises together, or none of them if they cannot all be kept; see `set_promise`."""
        return self._set_promises({new_id(): promise for promise in promises}, None, by, is_cancelled)

    def _set_promises(
        self, given: Mapping[str, ScheduledPromise], changed: str | None, by: str, is_cancelled: Callable[[], bool]
    ) -> list[PromiseView]:
        """Set promises by id, if all of them can be kept; one of them may be known."""
        checkpoint = partial(_check_wanted, is_cancelled)
        while True:
            with self._scheduler.lock:
                self._scheduler.take_lead()
                seen, known = self._scheduler.state.promises, self._scheduler.state.series
                others = self._all_but(changed)
                asked = self._asked(given, seen)
                check_unique_all(asked, others)
                self._check_budget(asked)
                series = {name: one for name, one in known.items() if name != changed}
                series |= {name: one for name, one in given.items() if one.promise.each is not None}
                checks = self._prepare_checks(given, asked, others, checkpoint)
            check_list_limits(self._front.catalog, asked.values(), others.values())
            # Beside thousands of promises a check takes seconds, and planning and requests go on meanwhile.
            starts = {}
            for check, names in checks:
                verdict = check.run(up_to_asked=True)
                if not verdict.accepted and len(asked) > _MANY:
                    raise _refusal(verdict, (), len(asked))
                if not verdict.accepted:
                    verdict = check.run()
                    raise _refusal(verdict, check.pushes_out(verdict), len(asked))
                assert verdict.effective_from is not None, "it was accepted"
                starts.update(dict.fromkeys(names, verdict.effective_from))
            with self._scheduler.lock, contextlib.suppress(_PromisesChanged):
                checkpoint()
                self._scheduler.change(partial(self._change, asked, starts, others, seen), by, series)
                views = self._reporter.promises()
                return [views[name] for name in asked if name in views]

    def _prepare_checks(
        self,
        given: Mapping[str, ScheduledPromise],
        asked: Mapping[str, ScheduledPromise],
        others: Mapping[str, ScheduledPromise],
        checkpoint: Callable[[], None],
    ) -> list[tuple[FeasibilityCheck, list[str]]]:
        """Return the checks of what is asked for. First days that are over stay over, and need none."""
        most = None
        if any(days_of(one.window) is not None for one in given.values()):
            now, most = self._scheduler.now(), _MOST_CHECKS
            asked = {name: one for name, one in asked.items() if one.window.end is None or one.window.end > now}
        if not asked:
            raise InvalidInputError("all items have had their first days: make another promise for those that come.")
        checks = self._scheduler.prepare_checks(asked, others, most)
        return [(replace(check, checkpoint=checkpoint), names) for check, names in checks]

    def _check_budget(self, asked: Mapping[str, ScheduledPromise]) -> None:
        """Refuse floors that would give way to the budget at once."""
        budget = self._scheduler.state.costs.budget
        for promise in asked.values():
            if budget is not None and budget.gives_way(promise):
                reason = f"{promise} cannot be kept: {budget.text(self._scheduler.spent(self._scheduler.now()))}"
                higher = "Give it a smaller number as its priority, end" if (budget.cut or 1) > 1 else "End"
                remedy = f"{higher} other promises, or raise the budget."
                names = [promise.promise.name]
                raise InfeasibleFloorsError(promise.promise.name, 0, reason.rstrip("."), 0, remedy, names)

    def _all_but(self, name: str | None) -> dict[str, ScheduledPromise]:
        """Return all promises but one, or but those of one series."""
        state = self._scheduler.state
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
            now = self._scheduler.now()
            asked |= promises_of(name, promise, self._front.catalog, now, seen) if each_label else {name: promise}
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
        made, now = dict(others), self._scheduler.now()
        for name, promise in asked.items():
            start = self._scheduler.start_of(promise, starts.get(name, now), now)
            parts = split_at(promises.get(name), promise, start, now)
            made |= dict(zip([name, new_id()], parts, strict=False))
        return made

    def delete_promise(self, name: str, by: str = "") -> None:
        """End a promise, or a promise for each label; `by` is who asks for it, for the audit."""
        with self._scheduler.lock:
            self._scheduler.take_lead()
            others, series = self._all_but(name), self._scheduler.state.series
            self._scheduler.change(lambda _: others, by, {other: one for other, one in series.items() if other != name})


def _refusal(verdict: Feasibility, pushed_out: Sequence[ScheduledPromise], n: int) -> InfeasibleFloorsError:
    """Return the error that refuses promises, one of which cannot be kept beside all others."""
    asked, reason = verdict.promise, f"{verdict.promise} cannot be kept: {verdict.reason}"
    if n > 1:
        reason += f", {n:,} new ones included; none of them was made"
    if pushed_out:
        reason += f". It would push out {listed(pushed_out, _MOST_NAMED)}"
    names = [asked.promise.name, *(one.promise.name for one in pushed_out)]
    largest = math.floor(verdict.largest)
    return InfeasibleFloorsError(asked.promise.name, asked.promise.floor(0), reason, largest, verdict.remedy, names)


def _check_wanted(is_cancelled: Callable[[], bool]) -> None:
    """End a call for whose answer nobody waits any longer."""
    if is_cancelled():
        raise CallCancelledError("nobody waits for the answer any longer.")


def new_id() -> str:
    """Return an id for a promise."""
    return uuid.uuid4().hex[:12]
