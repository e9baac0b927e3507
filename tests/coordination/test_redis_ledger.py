"""The ledger on a real server: what it has said is recorded is there, whoever is killed, and nothing counts twice."""

import logging
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis

from coordination.valkey_server import ValkeyServer
from fairsync.catalog import Catalog
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.redis import store as redis_store
from fairsync.coordination.redis.changes import Change
from fairsync.coordination.redis.ledger import RedisLedger
from fairsync.errors import BackendUnavailableError, FairSyncError, InvalidInputError
from fairsync.ledger import Entry
from fairsync.ledger.base import MAX_ANSWERS

ENTRY = Entry(np.array([1, 2]), 1, 0.5, 0.25, forced=1)


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as running:
        yield running


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def test_it_is_there_again(server: ValkeyServer, name: str) -> None:
    with RedisLedger(server.url, 2, name) as ledger:
        ledger.record([ENTRY, ENTRY], key="x")
        ledger.record([Entry(np.array([5, 0]), 1, 1.0, float("nan"), opens_horizon=True)])
        ledger.save("prices", b"abc")
    with RedisLedger(server.url, 2, name) as ledger:
        assert ledger.totals().exposures.tolist() == [5, 0]
        assert np.isnan(ledger.totals().cost)
        past = ledger.past()[0]
        assert (past.exposures.tolist(), past.requests, past.relevance, past.forced) == ([2, 4], 2, 1.0, 2)
        assert not ledger.record([ENTRY], key="x")
        assert ledger.load("prices") == b"abc"
        ledger.grow(3)
    with RedisLedger(server.url, 99, name) as ledger, RedisLedger(server.url, 2, name + " too") as other:
        assert ledger.past()[0].exposures.tolist() == [2, 4, 0], "a ledger knows its groups"
        assert other.totals().requests == 0, "names keep ledgers apart"


