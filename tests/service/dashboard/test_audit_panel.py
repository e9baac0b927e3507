"""The list of changes: who did what, loaded when it is opened, a page at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from fairsync.schedule import ScheduledPromise, Window
from service.dashboard.page import MARKUP, Page

if TYPE_CHECKING:
    from service.dashboard.simulated_shop import SimulatedShop


def open_list(page: Page) -> Any:
    page.wait_for(page.tab.locator("#connection"), "^Live$")
    page.tab.get_by_text("Who made, changed and ended which promise").click()
    return page.tab.locator("#audit li")


def test_shows_who_did_what_the_latest_first(page: Page, shop: SimulatedShop) -> None:
    seven, nine = (ScheduledPromise.of_group("Music", floor, Window.week("UTC")) for floor in (7, 9))
    made = shop.promise_service.editor.set_promise(seven, by="campaigns").id
    shop.promise_service.editor.set_promise(nine, made, by="<b>sales</b>")
    rows = open_list(page)
    page.wait_for(page.tab.locator("#audit-state"), r"6 entries, none missing\.")
    first = rows.first.inner_text()
    assert f"<b>sales</b> changed to {nine}" in first, "text, and no markup"
    assert f"(before: {seven})" in first
    assert rows.count() == 6
    assert "settings made 300 exposures of" in rows.nth(2).inner_text()
    assert MARKUP in rows.nth(2).inner_text()


def test_says_that_it_was_truncated_and_goes_back_page_by_page(
    page: Page, shop: SimulatedShop, monkeypatch: Any
) -> None:
    plain = shop.promise_service.audit

    def many(limit: int, before: int | None = None) -> Any:
        """Return the entries of an audit of 45 of which one is missing."""
        one = plain(1).entries[0]
        numbers = range((before or 46) - 1, 0, -1)[:limit]
        entries = [msgspec.structs.replace(one, number=number) for number in numbers]
        damage = ["its audit was truncated: entry 46 is missing"]
        return msgspec.structs.replace(plain(1), entries=entries, total=46, complete=False, damage=damage)

    monkeypatch.setattr(shop.promise_service, "audit", many)
    rows = open_list(page)
    page.wait_for(page.tab.locator("#audit-state"), "changed from outside: .* entry 46 is missing")
    for expected in (40, 45):
        page.tab.get_by_role("button", name="Earlier entries").click()
        rows.nth(expected - 1).wait_for()
    assert rows.count() == 45
    assert page.tab.get_by_role("button", name="Earlier entries").count() == 0
