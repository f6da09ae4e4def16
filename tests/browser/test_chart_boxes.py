"""A chart's box: it keeps its size while the chart loads, and without scripts has a table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Route, expect

from tests.app.night import Attempt, night, queue
from tests.browser.conftest import FilledHouse, House, Visit
from tests.browser.test_every_page import RULES, serious

pytestmark = pytest.mark.browser
Visits = Callable[..., Visit]

STEPS = 3000
"""More than a chart has points: what stands under it is as long as it gets."""
TWO = "/compare?job={gain}&job={loss}"
PLACES = ("/jobs/{gain}", "/jobs/{memory}?tab=memory", "/machine?job={memory}", TWO,
          TWO + "&job={unproven}&job={pool_only}&job={crash}&job={memory}")  # fmt: skip


@pytest.fixture
def attempt(house: House) -> Iterator[Attempt]:
    """A long run with every chart of its kind."""
    queue(house.db)
    names = ("pool/reward_mean", "pool/reward_std", "rollout/zero_variance", "train/kl",
             "train/entropy", "rollout/length_mean", "rollout/truncated")  # fmt: skip
    with night(house.db) as lane:
        made = lane.start()
        made.gate(0, 0.55)
        for step in range(1, STEPS + 1):
            values = dict.fromkeys(names, 0.001 * step) | {"pool/score": step / STEPS}
            made.add("metric", step=step, values=values)
        made.gate(STEPS, 0.7)
        made.finish()
        yield made


BOXES = """Object.fromEntries([...document.querySelectorAll("figure.chart")]
  .filter((figure) => figure.checkVisibility()).map((figure) => {
    const { x, y, width, height } = figure.getBoundingClientRect();
    return [figure.querySelector(".plot").id, [x, y + scrollY, width, height]];
  }))"""
SHIFTED = """performance.shifted = [];
new PerformanceObserver((list) => {
  for (const { sources } of list.getEntries()) {
    for (const { node } of sources) {
      if (node?.parentElement?.closest("main")) performance.shifted.push(node.outerHTML);
    }
  }
}).observe({ type: "layout-shift", buffered: true });"""


def boxes_before_and_after(seen: Visit, address: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of each chart, while nothing of it has come, and with its lines drawn."""
    held: list[Route] = []
    released = False

    def hold(route: Route) -> None:
        if released:
            route.continue_()
        else:
            held.append(route)

    seen.page.route(re.compile(r"\.json"), hold)
    seen.page.add_init_script(SHIFTED)
    page = seen.open(address)
    before = page.evaluate(BOXES)
    assert page.locator("canvas").count() == 0
    released = True
    for route in held:
        route.continue_()
    drawn(page)
    return before, page.evaluate(BOXES)


def drawn(page: Page) -> None:
    """Wait until every chart that can be seen has its lines."""
    for plot in page.locator("figure.chart .plot:visible").all():
        expect(plot.locator("canvas")).to_be_visible()


@pytest.mark.requirement("UI-02")
@pytest.mark.parametrize("width", [1280, 390])
def test_a_charts_box_keeps_its_size_while_it_loads(
    width: int, visit: Visits, house: House, attempt: Attempt
) -> None:
    """Of a long run, wide and on a phone: no box moves or grows, and nothing else of the page."""
    seen = visit(house, viewport={"width": width, "height": 1600})

    before, after = boxes_before_and_after(seen, f"/jobs/{attempt.job_id}?find=kl&show=train%2Fkl")

    assert len(before) == 5
    assert after == before
    assert seen.page.evaluate("performance.shifted") == []


@pytest.mark.requirement("UI-02")
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("place", PLACES)
def test_no_page_moves_when_its_charts_are_drawn(
    place: str, width: int, visit: Visits, filled_house: FilledHouse
) -> None:
    """Memory and several runs side by side, too."""
    seen = visit(filled_house.house, viewport={"width": width, "height": 1600})

    before, after = boxes_before_and_after(seen, place.format(**filled_house.filled.ids))

    assert before
    assert after == before
    assert seen.page.evaluate("performance.shifted") == []


@pytest.mark.requirement("UI-02")
@pytest.mark.parametrize("width", [1280, 390])
def test_without_scripts_each_charts_table_is_there(
    width: int, visit: Visits, filled_house: FilledHouse
) -> None:
    """In its place, no wider than the page, and no empty box is left."""
    viewport = {"width": width, "height": 844}
    seen = visit(filled_house.house, java_script_enabled=False, viewport=viewport)
    for place in PLACES:
        page = seen.page
        page.goto(filled_house.house.server.url + place.format(**filled_house.filled.ids))

        charts = page.locator("figure.chart:visible").all()
        assert charts
        for chart in charts:
            expect(chart.locator("table")).to_be_visible()
            expect(chart.locator(".plot")).to_be_hidden()
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.mark.requirement("UI-10")
def test_the_tables_of_a_page_without_scripts_can_be_read_by_whoever_reads_them(
    visit: Visits, filled_house: FilledHouse
) -> None:
    """The check is a script, so the tables are put where it runs."""
    seen = visit(filled_house.house)
    for place in PLACES:
        page = seen.open(place.format(**filled_house.filled.ids))
        page.evaluate(UNFOLDED)
        assert page.locator("figure.chart table.cards").count() > 0
        assert serious(Axe().run(page, options=RULES).response) == []


UNFOLDED = """document.querySelectorAll("figure noscript").forEach((found) => {
  found.outerHTML = found.textContent;
})"""
