"""The run page in a browser: its charts can be zoomed, smoothed, and read by keys; its tabs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.app.night import Attempt, Night, night, queue
from tests.browser.conftest import House, Visit

pytestmark = pytest.mark.browser
Visits = Callable[..., Visit]


@pytest.fixture
def attempt(house: House) -> Iterator[Attempt]:
    """A run of forty steps that goes on."""
    queue(house.db)
    with night(house.db) as lane:
        yield _learned(lane)


def _learned(lane: Night) -> Attempt:
    made = lane.start()
    made.add("gate", step=0, split="select", score=0.55, n=500, ci95=[0.5, 0.6], selected=True)
    for step in range(1, 41):
        values = {"pool/score": step / 40, "train/kl": 0.01 * step, "train/entropy": 0.4}
        made.add("metric", step=step, values=values)
    made.log("a line\n" * 3000 + "ValueError: no such file\n" + "behind it\n" * 3000)
    made.gate(40, 0.7)
    return made


def _drawn(page: Page, name: str = "learning") -> None:
    expect(page.locator(f"#chart-{name} canvas")).to_be_visible()


_COLONS = """[...document.querySelectorAll("#readings .u-series:not(.edge) th")]
  .map(name => getComputedStyle(name, "::after").content)"""


@pytest.mark.requirement("EX-25")
def test_what_shows_a_warning_stays_open_while_the_run_goes_on(
    visit: Visits, house: House, attempt: Attempt
) -> None:
    """Folded away at first; whoever reads it is not interrupted by the next step."""
    sample = {"prompt": "1+1=", "completion": "2, and so on", "reward": 1.0}
    warned = {"code": "TRUNCATED", "step": 40, "text": "9% are cut off", "samples": [sample]}
    attempt.write("progress", alerts=[warned])
    seen = visit(house)
    page = seen.open(f"/jobs/{attempt.job_id}")
    completion = page.get_by_text("2, and so on")
    expect(completion).to_be_hidden()

    page.get_by_text("1 completion that shows it").click()
    expect(completion).to_be_visible()
    attempt.write("progress", alerts=[warned, {"code": "PLATEAU", "step": 50, "text": "flat"}])

    expect(page.get_by_text("PLATEAU")).to_be_visible()
    expect(completion).to_be_visible()
    assert seen.complaints == []


@pytest.mark.requirement("UI-02")
def test_a_chart_is_read_value_by_value_with_the_arrow_keys(
    visit: Visits, house: House, attempt: Attempt
) -> None:
    """A line at the value, and in words what stands there; Escape takes it away."""
    seen = visit(house)
    page = seen.open(f"/jobs/{attempt.job_id}")
    _drawn(page)
    plot = page.locator("#plot-learning")
    readout = plot.locator(".readout")
    assert set(page.evaluate(_COLONS)) == {"none"}, "no colon without a value behind it"

    plot.focus()
    plot.press("End")
    expect(readout).to_have_text(
        "step 40: pool (training prompts) 100.0 %, held-out (select rows) 70.0 % (66.0 % to 74.0 %)"
    )
    assert set(page.evaluate(_COLONS)) == {'":"'}
    plot.press("ArrowLeft")
    expect(readout).to_have_text("step 39: pool (training prompts) 97.5 %")
    plot.press("Escape")

    expect(readout).to_be_empty()
    expect(plot.locator(".drawn")).to_have_text("all 40 points")
    attempt.finish()
    assert seen.complaints == []


_NOTE_WORDS = """
const { clearRect, fillText } = CanvasRenderingContext2D.prototype;
CanvasRenderingContext2D.prototype.clearRect = function (...area) {
  this.canvas.words = [];
  return clearRect.apply(this, area);
};
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  const wide = this.measureText(text).width;
  const begin = x - { left: 0, center: wide / 2, right: wide }[this.textAlign];
  (this.canvas.words ??= []).push([text, begin, begin + wide, this.canvas.width]);
  return fillText.call(this, text, x, y);
};
"""
_WORDS = "[...document.querySelectorAll('canvas')].flatMap(canvas => canvas.words ?? [])"
"""Every text that stands on a canvas: itself, where it begins and ends, how wide its canvas is."""


@contextmanager
def _charted(
    visit: Visits, house: House, values: Mapping[int, Mapping[str, float]], **options: Any
) -> Iterator[tuple[Attempt, Page]]:
    """The page of a run that measured `values` at these steps; words on its charts are noted."""
    queue(house.db)
    with night(house.db) as lane:
        made = lane.start()
        for step, measured in values.items():
            made.write("metric", step=step, values=dict(measured))
        seen = visit(house, **options)
        seen.page.add_init_script(_NOTE_WORDS)
        yield made, seen.open(f"/jobs/{made.job_id}")
        made.finish()
    assert seen.complaints == []


@pytest.mark.requirement("UI-02")
@pytest.mark.parametrize("language", ["en-GB", "de-DE"])
def test_a_step_is_written_exactly_and_alike_in_a_browser_of_any_language(
    visit: Visits, house: House, language: str
) -> None:
    """At the axis, in the legend, under the keys: as in the page's own words, which are English."""
    steps = range(1_234_561, 1_234_568)
    values = {step: {"pool/score": 0.5} for step in steps}
    with _charted(visit, house, values, locale=language) as (_, page):
        _drawn(page)
        plot = page.locator("#plot-learning")
        plot.focus()
        plot.press("End")

        said = "step 1234567: pool (training prompts) 50.0 %"
        expect(plot.locator(".readout")).to_have_text(said)
        expect(page.locator("#readings .u-value").first).to_have_text("1234567")
        ticks = [word for word, *_ in page.evaluate(_WORDS) if re.fullmatch("[0-9.,]+", word)]
        assert set(ticks) == {str(step) for step in steps}


