"""A monotonic clock anchored to the wall clock at start, and an alarm for clock skew.

Promises end by the clock, so a wall clock that jumps would end windows early, open them twice, or count exposures in
the wrong ones. While the service runs, its time is therefore the wall clock at start plus the monotonic seconds since.
A jump of the wall clock is reported and not followed; after a restart the wall clock counts again. A reading of the
clock that was saved before the restart tells whether time has passed or the clock was set.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)
TOLERANCE = 2.0
"""Seconds by which two clocks may differ without being called wrong."""
# Share of the time by which the clock follows a small difference. Time slows down or speeds up, and never goes back.
_SLEW = 0.01


def monotonic_seconds() -> float:
    """Return monotonic seconds, which include the time that the machine was suspended where the system can tell."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


def boot_id() -> str:
    """Return what identifies the time since the machine was started; empty where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


@dataclass(frozen=True)
class ClockReading:
    """A moment by the clock of the service, and what is needed to recognise it after the clock was set.

    Attributes
    ----------
    time : float
        The service's time: seconds since 1970.
    skew : float
        Seconds by which the wall clock was ahead of it.
    boot : str
        Identifies the time since the machine was started.
    seconds : float
        Monotonic seconds of that time.
    """

    time: float
    skew: float = 0.0
    boot: str = ""
    seconds: float = 0.0

    def by(self, later: ClockReading) -> float:
        """Return when this moment was by the clock of a later reading, in seconds since 1970.

        Within the same boot, monotonic seconds tell. Otherwise the wall clock of this moment is the best there is.

        Examples
        --------
        The clock was 10,000 seconds behind, and was set right within the minute between the two readings.

        >>> ClockReading(1000.0, 0.0, "a", 50.0).by(ClockReading(11_060.0, 0.0, "a", 110.0))
        11000.0

        The service had noticed that the clock was set, and was then started on another machine.

        >>> ClockReading(1000.0, 10_000.0, "a", 50.0).by(ClockReading(11_060.0, 0.0, "b", 7.0))
        11000.0
        """
        if self.boot and self.boot == later.boot and self.seconds <= later.seconds:
            return later.time - (later.seconds - self.seconds)
        return self.time + self.skew


class MonotonicClock:
    """Seconds since 1970 that never jump: the wall clock at start, plus the monotonic seconds since.

    A difference within the tolerance, such as a time service leaves when it steps the wall clock by less than a second,
    is followed gradually. A larger one is clock skew: it is logged as a warning, and not followed.

    May be called from many threads at once.

    Parameters
    ----------
    wall, monotonic
        Return the seconds of the wall clock since 1970, and monotonic seconds.
    tolerance
        Seconds of difference that are not yet clock skew.
    boot
        Identifies the time since the machine was started; see :func:`boot_id`.

    Examples
    --------
    After two seconds the wall clock jumps ahead by an hour.

    >>> wall, monotonic = iter([1000.0, 1001.0, 4602.0]), iter([0.0, 1.0, 2.0])
    >>> clock = MonotonicClock(lambda: next(wall), lambda: next(monotonic))
    >>> clock(), clock(), clock.skew
    (1001.0, 1002.0, 3600.0)
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = monotonic_seconds,
        tolerance: float = TOLERANCE,
        boot: str | None = None,
    ) -> None:
        self._boot = boot_id() if boot is None else boot
        self._wall, self._monotonic, self._tolerance = wall, monotonic, tolerance
        self._last = monotonic()
        self._offset = wall() - self._last
        self._skew, self._logged, self._lock = 0.0, 0.0, threading.Lock()

    def __call__(self) -> float:
        """Return the time."""
        with self._lock:
            monotonic = self._monotonic()
            elapsed, self._last = monotonic - self._last, monotonic
            ahead = self._wall() - monotonic - self._offset
            if abs(ahead) <= self._tolerance:
                self._offset += max(-_SLEW * elapsed, min(ahead, _SLEW * elapsed))
                ahead = 0.0
            self._skew = ahead
            if abs(ahead - self._logged) > self._tolerance:
                self._log(ahead)
            return monotonic + self._offset

    @property
    def skew(self) -> float:
        """Seconds by which the wall clock was ahead of this one when it was last read; 0 within the tolerance."""
        return self._skew

    def read(self) -> ClockReading:
        """Return the time, together with what tells later whether the clock was set."""
        now = self()
        return ClockReading(now, self._skew, self._boot, self._last)

    def _log(self, ahead: float) -> None:
        self._logged = ahead
        if ahead:
            _log.warning("clock skew: %s", describe_skew(ahead))
        else:
            _log.warning("clock skew is over: the wall clock agrees with the service again")


def describe_skew(seconds: float) -> str:
    """Say how far the wall clock is from the service, and what to do.

    Examples
    --------
    >>> describe_skew(-90.0)
    'the wall clock is 90 s behind the service: restart the service to adopt it'
    """
    side = "ahead of" if seconds > 0 else "behind"
    return f"the wall clock is {abs(seconds):,.0f} s {side} the service: restart the service to adopt it"
