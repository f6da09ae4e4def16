"""Answers and comparison in a browser: what a person does with them, by mouse and by keyboard."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Dialog, expect

from engine.contract.run_dir import RunDir
from tests.app.night import night, queue
from tests.app.rollouts import ASKED, PROOF, heldout, picture_row, row, write
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


HOSTILE = """<script>document.title = 'taken'</script> <img src=x onerror="alert(1)">
[click](javascript:alert(1)) ![x](https://evil.example/x.png) $\\href{javascript:alert(1)}{x}$
"""


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
    """Three steps of the pool in groups of two, the report rows, and long and hostile answers."""
    for step in (1, 2, 3):
        rows = [
            row(f"{i}+{step}", sample, f"said at {step}\n", float(sample), advantage=sample - 0.5)
            for i in range(6)
            for sample in (0, 1)
        ]
        write(run, f"train-{step:06d}", rows)
    before = heldout([i % 2 == 0 for i in range(60)])
    write(run, "heldout-report-000000", before)
    write(run, "heldout-report-000030", heldout([i < better for i in range(60)]))
    long = row("long", text=PROOF * 12, prompt=ASKED, success=True)
    hostile = row("hostile", text=HOSTILE, prompt=HOSTILE, answer=HOSTILE, success=False)
    write(run, "heldout-select-000030", [long, hostile])


@pytest.mark.requirement("UI-14")
def test_twenty_wrong_answers_are_read_with_j(visit: Visits, shown: House) -> None:
    """From the run's answers: the report rows, the wrong ones, and then one key."""
    seen = visit(shown)
    page = seen.open("/jobs/1/samples")
    page.get_by_role("link", name="report", exact=True).click()
    page.get_by_role("link", name="Wrong 30").click()
    page.wait_for_url("**right=false**")

    read = []
    for _ in range(20):
        head = page.locator("#answer-h")
        expect(head).to_contain_text("Wrong")
        read.append(head.inner_text())
        page.keyboard.press("j")
        expect(head).not_to_have_text(read[-1], use_inner_text=True)
    page.keyboard.press("k")
    expect(page.locator("#answer-h")).to_have_text(read[-1], use_inner_text=True)

    assert len(set(read)) == 20
    expect(page.locator(".list [aria-current]")).to_be_in_viewport()
    assert seen.complaints == []


@pytest.mark.requirement("UI-14")
def test_a_word_is_searched_and_found_from_the_keyboard(visit: Visits, shown: House) -> None:
    """`/`, the word, Enter: the list holds the answers that say it."""
    page = visit(shown).open("/jobs/1/samples?split=select")

    page.keyboard.press("/")
    page.keyboard.type("arithmetic nowhere")
    page.keyboard.press("Enter")
    expect(page.get_by_text("No answer meets these conditions")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("inequality of the means")
    page.keyboard.press("Enter")

    expect(page.locator(".list [data-open]")).to_have_count(1)
    expect(page.locator("#answer")).to_contain_text("Step 2: bound it")


@pytest.mark.requirement("UI-14")
def test_an_answer_is_sent_to_a_colleague_as_a_link(
    visit: Visits, shown: House, chromium: Browser
) -> None:
    """`l` copies it; whoever opens it sees the same answer, whatever was filtered before."""
    first = visit(shown, permissions=["clipboard-read", "clipboard-write"])
    page = first.open("/jobs/1/samples?split=report&right=false&row=44")
    page.keyboard.press("l")
    expect(page.get_by_text("Link copied")).to_be_visible()
    link = page.evaluate("navigator.clipboard.readText()")

    other = visit(shown).open(link.removeprefix(shown.server.url))

    assert "right" not in link
    expect(other.locator("#answer-h")).to_contain_text("row 44")
    expect(other.locator(".list [aria-current]")).to_contain_text("q44=")


@pytest.mark.requirement("UI-14")
def test_what_a_prompt_got_elsewhere_is_seen_beside_it(visit: Visits, shown: House) -> None:
    """`d`: the same prompt at step 0, word by word; then in another run; `r`: the raw text."""
    seen = visit(shown)
    page = seen.open("/jobs/1/samples?split=report&row=1")
    page.keyboard.press("d")
    page.wait_for_url("**view=diff**")

    expect(page.locator(".two del")).to_have_text("wrong")
    expect(page.locator(".two ins")).to_have_text("right")
    page.get_by_label("run", exact=True).fill("2")
    page.get_by_role("button", name="Diff").click()
    expect(page.locator(".two h3").first).to_contain_text("#2")
    page.keyboard.press("r")
    expect(page.locator("pre.whole")).to_have_text("right")
    assert seen.complaints == []


@pytest.mark.requirement("UI-14")
def test_a_group_is_walked_by_its_numbers(visit: Visits, shown: House) -> None:
    """Each answer to a prompt, with its advantage as a bar to the left or the right."""
    page = visit(shown).open("/jobs/1/samples?split=pool&step=2&row=4")
    bars = page.locator(".group8 .adv rect")
    expect(bars).to_have_count(2)

    page.keyboard.press("2")

    expect(page.locator(".group8 [aria-current]")).to_contain_text("+0.50")
    expect(page.locator("#answer-h")).to_contain_text("row 5")
    assert [bars.nth(i).get_attribute("class") for i in (0, 1)] == ["down", "up"]


@pytest.mark.requirement("UI-14")
@pytest.mark.parametrize("size", [(1440, 900), (2560, 1440), (390, 844)])
def test_a_line_of_a_long_answer_has_at_most_72_characters(
    visit: Visits, shown: House, size: tuple[int, int]
) -> None:
    """On any window; and nothing of ten thousand characters is cut off or out of reach."""
    viewport = {"width": size[0], "height": size[1]}
    page = visit(shown, viewport=viewport).open("/jobs/1/samples?split=select&row=0")

    prose = page.locator("#answer .main > .prose")
    assert len(PROOF * 12) > 10_000
    assert prose.locator("mfrac").count() >= 40
    assert max(prose.evaluate(LINES)) <= 72
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    last = prose.locator("p").last
    last.scroll_into_view_if_needed()
    expect(last).to_be_in_viewport()


LINES = """(prose) => {
  const lengths = [];
  for (const paragraph of prose.querySelectorAll("p")) {
    const walker = document.createTreeWalker(paragraph, NodeFilter.SHOW_TEXT);
    const lines = new Map();
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      if (node.parentElement.closest("math")) continue;
      for (let at = 0; at < node.length; at++) {
        const range = document.createRange();
        range.setStart(node, at);
        range.setEnd(node, at + 1);
        const { bottom } = range.getBoundingClientRect();
        const line = Math.round(bottom / 12);
        lines.set(line, (lines.get(line) ?? 0) + 1);
      }
    }
    lengths.push(...lines.values());
  }
  return lengths;
}"""
"""Characters of each line of text; those of formulas aside."""


@pytest.mark.requirement("UI-14")
@pytest.mark.parametrize("view", ["text", "raw", "diff&other=2"])
def test_a_hostile_answer_runs_nothing_and_asks_nobody(
    visit: Visits, shown: House, view: str
) -> None:
    """In no view: the page's title stays, no dialog opens, no other host is asked."""
    seen = visit(shown)
    dialogs: list[str] = []

    def heard(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    seen.page.on("dialog", heard)

    page = seen.open(f"/jobs/1/samples?split=select&row=1&view={view}")

    expect(page.locator("#answer .main")).to_contain_text("<script>document.title")
    assert "taken" not in page.title()
    assert page.locator("#answer .main :is(script, img, iframe, a)").count() == 0
    assert [one.url for one in seen.requests if not one.url.startswith(shown.server.url)] == []
    assert (dialogs, seen.complaints) == ([], [])


@pytest.mark.requirement("UI-14")
def test_answers_are_read_without_any_script(chromium: Browser, shown: House) -> None:
    """List, filter, raw text and diff are links; only the keys are missing."""
    context = chromium.new_context(java_script_enabled=False)
    shown.enter(context)
    page = context.new_page()
    page.goto(f"{shown.server.url}/jobs/1/samples?split=report")
    page.get_by_role("link", name="Wrong 30").click()
    page.locator(".list a").nth(2).click()
    expect(page.locator("#answer-h")).to_contain_text("row 32")
    page.get_by_role("link", name="Diff", exact=True).click()
    expect(page.locator(".two")).to_be_visible()
    expect(page.locator(".keys")).to_be_hidden()
    context.close()


@pytest.mark.requirement("UI-08", "UI-14")
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
    page.get_by_text("The boxes as a table").click()
    expect(page.locator(".box-list tbody tr")).to_have_count(4)
    assert seen.complaints == []


@pytest.mark.requirement("UI-10")
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("job_id", [1, 3])
def test_a_long_reason_or_name_of_a_row_widens_no_page(
    visit: Visits, shown: House, width: int, job_id: int
) -> None:
    """A word of 400 letters that a verifier said, and a path that a row is called after."""
    viewport = {"width": width, "height": 800}
    page = visit(shown, viewport=viewport).open(f"/jobs/{job_id}/samples")
    page.evaluate(
        """() => {
          for (const place of document.querySelectorAll(".verif p, .side bdi, .list bdi")) {
            place.textContent = "expected".repeat(50);
          }
        }"""
    )

    expect(page.locator("#answer")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.mark.requirement("UI-08")
def test_steps_and_filters_are_reached_by_keyboard_and_stand_in_the_address(
    visit: Visits, shown: House
) -> None:
    """A step is typed, a filter opened and sent without a mouse."""
    seen = visit(shown)
    page = seen.open("/jobs/1/samples?split=pool")
    step = page.locator(".steps").get_by_label("step")
    expect(step).to_have_value("3")

    step.fill("2")
    page.keyboard.press("Enter")
    page.wait_for_url("**step=2**")
    expect(page.locator("#answer .main")).to_contain_text("said at 2")

    page.get_by_text("More filters").focus()
    page.keyboard.press("Enter")
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
    expect(page.locator("article.pair")).to_have_count(10)
    expect(page.locator("article.pair").first.locator(".prose")).to_have_count(2)
    assert seen.complaints == []
