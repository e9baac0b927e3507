"""Several coordinators, one promise: each has prices of its own, and all share their accounts on a Redis server."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from fairsync.coordination.base import CoordinatorBase, check_seconds, promised
from fairsync.coordination.books import PriceState
from fairsync.coordination.shared_state import SharedState
from fairsync.coordination.shared_terms import SharedTerms
from fairsync.errors import BackendUnavailableError
from fairsync.floors import group_caps
from fairsync.ledger.redis import RedisLedger
from fairsync.policies import Policy, make_policy

if TYPE_CHECKING:
    from fairsync.catalog.groups import Grouped, Groups
    from fairsync.floors import Floors
    from fairsync.policies import Terms

_log = logging.getLogger(__name__)
# Whoever does not lead asks for the lead at most so often, in seconds.
_ASKED_EVERY = 0.5


class RedisCoordinator(CoordinatorBase):
    """One of several coordinators that keep one promise together: give it to :class:`fairsync.FrontEnd`.

    Each replica of a service has its own. Prices are made from the requests of the replica; exposures, and who was
    given which requests, are shared, so that floors hold for all replicas together:
    :mod:`fairsync.coordination.lease_table` says why. A replica may be killed at any moment: its leases expire. So may
    the server, if it keeps what it acknowledges (`appendonly yes`, `appendfsync always`).

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
        save_seconds: float = 5.0,
        timeout: float = 10.0,
        auto_restart: bool = True,
    ) -> None:
        check_seconds(lease_seconds, save_seconds)
        groups, terms = promised(catalog, k, floors, horizon, batch_size, auto_restart=auto_restart)
        made = make_policy(policy)
        self.replica, self._asked_at = replica, -_ASKED_EVERY
        self.ledger: RedisLedger = RedisLedger(url, len(groups.labels), name, timeout, replica)
        try:
            self._books: SharedState = SharedState(self.ledger, groups, terms, made, lease_seconds)
            _join(self._books, groups, terms, if_differs)
            kept_as = f"policy {made.name} of {replica}"
            super().__init__(self._books, self.ledger, made, lease_seconds, save_seconds, kept_as)
        except BaseException:
            self.ledger.close()
            raise

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

    def close(self) -> None:
        """Keep what was learnt, and let go of the lead and the server. Leases that are out expire."""
        self.save()
        self.ledger.close()

    def __enter__(self) -> RedisCoordinator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _join(books: SharedState, groups: Groups, terms: Terms, if_differs: str) -> None:
    """Agree with the promise that stands; make it, if there is none."""
    # Twice: a lease may have gone out just now, and has to have expired before it is given up.
    until, tries = time.monotonic() + 2 * books.lease_seconds, 0
    while not _joined(books, groups, terms, if_differs, patient=time.monotonic() < until):
        time.sleep(books.pause(tries))
        tries += 1
    books.square()
    books.pricing = PriceState.of(books.policy, books.policy.start(books.terms))


def _joined(books: SharedState, groups: Groups, terms: Terms, if_differs: str, *, patient: bool) -> bool:
    """Try to agree; False if that is to be tried again as things stand then."""
    if not books.shared.terms:
        return books.promise(groups, terms, patient=patient)
    totals = books.standing_promise()
    mine = SharedTerms.of(0, groups, terms, books.policy.keeps_floors)
    if if_differs == "refuse":
        mine.check_agrees(totals, books.ledger.store)
    if not mine.difference(totals):
        return terms.auto_restart or _join_steered(books, groups, totals)
    if if_differs == "follow":
        books.adopt(totals)
        return True
    books.groups = totals.groups
    known = books.following(groups)
    floors = np.pad(terms.floors, (0, len(known.labels) - len(terms.floors)))
    return books.promise(known, replace(terms, floors=floors, caps=group_caps(known, terms.k)), patient=patient)


def _join_steered(books: SharedState, groups: Groups, totals: SharedTerms) -> bool:
    """Go by what whoever leads has set, but with the groups of this replica's catalog, which may be newer.

    Groups of which it has no items keep those that others have.
    """
    books.adopt(totals)
    known = books.following(groups)
    there = np.pad(totals.groups.group_sizes, (0, len(known.labels) - len(totals.groups.labels)))
    known = replace(known, group_sizes=np.where(known.group_sizes, known.group_sizes, there))
    caps = group_caps(known, totals.k)
    if caps.tolist() == books.terms.caps.tolist():
        return True
    now, new = books.shared.accounts.totals, len(caps) - len(books.terms.floors)
    more = np.pad(np.maximum(books.terms.floors - now.exposures, 0), (0, new))
    return books.set_targets(known, more, max(books.terms.horizon - now.requests, 1))
