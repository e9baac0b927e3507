"""Authentication by bearer token, and authorisation by role."""

from __future__ import annotations

import hashlib
import hmac
import os
from typing import TYPE_CHECKING, get_args

from starlette.authentication import AuthCredentials, AuthenticationBackend, BaseUser

from fairsync.errors import InvalidInputError
from fairsync.service.server.problems import Problem
from fairsync.service.server.rate_limit import RateLimiter
from fairsync.service.server.request_context import context_of
from fairsync.service.settings import Role

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.requests import HTTPConnection

    from fairsync.service.settings import TokenSettings

_SHORTEST = 16
_HINT = "Send the header 'Authorization: Bearer TOKEN'."
# Public: health, readiness, the API's description, and the page that asks for a token.
_PUBLIC_PATHS = frozenset({"/", "/health", "/ready", "/openapi.json"})
_PUBLIC_FOLDER = "/dashboard/"


class Caller(BaseUser):
    """The holder of a token.

    Attributes
    ----------
    name : str
        Name of the token, for the log; empty in a service without tokens.
    credentials : AuthCredentials
        Its roles. ``admin`` includes all others.
    rate_limiter : RateLimiter or None
        Limit of its requests; None means no limit.
    """

    def __init__(self, name: str, roles: Sequence[Role], per_second: float | None = None) -> None:
        self.name = name
        self.credentials = AuthCredentials(get_args(Role) if "admin" in roles else roles)
        self.rate_limiter = None if per_second is None else RateLimiter(per_second)

    @property
    def is_authenticated(self) -> bool:
        """Whether it has shown a token."""
        return bool(self.name)

    @property
    def display_name(self) -> str:
        """The name of the token."""
        return self.name

    def require(self, role: Role) -> None:
        """Refuse a call that needs a role that the caller lacks (403)."""
        if role not in self.credentials.scopes:
            raise Problem(
                403, "forbidden", f"The token {self.name!r} has not the role {role!r}.", "Ask for a token that has it."
            )


class Tokens(AuthenticationBackend):
    """The known tokens, stored as SHA-256 digests: the backend of Starlette's authentication middleware.

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
    >>> tokens.caller("Bearer a-long-secret-word").name
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

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, BaseUser] | None:
        """Return the caller and its roles; None for public paths."""
        path = conn.scope["path"]
        if path in _PUBLIC_PATHS or path.startswith(_PUBLIC_FOLDER):
            return None
        caller = self._anonymous if not self._callers else self.caller(conn.headers.get("authorization"))
        context_of(conn.scope).caller = caller.name
        return caller.credentials, caller

    def caller(self, authorization: str | None) -> Caller:
        """Return the caller that an Authorization header names.

        All tokens are compared, each in constant time, so that the duration does not reveal a near miss.
        """
        headers = {"www-authenticate": "Bearer"}
        if not authorization:
            raise Problem(401, "no_token", "This service needs a token.", _HINT, headers)
        scheme, _, token = authorization.partition(" ")
        digest = hashlib.sha256(token.strip().encode("latin-1")).digest()
        found = [caller for known, caller in self._callers if hmac.compare_digest(known, digest)]
        if scheme.lower() != "bearer" or not found:
            raise Problem(401, "unknown_token", "This token is not known.", _HINT, headers)
        return found[0]


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
