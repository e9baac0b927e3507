"""Lists of other searches: what is counted, once, and what is learnt from them."""

import numpy as np
import numpy.typing as npt
import pytest

from fairsync.catalog import Catalog
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.coordination.lease import Settlement
from fairsync.coordination.outside_lists import OutsideList, SettledLists, settle_outside
from fairsync.errors import InvalidInputError, LostLeaseError
from fairsync.ledger import Entry, MemoryLedger
from fairsync.promises import Promise
from postgres_server import PostgresServer

K = 4


def make_catalog(n: int = 80) -> Catalog:
    """Items of three kinds; the users below hardly like those of the kind c."""
    rng = np.random.default_rng(3)
    kinds = np.array(["a", "b", "c", "a"])[np.arange(n) % 4]
    embeddings = rng.normal(size=(n, 6)) - np.where(kinds == "c", 0.7, 0.0)[:, None]
    return Catalog(embeddings, {"kind": kinds, "new": np.arange(n) % 5 == 0}, [f"i{row}" for row in range(n)])


def users(n: int, seed: int = 5) -> npt.NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=(n, 6)) + 0.5


def lists_of(found: npt.NDArray[np.int64], catalog: Catalog, **more: object) -> list[OutsideList]:
    return [OutsideList(catalog.ids_of(row).tolist(), **more) for row in found]  # type: ignore[arg-type]


class World:
    """A coordinator and a plain search under the prices of its leases, which knows no guard."""

    def __init__(self, ledger: object = None, **settings: object) -> None:
        self.catalog = make_catalog()
        self.coordinator = Coordinator(self.catalog, k=K, ledger=ledger, **settings)  # type: ignore[arg-type]
        self.front = FrontEnd(self.catalog, self.coordinator)

    def settle(
        self, number: int, lists: list[OutsideList], prices: npt.NDArray[np.float64] | None = None
    ) -> SettledLists:
        items = self.front.items_under(self.coordinator.terms.membership)
        return settle_outside(self.coordinator, items, number, lists, prices)

    def serve(self, vectors: npt.NDArray[np.float64], fetch: int = 40, report: bool = True) -> None:
        start = 0
        while start < len(vectors):
            lease = self.coordinator.lease(len(vectors) - start)
            here = vectors[start : start + lease.batch.requests]
            items = self.front.items_under(lease.batch.terms.membership)
            by_item = items.atom_prices(lease.batch.prices_by_promise)[items.searched.group_of]
            lists = []
            for scores in here @ self.catalog.embeddings.T:
                fetched = np.argsort(-scores)[:fetch]
                best = fetched[np.argsort(by_item[fetched] - scores[fetched])][:K]
                ids = self.catalog.ids_of(fetched).tolist() if report else None
                lists.append(
                    OutsideList(
                        self.catalog.ids_of(best).tolist(),
                        fetched=ids,
                        scores=scores[fetched].tolist() if report else None,
                    )
                )
            self.settle(lease.number, lists, lease.batch.prices_by_promise)
            start += lease.batch.requests


def test_a_lease_is_counted_once_and_unknown_items_are_named() -> None:
    world = World(floors={"c": 10}, horizon=100)
    lease = world.coordinator.lease(2)
    lists = [OutsideList(["i0", "i1", "gone", "i1"]), OutsideList(["i2", 7])]
    settled = world.settle(lease.number, lists)
    assert settled == SettledLists(requests=2, exposures=3, repeated=0, unknown=("gone", 7), expired=False, learned=0)
    assert world.coordinator.totals().exposures.tolist() == [1, 1, 1]
    again = world.settle(lease.number, lists)
    assert (again.requests, again.exposures, again.repeated) == (0, 0, 2)
    assert world.coordinator.totals().exposures.tolist() == [1, 1, 1]
    assert world.coordinator.totals().requests == 2


