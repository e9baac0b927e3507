"""Explanations: why candidates are there, and why an item is not."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from fairsync.service.schema.record import Label, Record


class ExplainedCandidateView(Record, frozen=True, kw_only=True):
    """A candidate, and why it is there."""

    id: Label
    group: Label
    relevance: float
    prices: Annotated[
        dict[str, float | None],
        Meta(description="The price of each promise that bears on it; a subsidy is negative. null: masked."),
    ]
    plain_rank: Annotated[
        int | None, Meta(description="Rank by relevance alone, from 1. null: beyond the depth of the search.")
    ]
    reason: Annotated[
        str, Meta(description="relevance, promise: ..., forced: ..., or price (prices of other groups brought it in).")
    ]
    displaced: Annotated[Label | None, Meta(description="The item that would be in its place by relevance alone.")]


class ExplanationView(Record, frozen=True, kw_only=True):
    """Why the candidates of one request are there."""

    candidates: list[ExplainedCandidateView]
    cut: Annotated[
        float | None,
        Meta(description="The score, relevance minus price, that an item needed. null: no slot was open to prices."),
    ]
    depth: Annotated[
        int | None, Meta(description="Items by relevance that the index was asked for. null: every rank is known.")
    ]


class WhyNotView(Record, frozen=True, kw_only=True):
    """Why an item is not among the candidates."""

    id: Label
    group: Label
    reason: Literal["excluded", "condition", "price", "forced", "relevance", "missed"]
    relevance: float
    price: Annotated[float | None, Meta(description="The price that applies to it. null: masked.")]
    cut: float | None
    below: Annotated[float | None, Meta(description="How far its score is below the cut. null: there is no cut.")]
    message: str


class ExplainAnswer(Record, frozen=True, kw_only=True):
    """The explanation of a request that was answered with ``explain``."""

    request_id: str
    explanation: ExplanationView
    why_not: Annotated[WhyNotView | None, Meta(description="Of the item that was asked for.")]