@pytest.mark.requirement("UI-02")
@pytest.mark.parametrize("width", [1280, 390])
def test_long_numbers_at_the_axis_do_not_run_into_each_other(
    visit: Visits, house: House, width: int
) -> None:
    """Two million steps: as many ticks as there is room for their numbers."""
    values = {step: {"pool/score": 0.5} for step in range(0, 2_000_001, 100_000)}
    viewport = {"width": width, "height": 900}
    with _charted(visit, house, values, viewport=viewport) as (_, page):
        _drawn(page)

        words = page.evaluate(_WORDS)
        numbers = [place for place in words if re.fullmatch("[0-9]+", place[0])]
        assert [word for word, begin, end, room in numbers if begin < 0 or end > room] == []
        places = sorted({(begin, end) for _, begin, end, _ in numbers})
        assert len(places) > 2
        assert [pair for pair in itertools.pairwise(places) if pair[1][0] < pair[0][1] + 4] == []


@pytest.mark.requirement("UI-02")
def test_long_numbers_beside_an_axis_are_seen_whole(visit: Visits, house: House) -> None:
    """A million without its first digit is none, nor is a learning rate."""
    large = ("pool/reward_mean", "train/kl", "train/entropy")
    values = {
        step: {"lr": 1e-6 / step} | dict.fromkeys(large, -1_234_567 * step) for step in (1, 2, 3)
    }
    with _charted(visit, house, values) as (_, page):
        page.locator("details[data-series=lr] summary").click()
        for name in ("reward", "kl"):
            _drawn(page, name)
        expect(page.locator("details[data-series=lr] canvas")).to_be_visible()

        numbers = [
            place for place in page.evaluate(_WORDS) if re.fullmatch(r"-?[0-9.e-]+", place[0])
        ]
        shown = {word for word, *_ in numbers}
        assert {word for word in shown if len(word) > 7} & {"-2000000", "-3000000"}
        assert {word for word in shown if word.endswith("e-7")} | shown & {"0.000001"}
        cut = [word for word, begin, end, room in numbers if begin < 0 or end > room]
        assert cut == []
        page.locator("#plot-reward").press("End")
        readout = page.locator("#plot-reward .readout")
        expect(readout).to_have_text("step 3: mean reward -3703701")
        expect(page.locator("#chart-reward figcaption")).to_contain_text("-3703701 at step 3")


