"""Several coordinators, one promise: each has prices of its own, and all share their accounts on a Redis server."""

from __future__ import annotations

import logging
import random
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fairsync.books import Books, Lease, Pricing, changed_terms, make_terms
from fairsync.calibration import calibrate
from fairsync.errors import BackendUnavailableError, FairSyncError, InvalidInputError
from fairsync.floors import group_caps, resolve_floors
from fairsync.groups import Groups
from fairsync.inputs import check_k, check_positive
from fairsync.ledger import Entry
from fairsync.ledger.redis import RedisLedger
from fairsync.policies import Policy, make_policy
from fairsync.policies.snapshot import dump_state, load_state
from fairsync.report import Report, make_report
from fairsync.shared_accounts import Promise
from fairsync.shared_books import SharedBooks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import ArrayLike, NDArray

    from fairsync.catalog import Catalog
    from fairsync.floors import Floors
    from fairsync.groups import Grouped, Label
    from fairsync.hindsight import Hindsight
    from fairsync.ledger import Standing
    from fairsync.policies import Sample, Terms
    from fairsync.search import Index

_log = logging.getLogger(__name__)
# Whoever waits for leases of others looks again so often.
_SHORTEST_WAIT, _LONGEST_WAIT = 0.001, 0.02
# Whoever does not lead asks for the lead at most so often, in seconds.
_ASKED_EVERY = 0.5


