"""The least cost of promises on recent requests, against the best plan in hindsight."""

import threading
from typing import Any

import numpy as np
import pytest

from fairsync.catalog import Catalog, Where
from fairsync.coordination.searched_items import SearchedItems
from fairsync.errors import CallCancelledError, TooManyPreviewsError
from fairsync.hindsight import hindsight
from fairsync.promises import Promise
from fairsync.promises.selection import selection_name
from fairsync.schedule import ScheduledPromise, Window
from fairsync.schedule.feasibility import FeasibilityCheck
from fairsync.service.promises import costs
from fairsync.service.promises.preview import AskedRates, Estimate, RecentRequests
from service.running import shop_catalog, small_service

DAY = Window.day("UTC")


@pytest.fixture
def catalog() -> Catalog:
    rng = np.random.default_rng(0)
    groups = np.repeat(["big", "small", "rare"], [60, 30, 2])
    attributes = {"group": groups, "new": np.arange(92) % 5 == 0}
    return Catalog(rng.normal(size=(92, 6)) + np.repeat([[0.5], [0.0], [0.0]], [60, 30, 2], axis=0), attributes)


@pytest.fixture(params=["exact", "ivf"])
def items(request: pytest.FixtureRequest, catalog: Catalog) -> SearchedItems:
    return SearchedItems.of(catalog, None, request.param, "mean")


def floors(**rates: float) -> dict[str, AskedRates]:
    return {selection_name({"group": label}): AskedRates(rate) for label, rate in rates.items()}


def filled(users: np.ndarray) -> RecentRequests:
    recent = RecentRequests()
    for start in range(0, len(users), 16):
        recent.add(users[start : start + 16, None])
    return recent


def costs_near(found: Estimate, best: Any) -> None:
    assert found.cost is not None
    assert found.cost * 256 == pytest.approx(best.cost, rel=0.03)
    assert found.cost * 256 <= best.cost * (1 + 1e-9)
    assert found.share == pytest.approx(found.cost * 256 / best.unconstrained_relevance)
    assert not found.reason


def test_it_is_a_lower_bound_near_the_best_plan(catalog: Catalog, items: SearchedItems) -> None:
    users = np.random.default_rng(1).normal(size=(256, 6)) + 0.5
    best = hindsight(catalog, users, k=4, floors={"small": 512, "rare": 64})
    for prices in ({}, {selection_name({"group": "small"}): -0.5}):
        costs_near(filled(users).estimate(items, 4, floors(small=2.0, rare=0.25), prices), best)


@pytest.mark.parametrize(
    ("promises", "asked"),
    [
        ([Promise({"new": True}, at_least=512)], {"new": AskedRates(2.0)}),
        ([Promise({"group": "big"}, at_most=256)], {"big": AskedRates(cap=1.0)}),
        ([Promise({"group": "big"}, at_most_per_list=1)], {"big": AskedRates(list_limit=1.0)}),
        (
            [Promise({"new": True}, at_least=512), Promise({"group": "small"}, at_least=300, at_most_per_list=2)],
            {"new": AskedRates(2.0), "small": AskedRates(300 / 256, list_limit=2.0)},
        ),
    ],
)
def test_promises_to_any_selection_have_a_cost(
    catalog: Catalog, items: SearchedItems, promises: list[Promise], asked: dict[str, AskedRates]
) -> None:
    users = np.random.default_rng(1).normal(size=(256, 6)) + 0.5
    best = hindsight(catalog, users, k=4, promises=promises)
    where: dict[str, Where] = {"new": {"new": True}, "big": {"group": "big"}, "small": {"group": "small"}}
    by_selection = {selection_name(where[name]): one for name, one in asked.items()}
    costs_near(filled(users).estimate(items, 4, by_selection), best)
    known = items.with_promises((*(Promise({"group": one}, at_least=0) for one in catalog.labels), *promises))
    costs_near(filled(users).estimate(known, 4, by_selection), best)


def test_without_promises_nothing_is_given_up(items: SearchedItems) -> None:
    found = filled(np.ones((128, 6))).estimate(items, 4, {})
    assert (found.cost, found.share, found.reason) == (0.0, 0.0, "")


def test_it_is_unknown_with_few_requests_or_too_much_promised(items: SearchedItems) -> None:
    users, new = np.ones((256, 6)), selection_name({"new": True})
    assert "64 requests to estimate it, and there were 0" in RecentRequests().estimate(items, 4, floors(small=1)).reason
    assert "there were 32" in filled(users[:32]).estimate(items, 4, floors(small=1)).reason
    found = filled(users).estimate(items, 4, floors(small=4.0, big=1.0))
    assert found == Estimate(reason="the latest requests could not have kept all promises at the same time")
    for overlapping in ({new: AskedRates(3.5)} | floors(rare=1.8), {new: AskedRates(cap=0.0)} | floors(rare=2.0)):
        assert "could not have kept" in filled(users).estimate(items, 4, overlapping).reason
    found = filled(users).estimate(items, 4, floors(rare=3.0))
    assert found.cost is not None, "a group of two items fills two places at most"


