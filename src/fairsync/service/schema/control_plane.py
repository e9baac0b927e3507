"""Leases, settlements and prices: the calls of searches that are made elsewhere."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from fairsync.service.schema.record import Label, Record, RequestId

PriceFormat = Literal["elasticsearch", "milvus", "qdrant", "sql", "vespa"]
"""The languages that prices can be written in."""
Scale = Annotated[float, Meta(gt=0, le=1e9, description="What one unit of relevance is in the engine's scores.")]
"""A factor of prices."""
Formula = Annotated[
    dict[str, Any] | None, Meta(description="The prices in the language of an engine, if a format was given.")
]
"""The prices as an engine takes them."""
MOST_FETCHED = 10_000
"""The most items of one request whose scores can be reported."""


class LeaseRequest(Record, frozen=True, kw_only=True):
    """A lease that is asked for."""

    requests: Annotated[int, Meta(ge=1, le=1_000_000, description="Requests that wait for an answer.")] = 1
    seconds: Annotated[float, Meta(gt=0, le=3600, description="Seconds until the lease expires.")] = 30.0
    format: Annotated[PriceFormat | None, Meta(description="The engine whose language 'formula' is to be in.")] = None
    columns: Annotated[
        dict[str, str] | None, Meta(description="Columns or fields of attributes that have other names there.")
    ] = None
    scale: Scale = 1.0


class PriceRow(Record, frozen=True, kw_only=True):
    """The price of a selection of items. The price of an item is the sum over all its selections."""

    where: Annotated[dict[str, Any], Meta(description="Conditions by attribute that the items meet.")]
    price: Annotated[
        float | None, Meta(description="Subtract it from the score: below 0 for a subsidy; null leaves the items out.")
    ]
    missing: Annotated[int, Meta(description="Exposures that the selection lacks until the next plan.")]


class LeaseGrant(Record, frozen=True, kw_only=True):
    """A lease: requests to be answered under these prices."""

    lease: Annotated[str, Meta(description="Name of the lease, to settle it.")]
    requests: Annotated[int, Meta(description="Requests that were granted, at most those asked for.")]
    k: Annotated[int, Meta(description="Candidates per request, at most.")]
    seconds: Annotated[float, Meta(description="Seconds until the lease expires.")]
    version: Annotated[int, Meta(description="Version of the prices.")]
    prices: list[PriceRow]
    wanted_scores: Annotated[
        int, Meta(description="Best items under the prices whose scores should be reported, per request; 0 for none.")
    ]
    formula: Formula = None


class SettledList(Record, frozen=True, kw_only=True):
    """The answer to one request of a lease."""

    items: Annotated[list[Label], Meta(description="Ids of the items that were returned.")]
    request_id: Annotated[RequestId | None, Meta(description="A request that was counted before is left out.")] = None
    fetched: Annotated[
        Annotated[list[Label], Meta(max_length=MOST_FETCHED)] | None,
        Meta(description="Ids of the items that were ranked, returned or not. Prices are learnt from them."),
    ] = None
    scores: Annotated[
        Annotated[list[float], Meta(max_length=MOST_FETCHED)] | None,
        Meta(description="Score of each item of 'fetched', without prices."),
    ] = None


class SettleRequest(Record, frozen=True, kw_only=True):
    """The lists of a lease, one for each request that was answered."""

    lists: list[SettledList]


class SettleResult(Record, frozen=True, kw_only=True):
    """What became of a settlement."""

    requests: Annotated[int, Meta(description="Requests that were counted.")]
    exposures: Annotated[int, Meta(description="Items that were counted.")]
    repeated: Annotated[int, Meta(description="Requests that had been counted before.")]
    unknown: Annotated[int, Meta(description="Items that the catalog does not hold, or not any more: not counted.")]
    unknown_items: Annotated[list[Label], Meta(description="Some of them.")]
    expired: Annotated[
        bool, Meta(description="Whether the lease had expired: its exposures were counted, its requests were not.")
    ]
    learned: Annotated[int, Meta(description="Requests that prices are learnt from.")]


class PriceList(Record, frozen=True, kw_only=True):
    """The prices in force."""

    version: int
    prices: list[PriceRow]
    formula: Formula = None
