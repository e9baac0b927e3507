"""Messages between front ends and shards, packed into bytes, which Ray transfers faster than arrays."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.catalog.selection import Selection
from fairsync.errors import InvalidInputError
from fairsync.search.base import Hits
from fairsync.search.eligibility import Eligibility

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Magic number, version of the prices, k, users, interests, dimensions, type of the vectors, number of prices, bytes of
# the eligibility.
_QUERY = struct.Struct("<4sQIIII2sIQ")
# Items, selections, requests, excluded rows.
_ELIGIBLE = struct.Struct("<QIIQ")
# Magic number, version of the prices, users, width.
_ANSWER = struct.Struct("<4sQII")
_IS_QUERY, _IS_ANSWER = b"FSQ2", b"FSA1"
# The most numbers of one user that a message may speak of.
_MOST_NUMBERS = 1 << 32
_KINDS = (b"f2", b"f4", b"f8")


@dataclass(frozen=True)
class Query:
    """A query to a shard.

    Attributes
    ----------
    version : int
        The version of the prices. The answer repeats it.
    k : int
        The number of items to find per user.
    users : numpy.ndarray
        (n, interests, d) floats, the user vectors.
    prices : numpy.ndarray or None
        (G,) one price per group. They are part of every query, so that a restarted shard cannot have stale ones.
    eligible : Eligibility or None
        The items that each user may get, in rows of the whole catalog; None for all items.

    Examples
    --------
    >>> Query.unpack(Query(7, 2, np.ones((1, 1, 2)), np.array([0.5])).pack())
    Query(version=7, k=2, users=array([[[1., 1.]]]), prices=array([0.5]), eligible=None)
    """

    version: int
    k: int
    users: NDArray[np.floating[Any]]
    prices: NDArray[np.float64] | None
    eligible: Eligibility | None = None

    def pack(self) -> bytes:
        """Return the query as bytes."""
        users = np.ascontiguousarray(self.users, dtype=self.users.dtype.newbyteorder("<"))
        prices = b"" if self.prices is None else self.prices.astype("<f8").tobytes()
        kind = users.dtype.str[1:].encode()
        rules = b"" if self.eligible is None else pack_eligibility(self.eligible)
        head = _QUERY.pack(_IS_QUERY, self.version, self.k, *users.shape, kind, len(prices) // 8, len(rules))
        return b"".join((head, users.tobytes(), prices, rules))

    @classmethod
    def unpack(cls, message: bytes) -> Query:
        """Return the query from bytes of :meth:`pack`. Raise for anything else."""
        _check_head(message, _QUERY, _IS_QUERY)
        _, version, k, n, interests, dim, kind, n_prices, n_rules = _QUERY.unpack_from(message)
        # Without a number per user, a small message could have any number of users; and without a user, any of numbers.
        if kind not in _KINDS or not interests or not dim or interests * dim > _MOST_NUMBERS:
            raise InvalidInputError(f"a message has {n} users of {interests} x {dim} numbers of type {kind!r}.")
        dtype = np.dtype("<" + kind.decode())
        size = n * interests * dim
        end = _QUERY.size + size * dtype.itemsize
        _check_size(message, end + 8 * n_prices + n_rules)
        users = np.frombuffer(message, dtype, size, _QUERY.size).reshape(n, interests, dim)
        prices = np.frombuffer(message, "<f8", n_prices, end) if n_prices else None
        eligible = unpack_eligibility(message[len(message) - n_rules :]) if n_rules else None
        if eligible is not None and len(eligible) != n:
            raise InvalidInputError(f"a message has {n} users, and rules for {len(eligible)}.")
        return cls(version, k, users, prices, eligible)


def pack_eligibility(eligible: Eligibility) -> bytes:
    """Return an eligibility as bytes: an eighth of a byte per item and condition, and 8 bytes per excluded item.

    Examples
    --------
    >>> given = Eligibility.of(3, [Selection(np.array([True, False, True])), None], [[2], [0]])
    >>> got = unpack_eligibility(pack_eligibility(given))
    >>> got.mask(0).tolist(), got.mask(1).tolist()
    ([True, False, False], [False, True, True])
    """
    used, places = np.unique(eligible.selection_of, return_inverse=True)
    numbers = used[used >= 0]
    head = _ELIGIBLE.pack(eligible.n_items, len(numbers), len(eligible), len(eligible.excluded))
    masks = [np.packbits(eligible.selections[at].mask).tobytes() for at in numbers]
    arrays = (places - (len(used) - len(numbers)), eligible.offsets, eligible.excluded)
    return b"".join((head, *masks, *(array.astype("<i8").tobytes() for array in arrays)))


def unpack_eligibility(message: bytes) -> Eligibility:
    """Return the eligibility from bytes of :func:`pack_eligibility`. Raise for anything else."""
    if len(message) < _ELIGIBLE.size:
        raise InvalidInputError("a message has rules that are cut off.")
    n_items, n_selections, n, n_excluded = _ELIGIBLE.unpack_from(message)
    width = -(-n_items // 8)
    start = _ELIGIBLE.size + n_selections * width
    _check_size(message, start + 8 * (n + n + 1 + n_excluded))
    bits = np.frombuffer(message, np.uint8, n_selections * width, _ELIGIBLE.size).reshape(n_selections, width)
    selections = tuple(Selection(np.unpackbits(row, count=n_items).view(bool)) for row in bits)
    numbers = np.frombuffer(message, "<i8", n + n + 1 + n_excluded, start)
    used, offsets, excluded = numbers[:n], numbers[n : 2 * n + 1], numbers[2 * n + 1 :]
    if (
        not ((used >= -1) & (used < n_selections)).all()
        or not ((excluded >= 0) & (excluded < n_items)).all()
        or (offsets[0], offsets[-1]) != (0, n_excluded)
        or (np.diff(offsets) < 0).any()
    ):
        raise InvalidInputError("a message has rules that do not fit its items.")
    return Eligibility(n_items, selections, used, excluded, offsets)


def pack_answer(version: int, hits: Hits) -> bytes:
    """Return the hits of a shard under the prices of a version, as bytes.

    Examples
    --------
    >>> message = pack_answer(7, Hits(np.array([[3]]), np.array([[0.5]])))
    >>> unpack_answer(message, version=7, users=1, k=5, items=10)
    Hits(rows=array([[3]]), relevance=array([[0.5]]))
    """
    head = _ANSWER.pack(_IS_ANSWER, version, *hits.rows.shape)
    return b"".join((head, hits.rows.astype("<i8").tobytes(), hits.relevance.astype("<f8").tobytes()))


def unpack_answer(message: bytes, version: int, users: int, k: int, items: int) -> Hits:
    """Return the hits from bytes of :func:`pack_answer`. Raise for anything that does not answer the query.

    Parameters
    ----------
    message
        The bytes.
    version, users, k
        The version of the prices, the number of users and the number of items per user of the query.
    items
        The number of items in the catalog.
    """
    _check_head(message, _ANSWER, _IS_ANSWER)
    _, answered, n, width = _ANSWER.unpack_from(message)
    if answered != version:
        raise InvalidInputError(f"the answer is under prices of version {answered}, asked was version {version}.")
    if n != users or width > k:
        raise InvalidInputError(f"a message has {width} items for {n} users, asked was {k} for {users}.")
    size = n * width
    _check_size(message, _ANSWER.size + 16 * size)
    rows = np.frombuffer(message, "<i8", size, _ANSWER.size).reshape(n, width)
    relevance = np.frombuffer(message, "<f8", size, _ANSWER.size + 8 * size).reshape(n, width)
    empty = rows == -1
    if ((rows < -1) | (rows >= items)).any() or np.isnan(relevance).any() or (relevance[empty] != -np.inf).any():
        raise InvalidInputError("a message has items that are not in the catalog, or no relevance for one that is.")
    ordered = np.sort(rows, axis=1)
    if ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any():
        raise InvalidInputError("a message has the same item twice for one user.")
    return Hits(rows, relevance)


def _check_head(message: bytes, head: struct.Struct, kind: bytes) -> None:
    if not isinstance(message, bytes) or len(message) < head.size or message[:4] != kind:
        what = f"{len(message)} bytes" if isinstance(message, bytes) else f"type {type(message).__name__}"
        raise InvalidInputError(
            f"a message of {what} is not what was expected: run one version of fairsync on every node."
        )


def _check_size(message: bytes, size: int) -> None:
    if len(message) != size:
        raise InvalidInputError(f"a message has {len(message)} bytes where it should have {size}.")
