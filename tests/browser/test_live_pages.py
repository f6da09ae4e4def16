"""The pages in a browser: live without a reload, honest when they are not, nothing from outside."""

from __future__ import annotations

import datetime
import re
import time
import zoneinfo
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.app.night import Attempt, night, queue
from tests.browser.conftest import FilledHouse, House, Visit, set_hidden
from worker.memory.trace import MemoryLog
from worker.read import feed, jobs
from worker.schedule import policy
from worker.schedule.policy import Policy

pytestmark = pytest.mark.browser
Visits = Callable[..., Visit]
Houses = Callable[..., House]
KOLKATA = zoneinfo.ZoneInfo("Asia/Kolkata")
"""Half an hour off every zone of whole hours."""


def learn(attempt: Attempt, steps: int) -> None:
    """Some steps with all that a run page draws."""
    attempt.gate(0, 0.55)
    for step in range(1, steps + 1):
        values = {
            "pool/reward_mean": 0.5,
            "train/kl": step / 100,
            "train/entropy": 0.4,
            "rollout/length_mean": 4.0,
            "rollout/truncated": 0.1,
            "rollout/tokens_per_s": 4000.0,
            "mem/rss_gb": 1.9,
        }
        attempt.step(step, 0.5 + step / 100, values)
    attempt.gate(steps, 0.7)


@pytest.mark.requirement("UI-01")
def test_the_board_follows_a_job_from_the_queue_to_its_verdict_without_a_reload(
    visit: Visits, new_house: Houses
) -> None:
    """Queued, running, step by step, done: each state appears by itself, the title with it."""
    house = new_house()
    seen = visit(house)
    page = seen.open("/")
    expect(page.get_by_text("Nothing has been queued yet")).to_be_visible()

    queue(house.db, name="tonight")
    expect(page.locator("#next-1")).to_contain_text("nothing starts jobs by itself")
    with night(house.db) as lane:
        attempt = lane.start()
        learn(attempt, 3)
        expect(page.locator("#job-1")).to_contain_text("step 3 of 40", use_inner_text=True)
        expect(page).to_have_title("3/40 running · 0 queued · Nightlane")
        attempt.step(4, 0.6)
        expect(page.locator("#job-1")).to_contain_text("step 4 of 40", use_inner_text=True)
        attempt.finish()
    expect(page.locator("#run-1")).to_contain_text("gain")
    expect(page.locator("#job-1")).to_have_count(0)
    assert seen.never_reloaded()
    assert seen.complaints == []


@pytest.mark.requirement("UI-11")
def test_a_run_whose_supervisor_fell_silent_turns_stale_by_itself(
    visit: Visits, new_house: Houses
) -> None:
    """No event arrives from a dead drain, so the page's own clock has to say it."""
    house = new_house(lease_s=3)
    queue(house.db)
    page = visit(house).open("/")
    with night(house.db) as lane:
        lane.start()
        pulse = page.locator("#job-1 .pulse")
        expect(pulse).to_contain_text("fresh: heartbeat")

        expect(pulse).to_contain_text("stale: no heartbeat for")


@pytest.mark.requirement("UI-11")
@pytest.mark.parametrize("address", ["/", "/jobs/{running}", "/queue", "/machine"])
def test_what_counts_on_is_asked_for_again_with_every_beat(
    address: str, visit: Visits, filled_house: FilledHouse
) -> None:
    """A heartbeat is no event: a part that only followed events would call a healthy run stale."""
    page = visit(filled_house.house).open(address.format(**filled_house.filled.ids))
    counting = "[data-heartbeat], [data-done-at]"
    counted = page.locator(counting)
    expect(counted.first).to_be_visible()

    left_alone = counted.evaluate_all(
        "(all) => all.filter((i) => !i.closest('[data-live~=beat]')).map((i) => i.className)"
    )

    assert left_alone == []


