"""The list of promises, the headline and the figures above it."""

from __future__ import annotations

from typing import Any

from fairsync.schedule import ScheduledPromise, Window
from service.dashboard.browser import ServedShop
from service.dashboard.page import MARKUP, Page
from service.dashboard.simulated_shop import SimulatedShop, utc


def test_shows_the_status_of_every_promise(page: Page, shop: SimulatedShop) -> None:
    page.row("Toys").locator("dl").wait_for()
    overview = shop.promise_service.overview()
    states = [view.state for view in overview.promises]
    headline = page.tab.locator("h1#headline").inner_text()
    bad = sum(state in ("impossible", "at risk") for state in states)
    assert (f"All {len(states)} promises are on track." in headline) == (bad == 0)
    for view in overview.promises:
        assert page.figure(str(view.group), "soFar").inner_text() == f"{view.exposures:,}"
        assert page.figure(str(view.group), "atEnd").inner_text() == f"{round(view.projected):,}"
        assert page.figure(str(view.group), "promise").inner_text() == f"{view.floor:,} a day"
        assert page.row(str(view.group)).locator(".state").inner_text() == view.state
        cost = next(group.cost_share for group in overview.groups if group.group == view.group)
        assert cost is not None
        assert page.figure(str(view.group), "cost").inner_text() == (_percent(cost) if cost > 0 else "none")
    missed = [one for one in shop.promise_service.past(100) if not one.kept]
    assert missed, "the first day had too little traffic"
    assert page.tab.locator("#past li").count() == len(missed)
    # A label that looks like markup is shown as text.
    assert page.row(MARKUP).count() == 1
    assert page.tab.title() != "run"


def _percent(share: float, digits: int = 2) -> str:
    return "< 0.01%" if share < 0.0001 else f"{float(f'{100 * share:.{digits}g}'):g}%"


def test_compares_the_cost_with_the_least_possible_cost(page: Page, shop: SimulatedShop) -> None:
    page.row("Toys").locator("dl").wait_for()
    overview = shop.promise_service.overview()
    least = overview.least
    assert least.cost_share is not None
    assert least.least_share is not None
    assert least.ratio is not None
    assert page.tab.locator("#cost").inner_text() == _percent(least.cost_share, 3)
    assert page.tab.locator("#least").inner_text() == _percent(least.least_share, 3)
    assert least.ratio > 1.005, "a smaller ratio has another text"
    assert f"{least.ratio:.3g} times the least possible" in page.tab.locator("#lead").inner_text()
    # All of these are estimates, and the texts say so.
    assert "about" in page.tab.locator("#cost-of").inner_text()
    assert "about" in page.tab.locator("#least-of").inner_text()
    assert "about" in page.tab.locator("#lead").inner_text()
    page.tab.get_by_text("What the cost means").click()
    page.wait_for(
        page.tab.locator("#cost-known"), f"Both are estimates from a random sample of {least.sample} requests"
    )
    assert "replica" not in page.tab.locator("#cost-known").inner_text(), "there is a single replica"
    page.tab.get_by_label("Sort by").select_option("cost")
    costs = {str(group.group): group.cost_share or 0.0 for group in overview.groups}
    labels = page.tab.locator("li.row h3").all_inner_texts()
    assert [costs[label] for label in labels] == sorted((costs[label] for label in labels), reverse=True)


def test_names_the_time_zone_if_the_clock_differs(browser: Any, served: ServedShop, shop: SimulatedShop) -> None:
    zone = shop.view("Toys").window.zone
    for reader, named in (
        (zone, r"requests by [\d:, \w]*\d\d:\d\d\."),
        ("Asia/Tokyo", r"requests by .*\d\d:\d\d \w+(\+\d+)?\."),
    ):
        page = Page(browser, served.url, timezone_id=reader)
        page.wait_for(page.tab.locator("#lead"), named)
        page.context.close()


def test_updates_with_the_traffic(page: Page, shop: SimulatedShop) -> None:
    page.row("Books").locator("dl").wait_for()
    before = shop.view("Books").exposures
    shop.serve(40)
    after = shop.view("Books").exposures
    assert after > before
    page.wait_for(page.figure("Books", "soFar"), f"^{after:,}$")


def test_says_early_that_few_requests_can_show_a_promised_group(browser: Any) -> None:
    promises = [ScheduledPromise.of_group("Toys", 2_000, Window.day("UTC"))]
    narrow = SimulatedShop(["Toys", "Books"], promises, utc("2026-03-03T00:00"))
    for _ in range(30):
        narrow.serve(1)
        narrow.serve(9, where={"group": "Books"})
    narrow.promise_service.refresh()
    view = narrow.view("Toys")
    assert view.state == "at risk"
    own = ServedShop(narrow)
    page = Page(browser, own.url)
    page.row("Toys").locator("dl").wait_for()
    page.row("Toys").get_by_role("button", name="Toys", exact=True).click()
    page.wait_for(page.row("Toys"), "The floor will probably be missed at .*: only 10 % of requests could show it")
    page.context.close()
    own.stop()


def test_without_promises_it_explains_the_next_step(browser: Any) -> None:
    empty = SimulatedShop(["Toys", "Books"], [], utc("2026-03-03T00:00"))
    own = ServedShop(empty)
    page = Page(browser, own.url)
    page.wait_for(page.tab.locator("#headline"), "Nothing is promised yet")
    page.wait_for(page.tab.locator("#matches"), "make a new promise")
    assert page.tab.locator("#least").inner_text() == "–"
    page.tab.get_by_text("What the cost means").click()
    page.wait_for(page.tab.locator("#cost-known"), "No request was answered yet")
    empty.promise_service.coordinator.replica = "shop-3:8000"  # as if promises were shared
    page.wait_for(page.tab.locator("#cost-known"), "that it answered itself. This is shop-3:8000.")
    page.tab.locator("label", has_text="No promise").click()
    page.row("Toys").get_by_role("button", name="Promise exposures to Toys").click()
    page.tab.locator("#editor [name=at_least]").fill("20")
    page.tab.locator("#save:enabled").click()
    page.wait_for(page.tab.locator("#headline"), "The promise is")
    page.context.close()
    own.stop()


def test_hundreds_of_groups_are_filtered_sorted_and_rendered_near_the_viewport(browser: Any) -> None:
    labels = [f"Provider {number:03}" for number in range(400)]
    promises = [
        ScheduledPromise.of_group(label, 1 + number % 7, Window.day("UTC")) for number, label in enumerate(labels)
    ]
    many = SimulatedShop(labels, promises, utc("2026-03-03T00:00"))
    own = ServedShop(many)
    page = Page(browser, own.url)
    page.tab.locator("li.row dl").first.wait_for()
    rows = page.tab.locator("li.row")
    assert rows.count() == 400
    assert 10 < page.tab.locator("li.row dl").count() < 80
    page.tab.get_by_label("Sort by").select_option("name")
    page.wait_for(rows.first.locator("h3"), "Provider 000")
    page.tab.get_by_label("Sort by").select_option("floor")
    page.wait_for(rows.first.locator("h3"), "Provider 006")
    page.tab.get_by_label("Search promises").fill("provider 39")
    rows.nth(10).wait_for(state="detached")
    assert rows.count() == 10
    page.tab.get_by_label("Search promises").fill("")
    rows.last.scroll_into_view_if_needed()
    rows.last.locator("dl").wait_for()
    assert page.tab.locator("li.row dl").count() < 80
    page.context.close()
    own.stop()
    assert page.complaints == []
