"""Words of any length and direction: a page keeps its width, its numbers and its place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page
from sqlalchemy import insert, update

from tests.browser.conftest import FilledHouse, Visit
from tests.browser.places import PLACES, Place
from tests.browser.test_every_page import PHONE, WIDE
from worker.db.tables import job, job_tag

pytestmark = pytest.mark.browser
Visits = Callable[..., Visit]

ONE_WORD = "W" * 120
RIGHT_TO_LEFT = "تدريب على الجمع"
NAMED = (
    "board",
    "queue",
    "compare",
    "compare-two",
    "report-night",
    "machine",
    "stop",
    "run-queued",
)
SHOWN = [place for place in PLACES if place.name in NAMED]
BOARD_WIDTHS = (1280, 1199, 1000, 660)
"""A full screen, hardly less, and two halves of one."""


@pytest.fixture(scope="module")
def renamed(filled_house: FilledHouse) -> FilledHouse:
    """The busy house with names and a tag that nobody would wish for."""
    ids = filled_house.filled.ids
    with filled_house.house.db.write_tx() as conn:
        for key in ("gain", "running", "crash", "too_large"):
            conn.execute(update(job).where(job.c.id == ids[key]).values(name=ONE_WORD))
        conn.execute(update(job).where(job.c.id == ids["loss"]).values(name=RIGHT_TO_LEFT))
        conn.execute(insert(job_tag), [{"tag": "t" * 40, "job_id": ids["gain"]}])
        mine = update(job).where(job.c.id == ids["too_large"])
        conn.execute(mine.values(defer_detail=f"{ONE_WORD} must end first"))
    return filled_house


@pytest.mark.requirement("UI-10")
@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("place", SHOWN, ids=lambda place: place.name)
def test_a_name_of_one_long_word_widens_no_page(
    place: Place, viewport: dict[str, int], visit: Visits, renamed: FilledHouse
) -> None:
    """Nor the table of runs, whose tag is one long word too."""
    page = visit(renamed.house, viewport=viewport).open(place.at(renamed.filled))

    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert page.evaluate(WIDER) == []


WIDER = """() => [...document.querySelectorAll(".scroll:has(.runs)")]
  .map((region) => region.scrollWidth - region.clientWidth).filter((over) => over > 0)"""


@pytest.mark.requirement("UI-10")
@pytest.mark.parametrize(
    ("name", "width"), [("report-night", 1280), *(("board", width) for width in BOARD_WIDTHS)]
)
def test_the_longest_numbers_widen_no_table_of_runs(
    name: str, width: int, visit: Visits, renamed: FilledHouse
) -> None:
    """From all to nothing, in weeks, for millions: every column is still in sight."""
    (place,) = (place for place in SHOWN if place.name == name)
    viewport = {"width": width, "height": 844}
    page = visit(renamed.house, viewport=viewport).open(place.at(renamed.filled))

    page.evaluate(
        """() => {
          const longest = {"held-out": "100.0 % → 100.0 %", lift: "−100.0 points",
            took: "24 d 23 h", cost: "$5999400.16", ended: "Nov 22, 23:58", rows: "1000000"};
          for (const [label, text] of Object.entries(longest)) {
            for (const cell of document.querySelectorAll(`.runs [data-label="${label}"]`)) {
              const quiet = cell.querySelector(".quiet");
              cell.firstChild.textContent = text;
              if (quiet && label === "took") quiet.textContent = "20000000 steps";
              if (quiet && label === "lift") quiet.textContent = "(−100.0 to +100.0)";
            }
          }
        }"""
    )

    assert page.evaluate(WIDER) == []
    beyond = (
        "[...document.querySelectorAll('.runs td')].filter((c) => c.scrollWidth > c.clientWidth)"
    )
    assert page.evaluate(f"{beyond}.map((cell) => [cell.dataset.label, cell.textContent])") == []


@pytest.mark.requirement("UI-10")
@pytest.mark.parametrize("width", BOARD_WIDTHS)
def test_what_counts_on_moves_nothing_on_the_board(
    visit: Visits, renamed: FilledHouse, width: int
) -> None:
    """While a pointer rests on a run's link its row stays where it is, whatever the times say."""
    page = visit(renamed.house, viewport={"width": width, "height": 800}).open("/")
    ages = ("0.3 s ago", "9.9 s ago", "14 s ago", "stale: 16 s")
    lefts = ("about 5 s left", "about 12 min left", "about 23 h left")

    stood = {
        page.evaluate(
            """([age, left]) => {
              const table = document.querySelector(".runs");
              const row = table.querySelector("tr:has([data-done-at])");
              row.querySelector(".pulse").textContent = age;
              row.querySelector("[data-done-at]").textContent = left;
              const places = [...table.querySelectorAll("tr, td, th")].map((one) => {
                const { x, y, width } = one.getBoundingClientRect();
                return [x, y, width];
              });
              return JSON.stringify(places);
            }""",
            [age, left],
        )
        for age in ages
        for left in lefts
    }

    assert len(stood) == 1


@pytest.mark.requirement("UI-10")
def test_a_name_that_is_read_from_right_to_left_moves_no_number(
    visit: Visits, renamed: FilledHouse
) -> None:
    """The job's number stands behind the whole name, as it does behind any other."""
    page = visit(renamed.house, viewport=WIDE).open("/")
    row = page.locator(f"#run-{renamed.filled.ids['loss']} th")

    name, number = row.locator("bdi").first.bounding_box(), row.locator(".quiet").bounding_box()

    assert name is not None
    assert number is not None
    assert number["x"] >= name["x"] + name["width"]


@pytest.mark.requirement("UI-02")
@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
def test_the_notice_of_a_stale_page_moves_nothing(
    viewport: dict[str, int], visit: Visits, renamed: FilledHouse
) -> None:
    """However many words it has; it lies inside the window."""
    page = visit(renamed.house, viewport=viewport).open("/")
    before = top_of_the_page(page)

    page.evaluate(
        """() => {
          const notice = document.getElementById("connection");
          notice.dataset.state = "stale";
          notice.firstElementChild.textContent = "stale since 09:00:00: " + "why ".repeat(30);
        }"""
    )

    assert top_of_the_page(page) == before
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    notice = page.locator("#connection").bounding_box()
    assert notice is not None
    assert notice["y"] + notice["height"] <= viewport["height"]


def top_of_the_page(page: Page) -> float:
    """Where the page begins under its header, in pixels."""
    top: float = page.evaluate("document.querySelector('main').getBoundingClientRect().top")
    return top


@pytest.mark.requirement("UI-05")
def test_on_paper_an_interval_is_no_larger_than_its_difference(
    visit: Visits, renamed: FilledHouse
) -> None:
    """What is small on the screen is small on paper, whatever size paper has."""
    page = visit(renamed.house).open(f"/report?date={renamed.filled.bad_night}")
    page.emulate_media(media="print")

    sizes = page.evaluate(
        """() => {
          const small = document.querySelector(".ran .num .quiet");
          const size = (one) => parseFloat(getComputedStyle(one).fontSize);
          return [small, small.parentElement].map(size);
        }"""
    )

    assert sizes[0] < sizes[1]