def test_a_request_id_is_counted_once_whatever_the_lease() -> None:
    world = World(floors={"c": 10}, horizon=100)
    first, second = world.coordinator.lease(2), world.coordinator.lease(2)
    assert world.settle(first.number, [OutsideList(["i0"], "r1"), OutsideList(["i1"], "r2")]).exposures == 2
    settled = world.settle(second.number, [OutsideList(["i0"], "r2"), OutsideList(["i2"], "r3")])
    assert (settled.requests, settled.exposures, settled.repeated) == (1, 1, 1)
    assert world.coordinator.totals().requests == 3
    # The saved answer is what a front end returns for the id.
    assert world.front.retrieve(users(1), request_ids=["r3"]).ids[0].tolist() == ["i2", "", "", ""]


def test_fewer_lists_than_leased_return_the_other_requests() -> None:
    world = World(floors={"c": 10}, horizon=100)
    lease = world.coordinator.lease(16)
    assert world.settle(lease.number, [OutsideList(["i0"])]).requests == 1
    assert world.coordinator.lease(1).batch.left == 99


@pytest.mark.parametrize("promises", [None, [Promise({"kind": "c"}, at_least=10), Promise({"new": True}, at_most=30)]])
def test_an_expired_lease_counts_its_exposures_once_and_says_so(promises: list[Promise] | None) -> None:
    world = World(horizon=100, promises=promises)
    lease = world.coordinator.lease(2)
    world.coordinator.release(lease.number)
    late = [OutsideList(["i0"], "r1"), OutsideList(["i2"], "r2")]
    settled = world.settle(lease.number, late)
    assert (settled.requests, settled.exposures, settled.expired) == (0, 2, True)
    counts = world.coordinator.totals().exposures.tolist()
    assert sum(counts) > 0
    for repeated in (late, [OutsideList(["i0"]), OutsideList(["i2"])]):
        again = world.settle(lease.number, repeated)
        assert (again.requests, again.exposures, again.repeated) == (0, 0, 2)
    assert world.coordinator.totals().exposures.tolist() == counts
    assert world.coordinator.totals().requests == 0
    if promises is None:
        other = world.coordinator.lease(1)
        assert world.settle(other.number, [OutsideList(["i0"], "r1")]).repeated == 1


