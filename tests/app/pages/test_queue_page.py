"""The queue page: order, reasons, tonight on one axis, and arming it in one sentence."""

from __future__ import annotations

import datetime
import html
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.text.autonomy_words import hours_in_words, numbers_in_words
from app.web.shipped import demo_recipe
from tests.app.conftest import Said
from tests.app.night import CONFIG, night, queue
from tests.zones import zone_where_it_is
from worker.budget.price import set_price
from worker.db import decisions
from worker.db.connection import Database
from worker.queue import pausing
from worker.queue.submission import submission
from worker.queue.submit import enqueue
from worker.queue.sweeps import submit_sweep
from worker.read import jobs
from worker.schedule import policy
from worker.schedule.policy import Policy

HTML = {"accept": "text/html"}
TERMS = {
    "interval_min": "30",
    "window": "22:00-07:00",
    "days": "mon-fri",
    "zone": "Europe/Berlin",
    "cap_usd": "5",
    "cap_gpu_hours": "8",
    "max_failures": "2",
    "expires": "+7d",
}
TONIGHT = {"opens": "22:00", "closes": "07:00", "cap_usd": "5.00", "max_failures": "3"}


def words(text: str) -> str:
    """The page as it reads."""
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", text).split()))


def row_of(page: str, number: int) -> str:
    """The row of one job."""
    return page.partition(f'id="q-{number}"')[2].partition("</li>")[0]


def order(client: TestClient) -> list[int]:
    """The jobs that stand in turn, as the page lists them."""
    turn = client.get("/queue").text.partition('id="turn"')[2].partition("</section>")[0]
    return [int(number) for number in re.findall(r'data-job="(\d+)"', turn)]


@pytest.fixture
def open_hours(db: Database) -> policy.Standing:
    """An armed lane that may start now."""
    terms = Policy(zone="UTC", cap_usd=5, expires_at=time.time() + 12 * 3600)
    return policy.arm(db, terms, actor="cli:ada", now=time.time())


@pytest.mark.requirement("UI-04")
def test_an_empty_queue_says_which_command_comes_next(client: TestClient) -> None:
    """And that nothing starts by itself."""
    text = words(client.get("/queue").text)

    assert "Not armed" in text
    assert "Nothing waits" in text
    assert f"cockpit enqueue rl_run {demo_recipe()}" in text
    assert "Nothing was decided about this lane yet" in text


@pytest.mark.requirement("UI-04")
def test_what_holds_a_lane_back_is_told_in_whole_sentences(
    client: TestClient, db: Database
) -> None:
    """Closed hours, a pause, a lane that was disarmed: nothing is said twice or glued together."""
    opens = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=3)
    window = f"{opens:%H}:00-{opens + datetime.timedelta(hours=1):%H}:00"
    policy.arm(db, Policy(zone="UTC", window=window), actor="t", now=time.time())
    queue(db)
    text = words(client.get("/queue").text)
    assert re.search(r"Closed now, opens at [\w\d: ,-]+\. jobs run|Closed now, opens at", text), (
        text
    )
    assert "OUTSIDE_WINDOW" in text

    pausing.pause(db, actor="t")
    text = words(client.get("/queue").text)
    assert "Tonight, if the queue were resumed" in text
    assert "Paused by t" in text

    client.post("/queue/disarm")
    text = words(client.get("/queue").text)
    assert "Not armed" in text
    assert "Arm tonight" in text


@pytest.mark.requirement("UI-04")
def test_a_policy_that_gave_up_says_so_in_a_sentence(client: TestClient, db: Database) -> None:
    """In the heading, the title and the strip alike: nobody goes to bed under the word armed."""
    terms = Policy(zone="UTC", expires_at=time.time() - 60)
    policy.arm(db, terms, actor="t", now=time.time() - 3600)

    page = client.get("/queue").text

    text = words(page)
    assert "0 queued · off" in text
    assert "No longer armed" in text
    assert "No job starts by itself any more: the policy has run out; set it again" in text
    assert "open now" not in text
    assert "Switch it off" in text
    assert "autonomy OFF" in text
    assert client.get("/api/v1/autonomy").json() | {"armed": False, "over": True} == (
        client.get("/api/v1/autonomy").json()
    )


