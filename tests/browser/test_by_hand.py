"""By key, by finger, on a small screen, with forced colours, and without any script at all."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Route, expect

from tests.app.night import CONFIG, night, queue
from tests.browser.conftest import FilledHouse, House, Visit
from tests.browser.test_every_page import FOCUSED, PHONE, RULES, WIDE, serious
from tests.browser.test_queue_page import empty, in_turn, shows
from worker.queue import control
from worker.queue.submission import submission
from worker.queue.submit import enqueue
from worker.queue.sweeps import submit_sweep
from worker.read import jobs

pytestmark = pytest.mark.browser
Visits = Callable[..., Visit]

FOCUS = "document.activeElement.id"
SMALL = """selector => [...document.querySelectorAll(selector)]
  .map((one) => one.getBoundingClientRect())
  .filter((box) => box.width && (box.width < 24 || box.height < 24))
  .map((box) => [box.width, box.height])"""
CUT = """() => [...document.querySelectorAll(".cards tbody :is(th, td)")]
  .filter((cell) => cell.scrollWidth > cell.clientWidth
    || cell.getBoundingClientRect().right > innerWidth)
  .map((cell) => cell.textContent.trim().slice(0, 60))"""


# --- a chart without a pointer ---


@pytest.mark.requirement("UI-02")
def test_a_part_of_a_run_is_shown_by_two_typed_steps(visit: Visits, house: House) -> None:
    """The fields follow a zoom too; the whole run comes back without losing the focus."""
    queue(house.db)
    with night(house.db) as lane:
        made = lane.start()
        for step in range(1, 41):
            values = {"pool/score": step / 40, "train/kl": 0.01 * step}
            made.add("metric", step=step, values=values)
        made.finish()
    seen = visit(house, viewport=PHONE, has_touch=True)
    page = seen.open(f"/jobs/{made.job_id}")
    drawn = page.locator("#plot-kl .drawn")
    expect(drawn).to_have_text("all 40 points")

    page.get_by_label("step", exact=True).fill("30")
    page.get_by_label("to step").fill("11")
    page.keyboard.press("Enter")

    expect(drawn).to_have_text("all 20 points")
    assert "from=11&to=30" in page.url
    expect(page.get_by_label("step", exact=True)).to_have_value("11")
    page.get_by_role("button", name="Show the whole run").click()
    expect(drawn).to_have_text("all 40 points")
    assert page.evaluate(FOCUS) == "chart-controls"
    assert seen.never_reloaded()
    assert seen.complaints == []


@pytest.mark.requirement("UI-02")
def test_an_answer_that_comes_late_does_not_bring_back_another_part(
    visit: Visits, house: House
) -> None:
    """Two parts asked for in a row: what is drawn in the end is the one that the fields say."""
    queue(house.db)
    with night(house.db) as lane:
        made = lane.start()
        for step in range(1, 41):
            made.add("metric", step=step, values={"train/kl": 0.01 * step})
        made.finish()
    page = visit(house).open(f"/jobs/{made.job_id}")
    drawn = page.locator("#plot-kl .drawn")
    expect(drawn).to_have_text("all 40 points")
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    first = re.compile(r"/charts/kl\.json\?(?!.*\bto=).*\bfrom=30")
    page.route(first, hold)

    page.get_by_label("step", exact=True).fill("30")
    page.get_by_label("to step").fill("35")
    page.keyboard.press("Enter")
    expect(drawn).to_have_text("all 6 points")
    (late,) = held
    with page.expect_request_finished(lambda asked: asked == late.request):
        late.continue_()
    page.evaluate("() => new Promise((next) => requestAnimationFrame(() => setTimeout(next)))")

    expect(drawn).to_have_text("all 6 points")


# --- stale, forced colours, small ---


@pytest.mark.requirement("UI-10")
def test_a_stale_page_can_still_be_read(visit: Visits, new_house: Callable[..., House]) -> None:
    """That it is old is said by a frame and in words; no text loses its contrast."""
    house = new_house()
    queue(house.db, name="waits behind it")
    for scheme in ("light", "dark"):
        page = visit(house, color_scheme=scheme, reduced_motion="reduce").open("/")
        house.server.kill()
        page.wait_for_selector("body[data-stream=stale]")

        assert serious(Axe().run(page, options=RULES).response) == []
        assert page.evaluate("getComputedStyle(document.getElementById('live')).outlineStyle") == (
            "dashed"
        )
        house.server.start()


@pytest.mark.requirement("UI-10")
def test_progress_and_the_place_of_a_drop_are_seen_in_forced_colours(
    visit: Visits, filled_house: FilledHouse
) -> None:
    """Where every colour and shadow is the reader's own."""
    page = visit(filled_house.house, forced_colors="active").open("/queue")
    page.evaluate("document.querySelector('[data-job]').dataset.drop = 'before'")
    assert page.evaluate(STYLE, ["[data-drop]", "borderTopWidth"]) == "4px"

    page = visit(filled_house.house, forced_colors="active").open("/")
    assert page.evaluate(STYLE, ["progress", "borderTopWidth"]) == "1px"


