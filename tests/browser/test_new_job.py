"""The New job page in a browser: from a run or a recipe, with own rows, by YAML and by fields."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.app.night import CONFIG, night, queue
from tests.browser.conftest import House, Visit
from tests.deadline import eventually
from worker.budget.price import set_price
from worker.queue.states import State
from worker.queue.submit import enqueue
from worker.read import feed, jobs

pytestmark = pytest.mark.browser
Visits = Callable[..., Visit]
NEXT_ANSWER_MS = 30_000
"""A page that lost the cockpit tries again every 4 s or so, and asks with each beat, every 5 s."""
KG = range(2, 302)
DESK = {"width": 1440, "height": 900}


def editor(page: Page) -> Locator:
    """The lines of the YAML."""
    return page.locator("#editor .cm-content")


def text(page: Page) -> str:
    """What would be sent."""
    return page.locator("#yaml").input_value()


def rows_of(folder: Path) -> Path:
    """Rows in columns that nobody's layout knows."""
    path = folder / "clinic sums.jsonl"
    rows = [{"asks": f"{kg} kg at 15 mg.{' So.' * kg} How many?", "gold": 15 * kg} for kg in KG]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


@pytest.mark.requirement("UI-15")
def test_a_run_of_ones_own_rows_is_started_from_a_past_run_with_another_lr(
    visit: Visits, house: House, tmp_path: Path
) -> None:
    """As somebody who has read nothing: choose a run, give a file, say its columns, change lr."""
    queue(house.db, name="the good one")
    with night(house.db) as lane:
        lane.start().finish()
    seen = visit(house, viewport=DESK)
    page = seen.open("/runs")
    page.get_by_role("link", name="New job").first.click()
    page.locator(".starts").get_by_role("link", name="the good one").click()
    expect(editor(page)).to_contain_text("lr: 0.0003")

    page.get_by_label("base", exact=True).fill("acme/small")
    page.locator("#file").set_input_files(rows_of(tmp_path))
    expect(page.locator("#sent-rows")).to_contain_text("is kept")
    page.locator(".mapped select").first.select_option("asks")
    page.locator(".mapped select").last.select_option("gold")
    expect(page.locator("#rows article")).to_have_count(3, timeout=NEXT_ANSWER_MS)
    page.get_by_label("lr", exact=True).fill("5e-5")
    page.get_by_label("name", exact=True).fill("mine")
    expect(page.locator("#check")).to_contain_text("Different from job")
    page.get_by_role("button", name="Queue", exact=True).last.click()

    page.wait_for_url("**/jobs/*")
    made = jobs.get_job(house.db, int(page.url.rpartition("/")[2]))
    assert made.name == "mine"
    assert made.config["lr"] == 5e-5
    assert made.config["data"]["prompt_field"] == "asks"
    assert made.config["data"]["answer_field"] == "gold"
    assert Path(made.config["data"]["source"]).name == "clinic_sums.jsonl"
    assert made.config["warmup"]["target_heldout"] == 0.55
    assert seen.complaints == []
    finish(house)


@pytest.mark.requirement("UI-15")
def test_rows_of_ones_own_and_their_columns_go_along_to_another_recipe(
    visit: Visits, house: House, tmp_path: Path
) -> None:
    """Its other settings are the recipe's own."""
    page = visit(house, viewport=DESK).open("/new?recipe=instruct")
    page.locator("#file").set_input_files(rows_of(tmp_path))
    page.locator(".mapped select").first.select_option("asks")
    page.locator(".mapped select").last.select_option("gold")
    page.locator(".starts").get_by_role("link", name="stable-start").click()
    page.wait_for_url("**recipe=stable-start**")

    expect(editor(page)).to_contain_text("prompt_field: asks")
    assert "clinic_sums.jsonl" in text(page)
    assert "answer_field: gold" in text(page)
    assert "adam_eps: 1e-4" in text(page)
    expect(page.locator("#rows article")).to_have_count(3, timeout=NEXT_ANSWER_MS)


@pytest.mark.requirement("UI-15")
def test_three_rows_are_shown_as_the_model_will_read_them(
    visit: Visits, house: House, tmp_path: Path
) -> None:
    """The shortest, one in the middle, the longest, each with the answer that is expected."""
    rows = rows_of(tmp_path)
    page = visit(house, viewport=DESK).open("/new")
    write(
        page,
        "base: acme/small\ntuning: full\n"
        f"data: {{source: {json.dumps(str(rows))}, prompt_field: asks, answer_field: gold}}\n"
        'prompting: {question_format: "Q: {prompt}"}\n',
    )

    cards = page.locator("#rows article")

    expect(cards).to_have_count(3, timeout=NEXT_ANSWER_MS)
    expect(cards.nth(0)).to_contain_text("shortest")
    expect(cards.nth(0)).to_contain_text("Q: 2 kg")
    expect(cards.nth(0)).to_contain_text("expected: 30")
    expect(cards.nth(1)).to_contain_text("median")
    expect(cards.nth(2)).to_contain_text("Q: 101 kg")
    expect(page.locator("#rows")).to_contain_text("300 rows")


