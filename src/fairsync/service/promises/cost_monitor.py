"""The cost monitor: estimates now and then, on a sample of answered requests, what promises cost."""

from __future__ import annotations

import logging
import math
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.errors import FairSyncError
from fairsync.hindsight.dual_bound import ROUNDS
from fairsync.promises.selected_rows import SelectedRows
from fairsync.promises.selection import conditions_of
from fairsync.search import Hits
from fairsync.search.filtering import search_eligible
from fairsync.service.promises.columns import selection_of
from fairsync.service.promises.costs import SCORES_AT_ONCE, estimate_costs, exposure_cost
from fairsync.service.promises.reservoir import SAMPLE, AnswerReservoir

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from fairsync.candidates import Candidates
    from fairsync.catalog import Catalog
    from fairsync.catalog.groups import Label
    from fairsync.hindsight.priced_lists import Search
    from fairsync.search import Index
    from fairsync.search.eligibility import Eligibility
    from fairsync.service.promises.costs import Answered, Asked, Costs
    from fairsync.service.promises.reservoir import RequestRules

_log = logging.getLogger(__name__)
# The least number of requests that an estimate needs.
FEWEST = 64
# Seconds between two estimates.
_EVERY = 300.0
# Seconds of rest for each second of search: an estimate takes at most a tenth of a processor.
_REST = 9.0
# Columns that give way without ever having had a subsidy, of which an estimate says what their exposures would cost.
_MOST_COLUMNS = 100
# Scores computed by all searches of an estimate, about ten seconds' work.
_SCORES_IN_ALL = 1_000_000_000


@dataclass(frozen=True)
class Measured:
    """An estimate of the costs, its time, and the labels of its groups."""

    costs: Costs
    at: datetime
    labels: tuple[Label, ...]

    @property
    def group_costs(self) -> dict[Label, float]:
        """The part of the cost that each group caused, by label."""
        return dict(zip(self.labels, self.costs.groups.tolist(), strict=True))

    @property
    def natural_rates(self) -> dict[Label, float]:
        """Candidates per request without promises, by label."""
        return dict(zip(self.labels, self.costs.natural.tolist(), strict=True))


@dataclass(frozen=True)
class Conditions:
    """What an estimate depends on, at one moment.

    Attributes
    ----------
    catalog, index : Catalog, Index
        The items and their index.
    asked : Asked
        What promises asked for.
    prices : numpy.ndarray
        (P,) the prices in force, by column.
    labels : tuple
        The columns.
    missing : Mapping
        Exposures per request that promises give up which were never subsidised, by column.
    now : datetime
        The time.
    """

    catalog: Catalog
    index: Index
    asked: Asked
    prices: NDArray[np.float64]
    labels: tuple[Label, ...]
    missing: Mapping[Label, float]
    now: datetime


