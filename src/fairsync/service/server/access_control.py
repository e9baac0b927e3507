"""Access control: who may call. By bearer token and its rate limit; without tokens, this machine only."""

from __future__ import annotations

import hashlib
import hmac
import os
from functools import lru_cache
from typing import TYPE_CHECKING

from fairsync.errors import InvalidInputError
from fairsync.service.server.caller import Caller
from fairsync.service.server.problems import Problem
from fairsync.service.server.request_context import context_of
from fairsync.service.settings import is_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

    from fairsync.service.server.request_context import RequestContext
    from fairsync.service.settings import TokenSettings

_SHORTEST = 16
_HINT = "Send the header 'Authorization: Bearer TOKEN'."
# Public: health, readiness, the API's description, and the page that asks for a token.
_PUBLIC_PATHS = frozenset({"/", "/health", "/ready", "/openapi.json", "/docs"})
_PUBLIC_FOLDERS = ("/dashboard/", "/docs/")


class Tokens:
    """The known tokens, stored as SHA-256 digests.

    Parameters
    ----------
    settings
        The tokens. Without any, every caller is an administrator.
    environ
        Environment variables, for tokens that are given by the name of one. Defaults to those of the process.

    Examples
    --------
    >>> from fairsync.service.settings import TokenSettings
    >>> tokens = Tokens([TokenSettings(name="shop", roles=["retrieve"], env="SHOP")], {"SHOP": "a-long-secret-word"})
    >>> tokens.caller(b"Bearer a-long-secret-word").name
    'shop'
    """

    def __init__(self, settings: Sequence[TokenSettings], environ: Mapping[str, str] | None = None) -> None:
        variables = os.environ if environ is None else environ
        self._callers = [
            (_digest(token, variables), Caller(token.name, token.roles, token.per_second)) for token in settings
        ]
        self._anonymous = Caller("", ["admin"])
        if len({digest for digest, _ in self._callers}) < len(self._callers):
            raise InvalidInputError("two [[tokens]] are the same token: make a new one for each.")

    @property
    def required(self) -> bool:
        """Whether calls need a token."""
        return bool(self._callers)

    def caller(self, authorization: bytes | None) -> Caller:
        """Return the caller that an Authorization header names.

        All tokens are compared, each in constant time, so that the duration does not reveal a near miss.
        """
        if not self._callers:
            return self._anonymous
        headers = {"www-authenticate": "Bearer"}
        if not authorization:
            raise Problem(401, "no_token", "This service needs a token.", _HINT, headers)
        scheme, _, token = authorization.partition(b" ")
        digest = hashlib.sha256(token.strip()).digest()
        found = [caller for known, caller in self._callers if hmac.compare_digest(known, digest)]
        if scheme.lower() != b"bearer" or not found:
            raise Problem(401, "unknown_token", "This token is not known.", _HINT, headers)
        return found[0]


class AccessMiddleware:
    """Refuses calls that may not be made, and finds the caller of the others.

    - With tokens, a call needs a known one (401), except on public paths, and must be within its rate limit (429).
    - Without tokens, a page on the web could make a browser on this machine call the service. Calls by another host
      name, and calls of browsers from pages of another host, are refused (403): DNS rebinding, CSRF.

    Starlette's own middleware takes longer than the rest of the access control.

    Parameters
    ----------
    app
        The application inside.
    tokens
        The known tokens.
    """

    def __init__(self, app: ASGIApp, tokens: Tokens) -> None:
        self.app, self._tokens = app, tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "http":
            self._admit(scope["path"], context_of(scope))
        await self.app(scope, receive, send)

    def _admit(self, path: str, context: RequestContext) -> None:
        if not self._tokens.required:
            _check_local(context.headers)
        if path not in _PUBLIC_PATHS and not path.startswith(_PUBLIC_FOLDERS):
            context.caller = self._tokens.caller(context.headers.get(b"authorization"))
        if context.caller.rate_limiter is not None:
            context.caller.rate_limiter.hit()


def _check_local(headers: Mapping[bytes, bytes]) -> None:
    origin = headers.get(b"origin")
    if not (
        _is_local(headers.get(b"host", b"localhost")) and (origin is None or _is_local(origin.partition(b"://")[2]))
    ):
        hint = "Call it as 127.0.0.1, or give it [[tokens]]."
        raise Problem(403, "other_host", "Without tokens this service is for its own machine only.", hint)


@lru_cache(maxsize=256)
def _is_local(header: bytes) -> bool:
    """Return whether a Host header, with or without a port, names this machine."""
    name = header.decode("latin-1")
    return is_loopback(name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0])


def _digest(token: TokenSettings, environ: Mapping[str, str]) -> bytes:
    if token.sha256 is not None:
        return bytes.fromhex(token.sha256)
    secret = environ.get(str(token.env), "")
    if len(secret) < _SHORTEST:
        fault = f"has less than {_SHORTEST} characters" if secret else "is not set"
        raise InvalidInputError(
            f"the token {token.name!r} is to be in the environment variable {token.env}, which {fault}: set it to a"
            " long random word."
        )
    return hashlib.sha256(secret.encode()).digest()
