"""Several coordinators, one promise: each has prices of its own, and all share counts and leases on a Redis server."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from fairsync.catalog.groups import Groups
from fairsync.coordination.base import CoordinatorBase, check_seconds
from fairsync.coordination.redis.ledger import RedisLedger
from fairsync.coordination.redis.state import SharedState
from fairsync.coordination.redis.terms import SharedTerms
from fairsync.errors import BackendUnavailableError
from fairsync.floors import group_caps, make_terms
from fairsync.loop import PriceState
from fairsync.policies import Policy, make_policy

if TYPE_CHECKING:
    from fairsync.catalog.groups import Grouped
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
    lease_seconds, save_seconds
        As for :class:`fairsync.Coordinator`.
    timeout
        Seconds for which a server that is away is tried again.
    auto_restart
        As for :class:`fairsync.Coordinator`. Otherwise `set_targets` sets floors and horizon, for all replicas: what is
        given here holds until then, and a replica that joins need not give what stands.
    """

    def __init__(
        self,
        url: str,
        catalog: Grouped,
        *,
        k: int = 20,
        floors: Floors = 0,
        horizon: int = 10_000,
        policy: str | Policy = "guaranteed",
        batch_size: int = 16,
        name: str = "fairsync",
        replica: str = "replica",
        if_differs: Literal["refuse", "follow", "take over"] = "refuse",
        lease_seconds: float = 30.0,
        save_seconds: float = 5.0,
        timeout: float = 10.0,
        auto_restart: bool = True,
    ) -> None:
        check_seconds(lease_seconds, save_seconds)
        terms = make_terms(catalog, k, floors, horizon, batch_size, auto_restart=auto_restart)
        groups = Groups(list(catalog.labels), catalog.group_sizes)
        made = make_policy(policy)
        self.replica, self._asked_at = replica, -_ASKED_EVERY
        self.ledger: RedisLedger = RedisLedger(url, len(groups.labels), name, timeout, replica)
        try:
            self._state: SharedState = SharedState(self.ledger, groups, terms, made, lease_seconds)
            _join(self._state, groups, terms, if_differs)
            saved_as = f"policy {made.name} of {replica}"
            super().__init__(self._state, self.ledger, made, lease_seconds, save_seconds, saved_as)
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
                self._state.refresh()
        except BackendUnavailableError as error:
            _log.warning("nobody leads: %s", error)
            return False
        return leads

    def close(self) -> None:
        """Keep what was learnt, and let go of the lead and the server. Leases that are out expire."""
        super().close()
        self.ledger.close()


def _join(state: SharedState, groups: Groups, terms: Terms, if_differs: str) -> None:
    """Agree with the promise that stands; make it, if there is none."""
    # Twice: a lease may have gone out just now, and has to have expired before it is given up.
    until, tries = time.monotonic() + 2 * state.lease_seconds, 0
    while not _joined(state, groups, terms, if_differs, may_wait=time.monotonic() < until):
        time.sleep(state.retry_delay(tries))
        tries += 1
    state.write_left()
    state.price_state = PriceState.of(state.policy, state.policy.start(state.terms))


def _joined(state: SharedState, groups: Groups, terms: Terms, if_differs: str, *, may_wait: bool) -> bool:
    """Try to agree; False if that is to be tried again as things stand then."""
    if not state.shared.terms:
        return state.promise(groups, terms, may_wait=may_wait)
    totals = state.standing_promise()
    mine = SharedTerms.of(0, groups, terms, state.policy.keeps_floors)
    if if_differs == "refuse":
        mine.check_agrees(totals, state.ledger.store)
    if not mine.difference(totals):
        return terms.auto_restart or _join_steered(state, groups, totals)
    if if_differs == "follow":
        state.adopt(totals)
        return True
    state.groups = totals.groups
    known = state.extended_groups(groups)
    floors = np.pad(terms.floors, (0, len(known.labels) - len(terms.floors)))
    return state.promise(known, replace(terms, floors=floors, caps=group_caps(known, terms.k)), may_wait=may_wait)


def _join_steered(state: SharedState, groups: Groups, totals: SharedTerms) -> bool:
    """Go by what whoever leads has set, but with the groups of this replica's catalog, which may be newer.

    Groups of which it has no items keep those that others have.
    """
    state.adopt(totals)
    known = state.extended_groups(groups)
    there = np.pad(totals.groups.group_sizes, (0, len(known.labels) - len(totals.groups.labels)))
    known = replace(known, group_sizes=np.where(known.group_sizes, known.group_sizes, there))
    caps = group_caps(known, totals.k)
    if caps.tolist() == state.terms.caps.tolist():
        return True
    now, new = state.shared.progress.totals, len(caps) - len(state.terms.floors)
    more = np.pad(np.maximum(state.terms.floors - now.exposures, 0), (0, new))
    return state.set_targets(known, more, max(state.terms.horizon - now.requests, 1))
