"""Routes that carry vectors: retrieve candidates, explain them later, and add items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct

from fairsync.catalog.names import are_words
from fairsync.inputs import check_users
from fairsync.service.schema import (
    JSON,
    MSGPACK,
    CatalogSize,
    ExplainAnswer,
    ExplanationView,
    RetrieveAnswers,
    RetrieveRequest,
    UpsertItems,
    WhyNotView,
)
from fairsync.service.server.cancellation import unless_disconnected
from fairsync.service.server.codec import attributes_of, embeddings_of, encode_candidates, media_type_of, users_of
from fairsync.service.server.operations import Encoded, Operation
from fairsync.service.server.problems import invalid
from fairsync.service.server.rate_limit import requests_of
from fairsync.service.server.rules import check_rules, conditions_of, join_lists

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import Receive

    from fairsync.catalog import Catalog
    from fairsync.catalog.groups import Label
    from fairsync.service.promises.promise_service import PromiseService
    from fairsync.service.server.histories import HistoryEncoder
    from fairsync.service.server.micro_batching import MicroBatcher
    from fairsync.service.server.request_context import RequestContext
    from fairsync.service.settings import HttpSettings


class ExplainQuery(Struct, frozen=True):
    """Query parameters of an explanation."""

    item: Annotated[
        Annotated[str, Meta(max_length=500)] | None, Meta(description="Id of an item that is not among the candidates.")
    ] = None


def retrieve_operations(
    service: PromiseService, batcher: MicroBatcher, limits: HttpSettings, histories: HistoryEncoder | None
) -> list[Operation]:
    """Return the operations."""

    def admit(context: RequestContext) -> None:
        batcher.admit(caller=context.caller.name)

    async def retrieve(context: RequestContext, asked: RetrieveRequest, receive: Receive) -> Encoded:
        vectors = users_of(asked, limits)
        n = len(asked.histories or ()) if vectors is None else len(vectors)
        wanted = n * (asked.k or service.k)
        if wanted > limits.max_candidates:
            raise invalid(
                f"A call may ask for {limits.max_candidates:,} candidates, got {wanted:,}.",
                "Send the users in several calls.",
            )
        check_rules(asked, n, limits, service.catalog)
        exclude: Sequence[Any] | None = asked.exclude
        caller = context.caller
        if caller.rate_limiter is not None:  # its size was charged when it was read
            requests = 2 * n if asked.explain else n  # an explanation takes as long as the answer
            caller.rate_limiter.charge(max(requests - requests_of(context.body_bytes), 0))
        if vectors is None:
            if histories is None:
                raise invalid("'histories' need a model, and this service has none.", "Send 'vectors'.")
            computed, seen = await histories.vectors_and_items(
                asked.histories or [], caller.name, context.body_bytes,
                service.catalog if asked.exclude_history else None,
            )  # fmt: skip
            if asked.exclude_history:
                exclude = join_lists(asked.exclude, seen)
            users = check_users(computed, service.catalog)
        else:
            users = check_users(vectors, service.catalog, "'vectors'")
        request_ids = asked.request_ids or [None] * n
        where = conditions_of(asked, n)
        answer = batcher.submit(users, request_ids, asked.k, caller.name, exclude, where, explain=asked.explain)
        found = context.found = await unless_disconnected(answer, receive)
        media_type = media_type_of(context.headers[b"content-type"])
        return Encoded(encode_candidates(found, request_ids, media_type), media_type)

    def explain(context: RequestContext, query: ExplainQuery) -> ExplainAnswer:
        request_id = context.path_params["request_id"]
        explanation = service.explain(request_id)
        why = None if query.item is None else explanation.why_not(item_id_of(query.item, service.catalog))
        return ExplainAnswer(
            request_id=request_id,
            explanation=msgspec.convert(explanation.to_dict(), ExplanationView),
            why_not=None if why is None else msgspec.convert(why.to_dict(), WhyNotView),
        )

    def upsert_items(_: RequestContext, items: UpsertItems) -> CatalogSize:
        with np.errstate(over="ignore"):  # too large for the catalog's type is infinite, which the catalog refuses
            embeddings = embeddings_of(items, limits.max_items)
            service.items.upsert(embeddings, attributes_of(items, service.catalog.group_attribute), items.ids)
        return CatalogSize(items=len(service.catalog))

    return [
        Operation(
            "POST", "/v1/retrieve", retrieve, "Retrieve the candidates of one or many users", role="retrieve",
            body=RetrieveRequest, media_types=(JSON, MSGPACK), answer=RetrieveAnswers, problems=(410, 422),
            extra={200: {"content": {MSGPACK: {"schema": {"type": "string", "format": "binary"}}}}}, admit=admit,
            watches=True,
        ),
        Operation(
            "PUT", "/v1/items", upsert_items, "Add items, or change those whose ids are known", role="admin",
            body=UpsertItems, media_types=(JSON, MSGPACK), answer=CatalogSize, problems=(409, 422),
        ),
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
