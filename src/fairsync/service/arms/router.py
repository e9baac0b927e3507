"""The router of an A/B test: sends each call to the arm of its user, and observes what the user gets."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from fairsync.service.arms.arm_record import ArmRecord
from fairsync.service.arms.comparison import compare
from fairsync.service.arms.pro_rata import split_promise
from fairsync.service.promises.conversion import promise_from_record
from fairsync.service.schema import ProblemRecord, PromiseRecord, PromiseView
from fairsync.service.schema.arms import ArmsReport
from fairsync.service.server.operations import Operation
from fairsync.service.server.problems import Problem, invalid
from fairsync.service.server.request_context import context_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from fairsync.service.arms.assignment import Assignment
    from fairsync.service.promises.promise_service import PromiseService
    from fairsync.service.server.request_context import RequestContext, RequestContextMiddleware

USER = b"x-user-id"
"""The header that names the user of a call."""
_ARM_PATH = re.compile(r"/arms/([^/]+)(/.*)?")
# Calls of one user, which need the header. All others are answered by the first arm, or name an arm in their path.
_OF_USERS = ("/v1/retrieve", "/v1/impressions", "/v1/explain/")
_MOST_PAST = 1_000
# The path of items, of which every arm has the same.
_ITEMS = "/v1/items"


class ArmObserver:
    """Sums what the users of each arm get, and compares the arms.

    Parameters
    ----------
    assignment
        The arms.
    services
        The promise service of each.
    """

    def __init__(self, assignment: Assignment, services: Sequence[PromiseService]) -> None:
        self._assignment, self._services = assignment, services
        self.arms = [ArmRecord(service, assignment.buckets) for service in services]

    def refresh(self) -> None:
        """Read which items have promises and prices."""
        for arm in self.arms:
            arm.promised.refresh()

    def save(self) -> None:
        """Save the sums."""
        for arm in self.arms:
            arm.sums.save()

    def report(self) -> ArmsReport:
        """Return the comparison of the arms."""
        more = []
        for service in self._services:
            past, overview = service.past(_MOST_PAST), service.overview()
            kept = sum(one.kept for one in past)
            promises = len(service.scheduler.state.promises)
            more.append({"promises": promises, "kept": kept, "past": len(past), "cost_share": overview.cost_share})
        shares = dict(zip(self._assignment.names, self._assignment.shares, strict=True))
        return compare(self._assignment.experiment, shares, [arm.sums.total() for arm in self.arms], more)

    def operations(self) -> list[Operation]:
        """Return the operation that every arm's application has."""

        def arms(_: RequestContext) -> ArmsReport:
            return self.report()

        def make_promise(context: RequestContext, promise: PromiseRecord) -> list[PromiseView]:
            return self.make_promise(promise, context.caller.name)

        return [
            Operation(
                "GET", "/v1/arms", arms, "Compare the arms of the A/B test", role="report", answer=ArmsReport,
            ),
            Operation(
                "POST", "/v1/arms/promises", make_promise, "Make a promise, and split it among the arms", role="admin",
                body=PromiseRecord, answer=list[PromiseView], status=201, problems=(409, 422),
            ),
        ]  # fmt: skip

    def make_promise(self, promise: PromiseRecord, by: str) -> list[PromiseView]:
        """Make a promise in all arms, to each its part; if one of them refuses it, none has it.

        Parameters
        ----------
        promise
            The promise for all users.
        by
            Who asks for it, for the audit.
        """
        made: list[tuple[PromiseService, PromiseView]] = []
        turn = max(len(service.scheduler.state.promises) for service in self._services)
        parts = split_promise(promise, self._assignment.shares, turn)
        try:
            for service, part in zip(self._services, parts, strict=True):
                if part is not None:
                    asked = promise_from_record(part, service.catalog)
                    made.append((service, service.editor.set_promise(asked, by=by)))
        except BaseException:
            for service, view in made:
                service.editor.delete_promise(view.id, by=by)
            raise
        self.refresh()
        return [view for _, view in made]