@pytest.mark.requirement("UI-07")
def test_an_open_machine_page_goes_on_with_the_next_job(visit: Visits, house: House) -> None:
    """Its words and its chart; one whose address names a job stays with that job."""
    first, second = queue(house.db, name="evening"), queue(house.db, name="morning")
    with night(house.db) as lane:
        attempt = lane.start()
        MemoryLog(attempt.run.attempt(1).root).note(time.time(), 9.0, "training")
        follows, stays = visit(house).open("/machine"), visit(house).open(f"/machine?job={first}")
        for page in (follows, stays):
            expect(page.locator(".chart[data-name=memory] canvas")).to_be_visible()
        attempt.finish()
        attempt = lane.start()
        MemoryLog(attempt.run.attempt(1).root).note(time.time(), 9.0, "training")
        attempt.step(1, 0.5)

        expect(follows.locator("#memory-h")).to_contain_text(f"morning rl_run #{second}")
        chart = follows.locator("[data-chart]")
        expect(chart).to_have_attribute("data-chart", f"/machine/{second}/memory.json")
        expect(chart.locator("canvas")).to_be_visible()
        expect(stays.locator("#memory-h")).to_contain_text(f"evening rl_run #{first}")
        attempt.finish()


@pytest.mark.requirement("UI-11")
def test_the_page_counts_hours_and_days_in_the_servers_words(visit: Visits, house: House) -> None:
    """Between two answers the page's own clock writes them; nothing flips with the next answer."""
    queue(house.db)
    with night(house.db) as lane:
        attempt = lane.start()
        attempt.write("progress", phase="training", step=1, max_steps=90_000, eta_s=400_000.0)
        page = visit(house).open(f"/jobs/{attempt.job_id}")
        left = page.locator("#live [data-done-at]")
        expect(left).to_have_text("about 4 d 15 h left")
        left.evaluate("node => { node.textContent = ''; }")
        expect(left).to_have_text("about 4 d 15 h left")

        for age, told in ((7_201, "2 h"), (7_320, "2 h 2 min"), (200_000, "2 d 7 h")):
            page.locator("[data-heartbeat]").evaluate(
                "(pulse, age) => { pulse.dataset.heartbeat = Date.now() / 1000 - age; }", age
            )
            expect(page.locator("[data-heartbeat]")).to_contain_text(f"no heartbeat for {told};")
        attempt.finish()


