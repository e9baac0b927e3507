"""Who may do what: every path with every token; without tokens, this machine only."""

from __future__ import annotations

import hashlib
import logging
import time
from typing import TYPE_CHECKING

import httpx
import pytest
from starlette.responses import Response

from fairsync.errors import InvalidInputError
from fairsync.service.server.access_control import AccessMiddleware, Tokens
from fairsync.service.server.problems import Problem
from fairsync.service.settings import TokenSettings
from fairsync.service.validation import parse_struct
from service.running import TOKENS, make_settings, running, small_service
from service.server import asgi
from service.server.logged import logged

if TYPE_CHECKING:
    from collections.abc import Iterator

# What each call needs, written down once more: a path that is missing here fails the test.
NEEDED = {
    "POST /v1/retrieve": "retrieve",
    "GET /v1/explain/{request_id}": ("report", "retrieve"),
    "POST /v1/impressions": "report",
    "POST /v1/leases": "retrieve",
    "POST /v1/leases/{lease}/settle": "retrieve",
    "DELETE /v1/leases/{lease}": "retrieve",
    "GET /v1/prices": ("report", "retrieve"),
    "GET /v1/promises": "report",
    "POST /v1/promises": "admin",
    "POST /v1/promises/bulk": "admin",
    "POST /v1/promises/preview": "report",
    "GET /v1/promises/{promise_id}/pace": "report",
    "PUT /v1/promises/{promise_id}": "admin",
    "DELETE /v1/promises/{promise_id}": "admin",
    "PUT /v1/items": "admin",
    "DELETE /v1/items": "admin",
    "GET /v1/overview": "report",
    "GET /v1/groups": "report",
    "GET /v1/attributes": "report",
    "GET /v1/audit": "report",
    "GET /v1/statement": "report",
    "GET /v1/past": "report",
    "GET /v1/report": "report",
    "GET /metrics": "report",
    "GET /health": None,
    "GET /ready": None,
}


@pytest.fixture
def http(monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    for role, token in TOKENS.items():
        monkeypatch.setenv(f"TEST_{role.upper()}", token)
    with (
        running(small_service(), make_settings(tokens=True)) as service,
        httpx.Client(base_url=service.url, timeout=60) as client,
    ):
        yield client


def call(http: httpx.Client, what: str, token: str | None) -> int:
    method, path = what.split()
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    body: dict[str, str] | None = {} if method in ("POST", "PUT", "DELETE") else None
    return http.request(
        method, path.format(promise_id="none", request_id="none", lease="none"), headers=headers, json=body
    ).status_code


def test_every_path_asks_for_its_role(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    found = {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}
    assert found == set(NEEDED)
    for what, needed in NEEDED.items():
        if needed is None:
            assert call(http, what, None) == 200
            continue
        assert call(http, what, None) == call(http, what, "not-a-token") == 401
        for role, token in TOKENS.items():
            allowed = role == "admin" or role in ((needed,) if isinstance(needed, str) else needed)
            assert (call(http, what, token) != 403) == allowed, f"{what} as {role}"


def test_nothing_is_told_to_who_shows_no_token(http: httpx.Client) -> None:
    """Not even which paths there are."""
    answer = http.get("/v1/nothing")
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    basic = {"authorization": f"Basic {TOKENS['admin']}"}
    assert http.get("/v1/overview", headers=basic).status_code == 401


def test_tokens_are_never_logged(http: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        call(http, "GET /v1/overview", TOKENS["admin"])
        call(http, "GET /v1/overview", TOKENS["retrieve"])
        call(http, "GET /v1/overview", "a-token-that-nobody-knows")
        end = time.monotonic() + 240
        while len(lines := logged(caplog.records)) < 3:
            assert time.monotonic() < end, "lines are written a moment later"
            time.sleep(0.01)
    assert [(facts["token"], facts["status"]) for _, facts in lines] == [("admin", 200), ("retrieve", 403), ("", 401)]
    everything = " ".join(f"{vars(record)}" for record in caplog.records)
    assert "that-is-long" not in everything
    assert "nobody-knows" not in everything


def test_a_token_by_its_hash() -> None:
    digest = hashlib.sha256(b"a secret that is long").hexdigest()
    tokens = Tokens([TokenSettings(name="one", roles=["retrieve", "report"], sha256=digest)], {})
    caller = tokens.caller(b"bearer a secret that is long")
    assert caller.name == "one"
    caller.require("report")
    with pytest.raises(Problem, match="'admin'"):
        caller.require("admin")


@pytest.mark.parametrize(("environ", "word"), [({}, "is not set"), ({"SHOP": "short"}, "less than 16")])
def test_a_token_must_be_there_and_long(environ: dict[str, str], word: str) -> None:
    with pytest.raises(InvalidInputError, match=f"'shop'.*SHOP.*{word}"):
        Tokens([TokenSettings(name="shop", roles=["retrieve"], env="SHOP")], environ)


@pytest.mark.parametrize("per_second", [0, -1, float("nan"), float("inf"), "many"])
def test_a_limit_must_be_a_number_above_0(per_second: object) -> None:
    with pytest.raises(InvalidInputError, match="per_second"):
        parse_struct(TokenSettings, {"name": "a", "roles": ["admin"], "env": "A", "per_second": per_second})


def test_two_names_for_one_token_are_refused() -> None:
    both = [TokenSettings(name=name, roles=["retrieve"], env="SHOP") for name in ("a", "b")]
    with pytest.raises(InvalidInputError, match="same token"):
        Tokens(both, {"SHOP": "a secret that is long"})


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
    app = AccessMiddleware(Response("ok"), Tokens([]))
    if allowed:
        assert asgi.call(app, asgi.http_scope(headers=[header]))[0]["status"] == 200
    else:
        with pytest.raises(Problem, match="its own machine"):
            asgi.call(app, asgi.http_scope(headers=[header]))
