"""The time of retrieve() with one promise for each of 10,000 new items among a million, beside search alone.

Every new item is promised exposures, ``each(catalog, "id", at_least=…, where={"new": True})``, so that there are as
many promises as new items, and as many atoms. Two states are measured. Under way: 50 exposures each within 60,000
requests; none has had them yet. Ending: so few, within so few requests, that promises end in every batch. The peer is
the same index without prices, in the same batches of 16, asked for the candidates only. Times alternate within one run.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from benchmarks.output import OUT, Claim, Table, finish, make_screen, progress

from fairsync import Catalog, FairRetriever, each
from fairsync.search import ExactIndex

DIM, K, BATCH = 64, 20, 16
ITEMS, NEW = 1_000_000, 10_000
WARM, MEASURED = 2_048, 1_024
MOST = 1.5


@dataclass(frozen=True)
class Measurement:
    """Milliseconds of a request, the promises under way before and after, and the forced slots."""

    state: str
    items: int
    call: int
    search_ms: float
    retrieve_ms: float
    before: int
    after: int
    forced: int

    @property
    def ratio(self) -> float:
        """The time of retrieve() divided by that of search alone."""
        return self.retrieve_ms / self.search_ms


def measure(
    state: str,
    catalog: Catalog,
    users: np.ndarray,
    at_least: int,
    horizon: int,
    calls: Sequence[int],
    advance: Callable[[], object],
) -> list[Measurement]:
    """Serve requests until prices are learnt, then time retrieve() and search alone in turns."""
    promises = each(catalog, "id", at_least=at_least, where={"new": True})
    retriever = FairRetriever(
        catalog, k=K, horizon=horizon, promises=promises, batch_size=BATCH,
        index=lambda searched: ExactIndex(searched, threads=1),
    )  # fmt: skip
    plain = ExactIndex(catalog, threads=1)
    warm = min(WARM, len(users) // 2)
    for start in range(0, warm, 64):
        retriever.retrieve(users[start : start + 64])
    measured, at = [], warm
    for call in calls:
        before, spent, searched = _under_way(retriever), [], []
        end = min(at + (MEASURED if call > 1 else MEASURED // 4), len(users))
        for start in range(at, end, call):
            some = users[start : start + call]
            began = time.perf_counter()
            retriever.retrieve(some)
            middle = time.perf_counter()
            for first in range(0, len(some), BATCH):
                plain.search(some[first : first + BATCH, None], None, K)
            spent.append(middle - began)
            searched.append(time.perf_counter() - middle)
        times = [1e3 * float(np.sum(some)) / (end - at) for some in (searched, spent)]
        forced = retriever.report().forced
        measured.append(
            Measurement(state, len(catalog), call, times[0], times[1], before, _under_way(retriever), forced)
        )
        at = end
        advance()
    return measured


def _under_way(retriever: FairRetriever) -> int:
    """Return the promises that are not kept yet."""
    return sum(not kept for kept in retriever.report().satisfied.values())


def make_catalog(items: int, new: int, seed: int) -> tuple[Catalog, np.ndarray]:
    """Return items with clustered vectors, some of which are new, and users."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(200, DIM))
    vectors = (centres[rng.integers(200, size=items)] + rng.normal(size=(items, DIM))).astype(np.float32)
    is_new = np.zeros(items, dtype=bool)
    is_new[rng.permutation(items)[:new]] = True
    n_users = WARM + 2 * MEASURED
    users = centres[rng.integers(200, size=n_users)] + rng.normal(size=(n_users, DIM))
    return Catalog(vectors, {"category": rng.integers(50, size=items), "new": is_new}), users.astype(np.float32)


def check_claims(measured: Sequence[Measurement]) -> list[Claim]:
    """Return the claims, for catalogs that are as large as they say."""
    return [
        Claim(f"retrieve() ÷ search alone, {one.state}, calls of {one.call}", one.ratio, MOST)
        for one in measured
        if one.items >= ITEMS
    ]


def table(measured: Sequence[Measurement]) -> Table:
    """Return the table."""
    return Table(
        f"One promise for each new item: d = {DIM}, K = {K}, B = {BATCH}, one thread",
        ["promises", "items", "requests a call", "search alone, ms", "retrieve(), ms", "ratio", "under way", "forced"],
        [
            [
                one.state,
                f"{one.items:,}",
                f"{one.call}",
                f"{one.search_ms:.2f}",
                f"{one.retrieve_ms:.2f}",
                f"{one.ratio:.2f}",
                f"{one.before:,} → {one.after:,}",
                f"{one.forced:,}",
            ]
            for one in measured
        ],
    )


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a smoke test on a small set")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args(args)
    items, new = (20_000, 200) if given.quick else (ITEMS, NEW)
    screen, measured = make_screen(), list[Measurement]()
    catalog, users = make_catalog(items, new, given.seed)
    states = [("under way", 50, 60_000), ("ending", 2, WARM + 2 * MEASURED)]
    with progress(screen) as bar:
        task = bar.add_task("new items", total=2 * len(states))
        for state, at_least, horizon in states:
            measured += measure(state, catalog, users, at_least, horizon, (64, 1), lambda: bar.advance(task))
    document = {"lines": [asdict(one) for one in measured]}
    return finish("new_items", [table(measured)], check_claims(measured), document, given.out, screen)


if __name__ == "__main__":
    raise SystemExit(main())
