"""The router of an A/B test: sends each call to the arm of its user, and observes what the user gets."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from fairsync.service.arms.comparison import compare
from fairsync.service.arms.items import change_items, is_item_change
from fairsync.service.arms.pro_rata import split_promise
from fairsync.service.arms.promised_items import PromisedItems
from fairsync.service.arms.saved_sums import SavedSums
from fairsync.service.promises.conversion import promise_from_record
from fairsync.service.schema import PromiseRecord, PromiseView
from fairsync.service.schema.arms import ArmsReport
from fairsync.service.schema.record import MSGPACK
from fairsync.service.schema.retrieval import NumberArray
from fairsync.service.server.operations import Operation
from fairsync.service.server.problems import invalid

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

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


class _JsonAnswer(msgspec.Struct):
    ids: list[Any]
    relevance: list[float]


class _JsonAnswers(msgspec.Struct):
    answers: list[_JsonAnswer]


class _PackedAnswers(msgspec.Struct):
    ids: NumberArray | list[list[Any]]
    relevance: NumberArray | list[list[float]]


_read_json = msgspec.json.Decoder(_JsonAnswers).decode
_read_packed = msgspec.msgpack.Decoder(_PackedAnswers).decode


class ArmObserver:
    """Sums what the users of each arm get, and saves the sums in the arms' ledgers.

    Parameters
    ----------
    assignment
        The arms.
    services
        The promise service of each.
    """

    def __init__(self, assignment: Assignment, services: Sequence[PromiseService]) -> None:
        self._assignment, self._services = assignment, services
        self.sums = [SavedSums(service.coordinator.ledger, assignment.buckets) for service in services]
        self._promised = [PromisedItems(service) for service in services]

    def refresh(self) -> None:
        """Read which items have promises."""
        for promised in self._promised:
            promised.refresh()

    def observe(self, arm: int, bucket: int, body: bytes, media_type: bytes) -> None:
        """Add the answer to a call."""
        if media_type.startswith(MSGPACK.encode()):
            packed = _read_packed(body)
            ids, relevance = _values(packed.ids), _values(packed.relevance)
        else:
            answers = _read_json(body).answers
            ids, relevance = [one.ids for one in answers], [one.relevance for one in answers]
        self.add(arm, bucket, ids, relevance)

    def add(self, arm: int, bucket: int, ids: Sequence[Sequence[Any]], relevance: Sequence[Sequence[float]]) -> None:
        """Add what a user got.

        Parameters
        ----------
        arm, bucket
            The place of the user.
        ids, relevance
            The candidates of each request, and their relevance.
        """
        exposures = self._promised[arm].count(list(chain.from_iterable(ids)))
        self.sums[arm].own.add(bucket, len(ids), sum(map(sum, relevance)), exposures)

    def save(self) -> None:
        """Save the sums."""
        for sums in self.sums:
            sums.save()

    def report(self) -> ArmsReport:
        """Return the comparison of the arms."""
        more = []
        for service in self._services:
            past, overview = service.past(_MOST_PAST), service.overview()
            kept = sum(one.kept for one in past)
            promises = len(service.scheduler.state.promises)
            more.append({"promises": promises, "kept": kept, "past": len(past), "cost_share": overview.cost_share})
        shares = dict(zip(self._assignment.names, self._assignment.shares, strict=True))
        return ArmsReport(
            experiment=self._assignment.experiment, arms=compare(shares, [sums.total() for sums in self.sums], more)
        )

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
                    made.append((service, service.set_promise(asked, by=by)))
        except BaseException:
            for service, view in made:
                service.delete_promise(view.id, by=by)
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
        elif is_item_change(scope):
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
        if scope["path"] != "/v1/retrieve":
            await self._apps[arm](scope, receive, send)
            return
        answer = bytearray()
        is_answer, media_type = False, b""

        async def observed(message: Message) -> None:
            nonlocal is_answer, media_type
            if message["type"] == "http.response.start":
                is_answer = message["status"] == 200
                media_type = dict(message["headers"]).get(b"content-type", b"")
                message["headers"].append((b"x-arm", self._assignment.names[arm].encode()))
            elif is_answer:
                answer.extend(message.get("body", b""))
            await send(message)

        await self._apps[arm](scope, receive, observed)
        if is_answer:
            self._observer.observe(arm, bucket, bytes(answer), media_type)

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


def _values(column: NumberArray | list[list[Any]]) -> list[list[Any]]:
    return column.to_numpy().tolist() if isinstance(column, NumberArray) else column
