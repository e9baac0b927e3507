"""A TCP proxy that cuts connections: after a number of bytes, or so that an answer of the server is lost."""

import socket
import threading
from contextlib import suppress

# What the answer of the server contains if it has committed a transaction, or a settlement, which is one statement.
COMMIT, SETTLED = b"COMMIT\0", b"exists\0"


class CuttingProxy:
    """Forwards connections to a port of this machine."""

    def __init__(self, port: int) -> None:
        self._target, self._lock = port, threading.Lock()
        self._bytes: int | None = None
        self._lost: bytes | None = None
        self.cuts = 0
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._door.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def through(self, url: str) -> str:
        """Return the URL of the same database through this proxy."""
        return url.replace(f":{self._target}/", f":{self.port}/")

    def cut_after(self, n: int) -> None:
        """Cut the connection that forwards the n-th byte from now, in any direction."""
        with self._lock:
            self._bytes = n

    def lose_answer(self, part: bytes) -> None:
        """Cut the connection instead of forwarding the next answer of the server that contains this."""
        with self._lock:
            self._lost = part

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._door.accept()
                pair = client, socket.create_connection(("127.0.0.1", self._target))
                for one in pair:
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for to_server in (True, False):
                    threading.Thread(target=self._forward, args=(*pair, to_server), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket, to_server: bool) -> None:
        source, target = (client, server) if to_server else (server, client)
        with suppress(OSError):
            while data := source.recv(65536):
                part = self._passed(data, to_server)
                target.sendall(part)
                if len(part) < len(data):
                    break
        for one in (client, server):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        if not to_server:
            client.close()
            server.close()

    def _passed(self, data: bytes, to_server: bool) -> bytes:
        """Return the part of some bytes that is forwarded."""
        with self._lock:
            if not to_server and self._lost is not None and self._lost in data:
                self._lost, self.cuts = None, self.cuts + 1
                return b""
            if self._bytes is not None:
                self._bytes -= len(data)
                if self._bytes <= 0:
                    kept, self._bytes = len(data) + self._bytes - 1, None
                    self.cuts += 1
                    return data[: max(kept, 0)]
        return data

    def __enter__(self) -> "CuttingProxy":
        return self

    def __exit__(self, *_: object) -> None:
        self._door.close()
