"""The schema of the API: one set of structs for JSON, MessagePack, validation and the OpenAPI document.

Server, client and promise service share these structs. Decoding validates; constructing one in Python does not.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta, Struct

from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

JSON, MSGPACK = "application/json", "application/msgpack"

Label = Annotated[int, Meta(ge=-(2**63) + 1, le=2**63 - 1)] | Annotated[str, Meta(min_length=1, max_length=500)]
"""The label of a group or the id of an item: an integer or a string, as in the catalog; "7" is not 7."""
Moment = Annotated[datetime, Meta(tz=True)]
"""A datetime with its offset from UTC."""
RequestId = Annotated[str, Meta(min_length=1, max_length=200)]


class Record(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all structs: immutable, without unknown fields."""


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):  # such as a float64 out of a computation
        return value.item()
    raise NotImplementedError(f"{type(value).__name__} has no JSON form")


encode_json = msgspec.json.Encoder(enc_hook=_plain).encode
"""Encodes a struct, or a list of them; numpy scalars as plain numbers."""


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
        Meta(description="One vector per user, or several for each (an item's relevance is its best over them)."),
    ] = None
    histories: Annotated[
        list[list[Label]] | None,
        Meta(description="In place of vectors: item ids of each user, oldest first. Unknown ones are ignored."),
    ] = None
    k: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="Candidates per user.")] = None
    request_ids: Annotated[
        list[RequestId | None] | None,
        Meta(description="One idempotency key per user. A repeated one gets the same answer and is counted once."),
    ] = None


class RetrieveAnswer(Record, frozen=True, kw_only=True):
    """The candidates of one user, best relevance first."""

    request_id: str | None
    ids: list[Label]
    groups: list[Label]
    relevance: list[float]
    searched: Annotated[float, Meta(description="Share of the catalog that was searched.")]
    degraded: bool


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


class UpsertItems(Record, frozen=True, kw_only=True):
    """Items to add, or to replace where their ids are known."""

    ids: Annotated[list[Label], Meta(min_length=1, description="All strings or all integers, as in the catalog.")]
    groups: Annotated[list[Label], Meta(min_length=1, description="One label per item.")]
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


class WindowRecord(Record, frozen=True, kw_only=True):
    """The time within which a floor holds.

    Examples
    --------
    >>> msgspec.json.decode(b'{"every": "campaign", "start": "2026-03-01", "end": "2026-03-14"}', type=WindowRecord)
    WindowRecord(every='campaign', zone='UTC', start='2026-03-01', end='2026-03-14')
    """

    every: Annotated[
        Literal["hour", "day", "week", "campaign"],
        Meta(description="Length of a window. A campaign has a single window."),
    ]
    zone: Annotated[str, Meta(description="IANA time zone in which hours, days and weeks begin.")] = "UTC"
    start: Annotated[
        str | None,
        Meta(
            description="Start of a campaign, or of the first hour, day or week: a moment with its offset from UTC, or"
            " a day of the zone.",
            examples=["2026-03-01", "2026-03-01T08:00:00+01:00"],
        ),
    ] = None
    end: Annotated[
        str | None,
        Meta(
            description="End of a campaign, or of the last hour, day or week: a moment with its offset from UTC"
            " (exclusive), or a day of the zone (inclusive).",
            examples=["2026-03-14", "2026-03-14T20:00:00+01:00"],
        ),
    ] = None


class PromiseRecord(Record, frozen=True, kw_only=True):
    """A minimum number of exposures for a group, in every window."""

    group: Label
    floor: Annotated[int, Meta(ge=1, le=2**53)]
    window: WindowRecord


class PromiseView(PromiseRecord, frozen=True, kw_only=True):
    """A promise and its status in the current window."""

    id: Annotated[str, Meta(description="Id of the promise, for changing and deleting it.")]
    start: Annotated[Moment, Meta(description="Start of the current window.")]
    end: Annotated[Moment, Meta(description="End of the current window.")]
    exposures: Annotated[
        int, Meta(description="Exposures in the current window so far: retrieved or shown, whichever counts.")
    ]
    projected: Annotated[float, Meta(description="Exposures expected at the end of the window.")]
    possible: Annotated[bool, Meta(description="Whether the expected traffic can still carry the floor.")]
    shortfall: Annotated[float, Meta(description="Exposures that will be missing at the end, as far as known now.")]
    impossible_since: Annotated[
        Moment | None, Meta(description="When it became known that the promise cannot be kept.")
    ] = None
    state: Literal["kept", "on track", "at risk", "impossible"]


class PastWindow(Record, frozen=True, kw_only=True):
    """A window that is over."""

    promise: str
    group: Label
    start: Moment
    end: Moment
    floor: int
    exposures: int
    kept: bool
    requests: Annotated[int, Meta(description="Requests in the window, which could carry the exposures.")] = 0
    at_risk_since: Annotated[Moment | None, Meta(description="Time of the first warning.")] = None
    impossible_since: Annotated[
        Moment | None, Meta(description="When it became known that the promise cannot be kept.")
    ] = None
    foreseen: Annotated[int, Meta(description="The shortfall that was foreseen at that time.")] = 0
    note: Annotated[str, Meta(description="Further reasons why the floor was missed.")] = ""


class PacePoint(Record, frozen=True, kw_only=True):
    """The state of a promise at one moment."""

    at: Moment
    exposures: int
    requests: int
    price: float