def test_an_armed_page_names_the_moment_until_which_it_is_true(
    client: TestClient, db: Database
) -> None:
    """No event tells that hours have begun or ended: the page asks again by itself."""
    ends = time.time() + 3600
    policy.arm(db, Policy(zone="UTC", expires_at=ends), actor="t", now=time.time())
    assert f'data-until="{ends}"' in client.get("/queue").text

    policy.arm(db, Policy(zone="UTC"), actor="t", now=time.time())
    assert "data-until" not in client.get("/queue").text


@pytest.mark.requirement("UI-04")
def test_every_queued_job_says_why_it_waits_and_what_tonight_holds(
    client: TestClient, db: Database, open_hours: policy.Standing
) -> None:
    """The first what the queue waits for, the others behind whom, the rest what is their own."""
    first, second = queue(db, name="first"), queue(db, name="second")
    later = enqueue(db, "rl_run", CONFIG, actor="test", name="later", force=True, not_before="+2h")
    child = enqueue(db, "rl_run", CONFIG, actor="test", name="child", force=True, after=[first])

    page = client.get("/queue").text
    text = words(page)

    assert order(client) == [first, second]
    assert "WAITING_FOR_TICK" in text
    assert "its start time has not come; no estimate, counted as 1 h NOT_BEFORE" in text
    assert f"runs after job {first}; no estimate, counted as 1 h WAITING_FOR" in text
    for number in (first, second, later, child):
        row = row_of(page, number)
        assert "0.5 GB" in row
        assert "no estimate, counted as 1 h" in row
        assert 'class="guess"' in row
        assert re.search(r"<time datetime=", row)  # what waits for its own thing too


@pytest.mark.requirement("UI-04")
def test_a_job_that_would_be_put_off_tonight_says_so_before(
    client: TestClient, db: Database
) -> None:
    """The preview asks the governor: two hours do not go into a cap of one."""
    terms = Policy(zone=zone_where_it_is(12), cap_gpu_hours=1.5)
    policy.arm(db, terms, actor="t", now=time.time())
    queue(db)
    queue(db)

    text = words(client.get("/queue").text)

    assert "◇ waits: cap" in text
    assert "1.00 of today's 1.5 lane hours are used" in text
    assert "Will not run tonight" in text
    assert "OVER_DAILY_CAP" in text


@pytest.mark.requirement("UI-04")
def test_the_page_says_who_armed_the_lane_until_when_and_what_is_used(
    client: TestClient, db: Database, open_hours: policy.Standing
) -> None:
    """In plain words, with caps and the last decisions with rule and numbers."""
    number = queue(db)
    with db.write_tx() as conn:
        decisions.record(
            conn,
            "test",
            "defer",
            "it needs <30 GB",
            actor="drain:7",
            job_id=number,
            rule="OOM_ENVELOPE",
            numbers={"need_gb": 30.0, "free_gb": 20.5},
        )

    text = words(client.get("/queue").text)

    assert "Armed: at every hour of every day (UTC), spend at most $5 a day" in text
    assert "Open now, closes at" in text
    assert "armed by cli:ada" in text
    assert "$0.00 of $5" in text
    assert "OOM_ENVELOPE it needs <30 GB need 30.0 GB · free 20.5 GB" in text


@pytest.mark.requirement("UI-04")
def test_buttons_move_a_job_up_down_and_to_the_top(client: TestClient, db: Database) -> None:
    """Plain forms that name the neighbour the person saw; the audit names the browser."""
    one, two, three = queue(db), queue(db), queue(db)

    def press(job: int, label: str) -> None:
        page = client.get("/queue").text
        form = next(
            found
            for found in re.findall(r"<form.*?</form>", page, re.DOTALL)
            if f"/jobs/{job}/move" in found and f">{label}<" in found
        )
        action = re.search(r'action="([^"]+)"', form)
        field = re.search(r'name="(\w+)" value="(\w+)"', form)
        assert action
        assert field
        answer = client.post(action[1], data={field[1]: field[2]}, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, f"/queue#q-{job}")
        assert f'id="q-{job}" class="row" tabindex="-1"' in page  # there the focus goes

    press(three, "Up")
    assert order(client) == [one, three, two]
    press(one, "Down")
    assert order(client) == [three, one, two]
    press(two, "Top")
    assert order(client) == [two, three, one]
    assert jobs.audit(db, two)[-1].actor == "browser"


