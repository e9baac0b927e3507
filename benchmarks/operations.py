"""What traces, audit and statements cost on the path of a request, and whether A/A tests find what is not there.

    python -m benchmarks.operations              # 300,000 items; about three minutes
    python -m benchmarks.operations --quick      # small, to see that it runs

Applications that differ in one thing answer the same requests in turns, one request at a time, without a network, over
ledgers in memory: that is where additions weigh most. The service has one core, on which it also makes and exports its
traces: a turn ends when all of them are exported, and its time includes that. The collector is a process of its own, on
another core if there is one, and counts what it gets.

Statistics: the time of a turn by request (mean), and the median request of a turn, which has no export in it. Of
both, the ratio to the same round of "off" is taken, and the median of these over all rounds. Claims are about the mean.

An A/A test divides a replay of generated traffic (users with tastes of their own, some of whom come often) into two
arms with half of the promises each, and looks for a difference where there is none.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np
from benchmarks.output import Claim, Table, finish, make_parser, make_screen

import fairsync as fs
from fairsync import spans
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.ledger import MemoryLedger
from fairsync.ledger.audit import AuditRecord
from fairsync.schedule import Forecast, ScheduledPromise, Window
from fairsync.search import ExactIndex
from fairsync.service.arms.arm_sums import ArmSums
from fairsync.service.arms.assignment import Assignment
from fairsync.service.arms.comparison import compare
from fairsync.service.arms.pro_rata import split_whole
from fairsync.service.promises.promise_service import PromiseService
from fairsync.service.server.app import make_app
from fairsync.service.settings import parse_settings

DIM, K = 64, 20
# Call, batch, lease, search, guard, settlement.
SPANS = 6
COLLECTOR = """
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
counts = Counter()
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self, body):
        self.send_response(200); self.send_header("content-length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        found = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["content-length"])))
        counts[self.path] += sum(len(scope.spans) for one in found.resource_spans for scope in one.scope_spans)
        self.answer(b"")
    def do_GET(self):
        self.answer(str(counts[self.path]).encode())
    def log_message(self, *_): pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


@dataclass
class Variant:
    """An application, and the seconds of its requests and turns: one row a round."""

    name: str
    app: Any
    listener: Any
    requests: list[list[float]] = field(default_factory=list)
    turns: list[float] = field(default_factory=list)


def make_variant(
    name: str,
    catalog: fs.Catalog,
    index: ExactIndex,
    *,
    endpoint: str | None = None,
    sample: float = 1.0,
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
    return Variant(name, app, spans.listen(None))


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
            seconds, start = [], time.perf_counter()
            for body in bodies:
                began = time.perf_counter()
                await ask(variant.app, body)
                seconds.append(time.perf_counter() - began)
            if variant.listener is not None:
                variant.listener.export.flush()
            if number:  # the first round warms up
                variant.turns.append((time.perf_counter() - start) / requests)
                variant.requests.append(seconds)
    spans.listen(None)


def count_differences(splits: int, users: int, items: int) -> int:
    """Return how many A/A tests find a difference; all of them keep the totals. The traffic is cut into seven days."""
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
            mine, got = np.flatnonzero(places[:, 0] == arm), ArmSums(arms.buckets)
            floors = dict.fromkeys(range(6), part)
            retriever = fs.FairRetriever(catalog, k=10, floors=floors, horizon=len(mine), batch_size=64)
            for start in range(0, len(mine), 64):
                here, prices = mine[start : start + 64], retriever.report().prices
                answers = retriever.retrieve(vectors[here])
                paid = np.array([prices[label] for label in catalog.labels])[answers.groups]
                promised = answers.groups < groups // 2
                for place, request in enumerate(here.tolist()):
                    got.add(
                        7 * request // len(of), int(places[request, 1]), requests=1,
                        relevance=float(answers.relevance[place].sum()), plain=float(answers.plain[place]),
                        prices=float(paid[place].sum()), exposures=int(promised[place].sum()),
                        held=int(np.count_nonzero(paid[place])),
                    )  # fmt: skip
                exposures += np.bincount(answers.groups.ravel(), minlength=groups)
            sums.append(got)
        assert (exposures[:6] >= floor).all(), "the totals hold"
        found += bool(compare(arms.experiment, {"a": 0.5, "b": 0.5}, sums).differ)
    return found


def main() -> None:
    parser = make_parser(__doc__, quick="small, to see that it runs")
    given = parser.parse_args()
    quick = given.quick
    items, rounds, requests = (2_000, 2, 5) if quick else (300_000, 16, 90)
    rng, screen = np.random.default_rng(1), make_screen()
    catalog = fs.Catalog(rng.normal(size=(items, DIM)).astype(np.float32), rng.integers(165, size=items))
    index = ExactIndex(catalog, 1)
    own = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    with subprocess.Popen([sys.executable, "-c", COLLECTOR], stdout=subprocess.PIPE, text=True) as collector:
        os.sched_setaffinity(collector.pid, set(range(os.cpu_count() or 1)) - {own} or {own})
        os.sched_setaffinity(0, {own})
        try:
            assert collector.stdout is not None
            base = f"http://127.0.0.1:{int(collector.stdout.readline())}"
            variants = [
                make_variant("off", catalog, index),
                make_variant("off, the same again", catalog, index),
                make_variant("traces of all calls (default)", catalog, index, endpoint=f"{base}/all"),
                make_variant("traces of 10 % of the calls", catalog, index, endpoint=f"{base}/tenth", sample=0.1),
                make_variant("a full audit, a month of statements", catalog, index, filled=True),
            ]
            asyncio.run(measure(variants, rounds, requests))
            for variant in variants[2:4]:
                variant.listener.close()
            with urllib.request.urlopen(f"{base}/all") as counted:
                exported = int(counted.read()) / ((rounds + 1) * requests)
        finally:
            collector.terminate()
    assert exported == SPANS, f"{exported} spans a call reached the collector, not {SPANS}"
    began, n = time.perf_counter(), 1_000_000
    for _ in range(n):
        with spans.span("search"):
            pass
    nothing = SPANS * (time.perf_counter() - began) / n
    means = [np.array(variant.turns) for variant in variants]
    middles = [np.median(variant.requests, axis=1) for variant in variants]
    ratios = [float(np.median(one / means[0])) for one in means]
    middle_ratios = [float(np.median(one / middles[0])) for one in middles]
    rows = [
        (variant.name, f"{1000 * np.median(mean):.2f} ms", f"{ratio:.3f}", f"{middle:.3f}")
        for variant, mean, ratio, middle in zip(variants, means, ratios, middle_ratios, strict=True)
    ]
    splits, users = (4, 60) if quick else (100, 600)
    differ = count_differences(splits, users, 300 if quick else 1_500)
    tables = [
        Table("One request at a time, exact search", ["", "mean", "mean × off", "median × off"], rows),
        Table("A/A tests", ["splits", "found a difference"], [(str(splits), str(differ))]),
    ]
    claims = [
        Claim("six spans without a listener, as a share of a request", nothing / float(np.median(means[0])), 0.001),
        Claim("traces of all calls, export included, × off", ratios[2], 1.05),
        Claim("a full audit and archive, × off", ratios[4], 1.05),
        Claim("A/A tests that find a difference, of 100", 100 * differ / splits, 5),
    ]
    document = {"ratios": ratios, "median ratios": middle_ratios, "splits": splits, "differ": differ}
    sys.exit(finish("operations", tables, [] if quick else claims, document, given.out, screen))


if __name__ == "__main__":
    main()
