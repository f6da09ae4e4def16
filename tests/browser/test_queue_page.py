"""Queue, arming and report in a browser: by hand, by key, by typed name, without a net."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.app.night import CONFIG, night, queue
from tests.browser.conftest import House, Visit
from tests.deadline import eventually
from worker.clock.window import zone_named
from worker.queue.submit import enqueue
from worker.read import jobs
from worker.report.snapshot import latest_morning
from worker.schedule import policy
from worker.schedule.policy import Policy

pytestmark = pytest.mark.browser
Visits = Callable[..., Visit]
NEXT_ANSWER_MS = 30_000
"""A page that lost the cockpit tries again every 4 s or so, and asks with each beat, every 5 s."""


def in_turn(page: Page) -> list[str]:
    """The jobs as the page lists them."""
    script = "() => [...document.querySelectorAll('#turn [data-job]')].map(row => row.dataset.job)"
    return [str(number) for number in page.evaluate(script)]


def shows(page: Page, *numbers: int) -> None:
    """Wait until they stand in this order."""
    wanted = [str(job) for job in numbers]
    eventually(lambda: in_turn(page) == wanted, f"the page lists {wanted}", within_s=20)


def empty(house: House) -> None:
    """Leave an empty queue to the next test."""
    with night(house.db) as lane:
        for _ in jobs.next_jobs(house.db):
            lane.start().finish()


@pytest.mark.requirement("UI-04")
def test_a_job_is_moved_by_dragging_and_by_the_keyboard(visit: Visits, house: House) -> None:
    """By the grip with the mouse; by its arrow keys, with the focus kept and the move told."""
    one, two, three = (queue(house.db, name=name) for name in ("one", "two", "three"))
    seen = visit(house)
    page = seen.open("/queue")
    shows(page, one, two, three)

    grip = page.locator(f"#grip-{three}")
    grip.scroll_into_view_if_needed()
    page.locator(f"#grip-{three}").hover()
    page.mouse.down()
    target = page.locator(f"#q-{one}").bounding_box()
    assert target
    page.mouse.move(target["x"] + 200, target["y"] + 8, steps=4)
    expect(page.locator(f"#q-{one}")).to_have_attribute("data-drop", "before")
    page.mouse.up()
    shows(page, three, one, two)

    page.locator(f"#grip-{three}").focus()
    page.keyboard.press("ArrowDown")
    shows(page, one, three, two)
    expect(page.locator("#said")).to_contain_text(f"three, job {three}, was moved to place 2")
    assert page.evaluate("document.activeElement.id") == f"grip-{three}"
    page.keyboard.press("End")
    shows(page, one, two, three)
    page.keyboard.press("Home")
    shows(page, three, one, two)

    assert [job.id for job in jobs.next_jobs(house.db)] == [three, one, two]
    assert seen.never_reloaded()
    assert seen.complaints == []
    empty(house)


def test_an_escaped_drag_changes_nothing(visit: Visits, house: House) -> None:
    """What is begun by mistake can be left."""
    one, two = queue(house.db), queue(house.db)
    page = visit(house).open("/queue")
    shows(page, one, two)

    page.locator(f"#grip-{two}").hover()
    page.mouse.down()
    target = page.locator(f"#q-{one}").bounding_box()
    assert target
    page.mouse.move(target["x"] + 200, target["y"] + 8, steps=3)
    page.keyboard.press("Escape")
    page.mouse.up()

    expect(page.locator(f"#q-{one}")).not_to_have_attribute("data-drop", "before")
    assert in_turn(page) == [str(one), str(two)]
    assert len(jobs.audit(house.db, two)) == 1
    empty(house)


@pytest.mark.requirement("UI-04")
def test_a_move_that_nobody_heard_is_said_until_the_cockpit_answers_again(
    visit: Visits, house: House
) -> None:
    """The words of a lost connection do not outlive it."""
    one, two = queue(house.db, name="one"), queue(house.db, name="two")
    page = visit(house).open("/queue")
    shows(page, one, two)
    page.route("**/queue**", lambda route: route.abort())
    page.locator(f"#grip-{two}").press("ArrowUp")
    told = page.get_by_text("was not moved: the cockpit does not answer")
    expect(told).to_be_visible()
    expect(page.locator("#connection")).to_contain_text("stale since")

    page.unroute("**/queue**")
    three = queue(house.db, name="three")

    shows(page, one, two, three)
    expect(told).to_have_count(0)
    empty(house)


@pytest.mark.requirement("UI-04")
def test_without_script_the_buttons_do_the_same(visit: Visits, house: House) -> None:
    """No grip is shown then, and Up moves the job."""
    one, two = queue(house.db), queue(house.db)
    page = visit(house, java_script_enabled=False).page
    page.goto(house.server.url + "/queue")

    assert not page.locator(f"#grip-{two}").is_visible()
    page.locator(f"#q-{two}").get_by_role("button", name="Up").click()

    # The address is the new page's before its rows are there.
    expect(page).to_have_url(f"{house.server.url}/queue#q-{two}")
    rows = page.locator("#turn [data-job]")
    expect(rows).to_have_count(2)
    assert [row.get_attribute("data-job") for row in rows.all()] == [str(two), str(one)]
    empty(house)


@pytest.mark.requirement("UI-04")
def test_the_lane_is_armed_by_typing_its_name_and_disarmed_by_one_button(
    visit: Visits, house: House
) -> None:
    """A wrong name comes back with its reason; the right one arms, until it expires."""
    page = visit(house).open("/queue")
    page.get_by_label("cap usd").fill("5")
    page.get_by_label("name of the lane").fill("gpu7")
    page.get_by_role("button", name="Arm the lane").click()
    expect(page.locator(".field.wrong .problem")).to_contain_text("type test to confirm")
    assert policy.standing(house.db) is None

    page.get_by_label("name of the lane").fill("test")
    page.get_by_role("button", name="Arm the lane").click()
    expect(page.get_by_role("heading", name="Armed")).to_be_visible()
    found = policy.standing(house.db)
    assert found is not None
    assert (found.armed, found.cap_usd, found.changed_by) == (True, 5.0, "browser")
    assert found.expires_at is not None

    page.get_by_role("button", name="Disarm now").click()
    expect(page.get_by_role("heading", name="Autonomy is off")).to_be_visible()
    after = policy.standing(house.db)
    assert after is not None
    assert not after.armed


@pytest.mark.requirement("UI-04")
def test_an_armed_lane_that_runs_out_says_so_on_a_page_that_nobody_touches(
    visit: Visits, house: House
) -> None:
    """Nothing in the database changes at that moment."""
    ends = time.time() + 6
    policy.arm(house.db, Policy(zone="UTC", expires_at=ends), actor="t", now=time.time())
    page = visit(house).open("/queue")
    expect(page.get_by_role("heading", name="Armed lane")).to_be_visible()

    expect(page.get_by_role("heading", name="No longer armed")).to_be_visible(timeout=30_000)

    assert time.time() >= ends


@pytest.mark.requirement("UI-04")
def test_whoever_arms_a_lane_in_another_zone_is_told_whose_hours_are_meant(
    visit: Visits, house: House
) -> None:
    """The window of a box in UTC would end in the middle of its operator's morning."""
    page = visit(house, timezone_id="Australia/Eucla").open("/queue")
    zone, hint = page.get_by_label("zone", exact=True), page.locator("#arm-zone-here")
    zone.fill("")

    told = f"Hours of {zone_named(None).key} are meant; this browser's clock is in Australia/Eucla."
    expect(hint).to_contain_text(told)
    zone.fill("Europe/Berlin")
    expect(hint).to_contain_text("Hours of Europe/Berlin are meant")
    hint.get_by_role("button", name="Use Australia/Eucla").click()
    expect(zone).to_have_value("Australia/Eucla")
    expect(zone).to_be_focused()
    expect(hint).to_be_hidden()
    zone.fill("Mars/Base")
    expect(hint).to_be_hidden()


