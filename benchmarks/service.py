"""What the service adds to the library: to the time of one request, and to many at once.

    python -m benchmarks.service                 # 300,000 items, about three minutes
    python -m benchmarks.service --minutes 10    # and then ten minutes at 80 % of what it can do
    python -m benchmarks.service --quick         # small, to see that it runs

The service is `fairsync serve` in a process of its own; the library is the same front end, coordinator and kind of
ledger in the process of the benchmark. They take turns, so that both see the same machine. Cores are shared in two
ways:

    apart       service (one search thread) and library on the first core, the load generator on the second
    together    service, library and load generator on all cores

Claims are made for `apart`, where the service has the very core that the library has. Together, HTTP and the generator
take their time from the second thread of a search, which the library has for itself.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from benchmarks.load import Asker, make_request, run_load
from benchmarks.output import Claim, Table, finish, make_parser, make_screen
from msgspec.structs import replace
from rich.console import Console

from fairsync import Catalog
from fairsync.catalog.files import save_catalog
from fairsync.data import synthetic
from fairsync.service.client import Client
from fairsync.service.run import make_promise_service
from fairsync.service.settings import Settings, load_settings

GROUPS, DIM, K, BATCH, CLIENTS = 165, 64, 20, 64, 64
_SERVE = "import sys; from fairsync.service import run, settings; run.serve(settings.load_settings(sys.argv[1], {}))"


@dataclass(frozen=True)
class Latency:
    """Milliseconds of one request, medians: of the library, over a bare connection, and by the Python client."""

    ledger: str
    library: float
    service: float
    added: float
    client: float


@dataclass(frozen=True)
class Throughput:
    """Requests per second, fastest rounds; and processor time of a request in ms, which others disturb less."""

    cores: str
    library: float
    service: float
    library_cpu: float
    service_cpu: float
    generator_cpu: float

    @property
    def share(self) -> float:
        """Of the library's."""
        return self.service / self.library


