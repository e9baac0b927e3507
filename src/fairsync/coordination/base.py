"""The base of all coordinators: leases out, counts in, prices and policy state. Independent of where the state is."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import numpy as np

from fairsync.calibration import calibrate
from fairsync.catalog.groups import grow
from fairsync.closing import Closable, NoCopies
from fairsync.errors import FairSyncError, InvalidInputError
from fairsync.floors import changed_terms, resolve_floors
from fairsync.inputs import check_counts, check_positive
from fairsync.ledger import Entry
from fairsync.report import Report, make_report
from fairsync.saved_prices import PriceSaver

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from numpy.typing import ArrayLike, NDArray

    from fairsync.catalog import Catalog
    from fairsync.catalog.groups import Grouped, Groups, Label
    from fairsync.coordination.lease import Lease
    from fairsync.coordination.state_store import StateStore
    from fairsync.floors import Floors
    from fairsync.hindsight import Hindsight
    from fairsync.ledger import Ledger, Totals
    from fairsync.policies import Policy, Sample, Terms
    from fairsync.search import Index


def check_seconds(lease_seconds: float, save_seconds: float) -> None:
    """Raise :class:`InvalidInputError` for durations that are out of range."""
    if not lease_seconds > 0 or not save_seconds >= 0:
        raise InvalidInputError(
            f"lease_seconds must be above 0, and save_seconds at least 0, got {lease_seconds} and {save_seconds}."
        )


class CoordinatorBase(NoCopies, Closable):
    """Grants leases and records their counts. All methods are thread-safe.

    Parameters
    ----------
    state
        The state store.
    ledger
        The ledger, which also saves the policy's state.
    policy
        The policy that makes prices.
    lease_seconds
        Seconds after which an open lease expires.
    save_seconds
        Seconds between two saves of the policy's state.
    saved_as
        Name under which the ledger saves the policy's state.

    Attributes
    ----------
    replica : str
        Name of this coordinator among those that share the promise; empty if it cannot be shared.
    """

    replica: str = ""
    use_instead = "it holds leases; make another one over the same ledger after close()"

    def __init__(
        self,
        state: StateStore,
        ledger: Ledger,
        policy: Policy,
        lease_seconds: float,
        save_seconds: float,
        saved_as: str,
    ) -> None:
        self.ledger, self.policy = ledger, policy
        self.lease_seconds, self.save_seconds = lease_seconds, save_seconds
        self._state, self._changed, self._closed = state, threading.Condition(), False
        self._saver = PriceSaver(ledger, policy, save_seconds, saved_as)
        state.price_state = self._saver.load(state.terms, state.loop).price_state

    @property
    def groups(self) -> Groups:
        """The groups of the promise."""
        return self._state.groups

    @property
    def terms(self) -> Terms:
        """The promise."""
        return self._state.terms

    @property
    def labels(self) -> list[Label]:
        """The group labels, in the order of their codes."""
        return self.groups.labels

    @property
    def k(self) -> int:
        """Candidates per request."""
        return self.terms.k

    def lead(self, *, take: bool = False) -> bool:
        """Return whether this coordinator is the leader, which plans for all that share the promise.

        A coordinator that cannot be shared always leads; others hold a leader election.
        """
        return True

    def lease(self, n: int) -> Lease:
        """Lease up to n requests. Blocks while granting them could make a floor unreachable."""
        while (lease := self.try_lease(n, timeout=self.lease_seconds)) is None:
            pass
        return lease

    def try_lease(self, n: int, timeout: float = 0.0) -> Lease | None:
        """Lease up to n requests; None if that would block for longer than ``timeout`` seconds."""
        n, deadline, tries = check_positive(n, "n"), time.monotonic() + timeout, 0
        with self._changed:
            self._check_open()
            while (lease := self._state.lease(n)) is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(min(self._state.retry_delay(tries), left))
                self._check_open()
                tries += 1
            return lease

    def settle(
        self, number: int, entry: Entry, sample: Sample | None, answers: Mapping[str, bytes] | None = None
    ) -> None:
        """Record the counts of a lease, and answers by request id. Idempotent: settling again changes nothing.

        Raises
        ------
        RepeatedRequestError
            Some of the requests have been answered before. Nothing was recorded: settle without them.
        """
        with self._changed:
            self._check_open()
            if self._state.settle(number, entry, sample, answers or {}):
                self._changed.notify_all()
                self._saver.save_if_due(self.terms, self._state.loop)

    def release(self, number: int) -> None:
        """Return a lease that was not answered. Its requests can be leased again."""
        with self._changed:
            self._state.release(number)
            self._changed.notify_all()

    def answer(self, request_id: str) -> bytes | None:
        """Return the saved answer to a request; see `Ledger.answer`."""
        return self.ledger.answer(request_id)

    def record_impressions(self, impressions: ArrayLike, key: str) -> bool:
        """Record exposures that were reported as really shown; return False if this idempotency key is known.

        Parameters
        ----------
        impressions
            (G,) the number of each group; groups that were added since may be missing at the end.
        key
            The idempotency key.
        """
        counts = grow(check_counts(impressions, len(self.labels)), len(self.labels))
        with self._changed:
            self._check_open()
            return self._state.record(Entry(np.zeros_like(counts), 0, 0.0, 0.0, impressions=counts), key)

    def set_targets(
        self, more: Floors, requests: int, restart_at: float | None = None, groups: Grouped | None = None
    ) -> None:
        """Aim at additional exposures within a number of further requests, for promises that end by the clock.

        From then on a horizon ends when the next one begins, whatever the number of its requests. Targets are never
        refused: they are lowered to what the requests can deliver, and reporting the rest is up to the caller.

        Parameters
        ----------
        more
            Additional exposures of each group.
        requests
            Expected number of further requests.
        restart_at
            Start of a new horizon, in seconds since 1970. By default the horizon under way continues.
        groups
            Groups of a changed catalog; new ones follow the known ones.
        """
        requests = check_positive(requests, "requests")

        def attempt() -> bool:
            known = self.groups if groups is None else self._state.extended_groups(groups)
            return self._state.set_targets(known, resolve_floors(more, known), requests, restart_at)

        self._retry(attempt)

    def promise(self, floors: Floors | None = None, horizon: int | None = None, catalog: Grouped | None = None) -> None:
        """Replace the promise. One that cannot be kept is refused, and nothing is changed.

        Open leases were granted under the old promise. Blocks while they could make the new one unreachable, until they
        are settled or expire.

        Parameters
        ----------
        floors
            One number for all groups, or {label: number}. By default the floors stay as they are.
        horizon
            Requests over which the floors are spread, from the start of the horizon under way. By default it stays as
            it is.
        catalog
            The catalog after a change of items (:mod:`fairsync.catalog.changes`); new groups follow the known ones.
            Change the coordinator first, then the front ends.
        """
        # Twice, because a lease may have been granted just now, and has to expire first.
        deadline = time.monotonic() + 2 * self.lease_seconds

        def attempt() -> bool:  # the promise may be changed by others between two attempts
            groups = self.groups if catalog is None else self._state.extended_groups(catalog)
            terms = changed_terms(self.terms, self.labels, groups, floors, horizon)
            return self._state.promise(groups, terms, may_wait=time.monotonic() < deadline)

        self._retry(attempt)

    def calibrate(self, past_users: ArrayLike, catalog: Catalog, index: Index) -> Self:
        """Learn prices from past requests over these items; see :meth:`fairsync.FairRetriever.calibrate`."""
        with self._changed:
            self._state.refresh()
            calibrated = calibrate(self._state.loop, self.terms, self.policy, catalog, index, past_users)
            self._state.price_state = calibrated.price_state
            self._saver.save_if_due(self.terms, self._state.loop)
        return self

    def report(self, hindsight: Hindsight | None = None) -> Report:
        """Return the state of the promise, from all settled leases."""
        with self._changed:
            self._state.refresh()
            loop, past, labels, terms = self._state.loop, self._state.past(), self.labels, self.terms
        prices = loop.prices_in_force(terms, self.policy)
        return make_report(labels, terms, self.policy.name, loop.progress.totals, past, prices, hindsight)

    def save(self) -> None:
        """Save the policy's state and the price batch under way in the ledger now.

        It is also saved every ``save_seconds``, and by `close`.
        """
        with self._changed:
            self._saver.save(self.terms, self._state.loop)

    def close(self) -> None:
        """Save the policy's state, and refuse further calls. Leases that are out can be settled with the next one.

        The ledger stays open: it belongs to the caller. Close front ends first, so that they settle their leases.
        """
        with self._changed:
            if not self._closed:
                self._closed = True
                self._changed.notify_all()
                self.save()

    def totals(self) -> Totals:
        """Return the totals of the horizon, from all settled leases known here."""
        return self._state.loop.progress.totals

    def prices(self) -> NDArray[np.float64]:
        """Return (G,) the prices in force."""
        with self._changed:
            return self._state.loop.prices_in_force(self.terms, self.policy)

    def _retry(self, attempt: Callable[[], bool]) -> None:
        """Repeat an attempt until it succeeds, waiting in between for leases to be settled or to expire."""
        tries = 0
        with self._changed:
            self._check_open()
            self._state.refresh()
            while not attempt():
                self._changed.wait(self._state.retry_delay(tries))
                tries += 1
            self._changed.notify_all()

    def _check_open(self) -> None:
        if self._closed:
            raise FairSyncError("The coordinator is closed: make another one over the same ledger, which continues.")
