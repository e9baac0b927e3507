"""What the OpenAPI document says of bodies that are read by hand: those that carry vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairsync.service.server.codec import JSON, MSGPACK

if TYPE_CHECKING:
    from fairsync.service.settings import HttpSettings

Schema = dict[str, Any]

_LABEL: Schema = {
    "anyOf": [
        {"type": "integer", "minimum": -(2**63) + 1, "maximum": 2**63 - 1},
        {"type": "string", "minLength": 1, "maxLength": 500},
    ]
}
_BINARY: Schema = {
    "type": "string",
    "format": "binary",
    "description": "A map as in JSON, in which an array of numbers is {dtype, shape, data}: '<f2', '<f4' or '<f8', the"
    " sizes, and the bytes in C order, low byte first.",
}


def retrieve_body(dim: int, settings: HttpSettings, *, with_histories: bool) -> Schema:
    """Return the body of a call to retrieve, for a catalog of so many dimensions."""
    vector = _vector(dim)
    users = {"type": "array", "minItems": 1, "maxItems": settings.max_users}
    interests = {"type": "array", "items": vector, "minItems": 1, "maxItems": settings.max_interests}
    request_id = {"type": ["string", "null"], "minLength": 1, "maxLength": 200}
    fields: Schema = {
        "vectors": {
            "description": "One vector per user, or several for each (an item's relevance is its best over them).",
            "anyOf": [{**users, "items": vector}, {**users, "items": interests}],
        },
        "k": {"type": ["integer", "null"], "minimum": 1, "maximum": settings.max_k, "description": "Candidates."},
        "request_ids": {
            "type": ["array", "null"],
            "items": request_id,
            "description": "One per user. The same id again gets the same answer, and is counted once.",
        },
    }
    required = [["vectors"]]
    if with_histories:
        history = {"type": "array", "items": _LABEL}
        fields["histories"] = {
            "type": "array", "items": history, "minItems": 1, "maxItems": settings.max_users,
            "description": "In place of vectors: item ids of each user, oldest first. Unknown ones are left out.",
        }  # fmt: skip
        required.append(["histories"])
    schema: Schema = {"type": "object", "properties": fields, "additionalProperties": False}
    schema["oneOf"] = [{"required": one} for one in required]
    return _body(schema, {"vectors": [[0.1] * dim], "request_ids": ["visit-1"]})


def items_body(dim: int, settings: HttpSettings) -> Schema:
    """Return the body of items to be put."""
    many = {"type": "array", "minItems": 1, "maxItems": settings.max_items}
    fields = {
        "ids": {**many, "items": _LABEL, "description": "Of the kind that the catalog has: words or numbers."},
        "groups": {**many, "items": _LABEL, "description": "One per item."},
        "embeddings": {**many, "items": _vector(dim), "description": "One per item."},
    }
    return _body({"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False})


def _vector(dim: int) -> Schema:
    return {
        "type": "array", "items": {"type": "number", "minimum": -1e30, "maximum": 1e30},
        "minItems": dim, "maxItems": dim,
    }  # fmt: skip


def _body(schema: Schema, example: Any = None) -> Schema:
    as_json = {"schema": schema} | ({"example": example} if example else {})
    return {"requestBody": {"required": True, "content": {JSON: as_json, MSGPACK: {"schema": _BINARY}}}}
