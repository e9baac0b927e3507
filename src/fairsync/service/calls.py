"""Calls of the API as a client makes them: what is sent, and how the answer is read."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar
from urllib.parse import quote

import msgspec
import numpy as np

from fairsync.candidates import Candidates
from fairsync.errors import BackendUnavailableError, FairSyncError, InvalidInputError
from fairsync.service.schema import (
    JSON,
    MSGPACK,
    CatalogSize,
    GroupView,
    HealthStatus,
    ImpressionReport,
    ImpressionReports,
    ImpressionResult,
    ItemIds,
    NumberArray,
    Overview,
    Pace,
    PastWindow,
    Preview,
    ProblemRecord,
    PromiseRecord,
    PromiseView,
    ReportView,
    RetrieveColumns,
    RetrieveRequest,
    UpsertItems,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike

    from fairsync.catalog.groups import Label

T = TypeVar("T")
_LONGEST_PAUSE = 10.0
# Too many, or too busy: nothing was done, and it may be asked again.
AGAIN = (429, 503)


class RefusedError(InvalidInputError):
    """The service refuses a call; nothing was changed.

    Attributes
    ----------
    status : int
        Of HTTP.
    error : str
        One word for programs.
    """

    def __init__(self, status: int, error: str, message: str) -> None:
        super().__init__(message)
        self.status, self.error = status, error

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.status, self.error, str(self))


class AccessError(FairSyncError):
    """The service needs a token, or another one."""


@dataclass(frozen=True)
class Retrieved(Candidates):
    """Candidates, and the ids under which the service knows the requests: for reporting what was shown.

    Attributes
    ----------
    request_ids : list of str
        One per request.
    """

    request_ids: list[str]


@dataclass(frozen=True)
class Call(Generic[T]):
    """One call.

    Attributes
    ----------
    method, path, body, content_type
        What is sent.
    read
        Reads the answer.
    repeatable
        Whether it may be sent again when nobody knows whether it arrived.
    refusals
        Statuses that are answers, too.
    """

    method: str
    path: str
    read: Callable[[bytes], T]
    body: bytes = b""
    content_type: str = JSON
    repeatable: bool = True
    refusals: tuple[int, ...] = ()

    @property
    def headers(self) -> dict[str, str]:
        """Return what is sent along."""
        return {"content-type": self.content_type} if self.body else {}


def retrieve(
    users: ArrayLike | None,
    k: int | None,
    request_ids: Sequence[str] | None,
    histories: Sequence[Sequence[Label]] | None = None,
) -> Call[Retrieved]:
    """Ask for candidates. Requests without an id are given one, so that asking again is safe.

    Examples
    --------
    >>> call = retrieve(np.ones((2, 4)), k=10, request_ids=None)
    >>> call.method, call.path, len(msgspec.msgpack.decode(call.body)["request_ids"])
    ('POST', '/v1/retrieve', 2)
    """
    vectors = None if users is None else np.asarray(users)
    if vectors is not None and (vectors.ndim not in (2, 3) or vectors.dtype.kind not in "iuf"):
        raise InvalidInputError(
            f"users must be (n, d) or (n, interests, d) numbers, got {vectors.dtype} {vectors.shape}."
        )
    n = len(vectors) if vectors is not None else len(histories or ())
    named: list[str | None] = [uuid.uuid4().hex for _ in range(n)] if request_ids is None else list(request_ids)
    if vectors is not None:
        floats = NumberArray.of(vectors if vectors.dtype.kind == "f" else vectors.astype(np.float64))
        asked = RetrieveRequest(vectors=floats, k=k, request_ids=named)
    else:
        asked = RetrieveRequest(histories=[list(one) for one in histories or ()], k=k, request_ids=named)
    return Call("POST", "/v1/retrieve", _read_retrieved, msgspec.msgpack.encode(asked), MSGPACK)


def impressions(reports: Sequence[ImpressionReport]) -> Call[ImpressionResult]:
    """Report what was shown."""
    return Call(
        "POST",
        "/v1/impressions",
        _reads(ImpressionResult),
        _dumped(ImpressionReports(reports=list(reports))),
    )


def promises() -> Call[list[PromiseView]]:
    """List promises."""
    return Call("GET", "/v1/promises", _reads(list[PromiseView]))


def make_promise(promise: PromiseRecord) -> Call[PromiseView]:
    """Make a promise."""
    read = _reads(PromiseView)
    return Call("POST", "/v1/promises", read, _dumped(promise), repeatable=False)


def change_promise(promise_id: str, promise: PromiseRecord) -> Call[PromiseView]:
    """Change a promise."""
    return Call("PUT", _promise(promise_id), _reads(PromiseView), _dumped(promise))


def delete_promise(promise_id: str) -> Call[None]:
    """End a promise."""
    return Call("DELETE", _promise(promise_id), lambda body: None, repeatable=False)


def preview(promise: PromiseRecord, replacing: str | None) -> Call[Preview]:
    """Ask what would come of a promise."""
    query = "" if replacing is None else f"?replacing={quote(replacing, safe='')}"
    return Call("POST", f"/v1/promises/preview{query}", _reads(Preview), _dumped(promise))


def pace(promise_id: str) -> Call[Pace]:
    """Ask how a promise fared."""
    return Call("GET", f"{_promise(promise_id)}/pace", _reads(Pace))


def overview() -> Call[Overview]:
    """Ask where everything stands."""
    return Call("GET", "/v1/overview", _reads(Overview))


def groups() -> Call[list[GroupView]]:
    """List groups."""
    return Call("GET", "/v1/groups", _reads(list[GroupView]))


def past(limit: int) -> Call[list[PastWindow]]:
    """List windows that are over."""
    return Call("GET", f"/v1/past?limit={int(limit)}", _reads(list[PastWindow]))


def report() -> Call[ReportView]:
    """Ask for the few numbers that matter."""
    return Call("GET", "/v1/report", _reads(ReportView))


def upsert_items(embeddings: ArrayLike, groups: Sequence[Label], ids: Sequence[Label]) -> Call[int]:
    """Add or replace items; read the size of the catalog."""
    array = np.asarray(embeddings)
    if array.dtype.kind not in "iuf":
        raise InvalidInputError(f"embeddings must be numbers, got {array.dtype}.")
    vectors = NumberArray.of(array if array.dtype.kind == "f" else array.astype(np.float64))
    body = UpsertItems(embeddings=vectors, groups=np.asarray(groups).tolist(), ids=np.asarray(ids).tolist())
    return Call("PUT", "/v1/items", _read_size, msgspec.msgpack.encode(body), MSGPACK)


def remove_items(ids: Sequence[Label]) -> Call[int]:
    """Take items out; read the size of the catalog."""
    body = _dumped(ItemIds(ids=np.asarray(ids).tolist()))
    return Call("DELETE", "/v1/items", _read_size, body, repeatable=False)


def ready() -> Call[bool]:
    """Ask whether requests can be answered."""
    return Call("GET", "/ready", lambda body: msgspec.json.decode(body, type=HealthStatus).ok, refusals=(503,))


def error_of(status: int, body: bytes) -> FairSyncError:
    """Return the error that an answer stands for.

    Examples
    --------
    >>> print(error_of(422, b'{"error": "invalid", "message": "k is 0.", "hint": "Choose more."}'))
    k is 0. Choose more.
    """
    try:
        told = msgspec.json.decode(body, type=ProblemRecord)
        error, message = told.error, f"{told.message} {told.hint}"
    except ValueError:  # somebody else answered, such as a proxy
        error, message = "unknown", f"The service answered with HTTP {status}."
    if status in (401, 403):
        return AccessError(message)
    if status in AGAIN or status >= 500:
        return BackendUnavailableError(message)
    return RefusedError(status, error, message)


def pause(attempt: int, retry_after: str | None) -> float:
    """Return how many seconds to wait before another attempt: as many as the service asks for, and a little more.

    The latter is scattered, so that clients do not come back as one.

    Examples
    --------
    >>> 2.0 <= pause(1, "2") <= 2.5
    True
    """
    scatter = random.uniform(0.0, 0.5)
    if retry_after and retry_after.isascii() and retry_after.isdigit():
        return float(retry_after) + scatter
    return float(min(0.05 * 2**attempt, _LONGEST_PAUSE) * (0.5 + scatter))


def _promise(promise_id: str) -> str:
    return f"/v1/promises/{quote(promise_id, safe='')}"


def _dumped(record: msgspec.Struct) -> bytes:
    return msgspec.json.encode(record)


def _reads(kind: type[T]) -> Callable[[bytes], T]:
    return msgspec.json.Decoder(kind).decode


def _read_retrieved(body: bytes) -> Retrieved:
    found = msgspec.msgpack.decode(body, type=RetrieveColumns)
    ids, groups = (
        one.to_numpy() if isinstance(one, NumberArray) else np.asarray(one) for one in (found.ids, found.groups)
    )
    relevance, searched = found.relevance.to_numpy(), found.searched.to_numpy()
    return Retrieved(ids, groups, relevance, searched, [str(one) for one in found.request_ids])


def _read_size(body: bytes) -> int:
    return msgspec.json.decode(body, type=CatalogSize).items
