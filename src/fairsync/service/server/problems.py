"""Errors as the API answers them (problem+json): a status, a stable word, a message and a hint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response

from fairsync.errors import (
    BackendUnavailableError,
    ExpiredRequestError,
    FairSyncError,
    InfeasibleFloorsError,
    InvalidInputError,
    UnknownLeaseError,
    UnknownPromiseError,
    UnknownRequestError,
    UnusableLedgerError,
)
from fairsync.service.schema import GENERAL_HINT, ProblemRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

MEDIA_TYPE = "application/problem+json"
# The rest of the request is still on its way, so the connection cannot be reused.
CLOSE = {"connection": "close"}
# Errors that say what is wrong with a call: status, word and hint.
_REFUSALS = (
    (InfeasibleFloorsError, 409, "infeasible", "Preview a floor with POST /v1/promises/preview first."),
    (UnknownPromiseError, 404, "not_found", "List all promises with GET /v1/promises."),
    (UnknownLeaseError, 404, "not_found", "Use the name that POST /v1/leases returned."),
    (UnknownRequestError, 404, "not_found", "Send the request with 'explain' and a request id first."),
    (ExpiredRequestError, 410, "expired", "Its exposures are counted. Repeat calls sooner."),
)


class Problem(Exception):  # noqa: N818 - it is the answer to a call, and often not an error of the service
    r"""An HTTP error that is answered as problem+json.

    Parameters
    ----------
    status
        The HTTP status.
    error, message, hint
        The fields of `ProblemRecord`.
    headers
        Additional response headers.

    Examples
    --------
    >>> Problem(404, "not_found", "there is no promise 'p1'", "list them with GET /v1/promises").to_response().body
    b'{"error":"not_found","message":"there is no promise \'p1\'","hint":"list them with GET /v1/promises"}'
    """

    def __init__(
        self, status: int, error: str, message: str, hint: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.error, self.message, self.hint = status, error, message, hint
        self.headers = dict(headers or {})

    def to_response(self) -> Response:
        """Return the response."""
        record = ProblemRecord(error=self.error, message=self.message, hint=self.hint)
        return Response(msgspec.json.encode(record), self.status, self.headers, MEDIA_TYPE)


def invalid(message: str, hint: str = GENERAL_HINT) -> Problem:
    """Return the problem of a body or parameter that cannot be used (422)."""
    return Problem(422, "invalid", message, hint)


def busy(error: str, message: str, seconds: int = 1, headers: Mapping[str, str] | None = None) -> Problem:
    """Return the problem of a call that should be retried later (503 with Retry-After)."""
    hint = "Send it again after Retry-After seconds, with the same request ids: nothing is counted twice."
    return Problem(503, error, message, hint, {"retry-after": str(seconds), **(headers or {})})


def problem_of(error: Exception) -> Problem:
    """Return the problem that answers an exception.

    The text of failures of the service goes to the log only: it may hold paths and hosts.

    Examples
    --------
    >>> problem_of(InvalidInputError("k is 0")).status, problem_of(BackendUnavailableError("no shard")).status
    (422, 503)
    >>> problem_of(ZeroDivisionError("secret")).message
    'The service made a mistake.'
    """
    if isinstance(error, Problem):
        return error
    for kind, status, word, hint in _REFUSALS:
        if isinstance(error, kind):
            return Problem(status, word, str(error), hint)
    if isinstance(error, InvalidInputError) and not isinstance(error, UnusableLedgerError):
        return invalid(str(error))
    if isinstance(error, BackendUnavailableError):
        return busy("unavailable", "The ledger, a shard or the search engine is unavailable.")
    if isinstance(error, MemoryError):
        return busy("overloaded", "There is not enough memory for this call at the moment.")
    if isinstance(error, FairSyncError | OSError):  # such as a ledger on a disk that is full
        return busy("unavailable", "The ledger or a disk failed.", 5)
    return Problem(500, "mistake", "The service made a mistake.", "Report it with the x-request-id of this answer.")
