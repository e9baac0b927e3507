"""Bodies of the calls that carry vectors, as JSON or as MessagePack, read and written without detours.

In MessagePack an array of numbers is a map of ``dtype`` (``<f2``, ``<f4``, ``<f8`` or ``<i8``), ``shape`` and ``data``:
its bytes in C order, low byte first. Words are plain lists.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgpack
import numpy as np
import orjson

from fairsync.candidates import Candidates
from fairsync.service.server.problems import Problem, invalid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairsync.catalog.groups import Label
    from fairsync.service.settings import HttpSettings

JSON, MSGPACK = "application/json", "application/msgpack"
_DTYPES = {name: np.dtype(name) for name in ("<f2", "<f4", "<f8", "<i8")}
_LONGEST_ID = 200


@dataclass(frozen=True)
class Asked:
    """What a call to retrieve asks for.

    Attributes
    ----------
    vectors : numpy.ndarray or None
        Of the requests, still to be checked against the catalog; None if there are histories.
    histories : list
        Where there are no vectors: item ids of each request, oldest first.
    request_ids : list
        One per request; None for those without.
    k : int or None
        Candidates wanted; None: as many as usual.
    """

    vectors: NDArray[Any] | None
    histories: list[list[Label]]
    request_ids: list[str | None]
    k: int | None


def read_body(body: bytes, content_type: str) -> tuple[dict[str, Any], bool]:
    """Return what a body holds, and whether it is MessagePack.

    Examples
    --------
    >>> read_body(b'{"k": 3}', "application/json; charset=utf-8")
    ({'k': 3}, False)
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in (JSON, MSGPACK):
        raise Problem(415, "media_type", f"Bodies of type {kind!r} are not read here.", f"Send {JSON} or {MSGPACK}.")
    try:
        value = orjson.loads(body) if kind == JSON else msgpack.unpackb(body, strict_map_key=True)
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise Problem(400, "malformed", f"The body is not {kind}: {error}", "Check how it is encoded.") from None
    if not isinstance(value, dict):
        raise invalid(f"The body must be a map, got {type(value).__name__}.")
    return value, kind == MSGPACK


def read_retrieve(body: bytes, content_type: str, limits: HttpSettings) -> tuple[Asked, bool]:
    """Return what a call to retrieve asks for, and whether it is to be answered in MessagePack.

    Examples
    --------
    >>> from fairsync.service.settings import HttpSettings
    >>> asked, binary = read_retrieve(b'{"vectors": [[1.0, 2.0]], "request_ids": ["r1"]}', JSON, HttpSettings())
    >>> asked.vectors.tolist(), asked.request_ids, asked.k, binary
    ([[1.0, 2.0]], ['r1'], None, False)
    """
    given, binary = read_body(body, content_type)
    _check_keys(given, ("vectors", "histories", "k", "request_ids"))
    vectors, histories = given.get("vectors"), given.get("histories")
    if (vectors is None) == (histories is None):
        raise invalid("Give either 'vectors' or 'histories'.")
    if histories is not None:
        n = len(_check_histories(histories))
    else:
        vectors = _read_array(vectors, "vectors") if binary else _as_array(vectors, "vectors")
        n = len(vectors)
        if vectors.ndim == 3 and vectors.shape[1] > limits.max_interests:
            raise invalid(f"A user has {limits.max_interests} vectors at most, got {vectors.shape[1]}.", "Send fewer.")
    if not 1 <= n <= limits.max_users:
        raise invalid(f"A call holds 1 to {limits.max_users} users, got {n}.", "Send them in several calls.")
    request_ids, k = _read_request_ids(given.get("request_ids"), n), _read_k(given, limits.max_k)
    return Asked(vectors, histories or [], request_ids, k), binary


def read_items(body: bytes, content_type: str, max_items: int) -> tuple[Any, list[Any], list[Any]]:
    """Return the embeddings, groups and ids of items to be put."""
    given, binary = read_body(body, content_type)
    _check_keys(given, ("embeddings", "groups", "ids"))
    ids, groups = (_read_labels(given.get(name), name, max_items) for name in ("ids", "groups"))
    embeddings = given.get("embeddings")
    array = _read_array(embeddings, "embeddings") if binary else _as_array(embeddings, "embeddings")
    if array.ndim != 2:
        raise invalid(f"'embeddings' must be one vector per item, got shape {list(array.shape)}.")
    if not len(array) == len(groups) == len(ids):
        raise invalid(f"There are {len(ids)} ids, {len(groups)} groups and {len(array)} embeddings: give one of each.")
    return array if array.dtype.kind == "f" else array.astype(np.float64), groups, ids


def write_found(found: Candidates, request_ids: Sequence[str | None], *, binary: bool) -> bytes:
    """Return the body that answers a call to retrieve."""
    if binary:
        columns = {name: _written(getattr(found, name)) for name in ("ids", "groups", "relevance", "searched")}
        return msgpack.packb({"request_ids": list(request_ids), **columns})  # type: ignore[no-any-return]
    rows = zip(
        request_ids, found.ids.tolist(), found.groups.tolist(), found.relevance.tolist(), found.searched.tolist(),
        strict=True,
    )  # fmt: skip
    answers = [
        {"request_id": one, "ids": ids, "groups": groups, "relevance": relevance, "searched": searched,
         "degraded": searched < 1}
        for one, ids, groups, relevance, searched in rows
    ]  # fmt: skip
    return orjson.dumps({"answers": answers})


