"""The held-out table of a run in a browser, in each look and on a phone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.app.judged import judged
from tests.browser.conftest import House, Visit
from worker.clock.night import night_at
from worker.clock.window import zone_named

pytestmark = pytest.mark.browser
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 900}},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}},
}


@pytest.fixture(scope="module")
def job_id(house: House, tmp_path_factory: pytest.TempPathFactory) -> int:
    return judged(tmp_path_factory.mktemp("judged")).taken_into(house.db)


@pytest.mark.requirement("EX-07")
@pytest.mark.requirement("EX-22")
@pytest.mark.parametrize("look", LOOKS)
def test_each_bench_is_read_and_its_lost_rows_are_opened(
    visit: Callable[..., Visit], house: House, job_id: int, look: str
) -> None:
    """Nothing makes the page wider than its window; a chart of each is drawn."""
    seen = visit(house, **LOOKS[look])
    page = seen.open(f"/jobs/{job_id}")
    nines = page.locator(".benches tr", has_text="nines")
    expect(nines).to_contain_text("loss")
    expect(page.locator(".benches tr", has_text="decides")).to_have_count(1)
    nines.locator("summary").click()
    expect(nines.locator("li").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    charts = page.locator("[data-name=bench] canvas")
    charts.first.scroll_into_view_if_needed()
    expect(charts).to_have_count(4)
    if folder := os.environ.get("NIGHTLANE_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"benches-{look}.png", full_page=True)

    nines.get_by_role("link", name="rows lost").click()

    expect(page.locator("main")).to_contain_text("of 400 meet the conditions")
    expect(page.locator("[aria-current]", has_text="Flipped to wrong")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if folder := os.environ.get("NIGHTLANE_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"benches-samples-{look}.png")
    assert seen.complaints == []


@pytest.mark.requirement("EX-07")
@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("address", ["/", "/report?date={day}"])
def test_lists_and_reports_say_the_loss_beside_the_gain(
    visit: Callable[..., Visit], house: House, job_id: int, look: str, address: str
) -> None:
    """In the room that they have."""
    day = night_at(time.time(), zone_named(None)).day
    page = visit(house, **LOOKS[look]).open(address.format(day=day))

    row = page.locator("tr:has(.verdict)", has_text="mix").first
    expect(row).to_contain_text("gain")
    expect(row).to_contain_text("lost on nines")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if folder := os.environ.get("NIGHTLANE_SCREENSHOTS"):
        name = "report" if "report" in address else "board"
        page.screenshot(path=Path(folder) / f"{name}-{look}.png", full_page=True)