class ArmRouter:
    """The application of an A/B test over the applications of its arms.

    ``/arms/NAME/...`` is the whole service of one arm. Calls of users go to the arm of the user that the header
    ``x-user-id`` names. Changes of items go to all arms. Other calls are answered by the first arm.

    Parameters
    ----------
    assignment
        The arms.
    apps
        The application of each.
    observer
        Sees the answers to users.
    save_seconds
        Seconds between two saves of what it saw.
    """

    def __init__(
        self,
        assignment: Assignment,
        apps: Sequence[RequestContextMiddleware],
        observer: ArmObserver,
        save_seconds: float = 15.0,
    ) -> None:
        self._assignment, self._apps, self._observer = assignment, apps, observer
        self._save_seconds = save_seconds
        self._number = {name: number for number, name in enumerate(assignment.names)}

    @property
    def draining(self) -> bool:
        """Whether clients are asked to close their connections."""
        return self._apps[0].draining

    @draining.setter
    def draining(self, value: bool) -> None:
        for app in self._apps:
            app.draining = value

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        named = _ARM_PATH.fullmatch(scope["path"])
        if named is not None and named[1] in self._number:
            inner = {**scope, "path": named[2] or "/", "raw_path": (named[2] or "/").encode()}
            await self._apps[self._number[named[1]]](inner, receive, send)
        elif scope["path"].startswith(_OF_USERS):
            await self._of_user(scope, receive, send)
        elif scope["path"] == _ITEMS and scope["method"] in ("PUT", "DELETE"):
            await change_items(dict(zip(self._assignment.names, self._apps, strict=True)), scope, receive, send)
        elif scope["method"] != "GET" and scope["path"] != "/v1/arms/promises":
            problem = invalid(
                "This service has arms, and this call changes or examines one of them.",
                "Name the arm: /arms/NAME/v1/... Make promises to all with POST /v1/arms/promises.",
            )
            await problem.to_response()(scope, receive, send)
        else:
            await self._apps[0](scope, receive, send)

    async def _of_user(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        user = headers.get(USER)
        if not user:
            problem = invalid(
                f"This service has arms: the header '{USER.decode()}' must name the user of the call.",
                "Send the users of several arms in calls of their own, or name an arm: /arms/NAME/v1/...",
            )
            await problem.to_response()(scope, receive, send)
            return
        arm, bucket = self._assignment.place_of(user.decode("latin-1"))

        async def send_with_arm(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"].append((b"x-arm", self._assignment.names[arm].encode()))
            await send(message)

        await self._apps[arm](scope, receive, send_with_arm)
        if (found := context_of(scope).found) is not None:
            self._observer.arms[arm].add(bucket, found)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with AsyncExitStack() as stack:
            for app in self._apps:
                await stack.enter_async_context(_lifespan(app))
            saving = asyncio.create_task(self._save_forever())
            await send({"type": "lifespan.startup.complete"})
            await receive()
            saving.cancel()
            await asyncio.to_thread(self._observer.save)
        await send({"type": "lifespan.shutdown.complete"})

    async def _save_forever(self) -> None:
        while True:
            await asyncio.sleep(self._save_seconds)
            await asyncio.to_thread(self._save)

    def _save(self) -> None:
        self._observer.refresh()
        self._observer.save()


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
        f"Send it to /arms/{name}{_ITEMS}, and to every arm after it.",
    )


@asynccontextmanager
async def _lifespan(app: ASGIApp) -> AsyncIterator[None]:
    """Start an application, and shut it down at the end."""
    messages: asyncio.Queue[Message] = asyncio.Queue()
    started, ended = asyncio.Event(), asyncio.Event()

    async def send(message: Message) -> None:
        (started if message["type"].startswith("lifespan.startup") else ended).set()

    task = asyncio.ensure_future(app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, messages.get, send))
    await messages.put({"type": "lifespan.startup"})
    await started.wait()
    try:
        yield
    finally:
        await messages.put({"type": "lifespan.shutdown"})
        await ended.wait()
        await task