def write_array(array: NDArray[Any]) -> dict[str, Any]:
    """Return an array of numbers as MessagePack carries it.

    Examples
    --------
    >>> write_array(np.array([[1.0, 2.0]], dtype=np.float32))["shape"]
    [1, 2]
    """
    name = "<i8" if array.dtype.kind in "iu" else f"<f{min(array.itemsize, 8)}"
    return {"dtype": name, "shape": list(array.shape), "data": np.ascontiguousarray(array, dtype=name).tobytes()}


def read_found(body: bytes) -> tuple[Candidates, list[str | None]]:
    """Return what :func:`write_found` wrote in MessagePack, and the request ids.

    Examples
    --------
    >>> found = Candidates(np.array([[7, 3]]), np.array([["a", "b"]]), np.array([[0.5, 0.25]]), np.array([1.0]))
    >>> again, request_ids = read_found(write_found(found, ["r1"], binary=True))
    >>> again.ids.tolist(), again.groups.tolist(), again.relevance.tolist(), request_ids
    ([[7, 3]], [['a', 'b']], [[0.5, 0.25]], ['r1'])
    """
    given = msgpack.unpackb(body)
    columns = [_column(given[name], name) for name in ("ids", "groups", "relevance", "searched")]
    return Candidates(*columns), given["request_ids"]


def _written(column: NDArray[Any]) -> Any:
    return column.tolist() if column.dtype.kind in "UO" else write_array(column)


def _column(value: Any, name: str) -> NDArray[Any]:
    return np.asarray(value) if isinstance(value, list) else _read_array(value, name)


def _check_keys(given: dict[str, Any], known: Sequence[str]) -> None:
    unknown = sorted(str(key) for key in given if key not in known)
    if unknown:
        raise invalid(f"There is no field {unknown[0]!r:.100}.", f"Known are {', '.join(known)}.")


def _as_array(value: Any, name: str) -> NDArray[Any]:
    """Return lists of numbers as an array."""
    try:
        array = np.asarray(value if isinstance(value, list) else None)
    except (ValueError, OverflowError):  # of different lengths, or nested too deep
        array = np.asarray(None)
    if array.ndim == 0 or array.dtype.kind not in "iuf":
        raise invalid(f"'{name}' must be lists of numbers, all of the same length.")
    return array


def _read_array(value: Any, name: str) -> NDArray[Any]:
    """Return an array of numbers from MessagePack, made of the bytes as they came."""
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data"}:
        raise invalid(f"'{name}' must be a map of 'dtype', 'shape' and 'data'.")
    dtype = _DTYPES.get(value["dtype"]) if isinstance(value["dtype"], str) else None
    shape, data = value["shape"], value["data"]
    if dtype is None or not isinstance(data, bytes):
        raise invalid(f"'{name}' needs bytes as 'data' and a 'dtype' out of {', '.join(_DTYPES)}.")
    if not isinstance(shape, list) or not 1 <= len(shape) <= 3 or not all(_is_whole(size) for size in shape):
        raise invalid(f"'{name}.shape' must be one to three whole numbers.")
    if min(shape) < 0 or math.prod(shape) * dtype.itemsize != len(data):
        raise invalid(f"'{name}' has {len(data)} bytes, which is not {shape} of {value['dtype']}.")
    if 0 in shape:  # the other sizes may be larger than any array's
        raise invalid(f"'{name}' holds nothing: its shape is {shape}.")
    return np.frombuffer(data, dtype).reshape(shape)


def _read_request_ids(value: Any, n: int) -> list[str | None]:
    if value is None:
        return [None] * n
    if not isinstance(value, list) or len(value) != n:
        raise invalid(f"'request_ids' must be {n} words, one per user.")
    for one in value:
        if one is not None and not (isinstance(one, str) and 1 <= len(one) <= _LONGEST_ID):
            raise invalid(f"A request id is a word of 1 to {_LONGEST_ID} characters, or null.")
    return value


def _read_k(given: dict[str, Any], max_k: int) -> int | None:
    k = given.get("k")
    if k is None:
        return None
    if not _is_whole(k) or not 1 <= k <= max_k:
        raise invalid(f"'k' must be a whole number from 1 to {max_k}.")
    return int(k)


def _check_histories(value: Any) -> list[Any]:
    if not isinstance(value, list) or not all(isinstance(one, list) for one in value):
        raise invalid("'histories' must be a list of item ids for each user, oldest first.")
    if not all(isinstance(item, str) or _is_whole(item) for one in value for item in one):
        raise invalid("'histories' must hold item ids: words or whole numbers.")
    return value


def _read_labels(value: Any, name: str, most: int) -> list[Any]:
    if not isinstance(value, list) or not 1 <= len(value) <= most:
        raise invalid(f"'{name}' must be a list of 1 to {most} labels.", "Send more in several calls.")
    for one in value:
        if not (isinstance(one, str) and 1 <= len(one) <= 500) and not (_is_whole(one) and abs(one) < 2**63):
            raise invalid(f"'{name}' must hold words of up to 500 characters, or whole numbers of 64 bits.")
    return value


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
