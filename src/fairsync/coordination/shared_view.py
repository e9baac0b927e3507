"""What one of several coordinators knows of the ledger that they share: the promise, the counts, the open leases."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fairsync.coordination.own_prices import OwnPrices
from fairsync.coordination.shared_certificate import SharedCertificate
from fairsync.coordination.shared_rows import SharedRows, terms_number
from fairsync.coordination.shared_terms import TERMS, SharedTerms
from fairsync.errors import UnusableLedgerError
from fairsync.ledger.tables import write_fact

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairsync.catalog.atoms import Atoms
    from fairsync.catalog.groups import Groups
    from fairsync.coordination.shared_rows import OpenLeases
    from fairsync.ledger import SqlLedger
    from fairsync.ledger.database import Transaction
    from fairsync.policies import Policy, Terms
    from fairsync.promises import Promise


# Name under which the ledger saves the floors that coordinators have found too dear.
_REFUSED = "refused floors"


class SharedView:
    """The promise of the ledger as it was read last, with counts and leases, and this coordinator's own prices.

    Every transaction reads before it decides, and adopts a promise that another coordinator has changed.

    Parameters
    ----------
    ledger
        The ledger, opened with ``shared=True``.
    groups, terms, policy
        The promise until one is read, its groups, and the policy that makes prices.
    resolve
        Returns the atoms of this coordinator's items under a promise of the ledger; None for floors of groups.

    Attributes
    ----------
    number : int
        The number of the promise; 0 if the ledger has none.
    rows : SharedRows
        The horizon and the leases.
    prices : OwnPrices
        The prices.
    certificate : SharedCertificate
        Certificate and quota, where promises may overlap.
    """

    def __init__(
        self,
        ledger: SqlLedger,
        groups: Groups,
        terms: Terms,
        policy: Policy,
        resolve: Callable[[SharedTerms], Atoms | None],
    ) -> None:
        self.ledger, self.groups, self.terms, self.policy = ledger, groups, terms, policy
        self.number = 0
        self.rows, self.prices, self.certificate = (
            SharedRows(ledger),
            OwnPrices(policy, terms),
            SharedCertificate(ledger),
        )
        self._resolve = resolve
        self._refused = dict[int, int]()  # the floors that some coordinator found too dear, as they were read last
        self._key = 0  # under which leases are granted at once: the number of the promise, or minus that of the quota

    @property
    def key(self) -> int:
        """The number of the promise or, with a minus, of the quota, under which leases are granted at once."""
        return self.number if self.terms.membership is None else -self.certificate.quota.number

    @property
    def has_news(self) -> bool:
        """Whether this coordinator has found floors too dear of which others do not know."""
        return not self.prices.refused(self.rows.horizon).keys() <= self._refused.keys()

    def refresh(self) -> None:
        """Read what other coordinators have written."""

        def read(transaction: Transaction) -> None:
            self.read(transaction)
            self._read_refused(transaction)

        self.ledger.database.run(read, "read")

    def read(self, transaction: Transaction) -> OpenLeases:
        """Read the rows, and adopt the promise if another coordinator has changed it."""
        rows = self.rows.query(transaction)
        if terms_number(rows) != self.number:
            saved = self.ledger.read_saved(transaction, TERMS)
            assert saved is not None, "it is written with its number"
            self.adopt(SharedTerms.load(saved))
        return self.rows.take(rows, len(self.groups.labels))

    def read_alone(self, transaction: Transaction) -> OpenLeases:
        """Read the rows after all leases that were granted at once, and before all others of that kind."""
        transaction.execute("SELECT 1 FROM grants FOR UPDATE")
        rows = self.read(transaction)
        self.certificate.read_quota(transaction)
        self._read_refused(transaction)
        if self.has_news:  # it is known to have been written when it is read again
            every = {"horizon": self.rows.horizon, "floors": self.prices.refused(self.rows.horizon)}
            self.ledger.write_saved(transaction, _REFUSED, json.dumps(every).encode())
        self._key = self.key
        return rows

    def _read_refused(self, transaction: Transaction) -> None:
        """Read which floors coordinators have found too dear in this horizon."""
        if self.terms.max_prices is None:
            return
        found = transaction.execute("SELECT value FROM saved WHERE name = :name", name=_REFUSED)
        saved = json.loads(bytes(found[0][0])) if found else {}
        is_of_now = saved.get("horizon") == self.rows.horizon
        self._refused = {int(code): since for code, since in saved["floors"].items()} if is_of_now else {}
        self.prices.learn_refused(self._refused, self.terms, self.rows.horizon)

    def expire(self, transaction: Transaction, rows: OpenLeases) -> OpenLeases:
        """Close the leases that have expired. One that was settled meanwhile is counted; then the rows are others."""
        while self.rows.expired:  # others may expire meanwhile: their requests are not granted before they are closed
            self.rows.close_expired(transaction)
            rows = self.read(transaction)
        return rows

    def change(self, attempt: Callable[[Transaction, OpenLeases], bool]) -> bool:
        """Change the promise in a transaction of its own; False if it has to be tried again.

        Parameters
        ----------
        attempt
            Decides by the rows, and writes the promise with `write_terms` or `write_shared`; False if it has to wait.
        """
        known = self.number

        def change(transaction: Transaction) -> bool:
            self.ledger.check_fence(transaction)
            rows = self.read_alone(transaction)
            if known != self.number:
                return False  # another coordinator has changed it, and this one decided by the former terms
            rows = self.expire(transaction, rows)
            done = attempt(transaction, rows)
            self.rows.set_grants(transaction, self.ledger.read_latest(transaction), rows.leases.requests, self._key)
            return done

        done = self.ledger.database.run(change, "exclusive")
        self.refresh()
        return done

    def reset_grants(self) -> None:
        """Set the number of leased requests: a process that had the ledger to itself may have added to the horizon.

        Leases that have expired are closed: if they could still be settled, their requests would be missing in it.
        """

        def reset(transaction: Transaction) -> None:
            rows = self.expire(transaction, self.read_alone(transaction))
            self.certificate.close_quota(transaction, self.terms, rows.leases.open)
            self.rows.set_grants(transaction, rows.latest, rows.leases.requests, self.key)

        self.ledger.database.run(reset, "exclusive")

    def write_terms(
        self,
        transaction: Transaction,
        groups: Groups,
        terms: Terms,
        rows: OpenLeases,
        *,
        selections: frozenset[str] = frozenset(),
        promises: tuple[Promise, ...] | None = None,
    ) -> None:
        """Write another promise. It is in force here when it is read."""
        shared = SharedTerms.of(
            self.number + 1, groups, terms,
            keeps_floors=self.policy.keeps_floors, selections=selections, promises=promises,
        )  # fmt: skip
        self.write_shared(transaction, shared, terms, rows)

    def write_shared(self, transaction: Transaction, shared: SharedTerms, terms: Terms, rows: OpenLeases) -> None:
        """Write a promise, and let no lease be granted at once before the next exclusive transaction."""
        self.ledger.write_grown(transaction, len(shared.groups.labels))
        self.ledger.write_saved(transaction, TERMS, shared.dump())
        for name, value in (("terms", str(shared.number)), ("caps", "0" if shared.caps is None else "1")):
            write_fact(transaction, name, value)
        self.certificate.close_quota(transaction, terms, rows.leases.open)
        self._key = shared.number if terms.membership is None else -self.certificate.quota.number

    def assume(self, number: int, groups: Groups, terms: Terms) -> None:
        """Continue with a promise that is not in the ledger yet, or that will replace the one with this number."""
        self.number, self.groups, self.terms = number, groups, terms

    def adopt(self, shared: SharedTerms) -> None:
        """Continue with the promise of the ledger."""
        if shared.keeps_floors != self.policy.keeps_floors:
            raise UnusableLedgerError(
                "another coordinator has taken the promise over with a policy of another kind: start this one with the"
                " same policy."
            )
        before = self.terms
        terms = shared.terms(before.batch_size, self._resolve(shared))
        self.assume(shared.number, shared.groups, terms)
        self.prices.adopt(before, terms)
        self.certificate.adopt(terms)
