"""The switch of verifier without a script: chosen, judged beside the page, shown."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import FilledHouse, Visit

pytestmark = pytest.mark.browser
Visits = Callable[..., Visit]


@pytest.mark.requirement("EX-23")
def test_completions_are_judged_again_without_a_script(
    visit: Visits, filled_house: FilledHouse
) -> None:
    """From the samples page by a form, and on that page by the same form."""
    seen = visit(filled_house.house, java_script_enabled=False)
    page = seen.page
    job = filled_house.filled.ids["gain"]

    page.goto(f"{filled_house.house.server.url}/jobs/{job}/samples?split=report&step=40")
    page.get_by_text("Judge these completions by other verifiers").click()
    page.get_by_label("exact", exact=True).check()
    page.get_by_label("gsm8k_any").check()
    page.get_by_role("button", name="Judge again").click()

    expect(page.get_by_role("heading", name="By answer format")).to_be_visible(timeout=60_000)
    expect(page.get_by_role("rowheader", name="gsm8k_any", exact=True)).to_be_visible()
    expect(page.get_by_role("checkbox", name="gsm8k_any")).to_be_checked()
    page.get_by_role("link", name="All", exact=True).click()
    expect(page.get_by_role("heading", name="120 completions")).to_be_visible()
