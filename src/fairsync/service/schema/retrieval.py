"""Candidates, items and impressions: the calls that carry vectors or item ids."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from fairsync.errors import InvalidInputError
from fairsync.service.schema.record import Label, NewLabel, Record, RequestId

if TYPE_CHECKING:
    from numpy.typing import NDArray

LONGEST_HISTORY = 10_000
"""Items of a history that are looked at, the latest ones."""


class NumberArray(Record, frozen=True, kw_only=True):
    """An array of numbers as bytes in C order, little-endian. In JSON the bytes are base64.

    Examples
    --------
    >>> NumberArray.of(np.array([[1.0, 2.0]], dtype=np.float32)).shape
    [1, 2]
    """

    dtype: Literal["<f2", "<f4", "<f8", "<i8"]
    shape: Annotated[list[Annotated[int, Meta(ge=1)]], Meta(min_length=1, max_length=3)]
    data: bytes

    @classmethod
    def of(cls, array: NDArray[Any]) -> NumberArray:
        """Return the struct of an array. Integers become ``<i8``, floats keep their size up to ``<f8``."""
        dtype: Any = "<i8" if array.dtype.kind in "iu" else f"<f{min(array.itemsize, 8)}"
        return cls(dtype=dtype, shape=list(array.shape), data=np.ascontiguousarray(array, dtype=dtype).tobytes())

    def to_numpy(self) -> NDArray[Any]:
        """Return the array, as a read-only view of the bytes."""
        dtype = np.dtype(self.dtype)
        if math.prod(self.shape) * dtype.itemsize != len(self.data):
            raise InvalidInputError(f"{len(self.data)} bytes are not an array of {self.shape} {self.dtype}.")
        return np.frombuffer(self.data, dtype).reshape(self.shape)


class RetrieveRequest(Record, frozen=True, kw_only=True):
    """The users of one call: either their vectors or their histories."""

    vectors: Annotated[
        list[list[float | list[float]]] | NumberArray | None,
        Meta(
            description="One vector per user, or several for each (an item's relevance is its best over them). A user"
            " whose vectors are all zero is cold."
        ),
    ] = None
    histories: Annotated[
        list[list[Label]] | None,
        Meta(
            description="In place of vectors: item ids of each user, oldest first. Unknown ones are ignored, and so are"
            f" all but the latest {LONGEST_HISTORY:,}. A user without any known one is cold."
        ),
    ] = None
    k: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="Candidates per user.")] = None
    request_ids: Annotated[
        list[RequestId | None] | None,
        Meta(
            description="One idempotency key per user. A repeated one gets the same answer and is counted once, while"
            " the service saves answers (24 hours, or what fits a size, by default). After that it is refused with 410."
        ),
    ] = None


class RetrieveAnswer(Record, frozen=True, kw_only=True):
    """The candidates of one user, best relevance first."""

    request_id: str | None
    ids: list[Label]
    groups: list[Label]
    relevance: list[float]
    searched: Annotated[float, Meta(description="Share of the catalog that was searched.")]
    degraded: bool
    cold: Annotated[
        bool, Meta(description="Whether nothing was known of the user, so that the candidates are those of a fallback.")
    ]


class RetrieveAnswers(Record, frozen=True, kw_only=True):
    """The answer to a call in JSON, in the order of its users."""

    answers: list[RetrieveAnswer]


class RetrieveColumns(Record, frozen=True, kw_only=True):
    """The answer to a call in MessagePack: one row per user, strings as plain lists."""

    request_ids: list[str | None]
    ids: NumberArray | list[list[Label]]
    groups: NumberArray | list[list[Label]]
    relevance: NumberArray
    searched: NumberArray
    cold: list[bool] | None = None


class UpsertItems(Record, frozen=True, kw_only=True):
    """Items to add, or to replace where their ids are known."""

    ids: Annotated[list[NewLabel], Meta(min_length=1, description="All strings or all integers, as in the catalog.")]
    groups: Annotated[list[NewLabel], Meta(min_length=1, description="One label per item.")]
    embeddings: Annotated[list[list[float]] | NumberArray, Meta(description="One vector per item.")]


class ItemIds(Record, frozen=True, kw_only=True):
    """Items to remove."""

    ids: Annotated[list[Label], Meta(min_length=1, max_length=10_000)]


class CatalogSize(Record, frozen=True, kw_only=True):
    """The result of a change of the catalog."""

    items: Annotated[int, Meta(description="Items in the catalog after the change.")]


class ImpressionReport(Record, frozen=True, kw_only=True):
    """The candidates of one request that were really shown."""

    request_id: RequestId
    items: Annotated[list[Label], Meta(max_length=1_000)]
    report_id: Annotated[
        Annotated[str, Meta(max_length=200)] | None,
        Meta(description="Idempotency key that tells reports on one request apart; a repeated one counts once."),
    ] = None


class ImpressionReports(Record, frozen=True, kw_only=True):
    """Reports on several requests."""

    reports: Annotated[list[ImpressionReport], Meta(min_length=1, max_length=1_000)]


class ImpressionResult(Record, frozen=True, kw_only=True):
    """The result of a call that reports impressions."""

    counted: Annotated[int, Meta(description="Exposures that were counted now.")]
    repeated: Annotated[int, Meta(description="Reports that had been made before.")]
    unknown: Annotated[int, Meta(description="Items that are not in the catalog, or were not candidates.")]