def test_a_cancel_offers_the_way_back_with_all_that_went_with_it(
    client: TestClient, db: Database
) -> None:
    """The jobs behind it are cancelled too; undone, each waits in its place of before."""
    one, two = queue(db, name="one"), queue(db, name="two")
    child = enqueue(db, "rl_run", CONFIG, actor="t", name="child", force=True, after=[one])
    last = enqueue(db, "rl_run", CONFIG, actor="t", name="last", force=True, after=[child])

    page = client.post(f"/queue/jobs/{one}/cancel").text

    toast = page.partition("data-toast")[2].partition("</div>")[0]
    assert f"Job {one} and 2 jobs behind it were cancelled." in words("<" + toast)
    gone = re.findall(r'name="job" value="(\d+)"', toast)
    assert gone == [str(one), str(child), str(last)]
    assert order(client) == [two]
    client.post("/queue/restore", data={"job": gone})
    assert order(client) == [one, two]
    assert [job.id for job in jobs.put_off(db)] == [child, last]
    assert "data-toast" not in client.get(f"/queue?cancelled={one}").text


def test_what_may_be_changed_of_a_waiting_job_has_a_form(client: TestClient, db: Database) -> None:
    """Name, priority, start; a mistake stands at its field, and nothing is written."""
    first, number = queue(db), queue(db, name="before")
    address = f"/queue/jobs/{number}/edit"
    assert 'value="before"' in client.get(address).text

    wrong = client.post(address, data={"name": "x", "priority": "many", "not_before": ""})
    assert wrong.status_code == 422
    assert re.search(r'class="field wrong">\s*<label for="edit-priority"', wrong.text)
    assert jobs.get_job(db, number).name == "before"

    done = client.post(
        address, data={"name": "after", "priority": "7", "not_before": ""}, follow_redirects=False
    )
    assert done.headers["location"] == f"/queue#q-{number}"
    assert (jobs.get_job(db, number).name, jobs.get_job(db, number).priority) == ("after", 7)
    assert order(client) == [number, first]


@pytest.mark.parametrize(
    "data", [{}, {"to": "nowhere"}, {"before": "99"}, {"before": "1", "to": "top"}, {"after": "x"}]
)
def test_a_move_that_names_no_place_changes_nothing(
    client: TestClient, db: Database, data: dict[str, str]
) -> None:
    """One clear error, never a 500."""
    one, two = queue(db), queue(db)

    answer = client.post(f"/queue/jobs/{two}/move", data=data, headers=HTML)

    assert answer.status_code in {404, 422}
    assert order(client) == [one, two]


def test_the_jobs_of_a_sweep_stand_together(client: TestClient, db: Database) -> None:
    """Under its name, axes, cost and end."""
    wanted = submission(
        {"kind": "rl_run", "config": CONFIG, "name": "rates", "sweep": {"lr": [1e-4, 1e-3]}}
    )
    submit_sweep(db, wanted, actor="test")
    queue(db, name="alone")

    page = client.get("/queue").text
    sweep = page.partition('class="sweep"')[2].partition("</details>")[0]

    assert "rates" in sweep
    assert "2 of its 2 jobs, over lr" in words(sweep)
    assert re.findall(r'data-job="(\d+)"', sweep) == ["1", "2"]
    assert order(client) == [1, 2, 3]


def test_pause_and_resume_lead_back_to_the_page_they_were_asked_from(
    client: TestClient, db: Database
) -> None:
    """With the reason shown; another address than ours is refused."""
    paused = client.post(
        "/queue/pause", data={"back": "/queue", "why": "<a visit>"}, follow_redirects=False
    )

    assert paused.headers["location"] == "/queue"
    assert "&lt;a visit&gt;" in client.get("/queue").text
    assert client.post("/queue/resume", data={"back": "//evil"}).status_code == 422
    assert jobs.paused(db) is not None
    client.post("/queue/resume", data={"back": "/queue"})
    assert jobs.paused(db) is None


def test_a_paused_queue_shows_how_it_would_go_on(client: TestClient, db: Database) -> None:
    """Dashed, under a title that says so; the way out stands first."""
    number = queue(db)
    pausing.pause(db, actor="test", why="a visit")

    page = client.get("/queue").text

    assert "Tonight, if the queue were resumed" in page
    assert "Paused by test" in words(page)
    assert "if it were resumed now: 1 job fits" in words(page)
    assert 'class="no"' in row_of(page, number)
    assert "Resume the queue" in page


