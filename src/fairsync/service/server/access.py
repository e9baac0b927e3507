"""Who made a call, and whether they may, as routes ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import Depends
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotations

if TYPE_CHECKING:
    from starlette.types import Scope

    from fairsync.service.server.auth import Holder
    from fairsync.service.settings import Role


def holder_of(scope: Scope) -> Holder:
    """Return who made a call; the gate has put it there."""
    holder: Holder = scope["state"]["holder"]
    return holder


def needs(role: Role) -> Any:
    """Return a dependency that lets only holders of a role pass."""

    async def check(request: Request) -> None:  # async: it takes no time, and needs no thread
        holder_of(request.scope).check(role)

    return Depends(check)
