"""The state of the service: overview, report, health and problems."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from fairsync.service.schema.promises import PromiseView  # noqa: TC001 - msgspec reads the annotations
from fairsync.service.schema.record import Label, Moment, Record


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


class AttributeView(Record, frozen=True, kw_only=True):
    """An attribute of the items, and labels of it that promises can be about."""

    name: str
    kind: Annotated[
        Literal["labels", "numbers"], Meta(description="Numbers have ranges: {'at_least': 3, 'at_most': 9}.")
    ]
    labels: Annotated[
        list[bool | Label], Meta(description="Labels that match the text, in the order of the catalog, up to a limit.")
    ]
    total: Annotated[int, Meta(description="Number of labels that match.")]


class Alert(Record, frozen=True, kw_only=True):
    """A condition that needs attention."""

    kind: Literal["at risk", "impossible", "degraded", "shard", "ledger", "clock", "budget"]
    group: Label | None = None
    promise: str | None = None
    name: Annotated[str, Meta(description="How reports call the promise.")] = ""
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
    budget: Annotated[float | None, Meta(description="The part of the relevance that promises may cost.")] = None
    budget_spent: Annotated[
        float | None, Meta(description="The cost in the longest window under way, as a share; null without a budget.")
    ] = None
    gave_way: Annotated[
        str, Meta(description="Which floors give way to the budget, and what they would cost; empty if none does.")
    ] = ""
    experiment: Annotated[
        str, Meta(description="The A/B test that this is an arm of (GET /v1/arms); empty if none.")
    ] = ""
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


GENERAL_HINT = "Correct the request and send it again; see /openapi.json."
"""The hint of a request that is refused, if there is no better one than the message."""


class ProblemRecord(Record, frozen=True, kw_only=True):
    """The reason why a call failed."""

    error: Annotated[str, Meta(description="A stable word for programs.")]
    message: Annotated[str, Meta(description="The reason, for people.")]
    hint: Annotated[str, Meta(description="What to do next.")]