STYLE = "([selector, name]) => getComputedStyle(document.querySelector(selector))[name]"


@pytest.mark.requirement("UI-10")
@pytest.mark.parametrize(
    "address",
    [
        "/compare?sweep={sweep}",
        "/budget",
        "/jobs/{gain}/charts/learning",
    ],
)
def test_no_cell_of_a_wide_table_is_cut_off_on_a_phone(
    address: str, visit: Visits, filled_house: FilledHouse
) -> None:
    """The answer stood in the last column: each row is a card there, each value has its name."""
    made = filled_house.filled
    page = visit(filled_house.house, viewport=PHONE).page
    page.goto(filled_house.house.server.url + address.format(**made.ids, sweep=made.sweep_id))

    assert page.locator(".cards tbody tr").count() > 1
    assert page.evaluate(CUT) == []
    nameless = ".cards tbody td:not([data-label], [data-none], :has(input, a, .state))"
    texts = page.locator(nameless).all_inner_texts()
    assert {text for text in texts if text.strip()} <= {"meter", "settle", "reserve", "external"}


@pytest.mark.requirement("UI-10")
def test_what_is_pressed_is_large_enough_for_a_finger(
    visit: Visits, filled_house: FilledHouse
) -> None:
    """24 pixels each way, where a letter or a box of the browser's own size stood."""
    made = filled_house.filled
    page = visit(filled_house.house, viewport=PHONE).page
    for address, selector in (
        ("/queue", ".arm :is(button, input:not([type=hidden]), summary)"),
        (f"/compare?sweep={made.sweep_id}", ".sweep-table :is(thead a, input)"),
        (f"/jobs/{made.ids['gain']}", "figcaption a"),
    ):
        page.goto(filled_house.house.server.url + address)
        assert page.locator(selector).count()
        assert page.evaluate(SMALL, selector) == [], address


@pytest.mark.requirement("UI-10")
def test_the_focus_is_not_hidden_under_the_bar_of_the_form_on_a_phone(
    visit: Visits, filled_house: FilledHouse
) -> None:
    """Backwards through the form: each field that is reached stands below the bar."""
    page = visit(filled_house.house, viewport=PHONE).open("/new?as=form")
    page.locator(".settings :is(input, select):not([type=hidden])").last.focus()
    for _ in range(25):
        page.keyboard.press("Shift+Tab")
        found = page.evaluate(FOCUSED)
        assert found["seen"], found


# --- the queue ---


@pytest.mark.requirement("UI-04")
def test_keys_that_come_faster_than_answers_are_all_obeyed(visit: Visits, house: House) -> None:
    """Five presses are five places, in the order in which they were pressed."""
    numbers = [queue(house.db, name=f"job {number}") for number in range(7)]
    page = visit(house).open("/queue")
    shows(page, *numbers)
    page.locator(f"#grip-{numbers[-1]}").focus()

    page.evaluate(
        """() => {
          for (let press = 0; press < 5; press++) {
            const key = new KeyboardEvent("keydown", { key: "ArrowUp", bubbles: true });
            document.activeElement.dispatchEvent(key);
          }
        }"""
    )

    shows(page, numbers[0], numbers[-1], *numbers[1:-1])
    assert [job.id for job in jobs.next_jobs(house.db)] == [int(job) for job in in_turn(page)]
    expect(page.locator("#said")).to_contain_text("was moved to place 2")
    empty(house)


