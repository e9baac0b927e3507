"""The OpenAPI document, generated from the operations and their structs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from starlette.routing import compile_path

from fairsync import __version__
from fairsync.catalog.catalog import LARGEST_VALUE
from fairsync.service.schema import JSON, ProblemRecord
from fairsync.service.server.problems import MEDIA_TYPE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairsync.service.server.operations import Operation
    from fairsync.service.settings import HttpSettings

Schema = dict[str, Any]

_REFERENCE = "#/components/schemas/{name}"
# Statuses of the middleware: for every operation, for those that need a role, and for those with a body.
_ANY, _WITH_ROLE, _WITH_BODY = (403, 405), (401, 429, 503), (400, 408, 413, 415)
_MEANINGS = {
    400: "The request is malformed.",
    401: "The token is missing or unknown.",
    403: "The token lacks the role, or the call names another host.",
    404: "There is no such promise.",
    405: "The path does not support this method.",
    408: "The body did not arrive in time.",
    409: "The change conflicts with the promises.",
    410: "A repeated request id whose answer is no longer saved. It was counted then, and was not searched again.",
    413: "The body is too large.",
    415: "The media type of the body is not supported.",
    422: "The body or a parameter is invalid; nothing was changed.",
    429: "The token is over its rate limit: retry after Retry-After seconds.",
    503: "The service is overloaded, or a backend is unavailable: retry after Retry-After seconds.",
}
RETRY_AFTER: Schema = {"Retry-After": {"schema": {"type": "string"}, "description": "Seconds."}}
_BINARY: Schema = {
    "type": "string",
    "format": "binary",
    "description": "A map as in JSON, in which an array of numbers is {dtype, shape, data}: '<f2', '<f4', '<f8' or"
    " '<i8', the sizes, and the bytes in C order, little-endian.",
}


def make_document(operations: Sequence[Operation], *, with_tokens: bool) -> Schema:
    """Return the OpenAPI document of the operations.

    Parameters
    ----------
    operations
        All operations, in the order of the document.
    with_tokens
        Whether calls need a token.
    """
    kinds = [kind for one in operations for kind in (one.body, one.query, one.answer) if kind is not None]
    schemas, components = msgspec.json.schema_components([*kinds, ProblemRecord], ref_template=_REFERENCE)
    schema_of = {str(kind): schema for kind, schema in zip(kinds, schemas, strict=False)}
    paths: dict[str, Any] = {}
    for one in operations:
        parameters = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in compile_path(one.path)[2]
        ]
        if one.query is not None:
            fields = components[one.query.__name__]["properties"].items()
            parameters += [{"name": name, "in": "query", "required": False, "schema": field} for name, field in fields]
        call: Schema = {"summary": one.summary, "operationId": one.handler.__name__}
        if parameters:
            call["parameters"] = parameters
        if one.body is not None:
            content = {kind: {"schema": _BINARY} for kind in one.media_types}
            content[one.media_types[0]] = {"schema": schema_of[str(one.body)]}
            call["requestBody"] = {"required": True, "content": content}
        if with_tokens and one.role is not None:
            call["security"] = [{"token": []}]
        call["responses"] = _responses(one, schema_of)
        paths.setdefault(one.path.replace(":path}", "}"), {})[one.method.lower()] = call
    for query in {one.query.__name__ for one in operations if one.query is not None}:
        del components[query]
    document: Schema = {
        "openapi": "3.1.0",
        "info": {
            "title": "FairSync",
            "description": "Guaranteed exposure for recommendation retrieval.",
            "version": __version__,
        },
        "paths": paths,
        "components": {"schemas": components},
    }
    if with_tokens:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return document


def add_limits(document: Schema, dim: int, limits: HttpSettings, *, with_histories: bool) -> None:
    """Add to the bodies that carry vectors what depends on the catalog and the settings.

    Parameters
    ----------
    document
        The document, changed in place.
    dim
        Dimension of the catalog's embeddings.
    limits
        Limits of one call.
    with_histories
        Whether there is a model that turns histories into vectors.
    """
    schemas = document["components"]["schemas"]
    embedding: Schema = {"type": "array", "items": {"type": "number"}, "minItems": dim, "maxItems": dim}
    vector = {**embedding, "items": {"type": "number", "minimum": -LARGEST_VALUE, "maximum": LARGEST_VALUE}}
    array = {"$ref": _REFERENCE.format(name="NumberArray")}
    users = {"type": "array", "minItems": 1, "maxItems": limits.max_users}
    interests = {"type": "array", "items": vector, "minItems": 1, "maxItems": limits.max_interests}

    retrieve = schemas["RetrieveRequest"]
    fields = retrieve["properties"]
    fields["vectors"] = {
        "description": fields["vectors"]["description"],
        "anyOf": [{**users, "items": vector}, {**users, "items": interests}, array],
    }
    fields["k"]["anyOf"][0]["maximum"] = limits.max_k
    retrieve["oneOf"] = [{"required": ["vectors"]}]
    retrieve["examples"] = [{"vectors": [[0.1] * dim], "request_ids": ["visit-1"]}]
    histories = fields.pop("histories")
    if with_histories:
        fields["histories"] = {**histories["anyOf"][0], **users, "description": histories["description"]}
        retrieve["oneOf"].append({"required": ["histories"]})

    items = schemas["UpsertItems"]["properties"]
    most, nothing = {"maxItems": limits.max_items}, {"type": "null"}
    items["ids"] |= most
    items["embeddings"]["anyOf"] = [{"type": "array", "items": embedding, "minItems": 1, **most}, array, nothing]
    items["groups"]["anyOf"][0] |= most
    items["attributes"]["anyOf"][0]["additionalProperties"] |= most
    excluded = fields["exclude"]["anyOf"][0]
    excluded["items"]["maxItems"] = limits.max_exclude
    excluded["maxItems"] = limits.max_users


def _responses(operation: Operation, schema_of: dict[str, Schema]) -> Schema:
    success: Schema = {"description": "Success."}
    if operation.answer is not None:
        success["content"] = {JSON: {"schema": schema_of[str(operation.answer)]}}
    statuses = [*operation.problems, *_ANY]
    if operation.role is not None:
        statuses += _WITH_ROLE
    if operation.body is not None:
        statuses += _WITH_BODY
    responses = {operation.status: success} | {status: _problem(status) for status in sorted(set(statuses))}
    for status, more in operation.extra.items():
        response = responses.get(status, {})
        responses[status] = {**response, **more, "content": response.get("content", {}) | more.get("content", {})}
    return {str(status): response for status, response in responses.items()}


def _problem(status: int) -> Schema:
    schema = {"$ref": _REFERENCE.format(name="ProblemRecord")}
    answer: Schema = {"description": _MEANINGS[status], "content": {MEDIA_TYPE: {"schema": schema}}}
    if status in (429, 503):
        answer["headers"] = RETRY_AFTER
    return answer
