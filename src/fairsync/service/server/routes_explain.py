"""The route that explains a request after it was answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta, Struct

from fairsync.catalog.names import are_words
from fairsync.service.schema import ExplainAnswer, ExplanationView, WhyNotView
from fairsync.service.server.operations import Operation
from fairsync.service.server.problems import invalid

if TYPE_CHECKING:
    from fairsync.catalog import Catalog
    from fairsync.catalog.groups import Label
    from fairsync.service.promises.promise_service import PromiseService
    from fairsync.service.server.request_context import RequestContext


class ExplainQuery(Struct, frozen=True):
    """Query parameters of an explanation."""

    item: Annotated[
        Annotated[str, Meta(max_length=500)] | None, Meta(description="Id of an item that is not among the candidates.")
    ] = None


def explain_operations(service: PromiseService) -> list[Operation]:
    """Return the operations."""

    def explain(context: RequestContext, query: ExplainQuery) -> ExplainAnswer:
        request_id = context.path_params["request_id"]
        explanation = service.explain(request_id)
        why = None if query.item is None else explanation.why_not(item_id_of(query.item, service.catalog))
        return ExplainAnswer(
            request_id=request_id,
            explanation=msgspec.convert(explanation.to_dict(), ExplanationView),
            why_not=None if why is None else msgspec.convert(why.to_dict(), WhyNotView),
        )

    return [
        Operation(
            "GET", "/v1/explain/{request_id:path}", explain, "Why the candidates of a request are there",
            role=("report", "retrieve"), query=ExplainQuery, answer=ExplainAnswer, problems=(404, 410, 422),
        ),
    ]  # fmt: skip


def item_id_of(text: str, catalog: Catalog) -> Label:
    """Return the id of an item that is given in a URL, where integers are text too.

    Examples
    --------
    >>> import numpy as np
    >>> from fairsync.catalog import Catalog
    >>> item_id_of("7", Catalog(np.eye(2), ["a", "b"])), item_id_of("7", Catalog(np.eye(2), ["a", "b"], ["x", "7"]))
    (7, '7')
    """
    if are_words(catalog.ids):
        return text
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        raise invalid(f"The ids of items are integers, got {text[:80]!r}.")
    return int(text)
