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

from fairsync.catalog.groups import Groups
from fairsync.coordination.lease import Lease
from fairsync.coordination.lease_table import LeaseTable
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
from fairsync.coordination.targets import Targets, counted_since, target_terms
from fairsync.errors import InvalidInputError, UnusableLedgerError
from fairsync.floors import check_reachable, group_capacities
from fairsync.ledger.audit import append_audit
from fairsync.loop import LoopState, PriceState, Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fairsync.batch import Batch
    from fairsync.catalog.groups import Grouped
    from fairsync.eligible_slots import EligibleSlots
    from fairsync.ledger import Entry, SqlLedger, Totals
    from fairsync.ledger.audit import AuditRecord
    from fairsync.ledger.database import Transaction
    from fairsync.ledger.rows import Latest
    from fairsync.policies import Policy, Sample, Terms
    from fairsync.promise_costs import PromiseCosts
    from fairsync.promises.certificate import Certified

IfDiffers = Literal["refuse", "follow", "take over"]
# Bounds of the time to wait for leases of other coordinators, in seconds.
_MIN_DELAY, _MAX_DELAY = 0.001, 0.02
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
    """

    def __init__(
        self,
        ledger: SqlLedger,
        groups: Groups,
        terms: Terms,
        policy: Policy,
        lease_seconds: float,
        if_differs: IfDiffers = "refuse",
    ) -> None:
        self.ledger, self.groups, self.terms, self.policy = ledger, groups, terms, policy
        self.lease_seconds = lease_seconds
        self.price_state = PriceState.of(policy, policy.start(terms))
        self.progress, self._horizon, self._priced_horizon = Progress(ledger.totals()), 0, 0
        self._number, self._replica = 0, secrets.token_hex(8)  # the number of the terms; the owner of leases
        self._retried = 0  # the number of a lease that may have been granted without our knowledge
        self._expired: list[int] = []
        self._n_entries = 0  # entries that are not part of the stored totals
        self._granted = 0  # requests of the horizon that were leased so far, as far as is known here
        self._free: list[int] = []  # rows in which leases can be written
        self._leases: dict[int, tuple[int, int]] = {}  # row and requests of this coordinator's leases, by number
        self._slot = 0  # the row of the latest lease; 0 if it is a new one, whose number is not known yet
        self._join(groups, terms, if_differs)
        self.price_state = PriceState.of(policy, policy.start(self.terms))
        self._priced_horizon = self._horizon

    @property
    def loop(self) -> LoopState:
        """The state of the loop."""
        return LoopState(self.progress, self.price_state)

    def refresh(self) -> None:
        """Read what other coordinators have written."""
        self.ledger.database.run(self._read, "read")

    def past(self) -> Sequence[Totals]:
        """Return the totals of the past horizons, oldest first."""
        return self.ledger.past()[: self._horizon]  # another may have ended since the last refresh

    def retry_delay(self, tries: int) -> float:
        """Return the seconds after which to look again whether leases were settled."""
        return min(_MIN_DELAY * 2.0 ** min(tries, 9), _MAX_DELAY) * random.uniform(0.5, 1.0)

    def lease(self, n: int) -> Lease | None:
        """Lease up to n requests; None if it has to wait for open leases."""
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
            self.price_state = self.price_state.step(self.policy, self.terms, self.progress.totals)
            if self._priced_horizon != self._horizon:  # costs stay unknown: those of other coordinators are
                self.price_state = replace(self.price_state.restarted(), costs=None)
            self._priced_horizon = self._horizon
        batch = lease.batch
        return Lease(number, self.price_state.batch(self.terms, self.policy, batch.requests, batch.missing, batch.left))

    def settle(
        self,
        number: int,
        entry: Entry,
        sample: Sample | None,
        answers: Mapping[str, bytes],
        slots: EligibleSlots | None = None,
        certified: Certified | None = None,
        costs: PromiseCosts | None = None,
    ) -> bool:
        """Record the counts of a lease; return False if it is settled already.

        What its requests could show is used here only: each coordinator forecasts from the requests of its own front
        ends, which are a sample of all. What promises cost is not recorded, because the costs of others are not known.
        """
        if len(entry.counts) > len(self.groups.labels):
            self.refresh()  # another coordinator has added groups
        counted = self.ledger.settle(number, entry, f"lease {number}", answers)
        self._forget(number)
        if counted is None:
            return False
        self.progress, counted = self.progress.record(counted)
        self.price_state = self.price_state.record(self.policy, counted, sample, slots=slots)
        return True

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

    def promise(self, groups: Groups, terms: Terms, *, may_wait: bool) -> bool:
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
            check_reachable(terms, totals, keeps_floors=keeps_floors)
            try:
                leased = replace(totals, requests=totals.requests + rows.leases.requests)
                check_reachable(terms, leased, keeps_floors=keeps_floors, is_over=not rows.leases.open)
            except InvalidInputError:
                if not may_wait:
                    raise
                return False
            self._write_terms(transaction, groups, terms)
            return True

        return self._change(attempt)

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
        if targets.atoms is not None:
            raise InvalidInputError("coordinators that share a ledger keep floors of groups, not promises.")

        def attempt(transaction: Transaction, rows: _Rows) -> bool:
            latest, aim = rows.latest, targets
            if since is not None:
                aim = targets.less(counted_since(since, latest.totals))
            if restart_at is not None:
                if restart_at <= latest.totals.began:
                    return True
                latest = self.ledger.open_horizon(transaction, restart_at)
            totals = latest.totals.grown(aim.n_columns)
            terms = target_terms(self.terms, totals, rows.leases.requests, aim)
            self._write_terms(transaction, aim.groups, terms)
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

        done = self.ledger.database.run(change, "exclusive")
        self.refresh()
        return done

    def _read_alone(self, transaction: Transaction) -> _Rows:
        """Read the rows after all leases that were granted at once, and before all others of that kind."""
        transaction.execute("SELECT 1 FROM grants FOR UPDATE")
        return self._read(transaction)

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
        batch = self._next_batch(n, max(self._granted - self.progress.totals.requests, mine), mine)
        if (
            not batch.requests
            or not self._free
            or self._granted + batch.requests > most
            or self._n_entries >= _MAX_ENTRIES
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
                seconds=self.lease_seconds,
                slot=slot,
                horizon=horizon,
                terms=self._number,
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
        return Lease(number, self._next_batch(batch.requests, before, mine))

    def _most_granted(self) -> int:
        """Return how many requests of this horizon may be leased, whatever those that are open deliver."""
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
        ((terms,),) = transaction.execute("SELECT value::bigint FROM facts WHERE name = 'terms'") or [(0,)]
        transaction.execute(SET_GRANTS, horizon=latest.number, terms=terms, requests=latest.totals.requests + leased)

    def _reset_grants(self, transaction: Transaction) -> None:
        """Set the number of leased requests: a process that had the ledger to itself may have added to the horizon."""
        rows = self._read_alone(transaction)
        self._set_grants(transaction, rows.latest, rows.leases.requests)

    def _grant(self, transaction: Transaction, number: int, n: int) -> Lease | None:
        rows = self._expire(transaction, self._read_alone(transaction))
        latest, leased = rows.latest, rows.leases.requests
        if not rows.leases.open and self.progress.is_over(self.terms):
            # A horizon that others have seen end must not continue after a crash.
            transaction.execute("SET LOCAL synchronous_commit = on")
            latest = self.ledger.open_horizon(transaction, 0.0)
            self.progress, self._horizon = Progress(latest.totals), latest.number
        batch = self._next_batch(n, leased, rows.mine)
        granted = replace(rows.leases, issued=number - 1).grant(batch)
        if granted is None:
            return None
        if latest.n_entries >= _MAX_ENTRIES:
            self.ledger.add_entries(transaction)
        self._slot = self._free.pop() if self._free else 0
        self._granted = latest.totals.requests + leased + batch.requests
        transaction.execute(SET_GRANTS, horizon=latest.number, terms=self._number, requests=self._granted)
        transaction.execute_last(
            GRANT if self._slot else GRANT_IN_NEW_ROW,
            slot=self._slot,
            number=number,
            requests=batch.requests,
            seconds=self.lease_seconds,
            replica=self._replica,
        )
        return granted[1]

    def _forget(self, number: int) -> None:
        slot, _ = self._leases.pop(number, (0, 0))
        if slot:
            self._free.append(slot)

    def _is_due(self) -> bool:
        """Return whether prices change before the next lease: the price batch is full, or the horizon is a new one."""
        return self._horizon != self._priced_horizon or self.price_state.requests >= self.terms.batch_size

    def _write_terms(self, transaction: Transaction, groups: Groups, terms: Terms) -> None:
        self.ledger.write_grown(transaction, len(groups.labels))
        shared = SharedTerms.of(self._number + 1, groups, terms, keeps_floors=self.policy.keeps_floors)
        self.ledger.write_saved(transaction, TERMS, shared.dump())
        transaction.execute(
            "INSERT INTO facts VALUES ('terms', :number) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            number=str(shared.number),
        )

    def _adopt(self, shared: SharedTerms) -> None:
        """Continue with the promise of the ledger."""
        if shared.keeps_floors != self.policy.keeps_floors:
            raise UnusableLedgerError(
                "another coordinator has taken the promise over with a policy of another kind: start this one with the"
                " same policy."
            )
        self._number, self.groups, self.terms = shared.number, shared.groups, shared.terms(self.terms.batch_size)
        # Targets change a little with every plan, and what the policy has learnt continues to hold.
        if shared.auto_restart or len(shared.floors) > len(self.price_state.prices):
            state = self.policy.resume(self.price_state.state, self.terms)
            self.price_state = self.price_state.with_state(self.policy, state)

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
        mine = SharedTerms.of(0, groups, terms, keeps_floors=self.policy.keeps_floors)
        if if_differs == "refuse":
            mine.check_agrees(shared, self.ledger.database.address)
        if not mine.difference(shared):
            self._adopt(shared)
            return terms.auto_restart or self._join_by_the_clock(groups, shared)
        if if_differs == "follow":
            self._adopt(shared)
            return True
        self._number, self.groups = shared.number, shared.groups
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
