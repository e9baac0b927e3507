"""The rate limit of a token, in requests per second, by the generic cell rate algorithm (GCRA)."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from fairsync.service.server.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

# Bytes of a body that count as one request. Decoding them takes about as long as one.
_REQUEST_BYTES = 65_536
# An idle token may send this many seconds' worth of requests in one burst.
_BURST_SECONDS = 2.0


class RateLimiter:
    """Limits the requests per second of one token, by the generic cell rate algorithm (GCRA). Not thread-safe.

    Its state is the theoretical arrival time of the next request. A call is refused while that lies in the future. A
    call is never refused for its own size: it is answered, and the next has to wait longer.

    Hand-written, because the `limits` package cannot charge a call after it was admitted (a cost above the limit is
    always refused), nor limit to a fraction such as 0.5 requests a second.

    Parameters
    ----------
    per_second
        Average requests per second.
    clock
        Seconds of a monotonic clock.

    Examples
    --------
    >>> now = 0.0
    >>> limiter = RateLimiter(8, lambda: now)
    >>> for _ in range(17):
    ...     limiter.hit()
    >>> limiter.hit()
    Traceback (most recent call last):
    fairsync.service.server.problems.Problem: This token may ask for 8 requests a second, and has asked for more.
    >>> now = 0.125
    >>> limiter.hit()
    """

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._clock = per_second, clock
        self._arrival = -math.inf

    def hit(self) -> None:
        """Count a call as one request, or refuse it (429)."""
        now = self._clock()
        self._arrival = max(self._arrival, now - _BURST_SECONDS)
        seconds = self._arrival - now
        if seconds > 0:
            raise Problem(
                429,
                "too_many",
                f"This token may ask for {self._per_second:g} requests a second, and has asked for more.",
                "Send it again after Retry-After seconds, with the same request ids.",
                {"retry-after": str(math.ceil(seconds))},
            )
        self.charge(1)

    def charge(self, requests: int) -> None:
        """Count further requests of a call that was admitted."""
        self._arrival += requests / self._per_second


def requests_of(body_bytes: int) -> int:
    """Return the requests that a body counts as at least: one per started 64 KiB.

    Examples
    --------
    >>> [requests_of(size) for size in (0, 65_536, 65_537, 16_000_000)]
    [1, 1, 2, 245]
    """
    return max(-(-body_bytes // _REQUEST_BYTES), 1)