class CostMonitor:
    """Estimates what promises cost, in a thread of its own that mostly sleeps.

    Parameters
    ----------
    conditions
        Returns what an estimate depends on.
    every
        Seconds between two estimates; infinity: only calls of :meth:`measure` make one.

    Attributes
    ----------
    last : Measured or None
        The last estimate.
    reason : str
        Why there is no estimate, or no newer one; empty if there is one.
    exposure_costs : dict
        What an exposure of columns that give way would cost, by label; see :func:`.costs.exposure_cost`.
    """

    def __init__(self, conditions: Callable[[], Conditions], every: float = _EVERY) -> None:
        self.last: Measured | None = None
        self.exposure_costs: dict[Label, float] = {}
        self.reason, self.every = "No request was answered yet.", every
        self.reservoir = AnswerReservoir()
        self._conditions = conditions
        self._thread: threading.Thread | None = None
        self._due, self._seen, self._closed = 0.0, 0, threading.Event()

    def observe(
        self,
        catalog: Catalog,
        k: int,
        period: float,
        users: NDArray[np.floating[Any]],
        found: Candidates,
        rules: Sequence[RequestRules] | None = None,
    ) -> None:
        """Offer answered requests to the sample; see :meth:`AnswerReservoir.add`."""
        # Degraded answers, and lists of another length than k, cannot be compared.
        if found.ids.shape[1] != k or found.degraded:
            return
        whole = np.flatnonzero(~found.short)
        if len(whole) < len(found):
            users, found = users[whole], found.take(whole)
            rules = None if rules is None else [rules[at] for at in whole.tolist()]
        if len(found):
            self.reservoir.add(catalog, period, users, found, rules)

    def refresh(self) -> None:
        """Start an estimate if one is due."""
        busy = self._thread is not None and self._thread.is_alive()
        if busy or time.monotonic() < self._due or self._closed.is_set() or self.every == math.inf:
            return
        if self.reservoir.seen == self._seen:  # no request since the last estimate
            return
        if len(self.reservoir) >= FEWEST:
            self._seen = self.reservoir.seen
            self._thread = threading.Thread(target=self._run, name="costs", daemon=True)
            self._thread.start()
        elif self.last is None:
            self.reason = f"Too few requests yet: {len(self.reservoir)} of the {FEWEST} that an estimate needs."

    def measure(self, rest: float = 0.0) -> None:
        """Make an estimate now, with `rest` seconds of rest for each second of search."""
        given = self._conditions()
        catalog = given.catalog
        most = min(max(_SCORES_IN_ALL // ((ROUNDS + 1) * len(catalog)), FEWEST), SAMPLE)
        answered = self.reservoir.answered(catalog, most)
        if answered is None:  # the items have just changed
            return
        prices = given.prices
        if self.last is not None and self.last.labels == given.labels:
            prices = self.last.costs.prices  # nearer than prices in force, which are 0 once a floor is reached
        try:
            search = _throttled(given.index, len(catalog), rest, self._closed)
            costs = estimate_costs(search, answered, given.asked, prices)
        except FairSyncError as error:
            self.reason = f"It cannot be estimated now: {error}"
            return
        self.last = Measured(costs, given.now, given.labels)
        self.reason = ""
        if given.missing:
            rules = () if answered.eligible is None else (answered.eligible,)
            best = search(answered.users, None, answered.rows.shape[1], *rules)
            best_lists = replace(answered, rows=best.rows, relevance=best.relevance)
            self.exposure_costs = self._exposure_costs(given, best_lists, rest)

    def _exposure_costs(self, given: Conditions, answered: Answered, rest: float) -> dict[Label, float]:
        """Return what exposures of columns that give way would cost, of those that miss most if they are many."""
        began, rows = [time.perf_counter()], SelectedRows(given.catalog)

        def pause() -> None:
            if rest and self._closed.wait(rest * (time.perf_counter() - began[0])):
                raise _ClosedError
            began[0] = time.perf_counter()

        found = {}
        for column in sorted(given.missing, key=lambda one: -given.missing[one])[:_MOST_COLUMNS]:
            pause()
            where = conditions_of(selection_of(column, given.catalog.group_attribute))
            cost = exposure_cost(given.catalog, answered, rows.of(where), given.missing[column], pause)
            if cost is not None:
                found[column] = cost
        return found

    def close(self) -> None:
        """Stop, also in the middle of an estimate."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join(10)

    def _run(self) -> None:
        try:
            self.measure(_REST)
        except _ClosedError:
            return
        except Exception:  # an estimate must never stop the service
            _log.exception("what fairness costs could not be measured")
            self.reason = "It cannot be estimated now: see the log of the service."
        self._due = time.monotonic() + self.every


class _ClosedError(Exception):
    """The monitor was closed during an estimate."""


def _throttled(index: Index, items: int, rest: float, closed: threading.Event) -> Search:
    """Return a search that takes a few requests at a time and sleeps in between, to leave processors to requests."""
    step = max(SCORES_AT_ONCE // items, 1)

    def search(
        users: NDArray[np.floating[Any]],
        prices: NDArray[np.float64] | None,
        k: int,
        eligible: Eligibility | None = None,
    ) -> Hits:
        parts = []
        for start in range(0, len(users), step):
            began = time.perf_counter()
            here = np.arange(start, min(start + step, len(users)))
            hits = search_eligible(index, users[here], prices, k, None if eligible is None else eligible.take(here))
            if hits.reached is not None:
                raise FairSyncError("a part of the catalog is out of reach.")
            if eligible is None and (hits.rows < 0).any():
                raise FairSyncError(f"the index finds fewer than {k} items.")
            parts.append(hits)
            if rest and closed.wait(rest * (time.perf_counter() - began)):
                raise _ClosedError
        return Hits(np.concatenate([one.rows for one in parts]), np.concatenate([one.relevance for one in parts]))

    return search
