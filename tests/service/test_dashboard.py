"""The dashboard in a real Chromium, over the real service.

With FAIRSYNC_DASHBOARD_RAY=1 also over a real Ray cluster that loses a node, which takes half a minute.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from fairsync.schedule import Promise, Window
from service.browser import Served, open_browser
from service.shop import LossyShards, Shop, at

MARKUP = "<img src=x onerror=document.title='run'>"
LABELS = ["Toys", "LoopState", "Garden", "Kitchen", "Music", MARKUP]
DAY = Window.day("UTC")
FLOORS = {"Toys": 1500, "LoopState": 400, "Garden": 600, MARKUP: 300}


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
    made.measure()
    return made


@pytest.fixture(scope="module")
def served(shop: Shop) -> Iterator[Served]:
    running = Served(shop.promise_service)
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
    seen = shop.promise_service.overview()
    states = [view.state for view in seen.promises]
    headline = page.tab.locator("h1#headline").inner_text()
    bad = sum(state in ("impossible", "at risk") for state in states)
    assert (f"All {len(states)} promises are on course." in headline) == (bad == 0)
    for view in seen.promises:
        assert page.figure(str(view.group), "soFar").inner_text() == f"{view.exposures:,}"
        assert page.figure(str(view.group), "atEnd").inner_text() == f"{round(view.projected):,}"
        assert page.figure(str(view.group), "promise").inner_text() == f"{view.floor:,} a day"
        assert page.row(str(view.group)).locator(".state").inner_text() == view.state
        cost = next(group.cost_share for group in seen.groups if group.group == view.group)
        assert cost is not None
        assert page.figure(str(view.group), "cost").inner_text() == (_percent(cost) if cost > 0 else "none")
    missed = [one for one in shop.promise_service.past(100) if not one.kept]
    assert missed, "the first day had too little traffic"
    assert page.tab.locator("#past li").count() == len(missed)
    # A label is text, whatever it looks like.
    assert page.row(MARKUP).count() == 1
    assert page.tab.title() != "run"


def _percent(share: float, digits: int = 2) -> str:
    return "< 0.01%" if share < 0.0001 else f"{float(f'{100 * share:.{digits}g}'):g}%"


def test_tells_what_fairness_costs_next_to_the_least_possible(page: Page, shop: Shop) -> None:
    page.row("Toys").locator("dl").wait_for()
    overview = shop.promise_service.overview()
    least = overview.least
    assert least.cost_share is not None
    assert least.least_share is not None
    assert least.ratio is not None
    assert page.tab.locator("#cost").inner_text() == _percent(least.cost_share, 3)
    assert page.tab.locator("#least").inner_text() == _percent(least.least_share, 3)
    assert least.ratio > 1.005, "otherwise it is told in other words"
    assert f"{least.ratio:.3g} times the least possible" in page.tab.locator("#lead").inner_text()
    # Nothing of it is exact, and whoever reads it is told.
    assert "about" in page.tab.locator("#cost-of").inner_text()
    assert "about" in page.tab.locator("#least-of").inner_text()
    assert "about" in page.tab.locator("#lead").inner_text()
    page.tab.get_by_text("What the cost means").click()
    page.wait_for(page.tab.locator("#cost-known"), f"Both are estimates, from {least.sample} requests")
    assert "replica" not in page.tab.locator("#cost-known").inner_text(), "there is but one"
    page.tab.get_by_label("Sort by").select_option("cost")
    costs = {str(group.group): group.cost_share or 0.0 for group in overview.groups}
    impressions = page.tab.locator("li.row h3").all_inner_texts()
    assert [costs[label] for label in impressions] == sorted((costs[label] for label in impressions), reverse=True)


def test_a_clock_that_is_not_the_readers_is_named(browser: Any, served: Served, shop: Shop) -> None:
    zone = shop.view("Toys").window.zone
    for reader, named in (
        (zone, r"requests by [\d:, \w]*\d\d:\d\d\."),
        ("Asia/Tokyo", r"requests by .*\d\d:\d\d \w+(\+\d+)?\."),
    ):
        page = Page(browser, served.url, timezone_id=reader)
        page.wait_for(page.tab.locator("#lead"), named)
        page.context.close()


def test_pace_is_drawn_from_what_was_and_what_is_expected(page: Page, shop: Shop) -> None:
    page.row("Toys").get_by_role("button", name="Toys", exact=True).click()
    chart = page.row("Toys").locator("svg.pace")
    chart.wait_for()
    pace, view = shop.promise_service.pace(shop.view("Toys").id), shop.view("Toys")
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


def test_the_band_ends_where_the_service_says(page: Page, shop: Shop) -> None:
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
    assert float(places[0][1]) == float(places[-1][1]) == pytest.approx(here, abs=0.06), "now nothing is in doubt"
    # The dotted line is the forecast's: in step with the traffic, from nothing to the floor.
    dotted = re.findall(r"[ML]([\d.]+) ([\d.]+)", chart.locator("path.expected").get_attribute("d"))
    drawn = [value(float(y)) for _, y in dotted]
    assert drawn == pytest.approx([due for _, due in pace.expected], abs=0.004 * pace.floor)
    page.row("Toys").get_by_text("with little or much traffic").wait_for()


def test_follows_the_traffic(page: Page, shop: Shop) -> None:
    page.row("LoopState").locator("dl").wait_for()
    before = shop.view("LoopState").exposures
    shop.serve(40)
    after = shop.view("LoopState").exposures
    assert after > before
    page.wait_for(page.figure("LoopState", "soFar"), f"^{after:,}$")


def test_a_floor_is_changed_after_a_preview(page: Page, shop: Shop) -> None:
    page.edit("LoopState", 420)
    page.wait_for(page.tab.locator("#verdict"), "can be kept")
    page.wait_for(page.tab.locator("#verdict"), "would then cost|would cost")
    assert shop.view("LoopState").floor == 400, "nothing is changed by looking"
    page.tab.get_by_role("button", name="Save").click()
    page.wait_for(page.figure("LoopState", "promise"), "^420 a day$")
    assert shop.view("LoopState").floor == 420


def test_an_impossible_floor_is_refused_and_a_possible_one_offered(page: Page, shop: Shop) -> None:
    page.edit("Garden", 10_000_000)
    page.wait_for(page.tab.locator("#verdict"), "This cannot be kept")
    save = page.tab.get_by_role("button", name="Save")
    assert save.is_disabled()
    page.tab.keyboard.press("Enter")
    assert page.tab.locator("#editor").is_visible()
    view = shop.view("Garden")
    asked = replace(shop.promise_service.scheduler.state.promises[view.id], floor=10_000_000)
    largest = shop.promise_service.preview(asked, view.id).largest
    page.tab.get_by_role("button", name=f"Use {largest:,}").click()
    page.wait_for(page.tab.locator("#verdict"), "This can be kept")
    assert save.is_enabled()
    page.tab.get_by_role("button", name="Cancel").click()
    assert shop.view("Garden").floor == 600


def test_what_became_impossible_after_the_preview_is_refused_with_the_reason(page: Page, shop: Shop) -> None:
    view = shop.view("Garden")
    asked = replace(shop.promise_service.scheduler.state.promises[view.id], floor=10_000_000)
    largest = shop.promise_service.preview(asked, view.id).largest
    page.edit("Garden", largest)
    page.wait_for(page.tab.locator("#verdict"), "can be kept")
    other = shop.promise_service.set_promise(Promise("Kitchen", 500, Window.day("UTC")))
    try:
        page.tab.get_by_role("button", name="Save").click()
        page.wait_for(page.tab.locator("#editor-problem"), f"{largest:,}")
        assert page.tab.locator("#editor").is_visible()
        assert shop.view("Garden").floor == 600
    finally:
        shop.promise_service.delete_promise(other.id)


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
    assert all(view.group != "Music" for view in shop.promise_service.promises())


def test_a_promise_that_has_not_begun_says_when_and_keeps_its_days(page: Page, shop: Shop) -> None:
    window = Window("day", "UTC", at("2026-03-20T00:00"), at("2026-03-23T00:00"))
    made = shop.promise_service.set_promise(Promise("Music", 50, window))
    try:
        page.wait_for(page.figure("Music", "promise"), r"^50 a day, in \d+d")
        page.edit("Music", 60)
        page.wait_for(page.tab.locator("#verdict"), "can be kept")
        page.tab.get_by_role("button", name="Save").click()
        page.wait_for(page.figure("Music", "promise"), r"^60 a day, in \d+d")
        changed = shop.view("Music").window
        assert (changed.start, changed.end) == (at("2026-03-20T00:00"), at("2026-03-23T00:00"))
    finally:
        shop.promise_service.delete_promise(made.id)


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


# Every text that is seen, with its colour and the one behind it; and every control without a name; and ids given twice.
_LOOK = """() => {
  const seen = (element) => element.checkVisibility({opacityProperty: true, visibilityProperty: true})
    && !element.closest('.unseen, :disabled, .line dt');
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (!/, 0\\)$/.test(colour)) return colour;
    }
    return getComputedStyle(document.documentElement).backgroundColor;
  };
  const open = document.querySelector('dialog[open]') ?? document.body;
  const texts = [], unnamed = [];
  for (const element of open.querySelectorAll('*')) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    const style = getComputedStyle(element);
    const colour = element instanceof SVGElement ? style.fill : style.color;
    if (own && seen(element)) texts.push([element.textContent.trim().slice(0, 40), colour, behind(element)]);
    if (element.matches('button, input, select, summary, svg[role], [role=region], [role=group], dialog')) {
      const label = element.getAttribute('aria-label') || element.getAttribute('aria-labelledby')
        || element.labels?.[0]?.textContent || element.textContent;
      if (!label?.trim()) unnamed.push(element.outerHTML.slice(0, 90));
    }
  }
  const ids = [...document.querySelectorAll('[id]')].map((element) => element.id);
  return {texts, unnamed, twice: ids.filter((id, place) => ids.indexOf(id) !== place)};
}"""


def _check_readable(page: Page) -> None:
    refresh = page.tab.evaluate(_LOOK)
    assert len(refresh["texts"]) > 10
    for text, colour, ground in refresh["texts"]:
        low, high = sorted([_light(colour), _light(ground)])
        assert (high + 0.05) / (low + 0.05) >= 4.5, f"{text}: {colour} on {ground}"
    assert refresh["unnamed"] == []
    assert refresh["twice"] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_can_be_read_in_light_and_in_the_dark(browser: Any, served: Served, scheme: str) -> None:
    page = Page(browser, served.url, color_scheme=scheme)
    page.row("Toys").locator("dl").wait_for()
    ground = _light(page.tab.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert (ground < 0.05) == (scheme == "dark")
    page.tab.get_by_text("What the cost means").click()
    page.row("Toys").get_by_role("button", name="Toys", exact=True).click()
    page.row("Toys").locator("svg.pace").wait_for()
    _check_readable(page)
    page.edit("Toys", 10_000_000)
    page.wait_for(page.tab.locator("#verdict"), "This cannot be kept")
    page.tab.wait_for_function("!document.querySelector('#verdict').hasAttribute('data-waiting')")
    _check_readable(page)
    page.tab.get_by_label("Exposures, at least").fill("100")
    page.wait_for(page.tab.locator("#verdict"), "can be kept")
    page.tab.wait_for_function("!document.querySelector('#verdict').hasAttribute('data-waiting')")
    _check_readable(page)
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

    tab_to("What the cost means")
    page.tab.keyboard.press("Enter")
    page.tab.locator("#cost-known").wait_for()
    tab_to("New promise")
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
    tab_to("Delete")
    page.tab.keyboard.press("Enter")
    page.tab.locator("#confirm").wait_for()
    assert page.tab.evaluate(focused) == "Keep it", "what does no harm comes first"
    page.tab.keyboard.press("Escape")
    page.tab.locator("#confirm").wait_for(state="hidden")
    assert page.tab.locator("#editor").is_visible(), "one at a time"
    page.tab.keyboard.press("Escape")
    page.tab.locator("#editor").wait_for(state="hidden")
    assert page.tab.evaluate(focused) == "Edit the promise for Toys"


def test_says_when_the_service_is_gone_and_when_it_is_back(browser: Any, shop: Shop) -> None:
    own = Served(shop.promise_service)
    page = Page(browser, own.url)
    link = page.tab.locator("#link")
    page.wait_for(link, "^Live$")
    own.stop()
    page.wait_for(link, r"No answer\. Last update \d+ sec ago")
    assert page.row("Toys").is_visible(), "what was known stays"
    banner = page.tab.locator("#lost")
    page.wait_for(banner, "The service does not answer. What is shown is how it stood at 14:00")
    assert page.tab.evaluate("getComputedStyle(document.querySelector('#lost')).position") == "sticky"
    page.wait_for(page.tab.locator("#announcer"), "does not answer")
    own.start()
    page.tab.get_by_role("button", name="Try now").click()
    page.wait_for(link, "^Live$")
    banner.wait_for(state="hidden")
    page.context.close()
    own.stop()


def test_shards_that_are_lost_and_come_back(browser: Any) -> None:
    promises = [Promise(label, floor, DAY) for label, floor in FLOORS.items()]
    lossy = Shop(LABELS, promises, at("2026-03-03T00:00"), index=lambda catalog: LossyShards(catalog, 4))
    lossy.turn(12)
    index = lossy.promise_service.front.index
    assert isinstance(index, LossyShards)
    own = Served(lossy.promise_service)
    page = Page(browser, own.url)
    health, alerts = page.tab.locator("#health"), page.tab.locator("#alerts")
    page.wait_for(health, "4 of 4 shards up. All recent answers saw the whole catalog")
    assert page.tab.locator("#up").inner_text() == "4 of 4"
    index.lost = frozenset({2})
    share = len(index.shards[2].rows) / len(lossy.promise_service.catalog)
    page.wait_for(alerts, f"1 of 4 shards does not answer \\(2\\): {share:.1%} of the items are out of reach")
    page.wait_for(page.tab.locator("#announcer"), "does not answer")
    assert page.tab.locator("#up").inner_text() == "3 of 4"
    down = health.locator("li.down")
    assert down.inner_text() == f"Shard 2.0 down, {len(index.shards[2].rows)} items: no answer"
    lossy.serve(40)
    seen = lossy.promise_service.overview().degraded
    assert seen > 0.1
    page.wait_for(alerts, f"{seen:.1%} of recent answers lacked a part")
    page.wait_for(health, r"\d+(\.\d)?% of recent answers saw the whole catalog")
    index.lost = frozenset()
    page.wait_for(health, "4 of 4 shards up")
    alerts.get_by_text("does not answer").wait_for(state="detached")
    assert health.locator("li.down").count() == 0
    page.context.close()
    own.stop()
    assert page.complaints == []


@pytest.mark.skipif(os.environ.get("FAIRSYNC_DASHBOARD_RAY") != "1", reason="FAIRSYNC_DASHBOARD_RAY=1 turns it on")
def test_a_ray_cluster_that_loses_a_node(browser: Any) -> None:
    ray_cluster = pytest.importorskip("search.ray_cluster")
    from fairsync.search.ray import RayIndex

    with ray_cluster.RayCluster(nodes=2, cpus=1) as cluster:
        promises = [Promise(label, floor, DAY) for label, floor in FLOORS.items()]
        far = Shop(LABELS, promises, at("2026-03-03T00:00"), index=lambda catalog: RayIndex(catalog, 2, deadline=2.0))
        far.turn(10)
        far.measure()
        assert far.promise_service.overview().least.sample > 100, "the estimate is made through the cluster"
        own = Served(far.promise_service)
        page = Page(browser, own.url)
        page.wait_for(page.tab.locator("#health"), "2 of 2 shards up")
        cluster.kill_node(cluster.nodes[0])
        page.wait_for(page.tab.locator("#alerts"), "shards? does not answer")
        page.wait_for(page.tab.locator("#link"), "^Live$")
        assert page.tab.locator("#health li.down").count() >= 1
        page.context.close()
        own.stop()
        assert page.complaints == []


def test_without_promises_it_says_what_to_do(browser: Any) -> None:
    empty = Shop(["Toys", "LoopState"], [], at("2026-03-03T00:00"))
    own = Served(empty.promise_service)
    page = Page(browser, own.url)
    page.wait_for(page.tab.locator("#headline"), "Nothing is promised yet")
    page.wait_for(page.tab.locator("#matches"), "make a new promise")
    assert page.tab.locator("#least").inner_text() == "–"
    page.tab.get_by_text("What the cost means").click()
    page.wait_for(page.tab.locator("#cost-known"), "No request was answered yet")
    empty.promise_service.coordinator.replica = "shop-3:8000"  # as one that shares its promise has
    page.wait_for(page.tab.locator("#cost-known"), "that it has answered itself. This is shop-3:8000.")
    page.tab.locator("label", has_text="No promise").click()
    page.row("Toys").get_by_role("button", name="Promise exposures to Toys").click()
    page.tab.get_by_label("Exposures, at least").fill("20")
    page.tab.locator("#save:enabled").click()
    page.wait_for(page.tab.locator("#headline"), "The promise is")
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
    own = Served(shop.promise_service, reader=["report"], boss=["report", "admin"])
    page = Page(browser, own.url)
    page.sign_in("wrong")
    page.wait_for(page.tab.locator("#login-problem"), "Check it, or ask whoever runs the service")
    page.wait_for(page.tab.locator("#link"), "Not signed in")
    page.sign_in("reader")
    page.row("LoopState").locator("dl").wait_for()
    assert page.tab.evaluate("[sessionStorage.length, localStorage.length]") == [1, 0]
    floor = shop.view("LoopState").floor
    page.edit("LoopState", floor - 10)
    page.tab.locator("#save:enabled").click()
    page.wait_for(page.tab.locator("#editor-problem"), "may look but not change")
    assert shop.view("LoopState").floor == floor
    page.tab.keyboard.press("Escape")
    page.tab.get_by_role("button", name="Sign out").click()
    page.sign_in("boss")
    page.edit("LoopState", floor - 10)
    page.tab.locator("#save:enabled").click()
    page.wait_for(page.figure("LoopState", "promise"), f"^{floor - 10:,} a day$")
    page.context.close()
    own.stop()
    assert page.complaints == []


def test_hundreds_of_groups_are_searched_sorted_and_drawn_where_visible(browser: Any) -> None:
    labels = [f"Provider {number:03}" for number in range(400)]
    many = Shop(
        labels, [Promise(label, 1 + number % 7, DAY) for number, label in enumerate(labels)], at("2026-03-03T00:00")
    )
    own = Served(many.promise_service)
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
