"""What the service says and is told: the shapes that API, dashboard and client share."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fairsync.errors import InvalidInputError
from fairsync.schedule import Window
from fairsync.schedule.window import edge_of

Label = Annotated[int, Field(strict=True)] | Annotated[str, Field(strict=True, min_length=1, max_length=500)]
"""Of an item or a group: a number or a word, as in the catalog; "7" is not 7."""
Moment = datetime


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class WindowRecord(_Record):
    """The time within which a floor holds.

    Examples
    --------
    >>> window = WindowRecord.model_validate(
    ...     {"every": "campaign", "zone": "Europe/Berlin", "start": "2026-03-01", "end": "2026-03-14"}
    ... )
    >>> window.start.isoformat(), window.end.isoformat()
    ('2026-02-28T23:00:00+00:00', '2026-03-14T23:00:00+00:00')
    """

    every: Literal["hour", "day", "week", "campaign"] = Field(description="How long a window is; a campaign has one.")
    zone: str = Field(default="UTC", description="IANA time zone in which hours, days and weeks begin.")
    start: Moment | None = Field(
        default=None,
        description="Of a campaign, or from when on hours, days or weeks count: a moment with its offset from UTC, or a"
        " day of the zone (2026-03-01).",
    )
    end: Moment | None = Field(
        default=None,
        description="Of a campaign, or until when hours, days or weeks count: a moment with its offset from UTC, not"
        " included, or a day of the zone, included.",
    )

    @model_validator(mode="before")
    @classmethod
    def _days_as_moments(cls, given: Any) -> Any:
        """Take days as people say them: from the start of the first to the end of the last."""
        if not isinstance(given, dict):
            return given
        zone, edges = given.get("zone", "UTC"), {}
        for name in ("start", "end"):
            edges[name] = _day_or_moment(given.get(name))
            if isinstance(edges[name], datetime) and edges[name].utcoffset() is None:
                raise InvalidInputError(_without_offset(name, edges[name], zone))
        named = {name: edge for name, edge in edges.items() if isinstance(edge, date)}
        try:
            return {**given, **{name: edge_of(edge, name, zone) for name, edge in named.items()}}
        except OverflowError:
            raise InvalidInputError("start and end must lie in the years 1900 to 9000") from None


def _day_or_moment(given: Any) -> Any:
    """Return the day or moment that a text means; what is neither, as it came, for pydantic to say what it lacks."""
    if not isinstance(given, str):
        return given
    try:
        return date.fromisoformat(given) if re.fullmatch(r"\d{4}-\d\d-\d\d", given) else datetime.fromisoformat(given)
    except ValueError:
        return given


def _without_offset(name: str, moment: datetime, zone: str) -> str:
    Window.day(zone)  # says which zone may be meant, if there is none of that name
    meant, day = moment.replace(tzinfo=ZoneInfo(zone)).isoformat(), moment.date().isoformat()
    return f"{name} is {moment.isoformat()} without its offset from UTC: write {meant}, or the day alone, {day}"


class PromiseRecord(_Record):
    """So many exposures for a group, in every window."""

    group: Label
    floor: int = Field(ge=1, le=2**53, strict=True)
    window: WindowRecord


class PromiseView(PromiseRecord):
    """A promise and where it stands."""

    id: str = Field(description="Of the promise, for changing and deleting it.")
    start: Moment = Field(description="Of the present window.")
    end: Moment
    exposures: int = Field(description="In the present window so far: retrieved or shown, whichever counts.")
    projected: float = Field(description="Exposures expected at the end of the window.")
    possible: bool = Field(description="Whether the expected traffic can still carry it.")
    shortfall: float = Field(description="What will be missing at the end, as far as is known now.")
    impossible_since: Moment | None = Field(default=None, description="When it became known that it cannot be kept.")
    state: Literal["kept", "on track", "at risk", "impossible"]


class GroupView(_Record):
    """A group, and how it fares in the present tick: the time until the next window ends."""

    group: Label
    items: int
    retrieved: int
    impressions: int
    floor: int = Field(description="Needed in the present tick.")
    price: float = Field(description="Subtracted from relevance; a subsidy is negative.")
    cost_share: float | None = Field(
        description="Relevance lost where its items took the place of better ones, as a share of the relevance without"
        " promises; estimated with `Overview.least`, null as long as that is unknown."
    )


class Alert(_Record):
    """Something that somebody should know."""

    kind: Literal["at risk", "impossible", "degraded", "shard", "ledger", "clock"]
    group: Label | None = None
    promise: str | None = None
    message: str
    since: Moment


class ShardView(_Record):
    """A part of the catalog and how it is."""

    shard: int
    replica: int
    items: int
    up: bool
    error: str = ""


class LeastCost(_Record):
    """What promises cost next to the least possible: an estimate, on a sample of the requests of a tick.

    The least is that of the best plan for the same exposures, made in hindsight, when all requests are known. Whoever
    answers them as they come has to give up more.
    """

    sample: int = Field(description="Requests on which it was estimated; 0 if it was not yet.")
    at: Moment | None = Field(description="When.")
    cost_share: float | None = Field(description="Given up on the sample, of its relevance without promises.")
    least_share: float | None = Field(description="The least possible, of the same.")
    ratio: float | None = Field(description="The first over the second; null if unknown, or if nothing was given up.")
    ratio_low: float | None = Field(description="On all requests the ratio is probably no less than this.")
    ratio_high: float | None = Field(description="On all requests the ratio is probably no more than this.")
    reason: str = Field(description="Why there is no estimate, or no newer one; empty if there is one.")
    replica: str = Field(
        default="",
        description="Which replica of the service says so, where there may be several: each estimates from requests"
        " that it has answered itself, under prices of its own.",
    )


class Overview(_Record):
    """Where everything stands."""

    now: Moment
    started: Moment
    count: Literal["retrieved", "impressions"]
    policy: str
    k: int
    items: int
    period_start: Moment
    period_end: Moment
    requests: int = Field(description="In the present tick.")
    expected_requests: float = Field(description="In the whole tick, by the forecast.")
    relevance: float
    cost: float | None = Field(description="Relevance given up for the promises in this tick, at most.")
    cost_share: float | None = Field(description="The cost as a share of the relevance without promises.")
    least: LeastCost
    degraded: float = Field(description="Share of recent answers that lacked a part of the catalog.")
    promises: list[PromiseView]
    groups: list[GroupView]
    alerts: list[Alert]
    shards: list[ShardView]


class PastWindow(_Record):
    """A window that is over."""

    promise: str
    group: Label
    start: Moment
    end: Moment
    floor: int
    exposures: int
    kept: bool
    requests: int = Field(default=0, description="That came in it, and could carry the exposures.")
    at_risk_since: Moment | None = Field(default=None, description="When it was first warned of.")
    impossible_since: Moment | None = Field(default=None, description="When it became known that it cannot be kept.")
    foreseen: int = Field(default=0, description="The shortfall that was foreseen then.")
    note: str = Field(default="", description="What else is known of why it was missed.")


class PacePoint(_Record):
    """Where a promise stood at some moment, for drawing its pace."""

    at: Moment
    exposures: int
    requests: int
    price: float


class Pace(_Record):
    """A promise over its present window: what was, what is expected, and the straight line of the forecast."""

    promise: str
    group: Label
    floor: int
    start: Moment
    end: Moment
    points: list[PacePoint]
    expected: list[tuple[Moment, float]] = Field(description="The pace that the forecast asks for, to the floor.")
    projected: float
    low: float = Field(description="Exposures at the end if only traffic comes that can be counted on.")
    high: float = Field(description="Exposures at the end at the pace so far, or as projected if that is more.")


class Preview(_Record):
    """What would come of a promise, before it is made."""

    feasible: bool
    largest: int = Field(description="The largest floor that the expected traffic can carry.")
    safe: int = Field(description="The largest floor that also little traffic can carry.")
    least_cost: float | None = Field(
        description="Relevance that all promises together cost per request, at least: the least possible on recent"
        " requests; null if unknown."
    )
    least_cost_share: float | None = Field(
        description="The least cost as a share of the relevance without promises; null if unknown."
    )
    message: str


class RetrieveAnswer(_Record):
    """The answer to one request, best relevance first."""

    request_id: str | None
    ids: list[Label]
    groups: list[Label]
    relevance: list[float]
    searched: float = Field(description="Share of the catalog that was searched.")
    degraded: bool


class ImpressionReport(_Record):
    """What was really shown of the candidates of a request."""

    request_id: str = Field(min_length=1, max_length=200)
    items: list[Label] = Field(max_length=1_000)
    report_id: str | None = Field(
        default=None, max_length=200, description="Tells reports on one request apart; saying one twice counts once."
    )


class ImpressionResult(_Record):
    """What came of reports."""

    counted: int = Field(description="Exposures that were counted now.")
    repeated: int = Field(description="Reports that had been made before.")
    unknown: int = Field(description="Items that the catalog does not hold, or that were not candidates.")


class ReportView(_Record):
    """How the promises fare, in a few numbers."""

    now: Moment
    promises: int
    kept: int = Field(description="Promises whose floor is reached in their present window.")
    on_track: int
    at_risk: int
    impossible: int
    past_windows: int = Field(description="The latest windows that are over.")
    past_kept: int = Field(description="Those of them in which the floor was reached.")
    esp: float | None = Field(description="Share of past windows that were kept; null before the first is over.")
    cost_share: float | None = Field(description="Relevance given up in this tick, as a share; null: not known.")
    alerts: int


class HealthStatus(_Record):
    """Whether the service lives, or can answer."""

    ok: bool
    message: str


class CatalogSize(_Record):
    """What a change of items has led to."""

    items: int = Field(description="In the catalog, after the change.")


class ItemIds(_Record):
    """Items that are meant."""

    ids: list[Label] = Field(min_length=1, max_length=10_000)


class ImpressionReports(_Record):
    """What was shown of several requests."""

    reports: list[ImpressionReport] = Field(min_length=1, max_length=1_000)


class RetrieveAnswers(_Record):
    """The answers to a call, in the order of its users."""

    answers: list[RetrieveAnswer]
