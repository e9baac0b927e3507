"""Take the screenshots of docs/dashboard.md: ``PYTHONPATH=src:tests python -m service.dashboard.screenshots``."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

from fairsync.schedule import ScheduledPromise, Window
from service.dashboard.browser import ServedShop, open_browser
from service.dashboard.page import Page
from service.dashboard.simulated_shop import FailingShards, SimulatedShop, utc

IMAGES = Path(__file__).parents[3] / "docs" / "images"
FLOORS = {"Local makers": 2300, "Garden": 500, "Toys": 900, "New arrivals": 900, "Books": 400, "Wine": 120}
PHONE = {"width": 390, "height": 844}


def make_shop() -> SimulatedShop:
    """Return a shop on a Saturday at 18:00, after five days of which one had little traffic."""
    day, week = Window.day("Europe/Berlin"), Window.week("Europe/Berlin")
    promises = [ScheduledPromise.of_group(label, floor, day) for label, floor in FLOORS.items()]
    promises.append(ScheduledPromise.of_group("Independent films", 3900, week))
    labels = [*FLOORS, "Independent films", "Kitchen", "Music"]
    start = utc("2026-03-01T23:00")
    shop = SimulatedShop(labels, promises, start, index=lambda catalog: FailingShards(catalog, 4))
    for traffic in (1.0, 1.0, 1.0, 0.4, 1.0):
        shop.advance(24, traffic)
    shop.advance(18)
    shop.estimate_cost()
    return shop


def save(tab: Any, name: str, height: int | None = None) -> None:
    """Save a screenshot with a palette of 256 colours."""
    if height is not None:
        tab.set_viewport_size({**tab.viewport_size, "height": height})
    tab.wait_for_timeout(800)  # transitions end
    Image.open(BytesIO(tab.screenshot())).convert("RGB").quantize(256).save(IMAGES / name, optimize=True)


def main() -> None:
    """Take all screenshots."""
    served = ServedShop(make_shop())
    with open_browser() as browser:
        first = next(iter(FLOORS))
        zone = {"timezone_id": "Europe/Berlin"}
        page = Page(browser, served.url, **zone)
        page.row(first).get_by_role("button", name=first, exact=True).click()
        page.row(first).locator("svg.pace").wait_for()
        save(page.tab, "dashboard.png", 1180)
        page = Page(browser, served.url, color_scheme="dark", **zone)
        page.tab.get_by_text("What the cost means").click()
        page.row(first).wait_for()
        save(page.tab, "dashboard-dark.png")
        page = Page(browser, served.url, viewport=PHONE, **zone)
        page.row(first).get_by_role("button", name=first, exact=True).click()
        page.row(first).locator("svg.pace").wait_for()
        page.tab.set_viewport_size({**PHONE, "height": 1100})
        page.row(first).evaluate("row => row.scrollIntoView()")
        save(page.tab, "dashboard-phone.png")
        page = Page(browser, served.url, viewport=PHONE, color_scheme="dark", **zone)
        page.edit(first, 90_000)
        page.wait_for(page.tab.locator("#verdict"), "This cannot be kept")
        save(page.tab, "dashboard-impossible.png")
    served.stop()


if __name__ == "__main__":
    main()
