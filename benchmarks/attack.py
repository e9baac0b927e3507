"""One token sends the worst bodies at full speed: what is left of the service for another token.

    python -m benchmarks.attack                # 100,000 items, about four minutes
    python -m benchmarks.attack --quick        # small and short, to see that it runs

The other token has 16 clients, each of which asks again when it has its answer, in turns alone and beside an attack.
Each turn beside it is compared with the two around it, and the verdict is on the median of these ratios. On a machine
that others use too, where the turns alone differ much, it is on the answers per CPU second of the service: neighbours
take time from the service, but not CPU time. The service has the first core. The second, if there is one, has the load
and the attacker, which is nice to the load: it stands for a machine of its own. No token has a rate limit, which would
end the attacks sooner.
"""

import contextlib
import hashlib
import itertools
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from benchmarks.load import run_load
from benchmarks.output import Claim, Table, finish, make_parser, make_screen
from benchmarks.service import DIM, Service, running, write_data, write_settings

_HERE = Path(__file__).parents[1]
_CLIENTS, _CONNECTIONS = 16, 4
# Until the bodies that were on their way are decoded.
_SETTLE_SECONDS = 1.0
# Largest ratio of the throughput of two turns alone on a machine that nobody else uses.
_QUIET = 1.3
_TOKENS = {name: f"{name}-token-that-is-long" for name in ("shop", "attacker")}


def make_body(name: str) -> tuple[str, bytes]:
    """Return the path and the body of an attack."""
    if name == "empty lists":
        return "retrieve", b'{"vectors": [' + b"[]," * 4_999_999 + b"[]]}"
    if name == "numbers":
        return "retrieve", b'{"vectors": [[' + b"0," * 7_499_999 + b"0]]}"
    if name == "vectors":
        row = json.dumps(np.random.default_rng(0).normal(size=DIM).tolist()).encode()
        return "retrieve", b'{"vectors": [' + b",".join([row] * 10_000) + b"]}"
    if name == "strings":
        return "retrieve", b'{"vectors": ["' + b"a" * 1_000_000 + b'"' + b',"b"' * 500 + b"]}"
    assert name == "reports", name
    report = b'{"request_id": "r", "items": [' + b"0.5," * 899 + b"0.5]}"
    return "impressions", b'{"reports": [' + b",".join([report] * 1_000) + b"]}"


ATTACKS = ("empty lists", "numbers", "vectors", "strings", "reports")


@dataclass(frozen=True)
class Turn:
    """What the other token measured in one turn: answers per second, per CPU second of the service, and the p99."""

    per_second: float
    per_cpu_second: float
    p99_ms: float


@dataclass(frozen=True)
class Result:
    """The other token in turns, alone (one more) and beside an attack; and the most memory of the service."""

    attack: str
    calls: int
    alone: list[Turn]
    beside: list[Turn]
    errors: int
    memory_mb: float

    @property
    def kept(self) -> float:
        """Share of the throughput that is left: the median over all turns beside the attack."""
        return self._median([turn.per_second for turn in self.alone], [turn.per_second for turn in self.beside])

    @property
    def kept_by_cpu(self) -> float:
        """Share of the answers per CPU second of the service that is left: the same median."""
        return self._median([turn.per_cpu_second for turn in self.alone], [turn.per_cpu_second for turn in self.beside])

    @property
    def slower(self) -> float:
        """The p99 beside the attack over that alone: the median over all turns beside the attack."""
        return self._median([turn.p99_ms for turn in self.alone], [turn.p99_ms for turn in self.beside])

    @property
    def unrest(self) -> float:
        """The largest throughput alone over the smallest: far from 1 on a machine that others use."""
        alone = [turn.per_second for turn in self.alone]
        return max(alone) / min(alone)

    @staticmethod
    def _median(alone: Sequence[float], beside: Sequence[float]) -> float:
        around = [(before + after) / 2 for before, after in itertools.pairwise(alone)]
        return statistics.median(one / other for one, other in zip(beside, around, strict=True))


def attack(port: int, name: str) -> None:
    """Send a body over several connections until the process is ended; print the calls that were answered so far."""
    path, body = make_body(name)
    head = f"POST /v1/{path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {_TOKENS['attacker']}\r\n"
    call = f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
    answered = [0] * _CONNECTIONS

    def send(number: int) -> None:
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as connection:
                while True:
                    connection.sendall(call)
                    if not connection.recv(1 << 16):
                        break
                    answered[number] += 1

    for number in range(_CONNECTIONS):
        threading.Thread(target=send, args=(number,), daemon=True).start()
    while True:
        time.sleep(0.1)
        print(sum(answered), flush=True)


