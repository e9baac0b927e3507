"""Routes that only read: overview, report, health and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta, Struct
from starlette.responses import Response

from fairsync.service.promises.attribute_views import attribute_views
from fairsync.service.schema import JSON, AttributeView, GroupView, HealthStatus, Overview, PastWindow, ReportView
from fairsync.service.server.openapi import RETRY_AFTER
from fairsync.service.server.operations import Encoded, Operation
from fairsync.service.server.prometheus import MEDIA_TYPE
from fairsync.service.server.shared_answer import SharedAnswer

if TYPE_CHECKING:
    from fairsync.service.promises.promise_service import PromiseService
    from fairsync.service.server.prometheus import Metrics
    from fairsync.service.server.request_context import RequestContext

_MOST_PAST = 1_000


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
    read_overview = SharedAnswer(service.overview)
    read_groups = SharedAnswer(lambda: service.overview().groups)
    make_shared_report = SharedAnswer(lambda: make_report(service.overview(), service.past(_MOST_PAST)))
    make_text = SharedAnswer(metrics.text, MEDIA_TYPE)

    async def overview(_: RequestContext) -> Encoded:
        return await read_overview()

    async def groups(_: RequestContext) -> Encoded:
        return await read_groups()

    def past(_: RequestContext, query: PastQuery) -> list[PastWindow]:
        return service.past(query.limit)

    def attributes(_: RequestContext, query: AttributeQuery) -> list[AttributeView]:
        return attribute_views(service.catalog, query.text, query.limit, query.name)

    async def report(_: RequestContext) -> Encoded:
        return await make_shared_report()

    async def read_metrics(_: RequestContext) -> Encoded:
        return await make_text()

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
        Operation("GET", "/v1/overview", overview, "The state of everything", role="report", answer=Overview),
        Operation("GET", "/v1/groups", groups, "All groups and their counts", role="report", answer=list[GroupView]),
        Operation(
            "GET", "/v1/attributes", attributes, "Attributes of the items and their labels", role="report",
            query=AttributeQuery, answer=list[AttributeView], problems=(422,),
        ),
        Operation(
            "GET", "/v1/past", past, "Windows that are over", role="report", query=PastQuery, answer=list[PastWindow],
            problems=(422,),
        ),
        Operation("GET", "/v1/report", report, "The promises in a few numbers", role="report", answer=ReportView),
        Operation("GET", "/metrics", read_metrics, "Metrics for Prometheus", role="report", extra=text),
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