class RedisCoordinator:
    """One of several coordinators that keep one promise together: give it to :class:`fairsync.FrontEnd`.

    Each replica of a service has its own. Prices are made from the requests of the replica; exposures, and who was
    given which requests, are shared, so that floors hold for all replicas together (:mod:`fairsync.accounts` says why).
    A replica may be killed at any moment: its leases expire. So may the server, if it keeps what it acknowledges
    (`appendonly yes`, `appendfsync always`).

    All its methods may be called from many threads at once. When the server stays away for longer than the timeout they
    raise `BackendUnavailableError`; of what was to be settled it is then unknown whether it counts, and saying it again
    is safe.

    Parameters
    ----------
    url
        Of the server: `redis://host:6379/0`, or `rediss://` for TLS.
    catalog, k, floors, horizon, policy, batch_size
        As for :class:`fairsync.Coordinator`. All replicas must promise the same; batches are each replica's own.
    name
        Of the promise: those who share it give the same one.
    replica
        What the policy has learnt is kept under this name, and found again after a restart; others see it while this
        one leads.
    if_differs
        Where the server has another promise under this name: "refuse" to start, "follow" it, or "take over", which
        replaces it for all replicas, if it can be kept. Where k differs, stop the other replicas first.
    lease_seconds, keep_seconds
        As for :class:`fairsync.Coordinator`.
    timeout
        Seconds for which a server that is away is tried again.
    rolls
        As for :class:`fairsync.Coordinator`. Otherwise `steer` sets floors and horizon, for all replicas: what is given
        here holds until then, and a replica that joins need not give what stands.
    """

    def __init__(
        self,
        url: str,
        catalog: Grouped,
        k: int = 20,
        floors: Floors = 0,
        horizon: int = 10_000,
        policy: str | Policy = "guaranteed",
        batch_size: int = 16,
        *,
        name: str = "fairsync",
        replica: str = "replica",
        if_differs: Literal["refuse", "follow", "take over"] = "refuse",
        lease_seconds: float = 30.0,
        keep_seconds: float = 5.0,
        timeout: float = 10.0,
        rolls: bool = True,
    ) -> None:
        if not lease_seconds > 0 or not keep_seconds >= 0:
            raise InvalidInputError(
                f"lease_seconds must be above 0, and keep_seconds at least 0, got {lease_seconds} and {keep_seconds}."
            )
        groups = Groups(list(catalog.labels), catalog.group_sizes)
        terms = replace(make_terms(catalog, k, floors, horizon, batch_size), rolls=rolls)
        self.policy = make_policy(policy)
        self.replica, self.lease_seconds, self.keep_seconds = replica, lease_seconds, keep_seconds
        self._changed, self._asked_at = threading.Condition(), -_ASKED_EVERY
        self.ledger = RedisLedger(url, len(groups.labels), name, timeout, replica)
        try:
            self._books = SharedBooks(self.ledger, groups, terms, self.policy)
            self._join(groups, terms, if_differs)
            self._books.pricing = Pricing.of(self.policy, self._remembered())
        except BaseException:
            self.ledger.close()
            raise
        self._kept_version, self._kept_at = self._books.pricing.version, time.monotonic()

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

    def lease(self, n: int) -> Lease:
        """Hand out up to n requests; wait where the promise asks for it."""
        while (lease := self.try_lease(n, patience=self.lease_seconds)) is None:
            pass
        return lease

    def try_lease(self, n: int, patience: float = 0.0) -> Lease | None:
        """Hand out up to n requests; None if the promise asks to wait for longer than so many seconds."""
        n, until, wait = check_positive(n, "n"), time.monotonic() + patience, _SHORTEST_WAIT
        tried: set[int] = set()
        with self._changed:
            while (lease := self._books.lease(n, self.lease_seconds, tried)) is None:
                left = until - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(min(wait * random.uniform(0.5, 1.0), left))
                wait = min(2 * wait, _LONGEST_WAIT)
            return lease

    def settle(
        self, number: int, entry: Entry, sample: Sample | None, answers: Mapping[str, bytes] | None = None
    ) -> None:
        """Write down what came of a lease, and answers to be kept; saying it again changes nothing.

        Raises
        ------
        RepeatedRequestError
            Some of the requests have been answered before, by any replica. Nothing was written down: settle the others.
        """
        with self._changed:
            if self._books.settle(number, entry, sample, answers or {}):
                self._keep(time.monotonic())
                self._changed.notify_all()

    def give_back(self, number: int) -> None:
        """Take a lease back that was not answered."""
        with self._changed:
            self._books.give_back(number)
            self._changed.notify_all()

    def answer(self, request_id: str) -> bytes | None:
        """Return the answer that is kept for a request, whichever replica gave it; see `Ledger.answer`."""
        return self.ledger.answer(request_id)

    def note_shown(self, shown: ArrayLike, key: str) -> bool:
        """Write down exposures that were reported to be really shown; return False if that was done under this key."""
        counts = np.asarray(shown, dtype=np.int64)
        with self._changed:
            return self._books.note(Entry(np.zeros_like(counts), 0, 0.0, 0.0, shown=counts), key)

    def promise(self, floors: Floors | None = None, horizon: int | None = None, catalog: Grouped | None = None) -> None:
        """Promise something else from now on, for all replicas; see :meth:`fairsync.Coordinator.promise`.

        Leases that are out know nothing of it. Where they could break the new promise, it waits until they are settled
        or expired.
        """

        def tried(patient: bool) -> bool:
            books = self._books
            groups = books.groups if catalog is None else _following(catalog, books.groups, self.k)
            terms = changed_terms(books.terms, books.groups.labels, groups, floors, horizon)
            return books.promise(groups, terms, patient=patient)

        self._until_done(tried)

    def steer(self, more: Floors, requests: int, anew: float | None = None, groups: Grouped | None = None) -> None:
        """Have all replicas aim at so many exposures more; see :meth:`fairsync.Coordinator.steer`.

        A horizon that is to begin when, or before, the present one did is not begun: several who go by the same plan
        may all say so. Whoever led (`lead`), and does no longer, is refused.
        """
        requests = check_positive(requests, "requests")

        def tried(_: bool) -> bool:
            known = self.groups if groups is None else _following(groups, self.groups, self.k)
            return self._books.steer(known, resolve_floors(more, known), requests, anew)

        self._until_done(tried)

    def lead(self, *, take: bool = False) -> bool:
        """Return whether this replica plans for all; to be asked every second or so, which also keeps it up to date.

        Whoever leads goes on to do so while it asks; if it does not for ten seconds, another may. A replica that has
        lost the lead hears so once before it can lead again. When the server is away, nobody leads.

        Parameters
        ----------
        take
            Whether to take the lead from whoever has it.
        """
        lead, now = self.ledger.lead, time.monotonic()
        if not (take or lead.token) and now < self._asked_at + _ASKED_EVERY:
            return False
        self._asked_at = now
        try:
            leads = lead.ask(take=take)
            with self._changed:
                self._books.look()
        except BackendUnavailableError as error:
            _log.warning("nobody leads: %s", error)
            return False
        return leads

    def standing(self) -> Standing:
        """Return where the horizon stood when the server was last heard of: with each lease, and each `lead`."""
        return self._books.shared.accounts.standing

    def prices(self) -> NDArray[np.float64]:
        """Return (G,) the prices in force, of this replica."""
        with self._changed:
            books = Books(self._books.shared.accounts, self._books.pricing)
            return books.prices_in_force(self.terms, self.policy)

    def calibrate(self, past_users: ArrayLike, catalog: Catalog, index: Index) -> RedisCoordinator:
        """Learn prices from past requests, for this replica; see :meth:`fairsync.FairRetriever.calibrate`."""
        with self._changed:
            self._books.look()
            books = Books(self._books.shared.accounts, self._books.pricing)
            self._books.pricing = calibrate(books, self._books.terms, self.policy, catalog, index, past_users).pricing
        return self

    def report(self, hindsight: Hindsight | None = None) -> Report:
        """Return where the promise stands, as far as it is settled, with the prices of this replica."""
        with self._changed:
            self._books.look()
            shared, labels, terms = self._books.shared, self.labels, self.terms
            # A horizon that ended between the two questions is not past yet.
            past = self.ledger.past()[: shared.horizon]
            books = Books(shared.accounts, self._books.pricing)
        prices = books.prices_in_force(terms, self.policy)
        return make_report(labels, terms, self.policy.name, shared.accounts.standing, past, prices, hindsight)

    def keep(self) -> None:
        """Keep what the policy has learnt, now; otherwise it is done every few seconds."""
        with self._changed:
            self._keep(float("inf"))

    def close(self) -> None:
        """Keep what was learnt, and let go of the lead and the server. Leases that are out expire."""
        self.keep()
        self.ledger.close()

    def __enter__(self) -> RedisCoordinator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _join(self, groups: Groups, terms: Terms, if_differs: str) -> None:
        """Agree with the promise that stands; make it, if there is none."""
        books = self._books

        def tried(patient: bool) -> bool:
            if books.shared.terms:
                standing = books.standing_promise()
                difference = Promise.of(0, groups, terms, self.policy.keeps_floors).difference(standing)
                if not difference:
                    return terms.rolls or self._join_steered(groups, standing)
                if if_differs == "refuse":
                    store = self.ledger.store
                    raise InvalidInputError(
                        f"the promise {store.name!r} on {store.address} differs in {difference}: give the settings that"
                        " stand there, or another name; with if_differs this replica can follow or take over."
                    )
                if if_differs == "follow":
                    books.adopt(standing)
                    return True
                known = _following(groups, standing.groups, terms.k)
                floors = np.pad(terms.floors, (0, len(known.labels) - len(terms.floors)))
                whole = replace(terms, floors=floors, caps=group_caps(known, terms.k))
                return books.promise(known, whole, patient=patient)
            return books.promise(groups, terms, patient=patient)

        self._until_done(tried)

    def _join_steered(self, groups: Groups, standing: Promise) -> bool:
        """Go by what whoever leads has set, but with the groups of this replica's catalog, which may be newer."""
        books, known = self._books, _following(groups, standing.groups, standing.k)
        books.adopt(standing)
        caps = group_caps(known, standing.k)
        if caps.tolist() == books.terms.caps.tolist():
            return True
        now, new = books.shared.accounts.standing, len(caps) - len(books.terms.floors)
        more = np.pad(np.maximum(books.terms.floors - now.exposures, 0), (0, new))
        return books.steer(known, more, max(books.terms.horizon - now.requests, 1))

    def _until_done(self, tried: Callable[[bool], bool]) -> None:
        """Try until it is done; towards the end of its patience, which is when leases have expired, it may raise."""
        until = time.monotonic() + self.lease_seconds
        with self._changed:
            if self._books.shared.terms:
                self._books.look()
            while not tried(time.monotonic() < until):
                self._changed.wait(_SHORTEST_WAIT)
            self._changed.notify_all()

    def _keep(self, now: float) -> None:
        pricing = self._books.pricing
        if pricing.version == self._kept_version or now < self._kept_at + self.keep_seconds:
            return
        try:
            self.ledger.keep(self._kept_name, dump_state(pricing.state))
        except BackendUnavailableError as error:  # what was settled is settled, and the floors hold without it
            _log.warning("what the policy has learnt was not kept: %s", error)
        self._kept_version, self._kept_at = pricing.version, time.monotonic()

    def _remembered(self) -> Any:
        """Return what the policy had learnt when it was last kept; what it starts with, if nothing fits."""
        kept = self.ledger.kept(self._kept_name)
        if kept is not None:
            try:
                return self.policy.resume(load_state(kept), self._books.terms)
            except FairSyncError as error:  # the floors hold without it
                _log.warning("starting without the prices that were kept: %s", error)
        return self.policy.start(self._books.terms)

    @property
    def _kept_name(self) -> str:
        return f"policy {self.policy.name} of {self.replica}"


def _following(groups: Grouped, known: Groups, k: int) -> Groups:
    """Return the groups of a catalog, if they begin with those that are known, and those it does not have yet."""
    labels, both = list(groups.labels), min(len(groups.labels), len(known.labels))
    if labels[:both] != known.labels[:both]:
        raise InvalidInputError(
            "the catalog must have the coordinator's groups first, in their order: make it with .under(labels)."
        )
    check_k(k, groups)
    return Groups([*labels, *known.labels[both:]], np.concatenate([groups.group_sizes, known.group_sizes[both:]]))
