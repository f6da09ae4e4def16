"""Queue, arming and report in a browser: by hand, by key, by finger, without a net."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.app.night import CONFIG, night, queue
from tests.browser.conftest import House, Visit
from tests.browser.test_every_page import RULES, serious
from tests.deadline import eventually
from tests.zones import zone_where_it_is
from worker.clock.window import zone_named
from worker.queue.submit import enqueue
from worker.read import jobs
from worker.report.snapshot import latest_morning
from worker.schedule import policy
from worker.schedule.policy import Policy

pytestmark = pytest.mark.browser
Visits = Callable[..., Visit]
A_MINUTE_S = 60
"""What a new user may need for a task."""
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
def test_a_new_user_arms_tonight_with_one_click_and_disarms_it_with_one(
    visit: Visits, house: House
) -> None:
    """Without reading anything: safe terms stand there, and it is over in the morning."""
    queue(house.db, name="tonight")
    seen = visit(house)
    page = seen.open("/queue")
    begun = time.monotonic()
    expect(page.locator("#fits")).to_contain_text("1 job fits, about")

    page.get_by_role("button", name="Arm tonight").click()

    armed = page.get_by_role("heading", name="Armed: tonight from 22:00 to 07:00")
    expect(armed).to_be_visible()
    assert time.monotonic() - begun < A_MINUTE_S
    found = policy.standing(house.db)
    assert found is not None
    assert (found.armed, found.cap_usd, found.max_failures) == (True, 5.0, 3)
    assert found.expires_at is not None
    assert found.expires_at - time.time() < 34 * 3600
    page.get_by_role("button", name="Disarm now").click()
    expect(page.get_by_role("button", name="Arm tonight")).to_be_visible()
    after = policy.standing(house.db)
    assert after is not None
    assert not after.armed
    assert seen.complaints == []
    empty(house)


@pytest.mark.requirement("UI-04")
def test_refused_terms_stand_at_their_field(visit: Visits, house: House) -> None:
    """With what was typed; corrected, they are taken."""
    page = visit(house).open("/queue")
    page.get_by_label("to", exact=True).fill("25:00")
    page.get_by_role("button", name="Arm tonight").click()

    field = page.get_by_label("to", exact=True)
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(field).to_have_value("25:00")
    expect(page.locator("#arm-closes-help")).to_contain_text("is no time of the day")
    field.fill("06:30")
    page.get_by_role("button", name="Arm tonight").click()
    expect(page.get_by_role("heading", name="to 06:30")).to_be_visible()
    page.get_by_role("button", name="Disarm now").click()


@pytest.mark.requirement("UI-04")
def test_the_night_is_drawn_again_while_its_terms_are_typed(
    visit: Visits, new_house: Callable[..., House]
) -> None:
    """Two jobs of an hour at 1.80 $/h: five dollars hold both, two hold one. Nothing is armed."""
    house = new_house(price_usd_h=1.8)
    first, second = queue(house.db), queue(house.db)
    seen = visit(house)
    page = seen.open(f"/queue?zone={quote(zone_where_it_is(12))}")
    expect(page.locator("#fits")).to_contain_text("2 jobs fit, about $3.60")

    page.get_by_label("spend at most").fill("2")

    expect(page.locator("#fits")).to_contain_text("1 job fits, about $1.80")
    expect(page.locator(f"#q-{second}")).to_contain_text("waits: cap")
    expect(page.locator(f"#q-{first} svg .guess")).to_have_count(1)
    expect(page.get_by_label("spend at most")).to_be_focused()
    page.get_by_label("to", exact=True).fill("7 o'clock")
    expect(page.locator("#fits")).to_contain_text("Not yet: to: is no time of the day")
    assert policy.standing(house.db) is None
    assert seen.never_reloaded()
    assert seen.complaints == []


@pytest.mark.requirement("UI-04")
def test_everything_is_stopped_from_the_queue_page(visit: Visits, house: House) -> None:
    """Two clicks: the queue is paused, the lane disarmed, what runs asked to stop."""
    policy.arm(house.db, Policy(zone="UTC"), actor="t", now=time.time())
    queue(house.db)
    with night(house.db) as lane:
        attempt = lane.start()
        page = visit(house).open("/queue")
        page.get_by_role("link", name="Stop all").click()
        page.locator("main").get_by_role("button", name="Stop").first.click()

        page.goto(house.server.url + "/queue")
        expect(page.locator(f"#runs-{attempt.job_id}")).to_contain_text("asked to stop")
        expect(page.get_by_role("button", name="Resume the queue")).to_be_visible()
        expect(page.get_by_role("button", name="Arm tonight")).to_be_visible()
        attempt.finish()
    page.get_by_role("button", name="Resume the queue").click()
    expect(page.get_by_role("button", name="Resume the queue")).to_have_count(0)


@pytest.mark.requirement("UI-10")
@pytest.mark.parametrize("width", [390, 1280])
def test_armed_paused_refused_and_open_the_page_is_accessible_and_fits(
    visit: Visits, house: House, width: int
) -> None:
    """In the dark, where contrast is hardest; axe finds nothing serious, nothing sticks out."""
    queue(house.db, name="waits")
    viewport = {"width": width, "height": 844}
    options = {"color_scheme": "dark", "viewport": viewport, "reduced_motion": "reduce"}
    page = visit(house, **options).open("/queue")

    def fine() -> None:
        assert serious(Axe().run(page, options=RULES).response) == []
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0

    page.get_by_label("to", exact=True).fill("25:00")
    page.get_by_role("button", name="Arm tonight").click()
    expect(page.locator("#arm-closes-help")).to_be_visible()
    page.get_by_text("Every night…").click()
    page.get_by_text("Pause…").click()
    fine()
    page.get_by_role("button", name="Pause the queue").click()
    policy.arm(house.db, Policy(zone="UTC", cap_usd=5), actor="t", now=time.time())
    expect(page.get_by_role("heading", name="Armed: ")).to_be_visible()
    page.get_by_text("Change the terms…").click()
    fine()
    page.get_by_role("button", name="Resume the queue").click()
    page.get_by_role("button", name="Disarm now").click()
    expect(page.get_by_role("button", name="Arm tonight")).to_be_visible()
    empty(house)


@pytest.mark.requirement("UI-04")
def test_a_row_is_moved_edited_and_cancelled_by_keys_with_a_way_back(
    visit: Visits, house: House
) -> None:
    """j k choose, Alt and an arrow moves, t runs next, e edits, Del cancels; Undo takes it back."""
    one, two, three = (queue(house.db, name=name) for name in ("one", "two", "three"))
    page = visit(house).open("/queue")
    shows(page, one, two, three)

    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Alt+ArrowDown")
    shows(page, one, three, two)
    expect(page.locator(f"#q-{two} a").first).to_be_focused()
    page.keyboard.press("t")
    shows(page, two, one, three)
    page.keyboard.press("Alt+ArrowDown")
    shows(page, one, two, three)

    page.keyboard.press("Delete")
    toast = page.locator("[data-toast]")
    expect(toast).to_contain_text(f"Job {two} was cancelled.")
    shows(page, one, three)
    toast.get_by_role("button", name="Undo").click()
    shows(page, one, two, three)

    page.keyboard.press("j")
    page.keyboard.press("e")
    page.wait_for_url(f"**/queue/jobs/{one}/edit")
    page.get_by_label("name", exact=True).fill("first of all")
    page.get_by_role("button", name="Save").click()
    page.wait_for_url(f"**/queue#q-{one}")
    expect(page.locator(f"#q-{one}")).to_contain_text("first of all")
    empty(house)


@pytest.mark.requirement("UI-04")
def test_a_job_is_moved_by_a_finger(visit: Visits, house: House) -> None:
    """The grip takes the touch, the page does not scroll away under it."""
    one, two = queue(house.db, name="one"), queue(house.db, name="two")
    page = visit(house, viewport={"width": 390, "height": 844}, has_touch=True).open("/queue")
    shows(page, one, two)
    page.locator(f"#q-{two}").scroll_into_view_if_needed()
    boxes = [page.locator(at).bounding_box() for at in (f"#grip-{two}", f"#q-{one}")]
    assert boxes[0]
    assert boxes[1]
    finger = page.context.new_cdp_session(page)

    def touch(kind: str, *points: tuple[float, float]) -> None:
        touched = [{"x": x, "y": y} for x, y in points]
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touched})

    touch("touchStart", (boxes[0]["x"] + 8, boxes[0]["y"] + 8))
    touch("touchMove", (boxes[1]["x"] + 60, boxes[1]["y"] + 30))
    touch("touchMove", (boxes[1]["x"] + 60, boxes[1]["y"] + 6))
    touch("touchEnd")

    shows(page, two, one)
    empty(house)


@pytest.mark.requirement("UI-04")
def test_two_people_who_move_jobs_at_once_lose_none(visit: Visits, house: House) -> None:
    """Each move is by the neighbour that its person saw; both pages end with one order."""
    numbers = [queue(house.db, name=name) for name in ("one", "two", "three", "four")]
    pages = [visit(house).open("/queue") for _ in range(2)]
    for page in pages:
        shows(page, *numbers)
        page.evaluate("document.getElementById('live').removeAttribute('data-live')")

    pages[0].locator(f"#grip-{numbers[3]}").press("Home")
    shows(pages[0], numbers[3], *numbers[:3])
    pages[1].locator(f"#grip-{numbers[2]}").press("ArrowUp")

    after = [numbers[3], numbers[0], numbers[2], numbers[1]]
    shows(pages[1], *after)
    assert [job.id for job in jobs.next_jobs(house.db)] == after
    pages[0].reload()
    shows(pages[0], *after)
    empty(house)


@pytest.mark.requirement("UI-04")
def test_an_armed_lane_that_runs_out_says_so_on_a_page_that_nobody_touches(
    visit: Visits, house: House
) -> None:
    """Nothing in the database changes at that moment."""
    ends = time.time() + 6
    policy.arm(house.db, Policy(zone="UTC", expires_at=ends), actor="t", now=time.time())
    page = visit(house).open("/queue")
    expect(page.get_by_role("heading", name="Armed: ")).to_be_visible()

    expect(page.get_by_role("heading", name="No longer armed")).to_be_visible(timeout=30_000)

    assert time.time() >= ends
    policy.disarm(house.db, actor="t", now=time.time())


@pytest.mark.requirement("UI-04")
def test_whoever_arms_a_lane_in_another_zone_is_told_whose_hours_are_meant(
    visit: Visits, new_house: Callable[..., House]
) -> None:
    """The window of a box in UTC would end in the middle of its operator's morning."""
    house = new_house()
    page = visit(house, timezone_id="Australia/Eucla").open("/queue")
    hint = page.locator("#arm-zone-here")

    told = f"Hours of {zone_named(None).key} are meant; this browser's clock is in Australia/Eucla."
    expect(hint).to_contain_text(told)
    hint.get_by_role("button", name="Use Australia/Eucla").click()
    expect(hint).to_be_hidden()
    expect(page.locator(".night .axis")).to_contain_text("Australia/Eucla")
    expect(page.get_by_label("from", exact=True)).to_be_focused()
    page.get_by_role("button", name="Arm tonight").click()
    expect(page.get_by_role("heading", name="(Australia/Eucla)")).to_be_visible()
    found = policy.standing(house.db)
    assert found is not None
    assert found.zone == "Australia/Eucla"


@pytest.mark.requirement("UI-04")
def test_who_sits_in_the_lanes_zone_is_told_nothing_of_zones(
    visit: Visits, new_house: Callable[..., House]
) -> None:
    """Also under another name of the same clock; of one that nobody knows neither."""
    page = visit(new_house(), timezone_id="Europe/Vienna").open("/queue")
    page.get_by_text("Every night…").click()
    zone, hint = page.get_by_label("zone", exact=True), page.locator("#arm-zone-here")

    zone.fill("UTC")
    expect(hint).to_contain_text("Hours of UTC are meant")
    zone.fill("Europe/Berlin")
    expect(hint).to_be_hidden()
    zone.fill("Mars/Base")
    expect(hint).to_be_hidden()


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