def test_bad_lists_are_refused_before_anything_is_counted() -> None:
    world = World(floors={"c": 10}, horizon=100)
    lease = world.coordinator.lease(2)
    for lists, message in [
        ([OutsideList([f"i{row}" for row in range(K + 1)])], "k is 4"),
        ([OutsideList(["i0"], fetched=["i0"])], "go together"),
        ([OutsideList(["i0"], fetched=["i0"], scores=[1.0, 2.0])], "one score for each"),
        ([OutsideList(["i0"], fetched=["i0"], scores=[float("nan")])], "finite"),
        ([OutsideList(["i0"], "r"), OutsideList(["i1"], "r")], "twice"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            world.settle(lease.number, lists)
    assert world.coordinator.totals().requests == 0
    assert world.settle(lease.number, [OutsideList(["i0"])]).requests == 1


def shortfall(world: World) -> int:
    terms = world.coordinator.terms
    return int(np.maximum(terms.floors - world.coordinator.totals().exposures, 0).sum())


@pytest.mark.parametrize(
    "settings",
    [
        {"floors": {"c": 500}},
        {"promises": [Promise({"kind": "c"}, at_least=150), Promise({"new": True}, at_least=400)]},
    ],
    ids=["groups", "overlapping"],
)
def test_prices_are_learnt_from_the_scores_and_deliver_the_floors(settings: dict[str, object]) -> None:
    """Nothing is certain, but prices that are learnt from what was fetched come near; without scores they cannot."""
    learning, blind = (World(horizon=400, batch_size=16, **settings) for _ in range(2))
    learning.serve(users(400))
    blind.serve(users(400), report=False)
    assert shortfall(blind) > 100
    assert shortfall(learning) < 0.2 * shortfall(blind)
    totals = learning.coordinator.totals()
    assert totals.relevance > 0
    assert 0 < totals.cost < totals.relevance


def test_a_max_price_limits_leases_once_requests_have_told_its_unit() -> None:
    """The unit is the relevance of the last candidate without prices, which outside lists do not tell."""

    def price_and_exposures(max_price: float | None, served_here: int) -> tuple[float, int]:
        promises = [Promise({"kind": "c"}, at_least=700, max_price=max_price)]
        world, vectors = World(horizon=400, batch_size=16, promises=promises), users(400)
        if served_here:
            world.front.retrieve(vectors[:served_here])
        world.serve(vectors[served_here:])
        row = world.coordinator.report().promises[0]
        return row.price, row.exposures

    assert price_and_exposures(0.01, served_here=0) == price_and_exposures(None, served_here=0)
    free, limited = (price_and_exposures(limit, served_here=32) for limit in (None, 0.01))
    assert free[0] < 10 * limited[0] < 0
    assert limited[1] < 0.5 * free[1]


def test_front_ends_keep_the_floors_beside_lists_that_deliver_nothing() -> None:
    """An open or settled lease of another search costs requests, never the promise."""
    world = World(floors={"c": 300}, horizon=200, batch_size=16)
    vectors, served = users(200), 0
    while served < 100:  # half of all requests go to a search that never shows the kind c
        lease = world.coordinator.lease(min(8, 100 - served))
        found = [OutsideList(["i0", "i1", "i3", "i4"]) for _ in range(lease.batch.requests)]
        world.settle(lease.number, found)
        served += lease.batch.requests
    world.front.retrieve(vectors[100:])
    assert world.coordinator.report().exposures["c"] >= 300


def test_leases_settle_on_another_coordinator_of_the_same_ledger(postgres: PostgresServer) -> None:
    postgres.execute("DROP SCHEMA IF EXISTS outside_lists CASCADE")
    url = f"{postgres.url}?schema=outside_lists"
    with Coordinator(make_catalog(), k=K, floors={"c": 10}, horizon=100, ledger=url) as one:
        lease = one.lease(4)
        with Coordinator(make_catalog(), k=K, floors={"c": 10}, horizon=100, ledger=url) as other:
            front = FrontEnd(make_catalog(), other)
            settled = settle_outside(other, front.items_under(None), lease.number, [OutsideList(["i2"], "r1")])
            assert (settled.requests, settled.exposures, settled.expired) == (1, 1, False)
            again = settle_outside(one, front.items_under(None), lease.number, [OutsideList(["i2"], "r1")])
            assert again.repeated == 1
            assert one.report().exposures["c"] == 1
    postgres.execute("DROP SCHEMA outside_lists CASCADE")


def test_a_lease_may_last_longer_than_those_of_front_ends() -> None:
    world = World(MemoryLedger(3), floors={"c": 10}, horizon=100, lease_seconds=1e-6)
    short, long = world.coordinator.try_lease(1), world.coordinator.try_lease(1, seconds=3600.0)
    assert short is not None
    assert long is not None
    world.coordinator.lease(1)  # leases that are over expire now
    assert world.settle(short.number, [OutsideList(["i0"])]).expired
    assert not world.settle(long.number, [OutsideList(["i0"])]).expired


def test_late_lists_are_counted_once_whatever_dies_between_two_steps() -> None:
    """A coordinator that dies after it has refused a lease, and before the lists are counted, leaves no trace of it."""
    promises, lists = [Promise({"new": True}, at_most=30)], [OutsideList(["i0"], "r1"), OutsideList(["i2"])]
    world = World(MemoryLedger(1), horizon=100, promises=promises)
    lease = world.coordinator.lease(2)
    world.coordinator.release(lease.number)
    with pytest.raises(LostLeaseError):
        world.coordinator.settle(lease.number, Settlement(Entry(np.array([1]), 2, 1.0, 0.0)))
    again = World(world.coordinator.ledger, horizon=100, promises=promises)
    late = again.settle(lease.number, lists)
    assert (late.requests, late.exposures, late.expired) == (0, 2, True)
    assert again.settle(lease.number, lists).repeated == 2
    assert list(again.coordinator.answers(["r1"])) == ["r1"], "saved together with the counts"
    again.coordinator.promise(promises=[Promise({"new": True}, at_least=1)])  # without caps, late leases are settled
    assert again.settle(lease.number, lists[1:]).repeated == 1
