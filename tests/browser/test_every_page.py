"""What every page must hold: accessible, inside its width, nothing from outside, no complaint."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.browser.conftest import FilledHouse, House, Visit
from tests.browser.places import PLACES, Place

pytestmark = pytest.mark.browser
Visits = Callable[..., Visit]

WIDE, PHONE = {"width": 1280, "height": 844}, {"width": 390, "height": 844}
LOOKS = [("light", WIDE), ("dark", PHONE)]
"""Each full page is seen in both schemes and both widths; all four together in the long form."""
EMPTY_LOOKS = RARE_LOOKS = [("light", PHONE)]
if os.environ.get("NIGHTLANE_LONG"):
    LOOKS += [("light", PHONE), ("dark", WIDE)]
    EMPTY_LOOKS = RARE_LOOKS = LOOKS

RULES = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    "rules": {"target-size": {"enabled": True}},
    "resultTypes": ["violations"],
}


@pytest.fixture(scope="module")
def axe() -> Axe:
    """axe-core, as its package brings it along."""
    return Axe()


Look = tuple[str, dict[str, int]]


def looks(visit: Visits, house: House, wanted: Sequence[Look] = LOOKS) -> Iterator[Visit]:
    """A visit in each look, motion reduced, so that nothing is measured half way."""
    for scheme, viewport in wanted:
        options = {"color_scheme": scheme, "viewport": viewport, "reduced_motion": "reduce"}
        yield visit(house, **options)


@pytest.mark.requirement("UI-10")
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_a_full_page_is_accessible_fits_and_asks_no_other_host(
    place: Place, visit: Visits, filled_house: FilledHouse, axe: Axe
) -> None:
    """In light and dark, wide and on a phone: axe finds nothing serious, nothing sticks out."""
    for seen in looks(visit, filled_house.house, RARE_LOOKS if place.rare else LOOKS):
        check(seen, place.at(filled_house.filled), filled_house.house.server.url, axe)


@pytest.mark.requirement("UI-10")
@pytest.mark.parametrize(
    "place", [place for place in PLACES if place.empty], ids=lambda place: place.name
)
def test_an_empty_page_is_accessible_fits_and_asks_no_other_host(
    place: Place, visit: Visits, house: House, axe: Axe
) -> None:
    """The same while nothing was ever queued: the first page that a new user sees."""
    for seen in looks(visit, house, EMPTY_LOOKS):
        check(seen, place.at(None), house.server.url, axe)


def check(seen: Visit, address: str, url: str, axe: Axe) -> None:
    """Everything that must hold for one page in one look."""
    page = seen.open(address)
    page.wait_for_load_state("load")
    assert serious(axe.run(page, options=RULES).response) == []
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert page.evaluate(HEADINGS) == [], "a level of headings is left out"
    assert [request.url for request in seen.requests if not request.url.startswith(url)] == []
    expected = next((words for part, words in REFUSED.items() if part in address), None)
    assert [text for text in seen.complaints if not expected or expected not in text] == []


@pytest.mark.requirement("UI-10")
def test_text_of_twice_the_size_still_fits_a_phone(
    visit: Visits, filled_house: FilledHouse
) -> None:
    """With the reader's own font size at 32 px (WCAG 1.4.4), no page scrolls sideways."""
    seen = visit(filled_house.house, viewport=PHONE)
    page = seen.open("/")
    sizes = {"standard": 32, "fixed": 26}
    page.context.new_cdp_session(page).send("Page.setFontSizes", {"fontSizes": sizes})
    wide = {}
    for place in PLACES:
        seen.open(place.at(filled_house.filled))
        assert page.evaluate("getComputedStyle(document.documentElement).fontSize") == "32px"
        over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        if over > 0 or page.evaluate(COVERED):
            wide[place.name] = over
    assert wide == {}


COVERED = """() => {
  const [moment, heading] = ["#live > .asof", "#live h1"].map((of) => document.querySelector(of));
  if (!moment || !heading) return false;
  const range = document.createRange();
  range.selectNodeContents(heading);
  const [a, b] = [moment.getBoundingClientRect(), range.getBoundingClientRect()];
  return a.top < b.bottom && b.top < a.bottom && a.left < b.right && b.left < a.right;
}"""
"""Whether "as of" lies over the first heading."""


REFUSED = {"nothing-is-here": "404 (Not Found)", "low=many": "422 (Unprocessable"}
"""What the browser complains about on a page that is there to say so."""


def serious(report: dict[str, Any]) -> list[str]:
    """What axe calls serious or critical, and landmarks of one name: rule, and its first places."""
    return [
        f"{found['id']}: {[node['html'][:160] for node in found['nodes'][:3]]}"
        for found in report["violations"]
        if found["impact"] in {"serious", "critical"} or found["id"] == "landmark-unique"
    ]


HEADINGS = """() => {
  const levels = [...document.querySelectorAll("h1, h2, h3, h4")].map((h) => Number(h.tagName[1]));
  return levels.filter((level, index) => level > (index ? levels[index - 1] : 0) + 1);
}"""


@pytest.mark.requirement("UI-10")
@pytest.mark.parametrize("address", ["/", "/new", "/new?as=form"])
def test_the_focus_is_visible_and_never_hidden_under_what_sticks(
    address: str, visit: Visits, filled_house: FilledHouse
) -> None:
    """Every stop of the Tab key has an outline, and nothing lies over it."""
    page = visit(filled_house.house, viewport=WIDE).open(address)
    stops = 0
    for _ in range(60):
        page.keyboard.press("Tab")
        found = page.evaluate(FOCUSED)
        if found is None:
            break
        stops += 1
        assert found["outline"] == "solid", found
        assert found["seen"], found
    assert stops > 20


FOCUSED = """() => {
  const focused = document.activeElement;
  if (focused === document.body) return null;
  const box = focused.getBoundingClientRect();
  const at = (x, y) => document.elementFromPoint(x, y);
  const y = Math.min(box.bottom - 2, box.top + 8);
  const over = at(box.left + Math.min(8, box.width / 2), y);
  return {
    outline: getComputedStyle(focused).outlineStyle,
    seen: over !== null && (focused.contains(over) || over.contains(focused)),
    html: focused.outerHTML.slice(0, 120),
    over: over && over.outerHTML.slice(0, 120),
  };
}"""


def test_axe_would_have_found_something(visit: Visits, house: House, axe: Axe) -> None:
    """The check itself can fail: a button without a name, a text without contrast."""
    page: Page = visit(house).open("/help")
    page.evaluate(
        """() => {
          const main = document.querySelector("main");
          main.append(document.createElement("button"));
          const pale = document.createElement("p");
          pale.textContent = "hardly to be read";
          pale.style.setProperty("color", "#ddd");
          main.append(pale);
        }"""
    )

    found = " ".join(serious(axe.run(page, options=RULES).response))

    assert "button-name" in found
    assert "color-contrast" in found
