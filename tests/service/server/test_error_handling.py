"""Errors as problem+json: without secrets, and with a line in the log."""

from __future__ import annotations

import gc
import logging
import weakref
from typing import TYPE_CHECKING, Any

import httpx
import msgspec
import pytest

from fairsync.errors import BackendUnavailableError, FairSyncError, UnusableLedgerError
from fairsync.service.server.error_handling import ErrorMiddleware
from fairsync.service.server.json_logging import JsonFormatter
from fairsync.service.server.problems import invalid
from service.running import running, small_service
from service.server.asgi import call, http_scope
from service.server.held_search import BODY

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


def test_a_refused_body_does_not_stay_in_memory() -> None:
    class Body:
        """Stands for a body, which cannot be referenced weakly."""

    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        body = Body()
        bodies.append(weakref.ref(body))
        raise invalid("It is wrong.")

    bodies: list[weakref.ref[Body]] = []
    gc.disable()
    try:
        call(ErrorMiddleware(refuse), http_scope())
        assert bodies[0]() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("error", "status", "word"),
    [
        (BackendUnavailableError("the shard at secret-host:6379 is away"), 503, "shard"),
        (FairSyncError("the ledger /secret/exposures.db is full"), 503, "ledger"),
        (UnusableLedgerError("/secret/exposures.db is damaged"), 503, "ledger"),
        (MemoryError("secret"), 503, "memory"),
        (OSError("no space left on /secret/path"), 503, "failed"),
        (ZeroDivisionError("secret"), 500, "mistake"),
    ],
)
def test_failures_are_answered_without_secrets(
    error: Exception, status: int, word: str, caplog: pytest.LogCaptureFixture
) -> None:
    promise_service = small_service()

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    vars(promise_service)["retrieve"] = fail
    with running(promise_service) as service, caplog.at_level(logging.INFO):
        answer = httpx.post(f"{service.url}/v1/retrieve", json=BODY, headers={"x-request-id": "r-7"}, timeout=60)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert word in answer.text
    assert "secret" not in answer.text
    (record,) = [one for one in caplog.records if one.name == "fairsync.service" and one.levelno == logging.ERROR]
    line = msgspec.json.decode(JsonFormatter().format(record))
    assert (line["request_id"], line["status"]) == ("r-7", status)
    assert str(error) in line.get("trace", line["message"])
