"""The loop with thousands of promises that overlap: the time of retrieve() that is not search.

It is a part of `benchmarks.loop`. Every category, every provider and the new items are promised exposures. Requests
come in calls of 64, and prices change every 16. One thread searches.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from benchmarks.output import Claim, Table

from fairsync import Catalog, FairRetriever, Promise, each
from fairsync.data import synthetic
from fairsync.search import ExactIndex

DIM, K, BATCH, CALL = 64, 50, 16, 64
CATEGORIES, PROVIDERS = 1_246, 5_000
HORIZON, CALLS = 20_000, 24
CLAIMED_ITEMS = 1_700_000
# A third of it is the sums of the prices of 690,000 atoms, and a copy of the certificate.
MOST_OUTSIDE = 0.10


@dataclass(frozen=True)
class PromiseLoop:
    """What was measured: milliseconds of a batch, and the share that is not search."""

    items: int
    promises: int
    atoms: int
    search_ms: float
    outside_ms: float

    @property
    def share(self) -> float:
        """The time outside the search, as a share of that of the search."""
        return self.outside_ms / self.search_ms


def measure_promises(items: int, seed: int, advance: Callable[[], object]) -> PromiseLoop:
    """Serve requests under promises, and time what is not search; the median over calls."""
    rng, scale = np.random.default_rng(seed), items / CLAIMED_ITEMS
    categories, providers = max(int(CATEGORIES * scale), 20), max(int(PROVIDERS * scale), 50)
    data = synthetic(items, categories, CALL * CALLS, DIM, seed, n_past=1_024, largest_share=0.3, tail_exponent=1.0)
    share = (1.0 + np.arange(providers)) ** -0.5
    attributes = {
        "category": data.groups,
        "provider": rng.choice(providers, size=items, p=share / share.sum()),
        "new": rng.random(items) < 0.1,
    }
    catalog = Catalog(data.embeddings, attributes)
    slots = HORIZON * K
    promises = [
        *each(catalog, "category", at_least=slots // categories // 2),
        *each(catalog, "provider", at_least=slots // providers // 4),
        Promise({"new": True}, at_least=0.12),
    ]
    spent = 0.0

    def build(searched: Catalog) -> Any:
        index = ExactIndex(searched, threads=1)
        search = index.search

        def timed(*arguments: Any, **named: Any) -> Any:
            nonlocal spent
            started = time.perf_counter()
            found = search(*arguments, **named)
            spent += time.perf_counter() - started
            return found

        index.search = timed  # type: ignore[method-assign]
        return index

    settings: dict[str, Any] = {"k": K, "horizon": HORIZON, "batch_size": BATCH, "index": build}
    retriever = FairRetriever(catalog, promises=promises, **settings).calibrate(data.past_users)
    inside, outside = [], []
    for start in range(0, CALL * CALLS, CALL):
        spent, started = 0.0, time.perf_counter()
        retriever.retrieve(data.users[start : start + CALL])
        whole = time.perf_counter() - started
        inside.append(spent)
        outside.append(whole - spent)
        advance()
    a_batch = 1e3 * BATCH / CALL
    search_ms, outside_ms = (float(np.median(times[1:])) * a_batch for times in (inside, outside))
    return PromiseLoop(items, len(promises), retriever.terms.n_atoms, search_ms, outside_ms)


def table_of_promises(one: PromiseLoop) -> Table:
    """Return the table."""
    return Table(
        f"The loop under promises that overlap: d = {DIM}, K = {K}, B = {BATCH}, calls of {CALL}, one thread",
        ["items", "promises", "atoms", "search, ms a batch", "outside it", "÷ search"],
        [
            [
                f"{one.items:,}",
                f"{one.promises:,}",
                f"{one.atoms:,}",
                f"{one.search_ms:.1f}",
                f"{one.outside_ms:.1f} ms",
                f"{one.share:.3f}",
            ]
        ],
    )


def check_promises(one: PromiseLoop) -> list[Claim]:
    """Return the claim, if the catalog is as large as it says."""
    if one.items < CLAIMED_ITEMS:
        return []
    return [Claim(f"time outside ÷ search, {one.promises:,} promises, {one.items:,} items", one.share, MOST_OUTSIDE)]