@pytest.mark.requirement("UI-04")
def test_a_refused_move_is_shown_to_everybody(visit: Visits, house: House) -> None:
    """Not only told to a reader of the screen; the next move that is done takes it away."""
    one, two = queue(house.db), queue(house.db)
    seen = visit(house)
    page = seen.open("/queue")
    shows(page, one, two)
    page.evaluate("document.getElementById('live').removeAttribute('data-live')")
    control.cancel(house.db, one, actor="test")  # this page does not hear of it
    page.locator(f"#grip-{two}").focus()

    page.keyboard.press("ArrowUp")

    said = page.locator("#said")
    expect(said).to_contain_text(f"job {two}, was not moved: ")
    expect(said).to_have_class("cause")
    assert page.evaluate(SMALL, "#said.cause") == []
    expect(said).to_be_in_viewport()
    shows(page, two)
    three = queue(house.db)
    page.reload()
    page.wait_for_selector("#connection[data-state=live]")
    shows(page, two, three)
    page.locator(f"#grip-{three}").focus()
    page.keyboard.press("ArrowUp")
    shows(page, three, two)
    expect(said).to_have_class("unseen")
    empty(house)


@pytest.mark.requirement("UI-04")
def test_a_button_of_a_row_keeps_its_place_and_the_focus(visit: Visits, house: House) -> None:
    """The page is not left; where the button is no longer needed the grip has the focus."""
    numbers = [queue(house.db, name=f"job {number}") for number in range(12)]
    seen = visit(house, viewport={"width": 1280, "height": 500})
    page = seen.open("/queue")
    shows(page, *numbers)
    row = page.locator(f"#q-{numbers[-1]}")

    row.get_by_role("button", name="Up").click()

    shows(page, *numbers[:-2], numbers[-1], numbers[-2])
    expect(row.get_by_role("button", name="Up")).to_be_focused()
    expect(row).to_be_in_viewport()
    row.get_by_role("button", name="Top").click()
    shows(page, numbers[-1], *numbers[:-1])
    expect(page.locator(f"#grip-{numbers[-1]}")).to_be_focused()
    assert seen.never_reloaded()
    assert seen.complaints == []
    empty(house)


# --- keys ---


@pytest.mark.requirement("UI-10")
def test_the_search_key_leads_to_the_filter_of_the_runs(
    visit: Visits, filled_house: FilledHouse
) -> None:
    """From a page that has none."""
    page = visit(filled_house.house).open("/machine")

    page.keyboard.press("/")

    page.wait_for_url("**/runs#find")
    page.wait_for_function(f"{FOCUS} === 'find'")


@pytest.mark.requirement("UI-10")
def test_the_compare_key_takes_what_is_chosen_in_a_sweep(
    visit: Visits, filled_house: FilledHouse
) -> None:
    """As it does on the board."""
    page = visit(filled_house.house).open(f"/compare?sweep={filled_house.filled.sweep_id}")
    for box in page.locator(".sweep-table input").all()[:2]:
        box.check()

    page.keyboard.press("c")

    page.wait_for_url("**/compare?job=*&job=*")


@pytest.mark.requirement("UI-06")
def test_what_is_chosen_in_a_sweep_stays_chosen_in_another_order(
    visit: Visits, filled_house: FilledHouse
) -> None:
    """Twice: the second time it is the page that knows them."""
    page = visit(filled_house.house).open(f"/compare?sweep={filled_house.filled.sweep_id}")
    rows = page.locator(".sweep-table tbody")
    chosen = [one.get_attribute("value") for one in rows.locator("input").all()[1:3]]
    for job in chosen:
        rows.locator(f"input[value='{job}']").check()

    for column in ("lift", "state"):
        page.locator(".sweep-table thead").get_by_role("link", name=column).click()
        sorted_by = page.locator("th[aria-sort]")
        expect(sorted_by).to_contain_text(column)

        expect(rows.locator("input:checked")).to_have_count(2)
        for job in chosen:
            expect(rows.locator(f"input[value='{job}']")).to_be_checked()


@pytest.mark.requirement("UI-10")
@pytest.mark.parametrize(
    "address",
    [
        "/queue",
        "/report?date={bad_night}",
        "/budget",
        "/compare?sweep={sweep}",
        "/jobs/{gain}?tab=events",
    ],
)
def test_the_row_keys_walk_the_list_of_every_page_that_has_one(
    address: str, visit: Visits, filled_house: FilledHouse
) -> None:
    """Down twice and up once is the first row again."""
    made = filled_house.filled
    where = address.format(**made.ids, sweep=made.sweep_id, bad_night=made.bad_night)
    page = visit(filled_house.house).open(where)

    def row() -> Any:
        rows = "[...document.querySelectorAll('[data-rows] > tbody > tr, [data-rows] [data-job]')]"
        return page.evaluate(f"{rows}.findIndex((row) => row.contains(document.activeElement))")

    found = []
    for key in ("j", "j", "k"):
        page.keyboard.press(key)
        found.append(row())

    assert found == [0, 1, 0]


