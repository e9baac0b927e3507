"""A process that decodes large bodies: it can neither stop the event loop nor take the memory of the service.

    python -m fairsync.service.server.decode_process MAX_BODY_BYTES MAX_USERS

It reads bodies from its standard input, writes structs to its standard output, and ends with its parent.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import struct
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from fairsync.service import schema
from fairsync.service.schema import MSGPACK
from fairsync.service.server.codec import compact, decode
from fairsync.service.server.problems import Problem, busy, problem_of

if TYPE_CHECKING:
    from collections.abc import Sequence

# A body: length of the head, length of the body. An answer: whether it is a struct, and its length.
_BODY, _ANSWER = struct.Struct("<IQ"), struct.Struct("<?Q")
# Memory of the process: its own, and this multiple of the largest body. A number of one byte becomes an object of 32.
_OWN_BYTES, _MULTIPLE = 1 << 30, 48
# Against the service's own 0: where both want a core, the process gets a thirtieth of it.
_NICE = 15
# Environment variables that the process inherits.
_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT", "LANG", "OMP_NUM_THREADS")


class DecodeProcess:
    """Decodes bodies in a process, which is started with the first of them. `decode` must be used from one thread.

    Parameters
    ----------
    max_body_bytes
        Largest body; bounds the memory of the process.
    max_users
        Most users of one call.

    Examples
    --------
    >>> process = DecodeProcess(1_000_000, 10)
    >>> process.decode(b'{"ids": [3]}', "application/json", schema.ItemIds)
    ItemIds(ids=[3])
    >>> process.close()
    """

    def __init__(self, max_body_bytes: int, max_users: int) -> None:
        self._arguments = [str(max_body_bytes), str(max_users)]
        self._process: subprocess.Popen[bytes] | None = None
        self._lock, self._closed = threading.Lock(), False

    @property
    def pid(self) -> int | None:
        """The id of the process; None if it does not run."""
        return None if self._process is None else self._process.pid

    def decode(self, body: bytes, media_type: str, kind: type[Any]) -> Any:
        """Return the struct of a body; raise the problem that its decoding met."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        head = msgspec.msgpack.encode([kind.__name__, media_type])
        try:
            process.stdin.write(_BODY.pack(len(head), len(body)) + head)
            process.stdin.write(body)
            process.stdin.flush()
            is_struct, length = _ANSWER.unpack(_read(process.stdout, _ANSWER.size))
            answer = _read(process.stdout, length)
        except OSError:  # it was killed, for example because the system ran out of memory
            self._stop()
            raise busy("unavailable", "The body could not be decoded.") from None
        if is_struct:
            return decode(answer, MSGPACK, kind)
        raise Problem(*msgspec.msgpack.decode(answer))

    def close(self) -> None:
        """End the process; a body that it decodes fails."""
        self._closed = True
        self._stop()

    def _running(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closed:
                raise busy("stopping", "The service is being stopped.")
            if self._process is None:
                command = [sys.executable, "-m", __name__, *self._arguments]
                # Without the variables that hold tokens, which a decoder does not need.
                environ = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
                environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ, start_new_session=True
                )
            return self._process

    def _stop(self) -> None:
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):  # what could not be written is lost
                        stream.close()


def serve(bodies: BinaryIO, answers: BinaryIO, max_users: int) -> None:
    """Decode bodies until there are no more."""
    while head := bodies.read(_BODY.size):
        try:
            sizes = _BODY.unpack(head)
            name, media_type = msgspec.msgpack.decode(_read(bodies, sizes[0]))
            body = _read(bodies, sizes[1])
        except OSError:  # the parent has ended
            return
        try:
            is_struct, answer = (
                True,
                msgspec.msgpack.encode(compact(decode(body, media_type, getattr(schema, name)), max_users)),
            )
        except Exception as error:
            problem = problem_of(error)
            facts = [problem.status, problem.error, problem.message, problem.hint, problem.headers]
            is_struct, answer = False, msgspec.msgpack.encode(facts)
        del body
        answers.write(_ANSWER.pack(is_struct, len(answer)))
        answers.write(answer)
        answers.flush()


def main(arguments: Sequence[str]) -> None:
    """Run the process."""
    max_body_bytes, max_users = map(int, arguments)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when it ends
    gc.disable()  # numbers and strings have no cycles, and looking for them takes longer than decoding
    if hasattr(os, "nice"):
        os.nice(_NICE)
    with contextlib.suppress(ImportError):  # of Windows
        import resource

        most = _OWN_BYTES + _MULTIPLE * max_body_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    serve(sys.stdin.buffer, sys.stdout.buffer, max_users)


def _read(stream: Any, size: int) -> bytes:
    data: bytes = stream.read(size)
    if len(data) < size:
        raise ConnectionError("the other end has closed")
    return data


if __name__ == "__main__":
    main(sys.argv[1:])
