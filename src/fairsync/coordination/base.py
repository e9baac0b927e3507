"""What every coordinator does, wherever its books are: it hands out requests, and what came of them comes back."""

from __future__ import annotations

import logging
import math
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.calibration import calibrate
from fairsync.catalog.groups import Groups
from fairsync.coordination.books import PriceState, changed_terms, make_terms
from fairsync.errors import FairSyncError, InvalidInputError
from fairsync.floors import resolve_floors
from fairsync.inputs import check_positive
from fairsync.ledger import Entry
from fairsync.policies.serialization import dump_state, load_state
from fairsync.report import Report, make_report

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from numpy.typing import ArrayLike, NDArray

    from fairsync.catalog import Catalog
    from fairsync.catalog.groups import Grouped, Label
    from fairsync.coordination.books import Lease
    from fairsync.coordination.state_store import StateStore
    from fairsync.floors import Floors
    from fairsync.hindsight import Hindsight
    from fairsync.ledger import Ledger, Totals
    from fairsync.policies import Policy, Sample, Terms
    from fairsync.search import Index

_log = logging.getLogger(__name__)


def promised(
    catalog: Grouped, k: int, floors: Floors, horizon: int, batch_size: int, *, auto_restart: bool
) -> tuple[Groups, Terms]:
    """Return to whom something is promised, and what, if it can be kept at all."""
    terms = make_terms(catalog, k, floors, horizon, batch_size)
    return Groups(list(catalog.labels), catalog.group_sizes), replace(terms, auto_restart=auto_restart)


def check_seconds(lease_seconds: float, save_seconds: float) -> None:
    """Refuse times that make no sense."""
    if not lease_seconds > 0 or not save_seconds >= 0:
        raise InvalidInputError(
            f"lease_seconds must be above 0, and keep_seconds at least 0, got {lease_seconds} and {save_seconds}."
        )