@dataclass(frozen=True)
class Soak:
    """Long load at a share of capacity."""

    minutes: float
    rate: float
    requests: int
    errors: int
    p99_ms: float
    memory_mb: list[float]

    @property
    def growth(self) -> float:
        """Memory of the last tenth of the time over that of the second: the first fills what is filled once."""
        tenth = max(len(self.memory_mb) // 10, 1)
        return statistics.median(self.memory_mb[-tenth:]) / statistics.median(self.memory_mb[tenth : 2 * tenth])


def write_settings(folder: Path, ledger: str, threads: int | None) -> Path:
    path = folder / f"{ledger}-{threads}.toml"
    search = f"threads = {threads}" if threads else ""
    url = "sqlite:///exposures.db" if ledger == "sqlite" else "memory://"
    # Half of the groups would miss a floor of about this size, so that prices are at work.
    promises = "".join(
        f'[[promises]]\ngroup = {group}\nfloor = 3_000\nwindow = {{every = "day"}}\n' for group in range(60, 100)
    )
    path.write_text(
        f'[catalog]\npath = "items"\n[search]\n{search}\n[promise]\nk = {K}\nbatch_size = {BATCH}\n[ledger]\n'
        f'url = "{url}"\n[traffic]\nper_second = 10\n[http]\nport = 0\nlog = "all"\n{promises}'
    )
    return path


def write_data(folder: Path, items: int) -> np.ndarray:
    """Write a generated catalog and requests, and return the requests."""
    data = synthetic(items, GROUPS, 2_000, DIM, 0, n_past=1)
    save_catalog(Catalog(data.embeddings, data.groups), folder / "items")
    np.save(folder / "users.npy", data.users)
    return data.users


class Service:
    """`fairsync serve` in a process of its own."""

    def __init__(self, config: Path, cores: Sequence[int]) -> None:
        self.log = config.with_suffix(".log")
        with self.log.open("wb") as file:
            self.process = subprocess.Popen(
                ["taskset", "-c", ",".join(map(str, cores)), sys.executable, "-c", _SERVE, str(config)], stderr=file
            )
        self.port = self._port()

    def _port(self) -> int:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            assert self.process.poll() is None, self.log.read_text()
            for line in self.log.read_text().splitlines():
                told = json.loads(line)
                if "port" in told:
                    return int(told["port"])
            time.sleep(0.05)
        raise TimeoutError(self.log.read_text())

    def memory_mb(self) -> float:
        """Return what it holds."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        # Pages of the catalog's file are not the service's own.
        return int(status.partition("RssAnon:")[2].split()[0]) / 1024

    def stop(self) -> None:
        """End it as an operator would."""
        self.process.terminate()
        self.process.wait(60)


@contextmanager
def running(config: Path, cores: Sequence[int]) -> Iterator[Service]:
    service = Service(config, cores)
    try:
        yield service
    finally:
        service.stop()


def own_settings(config: Path) -> Settings:
    """Return the settings for the library: a file of its own, where there is one."""
    settings = load_settings(config, {})
    return replace(settings, ledger=replace(settings.ledger, url=settings.ledger.url.replace(".db", ".library.db")))


def measure_latency(folder: Path, ledger: str, users: np.ndarray, rounds: int) -> Latency:
    config, cores = write_settings(folder, ledger, None), sorted(os.sched_getaffinity(0))
    promise_service = make_promise_service(own_settings(config))
    library, service, client = [], [], []
    with (
        running(config, cores) as one,
        closing(Asker(one.port, 0.0)) as asker,
        Client(f"http://127.0.0.1:{one.port}") as typed,
    ):
        for i in range(rounds):
            user = users[i % len(users)][None]
            start = time.perf_counter()
            promise_service.front.retrieve(user)
            middle = time.perf_counter()
            asker.ask(make_request(user[0]))
            while (status := asker.read()) is None:
                pass
            end = time.perf_counter()
            assert status == "200", status
            typed.retrieve(user)
            client.append(1e3 * (time.perf_counter() - end))
            library.append(1e3 * (middle - start))
            service.append(1e3 * (end - middle))
    skipped = rounds // 10  # connections, caches
    added = [b - a for a, b in zip(library[skipped:], service[skipped:], strict=True)]
    times = (library[skipped:], service[skipped:], added, client[skipped:])
    return Latency(ledger, *(statistics.median(one) for one in times))


def measure_throughput(folder: Path, users: np.ndarray, cores: str, rounds: int, seconds: float) -> Throughput:
    every = sorted(os.sched_getaffinity(0))
    apart = cores == "apart" and len(every) > 1
    serving, loading = (every[:1], every[1:2]) if apart else (every, every)
    config = write_settings(folder, "memory", 1 if apart else None)
    promise_service = make_promise_service(own_settings(config))
    library, service, library_cpu, service_cpu, generator = [], [], [], [], []
    with running(config, serving) as one:
        for _ in range(rounds):
            # The very users that the library is asked with: how long a search takes depends on them.
            found = run_load(one.port, folder / "users.npy", CLIENTS, seconds, cores=loading, pid=one.process.pid)
            assert not found.errors, found
            service.append(found.per_second)
            service_cpu.append(1e3 * found.service_cpu_seconds / found.requests)
            generator.append(found.own_cpu_seconds / seconds)
            os.sched_setaffinity(0, serving)
            start, before, n, looks = time.perf_counter(), time.process_time(), 0, 0
            while (now := time.perf_counter()) < start + seconds:
                if now > start + looks:  # the prices of a plan that is looked at every second, as the service does
                    promise_service.refresh()
                    looks += 1
                at = n % (len(users) - BATCH)
                promise_service.retrieve(users[at : at + BATCH])
                n += BATCH
            library.append(n / (time.perf_counter() - start))
            library_cpu.append(1e3 * (time.process_time() - before) / n)
            os.sched_setaffinity(0, every)
    cpu = (min(library_cpu), min(service_cpu), statistics.median(generator))
    return Throughput(cores, max(library), max(service), *cpu)


def soak(folder: Path, minutes: float, seconds: float, screen: Console) -> Soak:
    """Load a service whose ledger is a file, with requests that have ids: first as hard as it goes, then at 80 %."""
    every, memory = sorted(os.sched_getaffinity(0)), list[float]()
    with running(write_settings(folder, "sqlite", None), every) as one:
        place = (one.port, folder / "users.npy", CLIENTS)
        hard = run_load(*place, seconds, cores=every, ids=True)
        screen.print(f"as hard as it goes, requests with ids, ledger in a file: {hard.per_second:.0f} per second")
        found = run_load(
            *place, 60 * minutes, 0.8 * hard.per_second, cores=every, ids=True,
            look=lambda: memory.append(one.memory_mb()), every=min(1.0, 6 * minutes),
        )  # fmt: skip
    screen.print(f"memory over time: {', '.join(f'{mb:.0f}' for mb in memory[:: max(len(memory) // 20, 1)])} MB")
    return Soak(minutes, found.per_second, found.requests, found.n_errors, found.p99_ms, memory)


def main(argv: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, quick="small: no claim about speed")
    parser.add_argument("--minutes", type=float, default=0.0, help="of load at 80 %% of capacity")
    parser.add_argument("--only", choices=["latency", "throughput", "soak"])
    args = parser.parse_args(argv)
    screen = make_screen()
    items, rounds, turns, seconds = (3_000, 40, 1, 0.5) if args.quick else (300_000, 400, 5, 5.0)
    latency: list[Latency] = []
    throughput: list[Throughput] = []
    soaked: Soak | None = None
    with TemporaryDirectory() as name:
        folder = Path(name)
        users = write_data(folder, items)
        if args.only in (None, "latency"):
            latency = [measure_latency(folder, ledger, users, rounds) for ledger in ("memory", "sqlite")]
        if args.only in (None, "throughput"):
            ways = ["apart", "together"]
            throughput = [measure_throughput(folder, users, cores, turns, seconds) for cores in ways]
        if args.minutes:
            soaked = soak(folder, args.minutes, 2 * seconds, screen)
    tables, claims = make_tables(latency, throughput, soaked), [] if args.quick else make_claims(latency, throughput)
    if soaked is not None:
        claims.append(Claim("errors under long load", soaked.errors, 0))
        if not args.quick:
            claims.append(Claim("memory at the end of long load, to that at its beginning", soaked.growth, 1.05))
    document = {
        "items": items,
        "cores": len(os.sched_getaffinity(0)),
        "latency": [asdict(one) for one in latency],
        "throughput": [{**asdict(one), "share": one.share} for one in throughput],
        "soak": None if soaked is None else {**asdict(soaked), "growth": soaked.growth},
    }
    return finish("service", tables, claims, document, args.out, screen)


def make_tables(latency: list[Latency], throughput: list[Throughput], soaked: Soak | None) -> list[Table]:
    tables = []
    if latency:
        columns = ["One request at a time, ledger in", "library ms", "service ms", "added ms", "by the client, with id"]
        rows = [
            [one.ledger, *(f"{ms:.2f}" for ms in (one.library, one.service, one.added, one.client))] for one in latency
        ]
        tables.append(Table("Time of a request", columns, rows))
    if throughput:
        columns = ["Cores", "library req/s", "service req/s", "share", "library CPU ms", "service CPU ms", "generator"]
        rows = [
            [one.cores, f"{one.library:.0f}", f"{one.service:.0f}", f"{one.share:.2f}", f"{one.library_cpu:.2f}",
             f"{one.service_cpu:.2f}", f"{one.generator_cpu:.0%}"]
            for one in throughput
        ]  # fmt: skip
        tables.append(Table(f"Throughput with {CLIENTS} clients, library in batches of {BATCH}", columns, rows))
    if soaked:
        columns = ["Minutes", "req/s", "requests", "errors", "p99 ms", "memory MB", "growth"]
        memory = f"{soaked.memory_mb[-1]:.0f}"
        row = [f"{soaked.minutes:g}", f"{soaked.rate:.0f}", f"{soaked.requests:,}", f"{soaked.errors}"]
        tables.append(Table("Long load", columns, [[*row, f"{soaked.p99_ms:.0f}", memory, f"{soaked.growth:.3f}"]]))
    return tables


def make_claims(latency: list[Latency], throughput: list[Throughput]) -> list[Claim]:
    claims = [Claim(f"ms added to one request, ledger in {one.ledger}", one.added, 2.0) for one in latency]
    claims += [
        Claim(f"share of the library's throughput, cores {one.cores}", one.share, 0.7, at_most=False)
        for one in throughput
        if one.cores == "apart"
    ]
    return claims


if __name__ == "__main__":
    raise SystemExit(main())
