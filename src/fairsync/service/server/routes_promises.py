"""Routes that change what is promised and counted: promises, items taken out, what was shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import Body, Query
from starlette.responses import Response

from fairsync.service.promises.conversion import promise_from_record
from fairsync.service.schema import (
    CatalogSize,
    ImpressionReports,
    ImpressionResult,
    ItemIds,
    Pace,
    Preview,
    PromiseRecord,
    PromiseView,
)
from fairsync.service.server.access import needs
from fairsync.service.server.problems import documented, invalid

if TYPE_CHECKING:
    from fastapi import FastAPI

    from fairsync.service.promises.promise_service import PromiseService
    from fairsync.service.settings import HttpSettings

_EXAMPLE = Body(examples=[{"group": "books", "floor": 100, "window": {"every": "day", "zone": "Europe/Berlin"}}])
# What can be done next with a promise that was made.
_LINKS = {
    name: {"operationId": name, "parameters": {"promise_id": "$response.body#/id"}}
    for name in ("change_promise", "delete_promise", "pace")
}


def add_keep_routes(app: FastAPI, service: PromiseService, settings: HttpSettings) -> None:
    """Add the routes; each runs in a thread of its own, for a keeper may wait for its ledger."""

    @app.post(
        "/v1/impressions",
        summary="Report what was shown of candidates",
        responses=documented(422),
        dependencies=[needs("report")],
    )
    def show(body: ImpressionReports) -> ImpressionResult:
        if len(body.reports) > settings.max_items:
            raise invalid(f"A call holds {settings.max_items} reports at most.", "Send them in several calls.")
        results = [service.record_impressions(one.request_id, one.items, one.report_id) for one in body.reports]
        return ImpressionResult(
            counted=sum(one.counted for one in results),
            repeated=sum(one.repeated for one in results),
            unknown=sum(one.unknown for one in results),
        )

    @app.get("/v1/promises", summary="All promises and where they stand", dependencies=[needs("report")])
    def list_promises() -> list[PromiseView]:
        return service.promises()

    @app.post(
        "/v1/promises",
        status_code=201,
        summary="Make a promise, if it can be kept",
        responses={201: {"links": _LINKS}, **documented(409, 422)},
        dependencies=[needs("admin")],
    )
    def make_promise(promise: Annotated[PromiseRecord, _EXAMPLE]) -> PromiseView:
        return service.set_promise(promise_from_record(promise, service.groups))

    @app.post(
        "/v1/promises/preview",
        summary="What would come of a promise, before it is made",
        responses=documented(404, 422),
        dependencies=[needs("report")],
    )
    def preview(
        promise: Annotated[PromiseRecord, _EXAMPLE],
        replacing: Annotated[
            str | None, Query(max_length=200, description="Id of the promise that it replaces.")
        ] = None,
    ) -> Preview:
        return service.preview(promise_from_record(promise, service.groups), replacing)

    @app.get(
        "/v1/promises/{promise_id}/pace",
        summary="How a promise fared over its present window",
        responses=documented(404, 422),
        dependencies=[needs("report")],
    )
    def pace(promise_id: str) -> Pace:
        return service.pace(promise_id)

    @app.put(
        "/v1/promises/{promise_id}",
        summary="Change a promise, if the new one can be kept",
        responses=documented(404, 409, 422),
        dependencies=[needs("admin")],
    )
    def change_promise(promise_id: str, promise: Annotated[PromiseRecord, _EXAMPLE]) -> PromiseView:
        return service.set_promise(promise_from_record(promise, service.groups), promise_id)

    @app.delete(
        "/v1/promises/{promise_id}",
        status_code=204,
        response_class=Response,
        summary="End a promise",
        responses=documented(404, 422),
        dependencies=[needs("admin")],
    )
    def delete_promise(promise_id: str) -> None:
        service.delete_promise(promise_id)

    @app.delete(
        "/v1/items",
        summary="Take items out of the catalog",
        responses=documented(409, 422),
        dependencies=[needs("admin")],
    )
    def remove_items(body: ItemIds) -> CatalogSize:
        if len(body.ids) > settings.max_items:
            raise invalid(f"A call holds {settings.max_items} items at most.", "Send them in several calls.")
        service.remove_items(body.ids)
        return CatalogSize(items=len(service.catalog))
