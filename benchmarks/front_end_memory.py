"""Memory of a front end whose items are in Postgres or Milvus: with the catalog, without, and of the service without.

    python -m benchmarks.front_end_memory                    # 1,000,000 items in Postgres, some minutes
    python -m benchmarks.front_end_memory --engine milvus    # in Milvus
    python -m benchmarks.front_end_memory --items 20000      # a smoke test

Items are written to a server that is started here, or whose URL is given. Then a process of its own answers requests
under promises that overlap through a `FrontEnd` over a `HostedCatalog`, whose items only the engine holds, and says the
most memory that it had. The same is asked of `fairsync serve` without a `[catalog]`, over HTTP. A third process makes a
catalog of as many items, and says what that takes before it answers anything. Qdrant is not offered: its engine runs in
the process that searches, and no server can be started here.
"""

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from benchmarks.output import Claim, Table, finish, make_parser, make_screen
from benchmarks.servers import running_milvus, running_postgres
from rich.console import Console

from fairsync.catalog import Catalog
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.errors import FairSyncError
from fairsync.promises import Promise
from fairsync.search.engines import make_engine
from fairsync.search.engines.engine import StoredItems
from fairsync.search.engines.hosted_catalog import HostedCatalog
from fairsync.search.engines.item_schema import ItemSchema, empty_column
from fairsync.service.client import Client

K, DIM, GROUPS = 20, 32, 100
NAMES = {"pgvector": {"table": "fairsync_memory"}, "milvus": {"collection": "fairsync_memory"}}
_AT_ONCE = 50_000
# pymilvus imports pandas, and pandas pyarrow if that is installed, as it is beside Milvus Lite: 34 MB that neither
# FairSync nor pymilvus needs. An install of fairsync[service,milvus] has none.
_UNUSED = "pyarrow"
_SERVE = f"import sys; sys.modules['{_UNUSED}'] = None; from fairsync.cli import app; app()"


def load(engine: str, url: str, items: int) -> float:
    """Write items; return the seconds it took."""
    began = time.perf_counter()
    written = make_engine(engine, url=url, timeout=120.0, **NAMES[engine])
    columns = {"seller": empty_column("str"), "new": empty_column("bool"), "price": empty_column("float")}
    written.prepare(ItemSchema(DIM, int, columns), create=True, writes=True)
    rng = np.random.default_rng(0)
    for start in range(0, items, _AT_ONCE):
        vectors = rng.normal(size=(min(_AT_ONCE, items - start), DIM)).astype(np.float32).round(4)
        sellers = np.minimum(rng.geometric(0.05, size=len(vectors)), GROUPS)
        prices = rng.integers(1, 100, size=len(vectors))
        attributes = {
            "seller": [f"seller {one}" for one in sellers.tolist()],
            "new": (prices < 10).tolist(),
            "price": prices.astype(float).tolist(),
        }
        written.change(StoredItems(list(range(start, start + len(vectors))), vectors, attributes), [])
    written.finish(create=True)
    return time.perf_counter() - began


def answer(engine: str, url: str, requests: int) -> dict[str, float]:
    """Answer requests without a catalog."""
    sys.modules[_UNUSED] = None  # type: ignore[assignment]
    before = _megabytes()
    held = make_engine(engine, url=url, timeout=120.0, **NAMES[engine])
    catalog = HostedCatalog(held, ["seller", "new"], filters=["price"])
    floor = K * requests // (3 * catalog.n_groups)
    promises = [Promise({"seller": label}, at_least=floor) for label in catalog.labels]
    promises += [Promise({"new": True}, at_least=0.2, at_most=0.4)]
    coordinator = Coordinator(catalog, k=K, promises=promises, horizon=requests, batch_size=16)
    front, users = FrontEnd(catalog, coordinator), np.random.default_rng(1).normal(size=(requests, DIM))
    began = time.perf_counter()
    for start in range(0, requests, 4):
        front.retrieve(users[start : start + 4])
    seconds = time.perf_counter() - began
    kept = float(np.mean([row.kept for row in coordinator.report().promises]))
    return {"before": before, "most": _megabytes(), "kept": kept, "ms": 1000 * seconds / requests}


