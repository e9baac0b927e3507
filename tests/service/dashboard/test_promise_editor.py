"""The dialog that creates, changes and deletes promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairsync.schedule import ScheduledPromise, Window
from fairsync.service.promises.conversion import window_from_record
from fairsync.service.schema import WindowRecord
from service.dashboard.simulated_shop import utc

if TYPE_CHECKING:
    from service.dashboard.page import Page
    from service.dashboard.simulated_shop import SimulatedShop


def test_a_floor_is_changed_after_a_preview(page: Page, shop: SimulatedShop) -> None:
    floor = shop.view("Books").floor
    page.edit("Books", floor + 20)
    page.wait_for(page.tab.locator("#verdict"), "can be kept")
    page.wait_for(page.tab.locator("#verdict"), "would then cost|would cost")
    assert shop.view("Books").floor == floor, "a preview changes nothing"
    page.tab.get_by_role("button", name="Save").click()
    page.wait_for(page.figure("Books", "promise"), f"^{floor + 20} a day$")
    assert shop.view("Books").floor == floor + 20


def test_it_opens_when_a_service_that_does_not_answer_is_back(page: Page) -> None:
    asked = []

    def fail_twice(route: Any) -> None:
        asked.append(route.request.url)
        if len(asked) == 1:
            route.abort()
        elif len(asked) == 2:
            route.fulfill(status=503, json={"error": "overloaded", "message": "Later.", "hint": ""})
        else:
            route.continue_()

    page.tab.route("**/v1/attributes*", fail_twice)
    page.row("Books").get_by_role("button", name="Edit").click()
    assert page.tab.locator("#editor [name=label]").input_value() == "Books"
    assert len(asked) == 3
    page.tab.get_by_role("button", name="Cancel").click()
    page.complaints.clear()  # the browser reports both failures


def test_an_impossible_floor_is_refused_and_the_largest_possible_one_offered(page: Page, shop: SimulatedShop) -> None:
    page.edit("Garden", 10_000_000)
    page.wait_for(page.tab.locator("#verdict"), "This cannot be kept")
    save = page.tab.get_by_role("button", name="Save")
    assert save.is_disabled()
    page.tab.keyboard.press("Enter")
    assert page.tab.locator("#editor").is_visible()
    view = shop.view("Garden")
    asked = ScheduledPromise.of_group("Garden", 10_000_000, window_from_record(view.window))
    largest = shop.promise_service.editor.preview(asked, view.id).largest
    page.tab.get_by_role("button", name=f"Use {largest:,}").click()
    page.wait_for(page.tab.locator("#verdict"), "This can be kept")
    assert save.is_enabled()
    page.tab.get_by_role("button", name="Cancel").click()
    assert shop.view("Garden").floor == 600


def test_a_floor_that_became_impossible_after_the_preview_is_refused(page: Page, shop: SimulatedShop) -> None:
    view = shop.view("Garden")
    record = ScheduledPromise.of_group("Garden", 10_000_000, window_from_record(view.window))
    largest = shop.promise_service.editor.preview(record, view.id).largest
    page.edit("Garden", largest)
    page.tab.locator("#save:enabled").wait_for()  # the verdict may still be that of the floor before
    page.wait_for(page.tab.locator("#verdict"), "can be kept")
    kitchen = ScheduledPromise.of_group("Kitchen", 500, Window.day("UTC"))
    other = shop.promise_service.editor.set_promise(kitchen)
    try:
        page.tab.get_by_role("button", name="Save").click()
        page.wait_for(page.tab.locator("#editor-problem"), f"{largest:,}")
        assert page.tab.locator("#editor").is_visible()
        assert shop.view("Garden").floor == 600
    finally:
        shop.promise_service.editor.delete_promise(other.id)


def test_a_campaign_is_created_and_deleted(page: Page, shop: SimulatedShop) -> None:
    page.tab.get_by_role("button", name="New promise").click()
    page.tab.locator("#editor [name=label]").fill("nobody")
    page.tab.locator("#editor [name=at_least]").fill("50")
    page.wait_for(page.tab.locator("#editor-problem"), "no such group")
    page.tab.locator("#editor [name=label]").fill("Music")
    page.tab.locator("#editor [name=every]").select_option("campaign")
    page.tab.locator("#editor [name=zone]").fill("America/New_York")
    page.tab.locator("#editor [name=start]").fill("2026-03-07T00:00")
    page.tab.locator("#editor [name=end]").fill("2026-03-09T00:00")  # clocks go forward on the 8th
    page.wait_for(page.tab.locator("#verdict"), "can be kept")
    page.tab.get_by_role("button", name="Promise it").click()
    page.wait_for(page.figure("Music", "promise"), "50 in the campaign")
    view = shop.view("Music")
    assert (view.start, view.end) == (utc("2026-03-07T05:00"), utc("2026-03-09T04:00"))
    page.row("Music").get_by_role("button", name="Edit").click()
    page.tab.get_by_role("button", name="Delete").click()
    page.tab.locator("#confirm").get_by_role("button", name="Delete").click()
    page.row("Music").wait_for(state="detached")
    assert all(view.group != "Music" for view in shop.promise_service.promises())


def test_a_promise_that_has_not_begun_shows_its_start_and_keeps_its_days(page: Page, shop: SimulatedShop) -> None:
    window = WindowRecord(every="day", start="2026-03-20", end="2026-03-22")
    made = shop.promise_service.editor.set_promise(ScheduledPromise.of_group("Music", 50, window_from_record(window)))
    try:
        page.wait_for(page.figure("Music", "promise"), r"^50 a day, begins in \d+d")
        page.edit("Music", 60)
        page.wait_for(page.tab.locator("#verdict"), "can be kept")
        page.tab.get_by_role("button", name="Save").click()
        page.wait_for(page.figure("Music", "promise"), r"^60 a day, begins in \d+d")
        changed = window_from_record(shop.view("Music").window)
        assert (changed.start, changed.end) == (utc("2026-03-20T00:00"), utc("2026-03-23T00:00"))
    finally:
        shop.promise_service.editor.delete_promise(made.id)
