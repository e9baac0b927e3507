"""The clients: `Client` blocks, `AsyncClient` is awaited. Both have the methods of `Endpoints`."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeVar

import httpx

from fairsync.errors import FairSyncError, InvalidInputError
from fairsync.service.client.endpoints import Endpoints
from fairsync.service.client.retry import Retry

if TYPE_CHECKING:
    from typing import Self

    from fairsync.service.client.request import Outcome, Request

T = TypeVar("T")


def _headers(token: str | None) -> dict[str, str]:
    return {} if token is None else {"authorization": f"Bearer {token}"}


def _checked(url: object) -> str:
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise InvalidInputError(f"the URL of a service begins with http:// or https://, got {url!r:.80}.")
    try:
        httpx.URL(url)
    except httpx.InvalidURL as error:
        raise InvalidInputError(f"{url!r:.80} is no URL: {error}.") from None
    return url


def _check_open(http: httpx.Client | httpx.AsyncClient) -> None:
    if http.is_closed:
        raise FairSyncError("The client is closed: make another one with Client(url), or call it within its `with`.")


class Client(Endpoints):
    """A client of the service. It is thread-safe and reuses its connections.

    Parameters
    ----------
    url
        URL of the service, such as ``http://localhost:8080``.
    token
        Bearer token, if the service requires one.
    timeout
        Seconds until a call fails, all attempts together.
    attempts
        Number of attempts of a call if the service is busy or limits the rate. The client waits with exponential
        backoff, or as long as Retry-After says. While there is no connection, it tries to connect until the timeout;
        1 means no second attempt of any kind. Requests keep their ids: a retry is never counted twice.

    Examples
    --------
    >>> with Client("http://localhost:1", attempts=1) as client:
    ...     client.ready()
    Traceback (most recent call last):
    fairsync.errors.BackendUnavailableError: The service does not answer (ConnectError: ...
    """

    def __init__(self, url: str, token: str | None = None, *, timeout: float = 10.0, attempts: int = 5) -> None:
        self._http = httpx.Client(base_url=_checked(url), headers=_headers(token), timeout=timeout)
        self._attempts, self._timeout = attempts, timeout

    def send(self, request: Request[T]) -> T:
        """Send a request, with retries, and return the decoded answer."""
        _check_open(self._http)
        retry = Retry(self._attempts, self._timeout)
        while True:
            outcome: Outcome
            try:
                outcome = self._http.request(
                    request.method, request.path, content=request.body, headers=request.headers, timeout=retry.remaining
                )
            except httpx.TransportError as error:
                outcome = error
            delay = retry.delay_after(request, outcome)
            if delay is None:
                return request.read(outcome)
            time.sleep(delay)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(Endpoints):
    """The same as `Client` for asyncio: every method is a coroutine.

    Parameters
    ----------
    url, token, timeout, attempts
        As in `Client`.
    """

    def __init__(self, url: str, token: str | None = None, *, timeout: float = 10.0, attempts: int = 5) -> None:
        self._http = httpx.AsyncClient(base_url=_checked(url), headers=_headers(token), timeout=timeout)
        self._attempts, self._timeout = attempts, timeout

    async def send(self, request: Request[T]) -> T:
        """Send a request, with retries, and return the decoded answer."""
        _check_open(self._http)
        retry = Retry(self._attempts, self._timeout)
        while True:
            outcome: Outcome
            try:
                outcome = await self._http.request(
                    request.method, request.path, content=request.body, headers=request.headers, timeout=retry.remaining
                )
            except httpx.TransportError as error:
                outcome = error
            delay = retry.delay_after(request, outcome)
            if delay is None:
                return request.read(outcome)
            await asyncio.sleep(delay)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
