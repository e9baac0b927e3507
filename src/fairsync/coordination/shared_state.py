"""The state of one of several coordinators that share a ledger in Postgres.

Counts, leases and the promise are rows of the ledger; prices are each coordinator's own. Every change is one short
transaction that reads the rows, applies the functions that a single coordinator applies to its memory, and writes what
has changed. The rules are those of :mod:`fairsync.coordination.lease_table`, and so is the proof:

- Horizons and promises change one at a time, in exclusive transactions. A lease is granted in such a transaction too,
  with all earlier ones known, if the floors are so near that it may have to wait, or if leases have expired.
- Otherwise a lease is granted by one statement, side by side with others. By the exposures that are known, it may be
  granted while the requests that were leased in this horizon stay below a limit. The statement adds to their number
  (the table ``grants``) unless that exceeds the limit, or the horizon or the promise is another one. Exposures that are
  not known yet only raise the limit. The number may be too high, if a lease was lost, but never too low: then fewer
  requests are left than there are, and the next exclusive transaction sets it right.
- A settlement is one statement that counts the entry and closes the lease, side by side with all others. A grant sees
  both or neither. If neither, it knows fewer exposures and the same number of requests left, so that it asks for more,
  never for less. Counts that are committed after a horizon has begun belong to that horizon.
- Leases expire by the server's clock. A lease without an open row was lost, or was settled: the idempotency key tells.

A grant is not flushed to the disk before it returns. If the server crashes and forgets it, the lease is lost like one
that has expired: its exposures count when they arrive, and its requests do not.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync.catalog.groups import Groups
from fairsync.coordination.lease import Lease, lease_key
from fairsync.coordination.lease_quota import most_leased
from fairsync.coordination.local_state import extended_groups
from fairsync.coordination.shared_certificate import new_number
from fairsync.coordination.shared_view import SharedView
from fairsync.coordination.target_terms import counted_since, target_terms
from fairsync.errors import InvalidInputError
from fairsync.ledger.audit import append_audit
from fairsync.loop.certificate_opening import cannot_be_kept, check_caps
from fairsync.loop.loop_state import LoopState
from fairsync.loop.progress import Progress
from fairsync.promises.certificate import find_certificate
from fairsync.promises.floors import check_reachable
from fairsync.promises.promise import EVERY_SLOT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from fairsync.catalog.atoms import Atoms
    from fairsync.catalog.groups import Grouped
    from fairsync.coordination.lease import Settlement
    from fairsync.coordination.shared_rows import OpenLeases
    from fairsync.coordination.shared_terms import SharedTerms
    from fairsync.coordination.targets import Targets
    from fairsync.ledger import Entry, SqlLedger, Totals
    from fairsync.ledger.audit import AuditRecord
    from fairsync.ledger.database import Transaction
    from fairsync.loop.batch import Batch
    from fairsync.policies import Policy, Terms
    from fairsync.promises import Promise

# Bounds of the time to wait for leases of other coordinators, in seconds.
_MIN_DELAY, _MAX_DELAY = 0.001, 0.02


class SharedState(SharedView):
    """The state of one of several coordinators; compare :class:`fairsync.coordination.local_state.LocalState`.

    It is made by :func:`fairsync.coordination.shared_join.join_ledger`.

    Parameters
    ----------
    ledger, groups, terms, policy, resolve
        As for `SharedView`.
    lease_seconds
        Seconds after which an open lease expires.
    promises
        The promises over a horizon that this coordinator would make, if they may overlap.
    """

    def __init__(
        self,
        ledger: SqlLedger,
        groups: Groups,
        terms: Terms,
        policy: Policy,
        resolve: Callable[[SharedTerms], Atoms | None],
        lease_seconds: float,
        promises: tuple[Promise, ...] | None = None,
    ) -> None:
        super().__init__(ledger, groups, terms, policy, resolve)
        self.lease_seconds, self._promises = lease_seconds, promises

    @property
    def loop(self) -> LoopState:
        """The state of the loop."""
        prices = self.prices
        return LoopState(self.rows.progress, prices.price_state, self.certificate.state, None, prices.spending)

    def learn(self, loop: LoopState) -> None:
        """Take the prices, and what promises may cost, of a loop that was made from this one."""
        self.prices.price_state, self.prices.spending = loop.price_state, loop.spending

    def past(self) -> Sequence[Totals]:
        """Return the totals of the past horizons, oldest first."""
        return self.ledger.past()[: self.rows.horizon]  # another may have ended since the last refresh

    def retry_delay(self, tries: int) -> float:
        """Return the seconds after which to look again whether leases were settled."""
        return min(_MIN_DELAY * 2.0 ** min(tries, 9), _MAX_DELAY) * random.uniform(0.5, 1.0)

    def lease(self, n: int, seconds: float | None = None, k: int | None = None) -> Lease | None:
        """Lease up to n requests of k candidates, to expire after these seconds; None if it has to wait for others.

        If the connection breaks, the caller repeats it: then the first grant, of which nobody knows, is taken back.
        """
        rows, seconds = self.rows, seconds or self.lease_seconds
        batch, number = None, rows.retried
        if not number:
            number = rows.retried = new_number()
            batch = self._grant_at_once(number, n, seconds)
        if batch is None:
            batch = self.ledger.database.run(
                lambda tx: self._grant(tx, number, n, seconds, k), "exclusive", durable=False
            )
        rows.retried = 0
        if batch is None:
            return None
        rows.keep(number, batch.requests)
        return Lease(number, self.prices.priced(self.terms, rows.progress, rows.horizon, batch))

    def _grant_at_once(self, number: int, n: int, seconds: float) -> Batch | None:
        """Lease up to n requests by one statement; None if that is not possible, or may not be."""
        rows, most = self.rows, self._most_granted()
        mine = rows.own_requests
        batch = self._next_batch(n, max(rows.granted - rows.progress.totals.requests, mine), mine)
        if (
            not batch.requests
            or rows.granted + batch.requests > most
            or not rows.can_grant_at_once
            or self._gets_everything()
            or self.has_news
            or not self.certificate.forecast_allows(batch)
        ):
            return None
        before = rows.grant_at_once(number, batch.requests, seconds, self.key, most, len(self.groups.labels))
        if before is None:
            return None
        batch = self._next_batch(batch.requests, before - rows.progress.totals.requests, mine)
        return batch if self.terms.membership is None else self.certificate.under_quota(batch)

    def _grant(self, transaction: Transaction, number: int, n: int, seconds: float, k: int | None) -> Batch | None:
        """Lease up to n requests of k candidates with all other leases known; None if they have to be waited for."""
        rows, found = self.rows, self.expire(transaction, self.read_alone(transaction))
        leases = found.leases
        if not leases.open and rows.progress.is_over(self.terms):
            # A horizon that others have seen end must not continue after a crash.
            transaction.execute("SET LOCAL synchronous_commit = on")
            latest = self.ledger.open_horizon(transaction, 0.0)
            rows.begin(latest, len(latest.totals.exposures))
            self.certificate.close_quota(transaction, self.terms, leases.open)
        batch = self._next_batch(n, leases.requests, found.mine)
        batch = batch if k is None else replace(batch, k=k)
        if self.terms.membership is None:
            granted = replace(leases, issued=number - 1).grant(batch)
            lease = None if granted is None else granted[1].batch
        else:
            affordable = self.prices.spending.affordable(self.terms)
            lease = self.certificate.grant(
                transaction, number, batch, rows.progress, leases.open, affordable, takes_all=self._gets_everything()
            )
        if lease is not None:
            rows.grant(transaction, number, batch.requests, seconds, self.key)
        return lease

    def _gets_everything(self) -> bool:
        """Return whether the next lease gets the whole certificate and all that caps have left.

        As long as nobody else leases requests, caps need not be shared out: a part for each lease would be a limit per
        list, and lists differ in what they need.
        """
        return self.terms.caps is not None and self.rows.is_alone

    def _most_granted(self) -> int:
        """Return how many requests of this horizon may be leased, whatever those that are open deliver."""
        if self.terms.membership is not None:
            return self.certificate.quota.most
        missing = self.rows.progress.missing(self.terms)
        return most_leased(self.terms, missing if self.policy.keeps_floors else np.zeros_like(missing))

    def _next_batch(self, n: int, leased: int, mine: int) -> Batch:
        rows = self.rows
        return self.prices.next_batch(self.terms, rows.progress, rows.horizon, n, leased=leased, mine=mine)

    def settle(self, number: int, settlement: Settlement) -> Entry | None:
        """Record the counts of a lease; return the entry as it counts, or None if the lease is settled already.

        What its requests could show is used here only: each coordinator forecasts from the requests of its own front
        ends, which are a sample of all. What promises cost is not recorded, because the costs of others are not known.
        """
        if len(settlement.entry.counts) > len(self.groups.labels):
            self.refresh()  # another coordinator has added groups
        settlement = settlement.within(self.terms)
        counted = self.ledger.settle(number, settlement.entry, lease_key(number), settlement.answers)
        self.rows.forget(number)
        if counted is None:
            return None
        self.rows.progress, counted = self.rows.progress.record(counted)
        self.prices.record(self.rows.progress.totals, replace(settlement, entry=counted))
        self.certificate.settle(settlement.certified)
        return counted

    def record(self, entry: Entry, key: str, answers: Mapping[str, bytes] | None = None) -> bool:
        """Record an entry that belongs to no open lease; return False if this idempotency key is known."""
        if not self.ledger.record([entry], key, answers):
            return False
        self.rows.progress = self.rows.progress.record(entry)[0]
        return True

    def release(self, number: int) -> None:
        """Close a lease without counts."""
        self.rows.release(number)

    def extended_groups(self, groups: Grouped) -> Groups:
        """Return the groups of a changed catalog, with those of other coordinators that it does not have."""
        known, n = self.groups, len(groups.labels)
        sizes = np.concatenate([groups.group_sizes, known.group_sizes[n:]])
        return extended_groups(Groups([*groups.labels, *known.labels[n:]], sizes), known, self.terms.k)

    def promise(
        self, groups: Groups, terms: Terms, *, may_wait: bool, promises: tuple[Promise, ...] | None = None
    ) -> bool:
        """Replace the promise for all; see :meth:`LocalState.promise`."""

        def attempt(transaction: Transaction, rows: OpenLeases) -> bool:
            totals, keeps_floors = rows.latest.totals, self.policy.keeps_floors
            if self.number:
                totals = totals.grown(len(terms.floors))
            if terms.membership is not None:
                if not self._can_promise(groups, terms, totals, rows, may_wait=may_wait):
                    return False
                self.write_terms(transaction, groups, terms, rows, promises=promises or self._promises)
                return True
            check_reachable(terms, totals, keeps_floors=keeps_floors)
            try:
                leased = replace(totals, requests=totals.requests + rows.leases.requests)
                check_reachable(terms, leased, keeps_floors=keeps_floors, is_over=not rows.leases.open)
            except InvalidInputError:
                if not may_wait:
                    raise
                return False
            self.write_terms(transaction, groups, terms, rows)
            return True

        return self.change(attempt)

    def _can_promise(self, groups: Groups, terms: Terms, totals: Totals, rows: OpenLeases, *, may_wait: bool) -> bool:
        """Return whether promises that may overlap can be kept; if not, refuse them, or wait for open leases."""
        check_reachable(terms, totals, keeps_floors=False, is_over=not rows.leases.open)
        progress, open_, is_first = Progress(totals), rows.leases.open, not self.number
        if EVERY_SLOT in groups.labels[len(self.groups.labels) :] and totals.requests and not is_first:
            raise InvalidInputError(
                "these caps leave too few items outside them to fill lists with. Coordinators that share a ledger can"
                " be given them with the first request of a horizon, not later."
            )
        reserved = self.certificate.quota.all_reserved(open_, terms)
        if not is_first:
            check_caps(progress, terms, self.terms)
            try:
                check_caps(progress, terms, self.terms, reserved)
            except InvalidInputError:
                if not may_wait:
                    raise
                return False
        left = progress.left(terms) - rows.leases.requests
        if left <= 0 and not open_:  # the horizon is over
            progress, left = progress.restart(), terms.horizon
        affordable = self.prices.spending.under(terms).affordable(terms)
        if (
            find_certificate(affordable, progress.certain_missing(affordable), progress.room(terms, reserved), left)
            is not None
        ):
            return True
        if open_ and may_wait:
            return False
        raise cannot_be_kept(terms, totals)

    def set_targets(
        self,
        targets: Targets,
        restart_at: float | None = None,
        saves: Mapping[str, bytes] | None = None,
        audit: Sequence[AuditRecord] = (),
        since: Totals | None = None,
    ) -> bool:
        """Aim at additional exposures, for all; False if it has to be tried again; see :meth:`LocalState.set_targets`.

        If a horizon has begun since ``restart_at``, nothing is changed.
        """
        certificate = self.certificate
        planned: NDArray[np.int64] | None = None

        def attempt(transaction: Transaction, rows: OpenLeases) -> bool:
            nonlocal planned
            latest, aim = rows.latest, targets
            if since is not None:
                aim = targets.less(counted_since(since, latest.totals))
            if restart_at is not None:
                if restart_at <= latest.totals.began:
                    return True
                latest = self.ledger.open_horizon(transaction, restart_at)
            totals, open_ = latest.totals.grown(aim.n_columns), rows.leases.open
            too_dear = None if restart_at is not None else self.prices.spending.too_dear
            terms = target_terms(
                self.terms, totals, rows.leases.requests, aim,
                lambda aim: certificate.quota.all_reserved(open_, aim), certificate.plan, too_dear,
                continues=restart_at is None,
            )  # fmt: skip
            self.write_terms(transaction, aim.groups, terms, rows, selections=aim.selections)
            planned = terms.certificate
            for name, value in (saves or {}).items():
                self.ledger.write_saved(transaction, name, value)
            append_audit(transaction, audit)
            return True

        done = self.change(attempt)
        certificate.aim(self.terms, planned)
        return done
