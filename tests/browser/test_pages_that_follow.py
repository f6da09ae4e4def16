"""Samples, report and budget while a run goes on: they follow it and leave the reader alone."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from engine.contract.run_dir import RunDir
from tests.app.night import night, queue
from tests.app.rollouts import row, write
from tests.browser.conftest import House, Visit
from worker.attempt.settlement import Verdict
from worker.budget import ledger
from worker.queue.states import State
from worker.report.snapshot import latest_morning

pytestmark = pytest.mark.browser
Visits = Callable[..., Visit]


def sampled(run: RunDir, step: int) -> None:
    """A step's completions, in two groups."""
    rows = [row(f"{i}+1", k, f"said at {step}", float(k)) for i in (1, 2) for k in (0, 1)]
    write(run, f"train-{step:06d}", rows)


@pytest.mark.requirement("UI-08")
@pytest.mark.requirement("UI-11")
def test_samples_follow_the_newest_step_until_the_reader_stays(visit: Visits, house: House) -> None:
    """From no file to the first, to the next; typed text and open details survive; a link stays."""
    number = queue(house.db, name="tonight")
    with night(house.db) as lane:
        attempt = lane.start()
        seen = visit(house)
        page = seen.open(f"/jobs/{number}/samples")
        expect(page.get_by_text("It has written no answers yet")).to_be_visible()

        for step in (1, 2):
            sampled(attempt.run, step)
            attempt.step(step, 0.5)
            expect(page.locator("#answer .main")).to_contain_text(f"said at {step}")
        page.locator("#filters [name=q]").fill("half typed")
        page.locator("#answer .prompt summary").click()
        sampled(attempt.run, 3)
        attempt.step(3, 0.5)
        expect(page.locator("#answer .main")).to_contain_text("said at 3")
        expect(page.locator("#filters [name=q]")).to_have_value("half typed")
        assert page.locator("#answer .prompt").get_attribute("open") is None  # as it was left
        assert seen.never_reloaded()

        page.get_by_role("link", name="Stay at step 3").click()
        page.wait_for_selector("#connection[data-state=live]")
        sampled(attempt.run, 4)
        attempt.step(4, 0.5)
        newest = page.get_by_role("link", name="Follow the newest step, 4")
        expect(newest).to_be_visible()
        expect(page.locator("#answer .main")).to_contain_text("said at 3")
        newest.click()
        expect(page.locator("#answer .main")).to_contain_text("said at 4")
        attempt.finish()
    expect(page.get_by_text("the newest is shown")).to_have_count(0)
    assert seen.complaints == []


@pytest.mark.requirement("UI-08")
def test_one_prompt_over_the_steps_gets_its_next_gate_by_itself(
    visit: Visits, house: House
) -> None:
    """A row more, without a reload."""
    number = queue(house.db)
    with night(house.db) as lane:
        attempt = lane.start()
        write(attempt.run, "heldout-select-000000", [row("q1", text="first")])
        seen = visit(house)
        page = seen.open(f"/jobs/{number}/samples/history?id=q1&split=select")
        expect(page.locator(".completions tbody tr")).to_have_count(1)

        write(attempt.run, "heldout-select-000010", [row("q1", text="second")])
        attempt.gate(10, 0.6)

        expect(page.locator(".completions tbody tr")).to_have_count(2)
        assert seen.never_reloaded()
        attempt.finish()


@pytest.mark.requirement("UI-05")
@pytest.mark.requirement("UI-11")
def test_the_report_of_this_night_grows_with_it(visit: Visits, house: House) -> None:
    """A run that fails brings its line and its proposal; what is typed into an edit stays."""
    seen = visit(house)
    page = seen.open(f"/report?date={latest_morning(house.db, time.time())}")
    number = queue(house.db, name="breaks", seed=77)
    with night(house.db) as lane:
        crash = Verdict(State.FAILED, "it crashed", "CRASH", "the engine crashed (exit 1)")
        lane.start().settle(crash)
    offer = page.locator(f"#proposal-FAILED-{number}")
    expect(offer).to_contain_text("mend that")
    expect(page.locator(".ran")).to_contain_text("breaks")
    assert seen.never_reloaded()

    offer.get_by_role("button", name="Drop").focus()
    page.keyboard.press("Enter")
    expect(offer).to_contain_text("✕ dropped by browser")
    expect(offer).to_be_in_viewport()
    assert seen.complaints == []


@pytest.mark.requirement("UI-11")
def test_the_report_follows_a_run_that_goes_on(visit: Visits, house: House) -> None:
    """A step is no event of the board; the report of a night that is not over tells it too."""
    queue(house.db, name="goes on")
    with night(house.db) as lane:
        attempt = lane.start()
        attempt.step(1, 0.5)
        seen = visit(house)
        page = seen.open(f"/report?date={latest_morning(house.db, time.time())}")
        row = page.get_by_role("region", name="What has not ended").get_by_role("row").last
        expect(row).to_contain_text("goes on")
        expect(row.locator("[data-label=step]")).to_have_text("1")

        attempt.step(2, 0.5)

        expect(row.locator("[data-label=step]")).to_have_text("2", timeout=10_000)
        assert seen.never_reloaded()
        attempt.finish()


@pytest.mark.requirement("UI-11")
def test_the_budget_counts_while_its_form_is_filled_in(visit: Visits, house: House) -> None:
    """Money that is spent elsewhere appears by itself; what was typed so far stays."""
    seen = visit(house)
    page = seen.open("/budget")
    page.get_by_label("for what").fill("half typed")
    before = page.locator(".headline .big").inner_text()

    spent = {"usd": 12.25, "note": "by the command line"}
    ledger.spend_elsewhere(house.db, spent, actor="cli:ada", now=time.time())

    expect(page.get_by_text("by the command line")).to_be_visible()
    assert page.locator(".headline .big").inner_text() != before
    expect(page).to_have_title(
        f"{page.locator('.headline .big').inner_text()} spent today · Nightlane"
    )
    expect(page.get_by_label("for what")).to_have_value("half typed")
    assert page.evaluate("document.activeElement.id") == "add-note"
    assert seen.never_reloaded()
    assert seen.complaints == []
