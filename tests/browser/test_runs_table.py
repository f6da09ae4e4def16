"""The table of runs as a new user tries it: find the best, narrow, choose, put away, export."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import House, Visit
from tests.many_runs import fill_runs

pytestmark = [pytest.mark.browser, pytest.mark.requirement("UI-12")]
Visits = Callable[..., Visit]
DESK = {"width": 1920, "height": 1080}


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A house with 39 runs."""
    made = House(tmp_path_factory.mktemp("runs"))
    fill_runs(made.db, 39)
    yield made
    made.close()


def first_name(page: Page) -> str:
    """Of the run in the first row."""
    return page.locator(".table tr[id] .name bdi").first.inner_text()


def test_the_best_of_39_runs_on_math_is_found_without_reading_anything(
    visit: Visits, full: House
) -> None:
    """One click into the table: a line says it, and a click on the bench orders by it."""
    page = visit(full, viewport=DESK).open("/")
    page.get_by_role("link", name="Runs", exact=True).click()

    best = page.locator(".best > div", has_text="math").get_by_role("link").inner_text()
    page.get_by_role("link", name="math", exact=True).click()

    expect(page.locator("th[aria-sort=descending]")).to_contain_text("math")
    page.goto(page.url + "&group=none")
    assert first_name(page) == best


def test_why_a_run_failed_is_read_without_opening_a_log(visit: Visits, full: House) -> None:
    """In its row, and as the first line of its page with what to do."""
    seen = visit(full, viewport=DESK)
    page = seen.open("/runs?q=state:failed")
    row = page.locator(".table tr[id]").first
    expect(row).to_contain_text("3.1 GB free at step 9, floor 4.0 GB")

    row.get_by_role("link").first.click()

    page.wait_for_url("**/jobs/*")
    expect(page.locator("main")).to_contain_text("3.1 GB free at step 9, floor 4.0 GB")
    expect(page.get_by_role("button", name="Try again, resume")).to_be_visible()
    assert seen.complaints == []


@pytest.mark.requirement("UI-03")
def test_the_runs_of_a_group_are_compared_by_one_press(visit: Visits, full: House) -> None:
    """The group is the comparison: its runs in one table, ranked."""
    seen = visit(full, viewport=DESK)
    page = seen.open("/runs")
    page.locator("tr.group").first.get_by_role("link", name="compare").click()

    page.wait_for_url("**/compare?job=*")
    expect(page.locator(".rank tbody tr")).to_have_count(page.url.count("job="))
    assert page.url.count("job=") > 1
    assert seen.complaints == []


def test_thirty_runs_and_more_stand_above_the_fold_of_a_desk(visit: Visits, full: House) -> None:
    """1920 x 1080, groups with their heads."""
    page = visit(full, viewport=DESK).open("/runs")

    seen = page.evaluate(
        """() => {
          const edge = document.querySelector(".sel").getBoundingClientRect().top;
          const rows = [...document.querySelectorAll(".table tbody tr")];
          return rows.filter((row) => row.getBoundingClientRect().bottom <= edge).length;
        }"""
    )

    assert seen >= 30


def test_a_filter_is_completed_and_says_what_it_leaves_before_it_is_applied(
    visit: Visits, full: House
) -> None:
    """By keys alone: /, some letters, Tab, a condition, Enter."""
    seen = visit(full, viewport=DESK)
    page = seen.open("/runs")
    page.keyboard.press("/")
    page.keyboard.type("ga")
    expect(page.get_by_role("option").first).to_contain_text("gain:")
    page.keyboard.press("Tab")
    page.keyboard.type(">4")

    # "gain:" alone, asked for by the Tab, matches none: that answer may come in between.
    expect(page.locator("#matched")).to_contain_text(re.compile(r"^[1-9]\d* of 39 match"))
    marked = page.locator(".table tr.hit").count()
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs?q=gain%3A%3E4")

    assert page.locator(".table tr[id]").count() == marked > 0
    assert seen.complaints == []


def test_a_filter_that_cannot_be_read_says_so_while_it_is_typed(visit: Visits, full: House) -> None:
    """And when it is applied, all runs stay."""
    page = visit(full, viewport=DESK).open("/runs")
    page.locator("#find").fill("gan:>2")
    expect(page.locator("#matched")).to_contain_text("did you mean gain")

    page.locator("#find").press("Enter")

    expect(page.get_by_role("alert")).to_contain_text("did you mean gain")
    expect(page.locator(".table tr[id]")).to_have_count(39)


def test_rows_are_walked_chosen_and_compared_by_keys(visit: Visits, full: House) -> None:
    """j j x, j x, c."""
    page = visit(full, viewport=DESK).open("/runs?group=none")
    for key in "jxjx":
        page.keyboard.press(key)
    expect(page.locator("[data-count]")).to_have_text("2 chosen")

    page.keyboard.press("c")

    page.wait_for_url("**/compare?job=*&job=*")


def test_what_is_archived_comes_back_by_undo(visit: Visits, full: House) -> None:
    """The toast says how many; a reload says it no more."""
    page = visit(full, viewport=DESK).open("/runs?q=tag:night&group=none")
    before = page.locator(".table tr[id]").count()
    page.locator("[name=job]").first.check()
    page.get_by_role("button", name="Archive", exact=True).click()

    expect(page.get_by_role("status").filter(has_text="Archived 1 run.")).to_be_visible()
    expect(page.locator(".table tr[id]")).to_have_count(before - 1)
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("status").filter(has_text="Restored 1 run.")).to_be_visible()
    expect(page.locator(".table tr[id]")).to_have_count(before)
    page.wait_for_function("!location.search.includes('did')")


def test_a_table_is_exported_as_it_is_shown(visit: Visits, full: House, tmp_path: Path) -> None:
    """The filter and the columns of the page, in its order."""
    page = visit(full, viewport=DESK).open("/runs?q=verdict:gain&columns=lr,math&group=none")
    page.get_by_text("Export", exact=True).click()
    with page.expect_download() as taken:
        page.get_by_role("link", name="csv").click()
    taken.value.save_as(tmp_path / "runs.csv")

    rows = list(csv.DictReader((tmp_path / "runs.csv").read_text("utf-8").splitlines()))
    shown = page.locator(".table tr[id]").evaluate_all("rows => rows.map(row => row.id.slice(4))")
    assert [row["id"] for row in rows] == shown
    assert {"lr", "math", "math_low", "math_high"} <= set(rows[0])


def test_the_palette_goes_to_a_run_and_orders_the_table(visit: Visits, full: House) -> None:
    """Ctrl K on any page; Escape closes it and the focus is where it was."""
    seen = visit(full, viewport=DESK)
    page = seen.open("/machine")
    offers = page.get_by_role("dialog").get_by_role("option")
    page.keyboard.press("Control+k")
    page.keyboard.type("mix-4b-lr3e-6-s2")
    expect(offers.first).to_contain_text("gain +")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/*")

    page.keyboard.press("Control+k")
    page.keyboard.type("nothing is called so")
    expect(offers).to_have_count(0)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("Control+k")
    page.keyboard.type("by math")
    expect(offers).to_have_count(1)
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs?sort=-math")
    assert seen.complaints == []
