"""The door in Chromium: what a browser keeps, shows and sends along."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from tests.browser.conftest import House, Visit
from tests.browser.test_every_page import RULES, serious
from tests.browser.test_other_sites import elsewhere
from tests.door import address
from worker.read import jobs

__all__ = ["elsewhere"]
pytestmark = [pytest.mark.browser, pytest.mark.requirement("AP-01")]


def test_an_opened_address_shows_the_board_and_leaves_no_secret_in_the_browser(
    chromium: Browser, house: House
) -> None:
    """Gone from the bar and the history; no script reads the cookie; no second use."""
    context = chromium.new_context()
    page = context.new_page()
    sent: list[str] = []
    page.on("request", lambda asked: sent.append(asked.headers.get("referer", "")))
    once = address(house.db, house.server.url)

    page.goto(once)

    expect(page).to_have_url(f"{house.server.url}/")
    page.wait_for_selector("#connection[data-state=live]")
    assert page.evaluate("history.length") <= 2
    assert page.evaluate("document.cookie") == ""
    page.go_back()
    assert "/enter/" not in page.url
    assert not any("/enter/" in referer for referer in sent)
    [kept] = context.cookies()
    assert (kept["httpOnly"], kept["sameSite"]) == (True, "Strict")
    second = chromium.new_context().new_page()
    second.goto(once)
    expect(second.get_by_role("heading")).to_have_text("This address was used, or is over")
    second.context.close()
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_for_whoever_is_not_let_in_is_accessible_and_asks_nobody_else(
    scheme: Literal["light", "dark"], chromium: Browser, house: House
) -> None:
    """It says the command, on a phone too, and runs no script."""
    context = chromium.new_context(color_scheme=scheme, viewport={"width": 390, "height": 844})
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))

    page.goto(f"{house.server.url}/jobs/1")

    expect(page.locator("main")).to_contain_text("cockpit open")
    assert serious(Axe().run(page, options=RULES).response) == []
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert all(url.startswith(house.server.url) for url in asked)
    assert not any(url.endswith(".js") or "/stream" in url for url in asked)
    context.close()


_FORM = """address => {
  const form = document.createElement("form");
  form.method = "post";
  form.action = address;
  document.body.append(form);
  form.submit();
}"""


@pytest.mark.parametrize("site", ["another", "ours"])
def test_a_form_of_another_site_acts_for_nobody(
    site: str, elsewhere: str, visit: Callable[..., Visit], new_house: Callable[..., House]
) -> None:
    """The browser is signed in and keeps its strict cookie back. The same form of ours acts."""
    house = new_house()
    page = visit(house).page
    page.goto(elsewhere if site == "another" else f"{house.server.url}/help")

    with page.expect_response("**/queue/pause") as answered:
        page.evaluate(_FORM, f"{house.server.url}/queue/pause")

    sent = answered.value.request.all_headers()
    assert ("cookie" in sent) == (site == "ours")
    assert (jobs.paused(house.db) is not None) == (site == "ours")
