"""A service without tokens answers its own machine only."""

from __future__ import annotations

import pytest
from starlette.responses import Response

from fairsync.service.server.local_host import LocalHostMiddleware
from fairsync.service.server.problems import Problem
from service.server.asgi import call, http_scope


@pytest.mark.parametrize(
    ("header", "allowed"),
    [
        ((b"host", b"localhost:8080"), True),
        ((b"host", b"[::1]:80"), True),
        ((b"host", b"evil.example"), False),
        ((b"origin", b"http://127.0.0.1:8080"), True),
        ((b"origin", b"http://[::1]:80"), True),
        ((b"origin", b"http://evil.example"), False),
        ((b"origin", b"null"), False),
        ((b"origin", b"http://localhost.evil.example"), False),
    ],
)
def test_only_this_machine_is_served(header: tuple[bytes, bytes], allowed: bool) -> None:
    app = LocalHostMiddleware(Response("ok"))
    if allowed:
        assert call(app, http_scope(headers=[header]))[0]["status"] == 200
    else:
        with pytest.raises(Problem, match="its own machine"):
            call(app, http_scope(headers=[header]))
