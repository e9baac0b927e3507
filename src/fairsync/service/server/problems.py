"""What goes wrong, as the API says it: a status, a word for programs, a message and a hint for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from fairsync.errors import (
    BackendUnavailableError,
    FairSyncError,
    InfeasibleFloorsError,
    InvalidInputError,
    UnknownPromiseError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

MEDIA_TYPE = "application/problem+json"


class ProblemRecord(BaseModel):
    """Why a call was not answered."""

    model_config = ConfigDict(extra="forbid")

    error: str = Field(description="One word that stays the same, for programs.")
    message: str = Field(description="What is wrong, for people.")
    hint: str = Field(description="What to do next.")


class Problem(Exception):  # noqa: N818 - it is not an error of ours, but of the call
    r"""A call that is answered with an error.

    Parameters
    ----------
    status
        Of HTTP.
    error, message, hint
        See `ProblemRecord`.
    headers
        Sent along.

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
        """Return the answer."""
        body = orjson.dumps({"error": self.error, "message": self.message, "hint": self.hint})
        return Response(body, self.status, self.headers, MEDIA_TYPE)


def invalid(message: str, hint: str = "Mend the body and send it again; /openapi.json has every shape.") -> Problem:
    """Return the problem of a body or parameter that cannot be used."""
    return Problem(422, "invalid", message, hint)


def busy(error: str, message: str, seconds: int = 1, headers: Mapping[str, str] | None = None) -> Problem:
    """Return the problem of a call that should be made again a little later."""
    hint = "Send it again after Retry-After seconds, with the same request ids: nothing is counted twice."
    return Problem(503, error, message, hint, {"retry-after": str(seconds), **(headers or {})})


def problem_of(error: Exception) -> Problem:
    """Return what to say of an error that was raised while a call was answered.

    Examples
    --------
    >>> problem_of(InvalidInputError("k is 0")).status, problem_of(BackendUnavailableError("no shard")).status
    (422, 503)
    >>> problem_of(ZeroDivisionError("secret")).message
    'The service made a mistake.'
    """
    if isinstance(error, Problem):
        return error
    if isinstance(error, InfeasibleFloorsError):
        return Problem(409, "infeasible", str(error), "Preview a floor with POST /v1/promises/preview first.")
    if isinstance(error, UnknownPromiseError):
        return Problem(404, "not_found", str(error), "List all promises with GET /v1/promises.")
    if isinstance(error, InvalidInputError):
        return invalid(str(error))
    if isinstance(error, BackendUnavailableError):
        return busy("unavailable", str(error))
    if isinstance(error, FairSyncError | OSError):  # such as a ledger on a disk that is full
        return busy("unavailable", str(error) if isinstance(error, FairSyncError) else "A disk or server failed.", 5)
    return Problem(500, "mistake", "The service made a mistake.", "Report it with the x-request-id of this answer.")


_MEANINGS = {
    400: "The request itself is malformed.",
    401: "No token, or one that is not known.",
    403: "The token has not the role that is needed, or the call comes by another host's name.",
    404: "There is no such thing.",
    405: "The path does not know this method.",
    408: "The body did not arrive in time.",
    409: "It cannot be kept beside what is promised.",
    413: "The body is larger than the service takes.",
    415: "The body has a type that the path does not take.",
    422: "The body or a parameter cannot be used; nothing was changed.",
    429: "The token has asked for more than it may: send it again after Retry-After seconds.",
    503: "Too much to do, or a part is out of reach: send it again after Retry-After seconds.",
}


RETRY_AFTER = {"Retry-After": {"schema": {"type": "string"}, "description": "Seconds."}}


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return these errors as FastAPI wants them for the OpenAPI document."""
    answers: dict[int | str, dict[str, Any]] = {}
    for status in statuses:
        schema = {"$ref": "#/components/schemas/ProblemRecord"}
        answers[status] = {"description": _MEANINGS[status], "content": {MEDIA_TYPE: {"schema": schema}}}
        if status in (429, 503):
            answers[status]["headers"] = RETRY_AFTER
    return answers
