"""The shortfall of a search that only gets prices: how much of the floors is missing without a guard.

    python -m benchmarks.control_plane                 # 12,000 items, 4,000 requests, a minute
    python -m benchmarks.control_plane --requests 500  # a smoke test

Leases of a coordinator are answered by a plain search, which ranks the best items of a prefetch by score minus price
and reports them with their scores. The same requests are answered by a front end, whose guard forces slots where prices
alone would miss a floor. The shortfall of the first is about what the guard of the second forces.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from benchmarks.output import Claim, Table, finish, make_parser, make_screen
from rich.console import Console

from fairsync import Catalog, Coordinator, FrontEnd
from fairsync.coordination.outside_lists import OutsideList, settle_outside
from fairsync.data import synthetic

K, DIM = 20, 32
PARTS = (0.2, 0.5, 0.8)  # of all slots, that are promised
BATCHES = (16, 64)
FETCHED = (100, 1000)


@dataclass(frozen=True)
class Measurement:
    """Exposures that floors lack at the end of the horizon, of all that were promised."""

    part: float
    batch: int
    fetched: int
    promised: int
    plain: int
    shortfall: int
    forced: int


def outside(coordinator: Coordinator, front: FrontEnd, users: np.ndarray, fetched: int) -> int:
    """Answer all requests by another search; return the exposures that are missing."""
    catalog, start = front.catalog, 0
    items = front.items_under(None)
    while start < len(users):
        lease = coordinator.lease(len(users) - start)
        prices = lease.batch.prices_by_promise[catalog.group_of]
        lists = []
        for scores in users[start : start + lease.batch.requests] @ catalog.embeddings.T:
            best = np.argpartition(-scores, fetched)[:fetched]
            best = best[np.argsort(prices[best] - scores[best])]
            seen = best[: K + lease.batch.lookahead]
            lists.append(
                OutsideList(
                    catalog.ids_of(best[:K]).tolist(),
                    fetched=catalog.ids_of(seen).tolist(),
                    scores=scores[seen].tolist(),
                )
            )
        settle_outside(coordinator, items, lease.number, lists, lease.batch.prices_by_promise)
        start += lease.batch.requests
    return shortfall(coordinator)


def shortfall(coordinator: Coordinator) -> int:
    """Return the exposures that floors lack."""
    return int(np.maximum(coordinator.terms.floors - coordinator.totals().exposures, 0).sum())


def measure(catalog: Catalog, users: np.ndarray, part: float, batch: int, fetched: int) -> Measurement:
    """Compare a search without a guard with a front end."""
    floor = int(part * K * len(users) / catalog.n_groups)

    def coordinator(policy: str = "guaranteed") -> Coordinator:
        # One request more, so that the horizon is still open when it is looked at.
        return Coordinator(catalog, k=K, floors=floor, horizon=len(users) + 1, batch_size=batch, policy=policy)

    plain, priced, guarded = coordinator("none"), coordinator(), coordinator()
    FrontEnd(catalog, plain).retrieve(users)
    missing = outside(priced, FrontEnd(catalog, priced), users, fetched)
    front = FrontEnd(catalog, guarded)
    for start in range(0, len(users), batch):
        front.retrieve(users[start : start + batch])
    promised = floor * catalog.n_groups
    return Measurement(part, batch, fetched, promised, shortfall(plain), missing, guarded.totals().forced)


def main(arguments: Sequence[str] | None = None, screen: Console | None = None) -> int:
    """Run the benchmark."""
    parser = make_parser(__doc__)
    parser.add_argument("--items", type=int, default=12_000)
    parser.add_argument("--requests", type=int, default=4_000)
    parser.add_argument("--groups", type=int, default=50)
    given = parser.parse_args(arguments)
    world = synthetic(given.items, given.groups, given.requests, DIM, seed=0)
    catalog = Catalog(world.embeddings, world.groups)
    users = np.asarray(world.users, dtype=np.float64).reshape(given.requests, DIM)
    figures = [
        measure(catalog, users, part, batch, min(fetched, given.items - 1))
        for part in PARTS
        for batch in BATCHES
        for fetched in FETCHED
    ]
    table = Table.of(
        "Shortfall of a search that only gets prices",
        figures,
        {
            "slots promised": lambda one: f"{one.part:.0%}",
            "B": lambda one: str(one.batch),
            "prefetch": lambda one: f"{one.fetched:,}",
            "promised": lambda one: f"{one.promised:,}",
            "missing, no prices": lambda one: f"{one.plain / one.promised:.2%}",
            "missing, prices": lambda one: f"{one.shortfall / one.promised:.2%}",
            "forced": lambda one: f"{one.forced / one.promised:.2%}",
        },
    )
    claims = [
        Claim("missing with prices and a deep prefetch ÷ missing without, at most half of all slots promised",
              max(one.shortfall / one.plain for one in figures if one.part <= 0.5 and one.fetched > 500), 0.05)
    ]  # fmt: skip
    document = {"figures": [asdict(one) for one in figures]}
    return finish("control_plane", [table], claims, document, given.out, screen or make_screen())


if __name__ == "__main__":
    raise SystemExit(main())
