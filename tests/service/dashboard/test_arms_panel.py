"""The A/B test on the dashboard: shown in arms only, with the verdict and every interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fairsync.service.arms.arm_sums import ArmSums
from fairsync.service.arms.comparison import compare
from fairsync.service.schema.arms import ArmsReport
from fairsync.service.server.operations import Operation
from service.dashboard.browser import ServedShop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from service.dashboard.page import Page
    from service.dashboard.simulated_shop import SimulatedShop


def report(days: int) -> ArmsReport:
    """Return the comparison of two arms, the second of which gives up a tenth of the relevance."""
    rng, sums = np.random.default_rng(0), [ArmSums(200), ArmSums(200)]
    for user in range(400):
        relevance = (10.0 + rng.normal()) * (1 - 0.1 * (user % 2))
        sums[user % 2].add(user % days, user // 2, requests=1, relevance=relevance, exposures=1 + user % 2)
    return compare("<i>november</i>", {"control": 0.5, "<b>fair</b>": 0.5}, sums)


@pytest.fixture(scope="module")
def served(shop: SimulatedShop) -> Iterator[ServedShop]:
    """The shop, as an arm of an A/B test."""
    shop.promise_service.experiment = "november"
    arms = Operation("GET", "/v1/arms", lambda _: report(5), "Compare the arms", role="report", answer=ArmsReport)
    running = ServedShop(shop, [arms])
    yield running
    running.stop()


def test_the_verdict_and_the_arms_are_shown(page: Page) -> None:
    page.wait_for(page.tab.locator("#arms-verdict"), r"The arms differ in relevance and exposures \(over 5 days")
    assert page.tab.locator("#arms-title").inner_text() == "A/B test: <i>november</i>", "text, and no markup"
    rows: Any = page.tab.locator("#arms-table tbody tr")
    assert rows.count() == 2
    cells = rows.nth(1).locator("th, td").all_inner_texts()
    assert cells[0] == "<b>fair</b>"
    assert cells[2] == "200"
    second = report(5).arms[1]
    assert second.cost is not None
    assert second.cost.value is not None
    assert cells[5].startswith(f"{100 * second.cost.value:.3g}%".replace("%", ""))
    assert " to " in cells[4]
    page.tab.set_viewport_size({"width": 360, "height": 740})
    assert page.tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the table scrolls, not the page"