@pytest.mark.requirement("UI-15")
def test_a_mistake_is_marked_at_its_line_and_what_was_meant_is_written_by_one_press(
    visit: Visits, house: House
) -> None:
    """In the editor and beside it; F8 goes there."""
    seen = visit(house, viewport=DESK)
    page = seen.open("/new")
    write(page, "base: embedded:qwen3-tiny\ntuning: full\nobjective:\n  loss: dappo\n")

    said = page.locator("#check [data-line]")
    expect(said).to_contain_text("line 4, objective.loss")
    expect(page.locator("#editor .cm-lintRange-error")).to_have_text("dappo")
    page.get_by_role("button", name="Write dapo").click()

    expect(said).to_have_count(0)
    expect(page.locator("#check")).to_contain_text("It fits now")
    assert "loss: dapo\n" in text(page)
    assert seen.complaints == []


@pytest.mark.requirement("UI-15")
def test_yaml_that_cannot_be_read_is_said_at_its_line(visit: Visits, house: House) -> None:
    """While it is typed."""
    page = visit(house, viewport=DESK).open("/new")
    write(page, "base: embedded:qwen3-tiny\ndata: {source: [1\nlr: 1\n")

    expect(page.locator("#check [data-line]")).to_contain_text("is not valid YAML")
    assert int(page.locator("#check [data-line]").get_attribute("data-line") or 0) >= 2


@pytest.mark.requirement("UI-15")
def test_settings_and_their_values_are_completed_by_keys(visit: Visits, house: House) -> None:
    """A section, a setting in it, its values; the line is explained. Page keys stay out of it."""
    page = visit(house, viewport=DESK).open("/new")
    editor(page).click()
    page.keyboard.type("objec")
    expect(page.locator("#editor .cm-tooltip-autocomplete")).to_contain_text("objective")
    page.keyboard.press("Enter")
    page.keyboard.type("los")
    expect(page.locator("#editor .cm-tooltip-autocomplete")).to_contain_text("loss")
    page.keyboard.press("Enter")
    page.keyboard.type("cis")
    expect(page.locator("#editor .cm-tooltip-autocomplete")).to_contain_text("cispo")
    page.keyboard.press("Enter")

    assert text(page) == "objective:\n  loss: cispo"
    expect(page.locator("#explained")).to_contain_text("objective.loss")


@pytest.mark.requirement("UI-15")
def test_a_field_changes_its_own_line_and_nothing_else(visit: Visits, house: House) -> None:
    """Comments and order stay; what was not there comes into its section; emptied, it goes."""
    page = visit(house, viewport=DESK).open("/new")
    written = "# mine\nbase: embedded:qwen3-tiny\ndata:   # rows\n  limit: 100\nlr: 1e-4  # slow\n"
    write(page, written)
    lr, source = page.get_by_label("lr", exact=True), page.get_by_label("source", exact=True)
    expect(lr).to_have_value("1e-4")

    lr.fill("5e-6")
    source.fill("embedded:addition")
    with_both = written.replace("1e-4", "5e-6").replace(
        "  limit: 100\n", "  limit: 100\n  source: embedded:addition\n"
    )
    assert text(page) == with_both
    source.fill("")
    lr.fill("")

    assert text(page) == written.replace("lr: 1e-4  # slow\n", "")


@pytest.mark.requirement("UI-15")
def test_queue_and_run_now_puts_a_job_in_front_and_starts_a_drain(
    visit: Visits, new_house: Callable[..., House]
) -> None:
    """The request itself runs nothing."""
    house = new_house()
    waits = enqueue(house.db, "rl_run", CONFIG, actor="test", not_before=time.time() + 3600)
    page = visit(house, viewport=DESK).open("/new?recipe=demo")
    expect(editor(page)).to_contain_text("target_heldout")
    page.get_by_label("max_steps", exact=True).fill("1")
    page.get_by_role("button", name="Queue and run now").click()

    page.wait_for_url("**/jobs/*")
    number = int(page.url.rpartition("/")[2])

    def began() -> bool:
        return jobs.get_job(house.db, number).state is not State.QUEUED

    eventually(began, "the drain took it", within_s=60)
    assert jobs.get_job(house.db, waits).state is State.QUEUED
    page.goto(house.server.url + "/stop")
    page.get_by_role("button").last.click()
    ended = lambda: jobs.get_job(house.db, number).state is not State.RUNNING  # noqa: E731
    eventually(ended, "it was stopped", within_s=120)


