"""Thousands of promises on one page, on a desk and on a phone."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from fairsync.schedule import ScheduledPromise, Window
from service.dashboard.browser import ServedShop
from service.dashboard.page import Page
from service.dashboard.simulated_shop import SimulatedShop, utc

if TYPE_CHECKING:
    from collections.abc import Iterator

START = utc("2026-03-03T00:00")
LABELS = [f"Provider {number:04}" for number in range(1_000)]
WINDOWS = [
    Window.day("UTC"),
    Window.week("UTC"),
    Window.campaign(START, START + timedelta(days=9), "UTC"),
    Window.campaign(START, START + timedelta(days=14), "UTC"),
    Window.campaign(START, START + timedelta(days=20), "UTC"),
]


@pytest.fixture(scope="module")
def crowd() -> Iterator[ServedShop]:
    promises = [ScheduledPromise.of_group(label, 1, window) for label in LABELS for window in WINDOWS]
    shop = SimulatedShop(LABELS, promises, START)
    shop.serve(20)
    served = ServedShop(shop)
    yield served
    served.stop()


@pytest.mark.parametrize("viewport", [{"width": 1280, "height": 900}, {"width": 390, "height": 844}])
def test_five_thousand_promises_are_searched_opened_and_edited(browser: Any, crowd: ServedShop, viewport: Any) -> None:
    page = Page(browser, crowd.url, viewport=viewport)
    page.wait_for(page.tab.locator("[data-count=all]"), "5,000")
    assert page.tab.locator("li.row").count() == 5_000
    assert page.tab.locator("li.row dl").count() < 200, "only rows near the viewport are drawn"
    page.tab.get_by_label("Search promises").fill("provider 0777")
    page.tab.locator("li.row").nth(5).wait_for(state="detached")
    assert page.tab.locator("li.row").count() == 5
    row = page.tab.locator("li.row").filter(has_text="a day")
    page.open_editor(row)
    assert page.tab.locator("#editor [name=label]").input_value() == "Provider 0777"
    width = page.tab.evaluate("document.documentElement.scrollWidth")
    assert width <= viewport["width"], "nothing is cut off at the side"
    editor = page.tab.locator("#editor").bounding_box()
    assert editor["x"] >= 0
    assert editor["x"] + editor["width"] <= viewport["width"]
    page.tab.get_by_role("button", name="Cancel").click()
    page.tab.get_by_role("button", name="New promise").click()
    page.tab.locator("#editor [name=label]").fill("0998")  # beyond the labels that are suggested at first
    page.tab.locator('#editor datalist option[value="Provider 0998"]').wait_for(state="attached")
    assert page.complaints == []
    page.context.close()
