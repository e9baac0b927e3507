"""Promises, their status, and their past windows."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, field

from fairsync.errors import InvalidInputError
from fairsync.service.schema.record import Label, Moment, Record


class WindowRecord(Record, frozen=True, kw_only=True):
    """The time within which a floor holds.

    Examples
    --------
    >>> import msgspec
    >>> msgspec.json.decode(b'{"every": "campaign", "start": "2026-03-01", "end": "2026-03-14"}', type=WindowRecord)
    WindowRecord(every='campaign', zone='UTC', start='2026-03-01', end='2026-03-14', days=None)
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
    days: Annotated[
        Annotated[int, Meta(ge=1, le=400)] | None,
        Meta(
            description="Length of a campaign that begins for each label or item when it comes, in days: for promises"
            " with `each`, in place of `start` and `end`."
        ),
    ] = None


Bound = Annotated[int, Meta(ge=0, le=2**40)] | Annotated[float, Meta(ge=0, extra_json_schema={"maximum": 1})]
"""A number of exposures, or with a decimal point a share of all slots of the window."""
Conditions = Annotated[
    dict[str, Any],
    Meta(
        description="Conditions on attributes, all of which the items meet: a value, a list of values (one of them),"
        ' {"not": ...}, or a range {"at_least": number, "at_most": number}. No condition selects all items.',
        examples=[{"category": "toys"}, {"provider": ["acme", "best"], "new": True}],
    ),
]
_AT_LEAST = (
    "Least exposures in each window: a whole number, or with a decimal point a share of all slots, such as 0.05."
)
_AT_MOST = "Most exposures in each window: a whole number, or a share of all slots."
CostShare = Annotated[
    float | None,
    Meta(
        description="Relevance lost where items of the selection took the place of better ones, as a share of all"
        " relevance: an estimate for this period. Null before the first estimate."
    ),
]
"""What a promise has cost."""
_PRIORITY = "1 is kept first: where not all promises can hold, those with larger numbers give way."
_MAX_PRICE = (
    "Give up rather than pay more for an exposure, in units of the mean relevance of the last candidate."
    " Null: no limit."
)


class PromiseRecord(Record, frozen=True, kw_only=True):
    """Bounds on the exposures of a selection of items, in every window.

    The short form ``{"group": label, "floor": number, "window": ...}`` means all items with that label of the first
    attribute, and at least that many exposures.

    Examples
    --------
    >>> import msgspec
    >>> text = b'{"where": {"category": "toys"}, "at_least": 0.05, "window": {"every": "day"}}'
    >>> msgspec.json.decode(text, type=PromiseRecord).at_least
    0.05
    """

    window: WindowRecord
    where: Conditions | None = None
    at_least: Annotated[Bound | None, Meta(description=_AT_LEAST)] = None
    at_most: Annotated[Bound | None, Meta(description=_AT_MOST)] = None
    at_most_per_list: Annotated[
        Annotated[int, Meta(ge=0, le=2**31)] | None, Meta(description="Most items of the selection in one answer.")
    ] = None
    priority: Annotated[int, Meta(ge=1, le=2**31, description=_PRIORITY)] = 1
    max_price: Annotated[Annotated[float, Meta(ge=0, le=1e9)] | None, Meta(description=_MAX_PRICE)] = None
    each: Annotated[
        Annotated[str, Meta(min_length=1, max_length=500)] | None,
        Meta(
            description="An attribute: one promise for each of its labels, also for labels that come later. `where` has"
            " further conditions."
        ),
    ] = None
    name: Annotated[
        str, Meta(max_length=200, description="How reports call it. Made of the conditions by default.")
    ] = ""
    group: Annotated[Label | None, Meta(description="Short form of `where`: a label of the first attribute.")] = None
    floor: Annotated[
        Annotated[int, Meta(ge=1, le=2**40)] | None, Meta(description="Short form of `at_least`, for `group`.")
    ] = None

    def __post_init__(self) -> None:
        bounds = (self.at_least, self.at_most, self.at_most_per_list)
        if (self.group is None) != (self.floor is None):
            raise InvalidInputError("a promise has both 'group' and 'floor', or 'where' with 'at_least' or 'at_most'")
        if self.group is not None and (self.where is not None or self.each is not None or bounds != (None, None, None)):
            raise InvalidInputError(
                "'group' and 'floor' are short for 'where' and 'at_least': give either these or those"
            )
        if self.group is None and self.where is None and self.each is None:
            raise InvalidInputError("a promise needs 'where', the conditions on its items; {} selects all items")
        if self.group is None and bounds == (None, None, None):
            raise InvalidInputError("a promise needs a bound: 'at_least', 'at_most' or 'at_most_per_list'")
        for name in ("at_least", "at_most"):
            bound = getattr(self, name)
            if isinstance(bound, float | np.floating) and bound > 1:
                whole = f", such as {bound:.0f}" if float(bound).is_integer() else ""
                raise InvalidInputError(
                    f"{name} is {bound!s}: a share of all slots is at most 1.0, and a number of exposures is a whole"
                    f" number{whole}, without a decimal point"
                )


class PromiseList(Record, frozen=True, kw_only=True):
    """Promises that are made together, or not at all."""

    promises: Annotated[list[PromiseRecord], Meta(min_length=1)]


PromiseState = Literal["kept", "on track", "at risk", "impossible"]
"""How a promise stands in its window: its floor is reached; the traffic that can be counted on delivers what is
missing; only the expected traffic does; not even that does, or a bound is broken."""


