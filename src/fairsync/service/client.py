"""A client of the service: numpy in, candidates out; what fails for a moment is tried again, and counted once."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeVar

import httpx

from fairsync.errors import BackendUnavailableError
from fairsync.service import calls
from fairsync.service.calls import AccessError, Call, RefusedError, Retrieved

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from numpy.typing import ArrayLike

    from fairsync.catalog.groups import Label
    from fairsync.service.schema import (
        GroupView,
        ImpressionReport,
        ImpressionResult,
        Overview,
        Pace,
        PastWindow,
        Preview,
        PromiseRecord,
        PromiseView,
        ReportView,
    )

__all__ = ["AccessError", "AsyncClient", "Client", "RefusedError", "Retrieved"]

T = TypeVar("T")


class _Patience:
    """Decides, after each attempt, whether a call is done, and how long to wait otherwise: never beyond its time."""

    def __init__(self, attempts: int, seconds: float) -> None:
        self._left, self._attempt, self._end = attempts, 0, time.monotonic() + seconds

    @property
    def seconds(self) -> float:
        """That are left for the next attempt."""
        return max(self._end - time.monotonic(), 0.001)

    def after(self, call: Call[T], answer: httpx.Response) -> float | None:
        """Return the seconds to wait before the next attempt; None if the answer is one."""
        if answer.status_code not in calls.AGAIN or answer.status_code in call.refusals:
            return None
        return self._pause(answer.headers.get("retry-after"))

    def after_error(self, call: Call[T], error: httpx.TransportError) -> float:
        """Return the seconds to wait before the next attempt, or raise."""
        # Where no connection was made, the call cannot have arrived.
        if call.repeatable or isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            pause = self._pause(None)
            if pause is not None:
                return pause
        raise BackendUnavailableError(
            f"The service does not answer ({type(error).__name__}: {error}): is it running, and the address right?"
        ) from error

    def _pause(self, retry_after: str | None) -> float | None:
        """Return the seconds to wait; None where the last attempt has been made, or time would be over."""
        self._left, self._attempt = self._left - 1, self._attempt + 1
        pause = calls.pause(self._attempt, retry_after)
        return pause if self._left > 0 and pause < self._end - time.monotonic() else None


def _read(call: Call[T], answer: httpx.Response) -> T:
    if answer.is_success or answer.status_code in call.refusals:
        return call.read(answer.content)
    raise calls.error_of(answer.status_code, answer.content)


def _headers(token: str | None) -> dict[str, str]:
    return {} if token is None else {"authorization": f"Bearer {token}"}


class Client:
    """Talks to a service. One client may be used by many threads; it keeps its connections.

    Parameters
    ----------
    url
        Of the service, such as ``http://localhost:8080``.
    token
        If the service needs one.
    timeout
        Seconds within which a call is answered or given up, all attempts together.
    attempts
        How often a call is made if the service is busy or out of reach, or the token has asked for too much; where the
        service says when to come again, not before. Requests keep their ids, so that none is counted twice.

    Examples
    --------
    >>> with Client("http://localhost:1", attempts=1) as client:
    ...     client.ready()
    Traceback (most recent call last):
    fairsync.errors.BackendUnavailableError: The service does not answer (ConnectError: ...
    """

    def __init__(self, url: str, token: str | None = None, *, timeout: float = 10.0, attempts: int = 5) -> None:
        self._http = httpx.Client(base_url=url, headers=_headers(token), timeout=timeout)
        self._attempts, self._timeout = attempts, timeout

    def send(self, call: Call[T]) -> T:
        """Make a call, as often as it takes."""
        patience = _Patience(self._attempts, self._timeout)
        while True:
            try:
                answer = self._http.request(
                    call.method, call.path, content=call.body, headers=call.headers, timeout=patience.seconds
                )
            except httpx.TransportError as error:
                wait: float | None = patience.after_error(call, error)
            else:
                wait = patience.after(call, answer)
                if wait is None:
                    return _read(call, answer)
            time.sleep(wait or 0.0)

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def retrieve(self, users: ArrayLike, k: int | None = None, request_ids: Sequence[str] | None = None) -> Retrieved:
        """Return the candidates of (n, d) or (n, interests, d) users; a request id that came before, its answer."""
        return self.send(calls.retrieve(users, k, request_ids))

    def retrieve_for(
        self, histories: Sequence[Sequence[Label]], k: int | None = None, request_ids: Sequence[str] | None = None
    ) -> Retrieved:
        """Return the candidates of users by the items they had, oldest first; the service needs a model for it."""
        return self.send(calls.retrieve(None, k, request_ids, histories))

    def impressions(self, reports: Sequence[ImpressionReport]) -> ImpressionResult:
        """Report what was shown; a report that is made twice counts once."""
        return self.send(calls.impressions(reports))

    def promises(self) -> list[PromiseView]:
        """Return all promises and where they stand."""
        return self.send(calls.promises())

    def make_promise(self, promise: PromiseRecord) -> PromiseView:
        """Make a promise; refused if it cannot be kept."""
        return self.send(calls.make_promise(promise))

    def change_promise(self, promise_id: str, promise: PromiseRecord) -> PromiseView:
        """Change a promise; refused if the new one cannot be kept."""
        return self.send(calls.change_promise(promise_id, promise))

    def delete_promise(self, promise_id: str) -> None:
        """End a promise."""
        self.send(calls.delete_promise(promise_id))

    def preview(self, promise: PromiseRecord, replacing: str | None = None) -> Preview:
        """Return what would come of a promise, before it is made."""
        return self.send(calls.preview(promise, replacing))

    def pace(self, promise_id: str) -> Pace:
        """Return how a promise fared over its present window."""
        return self.send(calls.pace(promise_id))

    def overview(self) -> Overview:
        """Return where everything stands."""
        return self.send(calls.overview())

    def groups(self) -> list[GroupView]:
        """Return all groups and how they fare."""
        return self.send(calls.groups())

    def past(self, limit: int = 100) -> list[PastWindow]:
        """Return the latest windows that are over."""
        return self.send(calls.past(limit))

    def report(self) -> ReportView:
        """Return how the promises fare, in a few numbers."""
        return self.send(calls.report())

    def upsert_items(self, embeddings: ArrayLike, groups: Sequence[Label], ids: Sequence[Label]) -> int:
        """Add items, or replace those whose ids are known; return the size of the catalog."""
        return self.send(calls.upsert_items(embeddings, groups, ids))

    def remove_items(self, ids: Sequence[Label]) -> int:
        """Take items out; return the size of the catalog."""
        return self.send(calls.remove_items(ids))

    def ready(self) -> bool:
        """Return whether requests can be answered."""
        return self.send(calls.ready())


class AsyncClient:
    """The same as :class:`Client`, to be awaited."""

    def __init__(self, url: str, token: str | None = None, *, timeout: float = 10.0, attempts: int = 5) -> None:
        self._http = httpx.AsyncClient(base_url=url, headers=_headers(token), timeout=timeout)
        self._attempts, self._timeout = attempts, timeout

    async def send(self, call: Call[T]) -> T:
        """Make a call, as often as it takes."""
        patience = _Patience(self._attempts, self._timeout)
        while True:
            try:
                answer = await self._http.request(
                    call.method, call.path, content=call.body, headers=call.headers, timeout=patience.seconds
                )
            except httpx.TransportError as error:
                wait: float | None = patience.after_error(call, error)
            else:
                wait = patience.after(call, answer)
                if wait is None:
                    return _read(call, answer)
            await asyncio.sleep(wait or 0.0)

    async def close(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def retrieve(
        self, users: ArrayLike, k: int | None = None, request_ids: Sequence[str] | None = None
    ) -> Retrieved:
        """Return the candidates of (n, d) or (n, interests, d) users; a request id that came before, its answer."""
        return await self.send(calls.retrieve(users, k, request_ids))

    async def retrieve_for(
        self, histories: Sequence[Sequence[Label]], k: int | None = None, request_ids: Sequence[str] | None = None
    ) -> Retrieved:
        """Return the candidates of users by the items they had, oldest first; the service needs a model for it."""
        return await self.send(calls.retrieve(None, k, request_ids, histories))

    async def impressions(self, reports: Sequence[ImpressionReport]) -> ImpressionResult:
        """Report what was shown; a report that is made twice counts once."""
        return await self.send(calls.impressions(reports))

    async def promises(self) -> list[PromiseView]:
        """Return all promises and where they stand."""
        return await self.send(calls.promises())

    async def make_promise(self, promise: PromiseRecord) -> PromiseView:
        """Make a promise; refused if it cannot be kept."""
        return await self.send(calls.make_promise(promise))

    async def change_promise(self, promise_id: str, promise: PromiseRecord) -> PromiseView:
        """Change a promise; refused if the new one cannot be kept."""
        return await self.send(calls.change_promise(promise_id, promise))

    async def delete_promise(self, promise_id: str) -> None:
        """End a promise."""
        await self.send(calls.delete_promise(promise_id))

    async def preview(self, promise: PromiseRecord, replacing: str | None = None) -> Preview:
        """Return what would come of a promise, before it is made."""
        return await self.send(calls.preview(promise, replacing))

    async def pace(self, promise_id: str) -> Pace:
        """Return how a promise fared over its present window."""
        return await self.send(calls.pace(promise_id))

    async def overview(self) -> Overview:
        """Return where everything stands."""
        return await self.send(calls.overview())

    async def groups(self) -> list[GroupView]:
        """Return all groups and how they fare."""
        return await self.send(calls.groups())

    async def past(self, limit: int = 100) -> list[PastWindow]:
        """Return the latest windows that are over."""
        return await self.send(calls.past(limit))

    async def report(self) -> ReportView:
        """Return how the promises fare, in a few numbers."""
        return await self.send(calls.report())

    async def upsert_items(self, embeddings: ArrayLike, groups: Sequence[Label], ids: Sequence[Label]) -> int:
        """Add items, or replace those whose ids are known; return the size of the catalog."""
        return await self.send(calls.upsert_items(embeddings, groups, ids))

    async def remove_items(self, ids: Sequence[Label]) -> int:
        """Take items out; return the size of the catalog."""
        return await self.send(calls.remove_items(ids))

    async def ready(self) -> bool:
        """Return whether requests can be answered."""
        return await self.send(calls.ready())