def test_what_runs_is_waited_for_in_the_preview(client: TestClient, db: Database) -> None:
    """The first queued job starts when the running one is expected to leave the lane."""
    queue(db)
    waiting = queue(db)
    with night(db) as lane:
        lane.start().step(4, 0.5)  # says 75 s are left
        page = client.get("/queue").text

    found = re.search(r'<time datetime="([^"]+)"', row_of(page, waiting))
    assert found
    moment = datetime.datetime.fromisoformat(found[1]).timestamp()
    assert 40 < moment - time.time() < 80


@pytest.mark.requirement("JB-09")
def test_queue_and_run_page_and_command_line_name_one_moment(
    client: TestClient, db: Database
) -> None:
    """A person's drain runs, the window is closed: what waits starts when the lane is free."""
    closed = zone_where_it_is(12)
    terms = Policy(zone=closed, window="01:00-02:00")
    policy.arm(db, terms, actor="cli:ada", now=time.time())
    queue(db)
    waiting = queue(db)
    with night(db) as lane:
        lane.start().step(4, 0.5)  # says 75 s are left
        pages = [client.get(path).text for path in ("/queue", f"/jobs/{waiting}")]
        told = client.get(f"/api/v1/jobs/{waiting}").json()["waits_for"]

    starts = re.search(r'<time datetime="([^"]+)"', row_of(pages[0], waiting))
    calm = re.search(
        r'the queue goes on after it.*?, not before\s*<time datetime="([^"]+)"', pages[1]
    )
    assert starts
    assert calm
    moments = [datetime.datetime.fromisoformat(found[1]).timestamp() for found in (starts, calm)]
    assert max(moments) - min(moments) <= 2  # read one after the other
    assert told["next_eligible_at"] == pytest.approx(moments[0], abs=3)
    assert "Now, as the drain goes on" in pages[0]
    assert "A person's drain takes the queue now; it asks no window and no cap" in words(pages[0])


# --- arming ---


@pytest.mark.requirement("UI-04")
def test_tonight_is_armed_in_one_sentence_and_ends_by_itself(
    client: TestClient, db: Database
) -> None:
    """A window, a cap, a limit of failures, one night; said again as armed, and in the audit."""
    armed = client.post("/queue/arm/tonight", data=TONIGHT, follow_redirects=False)

    found = policy.standing(db)
    assert (armed.status_code, armed.headers["location"]) == (303, "/queue#stand-h")
    assert found is not None
    assert (found.armed, found.changed_by, found.cap_usd) == (True, "browser", 5.0)
    assert (found.window, found.max_failures) == ("22:00-07:00", 3)
    assert found.expires_at == found.closes_at(found.opens_at(time.time()))
    assert decisions.newest(db, "test", 1)[0].what == "armed"
    page = client.get("/queue").text
    assert re.search(r'<h2 id="stand-h" tabindex="-1">Armed: tonight from 22:00 to 07:00 \(', page)
    assert "spend at most $5, stop after 3 failures in a row</h2>" in page


@pytest.mark.requirement("UI-04")
def test_safe_terms_are_offered_before_anybody_chose_some(client: TestClient) -> None:
    """A window, a cap and a limit of failures; for every night too, and that has an end."""
    page = client.get("/queue").text

    for name, value in {"opens": "22:00", "closes": "07:00", "cap_usd": "5"}.items():
        assert re.search(rf'id="arm-{name}" name="{name}" value="{value}"', page), name
    assert re.search(r'id="every-window" name="window" value="22:00-07:00"', page)
    assert re.search(r'id="every-expires" name="expires" value="\+7d"', page)


