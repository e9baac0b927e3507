"""Whether requests can be answered: found out while they are, and every second, so that it can be told at once."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fairsync.errors import FairSyncError, InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fairsync.ledger import Ledger
    from fairsync.service.schema import ShardView

# Clock and traffic are looked at every second. If that fails for so long, something is wrong.
_LOOKED_WITHIN = 5.0
# What is written to see whether it can be.
_PROBE = "probe"


class Readiness:
    """What is known of whether requests can be answered. Reasons are for anybody to see, so they name no places.

    Parameters
    ----------
    ledger
        Must be reached, and written.
    clock
        Seconds that only ever go on.

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

    def __init__(self, ledger: Ledger, clock: Callable[[], float] = time.monotonic) -> None:
        self._ledger, self._clock = ledger, clock
        self._looked_at = clock()
        self._failed = self._nothing_up = self._ends = False

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Note whether what is done within fails, other than by what was asked."""
        try:
            yield
        except InvalidInputError:
            raise
        except (FairSyncError, OSError):
            self._failed = True
            raise
        self._failed = False

    def refresh(self, shards: Sequence[ShardView]) -> None:
        """Reach for the ledger, and note how the shards are; it raises what the ledger does."""
        if self._failed:
            # While it is not ready no requests may come, so that none would show that it is well again.
            self._ledger.save(_PROBE, b"")
            self._failed = False
        else:
            self._ledger.load(_PROBE)
        self._nothing_up = bool(shards) and not any(shard.up for shard in shards)
        self._looked_at = self._clock()

    def end(self) -> None:
        """From now on the service is being stopped."""
        self._ends = True

    def verdict(self) -> tuple[bool, str]:
        """Return whether requests can be answered, and if not, why."""
        ago = self._clock() - self._looked_at
        if self._ends:
            return False, "the service is being stopped"
        if self._failed:
            return False, "the last request could not be answered and written down"
        if ago > _LOOKED_WITHIN:
            return False, f"the ledger was last reached, and promises planned, {ago:.0f} s ago"
        if self._nothing_up:
            return False, "no shard of the catalog answers"
        return True, "ready"
