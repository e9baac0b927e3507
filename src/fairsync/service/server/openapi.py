"""The OpenAPI document, with what holds for every path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi.openapi.utils import get_openapi

from fairsync.service.server.problems import ProblemRecord, documented

if TYPE_CHECKING:
    from fastapi import FastAPI

# What the gate may say to any call, and to any that needs a token.
_ANY = (403, 405)
_WITH_TOKEN = (401, 429, 503)
_WITH_BODY = (400, 408, 413)
_UNGUARDED = ("/health", "/ready")


def complete(app: FastAPI, *, with_tokens: bool) -> dict[str, Any]:
    """Return the document of an application: made once, and with the answers of the gate added to every path."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        schemas = document["components"]["schemas"]
        schemas["ProblemRecord"] = ProblemRecord.model_json_schema()
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        for path, methods in document["paths"].items():
            for call in methods.values():
                _add_answers(path, call)
                if with_tokens and path not in _UNGUARDED:
                    call["security"] = [{"token": []}]
        if with_tokens:
            document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        app.openapi_schema = document
    return app.openapi_schema


def _add_answers(path: str, call: dict[str, Any]) -> None:
    statuses = set(_ANY)
    if path not in _UNGUARDED:
        statuses |= set(_WITH_TOKEN)
    if "requestBody" in call:
        statuses |= set(_WITH_BODY)
    answers = call["responses"]
    for status, answer in documented(*statuses).items():
        answers.setdefault(str(status), answer)
    if "422" in answers:  # FastAPI describes its own shape, which is not ours
        answers["422"] = documented(422)[422]
