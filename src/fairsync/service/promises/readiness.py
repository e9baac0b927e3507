"""The readiness probe: whether requests can be answered, learnt from requests and checks every second."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fairsync.errors import FairSyncError, InvalidInputError, UnusableLedgerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fairsync.ledger import Ledger
    from fairsync.service.schema import ShardView

# Seconds within which a check must have succeeded. One is made every second.
_MAX_AGE = 5.0
# Name under which a probe is written to the ledger.
_PROBE = "probe"


class Readiness:
    """Whether requests can be answered. Reasons are public, so they name no hosts and no paths.

    Parameters
    ----------
    ledger
        The ledger, which must be reachable and writable.
    clock
        Returns monotonic seconds.
    max_age
        Seconds within which a check must have succeeded.

    Examples
    --------
    >>> from fairsync.ledger import MemoryLedger
    >>> readiness = Readiness(MemoryLedger(3))
    >>> readiness.verdict()
    (True, 'ready')
    >>> try:
    ...     with readiness.serving():
    ...         raise FairSyncError("the disk is full")
    ... except FairSyncError:
    ...     readiness.verdict()
    (False, 'the last request could not be answered and written down')
    >>> readiness.refresh([])
    >>> readiness.verdict()
    (True, 'ready')
    """

    def __init__(self, ledger: Ledger, clock: Callable[[], float] = time.monotonic, max_age: float = _MAX_AGE) -> None:
        self._ledger, self._clock, self.max_age = ledger, clock, max_age
        self._checked_at = clock()
        self._failed = self._unreachable = self._nothing_up = self._draining = False

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Record whether the enclosed work fails. Invalid input is no failure."""
        try:
            yield
        except (FairSyncError, OSError) as error:
            if not isinstance(error, InvalidInputError) or isinstance(error, UnusableLedgerError):
                self._failed = True
            raise
        self._failed = False

    def refresh(self, shards: Sequence[ShardView]) -> None:
        """Check that the ledger can be reached and that a shard answers; errors of the ledger are raised."""
        try:
            self._probe()
        except (FairSyncError, OSError):
            self._unreachable = True
            raise
        self._unreachable = False
        self._nothing_up = bool(shards) and not any(shard.up for shard in shards)
        self._checked_at = self._clock()

    def _probe(self) -> None:
        if self._failed:
            # While the service is not ready no request may come and succeed, so a write has to show that it recovered.
            self._ledger.save(_PROBE, b"")
            self._failed = False
        else:
            self._ledger.load(_PROBE)

    def drain(self) -> None:
        """Report not ready from now on: the service is being stopped."""
        self._draining = True

    def verdict(self) -> tuple[bool, str]:
        """Return whether requests can be answered, and if not, why."""
        ago = self._clock() - self._checked_at
        if self._draining:
            return False, "the service is being stopped"
        if self._failed:
            return False, "the last request could not be answered and written down"
        if self._unreachable:
            return False, "the ledger cannot be reached, or cannot be used"
        if ago > self.max_age:
            return False, f"the ledger was last reached, and promises planned, {ago:.0f} s ago"
        if self._nothing_up:
            return False, "no shard of the catalog answers"
        return True, "ready"