@pytest.mark.requirement("UI-04")
def test_who_sits_in_the_lanes_zone_is_told_nothing_of_zones(visit: Visits, house: House) -> None:
    """Also under another name of the same clock."""
    page = visit(house, timezone_id="Europe/Vienna").open("/queue")

    page.get_by_label("zone", exact=True).fill("Europe/Berlin")

    expect(page.locator("#arm-zone-here")).to_be_hidden()


@pytest.mark.requirement("UI-05")
def test_the_report_file_opens_from_a_folder_and_asks_nobody(
    chromium: Browser, visit: Visits, house: House, tmp_path: Path
) -> None:
    """Downloaded, opened by file://, drawn in its own style, printable; not one more request."""
    queue(house.db, name="last night")
    with night(house.db) as lane:
        attempt = lane.start()
        attempt.gate(0, 0.55)
        attempt.gate(20, 0.8)
        attempt.finish()
    page = visit(house).page
    page.goto(f"{house.server.url}/report?date={latest_morning(house.db, time.time())}")
    with page.expect_download() as download:
        page.get_by_role("link", name="One file").click()
    target = tmp_path / "report.html"
    download.value.save_as(target)

    context = chromium.new_context()
    opened = context.new_page()
    asked: list[str] = []
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(target.as_uri())

    expect(opened.locator(".standup .big")).to_contain_text("±")
    expect(opened.locator("svg.spark").first).to_be_visible()
    border = "getComputedStyle(document.querySelector('.standup')).borderLeftWidth"
    assert opened.evaluate(border) == "4px"
    opened.emulate_media(media="print")
    paper = "getComputedStyle(document.body).backgroundColor"
    assert opened.evaluate(paper) == "rgb(255, 255, 255)"
    assert asked == [target.as_uri()]
    context.close()


def test_the_pages_fit_a_phone_and_break_no_policy(visit: Visits, house: House) -> None:
    """Full and empty, dark and light: nothing scrolls sideways, the console stays silent."""
    name = "a name that is rather long, as names of sweeps over several settings are"
    queue(house.db, name=name)
    enqueue(house.db, "rl_run", CONFIG, actor="test", name=name, force=True, not_before="+2h")
    for scheme, width in (("light", 390), ("dark", 1200)):
        seen = visit(house, color_scheme=scheme, viewport={"width": width, "height": 800})
        for path in ("/queue", "/report", "/budget", "/new", "/new?clone=1&as=form"):
            seen.page.goto(house.server.url + path)
            seen.page.wait_for_load_state("load")
            over = "document.documentElement.scrollWidth - innerWidth"
            assert seen.page.evaluate(over) <= 0, (path, width)
        assert seen.complaints == []
        assert all(request.url.startswith(house.server.url) for request in seen.requests)