def test_writers_side_by_side(server: ValkeyServer, name: str) -> None:
    """Every entry counts once, also where two say the same, and all see the same."""
    ledgers = [RedisLedger(server.url, 2, name) for _ in range(4)]

    def write(mine: int) -> None:
        for number in range(30):
            ledgers[mine].record([ENTRY], key=f"{mine // 2} {number}")  # two of them share every key

    threads = [threading.Thread(target=write, args=(mine,)) for mine in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [ledger.totals().requests for ledger in ledgers] == [60] * 4
    for ledger in ledgers:
        ledger.close()


def test_killed_while_it_writes() -> None:
    """Whatever was acknowledged is there, and nothing twice, though writers do not know what got through."""
    keys, stop = [0, 0, 0], threading.Event()
    with ValkeyServer() as server:

        def write(mine: int) -> None:
            with RedisLedger(server.url, 2, timeout=20.0) as ledger:
                while not stop.is_set():
                    ledger.record([ENTRY], key=f"{mine} {keys[mine]}")
                    keys[mine] += 1

        threads = [threading.Thread(target=write, args=(mine,)) for mine in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(4):
            time.sleep(0.15)
            server.kill()
            server.start()
        stop.set()
        for thread in threads:
            thread.join()
        with RedisLedger(server.url, 2) as ledger:
            assert ledger.totals().requests == sum(keys) > 0


def test_a_server_that_is_away_is_told_in_time() -> None:
    with ValkeyServer() as server:
        ledger = RedisLedger(server.url, 2, timeout=0.5)
        ledger.record([ENTRY], key="one")
        server.kill()
        started = time.monotonic()
        with pytest.raises(BackendUnavailableError, match=r"127\.0\.0\.1.*Is the server up"):
            ledger.record([ENTRY], key="two")
        assert time.monotonic() - started < 10
        server.start()
        assert ledger.record([ENTRY], key="two")
        server.stall()
        with pytest.raises(BackendUnavailableError):
            ledger.record([ENTRY], key="three")
        server.go_on()
        ledger.record([ENTRY], key="three")
        assert ledger.totals().requests == 3, "it did hear the first time, and counts it once"
        with server.client() as client:
            client.flushall()
        with pytest.raises(FairSyncError, match="gone from"):
            ledger.record([ENTRY])
        ledger.close()


def test_settings_that_forget_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    with ValkeyServer("--appendfsync", "everysec", "--maxmemory-policy", "allkeys-lru") as server:
        for _ in range(2):
            RedisLedger(server.url, 2).close()
        assert [("everysec" in text, "evict" in text) for text in caplog.messages] == [(True, False), (False, True)]
    caplog.clear()
    with ValkeyServer("--rename-command", "CONFIG", "") as server:
        RedisLedger(server.url, 2).close()
        assert "does not tell its settings" in caplog.text
    caplog.clear()
    with ValkeyServer() as server:
        RedisLedger(server.url, 2).close()
    assert not caplog.messages


def test_a_password_opens_and_is_never_repeated(caplog: pytest.LogCaptureFixture) -> None:
    secret = "s3cr/t#x"
    with caplog.at_level(logging.DEBUG), ValkeyServer("--requirepass", secret) as server:
        address = f"127.0.0.1:{server.port}"
        with RedisLedger(f"redis://:s3cr%2Ft%23x@{address}", 2, timeout=0.3) as ledger:
            assert ledger.record([ENTRY])
            said = [repr(ledger), repr(ledger.store), ledger.store.address]
            server.kill()
            with pytest.raises(BackendUnavailableError) as away:
                ledger.totals()
            server.start()
        with pytest.raises(InvalidInputError, match="does not let us in") as wrong:
            RedisLedger(f"redis://:not-s3cr@{address}", 2)
        with pytest.raises(InvalidInputError, match="does not let us in"):
            RedisLedger(f"redis://{address}", 2)
    with pytest.raises(InvalidInputError, match="cannot be read") as unreadable:
        RedisLedger(f"redis://:{secret}@{address}", 2)
    with pytest.raises(InvalidInputError, match="cannot be read") as no_scheme:
        RedisLedger(f"http://:{secret}@{address}", 2)
    raised = [away, wrong, unreadable, no_scheme]
    said += [str(one.value) for one in raised] + [str(one.value.__cause__) for one in raised] + caplog.messages
    assert "s3cr" not in "".join(said)


def test_tls(tmp_path: Path) -> None:
    """The server that tests have speaks no TLS: something before it does."""
    certificate, key = tmp_path / "ca.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", str(key)]
    try:
        subprocess.run([*made, "-out", str(certificate), *subject], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no openssl to make a certificate")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with ValkeyServer() as server, socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]

        def pass_on() -> None:
            with (
                context.wrap_socket(door.accept()[0], server_side=True) as outer,
                socket.create_connection(("127.0.0.1", server.port)) as inner,
            ):
                while question := outer.recv(65536):
                    inner.sendall(question)
                    outer.sendall(inner.recv(65536))

        thread = threading.Thread(target=pass_on)
        thread.start()
        with RedisLedger(f"rediss://localhost:{port}/0?ssl_ca_certs={certificate}", 2) as ledger:
            assert ledger.record([ENTRY], key="x")
            assert not ledger.record([ENTRY], key="x")
        thread.join(timeout=10)


def test_what_cannot_be_used_is_told(server: ValkeyServer, name: str) -> None:
    with pytest.raises(InvalidInputError, match="without braces"):
        RedisLedger(server.url, 2, "{a}")
    with pytest.raises(InvalidInputError, match="timeout"):
        RedisLedger(server.url, 2, timeout=0)
    with RedisLedger(server.url, 3, name) as ledger, pytest.raises(InvalidInputError, match="another catalog"):
        Coordinator(Catalog(np.eye(2), ["a", "b"]), k=1, ledger=ledger)
    with server.client() as client:
        client.set("{text}", "something")
        client.hset("{hash}", "some", "thing")
        client.hset(f"{{{name}}}", "format", 99)
        for taken in ("text", "hash"):
            with pytest.raises(InvalidInputError, match="another name"):
                RedisLedger(server.url, 2, taken)
        assert client.hgetall("{hash}") == {b"some": b"thing"}
    with pytest.raises(InvalidInputError, match="update FairSync"):
        RedisLedger(server.url, 2, name)


def test_a_full_server_changes_nothing(server: ValkeyServer, name: str) -> None:
    with RedisLedger(server.url, 2, name) as ledger, server.client() as client:
        ledger.record([ENTRY])
        client.config_set("maxmemory", 1)
        try:
            with pytest.raises(FairSyncError, match="Nothing was changed"):
                ledger.record([ENTRY], key="x")
        finally:
            client.config_set("maxmemory", 0)
        assert ledger.totals().requests == 1
        assert ledger.record([ENTRY], key="x")


def test_the_latest_answers_are_kept(server: ValkeyServer, name: str) -> None:
    """Of some before them it is known that there were answers; of those before, nothing."""
    with RedisLedger(server.url, 2, name) as ledger:
        some = {str(number): b"answer" for number in range(MAX_ANSWERS + 10)}
        ledger.record([ENTRY], answers=some)
        assert [ledger.answer(request) for request in ("9", "10", str(MAX_ANSWERS + 9))] == [b"", b"answer", b"answer"]


def test_a_coordinator_over_it_can_be_replaced(server: ValkeyServer, name: str) -> None:
    catalog = Catalog(np.eye(2), ["a", "b"])
    with RedisLedger(server.url, 2, name) as ledger:
        first = Coordinator(catalog, k=1, floors={"a": 2}, horizon=10, batch_size=2, ledger=ledger)
        one, two = first.lease(1), first.lease(1)
        first.settle(one.number, Entry(np.array([1, 0]), 1, 1.0, 0.0), None)
        second = Coordinator(catalog, k=1, floors={"a": 2}, horizon=10, batch_size=2, ledger=ledger)
        for number in (one.number, two.number):
            second.settle(number, Entry(np.array([1, 0]), 1, 1.0, 0.0), None)
        assert second.report().exposures == {"a": 2, "b": 0}


def test_a_change_may_be_large(server: ValkeyServer, name: str) -> None:
    """Such as when thousands of leases expire at once."""
    with RedisLedger(server.url, 2, name) as ledger, server.client() as client:
        leases = [f"lease {number}" for number in range(20_000)]
        client.hset(ledger.store.key(), mapping=dict.fromkeys(leases, "1 0"))
        assert ledger.store.swap(ledger.look().version, Change(drop=leases)).version
        assert client.hlen(ledger.store.key()) == 4


def test_limits_are_in_the_script() -> None:
    assert not [word for word in redis_store._LIMITS if word in redis_store._SWAP]


def test_a_backup_is_a_ledger() -> None:
    """The files of a server that runs are copied, as a snapshot of the disk would have them."""
    other = ValkeyServer()
    with ValkeyServer() as server, RedisLedger(server.url, 2) as ledger:
        ledger.record([ENTRY], key="x")
        shutil.copytree(Path(server.folder.name, "appendonlydir"), Path(other.folder.name, "appendonlydir"))
        ledger.record([ENTRY])
    with other, RedisLedger(other.url, 2) as restored:
        assert restored.totals().exposures.tolist() == [1, 2]
        assert not restored.record([ENTRY], key="x")


def test_an_answer_of_the_server_gets_lost(server: ValkeyServer, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry was added, and the server could not say so; without a key, the version tells."""
    with RedisLedger(server.url, 2, name) as ledger:
        swap, lost = ledger.store._swap, iter([True])

        def swap_and_lose(*arguments: Any) -> Any:
            answer = swap(*arguments)
            if next(lost, False):
                raise redis.ConnectionError("cut off")
            return answer

        monkeypatch.setattr(ledger.store, "_swap", swap_and_lose)
        assert ledger.record([ENTRY])
        assert ledger.totals().requests == 1
