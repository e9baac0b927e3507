"""The codec: request bodies to structs, candidates to response bodies, in JSON or MessagePack."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
import numpy as np

from fairsync.service.schema import (
    JSON,
    MSGPACK,
    NumberArray,
    RetrieveAnswer,
    RetrieveAnswers,
    RetrieveColumns,
    RetrieveRequest,
    UpsertItems,
)
from fairsync.service.server.problems import Problem, invalid

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray

    from fairsync.candidates import Candidates
    from fairsync.service.settings import HttpSettings

T = TypeVar("T")


@lru_cache
def _decoder(kind: Hashable, media_type: str) -> Any:
    return msgspec.json.Decoder(kind) if media_type == JSON else msgspec.msgpack.Decoder(kind)


def decode(body: bytes, content_type: str, kind: type[T], accepted: Sequence[str] = (JSON, MSGPACK)) -> T:
    """Return the struct of a body, validated.

    Parameters
    ----------
    body, content_type
        The body and its Content-Type header.
    kind
        The struct.
    accepted
        Media types that the route accepts; others are answered with 415.

    Examples
    --------
    >>> from fairsync.service.schema import ItemIds
    >>> decode(b'{"ids": [3]}', "application/json; charset=utf-8", ItemIds)
    ItemIds(ids=[3])
    >>> decode(b'{"ids": [3.5]}', "application/json", ItemIds)
    Traceback (most recent call last):
    fairsync.service.server.problems.Problem: ids[0]: Expected `int | str`, got `float`.
    """
    media_type = media_type_of(content_type)
    if media_type not in accepted:
        hint = f"Send {' or '.join(accepted)}."
        raise Problem(415, "media_type", f"Bodies of type {media_type!r} are not accepted here.", hint)
    try:
        value: T = _decoder(cast("Hashable", kind), media_type).decode(body)
    except msgspec.ValidationError as error:
        raise invalid(describe(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, "malformed", f"The body is not {media_type}: {error}", "Check its encoding.") from None
    return value


def describe(error: msgspec.ValidationError) -> str:
    """Return the message of a validation error, with the place in front.

    Examples
    --------
    >>> describe(msgspec.ValidationError("Expected `int`, got `str` - at `$.window.floor`"))
    'window.floor: Expected `int`, got `str`.'
    """
    reason, _, place = str(error).partition(" - at `$")
    place = place.removesuffix("`").removeprefix(".")
    return f"{place}: {reason}." if place else f"{reason}."


def media_type_of(content_type: str) -> str:
    """Return the media type of a Content-Type header, without parameters."""
    return content_type.partition(";")[0].strip().lower()


def users_of(request: RetrieveRequest, limits: HttpSettings) -> NDArray[Any] | None:
    """Return the vectors of a request, to be checked against the catalog; None if it has histories.

    Refuses a request that exceeds the limits of one call.
    """
    if (request.vectors is None) == (request.histories is None):
        raise invalid("Give either 'vectors' or 'histories'.")
    vectors = None if request.vectors is None else _to_numpy(request.vectors, "vectors")
    if vectors is not None and vectors.ndim == 3 and vectors.shape[1] > limits.max_interests:
        raise invalid(f"A user has {limits.max_interests} vectors at most, got {vectors.shape[1]}.", "Send fewer.")
    n = len(request.histories or ()) if vectors is None else len(vectors)
    if not 1 <= n <= limits.max_users:
        raise invalid(f"A call holds 1 to {limits.max_users} users, got {n}.", "Send them in several calls.")
    if request.request_ids is not None and len(request.request_ids) != n:
        raise invalid(f"'request_ids' must be {n} strings, one per user.")
    if request.k is not None and request.k > limits.max_k:
        raise invalid(f"'k' must be an integer from 1 to {limits.max_k}.")
    return vectors


def embeddings_of(items: UpsertItems, max_items: int) -> NDArray[Any]:
    """Return the embeddings of items, of which there must be as many as ids and groups."""
    if len(items.ids) > max_items:
        raise invalid(f"A call holds {max_items} items at most.", "Send them in several calls.")
    array = _to_numpy(items.embeddings, "embeddings")
    if array.ndim != 2:
        raise invalid(f"'embeddings' must be one vector per item, got shape {list(array.shape)}.")
    if not len(array) == len(items.groups) == len(items.ids):
        raise invalid(
            f"There are {len(items.ids)} ids, {len(items.groups)} groups and {len(array)} embeddings: give one of each."
        )
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def encode_candidates(found: Candidates, request_ids: Sequence[str | None], media_type: str) -> bytes:
    """Return the body that answers a call to retrieve.

    Examples
    --------
    >>> from fairsync.candidates import Candidates
    >>> found = Candidates(np.array([[7, 3]]), np.array([["a", "b"]]), np.array([[0.5, 0.25]]), np.array([1.0]))
    >>> encode_candidates(found, ["r1"], JSON)[:48]
    b'{"answers":[{"request_id":"r1","ids":[7,3],"grou'
    """
    if media_type == MSGPACK:
        columns = RetrieveColumns(
            request_ids=list(request_ids),
            ids=_column(found.ids),
            groups=_column(found.groups),
            relevance=NumberArray.of(found.relevance),
            searched=NumberArray.of(found.searched),
        )
        return msgspec.msgpack.encode(columns)
    rows = zip(
        request_ids, found.ids.tolist(), found.groups.tolist(), found.relevance.tolist(), found.searched.tolist(),
        strict=True,
    )  # fmt: skip
    answers = [
        RetrieveAnswer(
            request_id=one, ids=ids, groups=groups, relevance=relevance, searched=searched, degraded=searched < 1
        )
        for one, ids, groups, relevance, searched in rows
    ]
    return msgspec.json.encode(RetrieveAnswers(answers=answers))


def _column(column: NDArray[Any]) -> Any:
    return column.tolist() if column.dtype.kind in "UO" else NumberArray.of(column)


def _to_numpy(numbers: list[Any] | NumberArray, name: str) -> NDArray[Any]:
    if isinstance(numbers, NumberArray):
        return numbers.to_numpy()
    try:
        return np.asarray(numbers, dtype=np.float64)
    except ValueError:
        raise invalid(f"'{name}' must be lists of numbers, all of the same length.") from None
