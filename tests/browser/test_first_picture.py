"""A run page's first frame: the charts as the server drew them, before any script runs."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

import pytest
from PIL import Image, ImageChops, ImageFilter
from playwright.sync_api import Page, expect

from tests.app.night import Attempt, night, queue
from tests.browser.conftest import House, Visit

pytestmark = pytest.mark.browser
Visits = Callable[..., Visit]

POOL = (138, 109, 59)
"""`--chart-a` in the light scheme."""
NEAR = 24
"""Of each colour channel: what smoothing makes of a line's edge."""


@pytest.fixture
def attempt(house: House) -> Iterator[Attempt]:
    """A run of forty steps that goes on."""
    queue(house.db)
    with night(house.db) as lane:
        made = lane.start()
        made.gate(0, 0.55)
        for step in range(1, 41):
            values = {
                "pool/score": 0.3 + (step * 7 % 11) / 40,
                "train/kl": 0.01 * (step * 5 % 17),
                "train/entropy": 0.4,
            }
            made.add("metric", step=step, values=values)
        made.gate(40, 0.7)
        yield made
        made.finish()


@pytest.mark.requirement("UI-02")
def test_a_browser_without_scripts_shows_the_charts(
    visit: Visits, house: House, attempt: Attempt
) -> None:
    """With their axes, legends and how many points stand for how many values."""
    page = visit(house, java_script_enabled=False).page
    page.goto(f"{house.server.url}/jobs/{attempt.job_id}")

    chart = page.locator("#plot-learning .still")
    expect(chart).to_be_visible()
    expect(chart.locator(".legend")).to_contain_text("held-out (select rows)")
    expect(chart.locator(".drawn")).to_have_text("all 40 points")
    assert page.locator("#plot-kl .still path.line").count() > 0


@pytest.mark.requirement("UI-02")
@pytest.mark.parametrize("width", [1280, 390])
def test_no_line_moves_when_the_browsers_chart_takes_its_place(
    width: int, visit: Visits, house: House, attempt: Attempt
) -> None:
    """Wide and on a phone: pixels of the one lie within three of the other, both ways."""
    seen = visit(house, viewport={"width": width, "height": 1600}, color_scheme="light")
    seen.page.route("**/static/charts.js*", lambda route: route.abort())
    page = seen.open(f"/jobs/{attempt.job_id}")
    expect(page.locator("#plot-learning .still")).to_be_visible()
    expect(page.locator("#connection")).to_have_attribute("data-state", "live")
    before, place = _lines(page), _top(page, "#series-h")
    seen.page.unroute("**/static/charts.js*")
    page.reload()
    expect(page.locator("#plot-kl canvas")).to_be_visible()
    expect(page.locator(".still")).to_have_count(0)
    expect(page.locator("#connection")).to_have_attribute("data-state", "live")

    for still, own in zip(before, _lines(page), strict=True):
        assert _lit(still) > 200
        assert _lit(ImageChops.subtract(own, _wider(still))) < 0.01 * _lit(own)
        assert _lit(ImageChops.subtract(still, _wider(own))) < 0.01 * _lit(still)
    assert abs(_top(page, "#series-h") - place) <= 12, "what is below moves by less than a line"


def _lines(page: Page) -> list[Image.Image]:
    """Of the wide chart and of one with units at both sides, white where its first line is."""
    return [
        _line(page, f"#plot-{name}", height) for name, height in (("learning", 260), ("kl", 180))
    ]


def _line(page: Page, plot: str, height: int) -> Image.Image:
    box = page.locator(plot).bounding_box()
    assert box is not None
    shot = Image.open(io.BytesIO(page.screenshot(clip={**box, "height": height}))).convert("RGB")
    near = [
        channel.point([255 if abs(value - wanted) <= NEAR else 0 for value in range(256)])
        for channel, wanted in zip(shot.split(), POOL, strict=True)
    ]
    return ImageChops.darker(ImageChops.darker(near[0], near[1]), near[2])


def _wider(mask: Image.Image) -> Image.Image:
    return mask.filter(ImageFilter.MaxFilter(7))


def _lit(mask: Image.Image) -> int:
    return mask.histogram()[255]


def _top(page: Page, selector: str) -> float:
    box = page.locator(selector).bounding_box()
    assert box is not None
    return box["y"]
