"""The pace chart of a promise."""

from __future__ import annotations

import re
from datetime import date
from typing import Any

import pytest

from fairsync.schedule import ScheduledPromise, Window
from service.dashboard.browser import ServedShop
from service.dashboard.page import Page
from service.dashboard.simulated_shop import SimulatedShop, utc


def test_shows_the_exposures_so_far_and_the_projection(page: Page, shop: SimulatedShop) -> None:
    page.row("Toys").get_by_role("button", name="Toys", exact=True).click()
    chart = page.row("Toys").locator("svg.pace")
    chart.wait_for()
    pace, view = shop.promise_service.pace(shop.view("Toys").id), shop.view("Toys")
    label = chart.get_attribute("aria-label")
    assert f"{view.exposures:,} exposures so far" in label
    assert f"about {round(pace.projected):,} expected at the end, floor {pace.floor:,}" in label
    # The line ends at the present time and exposures; the dashed line continues from there to the end.
    here, end = (chart.locator(f"circle.{name}") for name in ("here", "end"))
    x, y = (float(here.get_attribute(name)) for name in ("cx", "cy"))
    assert chart.locator("path.was").get_attribute("d").endswith(f"L{x:.1f} {y:.1f}")
    assert chart.locator("path.ahead").get_attribute("d").startswith(f"M{x:.1f} {y:.1f}")
    assert float(end.get_attribute("cx")) > x
    assert float(end.get_attribute("cy")) < y
    page.row("Toys").get_by_text("As a table").click()
    rows = page.row("Toys").locator("tbody tr")
    rows.first.wait_for()
    last = pace.points[-1]
    assert rows.last.locator("td").nth(1).inner_text() == f"{last.exposures:,}"


def test_the_band_ends_at_the_low_and_the_high_projection(page: Page, shop: SimulatedShop) -> None:
    page.row("Toys").get_by_role("button", name="Toys", exact=True).click()
    chart = page.row("Toys").locator("svg.pace")
    chart.wait_for()
    pace = shop.promise_service.pace(shop.view("Toys").id)
    assert pace.low < pace.projected < pace.high
    nothing = float(chart.locator("line.grid").first.get_attribute("y1"))
    floor = float(chart.locator("line.floor").get_attribute("y1"))

    def value(y: float) -> float:
        return pace.floor * (nothing - y) / (nothing - floor)

    end = float(chart.locator("circle.end").get_attribute("cx"))
    assert value(float(chart.locator("circle.end").get_attribute("cy"))) == pytest.approx(pace.projected, rel=0.002)
    places = re.findall(r"[ML]([\d.]+) ([\d.]+)", chart.locator("path.band").get_attribute("d"))
    last = sorted(value(float(y)) for x, y in places if abs(float(x) - end) < 0.1)
    assert (last[0], last[-1]) == pytest.approx((pace.low, pace.high), rel=0.004)
    here = float(chart.locator("circle.here").get_attribute("cy"))
    assert float(places[0][1]) == float(places[-1][1]) == pytest.approx(here, abs=0.06), "the present is certain"
    # The dotted line follows the forecast, from zero to the floor.
    dotted = re.findall(r"[ML]([\d.]+) ([\d.]+)", chart.locator("path.expected").get_attribute("d"))
    drawn = [value(float(y)) for _, y in dotted]
    assert drawn == pytest.approx([due for _, due in pace.expected], abs=0.004 * pace.floor)
    page.row("Toys").get_by_text("with low or high traffic").wait_for()


def test_all_of_the_chart_is_within_it_on_a_phone_in_any_language_and_before_the_window(browser: Any) -> None:
    """In German no number below a million is shortened; a window that is to come has no present time in it."""
    start = utc("2026-03-03T00:00")
    later = Window.campaign(date(2026, 6, 1), date(2026, 6, 2), "UTC")
    promises = [
        ScheduledPromise.of_group("Toys", 400_000, Window.campaign(date(2026, 3, 3), date(2027, 3, 2), "UTC")),
        ScheduledPromise.of_group("Books", 300, later),
    ]
    shop = SimulatedShop(["Toys", "Books"], promises, start)
    shop.advance(3)
    own = ServedShop(shop)
    page = Page(browser, own.url, viewport={"width": 360, "height": 740}, locale="de-DE")
    for label, text in (("Toys", "floor 400.000"), ("Books", "floor 300")):
        page.row(label).get_by_role("button", name=label, exact=True).click()
        chart = page.row(label).locator("svg.pace")
        chart.get_by_text(text, exact=True).wait_for()
        outside = chart.evaluate(
            """chart => [...chart.querySelectorAll("*")].filter(one => {
                const [box, all] = [one.getBoundingClientRect(), chart.getBoundingClientRect()];
                return box.left < all.left - 4 || box.right > all.right + 4;
            }).map(one => one.outerHTML)"""
        )
        assert outside == []
    assert page.row("Books").locator("svg.pace .now").count() == 0
    page.context.close()
    own.stop()
