"""Rate limiting: requests per second of one token."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from fairsync.service.server.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Receive, Scope, Send

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


class RateLimitMiddleware:
    """Refuses calls of tokens that are over their limit. Stands inside the authentication.

    Parameters
    ----------
    app
        The application inside.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "http":
            limiter: RateLimiter | None = getattr(scope["user"], "rate_limiter", None)
            if limiter is not None:
                limiter.hit()
        await self.app(scope, receive, send)
