"""The codec: request bodies to structs, candidates to response bodies, in JSON or MessagePack."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
import numpy as np

from fairsync.service.schema import (
    JSON,
    LONGEST_HISTORY,
    MSGPACK,
    ExplanationView,
    NumberArray,
    RetrieveAnswer,
    RetrieveAnswers,
    RetrieveColumns,
    RetrieveRequest,
    UpsertItems,
)
from fairsync.service.server.problems import Problem, invalid
from fairsync.service.server.validation_messages import describe

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray

    from fairsync.candidates import Candidates
    from fairsync.service.settings import HttpSettings

T = TypeVar("T")
# Messages quote at most this many characters of a body.
_LONGEST_REASON = 200


@lru_cache
def _decoder(kind: Hashable, media_type: str) -> Any:
    return msgspec.json.Decoder(kind) if media_type == JSON else msgspec.msgpack.Decoder(kind)


def decode(body: bytes, media_type: str, kind: type[T]) -> T:
    """Return the struct of a body, validated. Stops at the first error.

    Parameters
    ----------
    body, media_type
        The body and its type, JSON or MSGPACK.
    kind
        The struct.

    Examples
    --------
    >>> from fairsync.service.schema import ItemIds
    >>> decode(b'{"ids": [3]}', JSON, ItemIds)
    ItemIds(ids=[3])
    >>> decode(b'{"ids": [3.5]}', JSON, ItemIds)
    Traceback (most recent call last):
    fairsync.service.server.problems.Problem: ids[0]: Expected `int | str`, got `float`.
    """
    try:
        value: T = _decoder(cast("Hashable", kind), media_type).decode(body)
    except msgspec.ValidationError as error:
        raise invalid(describe(error, kind)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = str(error)[:_LONGEST_REASON]
        raise Problem(400, "malformed", f"The body is not {media_type}: {reason}", "Check its encoding.") from None
    return value


def compact(value: T, max_users: int) -> T:
    """Return a struct with its vectors as bytes, which take less memory than lists and are decoded at once.

    Of each history it keeps the latest items; the others are not used. Refuses vectors that are empty or of different
    lengths, and more users than a call may have.

    Examples
    --------
    >>> compact(RetrieveRequest(vectors=[[1.0, 2.0]]), 10).vectors.shape
    [1, 2]
    """
    if isinstance(value, RetrieveRequest):
        for many in (value.vectors, value.histories, value.request_ids, value.exclude):
            if isinstance(many, list):
                _check_users(len(many), max_users)
        for history in value.histories or ():
            del history[:-LONGEST_HISTORY]
        if isinstance(value.vectors, list):
            return msgspec.structs.replace(value, vectors=_to_bytes(value.vectors, "vectors"))
    if isinstance(value, UpsertItems) and isinstance(value.embeddings, list):
        return msgspec.structs.replace(value, embeddings=_to_bytes(value.embeddings, "embeddings"))
    return value


@lru_cache(maxsize=64)
def media_type_of(content_type: bytes) -> str:
    """Return the media type of a Content-Type header, without parameters.

    Examples
    --------
    >>> media_type_of(b"Application/JSON; charset=utf-8")
    'application/json'
    """
    return content_type.decode("latin-1").partition(";")[0].strip().lower()


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
    _check_users(n, limits.max_users)
    if vectors is not None and vectors.ndim == 1:
        raise invalid(
            "'vectors' must have one list of numbers per user, or several, also for a single user.",
            "Send [[0.1, 0.2]], not [0.1, 0.2].",
        )
    if request.request_ids is not None and len(request.request_ids) != n:
        raise invalid(f"'request_ids' must be {n} strings, one per user.")
    if request.k is not None and request.k > limits.max_k:
        raise invalid(f"'k' must be an integer from 1 to {limits.max_k}.")
    return vectors


def attributes_of(items: UpsertItems, group_attribute: str) -> dict[str, list[Any]]:
    """Return the attributes of items, with their groups under the name of the group's attribute.

    Examples
    --------
    >>> attributes_of(UpsertItems(ids=[1], groups=["tea"], attributes={"in_stock": [False]}), "category")
    {'in_stock': [False], 'category': ['tea']}
    """
    given: dict[str, list[Any]] = dict(items.attributes or {})
    if items.groups is not None:
        if group_attribute in given:
            raise invalid(f"'groups' and the attribute '{group_attribute}' are the same: give one of them.")
        given[group_attribute] = list(items.groups)
    if not given and items.embeddings is None:
        raise invalid("There is nothing to change: give 'embeddings', 'groups' or 'attributes'.")
    return given


def embeddings_of(items: UpsertItems, max_items: int) -> NDArray[Any] | None:
    """Return the embeddings of items, of which there must be as many as ids; None if the items keep theirs."""
    if len(items.ids) > max_items:
        raise invalid(f"A call holds {max_items} items at most.", "Send them in several calls.")
    if items.groups is not None and len(items.groups) != len(items.ids):
        raise invalid(f"There are {len(items.ids)} ids and {len(items.groups)} groups: give one of each.")
    if items.embeddings is None:
        return None
    array = _to_numpy(items.embeddings, "embeddings")
    if array.ndim != 2:
        raise invalid(f"'embeddings' must be one vector per item, got shape {list(array.shape)}.")
    if len(array) != len(items.ids):
        raise invalid(f"There are {len(items.ids)} ids and {len(array)} embeddings: give one of each.")
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
    short, unknown = found.short.tolist(), found.unknown_excluded.tolist()
    columns = (found.ids, found.groups, found.relevance)
    lists = [_without_empty_places(column, found.relevance) for column in columns] if any(short) else None
    if media_type == MSGPACK:
        ids, groups, relevance = map(_column, columns) if lists is None else lists
        answer = RetrieveColumns(
            request_ids=list(request_ids), ids=ids, groups=groups, relevance=relevance,
            searched=NumberArray.of(found.searched), k=found.ids.shape[1], short=short, unknown_excluded=unknown,
            cold=found.cold.tolist(), explanations=_explanations(found) or msgspec.UNSET,
        )  # fmt: skip
        return msgspec.msgpack.encode(answer)
    lists = [column.tolist() for column in columns] if lists is None else lists
    rows = zip(request_ids, *lists, found.searched.tolist(), short, unknown, found.cold.tolist(), strict=True)
    answers = [
        RetrieveAnswer(
            request_id=one, ids=ids, groups=groups, relevance=relevance, searched=searched, degraded=searched < 1,
            short=is_short, unknown_excluded=n_unknown, cold=is_cold,
        )
        for one, ids, groups, relevance, searched, is_short, n_unknown, is_cold in rows
    ]  # fmt: skip
    if found.explained:
        explanations = _explanations(found)
        answers = [
            msgspec.structs.replace(answer, explanation=one) for answer, one in zip(answers, explanations, strict=True)
        ]
    return msgspec.json.encode(RetrieveAnswers(answers=answers))


def _explanations(found: Candidates) -> list[ExplanationView | None]:
    return [
        None if one is None else msgspec.convert(one.explanation().to_dict(), ExplanationView)
        for one in found.explained
    ]


def _without_empty_places(column: NDArray[Any], relevance: NDArray[np.float64]) -> list[Any]:
    """Return the entries of each list. The empty places of a short one are at its end."""
    lengths = (~np.isneginf(relevance)).sum(axis=1).tolist()
    return [one[:length] for one, length in zip(column.tolist(), lengths, strict=True)]


def _column(column: NDArray[Any]) -> Any:
    return column.tolist() if column.dtype.kind in "UO" else NumberArray.of(column)


def _check_users(n: int, most: int) -> None:
    if not 1 <= n <= most:
        raise invalid(f"A call holds 1 to {most} users, got {n}.", "Send them in several calls.")


def _to_bytes(numbers: list[Any], name: str) -> NumberArray:
    array = _to_numpy(numbers, name)
    if not array.size:
        raise invalid(f"'{name}' must not be empty.")
    return NumberArray.of(array)


def _to_numpy(numbers: list[Any] | NumberArray, name: str) -> NDArray[Any]:
    """Return an array. Rows of different lengths are refused first: numpy is only given what it can hold."""
    if isinstance(numbers, NumberArray):
        return numbers.to_numpy()
    try:
        if len(numbers) > 1 and len(set(map(len, numbers))) > 1:
            raise ValueError
        return np.asarray(numbers, dtype=np.float64)
    except ValueError:
        raise invalid(f"'{name}' must be lists of numbers, all of the same length.") from None
