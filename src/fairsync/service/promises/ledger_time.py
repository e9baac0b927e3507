"""The ledger's time, which ascends from period to period, also after a restart with a clock that was set back."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fairsync.service.promises.clock import TOLERANCE


@dataclass(frozen=True)
class LedgerTime:
    """The time axis of the ledger, on which periods begin in ascending order.

    It is the clock, unless a start finds the clock set back: the last period began later than now. From then on the
    ledger's time is ahead of the clock by a constant. Periods go on ascending, exposures that were counted before stay
    in their windows, and new exposures count in the windows in which they occur.

    Attributes
    ----------
    offsets : tuple of (float, float)
        (since, seconds): periods that begin at `since` or later on this axis are `seconds` ahead of the clock.
        Ascending, and empty unless the clock was set back.

    Examples
    --------
    The last period began at 5000, and now it is 1400.

    >>> time = LedgerTime()
    >>> time.is_ahead(last=5000.0, now=1400.0)
    True
    >>> time = time.following(last=5000.0, now=1400.0)
    >>> began = time.next_start(last=5000.0, now=1400.0)
    >>> began, time.to_clock(began), time.to_clock(5000.0)
    (5001.0, 1400.0, 5000.0)
    """

    offsets: tuple[tuple[float, float], ...] = ()

    @property
    def _ahead(self) -> float:
        return self.offsets[-1][1] if self.offsets else 0.0

    def to_clock(self, began: float) -> float:
        """Return what the clock showed when a period began."""
        return began - next((seconds for since, seconds in reversed(self.offsets) if since <= began), 0.0)

    def is_ahead(self, last: float, now: float) -> bool:
        """Return whether the last period began later than now: the clock was set back.

        Clocks of several replicas may differ by the tolerance.
        """
        return last - (now + self._ahead) > TOLERANCE

    def following(self, last: float, now: float) -> LedgerTime:
        """Return the axis on which a period can begin now, although the last one began later by the clock."""
        seconds = float(math.floor(last - now) + 1)  # whole seconds: sums with the time stay exact
        return LedgerTime((*self.offsets, (now + seconds, seconds)))

    def next_start(self, last: float, now: float) -> float:
        """Return the start of a period that begins now, after one that began at `last`."""
        return max(now + self._ahead, float(np.nextafter(last, np.inf)))