@pytest.mark.requirement("UI-04")
def test_the_card_says_how_much_fits_before_anything_is_armed(
    client: TestClient, db: Database
) -> None:
    """Under the terms in the address: two hours at 2 $/h do not go into three dollars."""
    set_price(db, {"usd_h": 2}, actor="test", now=time.time())
    queue(db)
    queue(db)

    def fits(**typed: str) -> str:
        page = client.get("/queue", params=typed | {"zone": zone_where_it_is(12)}).text
        return words(page.partition('id="fits"')[2].partition("</p>")[0])

    assert "2 jobs fit, about $4.00 and 2 h" in fits(cap_usd="5")
    assert "1 job fits, about $2.00 and 1 h" in fits(cap_usd="3")
    assert "No job fits: $0.00 of today's $1 is spent" in fits(cap_usd="1")
    assert "counted as 1 h each" in fits(cap_usd="5")
    assert policy.standing(db) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [("opens", "25:00"), ("closes", "22:00"), ("cap_usd", "-1"), ("cap_usd", ""),
     ("cap_usd", "much"), ("max_failures", "0")],
)  # fmt: skip
@pytest.mark.requirement("UI-04")
def test_a_wrong_term_of_tonight_comes_back_at_its_field(
    client: TestClient, db: Database, field: str, value: str
) -> None:
    """With what was typed, and nothing armed."""
    answer = client.post("/queue/arm/tonight", data=TONIGHT | {field: value}, headers=HTML)

    assert answer.status_code == 422
    shown = re.findall(r'id="arm-(\w+)" name="\w+"[^>]*aria-invalid="true"', answer.text)
    assert shown == [field]
    assert f'id="arm-{field}-help"' in answer.text
    assert f'name="{field}" value="{value}"' in answer.text
    assert policy.standing(db) is None


@pytest.mark.requirement("UI-04")
def test_every_night_is_armed_up_to_an_end_that_a_person_names(
    client: TestClient, db: Database
) -> None:
    """All the terms; the page says them again."""
    armed = client.post("/queue/arm", data=TERMS, follow_redirects=False)

    found = policy.standing(db)
    assert (armed.status_code, armed.headers["location"]) == (303, "/queue#stand-h")
    assert found is not None
    assert found.expires_at == pytest.approx(time.time() + 7 * 86400, abs=60)
    text = words(client.get("/queue").text)
    assert "from 22:00 to 07:00 the next morning, Monday to Friday (Europe/Berlin)" in text


def test_a_cap_is_told_in_every_digit_wherever_it_stands(
    client: TestClient, db: Database, cockpit: Callable[..., Said]
) -> None:
    """Arming again from the shown form, or reading a cap anywhere, is about the same money."""
    terms = Policy(zone="UTC", cap_usd=1234567.89, cap_gpu_hours=10.123456, interval_min=7.0000001)
    before = time.time() - 3 * 86400
    policy.arm(db, terms, actor="test", now=before)
    set_price(db, {"usd_h": 0.00123456}, actor="test", now=before)

    queue_page = client.get("/queue").text
    pages = {path: words(client.get(path).text) for path in ("/queue", "/budget", "/")}
    pages["/report"] = words(client.get("/report").text.partition('class="card standup"')[2])
    commands = {name: cockpit(*name.split()) for name in ("autonomy status", "report")}

    for field, value in (("cap_usd", "1234567.89"), ("cap_gpu_hours", "10.123456")):
        assert re.search(rf'name="{field}"[^>]*value="{re.escape(value)}"', queue_page), field
    assert 'value="7.0000001"' in queue_page
    assert 'value="0.00123456"' in client.get("/budget").text
    for path, text in pages.items():
        assert "$1234567.89" in text, path
    for command, said in commands.items():
        assert "$1234567.89" in said.out, command
    assert "10.123456" in pages["/budget"]
    assert "$0.00123456" in pages["/queue"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("interval_min", "0"),
        ("interval_min", "often"),
        ("window", "22-7"),
        ("days", "someday"),
        ("zone", "Mars/Base"),
        ("cap_usd", "-1"),
        ("max_failures", "0"),
        ("expires", ""),
        ("expires", "yesterday"),
    ],
)
@pytest.mark.requirement("UI-04")
def test_a_wrong_term_comes_back_beside_its_field(
    client: TestClient, db: Database, field: str, value: str
) -> None:
    """Nothing is armed, and the form stands open."""
    answer = client.post("/queue/arm", data=TERMS | {field: value}, headers=HTML)

    assert answer.status_code == 422
    shown = re.findall(r'<div class="field wrong">\s*<label for="every-(\w+)"', answer.text)
    assert shown == [field]
    assert re.search(r'id="every" open', answer.text)
    assert policy.standing(db) is None


