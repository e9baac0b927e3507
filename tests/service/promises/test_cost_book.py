"""The cost book: what exposures cost, and which floors give way to the budget."""

from datetime import UTC, datetime

from fairsync.promises import Promise
from fairsync.schedule import PromiseStatus, ScheduledPromise, Window
from fairsync.service.promises.budget import RelevanceBudget, Spent
from fairsync.service.promises.cost_book import CostBook

NOON, DAY = datetime(2026, 3, 2, 12, tzinfo=UTC), Window.day("UTC")
FIRST = ScheduledPromise.of_group("toys", 100, DAY)
SECOND = ScheduledPromise(Promise({"new": True}, at_least=100, priority=2), DAY)
NEW = '{"new": true}'


def status(promise: ScheduledPromise, exposures: int) -> PromiseStatus:
    span = promise.window.at(NOON)
    assert span is not None
    return PromiseStatus(promise, span, exposures, at_pace=100, reachable=100, certain=100)


def test_subsidies_of_selections_end_with_their_promises() -> None:
    book = CostBook(exposure_costs={NEW: 0.75}).with_prices({"toys": -0.5, NEW: -0.25, "wine": 0.125}, [NEW])
    assert book.subsidies == {"toys": 0.5, NEW: 0.25}
    later = book.with_prices({"toys": 0.0, NEW: 0.0}, [NEW])
    assert later == book, "the last subsidy stays"
    assert book.with_prices({}, []) == CostBook(subsidies={"toys": 0.5}), "labels of groups are always counted"


def test_floors_give_way_by_what_they_still_cost() -> None:
    book = CostBook(RelevanceBudget(0.01), {"toys": 0.001, NEW: 0.5})
    statuses = [status(FIRST, 60), status(SECOND, 40)]
    after = book.after(Spent(2.0, 100.0, 100), statuses, left=900)
    assert after.budget is not None
    assert after.budget.cut == 2, "30 more would not fit into 1 % of 1,000, and 0.04 do"
    lost = after.given_up(statuses, {})
    assert {one: (up.reason, up.would_cost) for one, up in lost.items()} == {
        SECOND: ("it gives way to the budget", 30.0)
    }
    assert CostBook(subsidies=book.subsidies).after(Spent(2.0, 100.0, 100), statuses, left=900).budget is None


def test_another_budget_keeps_what_has_given_way() -> None:
    cut = RelevanceBudget(0.01, cut=2, at=Spent(2.0, 100.0, 100), pause=128, rate=0.02)
    book = CostBook(cut, {"toys": 0.5})
    raised = book.with_share(0.5)
    assert raised.budget == RelevanceBudget(0.5, cut=2, at=Spent(2.0, 100.0, 100), pause=128, rate=0.02)
    fits = raised.after(Spent(2.5, 300.0, 300), [status(FIRST, 60), status(SECOND, 40)], left=700)
    assert fits.budget is not None
    assert fits.budget.cut is None, "they come back as soon as they fit"
    assert book.with_share(None) == CostBook(subsidies={"toys": 0.5})
    assert CostBook().with_share(0.01).budget == RelevanceBudget(0.01)


def test_columns_that_give_way_without_ever_having_had_a_subsidy() -> None:
    book = CostBook(RelevanceBudget(0.01, cut=1), {"toys": 0.5})
    lost = book.given_up([status(FIRST, 60), status(SECOND, 40)], {})
    assert book.never_subsidised(lost, {FIRST: 400, SECOND: 600}, k=5) == {NEW: 60 * 5 / 600}
