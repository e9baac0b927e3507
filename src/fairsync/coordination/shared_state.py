"""The state store of one of several coordinators that share a ledger in Postgres.

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
import secrets
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fairsync.catalog.groups import Groups, grow
from fairsync.certificate_state import CertificateState
from fairsync.coordination.budget import BUDGET, Budget, share_out
from fairsync.coordination.counted import with_labels
from fairsync.coordination.lease import Lease
from fairsync.coordination.lease_table import LeaseTable, fills_every_slot, forecast_suffices
from fairsync.coordination.local_state import extended_groups
from fairsync.coordination.shared_queries import (
    CLOSE,
    EXPIRED,
    FREE,
    GRANT,
    GRANT_AT_ONCE,
    GRANT_IN_NEW_ROW,
    GRANTED,
    OPEN,
    SET_GRANTS,
    STATE,
    TERMS_NUMBER,
)
from fairsync.coordination.shared_terms import TERMS, SharedTerms
from fairsync.coordination.targets import Targets, counted_since, has_other_shape, target_terms
from fairsync.errors import InvalidInputError, UndecidedPromisesError, UnusableLedgerError
from fairsync.floors import check_reachable, group_capacities
from fairsync.ledger.audit import append_audit
from fairsync.loop import LoopState, PriceState, Progress, check_caps
from fairsync.plan.lowering import lower_floors
from fairsync.promises.certificate import find_certificate, plan_within
from fairsync.promises.plan_bounds import PlanBounds
from fairsync.promises.promise import EVERY_SLOT
from fairsync.spending import Spending

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from fairsync.batch import Batch
    from fairsync.catalog.atoms import Atoms
    from fairsync.catalog.groups import Grouped
    from fairsync.eligible_slots import EligibleSlots
    from fairsync.ledger import Entry, SqlLedger, Totals
    from fairsync.ledger.audit import AuditRecord
    from fairsync.ledger.database import Transaction
    from fairsync.ledger.rows import Latest
    from fairsync.policies import Policy, Sample, Terms
    from fairsync.promise_costs import PromiseCosts
    from fairsync.promises import Promise
    from fairsync.promises.certificate import Certified

IfDiffers = Literal["refuse", "follow", "take over"]
# Bounds of the time to wait for leases of other coordinators, in seconds.
_MIN_DELAY, _MAX_DELAY = 0.001, 0.02
# Seconds within which a certificate is looked for. The database ends transactions that are idle for much longer.
_CERTIFY_SECONDS = 0.5
# Entries of processes that have ended are added to the totals when there are this many, so that there are few to read.
_MAX_ENTRIES = 64


@dataclass(frozen=True)
class _Rows:
    """The rows of the ledger that a transaction has read.

    Attributes
    ----------
    latest : Latest
        The horizon under way.
    leases : LeaseTable
        The open leases of all coordinators.
    mine : int
        Requests of the open leases of this coordinator.
    """

    latest: Latest
    leases: LeaseTable
    mine: int


class SharedState:
    """The state of one of several coordinators; compare :class:`fairsync.coordination.local_state.LocalState`.

    Parameters
    ----------
    ledger
        The ledger, opened with ``shared=True``.
    groups, terms, policy
        The promise that this coordinator would make, its groups, and the policy that makes prices.
    lease_seconds
        Seconds after which an open lease expires.
    if_differs
        What to do if the ledger has another promise; see :class:`fairsync.Coordinator`.
    resolve
        Returns the atoms of this coordinator's items under a promise of the ledger; None for floors of groups.
    promises
        The promises over a horizon, if they may overlap.
    """

    def __init__(
        self,
        ledger: SqlLedger,
        groups: Groups,
        terms: Terms,
        policy: Policy,
        lease_seconds: float,
        if_differs: IfDiffers = "refuse",
        resolve: Callable[[SharedTerms], Atoms | None] = lambda _: None,
        promises: tuple[Promise, ...] | None = None,
    ) -> None:
        self.ledger, self.groups, self.terms, self.policy = ledger, groups, terms, policy
        self.lease_seconds = self._expires_after = lease_seconds
        self.price_state = PriceState.of(policy, policy.start(terms))
        self.progress, self._horizon, self._priced_horizon = Progress(ledger.totals()), 0, 0
        self._number, self._replica = 0, secrets.token_hex(8)  # the number of the terms; the owner of leases
        self._key = 0  # the number of the terms or of the budget under which leases are granted at once
        self._retried = 0  # the number of a lease that may have been granted without our knowledge
        self._expired: list[int] = []
        self._n_entries = 0  # entries that are not part of the stored totals
        self._granted = 0  # requests of the horizon that were leased so far, as far as is known here
        self._free: list[int] = []  # rows in which leases can be written
        self._leases: dict[int, tuple[int, int]] = {}  # row and requests of this coordinator's leases, by number
        self._slot = 0  # the row of the latest lease; 0 if it is a new one, whose number is not known yet
        self._resolve, self._promises = resolve, promises
        self._certificate: CertificateState | None = None  # in the atoms of this coordinator
        self._aimed: NDArray[np.int64] | None = None  # the certificate of the targets that it has just set
        self._budget, self._spending = Budget(), Spending.of(terms, None)
        self._join(groups, terms, if_differs)
        self.price_state = PriceState.of(policy, policy.start(self.terms))
        self._priced_horizon = self._horizon

    @property
    def loop(self) -> LoopState:
        """The state of the loop."""
        return LoopState(self.progress, self.price_state, self._certificate, None, self._spending)

    def refresh(self) -> None:
        """Read what other coordinators have written."""
        self.ledger.database.run(self._read, "read")

    def past(self) -> Sequence[Totals]:
        """Return the totals of the past horizons, oldest first."""
        return self.ledger.past()[: self._horizon]  # another may have ended since the last refresh

    def retry_delay(self, tries: int) -> float:
        """Return the seconds after which to look again whether leases were settled."""
        return min(_MIN_DELAY * 2.0 ** min(tries, 9), _MAX_DELAY) * random.uniform(0.5, 1.0)

    def lease(self, n: int, seconds: float | None = None) -> Lease | None:
        """Lease up to n requests, to expire after these seconds; None if it has to wait for open leases."""
        self._expires_after = seconds or self.lease_seconds
        # If the connection breaks, the grant is repeated: then the first one, which nobody has heard of, is taken back.
        lease, number = None, self._retried
        if not number:
            number = self._retried = 1 + secrets.randbits(62)
            lease = self._grant_at_once(number, n)
        if lease is None:
            lease = self.ledger.database.run(lambda tx: self._grant(tx, number, n), "exclusive", durable=False)
        self._retried = 0
        if lease is None:
            return None
        self._leases[number] = self._slot, lease.batch.requests
        if self._is_due():
            self._step()
        batch, spending = lease.batch, self._spending
        batch = self.price_state.batch(
            self.terms if spending is None else spending.asked(self.terms),
            self.policy,
            batch.requests,
            batch.missing,
            batch.left,
            batch.certificate,
            batch.room,
            None if spending is None else spending.highest(self.terms),
        )
        return Lease(number, batch)

    def _step(self) -> None:
        """Let the policy learn from the price batch under way."""
        terms, totals, spending = self.terms, self.progress.totals, self._spending
        is_new = self._priced_horizon != self._horizon
        if spending is not None and is_new:
            spending = spending.restarted()
        highest = None if spending is None else spending.highest(terms)
        self.price_state = self.price_state.step(self.policy, terms, totals, highest)
        if is_new:  # costs stay unknown: those of other coordinators are
            self.price_state = replace(self.price_state.restarted(), costs=None)
        self._priced_horizon = self._horizon
        self._spending = None if spending is None else spending.priced(terms, self.price_state.prices, totals)

    def settle(
        self,
        number: int,
        entry: Entry,
        sample: Sample | None,
        answers: Mapping[str, bytes],
        slots: EligibleSlots | None = None,
        certified: Certified | None = None,
        costs: PromiseCosts | None = None,
        last_relevance: float | None = None,
    ) -> Entry | None:
        """Record the counts of a lease; return the entry as it counts, or None if the lease is settled already.

        What its requests could show is used here only: each coordinator forecasts from the requests of its own front
        ends, which are a sample of all. What promises cost is not recorded, because the costs of others are not known.
        """
        if len(entry.counts) > len(self.groups.labels):
            self.refresh()  # another coordinator has added groups
        counted = self.ledger.settle(number, entry, f"lease {number}", answers)
        self._forget(number)
        if counted is None:
            return None
        self.progress, counted = self.progress.record(counted)
        self.price_state = self.price_state.record(self.policy, counted, sample, slots=slots)
        self._observe(counted.requests, last_relevance, certified)
        if self._certificate is not None and certified is not None:
            before = self._certificate
            if len(certified.plan) == len(before.plan):
                plan = np.maximum(certified.shown.taken_from(before.plan), certified.plan)
                self._certificate = before.after(certified._replace(plan=plan))
        return counted

    def _observe(self, requests: int, last_relevance: float | None, certified: Certified | None) -> None:
        """Learn what promises cost from some requests. Each coordinator does so from those of its own front ends."""
        spending = self._spending
        if spending is not None and last_relevance is not None and requests:
            spending = spending.observed(last_relevance, requests)
        if spending is not None and certified is not None and certified.too_dear is not None:
            spending = spending.refused(grow(certified.too_dear, len(self.terms.floors)), self.progress.totals)
        self._spending = spending

    def record(self, entry: Entry, key: str) -> bool:
        """Record an entry that belongs to no lease; return False if this idempotency key is known."""
        if not self.ledger.record([entry], key):
            return False
        self.progress = self.progress.record(entry)[0]
        return True

    def release(self, number: int) -> None:
        """Close a lease without counts."""
        self.ledger.database.run(lambda tx: tx.execute(CLOSE, number=number), "statement")
        self._forget(number)

    def extended_groups(self, groups: Grouped) -> Groups:
        """Return the groups of a changed catalog, with those of other coordinators that it does not have."""
        known, n = self.groups, len(groups.labels)
        sizes = np.concatenate([groups.group_sizes, known.group_sizes[n:]])
        return extended_groups(Groups([*groups.labels, *known.labels[n:]], sizes), known, self.terms.k)

    def promise(
        self, groups: Groups, terms: Terms, *, may_wait: bool, promises: tuple[Promise, ...] | None = None
    ) -> bool:
        """Replace the promise for all, or refuse one that cannot be kept; False if it has to be tried again.

        Parameters
        ----------
        groups, terms
            The new promise.
        may_wait
            Whether it may be tried again if open leases could break it; they were granted under the old promise.
        """

        def attempt(transaction: Transaction, rows: _Rows) -> bool:
            totals, keeps_floors = rows.latest.totals, self.policy.keeps_floors
            if self._number:
                totals = totals.grown(len(terms.floors))
            if terms.membership is not None:
                if not self._can_promise(groups, terms, totals, rows, may_wait=may_wait):
                    return False
                self._write_terms(transaction, groups, terms, rows, promises=promises or self._promises)
                return True
            check_reachable(terms, totals, keeps_floors=keeps_floors)
            try:
                leased = replace(totals, requests=totals.requests + rows.leases.requests)
                check_reachable(terms, leased, keeps_floors=keeps_floors, is_over=not rows.leases.open)
            except InvalidInputError:
                if not may_wait:
                    raise
                return False
            self._write_terms(transaction, groups, terms, rows)
            return True

        return self._change(attempt)

    def _can_promise(self, groups: Groups, terms: Terms, totals: Totals, rows: _Rows, *, may_wait: bool) -> bool:
        """Return whether promises that may overlap can be kept; if not, refuse them, or wait for open leases."""
        check_reachable(terms, totals, keeps_floors=False, is_over=not rows.leases.open)
        progress, open_ = Progress(totals), rows.leases.open
        if EVERY_SLOT in groups.labels[len(self.groups.labels) :] and totals.requests and self._number:
            raise InvalidInputError(
                "these caps leave too few items outside them to fill lists with. Coordinators that share a ledger can"
                " be given them with the first request of a horizon, not later."
            )
        if self._number:
            check_caps(progress, terms, self.terms)
        reserved = self._budget.all_reserved(open_, terms)
        left = progress.left(terms) - rows.leases.requests
        if left <= 0 and not open_:  # the horizon is over
            progress, left = progress.restart(), terms.horizon
        if find_certificate(terms, progress.certain_missing(terms), progress.room(terms, reserved), left) is not None:
            return True
        if open_ and may_wait:
            return False
        raise InvalidInputError(
            f"The horizon has had {totals.requests} requests, and its promises can no longer be kept together by"
            f" request {terms.horizon}. Lower them, lengthen the horizon, or start with a new ledger."
        )

    def set_targets(
        self,
        targets: Targets,
        restart_at: float | None = None,
        saves: Mapping[str, bytes] | None = None,
        audit: Sequence[AuditRecord] = (),
        since: Totals | None = None,
    ) -> bool:
        """Aim at additional exposures, in a new horizon if one is to begin; False if it has to be tried again.

        Parameters
        ----------
        targets
            The targets.
        restart_at
            Start of a new horizon. Nothing is changed if one has begun since then.
        saves
            Values to save in the same transaction, by name.
        audit
            Records to add to the audit in the same transaction.
        since
            The totals by which the targets were made.
        """

        def attempt(transaction: Transaction, rows: _Rows) -> bool:
            latest, aim = rows.latest, targets
            if since is not None:
                aim = targets.less(counted_since(since, latest.totals))
            if restart_at is not None:
                if restart_at <= latest.totals.began:
                    return True
                latest = self.ledger.open_horizon(transaction, restart_at)
            totals, near = latest.totals.grown(aim.n_columns), self._certificate
            open_, plan = rows.leases.open, None if near is None else near.plan
            given_up = None if self._spending is None or restart_at is not None else self._spending.too_dear
            terms = target_terms(
                self.terms, totals, rows.leases.requests, aim, lambda aim: self._budget.all_reserved(open_, aim), plan,
                given_up,
            )  # fmt: skip
            self._write_terms(transaction, aim.groups, terms, rows, selections=aim.selections)
            self._aimed = terms.certificate
            for name, value in (saves or {}).items():
                self.ledger.write_saved(transaction, name, value)
            append_audit(transaction, audit)
            return True

        return self._change(attempt)

    def _change(self, attempt: Callable[[Transaction, _Rows], bool]) -> bool:
        """Change the promise in a transaction of its own; False if it has to be tried again."""
        known = self._number

        def change(transaction: Transaction) -> bool:
            self.ledger.check_fence(transaction)
            rows = self._read_alone(transaction)
            if known != self._number:
                return False  # another coordinator has changed it, and this one decided by the former terms
            rows = self._expire(transaction, rows)
            done = attempt(transaction, rows)
            self._set_grants(transaction, self.ledger.read_latest(transaction), rows.leases.requests)
            return done

        self._aimed = None
        done = self.ledger.database.run(change, "exclusive")
        self.refresh()
        if self._certificate is not None and self._aimed is not None and len(self._aimed) == self.terms.n_atoms:
            self._certificate = replace(self._certificate, plan=self._aimed)
        return done

    def _read_alone(self, transaction: Transaction) -> _Rows:
        """Read the rows after all leases that were granted at once, and before all others of that kind."""
        transaction.execute("SELECT 1 FROM grants FOR UPDATE")
        rows = self._read(transaction)
        found = transaction.execute("SELECT value FROM saved WHERE name = :name", name=BUDGET)
        self._budget = Budget.load(bytes(found[0][0])) if found else Budget()
        self._key = self._number if self.terms.membership is None else -self._budget.number
        return rows

    def _read(self, transaction: Transaction) -> _Rows:
        """Read the rows, and adopt the promise if another coordinator has changed it."""
        rows = transaction.execute(STATE, replica=self._replica, retried=self._retried)
        number = next((row[0] for row in rows if row[-1] == TERMS_NUMBER), 0)
        if number != self._number:
            ((data,),) = transaction.execute("SELECT value FROM saved WHERE name = :name", name=TERMS)
            self._adopt(SharedTerms.load(bytes(data)))
        return self._take(rows)

    def _take(self, rows: Sequence[tuple[Any, ...]]) -> _Rows:
        """Continue with rows that were read under the present promise."""
        latest = self.ledger.make_latest([row for row in rows if row[-1] > OPEN])
        n_groups = max(len(self.groups.labels), len(latest.totals.exposures))  # more if it is of another catalog
        self.progress, self._horizon = Progress(latest.totals.grown(n_groups)), latest.number
        self._expired = [row[0] for row in rows if row[-1] == EXPIRED]
        open_ = [row for row in rows if row[-1] == OPEN]
        table = LeaseTable({row[0]: row[1] for row in open_})
        used = {slot for slot, _ in self._leases.values()}
        self._free = [row[4] for row in rows if row[-1] == FREE and row[4] not in used]
        self._granted, self._n_entries = latest.totals.requests + table.requests, latest.n_entries
        return _Rows(latest, table, sum(row[1] for row in open_ if row[2]))

    def _expire(self, transaction: Transaction, rows: _Rows) -> _Rows:
        """Close the leases that have expired. One that was settled meanwhile is counted; then the rows are others."""
        while self._expired:  # others may expire meanwhile: their requests are not granted before they are closed
            for number in self._expired:
                transaction.execute(CLOSE, number=number)
            rows = self._read(transaction)
        return rows

    def _grant_at_once(self, number: int, n: int) -> Lease | None:
        """Lease up to n requests by one statement; None if that is not possible, or may not be."""
        most, mine = self._most_granted(), sum(requests for _, requests in self._leases.values())
        overlaps = self.terms.membership is not None
        batch = self._next_batch(n, max(self._granted - self.progress.totals.requests, mine), mine)
        if (
            not batch.requests
            or not self._free
            or self._granted + batch.requests > most
            or self._n_entries >= _MAX_ENTRIES
            or not self._forecast_allows(batch)
        ):
            return None
        slot, horizon = self._free.pop(), self._horizon
        self._slot = slot
        rows = self.ledger.database.run(
            lambda transaction: transaction.execute(
                GRANT_AT_ONCE,
                replica=self._replica,
                retried=0,
                number=number,
                requests=batch.requests,
                seconds=self._expires_after,
                slot=slot,
                horizon=horizon,
                terms=-self._budget.number if overlaps else self._number,
                most=most,
            ),
            "statement",
        )
        granted = next((row[0] for row in rows if row[-1] == GRANTED), None)
        if granted is None:
            return None
        self._take(rows)
        self._free = [one for one in self._free if one != slot]  # the rows are those before the grant
        self._granted = max(granted, self._granted)
        before = granted - batch.requests - self.progress.totals.requests
        batch = self._next_batch(batch.requests, before, mine)
        return Lease(number, self._under_budget(batch) if overlaps else batch)

    def _forecast_allows(self, batch: Batch) -> bool:
        """Return whether what later requests can show suffices for what is missing, or planned, after a batch."""
        if not self.policy.keeps_floors:
            return True
        if batch.terms.membership is None:
            return forecast_suffices(batch, batch.missing)
        return self._certificate is None or forecast_suffices(batch, self._certificate.plan)

    def _under_budget(self, batch: Batch) -> Batch:
        """Return a batch that gets no part of the certificate, and of the caps what the budget gives it."""
        nothing = np.zeros(batch.terms.n_atoms, dtype=np.int64)
        return replace(batch, certificate=nothing, room=self._budget.room(batch.requests, batch.terms))

    def _most_granted(self) -> int:
        """Return how many requests of this horizon may be leased, whatever those that are open deliver."""
        if self.terms.membership is not None:
            return self._budget.most
        terms, missing = self.terms, self.progress.missing(self.terms)
        if not self.policy.keeps_floors or not missing.any():
            return terms.horizon if terms.auto_restart else 1 << 62
        if (missing[terms.capacities == 0] > 0).any():
            return 0
        each = -(-missing // np.maximum(terms.capacities, 1))
        return terms.horizon - max(int(each.max()), -(-int(missing.sum()) // terms.k))

    def _next_batch(self, n: int, leased: int, mine: int) -> Batch:
        """Return the next batch of at most n requests.

        Price batches are the coordinator's own: of the requests that are leased, only its own are part of them.
        """
        begun = 0 if self._is_due() else self.price_state.requests
        price_state = replace(self.price_state, requests=begun - (leased - mine))
        return LoopState(self.progress, price_state).next_batch(self.terms, self.policy, n, leased=leased)

    def _set_grants(self, transaction: Transaction, latest: Latest, leased: int) -> None:
        requests = latest.totals.requests + leased
        transaction.execute(SET_GRANTS, horizon=latest.number, terms=self._key, requests=requests)

    def _reset_grants(self, transaction: Transaction) -> None:
        """Set the number of leased requests: a process that had the ledger to itself may have added to the horizon."""
        rows = self._read_alone(transaction)
        self._close_budget(transaction, self.terms, rows)
        self._set_grants(transaction, rows.latest, rows.leases.requests)

    def _grant(self, transaction: Transaction, number: int, n: int) -> Lease | None:
        rows = self._expire(transaction, self._read_alone(transaction))
        latest, leased = rows.latest, rows.leases.requests
        if not rows.leases.open and self.progress.is_over(self.terms):
            # A horizon that others have seen end must not continue after a crash.
            transaction.execute("SET LOCAL synchronous_commit = on")
            latest = self.ledger.open_horizon(transaction, 0.0)
            self.progress, self._horizon = Progress(latest.totals), latest.number
            self._close_budget(transaction, self.terms, rows)
        batch = self._next_batch(n, leased, rows.mine)
        if self.terms.membership is None:
            granted = replace(rows.leases, issued=number - 1).grant(batch)
            batch_granted = None if granted is None else granted[1].batch
        else:
            batch_granted = self._certified_batch(transaction, number, batch, rows)
        if batch_granted is None:
            return None
        if latest.n_entries >= _MAX_ENTRIES:
            self.ledger.add_entries(transaction)
        self._slot = self._free.pop() if self._free else 0
        self._granted = latest.totals.requests + leased + batch.requests
        transaction.execute(SET_GRANTS, horizon=latest.number, terms=self._key, requests=self._granted)
        transaction.execute_last(
            GRANT if self._slot else GRANT_IN_NEW_ROW,
            slot=self._slot,
            number=number,
            requests=batch.requests,
            seconds=self._expires_after,
            replica=self._replica,
        )
        return Lease(number, batch_granted)

    def _certified_batch(self, transaction: Transaction, number: int, batch: Batch, rows: _Rows) -> Batch | None:
        """Return a batch with its part of certificate and caps; None if it has to wait. All leases are known here."""
        terms, open_ = self.terms, rows.leases.open
        if not batch.requests:
            return None
        granted = self.progress.totals.requests + rows.leases.requests
        if granted + batch.requests <= self._budget.most and self._forecast_allows(batch):
            return self._under_budget(batch)
        allowances = {one: self._budget.reserved(one, n, terms) for one, n in open_.items()}
        room = self.progress.room(terms, sum(allowances.values(), np.zeros_like(terms.floors)))
        plan = self._certify(room, batch, is_alone=not open_)
        if plan is None:
            return None
        lease = number, batch.requests
        shared = share_out(_new_number(), terms, plan, room, granted, allowances, lease)
        beside_others = self._forecast_allows(batch) and not fills_every_slot(terms, batch.missing)
        if shared is not None and beside_others:
            self._write_budget(transaction, shared[0])
            return replace(batch, certificate=np.zeros_like(plan), room=shared[1])
        if open_:
            return None
        budget = Budget().closed(_new_number(), {}, terms)
        if room is not None:
            most = np.minimum(room[budget.capped], batch.requests * terms.k)
            budget = replace(budget, allowances={number: most})
        self._write_budget(transaction, budget)
        return replace(batch, certificate=plan, room=room)

    def _certify(self, room: NDArray[np.int64] | None, batch: Batch, *, is_alone: bool) -> NDArray[np.int64] | None:
        """Return a certificate for the requests that are not leased yet; None if open leases have to be waited for.

        If all counts are known, and the promises can no longer be kept, floors give way.
        """
        terms, known = self.terms, self._certificate
        if self._spending is not None:
            terms = self._spending.asked(terms)
        missing = self.progress.certain_missing(terms)
        near = np.zeros(terms.n_atoms, dtype=np.int64) if known is None else known.plan
        bounds = PlanBounds.of(terms, missing, room, batch.left)
        if is_alone:
            tiers = [np.where(terms.order <= number, missing, 0) for number in np.unique(terms.order).tolist()]
            floors, plan = lower_floors(bounds, tiers, near, _CERTIFY_SECONDS)
        else:
            try:
                found = plan_within(bounds, _CERTIFY_SECONDS, near)
            except UndecidedPromisesError:
                found = None
            if found is None:
                return None
            floors, plan = missing, found
        state = CertificateState(plan, plan, np.zeros_like(plan), batch.left) if known is None else known
        state = replace(state, plan=plan).renewed(terms, floors, room, batch.left, is_settled=False)
        self._certificate = state
        return state.plan

    def _write_budget(self, transaction: Transaction, budget: Budget) -> None:
        self.ledger.write_saved(transaction, BUDGET, budget.dump())
        self._budget, self._key = budget, -budget.number

    def _close_budget(self, transaction: Transaction, terms: Terms, rows: _Rows) -> None:
        """Let the next lease make another budget, if promises may overlap."""
        if terms.membership is not None:
            self._write_budget(transaction, self._budget.closed(_new_number(), rows.leases.open, terms))

    def _forget(self, number: int) -> None:
        slot, _ = self._leases.pop(number, (0, 0))
        if slot:
            self._free.append(slot)

    def _is_due(self) -> bool:
        """Return whether prices change before the next lease: the price batch is full, or the horizon is a new one."""
        return self._horizon != self._priced_horizon or self.price_state.requests >= self.terms.batch_size

    def _write_terms(
        self,
        transaction: Transaction,
        groups: Groups,
        terms: Terms,
        rows: _Rows,
        *,
        selections: frozenset[str] = frozenset(),
        promises: tuple[Promise, ...] | None = None,
    ) -> None:
        shared = SharedTerms.of(
            self._number + 1, groups, terms,
            keeps_floors=self.policy.keeps_floors, selections=selections, promises=promises,
        )  # fmt: skip
        self._write_shared(transaction, shared)
        self._key = shared.number
        self._close_budget(transaction, terms, rows)

    def _write_shared(self, transaction: Transaction, shared: SharedTerms) -> None:
        self.ledger.write_grown(transaction, len(shared.groups.labels))
        self.ledger.write_saved(transaction, TERMS, shared.dump())
        for name, value in (("terms", str(shared.number)), ("caps", "0" if shared.caps is None else "1")):
            transaction.execute(
                "INSERT INTO facts VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                name=name,
                value=value,
            )

    def _adopt(self, shared: SharedTerms) -> None:
        """Continue with the promise of the ledger."""
        if shared.keeps_floors != self.policy.keeps_floors:
            raise UnusableLedgerError(
                "another coordinator has taken the promise over with a policy of another kind: start this one with the"
                " same policy."
            )
        before, atoms = self.terms, self._resolve(shared)
        self._number, self.groups, self.terms = shared.number, shared.groups, shared.terms(before.batch_size, atoms)
        # Targets change a little with every plan, and what the policy has learnt continues to hold.
        n, overlap = len(self.price_state.prices), atoms is not None or before.membership is not None
        is_other = overlap and len(shared.floors) >= n and has_other_shape(before, self.terms)
        if shared.auto_restart or len(shared.floors) > n or is_other:
            state = self.policy.resume(self.price_state.state, self.terms)
            self.price_state = self.price_state.with_state(self.policy, state, self.terms.n_atoms)
        spending, n = self._spending, len(self.terms.floors)
        if spending is None or self.terms.max_prices is None:
            self._spending = Spending.of(self.terms, None)
        elif spending.since is None or len(spending.since) <= n:
            self._spending = spending.grown(n)
        if atoms is None:
            self._certificate = None
        elif self._certificate is None or len(self._certificate.plan) > self.terms.n_atoms:
            nothing = np.zeros(self.terms.n_atoms, dtype=np.int64)
            self._certificate = CertificateState(nothing, nothing, nothing, self.terms.horizon)
        elif len(self._certificate.plan) < self.terms.n_atoms:
            known = self._certificate
            plan, counts = (grow(one, self.terms.n_atoms) for one in (known.plan, known.exposures))
            self._certificate = replace(known, plan=plan, opening=plan, counts=counts, recent=None)

    def _join(self, groups: Groups, terms: Terms, if_differs: IfDiffers) -> None:
        """Agree with the promise of the ledger, or make it if there is none."""
        # Twice, because a lease may have been granted just now, and has to expire first.
        deadline, tries = time.monotonic() + 2 * self.lease_seconds, 0
        while not self._try_to_join(groups, terms, if_differs, may_wait=time.monotonic() < deadline):
            time.sleep(self.retry_delay(tries))
            tries += 1
        self.ledger.database.run(self._reset_grants, "exclusive")

    def _try_to_join(self, groups: Groups, terms: Terms, if_differs: IfDiffers, *, may_wait: bool) -> bool:
        shared = SharedTerms.saved_in(self.ledger)
        if shared is None:
            self._number, self.groups, self.terms = 0, groups, terms
            return self.promise(groups, terms, may_wait=may_wait)
        mine = SharedTerms.of(0, groups, terms, keeps_floors=self.policy.keeps_floors, promises=self._promises)
        if if_differs == "refuse":
            mine.check_agrees(shared, self.ledger.database.address)
        if not mine.difference(shared):
            self._adopt(shared)
            if shared.overlaps:
                return terms.auto_restart or self._join_with_labels(groups, shared)
            return terms.auto_restart or self._join_by_the_clock(groups, shared)
        if if_differs == "follow":
            self._adopt(shared)
            return True
        self._number, self.groups = shared.number, shared.groups
        if shared.overlaps or terms.membership is not None:
            if shared.auto_restart and groups.labels[: len(shared.groups.labels)] != shared.groups.labels:
                raise InvalidInputError(
                    "the ledger counts other promises: give its promises first, under their names, or another ledger."
                )
            return self.promise(groups, terms, may_wait=may_wait, promises=self._promises)
        known = self.extended_groups(groups)
        floors = np.pad(terms.floors, (0, len(known.labels) - len(terms.floors)))
        capacities = group_capacities(known, terms.k, terms.max_exclude)
        return self.promise(known, replace(terms, floors=floors, capacities=capacities), may_wait=may_wait)

    def _join_by_the_clock(self, groups: Groups, shared: SharedTerms) -> bool:
        """Continue with the leader's targets, and with the groups of this coordinator's catalog, which may be newer.

        Groups without items here keep the sizes that other coordinators know.
        """
        known = self.extended_groups(groups)
        there = np.pad(shared.groups.group_sizes, (0, len(known.labels) - len(shared.groups.labels)))
        known = replace(known, group_sizes=np.where(known.group_sizes, known.group_sizes, there))
        capacities = group_capacities(known, shared.k, shared.max_exclude)
        if capacities.tolist() == self.terms.capacities.tolist():
            return True
        now, new = self.ledger.totals(), len(capacities) - len(self.terms.floors)
        known_now = now.exposures[: len(self.terms.floors)]  # groups may have been added since
        more = np.pad(np.maximum(self.terms.floors - known_now, 0), (0, new))
        return self.set_targets(Targets(known, max(self.terms.horizon - now.requests, 1), (more,)))

    def _join_with_labels(self, groups: Groups, shared: SharedTerms) -> bool:
        """Continue with the leader's targets by selection, and count labels that only this coordinator's items have."""
        grown = with_labels(shared.groups, groups.labels)
        if grown is shared.groups:
            return True

        def attempt(transaction: Transaction, rows: _Rows) -> bool:
            self._write_shared(transaction, shared.grown(grown))
            self._key = shared.number + 1
            self._close_budget(transaction, self.terms, rows)
            return True

        return self._change(attempt)


def _new_number() -> int:
    return 1 + secrets.randbits(61)
