"""A load generator in a process of its own: so many clients, each asking again when it has its answer.

    python -m benchmarks.load PORT USERS.npy --clients 64 --seconds 10 [--rate 500] [--ids]

Prints one line of JSON. It speaks bare HTTP over kept connections, so that it takes little of the cores it shares.
"""

import argparse
import asyncio
import json
import time
import uuid
from dataclasses import dataclass, field

import msgpack
import numpy as np

from fairsync.service.wire import write_array


@dataclass
class Tally:
    """What came of the load."""

    seconds: list[float] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)

    def failed(self, what: str) -> None:
        """Count an answer that is none."""
        self.errors[what] = self.errors.get(what, 0) + 1


def make_request(user: np.ndarray, *, with_id: bool) -> bytes:
    """Return a call for one user, with its head."""
    asked = {"vectors": write_array(user[None])} | ({"request_ids": [uuid.uuid4().hex]} if with_id else {})
    body: bytes = msgpack.packb(asked)
    head = "POST /v1/retrieve HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/msgpack\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


async def read_status(reader: asyncio.StreamReader) -> str:
    """Read one answer; return its status."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
    await reader.readexactly(int(length))
    return head[9:12].decode()


async def ask(
    port: int,
    users: np.ndarray,
    first: int,
    step: int,
    start: float,
    end: float,
    pause: float,
    with_id: bool,
    tally: Tally,
) -> None:
    """Ask until the end: when the last answer is there, or every so many seconds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    due, number = start + pause * first / step, first
    while True:
        now = time.perf_counter()
        if pause and due > now:
            await asyncio.sleep(due - now)
        due += pause
        if (sent := time.perf_counter()) >= end:
            break
        writer.write(make_request(users[number % len(users)], with_id=with_id))
        status = await read_status(reader)
        tally.seconds.append(time.perf_counter() - sent)
        if status != "200":
            tally.failed(status)
        number += step
    writer.close()


async def load(
    port: int, users: np.ndarray, clients: int, seconds: float, rate: float, with_id: bool
) -> dict[str, object]:
    tally, start = Tally(), time.perf_counter()
    pause = clients / rate if rate else 0.0
    await asyncio.gather(
        *(ask(port, users, i, clients, start, start + seconds, pause, with_id, tally) for i in range(clients))
    )
    took = time.perf_counter() - start
    median, high = np.quantile(tally.seconds, (0.5, 0.99)).tolist()
    return {
        "requests": len(tally.seconds),
        "per_second": len(tally.seconds) / took,
        "median_ms": 1e3 * median,
        "p99_ms": 1e3 * high,
        "errors": tally.errors,
        "own_cpu_seconds": time.process_time(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("users", help="a .npy file of (n, d) vectors")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=0.0, help="requests per second of all clients; 0: as many as go")
    parser.add_argument("--ids", action="store_true", help="give every request an id")
    args = parser.parse_args()
    users = np.load(args.users)
    print(json.dumps(asyncio.run(load(args.port, users, args.clients, args.seconds, args.rate, args.ids))))


if __name__ == "__main__":
    main()
