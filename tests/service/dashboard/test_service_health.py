"""The connection to the service, its shards and its tokens.

With FAIRSYNC_DASHBOARD_RAY=1 also a real Ray cluster that loses a node, which takes half a minute.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from service.dashboard.browser import ServedShop
from service.dashboard.page import FLOORS, LABELS, Page, daily_promises
from service.dashboard.simulated_shop import FailingShards, SimulatedShop, utc


def test_shows_that_the_service_is_offline_and_online_again(browser: Any, shop: SimulatedShop) -> None:
    own = ServedShop(shop)
    page = Page(browser, own.url)
    connection = page.tab.locator("#connection")
    page.wait_for(connection, "^Live$")
    own.stop()
    page.wait_for(connection, r"No answer\. Last update \d+ sec ago")
    assert page.row("Toys").is_visible(), "the last known state stays visible"
    banner = page.tab.locator("#offline")
    page.wait_for(banner, "The service does not answer. This page shows the state at 14:00")
    assert page.tab.evaluate("getComputedStyle(document.querySelector('#offline')).position") == "sticky"
    page.wait_for(page.tab.locator("#announcer"), "does not answer")
    own.start()
    page.tab.get_by_role("button", name="Try now").click()
    page.wait_for(connection, "^Live$")
    banner.wait_for(state="hidden")
    page.context.close()
    own.stop()


def test_shows_shards_that_fail_and_recover(browser: Any) -> None:
    start, promises = utc("2026-03-03T00:00"), daily_promises(FLOORS)
    sharded = SimulatedShop(LABELS, promises, start, index=lambda catalog: FailingShards(catalog, 4))
    sharded.advance(hours=12)
    index = sharded.promise_service.front.index
    assert isinstance(index, FailingShards)
    own = ServedShop(sharded)
    page = Page(browser, own.url)
    health, alerts = page.tab.locator("#health"), page.tab.locator("#alerts")
    page.wait_for(health, "4 of 4 shards up. All recent answers saw the whole catalog")
    assert page.tab.locator("#up").inner_text() == "4 of 4"
    index.failed = frozenset({2})
    share = len(index.shards[2].rows) / len(sharded.promise_service.catalog)
    page.wait_for(alerts, f"1 of 4 shards does not answer \\(2\\): {share:.1%} of the items are out of reach")
    page.wait_for(page.tab.locator("#announcer"), "does not answer")
    assert page.tab.locator("#up").inner_text() == "3 of 4"
    down = health.locator("li.down")
    assert down.inner_text() == f"Shard 2.0 down, {len(index.shards[2].rows)} items: no answer"
    sharded.serve(40)
    degraded = sharded.promise_service.overview().degraded
    assert degraded > 0.1
    page.wait_for(alerts, f"{degraded:.1%} of recent answers lacked a part")
    page.wait_for(health, r"\d+(\.\d)?% of recent answers saw the whole catalog")
    index.failed = frozenset()
    page.wait_for(health, "4 of 4 shards up")
    alerts.get_by_text("does not answer").wait_for(state="detached")
    assert health.locator("li.down").count() == 0
    page.context.close()
    own.stop()
    assert page.complaints == []


@pytest.mark.skipif(os.environ.get("FAIRSYNC_DASHBOARD_RAY") != "1", reason="FAIRSYNC_DASHBOARD_RAY=1 turns it on")
def test_shows_a_ray_cluster_that_loses_a_node(browser: Any) -> None:
    ray_cluster = pytest.importorskip("search.ray_cluster")
    from fairsync.search.ray import RayIndex

    with ray_cluster.RayCluster(nodes=2, cpus=1) as cluster:
        start, promises = utc("2026-03-03T00:00"), daily_promises(FLOORS)
        clustered = SimulatedShop(LABELS, promises, start, index=lambda catalog: RayIndex(catalog, 2, deadline=2.0))
        clustered.advance(hours=10)
        clustered.estimate_cost()
        assert clustered.promise_service.overview().least.sample > 100, "the estimate is made through the cluster"
        own = ServedShop(clustered)
        page = Page(browser, own.url)
        page.wait_for(page.tab.locator("#health"), "2 of 2 shards up")
        cluster.kill_node(cluster.nodes[0])
        page.wait_for(page.tab.locator("#alerts"), "shards? does not answer")
        page.wait_for(page.tab.locator("#connection"), "^Live$")
        assert page.tab.locator("#health li.down").count() >= 1
        page.context.close()
        own.stop()
        assert page.complaints == []


def test_does_not_poll_while_the_tab_is_hidden(page: Page) -> None:
    page.row("Toys").locator("dl").wait_for()
    hide = "hidden => { Object.defineProperty(document, 'hidden', {get: () => hidden, configurable: true});"
    hide += " document.dispatchEvent(new Event('visibilitychange')); }"
    page.tab.evaluate(hide, True)
    page.wait_for(page.tab.locator("#connection"), "Paused")
    page.tab.wait_for_timeout(500)  # for calls in flight
    polled: list[str] = []
    page.tab.on("request", lambda request: polled.append(request.url))
    page.tab.wait_for_timeout(3500)
    assert polled == []
    page.tab.evaluate(hide, False)
    page.wait_for(page.tab.locator("#connection"), "Live")
    assert polled


def test_signs_in_with_a_token_and_explains_a_missing_role(browser: Any, shop: SimulatedShop) -> None:
    own = ServedShop(shop, reader=["report"], boss=["report", "admin"])
    page = Page(browser, own.url)
    page.sign_in("wrong")
    page.wait_for(page.tab.locator("#login-problem"), "Check the token, or ask the operator")
    page.wait_for(page.tab.locator("#connection"), "Not signed in")
    page.sign_in("reader")
    page.row("Books").locator("dl").wait_for()
    assert page.tab.evaluate("[sessionStorage.length, localStorage.length]") == [1, 0]
    floor = shop.view("Books").floor
    page.edit("Books", floor - 10)
    page.tab.locator("#save:enabled").click()
    page.wait_for(page.tab.locator("#editor-problem"), "may read promises but not change them")
    assert shop.view("Books").floor == floor
    page.tab.keyboard.press("Escape")
    page.tab.get_by_role("button", name="Sign out").click()
    page.sign_in("boss")
    page.edit("Books", floor - 10)
    page.tab.locator("#save:enabled").click()
    page.wait_for(page.figure("Books", "promise"), f"^{floor - 10:,} a day$")
    page.context.close()
    own.stop()
    assert page.complaints == []
