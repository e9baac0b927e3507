"""The arms of an A/B test, and their comparison."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from fairsync.service.schema.record import Record


class Interval(Record, frozen=True, kw_only=True):
    """An estimate with its 95 % confidence interval; null while too few users, or days, were seen."""

    value: float | None
    low: float | None
    high: float | None


class Difference(Interval, frozen=True, kw_only=True):
    """The difference of an arm to the first one, with its own 95 % interval, and its part in the verdict."""

    p_value: Annotated[
        float | None, Meta(description="Adjusted for all comparisons of the report (Holm); null while unknown.")
    ] = None
    differs: Annotated[
        bool | None, Meta(description="Whether that is below 5 %. The interval alone has no such adjustment.")
    ] = None


class ArmView(Record, frozen=True, kw_only=True):
    """One arm, compared with the first one."""

    name: str
    share: Annotated[float, Meta(description="Share of the users.")]
    requests: int
    relevance: Annotated[Interval, Meta(description="Relevance of the candidates of a request.")]
    exposures: Annotated[Interval, Meta(description="Candidates of a request that a promise selects.")]
    relevance_difference: Annotated[
        Difference | None,
        Meta(
            description="To the first arm; null for that. Adjusted for what the same requests would get without"
            " promises, if that is known: it is not the difference of the two means."
        ),
    ]
    exposures_difference: Annotated[Difference | None, Meta(description="To the first arm; null for that.")]
    cost: Annotated[
        Interval | None,
        Meta(description="Relevance given up against the first arm, as a share of its relevance; null for that."),
    ]
    promises: Annotated[int, Meta(description="Promises of the arm.")] = 0
    kept: Annotated[int, Meta(description="Past windows of the arm that were kept.")] = 0
    past: Annotated[int, Meta(description="Past windows of the arm.")] = 0
    cost_share: Annotated[
        float | None, Meta(description="Upper bound of the relevance that the arm's promises give up in this period.")
    ] = None


class ArmsReport(Record, frozen=True, kw_only=True):
    """The comparison of all arms."""

    experiment: str
    arms: list[ArmView]
    days: Annotated[int, Meta(description="Days with requests, by UTC.")]
    differ: Annotated[
        bool | None,
        Meta(
            description="Whether some arm differs from the first: by chance in 5 of 100 tests at most. null: too early."
        ),
    ]
    verdict: Annotated[str, Meta(description="The same as a sentence.")]