class PromiseView(Record, frozen=True, kw_only=True):
    """A promise and its status in the current window."""

    id: Annotated[str, Meta(description="Id of the promise, for changing and deleting it.")]
    name: Annotated[str, Meta(description="How reports call it.")]
    where: Conditions
    at_least: Annotated[Bound | None, Meta(description=_AT_LEAST)] = None
    at_most: Annotated[Bound | None, Meta(description=_AT_MOST)] = None
    at_most_per_list: Annotated[int | None, Meta(description="Most items of the selection in one answer.")] = None
    priority: Annotated[int, Meta(description=_PRIORITY)] = 1
    max_price: Annotated[float | None, Meta(description=_MAX_PRICE)] = None
    each: Annotated[str | None, Meta(description="The attribute of whose labels each has such a promise.")] = None
    series: Annotated[str | None, Meta(description="Id of the promise for each label, to change or delete it.")] = None
    window: WindowRecord
    group: Annotated[
        Label | None,
        Meta(description="The label, if the promise is about all items with a label of the first attribute."),
    ] = None
    floor: Annotated[int, Meta(description="Least exposures in the current window; of a share, by expected traffic.")]
    cap: Annotated[
        int | None, Meta(description="Most exposures in the current window; of a share, by expected traffic.")
    ] = None
    start: Annotated[Moment, Meta(description="Start of the current window.")]
    end: Annotated[Moment, Meta(description="End of the current window.")]
    exposures: Annotated[
        int, Meta(description="Exposures in the current window so far: retrieved or shown, whichever counts.")
    ]
    projected: Annotated[float, Meta(description="Exposures expected at the end of the window.")]
    price: Annotated[float, Meta(description="Subtracted from relevance; a subsidy is negative.")] = 0.0
    cost_share: CostShare = None
    slots: Annotated[float, Meta(description="Slots of the window, by the traffic so far and the forecast.")] = 0.0
    possible: Annotated[bool, Meta(description="Whether the expected traffic can still keep the promise.")]
    shortfall: Annotated[float, Meta(description="Exposures that will be missing at the end, as far as known now.")]
    impossible_since: Annotated[
        Moment | None, Meta(description="When it became known that the promise cannot be kept.")
    ] = None
    state: PromiseState
    gives_way_to: Annotated[
        list[str], Meta(description="Ids of the promises that need the slots that this one will miss.")
    ] = field(default_factory=list)
    would_cost: Annotated[
        float | None,
        Meta(
            description="Relevance that the exposures which are given up would cost, about; null if none are given up,"
            " or if it is not known."
        ),
    ] = None
    eligible_share: Annotated[
        float | None,
        Meta(
            description="Share of requests that could show the items at all. Null as long as no request excluded more"
            " items than was declared, or had a condition."
        ),
    ] = None
    reason: Annotated[
        str, Meta(description="Why the promise is at risk or cannot be kept, such as 'only 3 % of requests ...'.")
    ] = ""


class PastWindow(Record, frozen=True, kw_only=True):
    """A window that is over."""

    promise: str
    name: Annotated[str, Meta(description="How reports call the promise.")] = ""
    group: Annotated[Label | None, Meta(description="The label, if it was a promise to one.")] = None
    start: Moment
    end: Moment
    floor: Annotated[int, Meta(description="Least exposures; of a share, by the slots that the window really had.")]
    cap: Annotated[int | None, Meta(description="Most exposures; of a share, by the slots that it really had.")] = None
    share: Annotated[float | None, Meta(description="Exposures as a share of the slots of the window.")] = None
    priority: int = 1
    exposures: int
    kept: bool
    requests: Annotated[int, Meta(description="Requests in the window, that could deliver the exposures.")] = 0
    at_risk_since: Annotated[Moment | None, Meta(description="Time of the first warning.")] = None
    impossible_since: Annotated[
        Moment | None, Meta(description="When it became known that the promise cannot be kept.")
    ] = None
    foreseen: Annotated[int, Meta(description="The shortfall that was foreseen at that time.")] = 0
    note: Annotated[str, Meta(description="Further reasons why the floor was missed.")] = ""
    gave_way_to: Annotated[
        list[str], Meta(description="Names of the promises that needed the slots that it missed.")
    ] = field(default_factory=list)
    would_cost: Annotated[
        float | None, Meta(description="Relevance that the exposures which were given up would have cost, about.")
    ] = None


class PacePoint(Record, frozen=True, kw_only=True):
    """The state of a promise at one moment."""

    at: Moment
    exposures: int
    requests: int
    price: float


class Pace(Record, frozen=True, kw_only=True):
    """A promise over its current window: past points, the expected pace, and the projection."""

    promise: str
    name: str = ""
    group: Label | None = None
    floor: int
    cap: Annotated[int | None, Meta(description="The ceiling: most exposures at the end of the window.")] = None
    start: Moment
    end: Moment
    points: list[PacePoint]
    expected: Annotated[
        list[tuple[Moment, float]], Meta(description="Pace to the floor that follows the traffic forecast.")
    ]
    projected: float
    low: Annotated[float, Meta(description="Exposures at the end with the lower bound of the traffic forecast.")]
    high: Annotated[float, Meta(description="Exposures at the end at the pace so far, or as projected if higher.")]
    cost_share: CostShare = None
    slots: Annotated[float, Meta(description="Slots of the window, by the traffic so far and the forecast.")] = 0.0


class Preview(Record, frozen=True, kw_only=True):
    """The consequences of a promise, before it is made."""

    feasible: bool
    largest: Annotated[
        int, Meta(description="Largest floor that the expected traffic can deliver, beside those of its priority.")
    ]
    safe: Annotated[int, Meta(description="Largest floor that the lower bound of the traffic forecast can deliver.")]
    largest_share: Annotated[
        float | None, Meta(description="The largest floor as a share of the slots; null for numbers of exposures.")
    ] = None
    pushes_out: Annotated[
        list[str], Meta(description="Ids of the promises that would be missed if it were made all the same.")
    ] = field(default_factory=list)
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
