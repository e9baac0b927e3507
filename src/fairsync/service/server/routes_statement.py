"""The route of statements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from fairsync.service.schema.statement import Statement
from fairsync.service.server.operations import Operation

if TYPE_CHECKING:
    from fairsync.service.promises.promise_service import PromiseService
    from fairsync.service.server.request_context import RequestContext

_Text = Annotated[str, Meta(min_length=1, max_length=500)]


class StatementQuery(Struct, frozen=True):
    """Query parameters of a statement."""

    attribute: Annotated[_Text, Meta(description="Attribute that promises name, such as 'provider'.")]
    label: Annotated[_Text, Meta(description="Label of that attribute, such as 'acme'.")]
    month: Annotated[str, Meta(max_length=100, description="Year and month.", examples=["2026-11"])]


def statement_operations(service: PromiseService) -> list[Operation]:
    """Return the operations."""

    def statement(_: RequestContext, query: StatementQuery) -> Statement:
        return service.statement(query.attribute, query.label, query.month)

    return [
        Operation(
            "GET", "/v1/statement", statement, "What was promised to a label in a month, and what it got",
            role="report", query=StatementQuery, answer=Statement, problems=(422,),
        ),
    ]  # fmt: skip
