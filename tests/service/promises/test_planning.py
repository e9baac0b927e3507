"""Planning for the groups of a coordinator."""

import logging
from datetime import UTC, datetime

import numpy as np
import pytest

from fairsync.catalog import Catalog
from fairsync.coordination.coordinator import Coordinator
from fairsync.promises import Promise
from fairsync.schedule import Forecast, ScheduledPromise, Window
from fairsync.service.promises.planning import Planner

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def make_planner() -> Planner:
    catalog = Catalog(np.random.default_rng(0).normal(size=(30, 4)), ["rare", *["a"] * 14, *["b"] * 15])
    coordinator = Coordinator(catalog, k=5, floors=0, horizon=1, auto_restart=False)
    return Planner(coordinator, None, worst_case_traffic=0.5)


def test_caps_are_the_items_of_a_group_up_to_k() -> None:
    assert make_planner().capacities() == {"a": 5, "b": 5, "rare": 1}


def test_a_promise_that_becomes_impossible_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    planner, daily, forecast = (
        make_planner(),
        ScheduledPromise.of_group("rare", 1000, Window.day("UTC")),
        Forecast(rate=0.01),
    )
    with caplog.at_level(logging.WARNING):
        plan = planner.plan([daily], {daily: 0}, forecast, NOON, None)
        planner.plan([daily], {daily: 1}, forecast, NOON.replace(minute=1), plan)
    (record,) = caplog.records
    assert "1,000 exposures of group=rare" in record.message
    assert "cannot be kept: 568 will be missing" in record.message


def test_a_promise_is_checked_beside_others() -> None:
    planner, forecast = make_planner(), Forecast(rate=0.01)
    fits, too_much = (ScheduledPromise.of_group("a", floor, Window.day("UTC")) for floor in (900, 10_000))
    others = [ScheduledPromise.of_group("b", 900, Window.day("UTC"))]
    assert planner.prepare_check(fits, others, {}, forecast, NOON).run().accepted
    assert not planner.prepare_check(too_much, others, {}, forecast, NOON).run().accepted


def test_a_promise_to_an_item_that_requests_may_exclude_is_expected() -> None:
    catalog, forecast = Catalog(np.eye(30), ["rare", *["a"] * 14, *["b"] * 15]), Forecast(rate=0.01)
    coordinator = Coordinator(catalog, k=5, floors=0, horizon=1, auto_restart=False, max_exclude=3)
    planner = Planner(coordinator, None, worst_case_traffic=0.5, catalog=lambda: catalog)
    item, too_much = (ScheduledPromise(Promise({"id": 4}, at_least=one), Window.day("UTC")) for one in (300, 900))
    verdict = planner.prepare_check(item, [], {}, forecast, NOON).run()
    assert (verdict.accepted, verdict.largest, verdict.largest_safe) == (True, 864, 0)
    assert verdict.message.endswith("if traffic comes as expected and enough requests do not exclude its items.")
    assert not planner.prepare_check(too_much, [item], {}, forecast, NOON).run().accepted
    (target,) = planner.plan([item], {}, forecast, NOON, None).targets
    assert target.at_least


def test_floors_of_groups_alone_do_not_count_on_items_that_requests_may_exclude() -> None:
    catalog, forecast = Catalog(np.eye(30), ["rare", *["a"] * 14, *["b"] * 15]), Forecast(rate=0.01)
    coordinator = Coordinator(catalog, k=5, floors=0, horizon=1, auto_restart=False, max_exclude=3)
    planner = Planner(coordinator, None, worst_case_traffic=0.5, catalog=lambda: catalog)
    verdict = planner.prepare_check(
        ScheduledPromise.of_group("rare", 1, Window.day("UTC")), [], {}, forecast, NOON
    ).run()
    assert not verdict.accepted
    assert "max_exclude" in verdict.message
