"""The dashboard in a real Chromium, over the real service."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from fairsync.service.records import PromiseRecord, WindowRecord
from fairsync.windows import Promise, Window
from service.browser import Served, open_browser
from service.shop import Shop, at

MARKUP = "<img src=x onerror=document.title='run'>"
LABELS = ["Toys", "Books", "Garden", "Kitchen", "Music", MARKUP]
DAY = Window.day("UTC")
FLOORS = {"Toys": 1500, "Books": 400, "Garden": 600, MARKUP: 300}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as found:
        yield found


@pytest.fixture(scope="module")
def shop() -> Shop:
    """A shop on its second day, at 14:00; on the first, little traffic came."""
    made = Shop(LABELS, [Promise(label, floor, DAY) for label, floor in FLOORS.items()], at("2026-03-03T00:00"))
    made.turn(24, busy=0.3)
    made.turn(14)
    return made


@pytest.fixture(scope="module")
def served(shop: Shop) -> Iterator[Served]:
    running = Served(shop.keeper)
    yield running
    running.stop()


class Page:
    """A tab of the browser; whatever its console complains about fails the test."""

    def __init__(self, browser: Any, url: str, **options: Any) -> None:
        options = {"viewport": {"width": 1280, "height": 900}, "locale": "en-GB", **options}
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(20_000)
        self.tab = self.context.new_page()
        self.complaints: list[str] = []
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.on("console", self._listen)
        self.tab.goto(url)

    def _listen(self, message: Any) -> None:
        # That a call was refused or lost is the browser's note on what a test does on purpose.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)

    def row(self, label: str) -> Any:
        return self.tab.locator("li.row").filter(has=self.tab.get_by_role("button", name=label, exact=True))

    def figure(self, label: str, name: str) -> Any:
        return self.row(label).locator(f"dl > .{name} dd")

    def wait_for(self, locator: Any, text: str) -> None:
        """Wait until an element says so."""
        matching = locator.filter(has_text=re.compile(text))
        matching.first.wait_for()

    def sign_in(self, token: str) -> None:
        self.tab.get_by_label("Token").fill(token)
        self.tab.get_by_role("button", name="Sign in").click()

    def edit(self, label: str, floor: int) -> None:
        self.row(label).get_by_role("button", name="Edit").click()
        self.tab.get_by_label("Exposures, at least").fill(str(floor))


@pytest.fixture
def page(browser: Any, served: Served) -> Iterator[Page]:
    opened = Page(browser, served.url)
    yield opened
    opened.context.close()
    assert opened.complaints == []


def test_shows_where_every_promise_stands(page: Page, shop: Shop) -> None:
    page.row("Toys").locator("dl").wait_for()
    seen = shop.keeper.overview()
    states = [view.state for view in seen.promises]
    headline = page.tab.locator("h1#headline").inner_text()
    bad = sum(state in ("impossible", "at risk") for state in states)
    assert (f"All {len(states)} promises are on course." in headline) == (bad == 0)
    for view in seen.promises:
        assert page.figure(str(view.group), "soFar").inner_text() == f"{view.exposures:,}"
        assert page.figure(str(view.group), "atEnd").inner_text() == f"{round(view.projected):,}"
        assert page.figure(str(view.group), "promise").inner_text() == f"{view.floor:,} a day"
        assert page.row(str(view.group)).locator(".state").inner_text() == view.state
    assert seen.cost_share is not None
    assert page.tab.locator("#cost").inner_text() == f"{100 * seen.cost_share:.2g}%"
    missed = [one for one in shop.keeper.past(100) if not one.kept]
    assert missed, "the first day had too little traffic"
    assert page.tab.locator("#past li").count() == len(missed)
    # A label is text, whatever it looks like.
    assert page.row(MARKUP).count() == 1
    assert page.tab.title() != "run"


def test_pace_is_drawn_from_what_was_and_what_is_expected(page: Page, shop: Shop) -> None:
    page.row("Toys").get_by_role("button", name="Toys", exact=True).click()
    chart = page.row("Toys").locator("svg.pace")
    chart.wait_for()
    pace, view = shop.keeper.pace(shop.view("Toys").id), shop.view("Toys")
    label = chart.get_attribute("aria-label")
    assert f"{view.exposures:,} exposures so far" in label
    assert f"about {round(pace.projected):,} expected at the end, floor {pace.floor:,}" in label
    # The line ends where time and exposures are now; the dashed one goes on from there to the end.
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


def test_a_band_is_drawn_where_the_service_knows_the_range(page: Page, shop: Shop) -> None:
    projected = shop.view("Toys").projected

    def widen(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json=answer.json() | {"low": projected - 100, "high": projected + 100})

    page.tab.route("**/pace", widen)
    page.row("Toys").get_by_role("button", name="Toys", exact=True).click()
    chart = page.row("Toys").locator("svg.pace")
    places = re.findall(r"[ML]([\d.]+) ([\d.]+)", chart.locator("path.band").get_attribute("d"))
    end = float(chart.locator("circle.end").get_attribute("cx"))
    last = sorted(float(y) for x, y in places if abs(float(x) - end) < 0.1)
    middle = float(chart.locator("circle.end").get_attribute("cy"))
    assert last[0] < middle < last[-1]
    assert sum(last) / len(last) == pytest.approx(middle, abs=0.2)
    page.row("Toys").get_by_text("with little or much traffic").wait_for()


def test_follows_the_traffic(page: Page, shop: Shop) -> None:
    page.row("Books").locator("dl").wait_for()
    before = shop.view("Books").exposures
    shop.serve(40)
    after = shop.view("Books").exposures
    assert after > before
    page.wait_for(page.figure("Books", "soFar"), f"^{after:,}$")


def test_a_floor_is_changed_after_a_preview(page: Page, shop: Shop) -> None:
    page.edit("Books", 420)
    page.wait_for(page.tab.locator("#verdict"), "can be kept")
    page.wait_for(page.tab.locator("#verdict"), "would then cost|would cost")
    assert shop.view("Books").floor == 400, "nothing is changed by looking"
    page.tab.get_by_role("button", name="Save").click()
    page.wait_for(page.figure("Books", "promise"), "^420 a day$")
    assert shop.view("Books").floor == 420


def test_an_impossible_floor_is_refused_and_a_possible_one_offered(page: Page, shop: Shop) -> None:
    page.edit("Garden", 10_000_000)
    page.wait_for(page.tab.locator("#verdict"), "This cannot be kept")
    save = page.tab.get_by_role("button", name="Save")
    assert save.is_disabled()
    page.tab.keyboard.press("Enter")
    assert page.tab.locator("#editor").is_visible()
    view = shop.view("Garden")
    asked = PromiseRecord(group="Garden", floor=10_000_000, window=view.window)
    largest = shop.keeper.preview(asked, view.id).largest
    page.tab.get_by_role("button", name=f"Use {largest:,}").click()
    page.wait_for(page.tab.locator("#verdict"), "This can be kept")
    assert save.is_enabled()
    page.tab.get_by_role("button", name="Cancel").click()
    assert shop.view("Garden").floor == 600


def test_what_became_impossible_after_the_preview_is_refused_with_the_reason(page: Page, shop: Shop) -> None:
    view = shop.view("Garden")
    record = PromiseRecord(group="Garden", floor=10_000_000, window=view.window)
    largest = shop.keeper.preview(record, view.id).largest
    page.edit("Garden", largest)
    page.wait_for(page.tab.locator("#verdict"), "can be kept")
    kitchen = PromiseRecord(group="Kitchen", floor=500, window=WindowRecord(every="day"))
    other = shop.keeper.set_promise(kitchen, None)
    try:
        page.tab.get_by_role("button", name="Save").click()
        page.wait_for(page.tab.locator("#editor-problem"), str(largest))
        assert page.tab.locator("#editor").is_visible()
        assert shop.view("Garden").floor == 600
    finally:
        shop.keeper.delete_promise(other.id)


def test_a_promise_is_made_and_deleted(page: Page, shop: Shop) -> None:
    page.tab.get_by_role("button", name="New promise").click()
    page.tab.locator("#editor [name=group]").fill("nobody")
    page.tab.get_by_label("Exposures, at least").fill("50")
    page.wait_for(page.tab.locator("#editor-problem"), "no such group")
    page.tab.locator("#editor [name=group]").fill("Music")
    page.tab.locator("#editor [name=every]").select_option("campaign")
    page.tab.locator("#editor [name=zone]").fill("America/New_York")
    page.tab.locator("#editor [name=start]").fill("2026-03-07T00:00")
    page.tab.locator("#editor [name=end]").fill("2026-03-09T00:00")  # clocks go forward on the 8th
    page.wait_for(page.tab.locator("#verdict"), "can be kept")
    page.tab.get_by_role("button", name="Promise it").click()
    page.wait_for(page.figure("Music", "promise"), "50 in the campaign")
    window = shop.view("Music").window
    assert (window.start, window.end) == (at("2026-03-07T05:00"), at("2026-03-09T04:00"))
    page.row("Music").get_by_role("button", name="Edit").click()
    page.tab.get_by_role("button", name="Delete").click()
    page.tab.locator("#confirm").get_by_role("button", name="Delete").click()
    page.row("Music").wait_for(state="detached")
    assert all(view.group != "Music" for view in shop.keeper.promises())


def _scrolls_sideways(page: Page) -> bool:
    return bool(page.tab.evaluate("document.documentElement.scrollWidth > innerWidth"))


def test_fits_a_phone(browser: Any, served: Served) -> None:
    page = Page(browser, served.url, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    page.row("Toys").locator("dl").wait_for()
    assert not _scrolls_sideways(page)
    page.row("Toys").get_by_role("button", name="Toys", exact=True).tap()
    page.row("Toys").locator("svg.pace").wait_for()
    assert not _scrolls_sideways(page)
    page.edit("Toys", 10_000_000)
    page.wait_for(page.tab.locator("#verdict"), "This cannot be kept")
    box = page.tab.locator("#editor").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 360
    assert page.tab.evaluate("(d => d.scrollWidth <= d.clientWidth)(document.querySelector('#editor'))")
    assert not _scrolls_sideways(page)
    page.context.close()
    assert page.complaints == []


def _light(colour: str) -> float:
    """Return the relative luminance of "rgb(r, g, b)" as the rules on contrast define it."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_fits_every_width_between_phone_and_desk(page: Page) -> None:
    page.row("Toys").get_by_role("button", name="Toys", exact=True).click()
    page.row("Toys").locator("svg.pace").wait_for()
    for width in (320, 480, 760, 761, 880, 881, 1024, 1180, 1181):
        page.tab.set_viewport_size({"width": width, "height": 800})
        page.tab.wait_for_function(f"document.querySelector('svg.pace')?.clientWidth < {width}")
        assert not _scrolls_sideways(page), width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_can_be_read_in_light_and_in_the_dark(browser: Any, served: Served, scheme: str) -> None:
    page = Page(browser, served.url, color_scheme=scheme)
    page.row("Toys").locator("dl").wait_for()
    ground = _light(page.tab.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert (ground < 0.05) == (scheme == "dark")
    names = ["text", "dim", "accent", "impossible", "at-risk", "on-track", "kept"]
    for name in names:
        colour = page.tab.evaluate(
            "name => { const p = document.createElement('p'); p.style.color = `var(--${name})`;"
            " document.body.append(p); const c = getComputedStyle(p).color; p.remove(); return c; }",
            name,
        )
        low, high = sorted([ground, _light(colour)])
        assert (high + 0.05) / (low + 0.05) >= 4.5, name
    page.context.close()


def test_by_keyboard_alone(page: Page) -> None:
    page.row("Toys").locator("dl").wait_for()
    focused = "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"

    def tab_to(name: str) -> None:
        for _ in range(60):
            page.tab.keyboard.press("Tab")
            if page.tab.evaluate(focused) == name:
                return
        raise AssertionError(f"{name} cannot be reached")

    tab_to("Toys")
    assert page.tab.evaluate("parseFloat(getComputedStyle(document.activeElement).outlineWidth)") >= 2
    page.tab.keyboard.press("Enter")
    page.row("Toys").locator("svg.pace").wait_for()
    tab_to("Edit the promise for Toys")
    page.tab.keyboard.press("Enter")
    page.tab.locator("#editor").wait_for()
    assert page.tab.evaluate("document.activeElement.name") == "floor"
    for _ in range(25):  # around and around, never on the page behind
        page.tab.keyboard.press("Tab")
        assert page.tab.evaluate(
            "document.activeElement === document.body || !!document.activeElement.closest('#editor')"
        )
    page.tab.keyboard.press("Escape")
    page.tab.locator("#editor").wait_for(state="hidden")
    assert page.tab.evaluate(focused) == "Edit the promise for Toys"


def test_says_when_the_service_is_gone_and_when_it_is_back(browser: Any, shop: Shop) -> None:
    own = Served(shop.keeper)
    page = Page(browser, own.url)
    link = page.tab.locator("#link")
    page.wait_for(link, "^Live$")
    own.stop()
    page.wait_for(link, r"No answer\. Last update \d+ sec ago")
    assert page.row("Toys").is_visible(), "what was known stays"
    page.wait_for(page.tab.locator("#announcer"), "does not answer")
    own.start()
    page.wait_for(link, "^Live$")
    page.context.close()
    own.stop()


def test_asks_nothing_while_nobody_looks(page: Page) -> None:
    page.row("Toys").locator("dl").wait_for()
    hide = "hidden => { Object.defineProperty(document, 'hidden', {get: () => hidden, configurable: true});"
    hide += " document.dispatchEvent(new Event('visibilitychange')); }"
    page.tab.evaluate(hide, True)
    page.wait_for(page.tab.locator("#link"), "Paused")
    page.tab.wait_for_timeout(500)  # what was under way comes in
    asked: list[str] = []
    page.tab.on("request", lambda request: asked.append(request.url))
    page.tab.wait_for_timeout(3500)
    assert asked == []
    page.tab.evaluate(hide, False)
    page.wait_for(page.tab.locator("#link"), "Live")
    assert asked


def test_signs_in_with_a_token_and_says_what_it_may_not_do(browser: Any, shop: Shop) -> None:
    own = Served(shop.keeper, reader=["report"], boss=["report", "admin"])
    page = Page(browser, own.url)
    page.sign_in("wrong")
    page.wait_for(page.tab.locator("#login-problem"), r"\w+")
    page.sign_in("reader")
    page.row("Books").locator("dl").wait_for()
    assert page.tab.evaluate("[sessionStorage.length, localStorage.length]") == [1, 0]
    floor = shop.view("Books").floor
    page.edit("Books", floor - 10)
    page.tab.locator("#save:enabled").click()
    page.wait_for(page.tab.locator("#editor-problem"), "may look but not change")
    assert shop.view("Books").floor == floor
    page.tab.keyboard.press("Escape")
    page.tab.get_by_role("button", name="Sign out").click()
    page.sign_in("boss")
    page.edit("Books", floor - 10)
    page.tab.locator("#save:enabled").click()
    page.wait_for(page.figure("Books", "promise"), f"^{floor - 10:,} a day$")
    page.context.close()
    own.stop()
    assert page.complaints == []


def test_hundreds_of_groups_are_searched_sorted_and_drawn_where_visible(browser: Any) -> None:
    labels = [f"Provider {number:03}" for number in range(400)]
    many = Shop(
        labels, [Promise(label, 1 + number % 7, DAY) for number, label in enumerate(labels)], at("2026-03-03T00:00")
    )
    own = Served(many.keeper)
    page = Page(browser, own.url)
    page.tab.locator("li.row dl").first.wait_for()
    rows = page.tab.locator("li.row")
    assert rows.count() == 400
    assert 10 < page.tab.locator("li.row dl").count() < 80
    page.tab.get_by_label("Sort by").select_option("name")
    assert rows.first.locator("h3").inner_text() == "Provider 000"
    page.tab.get_by_label("Sort by").select_option("floor")
    assert rows.first.locator("h3").inner_text() == "Provider 006"
    page.tab.get_by_label("Search groups").fill("provider 39")
    assert rows.count() == 10
    page.tab.get_by_label("Search groups").fill("")
    rows.last.scroll_into_view_if_needed()
    rows.last.locator("dl").wait_for()
    assert page.tab.locator("li.row dl").count() < 80
    page.context.close()
    own.stop()
    assert page.complaints == []


def test_files_are_served_safely(served: Served) -> None:
    client = httpx.Client(base_url=served.url)
    first = client.get("/")
    assert first.status_code == 200
    assert "default-src 'none'" in first.headers["content-security-policy"]
    assert client.get("/", headers={"If-None-Match": first.headers["etag"]}).status_code == 304
    for name in re.findall(r'"(dashboard/[^"]+)"', first.text):
        assert client.get(f"/{name}").status_code == 200
        assert "http" not in re.sub(r"http://www\.w3\.org/2000/svg", "", client.get(f"/{name}").text)
    for name in ("__init__.py", "..%2Frecords.py", "nothing.js"):
        assert client.get(f"/dashboard/{name}").status_code == 404
    client.close()
