"""Targets by selection: floors that overlap, caps and limits per list, set again and again while leases are open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairsync as fs
from effort import effort
from fairsync.promises.selection import selection_name
from promise_worlds import make_catalog, make_users

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairsync.coordination.lease import Lease

K = 10


def by_the_clock(catalog: fs.Catalog, **changes: Any) -> fs.Coordinator:
    settings: dict[str, Any] = {"k": K, "horizon": 1, "auto_restart": False, "batch_size": 8}
    return fs.Coordinator(catalog, **{**settings, **changes})


def counts_of(catalog: fs.Catalog, ids: np.ndarray, where: Mapping[str, Any]) -> int:
    """Return the exposures of a selection in lists of items, counted one by one."""
    selected = catalog.select(where)
    rows = set(range(len(catalog))) if selected is None else set(selected.rows.tolist())
    return sum(int(row) in rows for row in catalog.rows_of(ids.ravel()).tolist())


class SlowSettlements:
    """A coordinator whose settlements arrive later, in any order.

    If it `holds_all`, they arrive when the next lease cannot be granted beside theirs, or with `settle_all`.
    """

    def __init__(self, coordinator: fs.Coordinator, rng: np.random.Generator) -> None:
        self.coordinator, self.rng, self.out, self.holds_all = coordinator, rng, list[Any](), False
        self.answers, self.release = coordinator.answers, coordinator.release
        self.save_answers, self.k = coordinator.save_answers, coordinator.k

    @property
    def labels(self) -> list[Any]:
        return self.coordinator.labels

    @property
    def promises(self) -> tuple[fs.Promise, ...] | None:
        return self.coordinator.promises

    def lease(self, n: int, k: int | None = None) -> Lease:
        while (lease := self.coordinator.try_lease(n, k=k)) is None:
            assert self.out, "a lease waits though no other is open"
            self.settle_one()
        return lease

    def settle(self, *arguments: Any) -> None:
        self.out.append(lambda: self.coordinator.settle(*arguments))
        while not self.holds_all and len(self.out) > self.rng.integers(0, 5):
            self.settle_one()

    def settle_one(self) -> None:
        self.out.pop(int(self.rng.integers(len(self.out))))()

    def settle_all(self) -> None:
        while self.out:
            self.settle_one()


SELECTIONS: list[dict[str, Any]] = [
    {"category": "wine"},
    {"category": "books"},
    {"new": True},
    {"provider": "best"},
    {"category": "wine", "new": True},
    {"provider": ["acme", "dune"]},
]


@effort(12, 0.5)
@given(st.data())
def test_floors_and_caps_hold_in_each_period_whatever_the_order_of_settlements(data: st.DataObject) -> None:
    """Floors that can be kept together, and caps, hold at the end of every period, counted from the lists."""
    seed = data.draw(st.integers(0, 10_000))
    rng = np.random.default_rng(seed)
    catalog = make_catalog(seed % 7)
    coordinator = by_the_clock(catalog, batch_size=int(rng.integers(1, 12)))
    slow = SlowSettlements(coordinator, rng)
    front_ends = [fs.FrontEnd(catalog, slow) for _ in range(2)]
    for period in range(3):
        requests = int(rng.integers(20, 60))
        wheres = [SELECTIONS[i] for i in rng.permutation(len(SELECTIONS))[: rng.integers(1, 5)]]
        floors = [int(rng.integers(0, requests)) for _ in wheres]
        caps = [floor + int(rng.integers(0, 20)) if rng.random() < 0.5 else None for floor in floors]
        shown: list[np.ndarray] = []
        served = 0
        while served < requests:
            left = requests - served
            slow.settle_all() if rng.random() < 0.5 else None
            totals = coordinator.totals()
            had = [counts_of(catalog, np.concatenate(shown), where) if shown else 0 for where in wheres]
            promises = [
                fs.Promise(where, at_least=max(floor - count, 0), at_most=None if cap is None else max(cap - count, 0))
                for where, floor, cap, count in zip(wheres, floors, caps, had, strict=True)
            ]
            if not slow.out:  # what was shown is what was counted, so that the bounds are those of the whole period
                coordinator.set_targets(
                    promises=promises, requests=left, restart_at=None if served else 1000.0 * (period + 1), since=totals
                )
            elif not served:
                continue
            n = min(int(rng.integers(1, 15)), left)
            found = front_ends[int(rng.integers(2))].retrieve(make_users(n, int(rng.integers(1 << 30))))
            shown.append(found.ids)
            served += n
        slow.settle_all()
        for where, floor, cap in zip(wheres, floors, caps, strict=True):
            count = counts_of(catalog, np.concatenate(shown), where)
            column = coordinator.column_of(where)
            assert coordinator.totals().exposures[coordinator.labels.index(column)] == count
            assert cap is None or count <= cap
            assert count >= floor or not can_be_kept(catalog, wheres, floors, caps, requests)


def can_be_kept(
    catalog: fs.Catalog, wheres: list[Any], floors: list[int], caps: list[int | None], requests: int
) -> bool:
    promises = [
        fs.Promise(where, at_least=floor, at_most=cap, name=str(i))
        for i, (where, floor, cap) in enumerate(zip(wheres, floors, caps, strict=True))
    ]
    try:
        fs.Coordinator(catalog, k=K, horizon=requests, promises=promises)
    except (fs.InfeasibleFloorsError, fs.InvalidInputError):  # also if no item meets the conditions
        return False
    return True


def test_floors_of_labels_alone_take_the_path_without_membership() -> None:
    catalog, users = make_catalog(), make_users(60)
    label = catalog.labels[0]
    by_floors, by_promises = by_the_clock(catalog), by_the_clock(catalog)
    first, second = fs.FrontEnd(catalog, by_floors), fs.FrontEnd(catalog, by_promises)
    by_floors.set_targets({label: 200}, 60, restart_at=5.0)
    promise = fs.Promise({catalog.group_attribute: label}, at_least=200)
    by_promises.set_targets(promises=[promise], requests=60, restart_at=5.0)
    assert (first.retrieve(users).ids == second.retrieve(users).ids).all()
    assert by_promises.terms.membership is None
    assert by_promises.promises is None


def test_columns_grow_and_are_never_taken_away() -> None:
    catalog = make_catalog()
    coordinator = by_the_clock(catalog)
    front_end, labels = fs.FrontEnd(catalog, coordinator), list(coordinator.labels)
    coordinator.set_targets(promises=[fs.Promise({"new": True}, at_least=5)], requests=20)
    front_end.retrieve(make_users(10))
    new = selection_name({"new": True})
    assert coordinator.labels == [*labels, new]
    had = coordinator.report().exposures
    coordinator.set_targets(promises=[fs.Promise({"provider": "best"}, at_least=5)], requests=20)
    assert coordinator.labels == [*labels, new, selection_name({"provider": "best"})]
    front_end.retrieve(make_users(10))
    counts = coordinator.totals().exposures
    assert counts[len(labels)] == coordinator.ledger.totals().exposures[len(labels)], "the ledger has the same"
    assert counts[: len(labels)].sum() == 20 * K, "every item has one label of the group"
    assert len(had) == len(labels) + 1
    assert counts[len(labels)] == had[fs.Promise({"new": True}, at_least=0).name], "it is not counted any more"


@pytest.mark.parametrize("labels", [[0, 0, 1, 1], ["0", "0", "1", "1"]])
def test_a_selection_that_is_not_named_again_counts_nothing_whatever_the_type_of_labels(labels: list[Any]) -> None:
    catalog = fs.Catalog(np.eye(4), {"category": labels, "new": [True, False, True, False]})
    coordinator = fs.Coordinator(catalog, k=2, floors=0, horizon=1, auto_restart=False)
    front = fs.FrontEnd(catalog, coordinator)
    coordinator.set_targets(requests=2, promises=[fs.Promise({"new": True}, at_least=1)])
    front.retrieve(np.ones((2, 4)))
    before = coordinator.totals().exposures
    coordinator.set_targets(requests=2, promises=[fs.Promise({"id": 3}, at_least=1)])
    front.retrieve(np.array([[1.0, 0, 1, 0]] * 2))
    after = dict(zip(coordinator.labels, coordinator.totals().exposures.tolist(), strict=True))
    assert before[coordinator.labels.index('{"new": true}')] == after['{"new": true}']
    assert after['{"id": 3}'] >= 1


def test_atoms_are_found_again_only_if_selections_or_items_change() -> None:
    catalog = make_catalog()
    coordinator = by_the_clock(catalog)
    promises = [fs.Promise({"new": True}, at_least=5), fs.Promise({"category": "wine"}, at_least=1)]
    coordinator.set_targets(promises=promises, requests=20)
    before = coordinator.promises
    coordinator.set_targets(promises=[fs.Promise({"new": True}, at_least=9, at_most=30)], requests=30)
    assert coordinator.promises is before
    coordinator.change_items(make_catalog(1))
    assert coordinator.promises is not before


def test_a_cap_counts_what_was_settled_since_the_totals_were_read() -> None:
    catalog = make_catalog()
    coordinator = by_the_clock(catalog)
    front_end = fs.FrontEnd(catalog, coordinator)
    where = {"category": "wine"}
    coordinator.set_targets(promises=[fs.Promise(where, at_most=40)], requests=50, restart_at=1.0)
    since = coordinator.totals()
    found = [front_end.retrieve(make_users(5)).ids]
    assert (used := counts_of(catalog, found[0], where)) > 0
    for start in (None, 2.0):  # in the same horizon, and in the next one of the same window
        coordinator.set_targets(promises=[fs.Promise(where, at_most=40)], requests=45, restart_at=start, since=since)
        caps, code = coordinator.terms.caps, coordinator.labels.index("wine")
        assert caps is not None
        assert caps[code] - coordinator.totals().exposures[code] == 40 - used


def test_lists_longer_than_k_keep_the_limits_per_list() -> None:
    """A column without a limit has none in a longer list either: only then is there room for the limits of others."""
    catalog = make_catalog()
    front_end = fs.FrontEnd(catalog, coordinator := by_the_clock(catalog))
    coordinator.set_targets(promises=[fs.Promise({"new": True}, at_most_per_list=1)], requests=50)
    for where in ({"category": "toys"}, {"category": "books"}, {}):
        for row in front_end.retrieve(make_users(12), k=2 * K, where=where).ids:
            assert len(set(row.tolist())) == 2 * K
            assert counts_of(catalog, row, {"new": True}) <= 1


@pytest.mark.parametrize("floor", [0, 30])
def test_limits_per_list_are_kept_where_only_a_cap_has_to_give_way(floor: int) -> None:
    """A request for one category gets it, also if its cap is used up, or reserved for a floor."""
    catalog = make_catalog()
    front_end = fs.FrontEnd(catalog, coordinator := by_the_clock(catalog))
    capped = fs.Promise({"category": "books"}, at_least=floor, at_most=floor)
    coordinator.set_targets(promises=[fs.Promise({"new": True}, at_most_per_list=1), capped], requests=50)
    for row in front_end.retrieve(make_users(12), where={"category": "books"}).ids:
        assert len(set(row.tolist())) == K
        assert counts_of(catalog, row, {"new": True}) <= 1


def check_that_slots_grow(coordinator: fs.Coordinator, catalog: fs.Catalog) -> None:
    """Check that requests are answered after targets have added atoms while the first limited request was open."""
    slow = SlowSettlements(coordinator, np.random.default_rng(0))
    slow.holds_all = True
    floor = fs.Promise({"category": "books"}, at_least=60)
    coordinator.set_targets(promises=[floor, fs.Promise({"new": True}, at_least=5)], requests=50)
    fs.FrontEnd(catalog, slow).retrieve(make_users(2), where={"category": "wine"})
    new = fs.Promise({"new": True, "provider": "acme"}, at_least=5)
    coordinator.set_targets(promises=[floor, new], requests=50)
    slow.settle_all()
    front_end = fs.FrontEnd(catalog, coordinator)
    for _ in range(5):
        front_end.retrieve(make_users(8))
    assert coordinator.totals().requests == 42
    assert coordinator.outlook("books", 5, 8) is not None


def test_atoms_may_be_added_while_the_first_limited_request_is_open() -> None:
    catalog = make_catalog()
    check_that_slots_grow(by_the_clock(catalog), catalog)


def check_caps_of_long_lists(coordinators: list[fs.Coordinator], catalog: fs.Catalog) -> None:
    """Check that a cap holds though each front end that searches at the same time could use it up by one list."""
    cap, shown = 45, list[np.ndarray]()
    slow = [SlowSettlements(one, np.random.default_rng(0)) for one in coordinators]
    fronts = [fs.FrontEnd(catalog, one) for one in slow]
    for one in slow:
        one.out = slow[0].out
    for _ in range(3):
        for _ in range(4):  # the first front end is alone for a while, and gets all that the cap has left
            shown.append(fronts[0].retrieve(make_users(1), k=1).ids.ravel())
            slow[0].settle_all()
        for front, one, lists in zip(fronts, slow, (1, 2), strict=True):
            one.holds_all = True
            shown += [front.retrieve(make_users(1), k=4 * K).ids.ravel() for _ in range(lists)]
            one.holds_all = False
        slow[0].settle_all()
    assert 0 < counts_of(catalog, np.concatenate(shown), {"category": "toys"}) <= cap


def test_lists_longer_than_k_keep_caps_beside_others() -> None:
    catalog = make_catalog()
    coordinator = by_the_clock(catalog)
    coordinator.set_targets(promises=[fs.Promise({"category": "toys"}, at_most=45)], requests=50)
    check_caps_of_long_lists([coordinator, coordinator], catalog)


def test_lower_priorities_give_way() -> None:
    catalog = make_catalog()
    coordinator = by_the_clock(catalog)
    front_end = fs.FrontEnd(catalog, coordinator)
    first, second = {"new": True}, {"category": "wine", "new": False}
    promises = [fs.Promise(second, at_least=180, priority=2), fs.Promise(first, at_least=100, priority=1)]
    coordinator.set_targets(promises=promises, requests=20)
    ids = front_end.retrieve(make_users(20)).ids
    assert counts_of(catalog, ids, first) >= 100
    assert counts_of(catalog, ids, second) == 100, "as many as there is room for beside the first"


def test_bad_input_is_named_and_changes_nothing() -> None:
    catalog = make_catalog()
    coordinator = by_the_clock(catalog)
    before = coordinator.terms
    for promises, message in (
        ([fs.Promise({"colour": "red"}, at_least=1)], "colour"),
        ([fs.Promise({"new": True}, at_least=0.5)], "whole numbers"),
        (fs.Promise({"new": True}, at_least=5), "list of fairsync.Promise"),
        ([5], "must be fairsync.Promise"),
    ):
        with pytest.raises(fs.InvalidInputError, match=message):
            coordinator.set_targets(promises=promises, requests=10, saves={"x": b"1"})  # type: ignore[arg-type]
    with pytest.raises(fs.InvalidInputError, match="either"):
        coordinator.set_targets(requests=5)
    with pytest.raises(fs.InvalidInputError, match="need the catalog"):
        by_the_clock(catalog.groups).set_targets(promises=[fs.Promise({"new": True}, at_least=5)], requests=10)  # type: ignore[arg-type]
    assert coordinator.terms is before
    assert coordinator.ledger.load("x") is None


def test_prices_of_selections_survive_a_restart() -> None:
    catalog = make_catalog()
    ledger = fs.MemoryLedger(catalog.n_groups)
    promises = [fs.Promise({"new": True}, at_least=150), fs.Promise({"provider": "dune"}, at_least=100)]
    with by_the_clock(catalog, ledger=ledger, save_seconds=0.0) as first:
        front_end = fs.FrontEnd(catalog, first)
        first.set_targets(promises=[promises[1]], requests=100)  # atoms come one after another
        front_end.retrieve(make_users(20))
        first.set_targets(promises=promises, requests=80)
        front_end.retrieve(make_users(40))
        prices, labels = first.prices(), first.labels
    assert (prices < 0).any()
    catalog = catalog.under(labels)  # as a service fits its catalog to its ledger
    with by_the_clock(catalog, ledger=ledger) as second:
        assert second.labels == labels
        second.set_targets(promises=promises, requests=40)
        assert second.prices().tolist() == prices.tolist()
        found = fs.FrontEnd(catalog, second).retrieve(make_users(40))
        assert counts_of(catalog, found.ids, {"new": True}) >= 150
