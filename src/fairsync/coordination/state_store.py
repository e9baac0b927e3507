"""The interface of a state store: where a coordinator keeps the loop's state and the leases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairsync.catalog.groups import Grouped, Groups
    from fairsync.coordination.lease import Lease, Settlement
    from fairsync.coordination.targets import Targets
    from fairsync.ledger import Entry, Totals
    from fairsync.ledger.audit import AuditRecord
    from fairsync.loop.loop_state import LoopState
    from fairsync.policies import Terms
    from fairsync.promises import Promise


class StateStore(Protocol):
    """The state of a coordinator: its own (:mod:`.local_state`), or shared with other coordinators.

    It is not thread-safe: the coordinator holds a lock.
    """

    @property
    def groups(self) -> Groups:
        """The groups of the promise."""
        ...

    @property
    def terms(self) -> Terms:
        """The promise."""
        ...

    @property
    def loop(self) -> LoopState:
        """The state of the loop."""
        ...

    def learn(self, loop: LoopState) -> None:
        """Take the prices, and what promises may cost, of a loop that was made from this one."""
        ...

    def refresh(self) -> None:
        """Read what other coordinators have written."""
        ...

    def past(self) -> Sequence[Totals]:
        """Return the totals of the past horizons, oldest first."""
        ...

    def retry_delay(self, tries: int) -> float:
        """Return after how many seconds a call that had to wait should be tried again."""
        ...

    def lease(self, n: int, seconds: float | None = None) -> Lease | None:
        """Lease up to n requests, to expire after these seconds; None if it has to wait for open leases."""
        ...

    def settle(self, number: int, settlement: Settlement) -> Entry | None:
        """Record the counts of a lease; return the entry as it counts, or None if the lease is settled already."""
        ...

    def record(self, entry: Entry, key: str, answers: Mapping[str, bytes] | None = None) -> bool:
        """Record an entry that belongs to no open lease; return False if this idempotency key is known."""
        ...

    def release(self, number: int) -> None:
        """Close a lease without counts."""
        ...

    def extended_groups(self, groups: Grouped) -> Groups:
        """Return the groups of a changed catalog, or refuse them if the known groups do not come first."""
        ...

    def promise(
        self, groups: Groups, terms: Terms, *, may_wait: bool, promises: tuple[Promise, ...] | None = None
    ) -> bool:
        """Replace the promise, or refuse one that cannot be kept; False if it has to be tried again."""
        ...

    def set_targets(
        self,
        targets: Targets,
        restart_at: float | None = None,
        saves: Mapping[str, bytes] | None = None,
        audit: Sequence[AuditRecord] = (),
        since: Totals | None = None,
    ) -> bool:
        """Aim at additional exposures, and save values in the same transaction; False if it has to be tried again."""
        ...
