"""Promises about any selection of items: caps, shares, conjunctions and priorities, day after day."""

import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairsync.catalog import Catalog
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.errors import InfeasibleFloorsError, InvalidInputError
from fairsync.ledger import Ledger, MemoryLedger, SqlLedger
from fairsync.promises import Promise
from fairsync.promises.selection import selection_name
from fairsync.schedule import Forecast, ScheduledPromise, Window
from fairsync.service.ledger_settings import fit_ledger
from fairsync.service.promises.conversion import promise_from_record
from fairsync.service.promises.promise_service import PromiseService
from fairsync.service.promises.saved_state import SavedState
from fairsync.service.schema import PromiseRecord, PromiseView, WindowRecord
from service.promises.test_promise_service import START, Clock

DAY, K = Window.day("UTC"), 4


def promised(where: dict[str, Any], window: Window = DAY, **bounds: Any) -> ScheduledPromise:
    return ScheduledPromise(Promise(where, **bounds), window)


class Shop:
    """A service over items with a category, a maker and whether they are new. Users prefer the category "big"."""

    def __init__(self, promises: list[ScheduledPromise], ledger: Ledger | None = None, **options: Any) -> None:
        self.rng = np.random.default_rng(0)
        n = 120
        vectors = self.rng.normal(size=(n, 8)) + np.repeat([[1.0], [0.0], [0.0]], n // 3, axis=0)
        attributes = {
            "category": ["big"] * 40 + ["toys"] * 40 + ["books"] * 40,
            "maker": [f"m{number % 5}" for number in range(n)],
            "new": [number % 4 == 0 for number in range(n)],
        }
        self.catalog, self.clock, self.promises, self.options = Catalog(vectors, attributes), Clock(), promises, options
        self.max_exclude = options.pop("max_exclude", 0)
        self.ledger = MemoryLedger(3) if ledger is None else ledger
        self.counts: dict[str, int] = {}
        self.start()

    def start(self) -> None:
        catalog = fit_ledger(self.catalog, self.ledger)
        coordinator = Coordinator(
            catalog, k=K, floors=0, horizon=1, ledger=self.ledger, auto_restart=False, max_exclude=self.max_exclude
        )
        forecast = Forecast(rate=100 / 3600, slot=3600)
        self.service = PromiseService(
            FrontEnd(catalog, coordinator), coordinator, self.promises, forecast, clock=self.clock, **self.options
        )

    def pass_hours(self, hours: int, per_hour: int = 100) -> np.ndarray[Any, Any]:
        """Let hours pass, and return the rows of all candidates."""
        rows = []
        for _ in range(2 * hours):
            self.service.refresh()
            found = self.service.retrieve(self.rng.normal(size=(per_hour // 2, 8)) + 1.0)
            rows.append(found.ids)
            self.clock.go_on(minutes=30)
        self.service.refresh()
        return np.concatenate(rows)

    def number(self, rows: np.ndarray[Any, Any], where: dict[str, Any]) -> int:
        selection = self.catalog.select(where)
        assert selection is not None
        return int(selection.mask[self.catalog.rows_of(rows.ravel())].sum())


def test_single_items_get_what_is_promised_although_requests_may_exclude_them() -> None:
    shop = Shop([promised({"id": 95}, at_least=150), promised({"category": "toys"}, at_least=1000)], max_exclude=20)
    shown = shop.pass_hours(24)
    assert {one.name: one.kept for one in shop.service.past()} == {"id=95": True, "category=toys": True}
    assert shop.number(shown, {"id": 95}) >= 150


def test_caps_shares_and_conjunctions_are_kept_and_counted_exactly() -> None:
    new_toys, big, maker = {"category": "toys", "new": True}, {"category": "big"}, {"maker": "m3"}
    shop = Shop([promised(new_toys, at_least=900), promised(big, at_most=0.5), promised(maker, at_least=0.25)])
    shown = shop.pass_hours(24)
    past = {one.name: one for one in shop.service.past()}
    assert {name: one.kept for name, one in past.items()} == dict.fromkeys(past, True)
    assert len(past) == 3
    for one, where in (
        (past["category=toys, new=True"], new_toys),
        (past["category=big"], big),
        (past["maker=m3"], maker),
    ):
        assert one.exposures == shop.number(shown, where), "counted one by one"
    assert past["category=big"].cap == shown.size // 2
    assert past["maker=m3"].share is not None
    assert past["maker=m3"].share >= 0.25
    views = {one.name: one for one in shop.service.promises()}
    assert views["category=toys, new=True"].group is None
    assert views["category=big"].group == "big"


def test_a_selection_that_was_not_counted_begins_with_its_next_window() -> None:
    shop = Shop([promised({"category": "toys"}, at_least=100)])
    shop.pass_hours(6)
    made = shop.service.editor.set_promise(promised({"maker": "m1"}, at_least=500))
    assert made.start == START + timedelta(days=1)
    label = shop.service.editor.set_promise(promised({"category": "books"}, at_least=100))
    assert label.start == START
    shown = shop.pass_hours(18)
    shown = shop.pass_hours(24)
    (past,) = [one for one in shop.service.past() if one.name == "maker=m1"]
    assert past.kept
    assert past.exposures == shop.number(shown, {"maker": "m1"})


def test_a_refusal_says_what_could_hold_and_what_it_would_push_out() -> None:
    shop = Shop([promised({"category": "toys"}, at_least=8_000)])
    with pytest.raises(InfeasibleFloorsError) as refused:
        shop.service.editor.set_promise(promised({"category": "books", "new": True}, at_least=3_000))
    assert "push out 8,000 exposures of category=toys" in str(refused.value)
    largest = refused.value.largest_feasible
    assert 0 < largest < 3_000
    preview = shop.service.editor.preview(promised({"category": "books", "new": True}, at_least=3_000))
    assert (preview.feasible, preview.largest) == (False, largest)
    assert preview.pushes_out == [one.id for one in shop.service.promises()]
    assert len(shop.service.promises()) == 1, "nothing was changed"
    lower = promised({"category": "books", "new": True}, at_least=3_000, priority=2)
    assert not shop.service.editor.preview(lower).feasible, "it has to fit beside those that come first"
    over = Window.campaign(START - timedelta(days=2), START - timedelta(days=1), "UTC")
    with pytest.raises(InvalidInputError, match="is over"):
        shop.service.editor.set_promise(promised({"maker": "m1"}, over, at_least=1))


def test_lower_priorities_give_way_when_traffic_collapses() -> None:
    books = {"category": "books", "maker": "m1"}
    promises = [promised({"category": "toys"}, at_least=3_500), promised(books, at_least=3_500, priority=2)]
    shop = Shop(promises, worst_case_traffic=1 / 3)
    shop.pass_hours(6)
    shop.pass_hours(12, per_hour=20)
    views = {one.name: one for one in shop.service.promises()}
    assert views["category=books, maker=m1"].state == "impossible"
    assert views["category=books, maker=m1"].gives_way_to == [views["category=toys"].id]
    assert views["category=books, maker=m1"].reason == "it gives way to category=toys"
    assert (views["category=books, maker=m1"].would_cost or 0.0) > 0
    shop.pass_hours(6, per_hour=20)
    past = {one.name: one for one in shop.service.past()}
    lost = past["category=books, maker=m1"]
    assert lost.exposures < 3_500
    assert (lost.kept, lost.gave_way_to, lost.note) == (False, ["category=toys"], "it gives way to category=toys")
    assert lost.would_cost is not None


def test_selections_survive_a_restart(tmp_path: Path) -> None:
    new = {"new": True}
    with SqlLedger(tmp_path / "a.db", 3) as ledger:
        shop = Shop([promised(new, at_least=3_000)], ledger)
        shown = [shop.pass_hours(6)]
        before = shop.service.promises()[0].exposures
        shop.service.close()
        shop.start()
        assert shop.service.promises()[0].exposures == before == shop.number(shown[0], new)
        shown.append(shop.pass_hours(18))
        (past,) = shop.service.past()
        assert past.kept
        assert past.exposures == shop.number(np.concatenate(shown), new)


def test_a_promise_to_single_items_is_kept_counted_and_outlives_them(tmp_path: Path) -> None:
    """Items that users would hardly see: one of its own, and two of which one is removed."""
    one, two, day = {"id": 83}, {"id": [91, 95], "category": "books"}, WindowRecord(every="day", zone="UTC")
    plain = Shop([]).pass_hours(24)
    assert max(np.count_nonzero(plain == 83), np.isin(plain, [91, 95]).sum()) < 300, "they need the promise"
    with SqlLedger(tmp_path / "a.db", 3) as ledger:
        shop = Shop([], ledger)
        for where in (one, two):
            record = PromiseRecord(where=where, at_least=300, window=day)
            shop.service.editor.set_promise(promise_from_record(record, shop.catalog))
        shown = [shop.pass_hours(12)]
        shop.service.close()
        shop.start()
        shop.service.items.remove([95])
        shown.append(shop.pass_hours(12))
        past, found = {window.name: window for window in shop.service.past()}, np.concatenate(shown)
        assert [(window.name, window.kept) for window in past.values()] == [
            ("id=91 or 95, category=books", True), ("id=83", True),
        ]  # fmt: skip
        assert past["id=83"].exposures == np.count_nonzero(found == 83)
        assert past["id=91 or 95, category=books"].exposures == np.isin(found, [91, 95]).sum()
        assert not (shown[1] == 95).any()
        shop.service.items.remove([83])
        shop.pass_hours(1)
        states = {view.name: view.state for view in shop.service.promises()}
        assert states["id=83"] == "impossible"
        assert states["id=91 or 95, category=books"] in ("on track", "at risk")


def test_limits_per_list_are_kept_beside_floors_and_in_every_list(tmp_path: Path) -> None:
    big, new_big = {"category": "big"}, {"category": "big", "new": True}
    ledger = SqlLedger(f"sqlite:///{tmp_path / 'exposures.db'}", 3)
    shop = Shop([promised(big, at_most_per_list=1), promised(new_big, at_least=600)], ledger)
    plain = Shop([promised({"maker": "m3"}, at_least=1)]).pass_hours(1)
    wanted = shop.catalog.select(big)
    assert wanted is not None
    assert (wanted.mask[plain].sum(axis=1) > 1).mean() > 0.5, "without the limit, most lists have more"
    for _ in range(2):
        shown = shop.pass_hours(12)
        assert wanted.mask[shown].sum(axis=1).max() == 1
        shop.service.close()
        shop.start()  # after a restart as well
    shop.service.refresh()
    past = {one.name: one for one in shop.service.past()}
    assert past["category=big, new=True"].kept
    with pytest.raises(InfeasibleFloorsError):
        shop.service.editor.set_promise(promised({"category": "big", "maker": "m1"}, at_least=2400 * 2))
    ledger.close()


def test_what_giving_way_would_cost_is_known_after_a_restart(tmp_path: Path) -> None:
    ledger = SqlLedger(f"sqlite:///{tmp_path / 'exposures.db'}", 3)
    shop = Shop([promised({"category": "toys", "new": True}, at_least=2500)], ledger)
    shop.pass_hours(4)
    shop.pass_hours(18, per_hour=2)

    def cost() -> float | None:
        (promise,) = shop.service.promises()
        return promise.would_cost

    before = cost()
    assert before is not None
    assert before > 0
    shop.service.close()
    shop.start()
    shop.service.refresh()
    assert cost() == pytest.approx(before, rel=0.2)
    ledger.close()


def test_what_giving_way_would_cost_is_estimated_where_there_never_was_a_subsidy(tmp_path: Path) -> None:
    ledger = SqlLedger(f"sqlite:///{tmp_path / 'exposures.db'}", 3)
    books = {"category": "books", "maker": "m1"}
    shop = Shop([promised({"category": "toys"}, at_least=9_500), promised(books, at_least=3_500, priority=2)], ledger)
    shop.service.cost_monitor.every = math.inf  # this test says when
    shop.pass_hours(2)

    def lost() -> PromiseView:
        (promise,) = [one for one in shop.service.promises() if one.where == books]
        return promise

    assert (lost().state, lost().reason) == ("impossible", "it gives way to category=toys")
    column = selection_name(books)
    assert column not in shop.service.scheduler.state.costs.subsidies
    assert lost().would_cost is None
    shop.service.cost_monitor.measure()
    shop.service.refresh()
    each = shop.service.scheduler.state.costs.exposure_costs[column]
    assert each > 0
    assert lost().would_cost == pytest.approx(each * lost().shortfall)
    shop.service.close()
    shop.start()
    shop.service.refresh()
    assert lost().would_cost == pytest.approx(each * lost().shortfall)
    ledger.close()


def test_impressions_of_selections_count() -> None:
    new = {"new": True}
    shop = Shop([promised(new, at_least=1_000)], count="impressions")
    for hour in range(24):
        shop.service.refresh()
        for number in range(10):
            name = f"{hour}-{number}"
            found = shop.service.retrieve(shop.rng.normal(size=(1, 8)) + 1.0, [name])
            shop.service.record_impressions(name, found.ids[0].tolist())
        shop.clock.go_on(hours=1)
    shop.service.refresh()
    (past,) = shop.service.past()
    assert 0 < past.exposures <= 24 * 10 * K


def test_a_budget_gives_up_the_lowest_priorities_first() -> None:
    first, second = promised({"category": "toys"}, at_least=400), promised({"new": True}, at_least=7_500, priority=2)
    shop = Shop([first, second], budget=0.05)
    shop.pass_hours(4)
    overview = shop.service.overview()
    assert overview.budget_spent is not None
    assert overview.budget_spent > 0.05
    assert "floors of priority 2 and after give way" in overview.gave_way
    assert [one.kind for one in overview.alerts if one.kind == "budget"] == ["budget"]
    views = {one.name: one for one in overview.promises}
    assert views["new=True"].reason == "it gives way to the budget"
    assert (views["new=True"].would_cost or 0.0) > 0
    assert views["new=True"].state == "impossible"
    assert views["new=True"].shortfall == views["new=True"].floor - views["new=True"].projected > 0, (
        "by what it will get"
    )
    assert views["category=toys"].state in ("on track", "kept")
    with pytest.raises(InfeasibleFloorsError, match="the budget is 5 %"):
        shop.service.editor.set_promise(promised({"maker": "m1"}, at_least=10, priority=3))
    shop.service.editor.set_promise(promised({"maker": "m1"}, at_least=10))
    shop.pass_hours(20)
    past = {one.name: one.kept for one in shop.service.past()}
    assert past["category=toys"]
    assert not past["new=True"]


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_gave_way_to_the_budget_is_known_after_a_restart(tmp_path: Path, is_killed: bool) -> None:
    first, second = promised({"category": "toys"}, at_least=400), promised({"new": True}, at_least=7_500, priority=2)
    with SqlLedger(tmp_path / "a.db", 3) as ledger:
        shop = Shop([first, second], ledger, budget=0.05)
        while not shop.service.overview().gave_way:
            shop.service.retrieve(shop.rng.normal(size=(5, 8)) + 1.0)
            shop.clock.go_on(seconds=6)
            shop.service.refresh()  # the whole state is saved once in a minute, and what gives way at once
            saved = SavedState.load(ledger, "category")
            assert saved is not None
            assert saved.costs.budget == shop.service.scheduler.state.costs.budget
        before = shop.service.overview()
        if not is_killed:
            shop.service.close()
        shop.start()
        after = shop.service.overview()
        assert after.gave_way == before.gave_way != ""
        assert [(one.state, one.reason) for one in after.promises] == [
            (one.state, one.reason) for one in before.promises
        ]
        assert [one.message for one in after.alerts if one.kind == "budget"] == [before.gave_way]
        coordinator = shop.service.coordinator
        new = coordinator.labels.index(selection_name({"new": True}))
        assert coordinator.terms.floors[new] <= coordinator.totals().exposures[new], "it is no target any more"
        with pytest.raises(InfeasibleFloorsError, match="the budget is 5 %"):
            shop.service.editor.set_promise(promised({"maker": "m1"}, at_least=10, priority=3))
        shop.service.close()
        shop.options = {}
        shop.start()
        assert shop.service.overview().gave_way == "", "without a budget nothing gives way to it"


def test_a_promise_gives_up_rather_than_pay_more_than_its_highest_price() -> None:
    dear, other = {"category": "books", "new": True}, {"category": "toys"}
    outcomes = {}
    for price in (0.01, 10.0):
        shop = Shop([promised(dear, at_least=2_000, max_price=price), promised(other, at_least=1_000)])
        shop.pass_hours(4)
        views = {one.name: one for one in shop.service.promises()}
        assert views["category=toys"].reason == ""
        outcomes[price] = views["category=books, new=True"].reason
        shop.pass_hours(20)
        past = {one.name: one for one in shop.service.past()}
        assert past["category=toys"].kept
        assert past["category=books, new=True"].kept == (price == 10.0)
    assert outcomes == {0.01: "an exposure would cost more than its max_price", 10.0: ""}


@pytest.mark.parametrize(
    "bounds",
    [{"at_most": 0.2}, {"at_most": 100}, {"at_most_per_list": 1}],
    ids=["shares", "numbers", "limits per list"],
)
def test_limits_that_leave_slots_empty_are_refused(bounds: dict[str, Any]) -> None:
    """Lists are always full, so that such limits could only be exceeded."""
    shop = Shop([])
    labels = ("big", "toys", "books")
    two, all_of_them = ([promised({"category": one}, **bounds) for one in labels[:n]] for n in (2, 3))
    with pytest.raises(InfeasibleFloorsError, match="leave too few items to fill all lists from 2026-03-02 00:00"):
        shop.service.editor.make_promises(all_of_them)
    assert shop.service.editor.preview(two[0]).feasible
    shop.service.editor.make_promises(two)
    preview = shop.service.editor.preview(all_of_them[-1])
    assert not preview.feasible
    assert "leave too few items" in preview.message
    rows = shop.pass_hours(24)
    kept = {one.name: one.kept for one in shop.service.past()}
    assert kept == {"category=big": True, "category=toys": True}
    assert len(rows) == 24 * 100


def test_a_third_for_each_of_three_is_a_limit_that_can_be_kept() -> None:
    shop = Shop([])
    shop.service.editor.make_promises([promised({"category": one}, at_most=1 / 3) for one in ("big", "toys", "books")])
    with pytest.raises(InfeasibleFloorsError, match="leave too few items"):
        shop.service.editor.make_promises([promised({"maker": f"m{n}"}, at_most=0.19) for n in range(5)])


def test_a_limit_that_was_exceeded_already_begins_with_the_next_window() -> None:
    shop = Shop([])
    shop.pass_hours(20)
    made = shop.service.editor.set_promise(promised({"category": "big"}, at_most=500))
    assert (made.start, made.state) == (START + timedelta(days=1), "on track")
    whole = Window.campaign(START, START + timedelta(days=2), "UTC")
    with pytest.raises(InfeasibleFloorsError, match=r"it has had [\d,]+ exposures since 2026-03-02 00:00"):
        shop.service.editor.set_promise(promised({"category": "big"}, whole, at_most=600))
    raised = shop.service.editor.set_promise(promised({"category": "big"}, at_most=900), made.id)
    assert raised.start == made.start


def test_limits_per_list_that_can_no_longer_be_kept_are_reported_as_broken(tmp_path: Path) -> None:
    """Items are removed, so that lists can only be filled without the limits: they are left out, and that is said."""
    with SqlLedger(tmp_path / "a.db", 3) as ledger:
        shop = Shop([promised({"category": one}, at_most_per_list=1) for one in ("big", "toys")], ledger)
        shop.pass_hours(6)
        assert {one.state for one in shop.service.promises()} == {"on track"}
        shop.service.items.remove([*range(80, 120)])  # the books
        shop.catalog = shop.service.catalog
        for view in shop.service.promises():
            assert view.state == "impossible"
            assert view.reason.startswith("its limit per list was left out from 2026-03-02 06:00 on")
        assert {one.kind for one in shop.service.overview().alerts} == {"impossible"}
        shop.service.close()
        shop.start()
        shop.pass_hours(18)
        past = shop.service.past()
        assert [(one.kept, one.note[:33]) for one in past] == 2 * [(False, "its limit per list was left out f")]
        assert not any(row.kept for row in shop.service.statement("category", "toys", "2026-03").rows)