_EMPTY = """name => {
  const canvas = document.querySelector(`details[data-series='${name}'] canvas`);
  const { data, width } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const coloured = new Set();
  for (let at = 0; at < data.length; at += 4) {
    const parts = data.slice(at, at + 3);
    const opaque = data[at + 3] > 127;
    if (opaque && Math.max(...parts) - Math.min(...parts) > 40) coloured.add((at / 4) % width);
  }
  const across = [...coloured].sort((a, b) => a - b);
  const widest = Math.max(...across.slice(1).map((x, before) => x - across[before]));
  return widest / (across.at(-1) - across[0]);
}"""
"""The widest stretch of a line in which nothing is drawn, as a share of it: all else is grey."""


@pytest.mark.requirement("UI-02")
def test_what_was_no_number_is_a_gap_in_the_drawing(visit: Visits, house: House) -> None:
    """NaN at step 3 of 5: nothing from step 2 to 4, and the count says so; another line goes
    through. So does the small line of the board where a gate's score is no number.
    """
    queue(house.db)
    with night(house.db) as lane:
        made = lane.start()
        for step in range(1, 6):
            lost = None if step == 3 else 0.2
            made.add("metric", step=step, values={"train/kl": lost, "train/entropy": 0.4})
            made.add("gate", step=step, split="select", score=lost, n=500)
        made.finish()
    page = visit(house).open(f"/jobs/{made.job_id}")
    for name in ("train/kl", "train/entropy"):
        page.locator(f"details[data-series='{name}'] summary").click()
        expect(page.locator(f"details[data-series='{name}'] canvas")).to_be_visible()

    expect(page.locator("#chart-kl")).to_contain_text("4 of 5 points; 1 is not a number")
    # half of the width, with the mark of step 3 in the middle of it
    assert page.evaluate(_EMPTY, "train/kl") == pytest.approx(0.25, abs=0.05)
    assert page.evaluate(_EMPTY, "train/entropy") < 0.05

    small = visit(house).open("/").locator(f"#run-{made.job_id} svg.spark")
    expect(small.locator("polyline")).to_have_count(2)
    expect(small).to_have_attribute("aria-label", re.compile("; 1 is not a number$"))


@pytest.mark.requirement("UI-02")
def test_ticks_beside_a_value_that_hardly_moves_differ(visit: Visits, house: House) -> None:
    """98.41 twice, one above the other, would make a slope of nothing."""
    values = {step: {"memory_gb": 98.41 + 0.01 * step} for step in (1, 2, 3)}
    with _charted(visit, house, values) as (_, page):
        page.locator("details[data-series=memory_gb] summary").click()
        expect(page.locator("details[data-series=memory_gb] canvas")).to_be_visible()

        ticks = [word for word, *_ in page.evaluate(_WORDS) if re.fullmatch(r"98\.[0-9]+", word)]
        assert len(ticks) > 3
        assert len(set(ticks)) == len(ticks), ticks


