"""What the users of an arm got, saved by each process that serves the arm, and summed over all of them."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any

from fairsync.service.arms.arm_sums import ArmSums, dump, load

if TYPE_CHECKING:
    from fairsync.ledger.base import Ledger

_NAMES = "arm days"


class SavedSums:
    """The sums of one arm: those of this process, which grow, and those that others have saved in the same ledger.

    Every process saves each day under a name of its own, so that none overwrites another's, and days that are over are
    not written again. The names are listed in the ledger. Two processes that start at once may overwrite each other's
    entry in that list: each save repairs it.

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
    >>> one.own.add(7, 0, requests=2)
    >>> one.save()
    >>> other.own.add(7, 1, requests=1)
    >>> other.total().total("requests").tolist(), one.total().total("requests").tolist()
    ([2.0, 1.0, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0])
    """

    def __init__(self, ledger: Ledger, buckets: int) -> None:
        self._ledger, self._process = ledger, secrets.token_hex(8)
        self.own = ArmSums(buckets)
        self._saved: dict[int, bytes] = {}

    def save(self) -> None:
        """Save what this process has added since the last time."""
        for day, rows in list(self.own.days.items()):
            if (now := dump(rows)) != self._saved.get(day):
                self._ledger.save(_name(self._process, day), now)
                self._saved[day] = now
        names = self._names()
        if new := [name for day in self._saved if (name := [self._process, day]) not in names]:
            self._ledger.save(_NAMES, json.dumps([*names, *new]).encode())

    def total(self) -> ArmSums:
        """Return the sums over all processes: of this one up to now, of others up to their last save."""
        total = ArmSums(self.own.buckets)
        total.add_sums(dict(self.own.days))
        for process, day in self._names():
            saved = self._ledger.load(_name(process, day)) if process != self._process else None
            if saved is not None:
                total.add_sums({day: load(saved)})
        return total

    def _names(self) -> list[list[Any]]:
        saved = self._ledger.load(_NAMES)
        names: list[list[Any]] = [] if saved is None else json.loads(saved)
        return names


def _name(process: str, day: int) -> str:
    return f"{_NAMES} {process} {day}"
