"""Samples and comparison in a browser: boxes over the picture, steps by keyboard, nothing amiss."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from engine.contract.run_dir import RunDir
from tests.app.night import night, queue
from tests.app.rollouts import heldout, picture_row, row, write
from tests.browser.conftest import House, Visit

pytestmark = pytest.mark.browser
Visits = Callable[..., Visit]

PICTURE = {"name": "0" * 20 + ".jpg", "width": 200, "height": 100}
JPEG = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB"
    "AQEBAQEBAQEBAQEBAQEBAQEBAQH/wAALCAABAAEBAREA/8QAFAABAAAAAAAAAAAAAAAAAAAACf/EABQQAQAAAAAAAAAA"
    "AAAAAAAAAAD/2gAIAQEAAD8AVN//2Q=="
)
"""One grey pixel."""


@pytest.fixture(scope="module")
def shown(house: House) -> House:
    """Jobs 1 and 2 are runs with completions, job 3 has boxes."""
    for better in (30, 50):
        queue(house.db, lr=better / 1e5)
        with night(house.db) as lane:
            attempt = lane.start()
            fill(attempt.run, better)
            attempt.gate(0, 0.5)
            attempt.step(1, 0.5)
            attempt.finish()
    queue(house.db, name="boxes")
    with night(house.db) as lane:
        attempt = lane.start()
        spans = [{"text": "cat", "tokens": 1, "part": "desc", "source": "FN", "weight": 0.2}]
        taught = {"answer": spans, "b2": None, "b3": spans}
        rows = [picture_row(f"t {i}", 1, 2, 2, picture=PICTURE, spans=taught) for i in range(3)]
        write(attempt.run, "train-000002", rows)
        folder = attempt.run.rollouts / "pictures"
        folder.mkdir()
        (folder / PICTURE["name"]).write_bytes(JPEG)  # type: ignore[operator]
        attempt.finish()
    return house


def fill(run: RunDir, better: int) -> None:
    """Three steps of the pool in groups of two, and the report rows."""
    for step in (1, 2, 3):
        rows = [
            row(f"{i}+{step}", sample, f"said at {step}\n", float(sample), advantage=sample - 0.5)
            for i in range(6)
            for sample in (0, 1)
        ]
        write(run, f"train-{step:06d}", rows)
    write(run, "heldout-report-000030", heldout([i < better for i in range(60)]))


@pytest.mark.requirement("UI-08")
def test_boxes_lie_over_their_picture_and_differ_by_line_not_colour_alone(
    visit: Visits, shown: House
) -> None:
    """The picture is loaded, each box has a size, and no two kinds have the same line and label."""
    seen = visit(shown)
    page = seen.open("/jobs/3/samples")
    drawing = page.locator("svg.boxes").first
    expect(drawing).to_have_attribute("aria-label", "1 of 2 objects found, 1 false positives")

    styles = {}
    for kind in ("truth", "missed", "matched", "false"):
        box = drawing.locator(f"g[data-kind={kind}]").first
        edge = box.locator(".edge")
        size = edge.bounding_box()
        assert size is not None
        assert size["width"] > 10
        dashes = edge.evaluate("node => getComputedStyle(node).strokeDasharray")
        label = (box.locator("text").text_content() or "").rstrip(" 0123456789")
        styles[kind] = (dashes, label)

    assert len(set(styles.values())) == 4
    pictures = [r for r in seen.requests if "/samples/pictures/" in r.url]
    assert pictures
    assert all(request.response().ok for request in pictures)
    page.get_by_text("Token roles").first.click()
    expect(page.locator(".span[data-source=FN] .role").first).to_contain_text("FN desc ×0.2")
    assert seen.complaints == []


@pytest.mark.requirement("UI-08")
def test_boxes_can_be_looked_at_as_wide_as_the_page(visit: Visits, shown: House) -> None:
    """Where many lie on one another: thinner lines, smaller words, and every box as a row."""
    page = visit(shown).open("/jobs/3/samples")
    card = page.locator(".detection").first
    drawing, word = card.locator("svg.boxes"), card.locator("svg text").first
    small = drawing.bounding_box()

    card.get_by_text("Large, and the boxes as a table").click()

    large = drawing.bounding_box()
    assert small is not None
    assert large is not None
    assert large["width"] > 2 * small["width"]
    assert word.evaluate("node => parseFloat(getComputedStyle(node).fontSize)") < 20
    expect(card.locator(".box-list tbody tr")).to_have_count(4)


@pytest.mark.requirement("UI-10")
@pytest.mark.parametrize("width", [1280, 390])
def test_a_long_reason_or_name_of_a_row_widens_no_page(
    visit: Visits, shown: House, width: int
) -> None:
    """A word of 400 letters that a verifier said, and a path that a row is called after."""
    for job_id, kind in ((1, ".completions"), (3, ".detection")):
        page = visit(shown, viewport={"width": width, "height": 800}).open(
            f"/jobs/{job_id}/samples"
        )
        page.evaluate(
            """() => {
              for (const place of document.querySelectorAll("#found-h + p, .detection h3")) {
                place.textContent = "expected".repeat(50);
              }
            }"""
        )

        expect(page.locator(kind).first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.mark.requirement("UI-08", "UI-10")
def test_why_a_completion_was_paid_stands_on_the_screen_of_a_phone(
    visit: Visits, shown: House
) -> None:
    """Of short answers; what they were read as, and their tokens, are a scroll to the side away."""
    page = visit(shown, viewport={"width": 390, "height": 800}).open("/jobs/1/samples")

    reasons = page.locator(".completions .fate")
    expect(reasons).to_have_count(12)
    ends = "found => found.map(one => one.getBoundingClientRect().right)"
    assert max(reasons.evaluate_all(ends)) <= 390 - 16  # within its card


@pytest.mark.requirement("UI-08", "UI-10")
def test_held_out_completions_are_cards_on_a_phone(visit: Visits, shown: House) -> None:
    """They have their prompt beside them, so nothing would be left of what they were paid for."""
    page = visit(shown, viewport={"width": 390, "height": 800}).open("/jobs/1/samples?split=report")

    reasons = page.locator(".completions .fate")
    expect(reasons.first).to_be_visible()
    ends = "found => found.map(one => one.getBoundingClientRect().right)"
    assert max(reasons.evaluate_all(ends)) <= 390 - 16
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.mark.requirement("UI-08")
def test_steps_and_filters_are_reached_by_keyboard_and_stand_in_the_address(
    visit: Visits, shown: House
) -> None:
    """An arrow key on the slider goes one step; a box is ticked and sent without a mouse."""
    seen = visit(shown)
    page = seen.open("/jobs/1/samples")
    slider = page.get_by_label("Step")
    expect(slider).to_have_value("3")

    slider.focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#step-now")).to_have_text("2")
    page.wait_for_url("**step=2**")
    expect(page.locator(".group").first).to_contain_text("said at 2")
    expect(slider).to_be_focused()
    page.keyboard.press("ArrowLeft")
    page.wait_for_url("**step=1**")
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**step=2**")

    page.get_by_label("Reward from").focus()
    page.keyboard.type("1")
    page.keyboard.press("Enter")
    page.wait_for_url("**low=1**")
    expect(page.get_by_text("6 of 12 meet the conditions")).to_be_visible()
    assert "step=2" in page.url
    assert seen.complaints == []


@pytest.mark.requirement("UI-03")
def test_a_comparison_draws_both_runs_and_lists_its_rows(visit: Visits, shown: House) -> None:
    """Overlaid curves in one plot, the losses one click away."""
    seen = visit(shown)
    page = seen.open("/compare?job=1&job=2")

    expect(page.locator(".against .verdict")).to_have_text("better")
    legend = page.locator("#plot-compare-heldout .u-legend")
    expect(legend).to_contain_text("#1")
    expect(legend).to_contain_text("#2")
    page.get_by_role("link", name="only the second solved").click()
    expect(page.locator(".pairs tbody tr")).to_have_count(10)
    assert seen.complaints == []
