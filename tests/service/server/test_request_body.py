"""Large bodies: they neither stop the event loop nor take its memory, and each caller waits for itself."""

from __future__ import annotations

import asyncio
import os
import signal
import tracemalloc
from typing import TYPE_CHECKING, Any

import httpx
import msgspec
import numpy as np
import pytest

from fairsync.service.schema import JSON, MSGPACK, ImpressionReports, NumberArray, RetrieveRequest, UpsertItems
from fairsync.service.server.caller import Caller
from fairsync.service.server.decode_process import DecodeProcess
from fairsync.service.server.problems import Problem
from fairsync.service.server.rate_limit import RateLimiter
from fairsync.service.server.request_body import BodyReader
from fairsync.service.server.request_context import RequestContext
from service.running import running, small_service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.types import Message

SMALL = b'{"vectors": [[1.0, 2.0]]}'
LARGE = b'{"vectors": [' + b"[1.5, 2.5]," * 9_999 + b"[1.5, 2.5]]}"


@pytest.fixture
def bodies() -> Iterator[BodyReader]:
    reader = BodyReader(16_000_000, 10_000)
    yield reader
    reader.close()


def client(*parts: bytes, last: asyncio.Event | None = None) -> Callable[[], Any]:
    """Return the receive function of a client, whose last part comes after an event."""
    left = list(parts)

    async def receive() -> Message:
        if len(left) == 1 and last is not None:
            await last.wait()
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    return receive


def context(name: str = "") -> RequestContext:
    return RequestContext(b"test", {b"content-type": JSON.encode()}, Caller(name, ["retrieve"]))


def read(bodies: BodyReader, *parts: bytes) -> Any:
    return asyncio.run(bodies.read(context(), client(*parts), RetrieveRequest, [JSON]))


def test_a_large_body_means_the_same_as_a_small_one(bodies: BodyReader) -> None:
    assert read(bodies, SMALL).vectors == [[1.0, 2.0]]
    assert read(bodies, SMALL[:9], SMALL[9:]).vectors == [[1.0, 2.0]]
    vectors = read(bodies, LARGE[:50_000], LARGE[50_000:]).vectors
    assert isinstance(vectors, NumberArray)
    np.testing.assert_array_equal(vectors.to_numpy(), np.tile([1.5, 2.5], (10_000, 1)))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"vectors": ["' + b"a" * 1_000_000 + b'"' + b',"b"' * 500 + b"]}", "Expected `array`, got `str`"),
        (b'{"vectors": [["' + b"a" * 1_000_000 + b'"]' + b',["b"]' * 500 + b"]}", "Expected `float | array`"),
        (b'{"vectors": [' + b"[]," * 333_333 + b"[]]}", "1 to 10000 users"),
        (b'{"histories": [' + b"[]," * 333_333 + b"[]]}", "1 to 10000 users"),
        (b'{"vectors": [' + b"[]," * 9_999 + b"[]]" + b" " * 65_536 + b"}", "must not be empty"),
        (b'{"vectors": [[' + b"0," * 500_000 + b"0],[0]]}", "same length"),
        (b'{"' + b"a" * 1_000_000 + b'": 1}', "unknown field"),
        (b"[" * 1_000_000, "Expected `object`, got `array`"),
    ],
)
def test_a_body_takes_a_small_multiple_of_its_size(bodies: BodyReader, body: bytes, message: str) -> None:
    read(bodies, LARGE)  # starts the process
    tracemalloc.start()
    with pytest.raises(Problem, match=message.replace("|", r"\|")) as refused:
        read(bodies, body)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refused.value.status == 422
    assert len(refused.value.message) < 500
    assert peak < 5 * len(body)


def test_reports_with_wrong_items_stop_at_the_first() -> None:
    report = {"request_id": "r", "items": [0.5] * 900}
    process = DecodeProcess(16_000_000, 10)
    try:
        with pytest.raises(Problem, match=r"reports\[0\]\.items\[0\]: Expected `int \| str`, got `float`"):
            process.decode(msgspec.json.encode({"reports": [report] * 1_000}), JSON, ImpressionReports)
    finally:
        process.close()


def test_items_in_messagepack(bodies: BodyReader) -> None:
    items = {"ids": list(range(10_000)), "groups": ["a"] * 10_000, "embeddings": [[0.5] * 4] * 10_000}
    request = context()
    request.headers[b"content-type"] = MSGPACK.encode()
    decoded = asyncio.run(bodies.read(request, client(msgspec.msgpack.encode(items)), UpsertItems, [JSON, MSGPACK]))
    assert (decoded.ids, decoded.embeddings.shape) == (items["ids"], [10_000, 4])


def test_a_process_that_is_killed_is_answered_for_and_replaced() -> None:

    process = DecodeProcess(16_000_000, 10_000)
    try:
        process.decode(LARGE, JSON, RetrieveRequest)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(Problem, match="could not be decoded") as failed:
            process.decode(LARGE, JSON, RetrieveRequest)
        assert (failed.value.status, failed.value.headers) == (503, {"retry-after": "1"})
        assert process.decode(LARGE, JSON, RetrieveRequest).vectors.shape == [10_000, 2]
    finally:
        process.close()
    with pytest.raises(Problem, match="being stopped"):
        process.decode(LARGE, JSON, RetrieveRequest)


def test_a_large_body_waits_for_those_of_its_caller_only(bodies: BodyReader) -> None:
    async def work() -> None:
        last = asyncio.Event()

        def send(name: str, *parts: bytes, last: asyncio.Event | None = None) -> asyncio.Task[Any]:
            reading = bodies.read(context(name), client(*parts, last=last), RetrieveRequest, [JSON])
            return asyncio.create_task(reading)

        slow = send("a", LARGE[:-1], LARGE[-1:], last=last)
        await asyncio.sleep(0)
        same = send("a", LARGE)
        assert (await send("b", LARGE)).vectors.shape == [10_000, 2]
        assert (await send("a", SMALL)).vectors == [[1.0, 2.0]]
        assert not slow.done()
        assert not same.done()
        last.set()
        await asyncio.gather(slow, same)

    asyncio.run(work())


def test_the_large_bodies_of_a_caller_have_a_rate() -> None:
    reader = BodyReader(16_000_000, 10_000, bytes_per_second=1.0)

    async def work() -> None:
        def send(name: str, body: bytes) -> Any:
            return asyncio.wait_for(reader.read(context(name), client(body), RetrieveRequest, [JSON]), 60)

        await send("a", LARGE)
        waiting = asyncio.create_task(send("a", LARGE))
        await send("b", LARGE)
        await send("a", SMALL)
        assert not waiting.done()
        waiting.cancel()

    asyncio.run(work())
    reader.close()


def test_a_body_counts_as_a_request_per_64_kib(bodies: BodyReader) -> None:
    request = context("a")
    limiter = request.caller.rate_limiter = RateLimiter(0.5, clock=lambda: 0.0)
    limiter.hit()
    asyncio.run(bodies.read(request, client(LARGE), RetrieveRequest, [JSON]))
    assert request.body_bytes == len(LARGE) > 65_536
    with pytest.raises(Problem, match="has asked for more"):
        limiter.hit()


def test_a_large_call_over_http_gets_the_same_answer() -> None:
    users = np.random.default_rng(0).normal(size=(900, 8))
    with running(small_service()) as service, httpx.Client(base_url=service.url, timeout=60) as http:
        large = http.post("/v1/retrieve", json={"vectors": users.tolist()}).json()["answers"]
        small = http.post("/v1/retrieve", json={"vectors": users[:5].tolist()}).json()["answers"]
    assert len(large) == 900
    assert large[:5] == small
