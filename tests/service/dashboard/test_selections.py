"""Promises by several conditions, ceilings, shares, and who gives way to whom, on a desk and on a phone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fairsync.catalog import Catalog
from fairsync.promises import Promise
from fairsync.schedule import ScheduledPromise, Window
from service.dashboard.browser import ServedShop
from service.dashboard.page import Page
from service.dashboard.simulated_shop import SimulatedShop, utc

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairsync.catalog.groups import Label

DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


class NewsShop(SimulatedShop):
    """A shop whose items have a category, and of which every fifth is new."""

    def _make_catalog(self, labels: Sequence[Label]) -> Catalog:
        plain = super()._make_catalog(labels)
        new = [row % 5 == 0 for row in range(len(plain))]
        return Catalog(plain.embeddings, {"category": list(plain.attributes["group"].values()), "new": new})


@pytest.fixture(scope="module")
def shop() -> NewsShop:
    """A shop at noon of a day on which traffic has collapsed, so that two promises compete for the rest."""
    day = Window.day("UTC")
    first = ScheduledPromise(Promise({"category": "Toys"}, at_least=3_000), day)
    second = ScheduledPromise(Promise({"category": "Books", "new": True}, at_least=3_000, priority=2), day)
    made = NewsShop(["Toys", "Books", "Garden"], [first, second], utc("2026-03-03T00:00"))
    made.advance(hours=8)
    made.advance(hours=4, traffic=0.1)
    made.estimate_cost()  # the second promise was never subsidised
    made.promise_service.refresh()
    return made


@pytest.fixture(scope="module")
def served(shop: NewsShop) -> Iterator[ServedShop]:
    running = ServedShop(shop)
    yield running
    running.stop()


def choose(page: Page, place: int, attribute: str, label: str) -> None:
    row = page.tab.locator("#conditions li").nth(place)
    row.locator("[name=attribute]").select_option(attribute)
    row.locator("[name=label]").fill(label)


def save(page: Page) -> None:
    page.wait_for(page.tab.locator("#verdict"), "can be kept")
    page.tab.get_by_role("button", name="Promise it").click()
    page.tab.locator("#editor").wait_for(state="hidden")


@pytest.mark.parametrize("viewport", [DESK, PHONE])
def test_says_who_gives_way_to_whom_and_what_it_would_have_cost(
    browser: Any, served: ServedShop, viewport: Any
) -> None:
    page = Page(browser, served.url, viewport=viewport)
    row = page.row("category=Books, new=True")
    page.wait_for(row, "priority 2")
    row.get_by_role("button", name="category=Books, new=True", exact=True).click()
    page.wait_for(row.locator(".status"), "will be missing .*it gives way to category=Toys")
    page.wait_for(row.locator(".facts"), "Gives way to")
    page.wait_for(row.locator(".facts"), r"Would cost\s*About .* of the relevance of its window")
    assert page.tab.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    assert page.complaints == []
    page.context.close()


@pytest.mark.parametrize("viewport", [DESK, PHONE])
def test_promises_by_conditions_with_ceilings_and_shares(
    browser: Any, served: ServedShop, shop: NewsShop, viewport: Any
) -> None:
    page = Page(browser, served.url, viewport=viewport)
    page.tab.get_by_role("button", name="New promise").click()
    choose(page, 0, "category", "Garden")
    page.tab.get_by_role("button", name="And another condition").click()
    choose(page, 1, "new", "true")
    page.tab.locator("#editor [name=at_least]").fill("1.5")
    page.wait_for(page.tab.locator("#editor-problem"), "whole number of exposures")
    page.tab.locator("#editor [name=least_unit]").select_option("share")
    page.tab.locator("#editor [name=at_most]").fill("60")
    page.tab.locator("#editor [name=most_unit]").select_option("share")
    page.tab.locator("#further summary").click()
    page.tab.locator("#editor [name=priority]").fill("3")
    editor = page.tab.locator("#editor").bounding_box()
    assert editor["x"] >= 0
    assert editor["x"] + editor["width"] <= viewport["width"]
    save(page)
    made = next(one for one in shop.promise_service.promises() if one.name == "category=Garden, new=True")
    try:
        assert (made.where, made.at_least, made.at_most, made.priority) == (
            {"category": "Garden", "new": True}, 0.015, 0.6, 3,
        )  # fmt: skip
        page.wait_for(page.figure("category=Garden, new=True", "promise"), r"1\.5\s?%.*60\s?%.*a day, priority 3")
        bar = page.row("category=Garden, new=True").locator("svg.bar rect.cap")
        assert bar.get_attribute("visibility") is None, "the ceiling is drawn"
        assert page.tab.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    finally:
        shop.promise_service.editor.delete_promise(made.id)
    assert page.complaints == []
    page.context.close()


def test_every_new_item_gets_its_first_days(browser: Any, served: ServedShop, shop: NewsShop) -> None:
    page = Page(browser, served.url)
    page.tab.get_by_role("button", name="New promise").click()
    page.tab.locator("#conditions li").first.locator("[name=attribute]").select_option("id")
    page.tab.locator("#editor [name=every]").select_option("days")
    page.tab.locator("#editor [name=at_least]").fill("2")
    page.tab.locator("#conditions [name=each]").check()
    page.tab.get_by_role("button", name="And another condition").click()
    choose(page, 1, "new", "true")
    page.tab.locator("#editor [name=days]").fill("3")
    save(page)
    made = [one for one in shop.promise_service.promises() if one.series]
    new = shop.promise_service.catalog.select({"new": True})
    try:
        assert new is not None
        assert len(made) == len(new)
        assert {(one.at_least, one.window.days, one.where["new"]) for one in made} == {(2, 3, True)}
        page.wait_for(page.figure(made[0].name, "promise"), "2 in its first 3 days")
    finally:
        shop.promise_service.editor.delete_promise(made[0].series or "")
    assert page.complaints == []
    page.context.close()


def test_says_which_limit_is_broken(browser: Any) -> None:
    day, hour = Window.day("UTC"), Window.hour("UTC")
    promises = [
        ScheduledPromise(Promise({"category": "Toys"}, at_least=10, at_most=50), day),
        ScheduledPromise(Promise({"category": "Books"}, at_most_per_list=1), hour),
        ScheduledPromise(Promise({"category": "Garden"}, at_least=1, at_most_per_list=2), day),
    ]
    shop = NewsShop(["Toys", "Books", "Garden"], promises, utc("2026-03-03T00:00"))
    shop.serve(20, where={"category": "Toys"})
    shop.advance(hours=2)
    catalog = shop.promise_service.catalog
    toys = catalog.select({"category": "Toys"})
    assert toys is not None
    shop.promise_service.items.remove(catalog.ids[toys.mask])  # lists can no longer be filled under the limits
    shop.advance(hours=2)
    running = ServedShop(shop)
    try:
        page = Page(browser, running.url)
        for name, bounds in (
            ("Toys", "^≥ 10, ≤ 50 a day$"),
            ("Books", "^≤ 1 per list$"),
            ("Garden", "^≥ 1 a day, ≤ 2 per list$"),
        ):
            page.wait_for(page.figure(name, "promise"), bounds)
        for name, text in (
            ("Toys", "The ceiling of 50 is exceeded by"),
            ("Garden", "It cannot be kept: its limit per list was left out"),
        ):
            row = page.row(name)
            row.get_by_role("button", name=name, exact=True).click()
            page.wait_for(row.locator(".status"), text)
        page.wait_for(page.tab.locator("body"), "the limit per list was not kept")
        assert page.complaints == []
        page.context.close()
    finally:
        running.stop()
