"""Routes that change promises and counts: promises, removed items, impressions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from fairsync.errors import TooManyPreviewsError
from fairsync.service.promises.conversion import promise_from_record, promises_from_records
from fairsync.service.schema import (
    CatalogSize,
    ImpressionReports,
    ImpressionResult,
    ItemIds,
    Pace,
    Preview,
    PromiseList,
    PromiseRecord,
    PromiseView,
)
from fairsync.service.server.cancellation import run_cancellable, unless_disconnected, unless_timed_out
from fairsync.service.server.operations import Operation
from fairsync.service.server.problems import busy, invalid
from fairsync.service.server.shared_answer import shared

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Receive

    from fairsync.service.promises.promise_service import PromiseService
    from fairsync.service.server.request_context import RequestContext
    from fairsync.service.settings import HttpSettings

_PROMISE = "/v1/promises/{promise_id}"
# Operations that use the id of a promise that was made.
_LINKS = {
    name: {"operationId": name, "parameters": {"promise_id": "$response.body#/id"}}
    for name in ("change_promise", "delete_promise", "pace")
}


class PreviewQuery(Struct, frozen=True):
    """Query parameters of a preview."""

    replacing: Annotated[
        Annotated[str, Meta(max_length=200)] | None, Meta(description="Id of the promise to replace.")
    ] = None


def promise_operations(service: PromiseService, limits: HttpSettings) -> list[Operation]:
    """Return the operations."""

    def check_size(n: int, what: str) -> None:
        if n > limits.max_items:
            raise invalid(f"A call holds {limits.max_items} {what} at most.", "Send them in several calls.")

    def impressions(_: RequestContext, body: ImpressionReports) -> ImpressionResult:
        check_size(len(body.reports), "reports")
        results = [service.record_impressions(one.request_id, one.items, one.report_id) for one in body.reports]
        return ImpressionResult(
            counted=sum(one.counted for one in results),
            repeated=sum(one.repeated for one in results),
            unknown=sum(one.unknown for one in results),
        )

    def list_promises() -> list[PromiseView]:
        return service.promises()

    async def set_promise(context: RequestContext, record: PromiseRecord, name: str | None) -> PromiseView:
        def work(is_cancelled: Callable[[], bool]) -> PromiseView:
            promise = promise_from_record(record, service.catalog)
            return service.editor.set_promise(promise, name, context.caller.name, is_cancelled)

        return await unless_timed_out(context, work)

    async def make_promise(context: RequestContext, promise: PromiseRecord) -> PromiseView:
        return await set_promise(context, promise, None)

    async def make_promises(context: RequestContext, body: PromiseList) -> list[PromiseView]:
        check_size(len(body.promises), "promises")

        def work(is_cancelled: Callable[[], bool]) -> list[PromiseView]:
            asked = promises_from_records(body.promises, service.catalog)
            return service.editor.make_promises(asked, context.caller.name, is_cancelled)

        return await unless_timed_out(context, work)

    async def preview(_: RequestContext, record: PromiseRecord, query: PreviewQuery, receive: Receive) -> Preview:
        promise = promise_from_record(record, service.catalog)
        computing = run_cancellable(lambda is_cancelled: service.editor.preview(promise, query.replacing, is_cancelled))
        try:
            return await unless_disconnected(computing, receive)
        except TooManyPreviewsError as error:
            raise busy("overloaded", f"{error}") from None
        finally:
            computing.cancel()

    def pace(context: RequestContext) -> Pace:
        return service.pace(context.path_params["promise_id"])

    async def change_promise(context: RequestContext, promise: PromiseRecord) -> PromiseView:
        return await set_promise(context, promise, context.path_params["promise_id"])

    def delete_promise(context: RequestContext) -> None:
        service.editor.delete_promise(context.path_params["promise_id"], by=context.caller.name)

    def remove_items(_: RequestContext, body: ItemIds) -> CatalogSize:
        check_size(len(body.ids), "items")
        service.items.remove(body.ids)
        return CatalogSize(items=len(service.catalog))

    return [
        Operation(
            "POST", "/v1/impressions", impressions, "Report which candidates were shown", role="report",
            body=ImpressionReports, answer=ImpressionResult, problems=(422,),
        ),
        Operation(
            "GET", "/v1/promises", shared(list_promises), "List all promises and their status", role="report",
            answer=list[PromiseView],
        ),
        Operation(
            "POST", "/v1/promises", make_promise, "Make a promise, if it can be kept", role="admin",
            body=PromiseRecord, answer=PromiseView, status=201, problems=(409, 422), extra={201: {"links": _LINKS}},
        ),
        Operation(
            "POST", "/v1/promises/bulk", make_promises, "Make promises together, if all of them can be kept",
            role="admin", body=PromiseList, answer=list[PromiseView], status=201, problems=(409, 422),
        ),
        Operation(
            "POST", "/v1/promises/preview", preview, "Preview the consequences of a promise", role="report",
            body=PromiseRecord, query=PreviewQuery, answer=Preview, problems=(404, 422), watches=True,
        ),
        Operation(
            "GET", f"{_PROMISE}/pace", pace, "The pace of a promise in its current window", role="report",
            answer=Pace, problems=(404, 422),
        ),
        Operation(
            "PUT", _PROMISE, change_promise, "Change a promise, if the new one can be kept", role="admin",
            body=PromiseRecord, answer=PromiseView, problems=(404, 409, 422),
        ),
        Operation(
            "DELETE", _PROMISE, delete_promise, "End a promise", role="admin", status=204, problems=(404, 422),
        ),
        Operation(
            "DELETE", "/v1/items", remove_items, "Remove items from the catalog", role="admin", body=ItemIds,
            answer=CatalogSize, problems=(409, 422),
        ),
    ]  # fmt: skip
