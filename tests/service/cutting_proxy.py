"""A TCP proxy in front of a Postgres server that cuts connections in the middle of a transaction."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Literal

Cut = Literal["before", "after"]


class CuttingProxy:
    """Forwards connections to a port, and cuts some of them at a commit: before the server gets it, or after.

    After it, the client cannot know that the transaction was committed.

    Attributes
    ----------
    cut_next : str or None
        Where to cut the connection that commits next; set to None when it was cut.
    cuts : int
        Number of connections that were cut.
    """

    def __init__(self, port: int) -> None:
        self._target, self.cut_next, self.cuts = port, None, 0
        self.cut_next: Cut | None
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client = self._listener.accept()[0]
                server = socket.create_connection(("127.0.0.1", self._target))
                self._open |= {client, server}
                threading.Thread(target=self._forward, args=(client, server, True), daemon=True).start()
                threading.Thread(target=self._forward, args=(server, client, False), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, is_client: bool) -> None:  # noqa: FBT001
        with suppress(OSError):
            while data := source.recv(65536):
                cut = self._take_cut() if is_client and b"COMMIT" in data else None
                if cut == "after":
                    source.shutdown(socket.SHUT_RDWR)  # first, so that the answer does not get through
                if cut != "before":
                    target.sendall(data)
                if cut is not None:
                    break
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
            self._open.discard(one)

    def _take_cut(self) -> Cut | None:
        with self._lock:
            cut, self.cut_next = self.cut_next, None
            self.cuts += cut is not None
            return cut

    def __enter__(self) -> CuttingProxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._thread.join()
