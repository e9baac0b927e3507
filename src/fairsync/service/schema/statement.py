"""A statement: what was promised to a label in a month, and what it got."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from fairsync.service.schema.record import Label, Moment, Record


class StatementRow(Record, frozen=True, kw_only=True):
    """One window of one promise."""

    promise: Annotated[str, Meta(description="Id of the promise.")]
    promised: Annotated[str, Meta(description="The promise as a sentence.")]
    zone: Annotated[str, Meta(description="IANA time zone of the window.")]
    start: Moment
    end: Annotated[Moment, Meta(description="The exposures were due by then.")]
    floor: Annotated[int | None, Meta(description="Exposures that were promised at least; null if none were.")]
    cap: Annotated[
        int | None, Meta(description="Exposures that were promised at most; null if there was no limit.")
    ] = None
    delivered: Annotated[int, Meta(description="Exposures in the window.")]
    reached: Annotated[
        Moment | None,
        Meta(description="When the floor was first seen to be reached, or the end for a share; null if missed."),
    ]
    kept: bool
    missing: Annotated[int, Meta(description="Exposures that were missing at the end.")]
    exceeding: Annotated[int, Meta(description="Exposures above the limit at the end.")] = 0
    reason: Annotated[str, Meta(description="Why the promise was missed; empty if it was kept.")]


class Statement(Record, frozen=True, kw_only=True):
    """All windows that ended in a month, of promises that name a label."""

    attribute: str
    label: Label
    month: Annotated[str, Meta(description="Such as 2026-11.", examples=["2026-11"])]
    made_at: Moment
    count: Annotated[str, Meta(description="'retrieved': an exposure is a candidate. 'impressions': it was shown.")]
    rows: Annotated[list[StatementRow], Meta(description="Earliest end first.")]
    remarks: Annotated[list[str], Meta(description="Why the statement may not cover the whole month; else empty.")]