class CoordinatorBase:
    """Hands out requests, and writes down what came of them. All its methods may be called from many threads at once.

    Parameters
    ----------
    books
        Of the promise.
    ledger
        Where exposures are recorded, and what the policy has learnt is kept.
    policy
        Makes prices.
    lease_seconds
        A lease that is not settled for so long is given to others.
    keep_seconds
        What the policy has learnt is kept so often, and for the first time with the first that it learns.
    kept_as
        The name under which it is.

    Attributes
    ----------
    replica : str
        Its name among all that share the promise; empty if no other can.
    """

    replica: str = ""

    def __init__(
        self,
        books: StateStore,
        ledger: Ledger,
        policy: Policy,
        lease_seconds: float,
        save_seconds: float,
        kept_as: str,
    ) -> None:
        self.ledger, self.policy = ledger, policy
        self.lease_seconds, self.save_seconds = lease_seconds, save_seconds
        self._books, self._kept_as, self._changed = books, kept_as, threading.Condition()
        dump_state(policy, books.pricing.state)  # raises now, not at the first save, if the state cannot be saved
        self._remember()
        # The first that is learnt is kept at once: who is killed again and again gets somewhere too.
        self._kept_version, self._kept_at = books.pricing.version, -math.inf

    @property
    def groups(self) -> Groups:
        """Whom something is promised to."""
        return self._books.groups

    @property
    def terms(self) -> Terms:
        """What is promised."""
        return self._books.terms

    @property
    def labels(self) -> list[Label]:
        """The group labels, in the order of their codes."""
        return self.groups.labels

    @property
    def k(self) -> int:
        """Candidates per request."""
        return self.terms.k

    def lead(self, *, take: bool = False) -> bool:
        """Return whether this one plans for all that share the ledger; it does unless there can be others."""
        return True

    def lease(self, n: int) -> Lease:
        """Hand out up to n requests; wait where the promise asks for it."""
        while (lease := self.try_lease(n, patience=self.lease_seconds)) is None:
            pass
        return lease

    def try_lease(self, n: int, patience: float = 0.0) -> Lease | None:
        """Hand out up to n requests; None if the promise asks to wait for longer than so many seconds."""
        n, until, tries = check_positive(n, "n"), time.monotonic() + patience, 0
        with self._changed:
            while (lease := self._books.lease(n)) is None:
                left = until - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(min(self._books.pause(tries), left))
                tries += 1
            return lease

    def settle(
        self, number: int, entry: Entry, sample: Sample | None, answers: Mapping[str, bytes] | None = None
    ) -> None:
        """Write down what came of a lease, and answers to be kept; saying it again changes nothing.

        Raises
        ------
        RepeatedRequestError
            Some of the requests have been answered before. Nothing was written down: settle the others.
        """
        with self._changed:
            if self._books.settle(number, entry, sample, answers or {}):
                self._changed.notify_all()
                if time.monotonic() >= self._kept_at + self.save_seconds:
                    self.save()

    def release(self, number: int) -> None:
        """Take a lease back that was not answered."""
        with self._changed:
            self._books.release(number)
            self._changed.notify_all()

    def answer(self, request_id: str) -> bytes | None:
        """Return the answer that is kept for a request; see `Ledger.answer`."""
        return self.ledger.answer(request_id)

    def record_impressions(self, impressions: ArrayLike, key: str) -> bool:
        """Write down exposures that were reported to be really shown; return False if that was done under this key."""
        counts = np.asarray(impressions, dtype=np.int64)
        with self._changed:
            return self._books.note(Entry(np.zeros_like(counts), 0, 0.0, 0.0, impressions=counts), key)

    def set_targets(
        self, more: Floors, requests: int, anew: float | None = None, groups: Grouped | None = None
    ) -> None:
        """Aim at so many exposures more within so many requests, for promises that end by the clock.

        From then on a horizon ends when the next one is begun, however many requests have come. Nothing is refused:
        what cannot be delivered is not, and whoever plans has to say so.

        Parameters
        ----------
        more
            Exposures from now on, of each group.
        requests
            From now on, that can be counted on.
        anew
            When a new horizon begins with this, in seconds since 1970; None to go on with the present one.
        groups
            Of the catalog after a change; new ones follow the others.
        """
        requests = check_positive(requests, "requests")

        def steered() -> bool:
            known = self.groups if groups is None else self._books.following(groups)
            return self._books.set_targets(known, resolve_floors(more, known), requests, anew)

        self._until_done(steered)

    def promise(self, floors: Floors | None = None, horizon: int | None = None, catalog: Grouped | None = None) -> None:
        """Promise something else from now on; whatever cannot be kept is refused before anything is changed.

        Leases that are out know nothing of it. Where they could break the new promise, it waits until they are settled
        or expired.

        Parameters
        ----------
        floors
            One number for all groups, or {label: number}; as before unless given.
        horizon
            Requests over which they are spread, from the beginning of the present horizon; as before unless given.
        catalog
            As it is after a change of items (:mod:`fairsync.catalog.changes`): new groups follow the others. First the
            coordinator is told, then the front ends.
        """
        # Twice: a lease may have gone out just now, and has to have expired before it is given up.
        patient_until = time.monotonic() + 2 * self.lease_seconds

        def changed() -> bool:  # what stands may change while it waits
            groups = self.groups if catalog is None else self._books.following(catalog)
            terms = changed_terms(self.terms, self.labels, groups, floors, horizon)
            return self._books.promise(groups, terms, patient=time.monotonic() < patient_until)

        self._until_done(changed)

    def calibrate(self, past_users: ArrayLike, catalog: Catalog, index: Index) -> Self:
        """Learn prices from past requests over these items; see :meth:`fairsync.FairRetriever.calibrate`."""
        with self._changed:
            self._books.look()
            present = self._books.present
            self._books.pricing = calibrate(present, self.terms, self.policy, catalog, index, past_users).pricing
        return self

    def report(self, hindsight: Hindsight | None = None) -> Report:
        """Return where the promise stands, as far as it is settled."""
        with self._changed:
            self._books.look()
            books, past, labels, terms = self._books.present, self._books.past(), self.labels, self.terms
        prices = books.prices_in_force(terms, self.policy)
        return make_report(labels, terms, self.policy.name, books.accounts.totals, past, prices, hindsight)

    def save(self) -> None:
        """Keep what the policy has learnt in the ledger, now; otherwise it is done every few seconds."""
        with self._changed:
            pricing = self._books.pricing
            if pricing.version == self._kept_version:
                return
            self._kept_at = time.monotonic()
            try:
                self.ledger.save(self._kept_as, dump_state(self.policy, pricing.state))
                self._kept_version = pricing.version
            except FairSyncError as error:  # what was settled is settled, and the floors hold without it
                _log.warning("what the policy has learnt was not kept: %s", error)

    def totals(self) -> Totals:
        """Return where the horizon stands, as far as it is settled and known here."""
        return self._books.present.accounts.totals

    def prices(self) -> NDArray[np.float64]:
        """Return (G,) the prices in force."""
        with self._changed:
            return self._books.present.prices_in_force(self.terms, self.policy)

    def _until_done(self, attempt: Callable[[], bool]) -> None:
        """Try until it is done; between two tries something has to be settled, or to expire."""
        tries = 0
        with self._changed:
            self._books.look()
            while not attempt():
                self._changed.wait(self._books.pause(tries))
                tries += 1
            self._changed.notify_all()

    def _remember(self) -> None:
        """Go on from what the policy had learnt when it was last kept, if there is something that fits."""
        kept = self.ledger.load(self._kept_as)
        if kept is None:
            return
        try:
            state: Any = self.policy.resume(load_state(self.policy, kept), self.terms)
        except Exception as error:  # whatever is wrong with it, the floors hold without it
            _log.warning("starting without the prices that were kept: %s", error)
        else:
            self._books.pricing = PriceState.of(self.policy, state)
