"""Promises, their status, and their past windows."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from fairsync.service.schema.record import Label, Moment, Record


class WindowRecord(Record, frozen=True, kw_only=True):
    """The time within which a floor holds.

    Examples
    --------
    >>> import msgspec
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
    floor: Annotated[int, Meta(ge=1, le=2**40)]
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
    possible: Annotated[bool, Meta(description="Whether the expected traffic can still deliver the floor.")]
    shortfall: Annotated[float, Meta(description="Exposures that will be missing at the end, as far as known now.")]
    impossible_since: Annotated[
        Moment | None, Meta(description="When it became known that the promise cannot be kept.")
    ] = None
    state: Literal["kept", "on track", "at risk", "impossible"]
    eligible_share: Annotated[
        float | None,
        Meta(
            description="Share of requests that could show the group at all. Null as long as no request excluded more"
            " items than was declared, or had a condition."
        ),
    ] = None
    reason: Annotated[
        str, Meta(description="Why few eligible items put the promise at risk, such as 'only 3 % of requests ...'.")
    ] = ""


class PastWindow(Record, frozen=True, kw_only=True):
    """A window that is over."""

    promise: str
    group: Label
    start: Moment
    end: Moment
    floor: int
    exposures: int
    kept: bool
    requests: Annotated[int, Meta(description="Requests in the window, that could deliver the exposures.")] = 0
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
    low: Annotated[float, Meta(description="Exposures at the end with the lower bound of the traffic forecast.")]
    high: Annotated[float, Meta(description="Exposures at the end at the pace so far, or as projected if higher.")]


class Preview(Record, frozen=True, kw_only=True):
    """The consequences of a promise, before it is made."""

    feasible: bool
    largest: Annotated[int, Meta(description="Largest floor that the expected traffic can deliver.")]
    safe: Annotated[int, Meta(description="Largest floor that the lower bound of the traffic forecast can deliver.")]
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
