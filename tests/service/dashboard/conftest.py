"""Fixtures of the dashboard tests: a shop, a service and a browser for each file.

Playwright runs an event loop in the main thread for as long as a browser is open. It must not outlive a file, because
other tests of the same worker call `asyncio.run`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from service.dashboard.browser import ServedShop, open_browser
from service.dashboard.page import FLOORS, LABELS, Page, daily_promises
from service.dashboard.simulated_shop import SimulatedShop, utc

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as found:
        yield found


@pytest.fixture(scope="module")
def shop() -> SimulatedShop:
    """A shop on its second day, at 14:00. On the first day traffic was low."""
    made = SimulatedShop(LABELS, daily_promises(FLOORS), utc("2026-03-03T00:00"))
    made.advance(hours=24, traffic=0.3)
    made.advance(hours=14)
    made.estimate_cost()
    return made


@pytest.fixture(scope="module")
def served(shop: SimulatedShop) -> Iterator[ServedShop]:
    running = ServedShop(shop)
    yield running
    running.stop()


@pytest.fixture
def page(browser: Any, served: ServedShop) -> Iterator[Page]:
    opened = Page(browser, served.url)
    yield opened
    opened.context.close()
    assert opened.complaints == []
