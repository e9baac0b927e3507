"""What the users of an arm got, saved by each process that serves the arm, and summed over all of them."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING

from fairsync.service.arms.comparison import ArmSums

if TYPE_CHECKING:
    from fairsync.ledger.base import Ledger

_PROCESSES = "arm sums"


class SavedSums:
    """The sums of one arm: those of this process, which grow, and those that others have saved in the same ledger.

    Every process saves under a name of its own, so that none overwrites another's. The names are listed in the ledger.
    Two processes that start at once may overwrite each other's entry in that list: each save repairs it.

    Parameters
    ----------
    ledger
        The ledger of the arm.
    buckets
        Buckets of users.

    Examples
    --------
    >>> from fairsync.ledger import MemoryLedger
    >>> ledger = MemoryLedger(1)
    >>> one, other = SavedSums(ledger, 4), SavedSums(ledger, 4)
    >>> one.own.add(0, 2, 1.5, 3.0)
    >>> one.save()
    >>> other.own.add(1, 1, 0.5, 1.0)
    >>> other.total().requests.tolist(), one.total().requests.tolist()
    ([2.0, 1.0, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0])
    """

    def __init__(self, ledger: Ledger, buckets: int) -> None:
        self._ledger, self._buckets = ledger, buckets
        self._name = f"{_PROCESSES} {secrets.token_hex(8)}"
        self.own = ArmSums.zero(buckets)

    def save(self) -> None:
        """Save the sums of this process."""
        self._ledger.save(self._name, self.own.dump())
        names = self._names()
        if self._name not in names:
            self._ledger.save(_PROCESSES, json.dumps([*names, self._name]).encode())

    def total(self) -> ArmSums:
        """Return the sums over all processes: of this one up to now, of others up to their last save."""
        total = ArmSums(self.own.requests.copy(), self.own.sums.copy())
        for name in self._names():
            saved = self._ledger.load(name) if name != self._name else None
            if saved is not None:
                other = ArmSums.load(saved)
                total.requests += other.requests
                total.sums += other.sums
        return total

    def _names(self) -> list[str]:
        saved = self._ledger.load(_PROCESSES)
        names: list[str] = [] if saved is None else json.loads(saved)
        return names
