"""Search under overlapping promises: groups are atoms, most of which hold one to three items.

It is a part of `benchmarks.search`. Categories decide where items lie; providers are independent of that, which is the
worst case for lists of similar items. A third of the promises has a subsidy, exponential with a mean of 0.3 standard
deviations of the relevance (3 % of its range for one user), and one in a hundred a charge. One thread; all contenders
take turns.

Prices are given as the loop gives them, in arrays that are not writeable. New prices are drawn independently of those
before, and every contender has its own, so that none profits from what another has computed. Those of a policy are the
latest of a run, one after another.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
from benchmarks.output import Claim, Table
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from fairsync import Catalog, FairRetriever, Promise, each
from fairsync.data.synthetic import synthetic
from fairsync.search import ExactIndex, Hits, IvfIndex

DIM, K = 64, 50
BATCHES = (1, 16, 64)
REQUESTS = 256
# A policy that keeps a promise to every category, every provider and the new items, as in `benchmarks.loop_promises`.
HORIZON, SERVED = 20_000, 256
EXACT, EXACT_PRICED, EXACT_FEW = "exact, no prices", "exact, prices", "exact, few atoms open"
IVF, IVF_PRICED, IVF_NEW = "ivf, no prices", "ivf, the same prices", "ivf, new prices every 16 requests"
EXACT_POLICY, IVF_POLICY = "exact, prices of a policy", "ivf, prices of a policy"

Prices = npt.NDArray[np.float64]
Measure = Callable[[dict[str, Callable[[int], object]], int, int], dict[str, float]]


@dataclass(frozen=True)
class AtomFigure:
    """One line of the table; recall only where the search is approximate."""

    items: int
    atoms: int
    batch: int
    contender: str
    ms_per_request: float
    times_exact: float
    recall: float | None


class AtomContest:
    """A catalog whose groups are the atoms of overlapping promises, with its indexes."""

    def __init__(self, n: int, categories: int, providers: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        data = synthetic(n, categories, REQUESTS + SERVED, DIM, seed, n_past=1024, largest_share=0.3, tail_exponent=1.0)
        share = (1.0 + np.arange(providers)) ** -0.5
        attributes = {
            "category": data.groups,
            "provider": rng.choice(providers, size=n, p=share / share.sum()),
            "new": rng.random(n) < 0.1,
        }
        catalog, slots = Catalog(data.embeddings, attributes), HORIZON * K
        promises = [
            *each(catalog, "category", at_least=slots // categories // 2),
            *each(catalog, "provider", at_least=slots // providers // 4),
            Promise({"new": True}, at_least=0.12),
        ]
        used: list[Prices] = []
        retriever = FairRetriever(
            catalog, k=K, horizon=HORIZON, promises=promises, batch_size=16, index=lambda one: self._watched(one, used)
        ).calibrate(data.past_users)
        retriever.retrieve(data.users[REQUESTS:])
        assert retriever.terms.membership is not None
        self.membership = retriever.terms.membership
        # The latest prices, one after another, each once: the guard searches under the same ones again.
        changed = [now for before, now in pairwise(used) if not np.array_equal(before, now)]
        self.policy = changed[-8:]
        self.users = data.users[:REQUESTS, None]
        started = time.perf_counter()
        self.ivf = IvfIndex(self.catalog, exact_below=0).tune(data.past_users)
        self.build_seconds = time.perf_counter() - started
        scale = float((data.users[:32] @ data.embeddings[:4096].T).std())
        self.prices = [self._draw(scale, rng) for _ in range(8)]
        self.more_prices = [self._draw(scale, rng) for _ in range(8)]

    def _watched(self, catalog: Catalog, used: list[Prices]) -> ExactIndex:
        """Return an index that notes the prices of its searches."""
        self.catalog, self.exact = catalog, ExactIndex(catalog, threads=1)

        class Watched(ExactIndex):
            def search(self, users: Any, prices: Any, k: int, eligible: Any = None) -> Hits:
                if prices is not None and prices.max() < np.inf:
                    used.append(prices)
                return super().search(users, prices, k, eligible)

        return Watched(catalog, threads=1)

    def _draw(self, scale: float, rng: np.random.Generator) -> Prices:
        """Return prices of atoms, from those of promises."""
        count = self.membership.n_promises
        price = -rng.exponential(0.3 * scale, count) * (rng.random(count) < 1 / 3)
        charged = rng.random(count) < 0.01
        price[charged] = rng.exponential(0.3 * scale, int(charged.sum()))
        prices = self.membership.atom_prices(price)
        prices.flags.writeable = False
        return prices

    def few_open(self, number: int) -> Prices:
        """Return prices that mask all but one atom in 500, as the guard does."""
        return np.where(np.arange(self.catalog.n_groups) % 500 == number, self.prices[0], np.inf)

    def recall(self, prices: Prices | None) -> float:
        """Return the fraction of the true best items that `ivf` finds."""
        truth, found = (index.search(self.users, prices, K).rows for index in (self.exact, self.ivf))
        return float(np.mean([np.isin(wanted, got).mean() for wanted, got in zip(truth, found, strict=True)]))

    def contenders(self, batch: int) -> list[dict[str, Callable[[int], object]]]:
        """Return the functions to time: those that take turns under the same prices, and under new ones."""
        few = [self.few_open(number) for number in range(4)]

        def users(call: int) -> npt.NDArray[np.float32]:
            start = call % (REQUESTS // batch) * batch
            return self.users[start : start + batch]

        def number(call: int) -> int:
            # New prices every 16 requests; a larger batch has one price vector, and the next batch another.
            return call // max(1, 16 // batch) % len(self.prices)

        exact, ivf = self.exact, self.ivf
        bare: dict[str, Callable[[int], object]] = {
            EXACT: lambda call: exact.search(users(call), None, K),
            EXACT_PRICED: lambda call: exact.search(users(call), self.prices[number(call)], K),
        }
        same: dict[str, Callable[[int], object]] = {
            **bare,
            IVF: lambda call: ivf.search(users(call), None, K),
            IVF_PRICED: lambda call: ivf.search(users(call), self.more_prices[0], K),
        }
        policy: dict[str, Callable[[int], object]] = {
            **bare,
            EXACT_POLICY: lambda call: exact.search(users(call), self.policy[number(call)], K),
            IVF_POLICY: lambda call: ivf.search(users(call), self.policy[number(call)], K),
        }
        if batch == 1:
            same[EXACT_FEW] = lambda call: exact.search(users(call), few[call % len(few)], K)
        new: dict[str, Callable[[int], object]] = {
            **bare,
            IVF_NEW: lambda call: ivf.search(users(call), self.more_prices[number(call)], K),
        }
        return [same, new, policy]

    def figures(self, measure: Measure, rounds: int) -> list[AtomFigure]:
        """Measure all contenders on one thread."""
        recalls = {IVF: self.recall(None)}
        recalls[IVF_PRICED] = recalls[IVF_NEW] = float(np.mean([self.recall(prices) for prices in self.prices[:3]]))
        recalls[IVF_POLICY] = float(np.mean([self.recall(prices) for prices in self.policy[-3:]]))
        faiss.omp_set_num_threads(1)
        made = []
        with threadpool_limits(1):
            for batch in BATCHES:
                known: set[str] = set()
                for contenders in self.contenders(batch):
                    seconds = measure(contenders, rounds, 16 if batch == 1 else 1)
                    for name, each in seconds.items():
                        peer = EXACT if name in (EXACT, IVF) else EXACT_POLICY if name == IVF_POLICY else EXACT_PRICED
                        exact = seconds[peer]
                        cells = (batch, name, each / batch * 1e3, exact / each, recalls.get(name))
                        if name not in known:
                            made.append(AtomFigure(len(self.catalog), self.catalog.n_groups, *cells))
                    known |= set(seconds)
        return made


def check_atom_claims(figures: Sequence[AtomFigure]) -> list[Claim]:
    """Compare the worst measurement of each kind with its limit."""
    if not figures:
        return []
    without = {one.batch: one.ms_per_request for one in figures if one.contender == EXACT}
    added = {one.batch: one.ms_per_request / without[one.batch] for one in figures if one.contender == EXACT_PRICED}
    ivf = [one for one in figures if one.contender == IVF_PRICED]
    new = {one.batch: one.times_exact for one in figures if one.contender == IVF_NEW}
    few = [one.times_exact for one in figures if one.contender == EXACT_FEW]
    policy = {one.batch: one for one in figures if one.contender == IVF_POLICY}
    same = {one.batch: one.times_exact for one in ivf}
    kinds = {
        "the same prices": same,
        "new prices": new,
        "prices of a policy": {b: p.times_exact for b, p in policy.items()},
    }
    faster = [
        Claim(f"atoms: ivf, {kind}, times as fast as exact, batch of {batch}", ratio, 8.0, at_most=False)
        for kind, ratios in kinds.items()
        for batch, ratio in ratios.items()
    ]
    return [
        Claim("atoms: time with prices ÷ without", max(added.values()), 1.15),
        Claim("atoms: recall of ivf under prices", min(one.recall or 0.0 for one in ivf), 0.99, at_most=False),
        Claim("atoms: recall of ivf, prices of a policy", policy[1].recall or 0.0, 0.99, at_most=False),
        *faster,
        Claim("atoms: few atoms open, times as fast as all of them", min(few), 4.0, at_most=False),
    ]


def atom_table(figures: Sequence[AtomFigure], build_seconds: float) -> Table:
    """Return the table of all figures."""
    title = f"Search under overlapping promises, one thread, d = {DIM}, K = {K}; ivf built in {build_seconds:.0f} s"
    cells = [
        [
            f"{one.items:,}",
            f"{one.atoms:,}",
            str(one.batch),
            one.contender,
            f"{one.ms_per_request:.3f}",
            f"{one.times_exact:.2f}",
            "" if one.recall is None else f"{one.recall:.4f}",
        ]
        for one in figures
    ]
    return Table(title, ["items", "atoms", "batch", "search", "ms/request", "× exact", "recall"], cells)
