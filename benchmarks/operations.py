"""What traces, audit and statements cost on the path of a request, and whether A/A tests find what is not there.

    python -m benchmarks.operations              # 300,000 items; about three minutes
    python -m benchmarks.operations --quick      # small, to see that it runs

Applications that differ in one thing answer the same requests in turns, one request at a time, without a network, over
ledgers in memory: that is where additions weigh most. Ratios are medians over rounds of one run. Traces go
to a collector in a process of its own.

An A/A test divides a replay of generated traffic (users with tastes of their own, some of whom come often) into two
arms with half of the promises each, and looks for a difference in relevance where there is none.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np
from benchmarks.output import OUT, Claim, Table, finish, make_screen

import fairsync as fs
from fairsync import spans
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.ledger import MemoryLedger
from fairsync.ledger.audit import AuditRecord
from fairsync.schedule import Forecast, ScheduledPromise, Window
from fairsync.search import ExactIndex
from fairsync.service.arms.assignment import Assignment
from fairsync.service.arms.comparison import ArmSums, compare
from fairsync.service.arms.pro_rata import split_whole
from fairsync.service.promises.promise_service import PromiseService
from fairsync.service.server.app import make_app
from fairsync.service.settings import parse_settings

DIM, K = 64, 20
COLLECTOR = """
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200); self.send_header("content-length", "0"); self.end_headers()
    def log_message(self, *_): pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


@dataclass
class Variant:
    """An application, and the seconds of its requests."""

    name: str
    app: Any
    listener: Any
    seconds: list[float]


def make_variant(
    name: str,
    catalog: fs.Catalog,
    index: ExactIndex,
    *,
    endpoint: str | None = None,
    sample: float = 0.1,
    filled: bool = False,
) -> Variant:
    """Return an application with 40 promises.

    Parameters
    ----------
    name
        Name of the variant.
    catalog, index
        The items.
    endpoint, sample
        Collector of traces, and the share of the calls that are traced.
    filled
        Whether the ledger has ten thousand changes of promises, and a month of past windows.
    """
    ledger = MemoryLedger(catalog.n_groups)
    now = datetime.now(UTC)
    if filled:
        entry = {
            "at": now.isoformat(),
            "by": "campaigns",
            "action": "made",
            "promise": "p",
            "text": "x" * 300,
        }
        ledger.save("filled", b"", [AuditRecord(str(number), json.dumps(entry)) for number in range(10_000)])
        for day in range(31):
            windows = json.dumps([{"past": "x" * 600}] * 40).encode()
            ledger.save(f"past {now.date() - timedelta(days=day)}", windows)
    coordinator = Coordinator(catalog, k=K, floors=0, horizon=1, batch_size=64, ledger=ledger, auto_restart=False)
    attribute, day_window = catalog.group_attribute, Window.day("UTC")
    promises = [ScheduledPromise.of_group(label, 50_000, day_window, attribute) for label in catalog.labels[:40]]
    service = PromiseService(FrontEnd(catalog, coordinator, index=index), coordinator, promises, Forecast(rate=200.0))
    service.cost_monitor.every = float("inf")
    traces = {} if endpoint is None else {"traces": {"endpoint": endpoint, "sample": sample}}
    settings = parse_settings({"catalog": {"path": "x"}, "ledger": "memory://", "http": {"log": "problems"}, **traces})
    spans.listen(None)
    app = make_app(service, settings, refresh_seconds=3600.0)
    return Variant(name, app, spans.listen(None), [])


async def ask(app: Any, body: bytes) -> None:
    """Send one request to an application."""
    scope = {
        "type": "http", "method": "POST", "path": "/v1/retrieve", "root_path": "", "query_string": b"",
        "headers": [(b"content-type", b"application/json"), (b"host", b"localhost")], "client": None,
        "server": ("localhost", 80), "scheme": "http", "http_version": "1.1",
    }  # fmt: skip
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        statuses.append(message.get("status", 0))

    await app(scope, receive, send)
    assert statuses[0] == 200, statuses


async def measure(variants: Sequence[Variant], rounds: int, requests: int) -> None:
    """Let the variants answer the same requests in turns."""
    rng = np.random.default_rng(0)
    for number in range(rounds + 1):
        bodies = [msgspec.json.encode({"vectors": rng.normal(size=(1, DIM)).tolist()}) for _ in range(requests)]
        order = [*variants[number % len(variants) :], *variants[: number % len(variants)]]
        for variant in order:
            spans.listen(variant.listener)
            for body in bodies:
                began = time.perf_counter()
                await ask(variant.app, body)
                if number:  # the first round warms up
                    variant.seconds.append(time.perf_counter() - began)
    spans.listen(None)