def serve(engine: str, url: str, requests: int, folder: Path) -> dict[str, float]:
    """Run `fairsync serve` without a catalog, ask it for candidates, and return the most memory that it had."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = folder / "service.toml"
    floor = K * requests // 3
    ((key, name),) = NAMES[engine].items()
    config.write_text(
        f'[search]\nengine = "{engine}"\nurl = "{url}"\n{key} = "{name}"\nattributes = ["seller", "new"]\n'
        f'filters = ["price"]\ntimeout = 120\n[promise]\nk = {K}\n[ledger]\nurl = "sqlite:///exposures.db"\n'
        f"[http]\nport = {port}\nrequest_seconds = 240\nmax_wait_seconds = 240\n"
        f'[[promises]]\nwhere = {{seller = "seller 90"}}\nat_least = {floor}\nwindow = {{every = "day"}}\n'
        f'[[promises]]\nwhere = {{new = true}}\nat_least = 0.2\nwindow = {{every = "day"}}\n'
    )
    process = subprocess.Popen([sys.executable, "-c", _SERVE, "serve", str(config)], stderr=subprocess.DEVNULL)
    users = np.random.default_rng(1).normal(size=(requests, DIM))
    began = time.perf_counter()
    try:
        with Client(f"http://127.0.0.1:{port}", attempts=3, timeout=300) as client:
            _wait_for(client, process)
            client.retrieve(users[:4])
            start_seconds, began = time.perf_counter() - began, time.perf_counter()
            for at in range(4, requests, 4):
                client.retrieve(users[at : at + 4], where=[{"price": {"at_most": 50}}, None, None, None])
            seconds = time.perf_counter() - began
            got = sum(one.exposures for one in client.promises())
        most = _megabytes(process.pid)
    finally:
        process.terminate()
        process.wait(60)
    return {"start": start_seconds, "most": most, "exposures": got, "ms": 1000 * seconds / max(requests - 4, 1)}


def _wait_for(client: Client, process: "subprocess.Popen[bytes]") -> None:
    """Wait until a service answers; raise if it has ended."""
    while True:
        try:
            client.overview()
        except FairSyncError:
            if process.poll() is not None:
                raise
            time.sleep(0.2)
        else:
            return


def hold(items: int) -> dict[str, float]:
    """Hold a catalog of as many items."""
    before, rng = _megabytes(), np.random.default_rng(0)
    catalog = Catalog(rng.normal(size=(items, DIM)).astype(np.float32), rng.integers(GROUPS, size=items))
    return {"before": before, "most": _megabytes(), "items": len(catalog)}


def _megabytes(process: int | str = "self") -> float:
    """Return the most memory that a process has had (Linux). That of `getrusage` begins with the parent's."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
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
    parser = make_parser(__doc__)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--engine", choices=[*NAMES], default="pgvector")
    parser.add_argument("--url", help="address of the engine; a server is started by default")
    parser.add_argument("--part", choices=["answer", "hold"], help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.part == "answer":
        print(json.dumps(answer(given.engine, given.url, given.requests)))
        return 0
    if given.part == "hold":
        print(json.dumps(hold(given.items)))
        return 0
    if given.url is not None:
        return _measure(given.url, given, screen or make_screen())
    running = running_milvus if given.engine == "milvus" else running_postgres
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as url:
        return _measure(url, given, screen or make_screen())


def _measure(url: str, given: argparse.Namespace, screen: Console) -> int:
    engine = given.engine
    seconds = load(engine, url, given.items)
    hosted = _child("--part", "answer", "--engine", engine, "--url", url, "--requests", str(given.requests))
    with tempfile.TemporaryDirectory() as folder:
        served = serve(engine, url, given.requests, Path(folder))
    held = _child("--part", "hold", "--items", str(given.items))
    rows = [
        [
            f"items in {engine} only, in Python",
            f"{hosted['before']:.0f}",
            f"{hosted['most']:.0f}",
            f"{hosted['ms']:.0f}",
        ],
        [f"items in {engine} only, `fairsync serve`", "–", f"{served['most']:.0f}", f"{served['ms']:.0f}"],
        ["catalog, before any request", f"{held['before']:.0f}", f"{held['most']:.0f}", "–"],
    ]
    title = f"Memory of a front end, {given.items:,} items of {DIM} dimensions (written in {seconds:.0f} s)"
    table = Table(title, ["front end", "MB at the start", "MB at most", "ms a request"], rows)
    claims = [
        Claim("MB of a front end without a catalog", hosted["most"], 200.0),
        Claim("MB of `fairsync serve` without a catalog", served["most"], 200.0),
        Claim("promises kept", hosted["kept"], 1.0, at_most=False),
    ]
    return finish(
        f"front_end_memory_{engine}",
        [table],
        claims,
        {"hosted": hosted, "served": served, "held": held},
        given.out,
        screen,
    )


if __name__ == "__main__":
    raise SystemExit(main())