@pytest.mark.requirement("UI-15")
def test_without_a_script_the_yaml_is_a_field_and_its_problems_name_their_lines(
    visit: Visits, house: House
) -> None:
    """Queue, and the form of all settings, work as forms."""
    before = feed.last_change_id(house.db)
    page = visit(house, java_script_enabled=False).page
    page.goto(house.server.url + "/new")
    page.locator("#yaml").fill("base: embedded:qwen3-tiny\nlr: -1\n")
    page.get_by_role("button", name="Queue", exact=True).last.click()

    expect(page.get_by_role("alert")).to_contain_text("line 2, lr: input should be")
    assert feed.last_change_id(house.db) == before
    page.locator("#yaml").fill("base: embedded:qwen3-tiny\nlr: 1e-4\n")
    page.get_by_role("button", name="All settings as a form").click()
    expect(page.locator("#f-lr")).to_have_value("0.0001")


def write(page: Page, yaml: str) -> None:
    """Paste it over what stands there."""
    editor(page).click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(yaml)


def finish(house: House) -> None:
    """Leave an empty queue to the next test."""
    with night(house.db) as lane:
        for _ in jobs.next_jobs(house.db):
            lane.start().finish()


# --- the form of all settings, and the look at what is typed ---


@pytest.mark.requirement("UI-06")
def test_a_field_is_judged_while_it_is_typed_and_the_forecast_follows(
    visit: Visits, house: House
) -> None:
    """Beside the field, told to assistive technology, without sending the form."""
    before = feed.last_change_id(house.db)
    seen = visit(house)
    page = seen.page
    page.goto(house.server.url + "/new?as=form")
    page.get_by_label("base", exact=True).fill("embedded:qwen3-tiny")
    page.get_by_label("tuning").select_option("full")
    expect(page.locator("#check")).to_contain_text("It fits now")

    page.locator("#f-lr").fill("-1")
    expect(page.locator("#f-lr-help .problem")).to_contain_text("(got -1); use a larger value")
    expect(page.locator("#f-lr")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#check")).to_contain_text("Not yet: 1 problem")
    page.locator("#f-lr").fill("1e-4")
    expect(page.locator("#f-lr-help .problem")).to_have_count(0)
    expect(page.locator("#check")).to_contain_text("It fits now")
    assert page.evaluate("document.activeElement.id") == "f-lr"
    assert page.locator("#f-lr").get_attribute("aria-invalid") is None

    page.get_by_role("button", name="Back to the YAML").click()
    expect(page.locator("#yaml")).to_have_value(
        "base: embedded:qwen3-tiny\nlr: 0.0001\ntuning: full\n"
    )
    assert feed.last_change_id(house.db) == before
    assert seen.complaints == []


@pytest.mark.requirement("UI-06")
def test_a_check_that_takes_its_time_says_so(visit: Visits, house: House) -> None:
    """A corpus of gigabytes is read for seconds; what stands there meanwhile is the last answer."""
    page = visit(house).open("/new?as=form")
    looking, held = page.get_by_text("looking at it"), list[Route]()
    expect(looking).to_be_hidden()
    page.route("**/new/check", lambda route: held.append(route))  # noqa: PLW0108 - Playwright marks it

    page.get_by_label("base", exact=True).fill("embedded:qwen3-tiny")

    expect(looking).to_be_visible()
    held[-1].continue_()
    expect(page.locator("#check")).to_contain_text("It fits now")
    expect(looking).to_be_hidden()


@pytest.mark.requirement("UI-06")
def test_the_look_at_a_job_follows_what_changes_elsewhere(visit: Visits, house: House) -> None:
    """Nobody types: another tab sets a price, and a run of the same settings ends. What was
    selected beside a field stays selected.
    """
    seen = visit(house)
    page = seen.open("/new?as=form")
    page.get_by_label("base", exact=True).fill("embedded:qwen3-tiny")
    page.get_by_label("tuning").select_option("full")
    expect(page.locator("#check")).to_contain_text("It fits now")
    expect(page.locator("#check")).to_contain_text("at $0 an hour")
    page.evaluate("getSelection().selectAllChildren(document.getElementById('f-base-help'))")
    chosen = page.evaluate("getSelection().toString()")

    set_price(house.db, {"usd_h": 2.5}, actor="cli", now=time.time())

    expect(page.locator("#check")).to_contain_text("at $2.50 an hour", timeout=15_000)
    assert chosen
    assert page.evaluate("getSelection().toString()") == chosen
    assert seen.never_reloaded()
    set_price(house.db, {"usd_h": 0}, actor="cli", now=time.time())


@pytest.mark.requirement("UI-06")
def test_what_nobody_has_looked_at_is_not_said_to_fit(
    visit: Visits, new_house: Callable[..., House]
) -> None:
    """The cockpit is gone, or answers a change with an error: the last judgement is taken back
    until there is another one.
    """
    house = new_house()
    page = visit(house).open("/new?as=form")
    verdict, unlooked = page.locator("#verdict"), page.locator("#unlooked")
    page.get_by_label("base", exact=True).fill("embedded:qwen3-tiny")
    expect(verdict).to_contain_text("It fits now")
    expect(unlooked).to_be_hidden()

    house.server.kill()
    expect(unlooked).to_contain_text("Not looked at yet: the cockpit does not answer")
    expect(verdict).to_be_hidden()
    house.server.start()
    expect(unlooked).to_be_hidden(timeout=NEXT_ANSWER_MS)
    expect(verdict).to_be_visible()

    page.route("**/new/check", lambda route: route.fulfill(status=503, body="busy"))
    page.locator("#f-lr").fill("1e-4")
    expect(unlooked).to_be_visible()
    expect(verdict).to_be_hidden()
    page.unroute("**/new/check")
    expect(unlooked).to_be_hidden(timeout=NEXT_ANSWER_MS)
    expect(verdict).to_be_visible()


@pytest.mark.requirement("UI-06")
def test_a_change_during_a_look_is_told_right_after_it(visit: Visits, house: House) -> None:
    """The look at what was typed began before a price changed and is answered after it."""
    page, held = visit(house).open("/new?as=form"), list[Route]()
    check = page.locator("#check")
    page.get_by_label("base", exact=True).fill("embedded:qwen3-tiny")
    expect(check).to_contain_text("at $0 an hour")
    page.route("**/new/check", lambda route: held.append(route))  # noqa: PLW0108 - Playwright marks it
    page.locator("#f-lr").fill("1e-4")
    expect(page.get_by_text("looking at it")).to_be_visible()
    before = held[-1].fetch()

    set_price(house.db, {"usd_h": 2.5}, actor="cli", now=time.time())
    expect(check).to_have_attribute("data-waits", "1", timeout=NEXT_ANSWER_MS)
    held[-1].fulfill(response=before)
    page.unroute("**/new/check")

    expect(check).to_contain_text("at $2.50 an hour")
    set_price(house.db, {"usd_h": 0}, actor="cli", now=time.time())


@pytest.mark.requirement("UI-06")
def test_what_was_typed_outlives_a_reload_another_page_and_another_kind(
    visit: Visits, house: House
) -> None:
    """Back, reload and a switch of kind bring it again; a visit by a link begins empty."""
    seen = visit(house)
    page = seen.open("/new?as=form")
    name, rate, tuning = page.locator("#name"), page.locator("#f-lr"), page.get_by_label("tuning")
    name.fill("X1")
    rate.fill("0.5")
    tuning.select_option("full")
    shots = page.locator("[name='set:format.shots']")
    shots.evaluate("field => { field.closest('details').open = true; }")
    shots.fill("3")

    page.reload()
    expect(rate).to_have_value("0.5")
    expect(shots).to_be_visible()
    page.get_by_role("link", name="Machine").first.click()
    page.wait_for_url("**/machine")
    page.go_back()
    expect(name).to_have_value("X1")
    expect(tuning).to_have_value("full")
    expect(page.locator("#check")).to_contain_text("base")

    page.get_by_role("link", name="stage2_ab", exact=True).click()
    page.wait_for_url("**kind=stage2_ab**")
    expect(name).to_have_value("X1")
    page.get_by_role("link", name="rl_run", exact=True).click()
    page.wait_for_url("**kind=rl_run**")
    expect(name).to_have_value("X1")
    rate.fill("0.25")
    page.get_by_role("link", name="stage2_ab", exact=True).click()
    page.wait_for_url("**kind=stage2_ab**")
    page.get_by_role("link", name="rl_run", exact=True).click()
    page.wait_for_url("**kind=rl_run**")
    expect(rate).to_have_value("0.25")

    page.get_by_text("More", exact=True).click()
    page.get_by_role("link", name="New job").first.click()
    page.wait_for_url("**/new")
    expect(name).to_have_value("")
    expect(page.locator("#yaml")).to_have_value("")
    assert seen.complaints == []
