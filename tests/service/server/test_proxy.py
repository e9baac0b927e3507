"""deploy/nginx.conf in front of a service: slow heads, slow bodies and endless trailers end."""

from __future__ import annotations

import re
import shutil
import socket
import ssl
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from service.running import make_settings, running, small_service
from service.service_process import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
CONFIG = Path(__file__).parents[3] / "deploy" / "nginx.conf"
HEAD = b"POST /v1/retrieve HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
BODY = b'{"vectors": [[1, 0, 0, 0, 0, 0, 0, 0]]}'


def configured(folder: Path, port: int, upstream: int) -> Path:
    """Write the example with ports, files and short timeouts of the test."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-keyout", folder / "key.pem", "-out", folder / "certificate.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    text = CONFIG.read_text()
    for old, new in {
        "<shop.example.org>": "localhost",
        "<certificate.pem>": str(folder / "certificate.pem"),
        "<key.pem>": str(folder / "key.pem"),
        "listen 443": f"listen 127.0.0.1:{port}",
        "127.0.0.1:8080": f"127.0.0.1:{upstream}",
        "/run/nginx.pid": str(folder / "nginx.pid"),
        "client_header_timeout 10s": "client_header_timeout 1s",
        "client_body_timeout 10s": "client_body_timeout 1s",
        "worker_processes auto": "worker_processes 1",
    }.items():
        assert old in text, old
        text = text.replace(old, new)
    path = folder / "nginx.conf"
    own_folders = f"http {{ client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;"
    path.write_text(text.replace("http {", own_folders))
    return path


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder, port = tmp_path_factory.mktemp("nginx"), free_port()
    with running(small_service(), make_settings()) as service:
        config = configured(folder, port, service.port)
        with subprocess.Popen(["nginx", "-c", str(config), "-g", "daemon off;"]) as process:
            try:
                _wait_for(port, process)
                yield port
            finally:
                process.terminate()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 240
    while True:
        assert process.poll() is None, "nginx has ended"
        assert time.monotonic() < end
        try:
            assert httpx.get(
                f"https://127.0.0.1:{port}/ready", verify=False, headers={"host": "localhost"}, timeout=60
            ).json()["ok"]
        except httpx.ConnectError:
            time.sleep(0.05)
        else:
            return


def connect(port: int) -> ssl.SSLSocket:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = context.wrap_socket(socket.create_connection(("127.0.0.1", port)))
    connection.settimeout(240)
    return connection


def read_all(connection: socket.socket) -> bytes:
    """Read until the connection is closed."""
    answer = b""
    try:
        while more := connection.recv(65_536):
            answer += more
    except (ConnectionResetError, ssl.SSLEOFError):
        pass
    return answer


def test_a_request_is_answered_over_tls(proxy: int) -> None:
    with closing(connect(proxy)) as connection:
        size = b"content-length: %d\r\nconnection: close\r\n\r\n" % len(BODY)
        connection.sendall(HEAD + size + BODY)
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert re.search(rb"x-request-id: [0-9a-f]{32}\r\n", answer), "the id that nginx gave it"


def test_an_offer_of_another_protocol_is_not_passed_on(proxy: int) -> None:
    """Java's client offers h2c with every call; uvicorn would lose the body of such a call."""
    with closing(connect(proxy)) as connection:
        offer = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\n"
        connection.sendall(HEAD + offer + b"content-length: %d\r\n\r\n" % len(BODY) + BODY)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("sent", [b"", b"POST /v1/ret", HEAD, HEAD + b"content-length: 100\r\n\r\n{"])
def test_slow_heads_and_slow_bodies_end(proxy: int, sent: bytes) -> None:
    with closing(connect(proxy)) as connection:
        connection.sendall(sent)
        assert b" 200 " not in read_all(connection)


def test_endless_heads_end(proxy: int) -> None:
    with closing(connect(proxy)) as connection:
        connection.sendall(HEAD)
        _send_until_refused(connection, b"x-long: %s\r\n" % (b"a" * 1000))


@pytest.mark.parametrize("trailer", [b"a: b\r\n" * 1000, b"a" * 6000])
def test_endless_trailers_end(proxy: int, trailer: bytes) -> None:
    with closing(connect(proxy)) as connection:
        connection.sendall(HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n")
        _send_until_refused(connection, trailer)


def test_slow_trailers_end(proxy: int) -> None:
    with closing(connect(proxy)) as connection:
        connection.sendall(HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\na: b\r\n")
        assert b" 200 " not in read_all(connection)


def _send_until_refused(connection: socket.socket, part: bytes) -> None:
    try:
        for _ in range(3_000):
            connection.sendall(part)
    except OSError:  # it was closed while still sending
        return
    assert b" 200 " not in read_all(connection)
