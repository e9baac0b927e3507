"""A load generator in a process of its own: so many clients, each asking again when it has its answer.

    python -m benchmarks.load PORT USERS.npy --clients 64 --seconds 10 [--rate 500] [--ids] [--token TOKEN] [--pid PID]

Prints one line of JSON: times and throughput are those of answers; what was refused is counted by its status. It
speaks bare HTTP over kept connections, without tasks or streams, so that it takes little of the cores it shares, and
nobody waits for the one who asks.
"""

import argparse
import json
import os
import selectors
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from fairsync.service.schema import NumberArray, RetrieveRequest

_PIECE = 1 << 16


@dataclass(frozen=True)
class Load:
    """What came of a load.

    Attributes
    ----------
    requests : int
        Answers and refusals.
    per_second, median_ms, p99_ms : float
        Throughput and times of the answers.
    errors : dict
        {status: refusals}.
    refused_p99_ms : float
        Time of the refusals.
    own_cpu_seconds, service_cpu_seconds : float
        CPU time of the generator, and of the service if its process was given.
    """

    requests: int
    per_second: float
    median_ms: float
    p99_ms: float
    errors: dict[str, int]
    refused_p99_ms: float
    own_cpu_seconds: float
    service_cpu_seconds: float

    @property
    def n_errors(self) -> int:
        """The number of refusals."""
        return sum(self.errors.values())


def run_load(
    port: int,
    users: Path,
    clients: int,
    seconds: float,
    rate: float = 0.0,
    *,
    cores: Sequence[int],
    ids: bool = False,
    token: str = "",
    pid: int | None = None,
    look: Callable[[], object] | None = None,
    every: float = 0.2,
) -> Load:
    """Load a service from a process of its own; see the command line. Meanwhile, call a function regularly."""
    command = [
        "taskset", "-c", ",".join(map(str, cores)), sys.executable, "-m", "benchmarks.load", str(port), str(users),
        "--clients", str(clients), "--seconds", str(seconds), "--rate", str(rate), "--token", token,
        *(["--ids"] if ids else []), *([] if pid is None else ["--pid", str(pid)]),
    ]  # fmt: skip
    here = Path(__file__).parents[1]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=here) as process:
        while look is not None and process.poll() is None:
            time.sleep(every)
            look()
        told, _ = process.communicate()
    assert process.returncode == 0, "the load generator failed"
    return Load(**json.loads(told))


@dataclass
class Tally:
    """What came of the load: seconds of answers, and of refusals."""

    seconds: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)

    def answered(self, status: str, seconds: float) -> None:
        """Count an answer."""
        if status == "200":
            self.seconds.append(seconds)
        else:
            self.refused.append(seconds)
            self.errors[status] = self.errors.get(status, 0) + 1


def make_request(user: np.ndarray, *, with_id: bool = False, token: str = "") -> bytes:
    """Return a call for one user, with its head."""
    request_ids: list[str | None] | None = [uuid.uuid4().hex] if with_id else None
    body = msgspec.msgpack.encode(RetrieveRequest(vectors=NumberArray.of(user[None]), request_ids=request_ids))
    head = "POST /v1/retrieve HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/msgpack\r\n"
    head += f"authorization: Bearer {token}\r\n" if token else ""
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


class Asker:
    """One client on one connection."""

    def __init__(self, port: int, first: float) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.due, self.sent, self.waits = first, 0.0, False
        self._came = b""

    def close(self) -> None:
        """Go."""
        self.socket.close()

    def ask(self, request: bytes) -> None:
        """Send a request: small enough for the socket to take it whole."""
        self.sent, self.waits = time.perf_counter(), True
        self.socket.sendall(request)

    def read(self) -> str | None:
        """Read what came; return the status once the answer is whole."""
        piece = self.socket.recv(_PIECE)
        if not piece:
            raise ConnectionError("the service closed the connection")
        self._came += piece
        head, found, body = self._came.partition(b"\r\n\r\n")
        if not found:
            return None
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        if len(body) < int(length):
            return None
        self._came, self.waits = b"", False
        status = head[9:12].decode()
        # Who is refused must be told when to come again.
        return status if status not in ("429", "503") or b"retry-after: " in head else f"{status} without Retry-After"


def load(
    port: int,
    users: np.ndarray,
    clients: int,
    seconds: float,
    rate: float,
    *,
    with_ids: bool,
    token: str = "",
    pid: int | None = None,
) -> Load:
    """Load a service from this process."""
    ready = [make_request(user, token=token) for user in users]
    own, served = time.process_time(), cpu_seconds(pid)
    pause, tally, number = clients / rate if rate else 0.0, Tally(), 0
    start = time.perf_counter()
    askers = [Asker(port, start + pause * i / clients) for i in range(clients)]
    with selectors.DefaultSelector() as selector:
        for asker in askers:
            selector.register(asker.socket, selectors.EVENT_READ, asker)
        while time.perf_counter() < start + seconds or any(asker.waits for asker in askers):
            now = time.perf_counter()
            if now < start + seconds:
                for asker in askers:
                    if not asker.waits and asker.due <= now:
                        at = number % len(users)
                        asker.ask(make_request(users[at], with_id=True, token=token) if with_ids else ready[at])
                        asker.due += pause
                        number += 1
            for key, _ in selector.select(0.001 if pause else 0.1):
                status = key.data.read()
                if status is not None:
                    tally.answered(status, time.perf_counter() - key.data.sent)
    took, served = time.perf_counter() - start, cpu_seconds(pid) - served
    for asker in askers:
        asker.close()
    median, high = np.quantile(tally.seconds, (0.5, 0.99)).tolist()
    return Load(
        requests=len(tally.seconds) + len(tally.refused),
        per_second=len(tally.seconds) / took,
        median_ms=1e3 * median,
        p99_ms=1e3 * high,
        errors=tally.errors,
        refused_p99_ms=1e3 * float(np.quantile(tally.refused or [0.0], 0.99)),
        own_cpu_seconds=time.process_time() - own,
        service_cpu_seconds=served,
    )


def cpu_seconds(pid: int | None) -> float:
    """Return the CPU time of a process, 0 if there is none to look at."""
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("users", help="a .npy file of (n, d) vectors")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=0.0, help="requests per second of all clients; 0: as many as go")
    parser.add_argument("--ids", action="store_true", help="give every request an id")
    parser.add_argument("--token", default="", help="the caller's token")
    parser.add_argument("--pid", type=int, help="process of the service, whose CPU time is measured")
    args = parser.parse_args()
    users = np.load(args.users)
    told = load(
        args.port, users, args.clients, args.seconds, args.rate, with_ids=args.ids, token=args.token, pid=args.pid
    )
    print(json.dumps(asdict(told)))


if __name__ == "__main__":
    main()
