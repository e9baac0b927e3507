"""Several front ends, one promise: a coordinator hands out requests, and what came of them comes back."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fairsync.books import Books, Lease, changed_terms, make_terms
from fairsync.calibration import calibrate
from fairsync.errors import FairSyncError, InvalidInputError
from fairsync.floors import group_caps, resolve_floors
from fairsync.groups import Groups
from fairsync.inputs import check_k, check_positive
from fairsync.ledger import Entry, Ledger, MemoryLedger, Standing
from fairsync.policies import Policy, make_policy
from fairsync.policies.snapshot import dump_state, load_state
from fairsync.report import Report, make_report

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from fairsync.catalog import Catalog
    from fairsync.floors import Floors
    from fairsync.groups import Grouped, Label
    from fairsync.hindsight import Hindsight
    from fairsync.policies import Sample
    from fairsync.search import Index

_log = logging.getLogger(__name__)
# Leases of coordinators that followed each other must not share numbers: each starts at a place of its own.
_LEASES_OF_ONE = 1 << 24


class Coordination(Protocol):
    """What a front end needs of a coordinator, wherever it runs."""

    @property
    def labels(self) -> Sequence[Label]: ...  # noqa: D102

    @property
    def k(self) -> int: ...  # noqa: D102

    def lease(self, n: int) -> Lease:
        """Hand out up to n requests; wait where the promise asks for it."""
        ...

    def settle(
        self, number: int, entry: Entry, sample: Sample | None, answers: Mapping[str, bytes] | None = None
    ) -> None:
        """Write down what came of a lease, and answers to be kept; saying it again changes nothing."""
        ...

    def answer(self, request_id: str) -> bytes | None:
        """Return the answer that is kept for a request; see `Ledger.answer`."""
        ...

    def give_back(self, number: int) -> None:
        """Take a lease back that was not answered."""
        ...


class Coordinator:
    """The one place where counts meet and prices are made, for any number of front ends.

    It knows groups and no items. All its methods may be called from many threads at once. Floors hold for any number of
    front ends (:mod:`fairsync.accounts` says why).

    With a ledger that outlives it, a coordinator that was killed is replaced by another one over the same ledger: it
    goes on where the record ends, with the prices that the policy had learnt. Leases of the first one may still be
    settled with the second; nothing is lost or counted twice.

    Parameters
    ----------
    catalog
        Of which the groups count; its `groups` alone will do.
    k, floors, horizon, policy, batch_size, ledger
        As for :class:`fairsync.FairRetriever`.
    lease_seconds
        A lease that is not settled for so long is given to others: its front end is taken for dead.
    keep_seconds
        What the policy has learnt is kept in the ledger so often.
    rolls
        Whether a new horizon begins by itself after so many requests. Otherwise it ends by the clock: see `steer`.
    goes_on
        Whether to go on also where the ledger leaves floors that can no longer be met, as an outage may. Otherwise that
        is refused.

    Examples
    --------
    >>> import numpy as np
    >>> from fairsync.catalog import Catalog
    >>> from fairsync.front_end import FrontEnd
    >>> rng = np.random.default_rng(0)
    >>> catalog = Catalog(rng.normal(size=(40, 8)), ["red"] * 20 + ["blue"] * 20)
    >>> coordinator = Coordinator(catalog, k=2, floors={"blue": 30}, horizon=20)
    >>> left, right = FrontEnd(catalog, coordinator), FrontEnd(catalog, coordinator)
    >>> _ = left.retrieve(rng.normal(size=(10, 8))), right.retrieve(rng.normal(size=(10, 8)))
    >>> coordinator.report().exposures["blue"] >= 30
    True
    """

    def __init__(
        self,
        catalog: Grouped,
        k: int = 20,
        floors: Floors = 0,
        horizon: int = 10_000,
        policy: str | Policy = "guaranteed",
        batch_size: int = 16,
        ledger: Ledger | None = None,
        lease_seconds: float = 30.0,
        keep_seconds: float = 5.0,
        rolls: bool = True,
        goes_on: bool = False,
    ) -> None:
        if not lease_seconds > 0 or not keep_seconds >= 0:
            raise InvalidInputError(
                f"lease_seconds must be above 0, and keep_seconds at least 0, got {lease_seconds} and {keep_seconds}."
            )
        self.groups = Groups(list(catalog.labels), catalog.group_sizes)
        self.terms = replace(make_terms(catalog, k, floors, horizon, batch_size), rolls=rolls)
        self.policy = make_policy(policy)
        self.ledger: Ledger = MemoryLedger(len(catalog.labels)) if ledger is None else ledger
        self.lease_seconds, self.keep_seconds = lease_seconds, keep_seconds
        first = secrets.randbits(38) * _LEASES_OF_ONE
        self._books = Books.open(
            self.terms, self.policy, self.ledger.standing(), self._remembered(), first, goes_on=goes_on
        )
        self._kept_version, self._kept_at = self._books.pricing.version, time.monotonic()
        self._deadlines: dict[int, float] = {}
        self._changed = threading.Condition()

    @property
    def labels(self) -> list[Label]:
        """The group labels, in the order of their codes."""
        return self.groups.labels

    @property
    def k(self) -> int:
        """Candidates per request."""
        return self.terms.k

    def lease(self, n: int) -> Lease:
        """Hand out up to n requests; wait where the promise asks for it."""
        while (lease := self.try_lease(n, patience=self.lease_seconds)) is None:
            pass
        return lease

    def try_lease(self, n: int, patience: float = 0.0) -> Lease | None:
        """Hand out up to n requests; None if the promise asks to wait for longer than so many seconds."""
        n, until = check_positive(n, "n"), time.monotonic() + patience
        with self._changed:
            while True:
                now = time.monotonic()
                self._expire(now)
                granted = self._books.lease(self.terms, self.policy, n)
                if granted is not None:
                    self._books, lease = granted
                    self._deadlines[lease.number] = now + self.lease_seconds
                    return lease
                if now >= until:
                    return None
                self._wait_for_leases(until)

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
            settled = self._books.settle(self.policy, number, entry, sample)
            if settled is None:
                return
            books, entry = settled
            if not self.ledger.record([entry], f"lease {number}", answers):
                return  # another coordinator wrote it down before it died
            self._books = books
            self._deadlines.pop(number, None)
            self._changed.notify_all()
            try:
                self._keep(time.monotonic())
            except FairSyncError as error:  # what was settled is settled, and the floors hold without it
                _log.warning("what the policy has learnt was not kept: %s", error)

    def give_back(self, number: int) -> None:
        """Take a lease back that was not answered."""
        with self._changed:
            self._books = self._books.give_back(number)
            self._deadlines.pop(number, None)
            self._changed.notify_all()

    def answer(self, request_id: str) -> bytes | None:
        """Return the answer that is kept for a request; see `Ledger.answer`."""
        return self.ledger.answer(request_id)

    def note_shown(self, shown: NDArray[np.int64], key: str) -> bool:
        """Write down exposures that were reported to be really shown; return False if that was done under this key."""
        shown = np.asarray(shown, dtype=np.int64)
        with self._changed:
            noted = Entry(np.zeros_like(shown), 0, 0.0, 0.0, shown=shown)
            accounts, entry = self._books.accounts.note(noted)
            if not self.ledger.record([entry], key):
                return False
            self._books = replace(self._books, accounts=accounts)
            return True

    def steer(self, more: Floors, requests: int, anew: float | None = None, groups: Grouped | None = None) -> None:
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
        with self._changed:
            known = self.groups if groups is None else self._following(groups)
            n, requests = len(known.labels), check_positive(requests, "requests")
            accounts, caps = self._books.accounts, group_caps(known, self.terms.k)
            if anew is not None:
                accounts = accounts.anew(anew)
            standing = accounts.standing.grown(n)
            left = np.minimum(resolve_floors(more, known), requests * caps)
            horizon = standing.requests + accounts.given + requests
            terms = replace(self.terms, floors=standing.exposures + left, caps=caps, horizon=horizon, rolls=False)
            pricing = self._books.pricing
            if n > len(self.labels):
                pricing = pricing.with_state(self.policy, self.policy.resume(pricing.state, terms))
            if anew is not None:
                pricing = pricing.stepped(self.policy, terms, standing)
            if n > len(self.labels):
                self.ledger.grow(n)
            self.groups, self.terms = known, terms
            self._books = Books(replace(accounts, standing=standing), pricing)
            self._changed.notify_all()

    def promise(self, floors: Floors | None = None, horizon: int | None = None, catalog: Grouped | None = None) -> None:
        """Promise something else from now on; whatever cannot be kept is refused before anything is changed.

        Leases that are out know nothing of it. Where they could break the new promise, it waits for them.

        Parameters
        ----------
        floors
            One number for all groups, or {label: number}; as before unless given.
        horizon
            Requests over which they are spread, from the beginning of the present horizon; as before unless given.
        catalog
            As it is after a change of items (:mod:`fairsync.changes`): new groups follow the others. First the
            coordinator is told, then the front ends.
        """
        with self._changed:
            while True:  # what stands may change while it waits
                groups = self.groups if catalog is None else self._following(catalog)
                terms = changed_terms(self.terms, self.labels, groups, floors, horizon)
                books = self._books.under(terms, self.policy, self.terms)
                if books is not None:
                    break
                self._wait_for_leases()
            if len(groups.labels) > len(self.labels):
                self.ledger.grow(len(groups.labels))
            self.groups, self.terms, self._books = groups, terms, books
            self._changed.notify_all()

    def calibrate(self, past_users: ArrayLike, catalog: Catalog, index: Index) -> Coordinator:
        """Learn prices from past requests over these items; see :meth:`fairsync.FairRetriever.calibrate`."""
        with self._changed:
            self._books = calibrate(self._books, self.terms, self.policy, catalog, index, past_users)
        return self

    def report(self, hindsight: Hindsight | None = None) -> Report:
        """Return where the promise stands, as far as it is settled."""
        with self._changed:
            books, past, labels, terms = self._books, self.ledger.past(), self.labels, self.terms
        prices = books.prices_in_force(terms, self.policy)
        return make_report(labels, terms, self.policy.name, books.accounts.standing, past, prices, hindsight)

    def keep(self) -> None:
        """Keep what the policy has learnt in the ledger, now; otherwise it is done every few seconds."""
        with self._changed:
            self._keep(float("inf"))

    def lead(self, *, take: bool = False) -> bool:
        """Return whether this one plans for all that share the ledger: it is the only one."""
        return True

    def standing(self) -> Standing:
        """Return where the horizon stands, as far as it is settled."""
        return self._books.accounts.standing

    def prices(self) -> NDArray[np.float64]:
        """Return (G,) the prices in force."""
        with self._changed:
            return self._books.prices_in_force(self.terms, self.policy)

    def _following(self, groups: Grouped) -> Groups:
        """Return the groups of a catalog, if they begin with those that are known."""
        if list(groups.labels)[: len(self.labels)] != self.labels:
            raise InvalidInputError(
                "the catalog must have the coordinator's groups first, in their order: make it with .under(labels)."
            )
        check_k(self.terms.k, groups)
        return Groups(list(groups.labels), groups.group_sizes)

    def _wait_for_leases(self, until: float = float("inf")) -> None:
        """Wait until something is settled, or a lease expires."""
        now = time.monotonic()
        soonest = min([*self._deadlines.values(), until])
        self._changed.wait(max(soonest - now, 0.001))
        self._expire(time.monotonic())

    def _expire(self, now: float) -> None:
        for number in [number for number, deadline in self._deadlines.items() if deadline <= now]:
            self._books = self._books.give_back(number)
            del self._deadlines[number]

    def _keep(self, now: float) -> None:
        pricing = self._books.pricing
        if pricing.version == self._kept_version or now < self._kept_at + self.keep_seconds:
            return
        self.ledger.keep(self._name, dump_state(pricing.state))
        self._kept_version, self._kept_at = pricing.version, time.monotonic()

    def _remembered(self) -> Any:
        """Return what the policy had learnt when it was last kept; None if there is nothing that fits."""
        kept = self.ledger.kept(self._name)
        if kept is None:
            return None
        try:
            return self.policy.resume(load_state(kept), self.terms)
        except Exception as error:  # whatever is wrong with it, the floors hold without it
            _log.warning("starting without the prices that were kept: %s", error)
            return None

    @property
    def _name(self) -> str:
        return f"policy {self.policy.name}"
