"""The endpoints of the API, each written once and a method of both clients."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload
from urllib.parse import quote, urlencode

import msgspec
import numpy as np

from fairsync.candidates import Candidates
from fairsync.catalog.arrays import to_array, to_values
from fairsync.errors import InvalidInputError
from fairsync.explain import Explanation, StoredExplanation, WhyNot
from fairsync.inputs import check_request_ids
from fairsync.service.client.request import Request
from fairsync.service.schema import (
    MSGPACK,
    AttributeView,
    AuditView,
    CatalogSize,
    ExplainAnswer,
    ExplanationView,
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
    PromiseList,
    PromiseRecord,
    PromiseView,
    ReportView,
    RetrieveColumns,
    RetrieveRequest,
    UpsertItems,
    encode_json,
    encode_msgpack,
)
from fairsync.service.schema.arms import ArmsReport
from fairsync.service.schema.control_plane import (
    LeaseGrant,
    LeaseRequest,
    PriceFormat,
    PriceList,
    SettledList,
    SettleRequest,
    SettleResult,
)
from fairsync.service.schema.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from numpy.typing import ArrayLike, NDArray

    from fairsync.catalog import Where
    from fairsync.catalog.groups import Label
    from fairsync.service.client.client import AsyncClient, Client

P = ParamSpec("P")
T = TypeVar("T", covariant=True)


@dataclass(frozen=True, repr=False)
class Retrieved(Candidates):
    """Candidates with the ids of their requests, which reports of impressions refer to.

    Attributes
    ----------
    request_ids : list of str
        One id per request.
    """

    request_ids: list[str] = field(kw_only=True)


class Endpoint(Protocol[P, T]):
    """The type of an endpoint as a method: `Client` returns the answer, `AsyncClient` a coroutine of it."""

    @overload
    def __get__(self, client: Client, owner: type | None = None) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type | None = None) -> Callable[P, Coroutine[Any, Any, T]]: ...


def endpoint(build: Callable[Concatenate[Any, P], Request[T]]) -> Endpoint[P, T]:
    """Make a method that builds a request into one that sends it: ``send`` of the client decides how."""

    @wraps(build)
    def method(client: Any, *args: P.args, **kwargs: P.kwargs) -> Any:
        return client.send(build(client, *args, **kwargs))

    return cast("Endpoint[P, T]", method)


class Endpoints:
    """All endpoints. A method builds a `Request`; the client sends it and returns the decoded answer."""

    @endpoint
    def retrieve(
        self,
        users: ArrayLike,
        k: int | None = None,
        request_ids: Sequence[str | None] | NDArray[Any] | None = None,
        *,
        exclude: Sequence[Sequence[Label] | None] | None = None,
        where: Where | Sequence[Where | None] | None = None,
        explain: bool = False,
    ) -> Request[Retrieved]:
        """Return the candidates of users.

        Parameters
        ----------
        users
            Vectors of the users, (n, d) or (n, interests, d). A user whose vectors are all zero is cold: the answer is
            that of a fallback, and ``cold`` of the result marks it.
        k
            Candidates per user. Defaults to the k of the service.
        request_ids
            One idempotency key per user. A repeated one gets the same answer and is counted once, as long as the
            service saves answers (24 hours, or what fits a size, by default). After that it is refused: `RefusedError`
            with the status 410 and the error ``"expired"``. Random unless given, so that the client can retry.
        exclude
            For each user the ids of items to leave out, or None.
        where
            Conditions on attributes, one dict for all users or one for each; see :meth:`fairsync.Catalog.select`. If no
            item meets the condition of a user, its list is empty.
        explain
            Whether ``found.explain(i)`` says why the candidates are there. Counts twice for the rate limit.
        """
        vectors = _as_floats("users", users)
        if vectors.ndim == 1:
            vectors = vectors[None]
        if vectors.ndim not in (2, 3):
            raise InvalidInputError(
                f"users must be (n, d) or (n, interests, d) numbers, or (d,) for one, got shape {vectors.shape}."
            )
        named = _request_ids(len(vectors), request_ids)
        rules = _rules(len(vectors), exclude, where)
        array = NumberArray.of(vectors)
        return _retrieve(RetrieveRequest(vectors=array, k=k, request_ids=named, explain=explain, **rules))

    @endpoint
    def retrieve_for(
        self,
        histories: Sequence[Sequence[Label]],
        k: int | None = None,
        request_ids: Sequence[str | None] | NDArray[Any] | None = None,
        *,
        exclude: Sequence[Sequence[Label] | None] | None = None,
        where: Where | Sequence[Where | None] | None = None,
        exclude_history: bool = True,
        explain: bool = False,
    ) -> Request[Retrieved]:
        """Return the candidates of users who are given by their histories. The service needs a model for it.

        Parameters
        ----------
        histories
            Item ids of each user, oldest first. A user without any known one is cold.
        k, request_ids, exclude, where, explain
            As in `retrieve`.
        exclude_history
            Whether to leave out the items of the histories.
        """
        items = [np.asarray(history).tolist() for history in histories]
        rules = _rules(len(items), exclude, where)
        named = _request_ids(len(items), request_ids)
        request = RetrieveRequest(
            histories=items, k=k, request_ids=named, exclude_history=exclude_history, explain=explain, **rules
        )
        return _retrieve(request)

    @endpoint
    def explain(self, request_id: str) -> Request[Explanation]:
        """Return why the candidates of an earlier request are there, which was answered with ``explain``.

        Raises `RefusedError` with the status 404 if the service knows no explanation, and 410 if it is no longer saved.
        """
        return Request("GET", _explain_path(request_id), lambda body: _explanation(_decoder(ExplainAnswer)(body)))

    @endpoint
    def why_not(self, request_id: str, item_id: Label) -> Request[WhyNot]:
        """Return why an item was not among the candidates of an earlier request; see `explain`."""
        path = f"{_explain_path(request_id)}?item={quote(str(item_id), safe='')}"
        return Request("GET", path, lambda body: _why_not(_decoder(ExplainAnswer)(body)))

    @endpoint
    def impressions(self, reports: Sequence[ImpressionReport]) -> Request[ImpressionResult]:
        """Report impressions: the candidates that were really shown. A repeated report counts once."""
        body = _encode(ImpressionReports(reports=list(reports)))
        return Request("POST", "/v1/impressions", _decoder(ImpressionResult), body)

    @endpoint
    def promises(self) -> Request[list[PromiseView]]:
        """Return all promises and their status."""
        return Request("GET", "/v1/promises", _decoder(list[PromiseView]))

    @endpoint
    def make_promise(self, promise: PromiseRecord) -> Request[PromiseView]:
        """Make a promise. Raises `RefusedError` if it cannot be kept."""
        return Request("POST", "/v1/promises", _decoder(PromiseView), _encode(promise), idempotent=False)

    @endpoint
    def make_promises(self, promises: Sequence[PromiseRecord]) -> Request[list[PromiseView]]:
        """Make promises together. Raises `RefusedError` if not all of them can be kept; then none is made."""
        body = _encode(PromiseList(promises=list(promises)))
        return Request("POST", "/v1/promises/bulk", _decoder(list[PromiseView]), body, idempotent=False)

    @endpoint
    def change_promise(self, promise_id: str, promise: PromiseRecord) -> Request[PromiseView]:
        """Change a promise. Raises `RefusedError` if the new one cannot be kept."""
        return Request("PUT", _path(promise_id), _decoder(PromiseView), _encode(promise))

    @endpoint
    def delete_promise(self, promise_id: str) -> Request[None]:
        """Delete a promise."""
        return Request("DELETE", _path(promise_id), lambda body: None, idempotent=False)

    @endpoint
    def preview(self, promise: PromiseRecord, replacing: str | None = None) -> Request[Preview]:
        """Return whether a promise could be kept and its cost, without making it.

        Parameters
        ----------
        promise
            The promise to be examined.
        replacing
            Id of the promise that it would replace.
        """
        query = "" if replacing is None else f"?replacing={quote(replacing, safe='')}"
        return Request("POST", f"/v1/promises/preview{query}", _decoder(Preview), _encode(promise))

    @endpoint
    def pace(self, promise_id: str) -> Request[Pace]:
        """Return the progress of a promise over its current window."""
        return Request("GET", f"{_path(promise_id)}/pace", _decoder(Pace))

    @endpoint
    def overview(self) -> Request[Overview]:
        """Return the state of all promises, groups and shards."""
        return Request("GET", "/v1/overview", _decoder(Overview))

    @endpoint
    def groups(self) -> Request[list[GroupView]]:
        """Return all groups with their counts and prices."""
        return Request("GET", "/v1/groups", _decoder(list[GroupView]))

    @endpoint
    def attributes(self, text: str = "", limit: int = 100, name: str | None = None) -> Request[list[AttributeView]]:
        """Return the attributes of the items, with labels that contain a text."""
        query = urlencode({"text": text, "limit": int(limit), **({} if name is None else {"name": name})})
        return Request("GET", f"/v1/attributes?{query}", _decoder(list[AttributeView]))

    @endpoint
    def past(self, limit: int = 100) -> Request[list[PastWindow]]:
        """Return the latest windows that are over."""
        return Request("GET", f"/v1/past?limit={int(limit)}", _decoder(list[PastWindow]))

    @endpoint
    def audit(self, limit: int = 100, before: int | None = None) -> Request[AuditView]:
        """Return who made, changed and ended which promise, the latest first.

        Parameters
        ----------
        limit
            Largest number of entries.
        before
            Number of an entry; only earlier ones are returned.
        """
        earlier = "" if before is None else f"&before={int(before)}"
        return Request("GET", f"/v1/audit?limit={int(limit)}{earlier}", _decoder(AuditView))

    @endpoint
    def statement(self, attribute: str, label: Label, month: str) -> Request[Statement]:
        """Return what was promised to a label in a month, such as ``"2026-11"``, and what it got.

        Raises `RefusedError` if the label is unknown, or if no window of its promises ended in that month.
        """
        query = "&".join(
            f"{name}={quote(str(value), safe='')}"
            for name, value in (("attribute", attribute), ("label", label), ("month", month))
        )
        return Request("GET", f"/v1/statement?{query}", _decoder(Statement))

    @endpoint
    def arms(self) -> Request[ArmsReport]:
        """Return the comparison of the arms of an A/B test."""
        return Request("GET", "/v1/arms", _decoder(ArmsReport))

    @endpoint
    def report(self) -> Request[ReportView]:
        """Return the promises in a few numbers."""
        return Request("GET", "/v1/report", _decoder(ReportView))

    @endpoint
    def upsert_items(
        self,
        embeddings: ArrayLike | None,
        groups: Sequence[Label] | Mapping[str, Any],
        ids: Sequence[Label],
    ) -> Request[int]:
        """Add items, or change those whose ids are known. Returns the size of the catalog.

        Parameters
        ----------
        embeddings
            One vector per item; None if all ids are known and keep theirs.
        groups
            One label per item, or a dict of attributes: ``upsert_items(None, {"in_stock": [False]}, ["tea-1"])``. Known
            items keep the attributes that are left out.
        ids
            The ids of the items.
        """
        attributes = groups if isinstance(groups, Mapping) else None
        items = UpsertItems(
            embeddings=None if embeddings is None else NumberArray.of(_as_floats("embeddings", embeddings)),
            groups=np.asarray(to_values(groups)).tolist() if attributes is None else None,
            attributes=None if attributes is None else {name: _plain_values(one) for name, one in attributes.items()},
            ids=np.asarray(ids).tolist(),
        )
        return Request("PUT", "/v1/items", _decode_size, _pack(items), MSGPACK)

    @endpoint
    def remove_items(self, ids: Sequence[Label]) -> Request[int]:
        """Remove items. Returns the size of the catalog."""
        body = _encode(ItemIds(ids=np.asarray(ids).tolist()))
        return Request("DELETE", "/v1/items", _decode_size, body, idempotent=False)

    @endpoint
    def lease(
        self,
        requests: int = 1,
        seconds: float = 30.0,
        format: PriceFormat | None = None,
        columns: Mapping[str, str] | None = None,
        scale: float = 1.0,
    ) -> Request[LeaseGrant]:
        """Lease requests that are searched elsewhere, with the prices to search under.

        Parameters
        ----------
        requests
            Requests that wait for an answer. Fewer may be granted.
        seconds
            Seconds until the lease expires. Settle it before.
        format, columns, scale
            As for `prices`.
        """
        names = None if columns is None else dict(columns)
        asked = LeaseRequest(requests=requests, seconds=seconds, format=format, columns=names, scale=scale)
        body = _encode(asked)
        return Request("POST", "/v1/leases", _decoder(LeaseGrant), body, idempotent=False)

    @endpoint
    def settle(self, lease: str, lists: Sequence[SettledList]) -> Request[SettleResult]:
        """Report the lists of a lease, one for each request that was answered. Repeating it counts nothing twice."""
        path = f"/v1/leases/{quote(lease, safe='')}/settle"
        return Request("POST", path, _decoder(SettleResult), _encode(SettleRequest(lists=list(lists))))

    @endpoint
    def release(self, lease: str) -> Request[None]:
        """Return a lease that was not used."""
        return Request("DELETE", f"/v1/leases/{quote(lease, safe='')}", lambda _: None)

    @endpoint
    def prices(
        self, format: PriceFormat | None = None, columns: Mapping[str, str] | None = None, scale: float = 1.0
    ) -> Request[PriceList]:
        """Return the prices in force, and with a format also in the language of an engine.

        Parameters
        ----------
        format
            ``"sql"``, ``"qdrant"``, ``"milvus"``, ``"elasticsearch"`` or ``"vespa"``.
        columns
            The column or field of each attribute whose name is another one there.
        scale
            What one unit of relevance is in the engine's scores.
        """
        query = {"scale": repr(float(scale))}
        if format is not None:
            query["format"] = format
        if columns is not None:
            query["columns"] = _encode(dict(columns)).decode()
        return Request("GET", f"/v1/prices?{urlencode(query)}", _decoder(PriceList))

    @endpoint
    def ready(self) -> Request[bool]:
        """Return whether the service is ready to answer requests."""
        return Request("GET", "/ready", lambda body: _decoder(HealthStatus)(body).ok, answer_statuses=(503,))


def _retrieve(request: RetrieveRequest) -> Request[Retrieved]:
    return Request("POST", "/v1/retrieve", _decode_retrieved, _pack(request), MSGPACK)


def _encode(body: Any) -> bytes:
    """Return a body in JSON."""
    return _encoded(encode_json, body)


def _pack(body: Any) -> bytes:
    """Return a body in MessagePack."""
    return _encoded(encode_msgpack, body)


def _encoded(encode: Callable[[Any], bytes], body: Any) -> bytes:
    try:
        return encode(body)
    except (TypeError, OverflowError) as error:
        raise InvalidInputError(f"the call has a value that cannot be sent: {error}.") from error


def _rules(
    n: int, exclude: Sequence[Sequence[Label] | None] | None, where: Where | Sequence[Where | None] | None
) -> dict[str, Any]:
    """Return the rules of n requests as values that can be encoded."""
    lists = None if exclude is None else _excluded(n, exclude)
    if where is None or isinstance(where, Mapping):
        return {"exclude": lists, "where": where}
    if isinstance(where, str) or not isinstance(where, Iterable):
        raise InvalidInputError(f"where must be a dict of conditions, or one for each user, got {where!r:.80}.")
    return {"exclude": lists, "where": list(where)}


def _excluded(n: int, exclude: Sequence[Sequence[Label] | None]) -> list[list[Any]]:
    lists = _listed(exclude, "exclude must be a list of ids for each user")
    if len(lists) != n:
        raise InvalidInputError(f"there are {n} requests, and exclude has {len(lists)} lists of ids.")
    wanted = "exclude must have a list of ids for each user"
    return [[] if ids is None else _plain_values(_listed(ids, wanted)) for ids in lists]


def _listed(given: Any, wanted: str) -> list[Any]:
    values = to_values(given)
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InvalidInputError(f"{wanted}, got {given!r:.80}.")
    return list(values)


def _plain_values(values: Sequence[Any]) -> list[Any]:
    return [one.tolist() if isinstance(one, np.ndarray | np.generic) else one for one in to_values(values)]


def _as_floats(name: str, values: ArrayLike) -> np.ndarray[Any, Any]:
    array = to_array(values, name)
    if array.dtype.kind not in "iuf":
        raise InvalidInputError(f"{name} must be numbers, got {array.dtype}.")
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def _request_ids(n: int, given: Sequence[str | None] | NDArray[Any] | None) -> list[str | None]:
    return [uuid.uuid4().hex for _ in range(n)] if given is None else check_request_ids(to_values(given), n)


def _explain_path(request_id: str) -> str:
    return f"/v1/explain/{quote(request_id, safe='')}"


def _explanation(answer: ExplainAnswer) -> Explanation:
    return Explanation.from_dict(msgspec.to_builtins(answer.explanation))


def _why_not(answer: ExplainAnswer) -> WhyNot:
    return WhyNot.from_dict(msgspec.to_builtins(answer.why_not))


def _path(promise_id: str) -> str:
    return f"/v1/promises/{quote(promise_id, safe='')}"


def _decoder(kind: type[T]) -> Callable[[bytes], T]:
    return msgspec.json.Decoder(kind).decode


def _decode_retrieved(body: bytes) -> Retrieved:
    answer = msgspec.msgpack.decode(body, type=RetrieveColumns)
    relevance = answer.relevance
    ids, groups = (
        column.to_numpy() if isinstance(column, NumberArray) else _padded(column, answer.k)
        for column in (answer.ids, answer.groups)
    )
    return Retrieved(
        ids,
        groups,
        relevance.to_numpy() if isinstance(relevance, NumberArray) else _padded(relevance, answer.k, -np.inf),
        answer.searched.to_numpy(),
        unknown_excluded=np.array(answer.unknown_excluded, dtype=np.int64),
        cold=np.array(answer.cold or [], dtype=bool),
        explained=() if answer.explanations is msgspec.UNSET else tuple(map(_stored, answer.explanations)),
        request_ids=[str(request_id) for request_id in answer.request_ids],
    )


def _stored(view: ExplanationView | None) -> StoredExplanation | None:
    return None if view is None else StoredExplanation({"explanation": msgspec.to_builtins(view)})


def _padded(lists: Sequence[Sequence[Any]], k: int, empty: float | str | None = None) -> np.ndarray[Any, Any]:
    """Return lists as an array, with the empty places of `Candidates` at the end of those that are short."""
    if empty is None:
        empty = -1 if any(isinstance(value, int) for one in lists for value in one) else ""
    return np.array([[*one, *[empty] * (k - len(one))] for one in lists])


def _decode_size(body: bytes) -> int:
    return _decoder(CatalogSize)(body).items