def count_differences(splits: int, users: int, items: int) -> int:
    """Return how many A/A tests find a difference in relevance; all of them keep the totals."""
    rng, found, groups = np.random.default_rng(11), 0, 12
    catalog = fs.Catalog(rng.normal(size=(items, 16)).astype(np.float32), rng.integers(groups, size=items))
    tastes = rng.normal(size=(users, 16))
    of = rng.permutation(np.repeat(np.arange(users), rng.geometric(0.3, size=users)))
    vectors = tastes[of] + 0.3 * rng.normal(size=(len(of), 16))
    floor = int(1.1 * 10 * len(of) / groups)
    for split in range(splits):
        arms = Assignment(f"split {split}", ["a", "b"], [0.5, 0.5])
        places = np.array([arms.place_of(str(user)) for user in of.tolist()])
        sums, exposures = [], np.zeros(groups, dtype=np.int64)
        for arm, part in enumerate(split_whole(floor, arms.shares)):
            mine, got = places[:, 0] == arm, ArmSums.zero(arms.buckets)
            floors = dict.fromkeys(range(6), part)
            retriever = fs.FairRetriever(catalog, k=10, floors=floors, horizon=int(mine.sum()), batch_size=64)
            answers = retriever.retrieve(vectors[mine])
            for bucket, relevance in zip(places[mine, 1].tolist(), answers.relevance.sum(axis=1).tolist(), strict=True):
                got.add(bucket, 1, relevance, 0.0)
            exposures += np.bincount(answers.groups.ravel(), minlength=groups)
            sums.append(got)
        assert (exposures[:6] >= floor).all(), "the totals hold"
        gap = compare({"a": 0.5, "b": 0.5}, sums)[1].relevance_difference
        assert gap is not None
        assert gap.low is not None
        assert gap.high is not None
        found += not gap.low <= 0 <= gap.high
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small, to see that it runs")
    quick = parser.parse_args().quick
    items, rounds, requests = (2_000, 2, 5) if quick else (300_000, 24, 20)
    rng, screen = np.random.default_rng(1), make_screen()
    catalog = fs.Catalog(rng.normal(size=(items, DIM)).astype(np.float32), rng.integers(165, size=items))
    index = ExactIndex(catalog, 1)
    with subprocess.Popen([sys.executable, "-c", COLLECTOR], stdout=subprocess.PIPE, text=True) as collector:
        try:
            assert collector.stdout is not None
            endpoint = f"http://127.0.0.1:{int(collector.stdout.readline())}/v1/traces"
            variants = [
                make_variant("off", catalog, index),
                make_variant("off, the same again", catalog, index),
                make_variant("traces, of 10 % of the calls (default)", catalog, index, endpoint=endpoint),
                make_variant("traces, of all calls", catalog, index, endpoint=endpoint, sample=1.0),
                make_variant("a full audit, a month of statements", catalog, index, filled=True),
            ]
            asyncio.run(measure(variants, rounds, requests))
            for variant in variants[2:4]:
                variant.listener.close()
        finally:
            collector.terminate()
    began, n = time.perf_counter(), 1_000_000
    for _ in range(n):
        with spans.span("search"):
            pass
    nothing = 6 * (time.perf_counter() - began) / n
    # Means, because a tenth of the calls may take longer, of one round at a time, because the machine is shared.
    means = [np.array(variant.seconds).reshape(rounds, requests).mean(axis=1) for variant in variants]
    medians = [float(np.median(one)) for one in means]
    ratios = [float(np.median(one / means[0])) for one in means]
    rows = [
        (variant.name, f"{1000 * median:.2f} ms", f"{ratio:.3f}")
        for variant, median, ratio in zip(variants, medians, ratios, strict=True)
    ]
    splits, users = (4, 60) if quick else (100, 600)
    differ = count_differences(splits, users, 300 if quick else 1_500)
    tables = [
        Table("One request at a time, exact search", ["", "mean (median of rounds)", "× off"], rows),
        Table("A/A tests", ["splits", "found a difference"], [(str(splits), str(differ))]),
    ]
    claims = [
        Claim("six spans without a listener, as a share of a request", nothing / medians[0], 0.001),
        Claim("traces on, as by default, × off", ratios[2], 1.05),
        Claim("a full audit and archive, × off", ratios[4], 1.05),
        Claim("A/A tests that find a difference, of 100", 100 * differ / splits, 5),
    ]
    document = {"medians": medians, "ratios": ratios, "splits": splits, "differ": differ}
    sys.exit(finish("operations", tables, [] if quick else claims, document, OUT, screen))


if __name__ == "__main__":
    main()
