"""One HTTP request of the client: its body, whether it is idempotent, and how to decode the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

import httpx
import msgspec

from fairsync.errors import AccessError, BackendUnavailableError, FairSyncError, RefusedError
from fairsync.service.schema import GENERAL_HINT, JSON, ProblemRecord

if TYPE_CHECKING:
    from collections.abc import Callable

Outcome: TypeAlias = httpx.Response | httpx.TransportError
T = TypeVar("T")
# 429 Too Many Requests and 503 Service Unavailable.
RETRYABLE_STATUSES = (429, 503)
# Problems of calls that the service has refused before it did anything. After any other 503, such as a timeout, the
# outcome of the call is unknown.
_REFUSED_UNSTARTED = ("too_many", "overloaded", "busy")


@dataclass(frozen=True)
class Request(Generic[T]):
    """An HTTP request whose answer is decoded to a ``T``.

    Attributes
    ----------
    method, path, body, content_type
        The request line and the body.
    decode
        Decodes the body of the answer.
    idempotent
        Whether the request may be sent again when it is unknown whether the service has received it.
    answer_statuses
        Statuses other than 2xx whose body is an answer, not an error.
    """

    method: str
    path: str
    decode: Callable[[bytes], T]
    body: bytes = b""
    content_type: str = JSON
    idempotent: bool = True
    answer_statuses: tuple[int, ...] = ()

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of the body."""
        return {"content-type": self.content_type} if self.body else {}

    def is_busy(self, response: httpx.Response) -> bool:
        """Return whether the service asks to send the request again later, and sending it again is safe."""
        if response.status_code not in RETRYABLE_STATUSES or response.status_code in self.answer_statuses:
            return False
        return self.idempotent or _problem(response.content).error in _REFUSED_UNSTARTED

    def read(self, outcome: Outcome) -> T:
        """Return the decoded answer, or raise the error that the outcome stands for."""
        if isinstance(outcome, httpx.TransportError):
            raise BackendUnavailableError(
                f"The service does not answer ({type(outcome).__name__}: {outcome}): is it running, and the address"
                " right?"
            ) from outcome
        if outcome.is_success or outcome.status_code in self.answer_statuses:
            try:
                return self.decode(outcome.content)
            except msgspec.MsgspecError as error:  # not from the service, or from one of another version
                raise BackendUnavailableError(
                    f"The answer to {self.method} {self.path.partition('?')[0]} cannot be read ({error}): is it a"
                    " FairSync service, and of the version of this client?"
                ) from error
        raise error_from(outcome.status_code, outcome.content)


def error_from(status: int, body: bytes) -> FairSyncError:
    """Return the error that a response stands for.

    Examples
    --------
    >>> print(error_from(422, b'{"error": "invalid", "message": "k is 0.", "hint": "Choose more."}'))
    k is 0. Choose more.
    """
    problem = _problem(body)
    hint = "" if problem.hint == GENERAL_HINT else problem.hint  # that one is for those who write requests themselves
    message = f"{problem.message} {hint}".strip() if problem.message else f"The service answered with HTTP {status}."
    if status in (401, 403):
        return AccessError(message)
    if status in RETRYABLE_STATUSES or status >= 500:
        return BackendUnavailableError(message)
    return RefusedError(status, problem.error, message)


def _problem(body: bytes) -> ProblemRecord:
    try:
        return msgspec.json.decode(body, type=ProblemRecord)
    except ValueError:  # not from the service, but from a proxy in front of it
        return ProblemRecord(error="unknown", message="", hint="")
