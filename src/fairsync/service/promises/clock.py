"""A clock that can be trusted: small steps of the wall clock are followed, sudden jumps only once they have lasted."""

from __future__ import annotations

import logging
import math
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)


def steady_seconds() -> float:
    """Return seconds that only ever go on, also while the machine sleeps, where the system can tell."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


def machine_run() -> str:
    """Return what :func:`steady_seconds` count from, the last start of this machine; empty where nobody can tell.

    Processes that agree in it can compare them, and so say by how much the wall clock was set in between.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + str(Path("/proc/self/ns/time").readlink())
    except OSError:
        return ""


class SteadyClock:
    """Seconds since 1970, which leap forward or back only when the wall clock means it.

    A clock that is stepped by its time service is right from then on, and one that is wrong is mostly so for a short
    time. Nobody can tell the two apart but by waiting, so that is done: a jump counts when it has stayed for five
    minutes, as long as NTP itself waits before it steps. Meanwhile, time goes on from before. What was believed and
    proves wrong is taken back in the same way; what was counted meanwhile moves along
    (:class:`fairsync.service.promises.set_back.PeriodTimes`).

    May be called from many threads at once.

    Parameters
    ----------
    wall, steady
        Seconds since 1970, and seconds that only ever go on.
    tolerance
        Steps of so many seconds are followed at once. Then time stands still rather than go back.
    patience
        A larger jump is believed when it has lasted so long.
    run
        What steady seconds count from; empty if it is not known.

    Attributes
    ----------
    jumped : float
        Seconds by which it has leapt forward, less those by which it has leapt back.

    Examples
    --------
    >>> wall, steady = iter([1000.0, 1001.0, 9000.0, 1003.0]), iter([0.0, 1.0, 2.0, 3.0])
    >>> clock = SteadyClock(lambda: next(wall), lambda: next(steady))
    >>> clock(), clock(), clock()
    (1001.0, 1002.0, 1003.0)
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = steady_seconds,
        tolerance: float = 2.0,
        patience: float = 300.0,
        run: str | None = None,
    ) -> None:
        self.run = machine_run() if run is None else run
        self._wall, self._steady = wall, steady
        self._tolerance, self._patience = tolerance, patience
        self._offset = wall() - steady()
        # Where the wall clock would have us, and since when.
        self._claim: tuple[float, float] | None = None
        self.jumped, self._latest = 0.0, -math.inf
        self._lock = threading.Lock()

    def __call__(self) -> float:
        """Return the time."""
        with self._lock:
            steady = self._steady()
            self._follow(self._wall() - steady, steady)
            self._latest = max(self._latest, steady + self._offset)
            return self._latest

    @property
    def zero(self) -> float:
        """The time at which steady seconds were 0, as far as the wall clock is believed."""
        return self._offset

    def _follow(self, offset: float, steady: float) -> None:
        """Go by what the wall clock is ahead of the steady one, or wait."""
        jump = offset - self._offset
        if abs(jump) <= self._tolerance:
            if self._claim is not None:
                _log.warning("the clock is back where it was")
            self._offset, self._claim = offset, None
        elif self._claim is None or abs(offset - self._claim[0]) > self._tolerance:
            self._claim = (offset, steady)
            _log.warning("the clock jumped by %.0f s: waiting %.0f s to see whether it stays so", jump, self._patience)
        elif steady - self._claim[1] < self._patience:
            self._claim = (offset, self._claim[1])  # where it goes in small steps, as NTP may have it
        else:
            self._offset, self._claim, self._latest = offset, None, -math.inf
            self.jumped += jump
            _log.warning("the clock is %.0f s off what it was, and that is believed now", jump)
