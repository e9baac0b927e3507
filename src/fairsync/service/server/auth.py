"""Who may do what: tokens with roles."""

from __future__ import annotations

import hashlib
import hmac
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairsync.errors import InvalidInputError
from fairsync.service.server.problems import Problem
from fairsync.service.server.rate_limit import RateLimiter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairsync.service.settings import Role, TokenSettings

_SHORTEST = 16
_HINT = "Send the header 'Authorization: Bearer TOKEN'."


@dataclass(frozen=True)
class Holder:
    """Whoever showed a token.

    Attributes
    ----------
    name : str
        Of the token, for the log.
    roles : frozenset of str
        What it may do; ``admin`` may do everything.
    allowance : RateLimiter or None
        How much it may ask for; None: as much as it likes.
    """

    name: str
    roles: frozenset[str]
    rate_limit: RateLimiter | None = None

    def check(self, role: Role) -> None:
        """Refuse what the holder may not do."""
        if role not in self.roles and "admin" not in self.roles:
            raise Problem(
                403, "forbidden", f"The token {self.name!r} has not the role {role!r}.", "Ask for a token that has it."
            )


ANYBODY = Holder("", frozenset({"admin"}))


class Tokens:
    """The tokens that are known, by their SHA-256 alone.

    Parameters
    ----------
    settings
        The tokens; none: anybody may do anything.
    environ
        Where tokens are looked up that are named by a variable.

    Examples
    --------
    >>> from fairsync.service.settings import TokenSettings
    >>> tokens = Tokens([TokenSettings(name="shop", roles=["retrieve"], env="SHOP")], {"SHOP": "a-long-secret-word"})
    >>> tokens.holder(b"Bearer a-long-secret-word").name
    'shop'
    """

    def __init__(self, settings: Sequence[TokenSettings], environ: Mapping[str, str] | None = None) -> None:
        known = os.environ if environ is None else environ
        self._holders = [(_digest(one, known), _holder(one)) for one in settings]
        if len({digest for digest, _ in self._holders}) < len(self._holders):
            raise InvalidInputError("two [[tokens]] are the same token: make a new one for each.")

    @property
    def are_needed(self) -> bool:
        """Whether a call must show one."""
        return bool(self._holders)

    def holder(self, authorization: bytes | None) -> Holder:
        """Return who shows this Authorization header.

        Every token is compared, each in constant time: how long it takes tells nothing about which one came near.
        """
        if not self._holders:
            return ANYBODY
        headers = {"www-authenticate": "Bearer"}
        if not authorization:
            raise Problem(401, "no_token", "This service needs a token.", _HINT, headers)
        kind, _, token = authorization.partition(b" ")
        digest = hashlib.sha256(token.strip()).digest()
        found = [holder for known, holder in self._holders if hmac.compare_digest(known, digest)]
        if kind.lower() != b"bearer" or not found:
            raise Problem(401, "unknown_token", "This token is not known.", _HINT, headers)
        return found[0]


def _holder(token: TokenSettings) -> Holder:
    rate_limit = None if token.per_second is None else RateLimiter(token.per_second)
    return Holder(token.name, frozenset(token.roles), rate_limit)


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
