"""Candidates, items and impressions: the calls that carry vectors or item ids."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from msgspec import UNSET, Meta, UnsetType

from fairsync.errors import InvalidInputError
from fairsync.service.schema.explanation import ExplanationView  # noqa: TC001 (msgspec reads it)
from fairsync.service.schema.record import Label, NewLabel, Record, RequestId

if TYPE_CHECKING:
    from numpy.typing import NDArray

AttributeValue = bool | int | float | str | list[bool | int | str]
"""The value of an attribute of an item. The catalog checks that all values of an attribute are of one kind."""

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
            " A repeated id gets the saved answer whatever else the request says."
        ),
    ] = None
    exclude: Annotated[
        list[list[Label]] | None,
        Meta(description="For each user the ids of items to leave out. Ids that are no items are counted and ignored."),
    ] = None
    where: Annotated[
        dict[str, Any] | list[dict[str, Any] | None] | None,
        Meta(
            description="Conditions by attribute, all of which an item must meet: a value, a list of values (one of"
            ' them), {"not": value or list}, or for numbers {"at_least": number, "at_most": number}. One object for all'
            " users, or one per user. If no item meets them, the list is empty.",
            examples=[{"region": ["DE", "AT"], "in_stock": True, "price": {"at_most": 50}}],
        ),
    ] = None
    exclude_history: Annotated[
        bool, Meta(description="Whether to leave out the items of the histories. Without histories it has no effect.")
    ] = True
    explain: Annotated[
        bool, Meta(description="Whether to say why each candidate is there. Counts twice for the rate limit.")
    ] = False


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
    short: Annotated[
        bool, Meta(description="Whether there are fewer than k candidates, because fewer items are eligible.")
    ] = False
    unknown_excluded: Annotated[int, Meta(description="Excluded ids that are not in the catalog.")] = 0
    explanation: Annotated[
        ExplanationView | UnsetType | None,
        Meta(description="If it was asked for. null: the answer was saved without it."),
    ] = UNSET


class RetrieveAnswers(Record, frozen=True, kw_only=True):
    """The answer to a call in JSON, in the order of its users."""

    answers: list[RetrieveAnswer]


class RetrieveColumns(Record, frozen=True, kw_only=True):
    """The answer to a call in MessagePack: one row per user, strings as plain lists.

    If a list is short, all are plain lists, and that one has fewer than ``k`` entries.
    """

    request_ids: list[str | None]
    ids: NumberArray | list[list[Label]]
    groups: NumberArray | list[list[Label]]
    relevance: NumberArray | list[list[float]]
    searched: NumberArray
    k: int
    short: list[bool]
    unknown_excluded: list[int]
    cold: list[bool] | None = None
    explanations: list[ExplanationView | None] | UnsetType = UNSET


class UpsertItems(Record, frozen=True, kw_only=True):
    """Items to add, or to change where their ids are known. What is left out stays; a new item needs all of it."""

    ids: Annotated[list[NewLabel], Meta(min_length=1, description="All strings or all integers, as in the catalog.")]
    groups: Annotated[
        Annotated[list[NewLabel], Meta(min_length=1)] | None,
        Meta(description="One label per item. Left out if the items keep their groups, or if they are an attribute."),
    ] = None
    embeddings: Annotated[
        list[list[float]] | NumberArray | None,
        Meta(description="One vector per item. Left out if the items keep theirs: then only attributes change."),
    ] = None
    attributes: Annotated[
        dict[str, list[AttributeValue]] | None,
        Meta(
            description="Values of other attributes of the catalog: for each attribute one value per item, a label, a"
            " number, or a list of labels.",
            examples=[{"in_stock": [False, True], "price": [9.5, 12.0]}],
        ),
    ] = None


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
