"""The caller of a request: the holder of a token, its roles and its rate limit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, get_args

from fairsync.service.server.problems import Problem
from fairsync.service.server.rate_limit import RateLimiter
from fairsync.service.settings import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

# Threads of one caller. All callers together have the 40 of Starlette.
_MOST_THREADS = 8


class Caller:
    """The holder of a token.

    Attributes
    ----------
    name : str
        Name of the token, for the log; empty in a service without tokens.
    roles : frozenset of str
        What it may do. ``admin`` includes all other roles.
    rate_limiter : RateLimiter or None
        Limit of its requests; None means no limit.
    threads : asyncio.Semaphore
        Held by each of its calls that runs in a thread: a caller must not occupy all of them.

    Examples
    --------
    >>> Caller("shop", ["retrieve"]).require("admin")
    Traceback (most recent call last):
    fairsync.service.server.problems.Problem: The token 'shop' has not the role 'admin'.
    """

    def __init__(self, name: str, roles: Sequence[Role], per_second: float | None = None) -> None:
        self.name = name
        self.roles: frozenset[Role] = frozenset(get_args(Role) if "admin" in roles else roles)
        self.rate_limiter = None if per_second is None else RateLimiter(per_second)
        self.threads = asyncio.Semaphore(_MOST_THREADS)

    def require(self, *roles: Role) -> None:
        """Refuse a call that needs one of these roles, if the caller has none of them (403)."""
        if self.roles.isdisjoint(roles):
            needed = " or ".join(map(repr, roles))
            raise Problem(
                403, "forbidden", f"The token {self.name!r} has not the role {needed}.", "Ask for a token that has it."
            )


PUBLIC = Caller("", [])
"""The caller of public paths, which has no role."""
