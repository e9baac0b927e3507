"""Changes of items in all arms: every arm has the same items."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fairsync.service.schema import ProblemRecord
from fairsync.service.server.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_PATH, _METHODS = "/v1/items", ("PUT", "DELETE")


def is_item_change(scope: Scope) -> bool:
    """Whether a call changes items and names no arm."""
    return scope["path"] == _PATH and scope["method"] in _METHODS


async def change_items(apps: Mapping[str, ASGIApp], scope: Scope, receive: Receive, send: Send) -> None:
    """Send a change of items to one arm after the other, and answer with the answer of the last.

    A change that is invalid is refused by the first arm, before any has changed. Should a later arm refuse what
    the first has accepted, because its items were changed alone or its ledger is away, the answer says which arms have
    the change.

    Parameters
    ----------
    apps
        The application of each arm, by name.
    scope, receive, send
        The call.
    """
    body: list[Message] = []
    done: list[str] = []
    answer: list[Message] = []
    for name, app in apps.items():
        answer, unread = [], list(body)

        async def read(unread: list[Message] = unread) -> Message:
            if unread:
                return unread.pop(0)
            message = await receive()
            body.append(message)
            return message

        async def write(message: Message, answer: list[Message] = answer) -> None:
            answer.append(message)

        await app({**scope, "state": dict(scope.get("state", {}))}, read, write)
        if not 200 <= answer[0]["status"] < 300:
            if done:
                await _partly(name, done, answer).to_response()(scope, receive, send)
                return
            break
        done.append(name)
    for message in answer:
        await send(message)


def _partly(name: str, done: list[str], answer: list[Message]) -> Problem:
    """Return the problem of a change that one arm refused after others had made it."""
    record = msgspec.json.decode(b"".join(one.get("body", b"") for one in answer), type=ProblemRecord)
    return Problem(
        answer[0]["status"],
        record.error,
        f"The arm {name!r} does not have the change: {record.message} These arms have it: {', '.join(done)}.",
        f"Send it to /arms/{name}{_PATH}, and to every arm after it.",
    )