class Pace(Record, frozen=True, kw_only=True):
    """A promise over its current window: past points, the expected pace, and the projection."""

    promise: str
    group: Label
    floor: int
    start: Moment
    end: Moment
    points: list[PacePoint]
    expected: Annotated[
        list[tuple[Moment, float]], Meta(description="Pace to the floor that follows the traffic forecast.")
    ]
    projected: float
    low: Annotated[float, Meta(description="Exposures at the end under worst-case traffic.")]
    high: Annotated[float, Meta(description="Exposures at the end at the pace so far, or as projected if higher.")]


class Preview(Record, frozen=True, kw_only=True):
    """The consequences of a promise, before it is made."""

    feasible: bool
    largest: Annotated[int, Meta(description="Largest floor that the expected traffic can carry.")]
    safe: Annotated[int, Meta(description="Largest floor that worst-case traffic can carry, too.")]
    least_cost: Annotated[
        float | None,
        Meta(
            description="Relevance per request that all promises together cost at least, on recent requests; null if"
            " unknown."
        ),
    ]
    least_cost_share: Annotated[
        float | None, Meta(description="The least cost as a share of the relevance without promises; null if unknown.")
    ]
    message: str


class GroupView(Record, frozen=True, kw_only=True):
    """A group and its counts in the current period, which ends with the next window."""

    group: Label
    items: int
    retrieved: int
    impressions: int
    floor: Annotated[int, Meta(description="Exposures needed in the current period.")]
    price: Annotated[float, Meta(description="Subtracted from relevance; a subsidy is negative.")]
    cost_share: Annotated[
        float | None,
        Meta(
            description="Relevance lost where its items displaced better ones, as a share of the relevance without"
            " promises; estimated with `Overview.least`, null while that is unknown."
        ),
    ]


class Alert(Record, frozen=True, kw_only=True):
    """A condition that needs attention."""

    kind: Literal["at risk", "impossible", "degraded", "shard", "ledger", "clock"]
    group: Label | None = None
    promise: str | None = None
    message: str
    since: Moment


class ShardView(Record, frozen=True, kw_only=True):
    """A replica of a shard and its health."""

    shard: int
    replica: int
    items: int
    up: bool
    error: str = ""


class LeastCost(Record, frozen=True, kw_only=True):
    """The cost of the promises beside the least possible cost, estimated on a sample of the requests of a period.

    The least possible cost is that of the best plan for the same exposures in hindsight, when all requests are known.
    An online decision has to give up more.
    """

    sample: Annotated[int, Meta(description="Requests in the sample; 0 before the first estimate.")]
    at: Annotated[Moment | None, Meta(description="Time of the estimate.")] = None
    cost_share: Annotated[
        float | None, Meta(description="Relevance given up, as a share of the sample's relevance without promises.")
    ] = None
    least_share: Annotated[float | None, Meta(description="The least possible share.")] = None
    ratio: Annotated[
        float | None, Meta(description="Cost over least cost; null if unknown, or if nothing was given up.")
    ] = None
    ratio_low: Annotated[float | None, Meta(description="Lower confidence bound of the ratio.")] = None
    ratio_high: Annotated[float | None, Meta(description="Upper confidence bound of the ratio.")] = None
    reason: Annotated[str, Meta(description="Why there is no estimate, or no newer one; empty if there is one.")]
    replica: Annotated[
        str,
        Meta(
            description="The replica that made the estimate, if there may be several: each uses the requests that it"
            " answered itself, under its own prices."
        ),
    ] = ""


class Overview(Record, frozen=True, kw_only=True):
    """The state of all promises, groups and shards."""

    now: Moment
    started: Moment
    count: Literal["retrieved", "impressions"]
    policy: str
    k: int
    items: int
    period_start: Moment
    period_end: Moment
    requests: Annotated[int, Meta(description="Requests in the current period.")]
    expected_requests: Annotated[float, Meta(description="Requests forecast for the whole period.")]
    relevance: float
    cost: Annotated[
        float | None, Meta(description="Upper bound of the relevance given up for the promises in this period.")
    ]
    cost_share: Annotated[float | None, Meta(description="The cost as a share of the relevance without promises.")]
    least: LeastCost
    degraded: Annotated[float, Meta(description="Share of recent answers that lacked a part of the catalog.")]
    promises: list[PromiseView]
    groups: list[GroupView]
    alerts: list[Alert]
    shards: list[ShardView]


class ReportView(Record, frozen=True, kw_only=True):
    """The promises in a few numbers."""

    now: Moment
    promises: int
    kept: Annotated[int, Meta(description="Promises whose floor is reached in their current window.")]
    on_track: int
    at_risk: int
    impossible: int
    past_windows: Annotated[int, Meta(description="Number of the latest windows that are over.")]
    past_kept: Annotated[int, Meta(description="Number of those in which the floor was reached.")]
    esp: Annotated[float | None, Meta(description="Share of past windows that were kept; null before the first.")]
    cost_share: Annotated[
        float | None, Meta(description="Relevance given up in this period, as a share; null: unknown.")
    ]
    alerts: int


class HealthStatus(Record, frozen=True, kw_only=True):
    """Liveness or readiness."""

    ok: bool
    message: str


class ProblemRecord(Record, frozen=True, kw_only=True):
    """The reason why a call failed."""

    error: Annotated[str, Meta(description="A stable word for programs.")]
    message: Annotated[str, Meta(description="The reason, for people.")]
    hint: Annotated[str, Meta(description="What to do next.")]
