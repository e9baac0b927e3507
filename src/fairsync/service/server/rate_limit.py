"""How much a token may ask for: so many requests a second, and now and then some at once."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from fairsync.service.server.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

# Who was quiet for so long may ask for as much at once as was saved up meanwhile.
_SAVED_SECONDS = 2.0


class RateLimiter:
    """Requests per second of one token. To be used from one event loop.

    It holds a single number: until when what was asked for is paid. Whoever asks while that lies ahead is refused. A
    call is not refused for being large: it is answered, and the next has to wait for longer.

    Parameters
    ----------
    per_second
        Requests, on average.
    clock
        Seconds that only ever go on.

    Examples
    --------
    >>> now = 0.0
    >>> rate_limit = RateLimiter(8, lambda: now)
    >>> for _ in range(17):
    ...     rate_limit.spend()
    >>> rate_limit.spend()
    Traceback (most recent call last):
    fairsync.service.server.problems.Problem: This token may ask for 8 requests a second, and has asked for more.
    >>> now = 0.125
    >>> rate_limit.spend()
    """

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._clock = per_second, clock
        self._paid_until = -math.inf

    def spend(self) -> None:
        """Count a call, as one request; refuse it if too much was asked for before."""
        now = self._clock()
        self._paid_until = max(self._paid_until, now - _SAVED_SECONDS)
        ahead = self._paid_until - now
        if ahead > 0:
            raise Problem(
                429,
                "too_many",
                f"This token may ask for {self._per_second:g} requests a second, and has asked for more.",
                "Send it again after Retry-After seconds, with the same request ids.",
                {"retry-after": str(math.ceil(ahead))},
            )
        self.add(1)

    def add(self, requests: int) -> None:
        """Count requests that came in a call beyond the first."""
        self._paid_until += requests / self._per_second