def test_of_many_bounds_the_largest_are_estimated(items: SearchedItems, monkeypatch: pytest.MonkeyPatch) -> None:
    recent = filled(np.random.default_rng(1).normal(size=(256, 6)) + 0.5)
    whole, part = recent.estimate(items, 4, floors(small=2.0, rare=0.25)), recent.estimate(items, 4, floors(small=2.0))
    monkeypatch.setattr(costs, "MOST_BOUNDS", 1)
    found = recent.estimate(items, 4, floors(rare=0.25, small=2.0))
    assert found.cost == pytest.approx(part.cost)
    assert found.note == "The least cost is without 1 of the bounds."
    assert whole.cost is not None
    assert found.cost is not None
    assert found.cost < whole.cost


def test_requests_with_different_numbers_of_interests_count_together(items: SearchedItems) -> None:
    users = np.random.default_rng(1).normal(size=(256, 6)) + 0.5
    recent, alike = filled(users), filled(users)
    recent.add(np.repeat(users[None, :1], 3, axis=1))
    alike.add(users[None, :1])
    found, expected = (one.estimate(items, 4, floors(small=2.0)) for one in (recent, alike))
    assert found.cost == pytest.approx(expected.cost)


def test_a_preview_knows_the_cost_of_any_selection_before_and_after_others_are_promised() -> None:
    service = small_service(catalog=shop_catalog())
    small = [Promise({"category": "toys"}, at_least=0.5), Promise({"region": "CH", "in_stock": True}, at_least=0.2)]
    previews = [ScheduledPromise(one, DAY) for one in small]
    first = service.editor.preview(previews[0])
    assert first.least_cost is None
    assert first.message.endswith("Its cost is not known: it takes 64 requests to estimate it, and there were 0.")
    rng = np.random.default_rng(3)

    def answer() -> None:
        for _ in range(16):
            service.retrieve(rng.normal(size=(16, 8)))

    def least_costs() -> list[float | None]:
        found = [service.editor.preview(one) for one in previews]
        assert not any("not known" in one.message for one in found)
        return [one.least_cost for one in found]

    answer()
    before = least_costs()
    assert None not in before
    made = service.editor.set_promise(ScheduledPromise(Promise({"region": "AT"}, at_least=10), DAY))
    service.refresh()
    answer()
    with_another = least_costs()
    assert None not in with_another
    service.editor.delete_promise(made.id)
    service.refresh()
    answer()
    assert None not in least_costs()
    asked = ScheduledPromise(Promise({}, at_least=1_000_000), DAY)
    refused = service.editor.preview(asked)
    assert not refused.feasible
    assert "cost" not in refused.message, "what cannot be kept has none"


def test_a_preview_holds_no_lockand_few_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    entered, go = threading.Semaphore(0), threading.Event()

    run = FeasibilityCheck.run

    def held(*arguments: Any, **options: Any) -> Any:
        entered.release()
        assert go.wait(60)
        return run(*arguments, **options)

    monkeypatch.setattr(FeasibilityCheck, "run", held)
    service, promise = small_service(), ScheduledPromise.of_group("wine", 5, Window.day("UTC"))
    threads = [threading.Thread(target=service.editor.preview, args=(promise,)) for _ in range(2)]
    for thread in threads:
        thread.start()
        assert entered.acquire(timeout=240)
    try:
        is_free = service.scheduler.lock.acquire(timeout=240)
        assert is_free
        service.scheduler.lock.release()
        with pytest.raises(TooManyPreviewsError, match="2 previews"):
            service.editor.preview(promise)
    finally:
        go.set()
        for thread in threads:
            thread.join()
    assert service.editor.preview(promise).feasible


def test_a_preview_that_is_cancelled_ends_and_leaves_its_place() -> None:
    service, promise = small_service(), ScheduledPromise.of_group("wine", 5, Window.day("UTC"))
    for _ in range(3):
        with pytest.raises(CallCancelledError):
            service.editor.preview(promise, is_cancelled=lambda: True)
    assert service.editor.preview(promise).feasible


def test_an_estimate_ends_between_two_searches(items: SearchedItems) -> None:
    searches = []

    def checkpoint() -> None:
        searches.append(1)
        if len(searches) == 2:
            raise CallCancelledError

    recent = filled(np.random.default_rng(1).normal(size=(256, 6)) + 0.5)
    with pytest.raises(CallCancelledError):
        recent.estimate(items, 4, floors(small=2.0), checkpoint=checkpoint)
