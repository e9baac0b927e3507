"""Ten times what the service can do: answers go on at the usual pace, and the rest is told to come again.

    python -m benchmarks.overload              # a million items, about three minutes
    python -m benchmarks.overload --quick      # small and short, to see that it runs

First the load is as hard as 64 clients make it, which is the capacity. Then up to a thousand clients want ten times as
much, and pay no heed to Retry-After; how much of it the service reads is its own affair. Then again the 64 clients, at
once. The service has the first core and the load the second, where there are two: refusing is work, too, and it is the
service's.
"""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.load import run_load
from benchmarks.output import Claim, Table, finish, make_parser, make_screen
from benchmarks.service import CLIENTS, Service, running, write_data, write_settings

_MOST_CLIENTS = 1_000


@dataclass(frozen=True)
class Phase:
    """What came of one load: calls and answers per second, milliseconds of answers, what was refused, cores taken."""

    name: str
    calls: float
    answered: float
    median_ms: float
    p99_ms: float
    refused: int
    refused_p99_ms: float
    others: dict[str, int]
    memory_mb: list[float]
    cpu: float


def load(name: str, service: Service, users: Path, seconds: float, clients: int, rate: float = 0.0) -> Phase:
    """Load the service, and look at its memory meanwhile."""
    memory = list[float]()
    found = run_load(
        service.port, users, clients, seconds, rate, cores=sorted(os.sched_getaffinity(0))[-1:],
        pid=service.process.pid, look=lambda: memory.append(service.memory_mb()),
    )  # fmt: skip
    others = {status: number for status, number in found.errors.items() if status != "503"}
    return Phase(
        name, found.requests / seconds, found.per_second, found.median_ms, found.p99_ms, found.errors.get("503", 0),
        found.refused_p99_ms, others, memory, found.service_cpu_seconds / seconds,
    )  # fmt: skip


def measure(folder: Path, seconds: float, times: float) -> list[Phase]:
    users, cores = folder / "users.npy", sorted(os.sched_getaffinity(0))
    with running(write_settings(folder, "memory", 1), cores[:1]) as service:
        load("warm-up", service, users, min(seconds, 3), CLIENTS)
        usual = load("as hard as it goes", service, users, seconds / 4, CLIENTS)
        rate = times * usual.answered
        # Enough clients that those who wait for an answer do not hold the others up.
        clients = min(int(4 * usual.answered) + 256, _MOST_CLIENTS)
        flood = load(f"{times:g} times as much", service, users, seconds, clients, rate)
        after = load("at once afterwards", service, users, seconds / 12, CLIENTS)
    return [usual, flood, after]


def main(argv: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, quick="small: no claim about speed")
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=60.0, help="of overload")
    parser.add_argument("--times", type=float, default=10.0, help="what the service can do")
    args = parser.parse_args(argv)
    items, seconds = (30_000, 4.0) if args.quick else (args.items, args.seconds)
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder, items)
        phases = measure(folder, seconds, args.times)
    usual, flood, after = phases
    claims = [Claim("answers that are neither 200 nor 503 with Retry-After", sum(len(one.others) for one in phases), 0)]
    if not args.quick:
        grown = max(flood.memory_mb) - max(usual.memory_mb)
        claims += [
            Claim("answers under overload, to capacity", flood.answered / usual.answered, 0.7, at_most=False),
            Claim("p99 of answers under overload, in seconds", flood.p99_ms / 1e3, 5.0),
            Claim("MB that memory grows by", grown, 200),
            Claim("answers at once afterwards, to capacity", after.answered / usual.answered, 0.8, at_most=False),
            Claim("refused afterwards", after.refused, 0),
        ]
    document = {"items": items, "seconds": seconds, "phases": [asdict(one) for one in phases]}
    return finish("overload", [make_table(phases)], claims, document, args.out, make_screen())


def make_table(phases: Sequence[Phase]) -> Table:
    return Table.of(
        "Overload",
        phases,
        {
            "Load": lambda one: one.name,
            "calls/s": lambda one: f"{one.calls:.0f}",
            "answered/s": lambda one: f"{one.answered:.0f}",
            "median ms": lambda one: f"{one.median_ms:.0f}",
            "p99 ms": lambda one: f"{one.p99_ms:.0f}",
            "refused": lambda one: f"{one.refused:,}",
            "p99 ms of those": lambda one: f"{one.refused_p99_ms:.0f}",
            "memory MB": lambda one: f"{max(one.memory_mb):.0f}",
            "cores": lambda one: f"{one.cpu:.2f}",
        },
    )


if __name__ == "__main__":
    raise SystemExit(main())
