"""A clock that can be trusted: small steps of the wall clock are followed, sudden jumps only once they have lasted."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)


class SteadyClock:
    """Seconds since 1970, which never go back, and leap only when the wall clock means it.

    Parameters
    ----------
    wall, steady
        Seconds since 1970, and seconds that only ever go on.
    tolerance
        Steps of so many seconds are followed at once.
    patience
        A larger jump is believed when it has lasted so long: until then, time goes on from before.

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
        steady: Callable[[], float] = time.monotonic,
        tolerance: float = 2.0,
        patience: float = 60.0,
    ) -> None:
        self._wall, self._steady = wall, steady
        self._tolerance, self._patience = tolerance, patience
        self._offset = wall() - steady()
        self._jumped_at: float | None = None
        self._latest = 0.0

    def __call__(self) -> float:
        """Return the time."""
        steady = self._steady()
        jump = self._wall() - steady - self._offset
        if abs(jump) <= self._tolerance:
            self._offset += jump
            self._jumped_at = None
        elif self._jumped_at is None:
            self._jumped_at = steady
            _log.warning("the clock jumped by %.0f s: waiting %.0f s to see whether it stays so", jump, self._patience)
        elif steady - self._jumped_at >= self._patience:
            self._offset += jump
            self._jumped_at = None
            _log.warning("the clock is %.0f s off what it was, and that is believed now", jump)
        self._latest = max(self._latest, steady + self._offset)
        return self._latest