@pytest.mark.requirement("UI-01")
def test_a_step_is_on_the_board_within_a_second_of_its_event(visit: Visits, house: House) -> None:
    """From the engine's write through ingest, stream and morph."""
    job_id = queue(house.db)
    with night(house.db) as lane:
        attempt = lane.start()
        attempt.step(1, 0.5)
        page = visit(house).open("/")
        took = []
        for step in range(2, 7):
            begun = time.monotonic()
            attempt.step(step, 0.5)
            page.wait_for_selector(f"#job-{job_id} progress[value='{step}']", timeout=5000)
            took.append(time.monotonic() - begun)
        attempt.finish()

    assert sorted(took)[len(took) // 2] < 1.0, took


@pytest.mark.requirement("UI-02")
def test_the_run_page_draws_its_charts_and_redraws_them_as_steps_come(
    visit: Visits, house: House
) -> None:
    """Pool and held-out on one chart with band and gates, and four panels beside it."""
    job_id = queue(house.db)
    with night(house.db) as lane:
        attempt = lane.start()
        learn(attempt, 3)
        seen = visit(house)
        page = seen.open(f"/jobs/{job_id}")
        for name in ("learning", "reward", "kl", "length", "throughput"):
            expect(page.locator(f"#chart-{name} canvas")).to_be_visible()
        before = _picture(page)
        attempt.step(4, 0.9)
        expect(page.locator("#chart-learning figcaption")).to_contain_text("90.0 % at step 4")
        page.wait_for_function(f"before => {_PICTURE} !== before", arg=before)
        attempt.finish()

    assert seen.never_reloaded()
    assert seen.complaints == []


_PICTURE = "document.querySelector('#chart-learning canvas').toDataURL()"


def _picture(page: Page) -> str:
    return str(page.evaluate(_PICTURE))


@pytest.mark.requirement("UI-11")
def test_stale_is_told_in_the_zone_of_the_pages_other_times(
    visit: Visits, new_house: Houses
) -> None:
    """The lane's, wherever box and reader are."""
    house = new_house()
    policy.arm(house.db, Policy(zone=KOLKATA.key), actor="test", now=time.time())
    policy.disarm(house.db, actor="test", now=time.time())
    page = visit(house).open("/")
    before = datetime.datetime.now(KOLKATA)

    house.server.kill()

    connection = page.locator("#connection")
    expect(connection).to_have_text(re.compile(r"stale since \d\d:\d\d:\d\d: .+"))
    since = re.search(r"\d\d:\d\d", connection.inner_text())
    ago = (datetime.timedelta(minutes=minutes) for minutes in (-2, -1, 0, 1, 2))
    assert since
    assert since[0] in {f"{before - apart:%H:%M}" for apart in ago}


@pytest.mark.requirement("UI-11")
def test_a_page_says_stale_when_the_cockpit_dies_and_catches_up_when_it_is_back(
    visit: Visits, house: House
) -> None:
    """Behind the last change it heard, without a reload: what happened meanwhile appears."""
    queue(house.db)
    seen = visit(house)
    page = seen.open("/")
    heard = queue(house.db)
    expect(page.locator(f"#next-{heard}")).to_be_visible()

    house.server.kill()
    expect(page.locator("#connection")).to_contain_text("stale since")
    missed = queue(house.db)
    house.server.start()

    expect(page.locator("#connection")).to_have_text("live", timeout=15_000)
    expect(page.locator(f"#next-{missed}")).to_be_visible()
    assert seen.never_reloaded()
    _run_all(house)


@pytest.mark.requirement("UI-11")
@pytest.mark.parametrize("broken", ["error", "no answer"])
def test_a_part_that_is_not_answered_is_stale_while_the_stream_goes_on(
    visit: Visits, house: House, broken: str
) -> None:
    """Other parts that are answered do not hide it; it is asked for again until it comes."""
    seen = visit(house)
    page = seen.open("/")
    connection = page.locator("#connection")
    page.route(
        "**/?part=live*",
        lambda route: route.fulfill(status=500) if broken == "error" else route.abort(),
    )
    with page.expect_event("requestfinished", lambda request: request.url.endswith("/strip")):
        missed = queue(house.db)
    expect(connection).to_contain_text("stale since")

    with page.expect_event("requestfinished", lambda request: request.url.endswith("/strip")):
        queue(house.db)
    with page.expect_request("**/?part=live*", timeout=15_000):
        pass
    expect(connection).to_contain_text("error (500)" if broken == "error" else "does not answer")
    page.unroute("**/?part=live*")

    expect(page.locator(f"#next-{missed}")).to_be_visible(timeout=15_000)
    expect(connection).to_have_text("live")
    assert seen.never_reloaded()
    _run_all(house)


@pytest.mark.requirement("UI-11")
def test_a_hidden_tab_pauses_in_words_and_catches_up_when_it_is_shown(
    visit: Visits, house: House
) -> None:
    """It costs nothing while nobody looks, and says so."""
    queue(house.db)
    seen = visit(house)
    page = seen.open("/")
    heard = queue(house.db)
    expect(page.locator(f"#next-{heard}")).to_be_visible()

    set_hidden(page, hidden=True)
    expect(page.locator("#connection")).to_have_text("paused: this tab was hidden")
    missed = queue(house.db)
    set_hidden(page, hidden=False)

    expect(page.locator(f"#next-{missed}")).to_be_visible()
    expect(page.locator("#connection")).to_have_text("live")
    assert seen.never_reloaded()
    _run_all(house)


def _run_all(house: House) -> None:
    """Leave an empty queue to the next test."""
    with night(house.db) as lane:
        for _ in jobs.next_jobs(house.db):
            lane.start().finish()


def test_a_name_with_markup_runs_nothing(visit: Visits, house: House) -> None:
    """It is text on the board, on the run page and in the title, also after a live update."""
    evil = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
    seen = visit(house)
    page = seen.open("/")

    job_id = queue(house.db, name=evil)

    expect(page.locator(f"#next-{job_id}")).to_contain_text("<script>window.hacked=1</script>")
    page = seen.open(f"/jobs/{job_id}")
    expect(page.locator("main")).to_contain_text("<script>window.hacked=1</script>")
    assert page.evaluate("window.hacked") is None
    assert seen.complaints == []
    _run_all(house)


def test_pages_break_no_policy_ask_no_other_host_and_fit_their_width(
    visit: Visits, house: House
) -> None:
    """No console complaint at all (a CSP violation is one); nothing scrolls sideways."""
    name = "a name that is rather long, as names of sweeps over several settings are"
    done, runs = queue(house.db, name=name), queue(house.db)
    with night(house.db) as lane:
        attempt = lane.start()
        learn(attempt, 3)
        attempt.log("x" * 300)
        attempt.finish()
        second = lane.start()
        learn(second, 3)
        for scheme, width in (("light", 360), ("dark", 1200)):
            seen = visit(house, color_scheme=scheme, viewport={"width": width, "height": 700})
            for path in ("/", f"/jobs/{done}", f"/jobs/{runs}"):
                page = seen.open(path)
                page.wait_for_load_state("load")
                assert page.evaluate(_OVERFLOW) <= 0, (path, width)
            for path in (f"/jobs/{done}/charts/learning", "/new"):
                page.goto(house.server.url + path)
                assert page.evaluate(_OVERFLOW) <= 0, (path, width)
            assert seen.complaints == []
            assert all(request.url.startswith(house.server.url) for request in seen.requests)
        second.finish()


_OVERFLOW = "document.documentElement.scrollWidth - innerWidth"


@pytest.mark.requirement("JB-02")
def test_a_job_is_queued_from_the_form_with_its_mistakes_shown_beside_the_fields(
    visit: Visits, house: House
) -> None:
    """A wrong answer comes back with its reason; the corrected form leads to the run's page."""
    before = feed.last_change_id(house.db)
    seen = visit(house)
    page = seen.page
    page.goto(house.server.url + "/new?as=form")
    page.get_by_label("base", exact=True).fill("embedded:qwen3-tiny")
    page.get_by_label("lr", exact=True).first.fill("-1")
    page.get_by_label("tuning").select_option("full")
    page.get_by_role("button", name="Queue", exact=True).last.click()

    expect(page.locator(".field.wrong .problem")).to_contain_text("(got -1); use a larger value")
    assert feed.last_change_id(house.db) == before

    page.get_by_label("lr", exact=True).first.fill("1e-4")
    page.get_by_role("button", name="Queue", exact=True).last.click()
    page.wait_for_url("**/jobs/*")
    job = jobs.get_job(house.db, int(page.url.rpartition("/")[2]))
    assert job.config["lr"] == 1e-4
    assert [text for text in seen.complaints if "422" not in text] == []
    _run_all(house)


def test_the_keyboard_reaches_everything_with_a_visible_focus(visit: Visits, house: House) -> None:
    """The first stop is the way past the navigation; each stop has an outline."""
    queue(house.db)
    page = visit(house).open("/")

    stops = []
    for _ in range(20):
        page.keyboard.press("Tab")
        stops.append(page.evaluate("document.activeElement.textContent.trim()"))
        style = "getComputedStyle(document.activeElement).outlineStyle"
        assert page.evaluate(style) == "solid", stops

    assert stops[:3] == ["Skip to content", "Nightlane", "Runs"]
    begin = stops.index("Stop all…")
    assert stops[begin:][:5] == ["Stop all…", "Run now", "Pause the queue", "rl_run", "Cancel"]
    _run_all(house)
