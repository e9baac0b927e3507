"""Connections that are held, filled or taken: each is given up in time, and others are served meanwhile."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import TYPE_CHECKING

import httpx
import pytest

from fairsync.service.server.connection import Line
from fairsync.service.server.problems import busy
from service.running import Running, make_settings, small_keeper

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD = b"GET /health HTTP/1.1\r\nhost: localhost\r\n"
BODY = b'{"vectors": [[1, 0, 0, 0, 0, 0, 0, 0]]}'


@contextmanager
def running(keep_alive: float = 5, most: int | None = None, max_body: int = 100_000) -> Iterator[Running]:
    service = Running(small_keeper(), make_settings({"max_body_bytes": max_body}))
    config = service.server.config
    config.http, config.timeout_keep_alive, config.limit_concurrency = Line, keep_alive, most  # type: ignore[assignment]
    service.start()
    try:
        yield service
    finally:
        service.stop()


def connect(service: Running) -> socket.socket:
    line = socket.create_connection(("127.0.0.1", service.port))
    line.settimeout(10)
    return line


def is_well(line: socket.socket) -> bool:
    """Make a call, and return whether it is answered."""
    line.sendall(HEAD + b"\r\n")
    answer = b""
    while b"alive" not in answer:
        answer += line.recv(1000)
    return b"200 OK" in answer


def retrieve(*headers: bytes, body: bytes = BODY) -> bytes:
    """Return a call for candidates."""
    size = b"content-length: %d" % len(body)
    lines = (b"POST /v1/retrieve HTTP/1.1", b"host: localhost", b"content-type: application/json", size, *headers)
    return b"\r\n".join([*lines, b"", body])


def read_answers(line: socket.socket, count: int) -> bytes:
    """Read so many answers, each with a body of JSON."""
    answer = b""
    while answer.count(b"HTTP/1.1 ") < count or not answer.endswith(b"}"):
        more = line.recv(65_536)
        assert more, answer
        answer += more
    return answer


def ends_within(line: socket.socket, seconds: float) -> bool:
    """Read until the end; return whether it came in time."""
    start = time.monotonic()
    try:
        while line.recv(65_536):
            pass
    except ConnectionResetError:
        pass
    return time.monotonic() - start < seconds


@pytest.mark.parametrize("sent", [b"", b"GET /hea", HEAD])
def test_a_head_that_does_not_come_is_not_waited_for(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairsync.service.server.connection._HEAD_SECONDS", 0.2)
    with running() as service, closing(connect(service)) as line:
        line.sendall(sent)
        assert ends_within(line, 2)
        assert httpx.get(f"{service.url}/health").status_code == 200


def test_a_head_that_comes_a_byte_at_a_time_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairsync.service.server.connection._HEAD_SECONDS", 0.3)
    with running() as service, closing(connect(service)) as line:
        start = time.monotonic()
        with pytest.raises(OSError, match=r"Broken pipe|reset"):  # noqa: PT012 - it is not known at which byte
            for byte in HEAD * 10:
                line.send(bytes([byte]))
                time.sleep(0.05)
        assert time.monotonic() - start < 2


def test_a_second_head_is_waited_for_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairsync.service.server.connection._HEAD_SECONDS", 0.3)
    with running() as service, closing(connect(service)) as line:
        line.sendall(HEAD + b"\r\n" + HEAD)
        assert b"200 OK" in line.recv(1000)
        assert ends_within(line, 2)


def test_a_connection_between_calls_is_kept_for_a_while() -> None:
    with running(keep_alive=0.5) as service, closing(connect(service)) as line:
        for _ in range(3):
            assert is_well(line)
            time.sleep(0.1)
        assert ends_within(line, 2)


def test_the_rest_of_a_body_that_was_refused_is_not_waited_for() -> None:
    with running(keep_alive=0.3) as service, closing(connect(service)) as line:
        line.sendall(b"POST /v1/nothing HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab")
        assert b"404" in line.recv(1000)
        line.sendall(b"c")
        assert ends_within(line, 2)


def test_empty_lines_do_not_hold_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairsync.service.server.connection._HEAD_SECONDS", 0.3)
    with running(keep_alive=0.5) as service, closing(connect(service)) as line:
        assert is_well(line)
        start = time.monotonic()
        with pytest.raises(OSError, match=r"Broken pipe|reset"):  # noqa: PT012 - it is not known at which line
            while time.monotonic() < start + 5:
                line.send(b"\r\n")
                time.sleep(0.05)
        assert time.monotonic() - start < 2


def test_an_answer_without_a_body_comes_at_once() -> None:
    with running() as service, closing(connect(service)) as line:
        for _ in range(2):
            line.sendall(HEAD.replace(b"GET", b"HEAD") + b"\r\n")
            assert b"405 " in line.recv(1000)
        assert is_well(line)


def test_who_asks_before_sending_a_body_is_told_to_go_on() -> None:
    body = b'{"vectors": [[1, 0, 0, 0, 0, 0, 0, 0]]}'
    head = b"POST /v1/retrieve HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n"
    head += b"content-type: application/json\r\n"
    head += b"content-length: %d\r\n\r\n" % len(body)
    with running() as service, closing(connect(service)) as line:
        line.sendall(head)
        assert line.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        line.sendall(body)
        assert line.recv(10_000).startswith(b"HTTP/1.1 ")


@pytest.mark.parametrize("line_of_head", [b"x-long: %s\r\n" % (b"a" * 1000), b"x-many: 1\r\n" * 90])
def test_endless_heads_are_refused(line_of_head: bytes) -> None:
    with running() as service, closing(connect(service)) as line:
        answer, sent = b"", 0
        line.sendall(HEAD)
        try:
            for _ in range(2_000):
                line.sendall(line_of_head)
                sent += len(line_of_head)
        except OSError:  # it was cut off while still sending
            pass
        with suppress(ConnectionResetError):
            answer = line.recv(1000)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")
        assert ends_within(line, 2)


def test_a_head_of_usual_size_may_come_in_pieces() -> None:
    with running() as service, closing(connect(service)) as line:
        for i in range(40):
            line.sendall(HEAD if i == 0 else b"x-more-%d: %s\r\n" % (i, b"a" * 1000))
        line.sendall(b"\r\n")
        assert b"200 OK" in line.recv(1000)


def test_who_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairsync.service.server.connection._READ_SECONDS", 0.3)
    with running() as service, closing(socket.socket()) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        line.connect(("127.0.0.1", service.port))
        line.settimeout(1)
        try:
            for _ in range(3_000):  # answers of 40 kB each, which nobody reads
                line.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n")
        except OSError:
            pass
        end = time.monotonic() + 5
        while service.server.server_state.connections and time.monotonic() < end:
            time.sleep(0.02)
        assert not service.server.server_state.connections


def test_more_connections_than_there_is_room_for_are_told_so() -> None:
    with running(most=5) as service, ExitStack() as stack:
        lines = [stack.enter_context(closing(connect(service))) for _ in range(5)]
        for line in lines:
            assert is_well(line)
        refused = stack.enter_context(closing(connect(service)))
        answer = refused.recv(1000)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1\r\n" in answer
        assert b'"error":"overloaded"' in answer
        assert is_well(lines[0])
        lines[1].close()
        time.sleep(0.1)
        again = stack.enter_context(closing(connect(service)))
        assert is_well(again)


def test_who_was_turned_away_is_not_read_from_for_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fairsync.service.server.middleware._PAUSE_SECONDS", 0.4)
    monkeypatch.setattr("fairsync.service.server.micro_batching.Gatherer.check_room", turn_away)
    call = b"POST /v1/retrieve HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n"
    with running() as service, closing(connect(service)) as line, closing(connect(service)) as other:
        took = []
        with caplog.at_level("INFO"):
            for _ in range(3):
                start, answer = time.monotonic(), b""
                line.sendall(call)
                while not answer.endswith(b"}"):
                    answer += line.recv(1000)
                assert answer.startswith(b"HTTP/1.1 503 ")
                took.append(time.monotonic() - start)
                assert is_well(other), "others are read from all the time"
        assert took[0] < 0.3 < min(took[1:])
        lines = [record for record in caplog.records if getattr(record, "facts", {}).get("status") == 503]
        assert len(lines) == 1, "of those who are turned away within a second, one is written down"


def test_who_sends_calls_before_answers_came_is_not_read_from_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairsync.service.server.middleware._PAUSE_SECONDS", 5.0)
    monkeypatch.setattr("fairsync.service.server.micro_batching.Gatherer.check_room", turn_away)
    with running() as service, closing(connect(service)) as line:
        line.settimeout(0.5)
        answers = b""
        with suppress(TimeoutError):
            line.sendall(4_000 * retrieve(body=b""))  # twice what is read at once
        with suppress(TimeoutError):
            while True:
                answers += line.recv(1_000_000)
        assert 0 < answers.count(b"HTTP/1.1 503 ") < 3_000, "the rest is not read for five seconds"


@pytest.mark.parametrize("sent", [b"CONNECT there:443 HTTP/1.1", b"CONNECT /health HTTP/1.1", b"GET http:// HTTP/1.1"])
def test_what_is_no_call_is_refused(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with running() as service, closing(connect(service)) as line:
        line.sendall(sent + b"\r\nhost: localhost\r\n\r\n")
        answer = line.recv(1000)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"application/problem+json" in answer
        assert ends_within(line, 2)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def chunked(*trailers: bytes) -> bytes:
    """Return a call for candidates whose body comes in tiny pieces."""
    head = retrieve(b"transfer-encoding: chunked").partition(b"\r\n\r\n")[0]
    head = b"\r\n".join(one for one in head.split(b"\r\n") if not one.startswith(b"content-length"))
    pieces = b"".join(b"1\r\n%c\r\n" % one for one in BODY)
    return b"\r\n".join([head, b"", pieces + b"0", *trailers, b"", b""])


@pytest.mark.parametrize("at_once", [True, False])
def test_what_follows_a_body_is_no_part_of_the_head(at_once: bool) -> None:
    call = chunked(b"host: elsewhere.example", b"x-request-id: from-behind")
    with running() as service, closing(connect(service)) as line:
        for part in [call] if at_once else [call[at : at + 1] for at in range(len(call))]:
            line.sendall(part)
        answer = read_answers(line, 1)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"from-behind" not in answer
        assert is_well(line)


@pytest.mark.parametrize("more", [b"a: b\r\n" * 1000, b"a" * 6000])
def test_what_follows_a_body_has_an_end(more: bytes) -> None:
    with running() as service, closing(connect(service)) as line:
        line.sendall(chunked()[:-2] + b"a: b")
        with pytest.raises(OSError, match=r"Broken pipe|reset"):  # noqa: PT012 - it is not known at which
            for _ in range(2_000):
                line.sendall(more)


@pytest.mark.parametrize("protocol", [b"h2c", b"websocket"])
@pytest.mark.parametrize("at_once", [True, False])
def test_who_offers_another_protocol_is_answered_in_this_one(protocol: bytes, at_once: bool) -> None:
    call = retrieve(b"connection: Upgrade, HTTP2-Settings", b"upgrade: " + protocol, b"x-request-id: mine")
    calls = call + call + retrieve()
    with running() as service, closing(connect(service)) as line:
        for part in [calls] if at_once else [calls[at : at + 1] for at in range(len(calls))]:
            line.sendall(part)
        answers = read_answers(line, 3)
        assert answers.count(b"HTTP/1.1 200 ") == 3
        assert answers.count(b"x-request-id: mine") == 2
        assert is_well(line)


def hold(service: Running) -> threading.Event:
    """Have searches wait until they may go on."""
    go, search = threading.Event(), service.promise_service.front.retrieve
    service.promise_service.front.retrieve = lambda *asked: go.wait(10) and search(*asked)  # type: ignore[assignment]
    return go


def test_a_head_that_comes_with_a_large_body_before_it_is_not_too_large() -> None:
    with running() as service, closing(connect(service)) as line:
        go = hold(service)
        line.sendall(2 * retrieve())  # nothing is read after the second, before the first is answered
        time.sleep(0.1)
        line.sendall(retrieve(body=BODY + b" " * 90_000) + HEAD)
        go.set()
        time.sleep(0.2)
        line.sendall(b"\r\n")
        assert read_answers(line, 4).count(b"HTTP/1.1 200 ") == 4


def test_who_has_gone_is_not_waited_for_where_another_call_follows(caplog: pytest.LogCaptureFixture) -> None:
    with running() as service, caplog.at_level("INFO"):
        go = hold(service)
        with closing(connect(service)) as line:
            line.sendall(2 * retrieve())
            time.sleep(0.1)
        end = time.monotonic() + 5
        while not caplog.records and time.monotonic() < end:
            time.sleep(0.02)
        go.set()
    assert [getattr(record, "facts", {}).get("status") for record in caplog.records] == [499]


def turn_away(*_: object, **__: object) -> None:
    raise busy("overloaded", "Too much.")
