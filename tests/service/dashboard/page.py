"""A tab of the browser that shows the dashboard, and the shop that most tests look at."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fairsync.schedule import ScheduledPromise, Window

if TYPE_CHECKING:
    from collections.abc import Mapping

MARKUP = "<img src=x onerror=document.title='run'>"
LABELS = ["Toys", "Books", "Garden", "Kitchen", "Music", MARKUP]
FLOORS = {"Toys": 1500, "Books": 400, "Garden": 600, MARKUP: 300}


def daily_promises(floors: Mapping[str, int]) -> list[ScheduledPromise]:
    """Return a promise per group, with a window per day of UTC."""
    return [ScheduledPromise.of_group(label, floor, Window.day("UTC")) for label, floor in floors.items()]


class Page:
    """A tab of the browser. Errors and warnings on its console are collected in `complaints`."""

    def __init__(self, browser: Any, url: str, **options: Any) -> None:
        options = {"viewport": {"width": 1280, "height": 900}, "locale": "en-GB", **options}
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(120_000)
        self.tab = self.context.new_page()
        self.complaints: list[str] = []
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.on("console", self._listen)
        self.tab.goto(url)

    def _listen(self, message: Any) -> None:
        # The browser also logs failed calls, which tests cause on purpose.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)

    def row(self, label: str) -> Any:
        return self.tab.locator("li.row").filter(has=self.tab.get_by_role("button", name=label, exact=True))

    def figure(self, label: str, name: str) -> Any:
        return self.row(label).locator(f"dl > .{name} dd")

    def wait_for(self, locator: Any, text: str) -> None:
        """Wait until an element has a text that matches."""
        matching = locator.filter(has_text=re.compile(text))
        matching.first.wait_for()

    def sign_in(self, token: str) -> None:
        self.tab.get_by_label("Token").fill(token)
        self.tab.get_by_role("button", name="Sign in").click()

    def open_editor(self, row: Any) -> None:
        """Click on Edit. On a busy machine the row may be drawn again during the click: then click again."""
        editor = self.tab.locator("#editor[open]")
        for attempt in range(600):
            if attempt % 30 == 0 and not editor.count():
                row.get_by_role("button", name="Edit").click()
            if editor.count():
                return
            self.tab.wait_for_timeout(500)
        raise AssertionError("the editor did not open")

    def edit(self, label: str, floor: int) -> None:
        self.open_editor(self.row(label))
        self.tab.locator("#editor [name=at_least]").fill(str(floor))