def load(service: Service, users: Path, seconds: float) -> tuple[Turn, int, float]:
    """Return what the load of the other token measured, its errors, and the most memory of the service."""
    memory = [0.0]
    found = run_load(
        service.port, users, _CLIENTS, seconds, cores=sorted(os.sched_getaffinity(0))[-1:], token=_TOKENS["shop"],
        pid=service.process.pid, look=lambda: memory.append(service.memory_mb()),
    )  # fmt: skip
    served = found.requests / max(found.service_cpu_seconds, 1e-9)
    return Turn(found.per_second, served, found.p99_ms), found.n_errors, max(memory)


def measure(service: Service, users: Path, name: str, seconds: float, turns: int) -> Result:
    """Return what an attack does, in turns with and without it."""
    core = str(sorted(os.sched_getaffinity(0))[-1])
    command = ["nice", "taskset", "-c", core, sys.executable, "-m", "benchmarks.attack", "--send", str(service.port)]
    alone, beside, errors, memory = list[Turn](), list[Turn](), 0, 0.0
    with subprocess.Popen([*command, "--body", name], stdout=subprocess.PIPE, text=True, cwd=_HERE) as attacker:
        assert attacker.stdout is not None
        while int(attacker.stdout.readline()) == 0:  # the first call starts the process that decodes
            pass
        for number in range(2 * turns + 1):
            is_attacked = number % 2 == 1
            attacker.send_signal(signal.SIGCONT if is_attacked else signal.SIGSTOP)
            time.sleep(_SETTLE_SECONDS)
            turn, wrong, used = load(service, users, seconds)
            (beside if is_attacked else alone).append(turn)
            errors, memory = errors + wrong, max(memory, used)
        attacker.kill()
        calls = [int(line) for line in attacker.stdout.read().split("\n")[:-1]]
    return Result(name, calls[-1] if calls else 0, alone, beside, errors, memory)


def main(argv: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, quick="small: no claim about speed")
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each turn")
    parser.add_argument("--turns", type=int, default=5, help="beside each attack")
    parser.add_argument("--send", type=int, metavar="PORT", help="be the attacker")
    parser.add_argument("--body", choices=ATTACKS, default=ATTACKS[0], help="what the attacker sends")
    args = parser.parse_args(argv)
    if args.send is not None:
        attack(args.send, args.body)
    items, seconds, turns = (20_000, 1.0, 1) if args.quick else (args.items, args.seconds, args.turns)
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder, items)
        config = write_settings(folder, "memory", 1)
        tokens = "".join(
            f'[[tokens]]\nname = "{name}"\nroles = ["retrieve", "report"]\nsha256 = "{_digest(token)}"\n'
            for name, token in _TOKENS.items()
        )
        config.write_text(config.read_text() + tokens)
        with running(config, sorted(os.sched_getaffinity(0))[:1]) as service:
            load(service, folder / "users.npy", seconds)
            results = [measure(service, folder / "users.npy", attack_name, seconds, turns) for attack_name in ATTACKS]
    claims = [Claim("errors of the other token", sum(one.errors for one in results), 0)]
    if not args.quick:
        is_quiet = max(one.unrest for one in results) <= _QUIET
        what = (
            "throughput of the other token" if is_quiet else "busy machine: answers to the other token per CPU second"
        )
        kept = min(one.kept if is_quiet else one.kept_by_cpu for one in results)
        claims += [
            Claim(f"{what}, to its own alone", kept, 0.8, at_most=False),
            Claim("p99 of the other token, to its own alone", max(one.slower for one in results), 3.0),
        ]
    document = {"items": items, "seconds": seconds, "turns": turns, "results": [asdict(one) for one in results]}
    return finish("attack", [make_table(results)], claims, document, args.out, make_screen())


def make_table(results: Sequence[Result]) -> Table:
    def median(turns: Sequence[Turn], measure: str) -> str:
        return f"{statistics.median(getattr(turn, measure) for turn in turns):.0f}"

    return Table.of(
        "The other token beside an attack",
        results,
        {
            "Attack": lambda one: one.attack,
            "its calls": lambda one: f"{one.calls:,}",
            "alone/s": lambda one: median(one.alone, "per_second"),
            "beside/s": lambda one: median(one.beside, "per_second"),
            "share": lambda one: f"{one.kept:.2f}",
            "p99 alone ms": lambda one: median(one.alone, "p99_ms"),
            "p99 beside ms": lambda one: median(one.beside, "p99_ms"),
            "ratio": lambda one: f"{one.slower:.1f}",
            "MB": lambda one: f"{one.memory_mb:.0f}",
            "share by CPU": lambda one: f"{one.kept_by_cpu:.2f}",
            "alone, most to least": lambda one: f"{one.unrest:.2f}",
        },
    )


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


if __name__ == "__main__":
    raise SystemExit(main())
