"""A monotonic clock anchored to the wall clock at start, and an alarm for clock skew.

Promises end by the clock, so a wall clock that jumps would end windows early, open them twice, or count exposures in
the wrong ones. While the service runs, its time is therefore the wall clock at start plus the monotonic seconds since.
A jump of the wall clock is reported and not followed; after a restart the wall clock counts again.
"""

from __future__ import annotations

import logging
import threading
import time
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
    ) -> None:
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
