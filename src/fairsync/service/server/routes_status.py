"""Routes that only read: overview, report, past windows, audit, statements, health and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta, Struct
from starlette.responses import Response

from fairsync.service.promises.attribute_views import attribute_views
from fairsync.service.schema import (
    JSON,
    AttributeView,
    AuditView,
    GroupView,
    HealthStatus,
    Overview,
    PastWindow,
    ReportView,
)
from fairsync.service.schema.statement import Statement
from fairsync.service.server.openapi import RETRY_AFTER
from fairsync.service.server.operations import Operation
from fairsync.service.server.prometheus import MEDIA_TYPE
from fairsync.service.server.shared_answer import shared

if TYPE_CHECKING:
    from fairsync.service.promises.promise_service import PromiseService
    from fairsync.service.server.prometheus import Metrics
    from fairsync.service.server.request_context import RequestContext

_MOST_PAST = _MOST_ENTRIES = 1_000
_Text = Annotated[str, Meta(min_length=1, max_length=500)]


class AuditQuery(Struct, frozen=True):
    """Query parameters of the audit."""

    limit: Annotated[int, Meta(ge=1, le=_MOST_ENTRIES, description="Largest number of entries.")] = 100
    before: Annotated[
        Annotated[int, Meta(ge=1, le=2**62)] | None, Meta(description="Only entries with smaller numbers than this.")
    ] = None


class StatementQuery(Struct, frozen=True):
    """Query parameters of a statement."""

    attribute: Annotated[_Text, Meta(description="Attribute that promises name, such as 'provider'.")]
    label: Annotated[_Text, Meta(description="Label of that attribute, such as 'acme'.")]
    month: Annotated[str, Meta(max_length=100, description="Year and month.", examples=["2026-11"])]


class PastQuery(Struct, frozen=True):
    """Query parameters of past windows."""

    limit: Annotated[int, Meta(ge=1, le=_MOST_PAST, description="Largest number of windows.")] = 100


class AttributeQuery(Struct, frozen=True):
    """Query parameters of attributes."""

    name: Annotated[Annotated[str, Meta(max_length=500)] | None, Meta(description="The only attribute to list.")] = None
    text: Annotated[str, Meta(max_length=500, description="What labels contain, in upper or lower case.")] = ""
    limit: Annotated[int, Meta(ge=1, le=1_000, description="Most labels of each attribute.")] = 100


def status_operations(service: PromiseService, metrics: Metrics) -> list[Operation]:
    """Return the operations."""

    def audit(_: RequestContext, query: AuditQuery) -> AuditView:
        return service.audit(query.limit, query.before)

    def statement(_: RequestContext, query: StatementQuery) -> Statement:
        return service.statement(query.attribute, query.label, query.month)

    def overview() -> Overview:
        return service.overview()

    def groups() -> list[GroupView]:
        return service.overview().groups

    def past(_: RequestContext, query: PastQuery) -> list[PastWindow]:
        return service.past(query.limit)

    def attributes(_: RequestContext, query: AttributeQuery) -> list[AttributeView]:
        return attribute_views(service.catalog, query.text, query.limit, query.name)

    def report() -> ReportView:
        return make_report(service.overview(), service.past(_MOST_PAST))

    def read_metrics() -> bytes:
        return metrics.text()

    async def health(_: RequestContext) -> HealthStatus:
        return HealthStatus(ok=True, message="alive")

    async def ready(_: RequestContext) -> Response:
        ok, why = service.ready()
        body = msgspec.json.encode(HealthStatus(ok=ok, message=why))
        return Response(body, 200 if ok else 503, None if ok else {"retry-after": "1"}, JSON)

    text = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
    schema = {"$ref": "#/components/schemas/HealthStatus"}
    not_ready = {"description": "Not ready.", "headers": RETRY_AFTER, "content": {JSON: {"schema": schema}}}
    return [
        Operation(
            "GET", "/v1/audit", audit, "Who made, changed and ended which promise", role="report", query=AuditQuery,
            answer=AuditView, problems=(422,),
        ),
        Operation(
            "GET", "/v1/statement", statement, "What was promised to a label in a month, and what it got",
            role="report", query=StatementQuery, answer=Statement, problems=(422,),
        ),
        Operation("GET", "/v1/overview", shared(overview), "The state of everything", role="report", answer=Overview),
        Operation(
            "GET", "/v1/groups", shared(groups), "All groups and their counts", role="report", answer=list[GroupView],
        ),
        Operation(
            "GET", "/v1/attributes", attributes, "Attributes of the items and their labels", role="report",
            query=AttributeQuery, answer=list[AttributeView], problems=(422,),
        ),
        Operation(
            "GET", "/v1/past", past, "Windows that are over", role="report", query=PastQuery, answer=list[PastWindow],
            problems=(422,),
        ),
        Operation(
            "GET", "/v1/report", shared(report), "The promises in a few numbers", role="report", answer=ReportView,
        ),
        Operation(
            "GET", "/metrics", shared(read_metrics, MEDIA_TYPE), "Metrics for Prometheus", role="report", extra=text,
        ),
        Operation("GET", "/health", health, "Liveness", answer=HealthStatus),
        Operation("GET", "/ready", ready, "Readiness", answer=HealthStatus, extra={503: not_ready}),
    ]  # fmt: skip


def make_report(now: Overview, past: list[PastWindow]) -> ReportView:
    """Return the few numbers that matter."""
    states = [promise.state for promise in now.promises]
    kept = sum(window.kept for window in past)
    return ReportView(
        now=now.now,
        promises=len(states),
        kept=states.count("kept"),
        on_track=states.count("on track"),
        at_risk=states.count("at risk"),
        impossible=states.count("impossible"),
        past_windows=len(past),
        past_kept=kept,
        esp=kept / len(past) if past else None,
        cost_share=now.cost_share,
        alerts=len(now.alerts),
    )
