"""The dashboard on small screens, in light and dark colours, and by keyboard."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from service.dashboard.page import Page

if TYPE_CHECKING:
    from service.dashboard.browser import ServedShop


def _scrolls_sideways(page: Page) -> bool:
    return bool(page.tab.evaluate("document.documentElement.scrollWidth > innerWidth"))


def test_fits_a_phone(browser: Any, served: ServedShop) -> None:
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


def test_fits_every_width(page: Page) -> None:
    page.row("Toys").get_by_role("button", name="Toys", exact=True).click()
    page.row("Toys").locator("svg.pace").wait_for()
    for width in (320, 480, 760, 761, 880, 881, 1024, 1180, 1181):
        page.tab.set_viewport_size({"width": width, "height": 800})
        page.tab.wait_for_function(f"document.querySelector('svg.pace')?.clientWidth < {width}")
        assert not _scrolls_sideways(page), width


def _luminance(colour: str) -> float:
    """Return the relative luminance of "rgb(r, g, b)" as WCAG defines it."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


# Every visible text with its colour and background, every control without a name, and every duplicate id.
_INSPECT = """() => {
  const seen = (element) => element.checkVisibility({opacityProperty: true, visibilityProperty: true})
    && !element.closest('.visually-hidden, :disabled, .line dt');
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
    found = page.tab.evaluate(_INSPECT)
    assert len(found["texts"]) > 10
    for text, colour, ground in found["texts"]:
        low, high = sorted([_luminance(colour), _luminance(ground)])
        assert (high + 0.05) / (low + 0.05) >= 4.5, f"{text}: {colour} on {ground}"
    assert found["unnamed"] == []
    assert found["twice"] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_has_enough_contrast_in_light_and_dark(browser: Any, served: ServedShop, scheme: str) -> None:
    page = Page(browser, served.url, color_scheme=scheme)
    page.row("Toys").locator("dl").wait_for()
    ground = _luminance(page.tab.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert (ground < 0.05) == (scheme == "dark")
    page.tab.get_by_text("What the cost means").click()
    page.row("Toys").get_by_role("button", name="Toys", exact=True).click()
    page.row("Toys").locator("svg.pace").wait_for()
    _check_readable(page)
    page.edit("Toys", 10_000_000)
    page.wait_for(page.tab.locator("#verdict"), "This cannot be kept")
    page.tab.wait_for_function("!document.querySelector('#verdict').hasAttribute('data-waiting')")
    _check_readable(page)
    page.tab.locator("#editor [name=at_least]").fill("100")
    page.wait_for(page.tab.locator("#verdict"), "can be kept")
    page.tab.wait_for_function("!document.querySelector('#verdict').hasAttribute('data-waiting')")
    _check_readable(page)
    page.context.close()


def test_works_by_keyboard_alone(page: Page) -> None:
    page.row("Toys").locator("dl").wait_for()
    focused = "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"

    def tab_to(name: str) -> None:
        for _ in range(60):
            page.tab.keyboard.press("Tab")
            if page.tab.evaluate(focused) == name:
                return
        raise AssertionError(f"{name} cannot be reached by Tab")

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
    assert page.tab.evaluate("document.activeElement.name") == "at_least"
    for _ in range(25):  # the focus cycles inside the dialog
        page.tab.keyboard.press("Tab")
        assert page.tab.evaluate(
            "document.activeElement === document.body || !!document.activeElement.closest('#editor')"
        )
    tab_to("Delete")
    page.tab.keyboard.press("Enter")
    page.tab.locator("#confirm").wait_for()
    assert page.tab.evaluate(focused) == "Keep it", "the harmless button has the focus"
    page.tab.keyboard.press("Escape")
    page.tab.locator("#confirm").wait_for(state="hidden")
    assert page.tab.locator("#editor").is_visible(), "Escape closes one dialog at a time"
    page.tab.keyboard.press("Escape")
    page.tab.locator("#editor").wait_for(state="hidden")
    assert page.tab.evaluate(focused) == "Edit the promise for Toys"