@pytest.mark.requirement("UI-04")
def test_all_mistakes_of_an_arming_form_are_told_at_once(client: TestClient, db: Database) -> None:
    """The end, a cap and the window, each beside its field."""
    wrong = TERMS | {"expires": "", "cap_usd": "-1", "window": "25:00-07:00"}

    answer = client.post("/queue/arm", data=wrong, headers=HTML)

    shown = re.findall(r'<div class="field wrong">\s*<label for="every-(\w+)"', answer.text)
    assert shown == ["window", "cap_usd", "expires"]


def test_an_unknown_term_is_refused(client: TestClient, db: Database) -> None:
    """What the policy does not know is not dropped silently."""
    answer = client.post("/queue/arm", data=TERMS | {"cap_eur": "5"}, headers=HTML)

    assert answer.status_code == 422
    assert "is not a setting" in answer.text
    assert policy.standing(db) is None


@pytest.mark.requirement("UI-04")
def test_one_button_disarms(client: TestClient, db: Database, open_hours: policy.Standing) -> None:
    """Its terms stay to be seen, and the audit says who did it."""
    answer = client.post("/queue/disarm", follow_redirects=False)

    found = policy.standing(db)
    assert answer.headers["location"] == "/queue"
    assert found is not None
    assert (found.armed, found.changed_by) == (False, "browser")
    assert "Not armed" in client.get("/queue").text


def test_the_page_says_how_many_of_how_many_jobs_it_shows(client: TestClient, db: Database) -> None:
    """And where the rest is; nothing is left out silently."""
    for _ in range(4):
        queue(db)

    text = words(client.get("/queue?show=3").text)

    assert "3 of 4 queued jobs are shown" in text
    assert client.get("/queue?show=0").status_code == 422


def test_the_live_part_is_the_same_html_as_in_the_page(client: TestClient, db: Database) -> None:
    """One template serves both, and no script or style stands in it."""
    queue(db)

    page, part = client.get("/queue").text, client.get("/queue?part=live").text

    rows = part.partition('id="turn"')[2].partition('class="lab"')[0]
    assert rows
    assert rows in page
    assert "<style" not in page
    assert " style=" not in page


# --- words ---


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({}, "at every hour of every day (UTC)"),
        ({"window": "09:00-17:30"}, "from 09:00 to 17:30, every day (UTC)"),
        ({"days": "sat,sun"}, "all day, Saturday and Sunday (UTC)"),
        ({"window": "22:00-6:00", "days": "fri"}, "from 22:00 to 06:00 the next morning, Friday"),
    ],
)
def test_a_window_is_said_as_a_person_would(terms: dict[str, Any], said: str) -> None:
    """Hours, days, zone."""
    assert hours_in_words(Policy(zone="UTC", **terms)).startswith(said)


def test_numbers_of_a_decision_are_said_with_their_units() -> None:
    """Money, memory, time; what is not known is left out."""
    numbers = {"spent_usd": 1, "need_gb": 3.0, "expected_s": 90, "cap_gpu_hours": None, "a": [1]}

    assert numbers_in_words(numbers) == "spent $1.00 · need 3.0 GB · expected 1 min 30 s"


def test_a_job_that_was_asked_to_stop_says_so_wherever_it_stands_and_does_not_go_on(
    client: TestClient, db: Database
) -> None:
    """Right after Stop all: on the board, in the queue and in the strip of every page."""
    queue(db)
    with night(db) as lane:
        lane.start()
        pausing.pause(db, actor="test", why="a visit")
        for address in ("/", "/queue"):
            text = words(client.get(address).text)
            assert "what runs goes on" in text
            assert "asked to stop" not in text

        client.post("/stop")

        for address in ("/", "/queue"):
            text = words(client.get(address).text)
            assert "Paused" in text
            assert "what runs goes on" not in text
            assert text.count("asked to stop: cancel") == 2  # its card, and the strip
        assert "asked to stop: cancel" in words(client.get("/help").text)


def test_stop_all_promises_the_crontab_line_only_where_there_is_one(
    client: TestClient, db: Database, open_hours: policy.Standing
) -> None:
    """What was never installed is not taken out."""
    assert "Autonomy is switched off." in words(client.get("/stop").text)

    terms = open_hours.terms()
    policy.arm(db, terms, actor="t", now=time.time(), cron_line="* * * * * cockpit drain")

    assert "Autonomy is switched off, with its crontab line." in words(client.get("/stop").text)
