"""Routes of the control plane: leases, settlements, and prices in the language of an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta, Struct

from fairsync.errors import LeaseBusyError
from fairsync.service.control_plane import ControlPlane
from fairsync.service.schema.control_plane import (
    LeaseGrant,
    LeaseRequest,
    PriceFormat,
    PriceList,
    Scale,
    SettleRequest,
    SettleResult,
)
from fairsync.service.server.operations import Operation
from fairsync.service.server.problems import busy, invalid

if TYPE_CHECKING:
    from fairsync.service.promises.promise_service import PromiseService
    from fairsync.service.server.request_context import RequestContext
    from fairsync.service.settings import HttpSettings


class PricesQuery(Struct, frozen=True):
    """Query parameters of prices."""

    format: Annotated[
        PriceFormat | None,
        Meta(description="The engine whose language the prices are to be in."),
    ] = None
    columns: Annotated[
        Annotated[str, Meta(max_length=10_000)] | None,
        Meta(description="Columns or fields of attributes that have other names there, as a JSON object of strings."),
    ] = None
    scale: Scale = 1.0


def control_plane_operations(service: PromiseService, limits: HttpSettings) -> list[Operation]:
    """Return the operations."""
    plane = ControlPlane(service)

    def lease(_: RequestContext, body: LeaseRequest) -> LeaseGrant:
        try:
            return plane.lease(body.requests, body.seconds, body.format, body.columns, body.scale)
        except LeaseBusyError as error:
            raise busy("busy", str(error)) from None

    def settle(context: RequestContext, body: SettleRequest) -> SettleResult:
        reported = sum(len(one.items) + len(one.fetched or ()) for one in body.lists)
        if reported > limits.max_candidates:
            raise invalid(
                f"A call may report {limits.max_candidates:,} items, got {reported:,}.",
                "Lease fewer requests at a time, or report fewer scores.",
            )
        return plane.settle(context.path_params["lease"], body.lists)

    def release(context: RequestContext) -> None:
        plane.release(context.path_params["lease"])

    def prices(_: RequestContext, query: PricesQuery) -> PriceList:
        columns = None
        if query.columns is not None:
            try:
                columns = msgspec.json.decode(query.columns, type=dict[str, str])
            except msgspec.DecodeError as error:
                raise invalid(f"query.columns: {error}", 'Give an object such as {"category": "kind"}.') from None
        return plane.prices(query.format, columns, query.scale)

    return [
        Operation(
            "POST", "/v1/leases", lease, "Lease requests that are searched elsewhere, with prices", role="retrieve",
            body=LeaseRequest, answer=LeaseGrant, status=201, problems=(422,),
        ),
        Operation(
            "POST", "/v1/leases/{lease}/settle", settle, "Count the lists of a lease", role="retrieve",
            body=SettleRequest, answer=SettleResult, problems=(404, 422),
        ),
        Operation(
            "DELETE", "/v1/leases/{lease}", release, "Return a lease that was not used", role="retrieve", status=204,
            problems=(404, 422),
        ),
        Operation(
            "GET", "/v1/prices", prices, "The prices in force, also in the language of an engine",
            role=("retrieve", "report"), query=PricesQuery, answer=PriceList, problems=(422,),
        ),
    ]  # fmt: skip
