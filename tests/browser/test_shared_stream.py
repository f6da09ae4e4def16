"""One stream for all tabs of a browser, and the keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, Route, expect
from playwright.sync_api import Error as PlaywrightError

from tests.app.night import night, queue
from tests.browser.conftest import House, Visit, set_hidden
from tests.deadline import eventually
from tests.door import bearer

pytestmark = pytest.mark.browser
Visits = Callable[..., Visit]
TABS = 8
"""A browser opens six connections to one host."""


def streams(house: House) -> int:
    """Connections that the server holds open for a stream."""
    return int(_asked(house, "/healthz")["viewers"])


def run_all(house: House) -> None:
    """Leave an empty queue to the next test."""
    with night(house.db) as lane:
        while _queued(house):
            lane.start().finish()


def _queued(house: House) -> int:
    return int(_asked(house, "/api/v1/queue")["counts"]["queued"])


def _asked(house: House, path: str) -> Any:
    headers = bearer(house.db)
    return httpx.get(f"{house.server.url}{path}", headers=headers, trust_env=False).json()


@pytest.mark.requirement("UI-11")
def test_eight_tabs_share_one_stream_and_live_on_when_the_first_is_closed(
    chromium: Browser, house: House
) -> None:
    """Every one of them hears of a new job; no tab depends on another one."""
    context = chromium.new_context()
    house.enter(context)
    tabs = [context.new_page() for _ in range(TABS)]
    for tab in tabs:
        tab.goto(house.server.url)
        expect(tab.locator("#connection")).to_have_text("live")
    assert streams(house) == 1

    first = queue(house.db, name="heard by all")
    for tab in tabs:
        expect(tab.locator(f"#next-{first}")).to_be_visible()

    tabs[0].close()
    second = queue(house.db, name="heard by the rest")
    for tab in tabs[1:]:
        expect(tab.locator(f"#next-{second}")).to_be_visible()
        expect(tab.locator("#connection")).to_have_text("live")
    assert streams(house) == 1
    context.close()
    run_all(house)


@pytest.mark.requirement("UI-11")
def test_a_tab_that_crashed_holds_no_stream_open(chromium: Browser, house: House) -> None:
    """It said no goodbye; the worker hears of its end all the same."""
    context = chromium.new_context()
    house.enter(context)
    living, dying = context.new_page(), context.new_page()
    for tab in (living, dying):
        tab.goto(house.server.url)
        expect(tab.locator("#connection")).to_have_text("live")

    with pytest.raises(PlaywrightError):
        dying.goto("chrome://crash")  # without a goodbye: no `pagehide` comes before it
    set_hidden(living, hidden=True)

    eventually(lambda: streams(house) == 0, "nobody looks, and nothing is held open", within_s=10)
    set_hidden(living, hidden=False)
    expect(living.locator("#connection")).to_have_text("live")
    context.close()


@pytest.mark.requirement("UI-11")
def test_tabs_live_on_when_the_worker_dies_with_the_tab_that_began_it(
    chromium: Browser, house: House
) -> None:
    """It lives in the process of one tab; the others begin another one, and miss nothing."""
    context = chromium.new_context()
    house.enter(context)
    first, *others = (context.new_page() for _ in range(3))
    for tab in (first, *others):
        tab.goto(house.server.url)
        expect(tab.locator("#connection")).to_have_text("live")

    with pytest.raises(PlaywrightError):
        first.goto("chrome://crash")
    job_id = queue(house.db, name="heard by the living")

    for tab in others:
        expect(tab.locator(f"#next-{job_id}")).to_be_visible()
        expect(tab.locator("#connection")).to_have_text("live")
    assert streams(house) == 1
    context.close()
    run_all(house)


@pytest.mark.requirement("UI-11")
@pytest.mark.parametrize("without", ["SharedWorker", "BroadcastChannel"])
def test_a_browser_without_shared_workers_has_a_stream_all_the_same(
    visit: Visits, house: House, without: str
) -> None:
    """The page runs the same file for itself; without any way to share, alone."""
    seen = visit(house)
    seen.page.add_init_script(f"delete window.SharedWorker; delete window.{without}")
    page = seen.open("/")

    job_id = queue(house.db)

    expect(page.locator(f"#next-{job_id}")).to_be_visible()
    assert any("/api/v1/stream" in request.url for request in seen.requests)
    assert seen.complaints == []
    run_all(house)


@pytest.mark.requirement("UI-11")
def test_nine_windows_of_a_browser_without_shared_workers_share_one_stream(
    chromium: Browser, house: House
) -> None:
    """The seventh stream would never be answered, nor any page that is asked for after it. Whoever
    holds it may rest or crash: the next one goes on.
    """
    context = chromium.new_context()
    house.enter(context)
    context.add_init_script("delete window.SharedWorker")
    windows = [context.new_page() for _ in range(TABS + 1)]
    for window in windows:
        window.goto(house.server.url)
        expect(window.locator("#connection")).to_have_text("live")
    assert streams(house) == 1

    heard = queue(house.db, name="heard by all")
    for window in windows:
        expect(window.locator(f"#next-{heard}")).to_be_visible()

    first, second, *others = windows
    set_hidden(first, hidden=True)
    heard = queue(house.db, name="while the first rests")
    for window in (second, *others):
        expect(window.locator(f"#next-{heard}")).to_be_visible()
    with pytest.raises(PlaywrightError):
        second.goto("chrome://crash")
    heard = queue(house.db, name="after the second crashed")
    for window in others:
        expect(window.locator(f"#next-{heard}")).to_be_visible()
        expect(window.locator("#connection")).to_have_text("live")
    set_hidden(first, hidden=False)
    expect(first.locator(f"#next-{heard}")).to_be_visible()
    assert streams(house) == 1
    context.close()
    run_all(house)


@pytest.mark.requirement("UI-11")
def test_the_strip_of_every_page_follows_the_stream(visit: Visits, house: House) -> None:
    """Also on a page that shows nothing live itself."""
    page = visit(house).open("/help")
    strip = page.locator("#strip")
    expect(strip).to_contain_text("0 waiting")

    queue(house.db, name="for tonight")

    expect(strip).to_contain_text("1 waiting")
    with night(house.db) as lane:
        attempt = lane.start()
        expect(strip.get_by_role("link", name="for tonight")).to_be_visible()
        attempt.finish()
    expect(strip).to_contain_text("running nothing", use_inner_text=True)


@pytest.mark.requirement("UI-10")
def test_keys_go_to_pages_along_rows_and_to_the_search_but_never_from_a_field(
    visit: Visits, house: House
) -> None:
    """And they can be switched off, for those whose input speaks letters by itself."""
    ids = [queue(house.db, name=name) for name in ("one", "two")]
    run_all(house)
    page = visit(house).open("/")

    page.keyboard.press("j")
    page.keyboard.press("j")
    assert _focused(page) == f"/jobs/{ids[0]}"
    page.keyboard.press("k")
    assert _focused(page) == f"/jobs/{ids[1]}"
    page.keyboard.press("/")
    page.keyboard.type("gb?one")
    expect(page.get_by_role("searchbox")).to_have_value("gb?one")
    page.get_by_role("searchbox").blur()
    page.keyboard.press("g")
    page.keyboard.press("a")
    page.wait_for_url("**/audit")
    page.keyboard.press("?")
    page.wait_for_url("**/help")

    page.get_by_label("single keys are on").uncheck()
    page.keyboard.press("g")
    page.keyboard.press("b")
    page.get_by_label("single keys are on").check()
    assert page.url.endswith("/help")
    page.keyboard.press("g")
    page.keyboard.press("b")
    page.wait_for_url(house.server.url + "/")


def _focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.getAttribute('href')"))


@pytest.mark.requirement("UI-01")
def test_what_is_typed_into_the_filter_survives_a_live_update(visit: Visits, house: House) -> None:
    """The list under the field is drawn again; the field is not, and neither is a choice."""
    queue(house.db)
    run_all(house)
    page = visit(house).open("/")
    page.get_by_role("searchbox").fill("half a wo")
    page.locator("tbody input[type=checkbox]").first.check()

    job_id = queue(house.db)

    expect(page.locator(f"#next-{job_id}")).to_be_visible()
    expect(page.get_by_role("searchbox")).to_have_value("half a wo")
    expect(page.locator("tbody input[type=checkbox]").first).to_be_checked()
    run_all(house)


@pytest.mark.requirement("UI-11")
def test_what_is_written_before_the_stream_stands_is_shown_at_once(
    visit: Visits, house: House
) -> None:
    """Every page says which change it shows, also one that shows nothing live but the strip."""
    page = visit(house).page
    page.add_init_script("delete window.SharedWorker")

    def late(asked: Route) -> None:
        queue(house.db, name="meanwhile")
        asked.continue_()

    page.route("**/api/v1/stream*", late)
    page.goto(f"{house.server.url}/help")

    expect(page.locator("#strip")).to_contain_text("1 waiting")
    run_all(house)
