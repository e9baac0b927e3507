"""The route of the audit, which can only be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from fairsync.service.schema import AuditView
from fairsync.service.server.operations import Operation

if TYPE_CHECKING:
    from fairsync.service.promises.promise_service import PromiseService
    from fairsync.service.server.request_context import RequestContext

_MOST = 1_000


class AuditQuery(Struct, frozen=True):
    """Query parameters of the audit."""

    limit: Annotated[int, Meta(ge=1, le=_MOST, description="Largest number of entries.")] = 100
    before: Annotated[
        Annotated[int, Meta(ge=1, le=2**62)] | None, Meta(description="Only entries with smaller numbers than this.")
    ] = None


def audit_operations(service: PromiseService) -> list[Operation]:
    """Return the operations."""

    def audit(_: RequestContext, query: AuditQuery) -> AuditView:
        return service.audit(query.limit, query.before)

    return [
        Operation(
            "GET", "/v1/audit", audit, "Who made, changed and ended which promise", role="report", query=AuditQuery,
            answer=AuditView, problems=(422,),
        ),
    ]  # fmt: skip