@pytest.mark.requirement("UI-02")
def test_axis_smoothing_and_a_dragged_part_stand_in_the_address(
    visit: Visits, house: House, attempt: Attempt
) -> None:
    """A link shows the same, and one button shows the whole run again."""
    seen = visit(house)
    page = seen.open(f"/jobs/{attempt.job_id}")
    _drawn(page)
    page.get_by_label("smoothing").select_option("0.9")
    page.locator("[name=axis][value=time]").check()
    expect(page.locator("#readings .u-label").first).to_contain_text("since the first start")
    page.locator("[name=axis][value=step]").check()
    expect(page.locator("#readings .u-label").first).to_have_text("step")

    box = page.locator("#chart-learning .u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 50, steps=5)
    page.mouse.up()
    expect(page.locator("#plot-kl .drawn")).to_have_text("all 21 points")
    assert "smooth=0.9&from=10&to=30" in page.url

    again = visit(house).open(page.url.removeprefix(house.server.url))
    expect(again.locator("#plot-kl .drawn")).to_have_text("all 21 points")
    expect(again.get_by_label("smoothing")).to_have_value("0.9")
    page.get_by_role("button", name="Show the whole run").click()
    expect(page.locator("#plot-kl .drawn")).to_have_text("all 40 points")
    assert "from=" not in page.url
    attempt.finish()
    assert seen.complaints == []


_COUNT_DRAWS = """
const clear = CanvasRenderingContext2D.prototype.clearRect;
CanvasRenderingContext2D.prototype.clearRect = function (...area) {
  this.canvas.dataset.draws = Number(this.canvas.dataset.draws ?? 0) + 1;
  return clear.apply(this, area);
};
"""
_DRAWS = "[...document.querySelectorAll('canvas')].map(canvas => canvas.dataset.draws)"


_ASKED_FOR_FOUR = """() => performance.getEntriesByType("resource")
  .filter(({ name }) => name.includes("/charts/")).length >= 4"""


def _asked_for_charts(seen: Visit) -> list[str]:
    addresses = [request.url.partition("/charts/") for request in seen.requests]
    return [asked for _, found, asked in addresses if found]


@pytest.mark.requirement("UI-02")
def test_each_chart_is_asked_for_once_and_again_at_the_next_step(
    visit: Visits, house: House, attempt: Attempt
) -> None:
    """Those out of sight too; and nothing is drawn a second time before something has changed."""
    seen = visit(house, viewport={"width": 1280, "height": 700})
    page = seen.page
    page.add_init_script(_COUNT_DRAWS)
    seen.open(f"/jobs/{attempt.job_id}")
    _drawn(page)
    _drawn(page, "kl")
    expect(page.locator("#plot-learning .drawn")).to_have_text("all 40 points")
    page.wait_for_function("performance.getEntriesByName('charts-shown').length")
    for _ in range(3):
        page.evaluate("new Promise(requestAnimationFrame)")

    both = ["kl.json?points=500", "learning.json?points=1000"]
    assert set(page.evaluate(_DRAWS)) == {"1"}
    assert sorted(_asked_for_charts(seen)) == both
    attempt.step(41, 0.9)
    expect(page.locator("#plot-learning .drawn")).to_have_text("all 41 points")
    page.wait_for_function(_ASKED_FOR_FOUR)

    assert sorted(_asked_for_charts(seen)) == sorted(both * 2)
    attempt.finish()
    assert seen.complaints == []


@pytest.mark.requirement("UI-02")
def test_a_dragged_part_of_a_long_run_comes_in_more_detail(visit: Visits, house: House) -> None:
    """From stretches of eight steps to the values themselves."""
    queue(house.db)
    with night(house.db) as lane:
        made = lane.start()
        for step in range(1, 3001):
            values = {"pool/score": step / 3000, "train/kl": 0.01 * step, "train/entropy": 0.4}
            made.add("metric", step=step, values=values)
        made.finish()
    seen = visit(house)
    page = seen.open(f"/jobs/{made.job_id}")
    expect(page.locator("#plot-kl .drawn")).to_contain_text("376 of 3000 points: each stands for 8")
    box = page.locator("#chart-learning .u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 50, steps=5)
    page.mouse.up()

    expect(page.locator("#plot-kl .drawn")).to_have_text(re.compile(r"^all (29|30)\d points$"))
    expect(page.locator("#plot-learning .drawn")).to_have_text(
        re.compile(r"^all (29|30)\d points$")
    )
    assert seen.complaints == []


@pytest.mark.requirement("UI-02")
def test_a_series_is_drawn_when_it_is_opened_and_stays_open_through_a_live_update(
    visit: Visits, house: House, attempt: Attempt
) -> None:
    """Nothing is asked for a chart that nobody looks at."""
    seen = visit(house)
    page = seen.open(f"/jobs/{attempt.job_id}?find=entropy")
    _drawn(page)
    expect(page.locator("details[data-series]")).to_have_count(1)
    assert not any("series.json" in request.url for request in seen.requests)

    page.locator("details[data-series] summary").click()
    expect(page.locator("details[data-series] canvas")).to_be_visible()
    assert "show=train%2Fentropy" in page.url
    attempt.step(41, 0.9)

    expect(page.locator("#chart-learning figcaption")).to_contain_text("90.0 % at step 41")
    expect(page.locator("details[data-series] canvas")).to_be_visible()
    attempt.finish()
    assert seen.complaints == []


@pytest.mark.requirement("UI-02")
def test_a_search_among_the_series_keeps_what_the_charts_show(
    visit: Visits, house: House, attempt: Attempt
) -> None:
    """Also what was chosen since the page came; without script, what it came with."""
    seen = visit(house)
    page = seen.open(f"/jobs/{attempt.job_id}?axis=time&from=3")
    _drawn(page)
    page.get_by_label("smoothing").select_option("0.9")
    page.get_by_label("name holds").fill("entropy")
    page.get_by_label("name holds").press("Enter")
    page.wait_for_url("**find=entropy**")
    assert "axis=time&from=3&smooth=0.9&find=entropy" in page.url

    plain = visit(house, java_script_enabled=False).page
    plain.goto(f"{house.server.url}/jobs/{attempt.job_id}?axis=time&from=3&show=train%2Fkl")
    plain.get_by_label("name holds").fill("entropy")
    plain.get_by_label("name holds").press("Enter")
    plain.wait_for_url("**find=entropy**")
    assert "axis=time&from=3&show=train%2Fkl&find=entropy" in plain.url
    assert seen.complaints == []


@pytest.mark.requirement("UI-02")
def test_every_tab_fits_a_phone_and_leads_to_the_first_error(
    visit: Visits, house: House, attempt: Attempt
) -> None:
    """No tab scrolls sideways; the log opens at the line that matters."""
    seen = visit(house, viewport={"width": 390, "height": 800})
    for tab in ("charts", "log", "memory", "config", "events", "repro"):
        page = seen.open(f"/jobs/{attempt.job_id}?tab={tab}")
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, tab
    page = seen.open(f"/jobs/{attempt.job_id}?tab=log")
    page.get_by_role("link", name="First error").click()

    expect(page.locator("#hit")).to_have_text("▸ ValueError: no such file")
    attempt.finish()
    assert seen.complaints == []


@pytest.mark.requirement("UI-02")
def test_back_returns_to_the_part_and_the_axis_before(
    visit: Visits, house: House, attempt: Attempt
) -> None:
    """Each that somebody chose is a place to come back to; smoothing is none."""
    seen = visit(house)
    page = seen.open(f"/jobs/{attempt.job_id}")
    _drawn(page)
    drawn = page.locator("#plot-kl .drawn")
    page.locator("[name=axis][value=time]").check()
    page.get_by_label("smoothing").select_option("0.9")
    page.get_by_label("step", exact=True).fill("10")
    page.get_by_label("step", exact=True).press("Enter")
    expect(drawn).to_have_text("all 31 points")

    page.go_back()
    expect(drawn).to_have_text("all 40 points")
    expect(page.locator("[name=axis][value=time]")).to_be_checked()
    expect(page.get_by_label("step", exact=True)).to_have_value("")
    page.go_back()
    expect(page.locator("[name=axis][value=step]")).to_be_checked()
    expect(page.locator("#readings .u-label").first).to_have_text("step")
    page.go_forward()
    expect(page.locator("[name=axis][value=time]")).to_be_checked()

    assert seen.never_reloaded()
    attempt.finish()
    assert seen.complaints == []


_DOTS = """
name => {
  const canvas = document.querySelector('#plot-learning canvas');
  const { width, height } = canvas;
  const copy = Object.assign(document.createElement('canvas'), { width, height });
  const ink = copy.getContext('2d', { willReadFrequently: true });
  const dots = () => new Uint32Array(ink.getImageData(0, 0, width, height).data.buffer);
  const style = getComputedStyle(document.documentElement);
  ink.fillStyle = style.getPropertyValue(`--chart-${name}`).trim();
  ink.fillRect(0, 0, 1, 1);
  const [wanted] = dots();
  ink.clearRect(0, 0, 1, 1);
  ink.drawImage(canvas, 0, 0);
  // Where an interval lies over a line, its colour may be one off.
  const apart = (dot, shift) => Math.abs(((dot >>> shift) & 255) - ((wanted >>> shift) & 255));
  return dots().filter(dot => [0, 8, 16, 24].every(shift => apart(dot, shift) <= 2)).length;
}
"""
"""How many dots of the first chart have this very colour: `a` is the pool's, `b` is held-out's."""


@pytest.mark.requirement("UI-02")
def test_between_two_gates_the_line_of_held_out_is_drawn_and_the_keys_stay_inside(
    visit: Visits, house: House, attempt: Attempt
) -> None:
    """The plot ends where the part does; its neighbours outside are not read as parts of it."""
    seen = visit(house)
    page = seen.open(f"/jobs/{attempt.job_id}?from=11&to=19&smooth=0.9")
    _drawn(page)
    expect(page.locator("#plot-learning .drawn")).to_have_text("all 9 points")
    plot = page.locator("#plot-learning")
    plot.focus()
    for key, step in (("Home", 11), ("ArrowLeft", 11), ("End", 19), ("ArrowRight", 19)):
        plot.press(key)
        share = f"{step / 40 * 100:.1f} %"
        readout = f"step {step}: pool (training prompts) {share}"
        expect(plot.locator(".readout")).to_have_text(readout)
    plot.press("Escape")

    assert page.evaluate(_DOTS, "b") > 500
    attempt.finish()
    assert seen.complaints == []


@pytest.mark.requirement("UI-02")
def test_a_value_that_stands_alone_is_seen_as_a_dot_until_a_line_joins_it(
    visit: Visits, house: House
) -> None:
    """The first step of a run, or a part of one step: a line through one point is none."""
    with _charted(visit, house, {1: {"pool/score": 0.5}}) as (made, page):
        _drawn(page)
        expect(page.locator("#plot-learning .drawn")).to_have_text("1 point")
        assert 0 < page.evaluate(_DOTS, "a") < 50

        made.write("metric", step=2, values={"pool/score": 0.5})
        expect(page.locator("#plot-learning .drawn")).to_have_text("all 2 points")
        assert page.evaluate(_DOTS, "a") > 300, "now a line"


@pytest.mark.requirement("UI-02")
def test_one_cursor_reads_every_chart_and_warnings_stand_under_the_numbers_of_their_flags(
    visit: Visits, house: House
) -> None:
    """Three quarters of a desk's width are the plot; a log axis is kept in the address."""
    values = {step: {"pool/score": step / 50, "train/kl": 0.01 * step} for step in range(1, 41)}
    desk = {"width": 1440, "height": 900}
    with _charted(visit, house, values, viewport=desk) as (attempt, page):
        said = [("KL_TOKEN", 10, "a token at 4.7 nats"), ("PLATEAU", 30, "flat since step 10")]
        alerts = [{"code": code, "step": step, "text": text} for code, step, text in said]
        attempt.write("progress", alerts=alerts)
        expect(page.locator(".warnlist li")).to_have_text([re.compile(text) for *_, text in said])
        page.reload()
        _drawn(page, "kl")

        flags = "canvas => (canvas.words ?? []).map(([word]) => word)"
        drawn = {name: page.locator(f"#plot-{name} canvas") for name in ("learning", "kl")}
        assert {"1", "2"} <= set(drawn["learning"].evaluate(flags))
        expect(page.locator(".warnlist .flagno")).to_have_text(["1", "2"])
        over = page.locator("#plot-learning .u-over")
        box = over.bounding_box()
        assert box is not None
        assert box["width"] >= 0.75 * desk["width"]
        over.hover(position={"x": box["width"] * 0.5, "y": 50})
        read = [page.locator(f"{at} .u-value").first for at in ("#readings", "#plot-kl")]
        expect(read[0]).to_have_text(re.compile(r"^2\d$"))
        assert read[0].inner_text() == read[1].inner_text()
        page.get_by_role("radio", name="log").check()
        expect(page.locator("#plot-kl .drawn")).to_have_text("all 40 points")
        assert "scale=log" in page.url
        page.reload()
        expect(page.get_by_role("radio", name="log")).to_be_checked()
        link = page.get_by_role("link", name="KL and entropy as CSV").get_attribute("href")
        file = page.request.get(f"{page.url.partition('/jobs')[0]}{link}").text().splitlines()
        assert (file[0], file[10]) == ("step,train/kl", "10,0.1")
