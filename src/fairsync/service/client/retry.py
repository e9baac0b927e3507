"""Retries: exponential backoff with jitter, Retry-After, and one deadline for all attempts of a call."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairsync.service.client.request import Outcome, Request

_FIRST_BACKOFF = 0.1
_MAX_BACKOFF = 10.0
_MAX_JITTER = 0.5
# A service that restarts is found again this soon.
_MAX_RECONNECT_DELAY = 0.5


class Retry:
    """The attempts of one call.

    Parameters
    ----------
    attempts
        Number of attempts, the first included. Attempts to connect are not limited, unless it is 1.
    timeout
        Seconds until the deadline of all attempts together.
    clock
        Monotonic clock, in seconds.
    """

    def __init__(self, attempts: int, timeout: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._attempts, self._made = attempts, 0
        self._clock, self._deadline = clock, clock() + timeout

    @property
    def remaining(self) -> float:
        """Seconds until the deadline; positive, as HTTPX requires it of a timeout."""
        return max(self._deadline - self._clock(), 0.001)

    def delay_after(self, request: Request[Any], outcome: Outcome) -> float | None:
        """Return the seconds to wait before the next attempt; None if the outcome is final."""
        self._made += 1
        if isinstance(outcome, httpx.Response):
            return self._delay(outcome.headers.get("retry-after")) if request.is_busy(outcome) else None
        # Without a connection the service has not received the request.
        if isinstance(outcome, httpx.ConnectError | httpx.ConnectTimeout):
            return self._reconnect_delay()
        return self._delay(None) if request.idempotent else None

    def _delay(self, retry_after: str | None) -> float | None:
        delay = backoff(self._made, retry_after)
        return delay if self._made < self._attempts and delay < self._deadline - self._clock() else None

    def _reconnect_delay(self) -> float | None:
        """Return the seconds until the next attempt to connect. They go on until the deadline: it costs nothing."""
        delay = min(backoff(self._made, None), _MAX_RECONNECT_DELAY)
        return delay if self._attempts > 1 and delay < self._deadline - self._clock() else None


def backoff(attempt: int, retry_after: str | None) -> float:
    """Return the seconds to wait after an attempt: Retry-After if it is given, else exponential backoff.

    Random jitter is added, so that clients that failed together do not return together.

    Examples
    --------
    >>> 2.0 <= backoff(1, retry_after="2") <= 2.5
    True
    """
    jitter = random.uniform(0.0, _MAX_JITTER)
    if retry_after and retry_after.isascii() and retry_after.isdigit():
        return float(retry_after) + jitter
    return float(min(_FIRST_BACKOFF * 2 ** (attempt - 1), _MAX_BACKOFF) * (0.5 + jitter))