@pytest.mark.requirement("UI-10")
def test_the_row_keys_pass_by_what_is_folded_away(visit: Visits, house: House) -> None:
    """A closed sweep in the queue stops nobody: the row behind it is reached."""
    first = queue(house.db, name="before")
    body = {"kind": "rl_run", "config": CONFIG, "sweep": {"lr": [1e-4, 3e-4]}, "force": True}
    submit_sweep(house.db, submission(body), actor="test")
    last = queue(house.db, name="behind", seed=7)
    page = visit(house).open("/queue")
    page.locator("#turn details").evaluate("(sweep) => { sweep.open = false; }")

    for row in (first, last):
        page.keyboard.press("j")
        expect(page.locator(f"#q-{row} a").first).to_be_focused()


# --- no script ---


@pytest.mark.requirement("UI-10")
def test_without_script_nothing_is_promised_that_only_a_script_does(
    visit: Visits, filled_house: FilledHouse
) -> None:
    """No connection that never comes, no dragging, no keys; the plain form shows a part."""
    page = visit(filled_house.house, java_script_enabled=False).page
    url = filled_house.house.server.url
    page.goto(f"{url}/jobs/{filled_house.filled.ids['gain']}")
    assert not page.get_by_text("connecting to the live stream").is_visible()
    assert page.locator("noscript .connection").is_visible()
    assert not page.get_by_text("drag over a chart").is_visible()
    page.get_by_label("to step").fill("9")
    page.locator("#chart-controls").get_by_role("button", name="Show", exact=True).click()
    page.wait_for_url("**to=9*")
    expect(page.get_by_label("to step")).to_have_value("9")

    page.goto(f"{url}/help")
    assert not page.get_by_role("heading", name="Keys").is_visible()


@pytest.mark.requirement("UI-04")
def test_without_script_a_moved_job_is_where_the_page_goes_on(visit: Visits, house: House) -> None:
    """At its row, not at the top of the page."""
    numbers = [queue(house.db, name=f"job {number}") for number in range(12)]
    page = visit(house, java_script_enabled=False, viewport=WIDE).page
    page.goto(house.server.url + "/queue")

    page.locator(f"#q-{numbers[-1]}").get_by_role("button", name="Up").click()

    expect(page).to_have_url(f"{house.server.url}/queue#q-{numbers[-1]}")
    expect(page.locator(f"#q-{numbers[-1]}")).to_be_focused()
    expect(page.locator(f"#q-{numbers[-1]}")).to_be_in_viewport()
    empty(house)


# --- forms ---


@pytest.mark.requirement("UI-06")
def test_what_was_opened_in_the_forecast_stays_open_and_its_verdict_alone_is_told(
    visit: Visits, house: House
) -> None:
    """The panel is morphed: a region that is told whole would be read again after each pause."""
    done = enqueue(house.db, "rl_run", CONFIG, actor="test", force=True)
    page = visit(house).open(f"/new?clone={done}&as=form")
    page.locator("#parts summary").click()
    line = page.locator("#verdict")
    line.evaluate("line => { line.dataset.mine = 'same'; }")

    page.locator("#f-seed").fill("7")

    expect(page.locator("#check")).to_contain_text("seed")
    expect(page.locator("#parts")).to_have_attribute("open", "")
    expect(line).to_have_attribute("role", "status")
    assert page.locator("#check [role=status]").count() == 1
    assert page.locator("#check[role=status]").count() == 0
    empty(house)


@pytest.mark.requirement("UI-04")
def test_arming_ends_at_the_words_that_the_lane_is_armed(visit: Visits, house: House) -> None:
    """Not before the same form, filled anew."""
    page: Page = visit(house).open("/queue")
    page.get_by_role("button", name="Arm tonight").click()

    page.wait_for_url("**/queue#stand-h")
    expect(page.get_by_role("heading", name="Armed")).to_be_focused()
    expect(page.get_by_role("heading", name="Armed")).to_be_in_viewport()
    page.get_by_role("button", name="Disarm now").click()
    expect(page.get_by_role("button", name="Arm tonight")).to_be_visible()
