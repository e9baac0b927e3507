"""Routes that only look: where everything stands, health and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import Query
from starlette.responses import JSONResponse, Response

from fairsync.service.schema import (
    GroupView,
    HealthStatus,
    Overview,
    PastWindow,
    ReportView,
)
from fairsync.service.server.access import needs
from fairsync.service.server.problems import RETRY_AFTER, documented
from fairsync.service.server.prometheus import MEDIA_TYPE

if TYPE_CHECKING:
    from fastapi import FastAPI

    from fairsync.service.promises.promise_service import PromiseService
    from fairsync.service.server.prometheus import Metrics

_PAST = 1_000


def add_state_routes(app: FastAPI, service: PromiseService, metrics: Metrics) -> None:
    """Add the routes."""

    @app.get("/v1/overview", summary="Where everything stands", dependencies=[needs("report")])
    def overview() -> Overview:
        return service.overview()

    @app.get("/v1/groups", summary="All groups and how they fare", dependencies=[needs("report")])
    def groups() -> list[GroupView]:
        return service.overview().groups

    @app.get("/v1/past", summary="Windows that are over", responses=documented(422), dependencies=[needs("report")])
    def past(limit: Annotated[int, Query(ge=1, le=_PAST, description="At most so many.")] = 100) -> list[PastWindow]:
        return service.past(limit)

    @app.get("/v1/report", summary="How the promises fare, in a few numbers", dependencies=[needs("report")])
    def report() -> ReportView:
        return make_report(service.overview(), service.past(_PAST))

    @app.get(
        "/metrics",
        summary="Metrics for Prometheus",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
        dependencies=[needs("report")],
    )
    def read_metrics() -> Response:
        return Response(metrics.text(), media_type=MEDIA_TYPE)

    @app.get("/health", summary="Whether the service lives")
    async def health() -> HealthStatus:
        return HealthStatus(ok=True, message="alive")

    @app.get(
        "/ready",
        summary="Whether requests can be answered",
        response_model=HealthStatus,
        responses={
            503: {"model": HealthStatus, "description": "Not now; the message says why.", "headers": RETRY_AFTER}
        },
    )
    async def ready() -> Response:
        ok, why = service.ready()
        body = HealthStatus(ok=ok, message=why).model_dump()
        return JSONResponse(body, 200 if ok else 503, None if ok else {"retry-after": "1"})


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
