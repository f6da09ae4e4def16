"""The queue page: order, reasons, tonight's preview, and arming by the lane's typed name."""

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
    "lane": "test",
}


def words(text: str) -> str:
    """The page as it reads."""
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", text).split()))


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

    assert "Autonomy is off" in text
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
    assert re.search(r"; closed now, opens at [\d: -]+ OUTSIDE_WINDOW \. armed by", text), text

    pausing.pause(db, actor="t")
    text = words(client.get("/queue").text)
    assert "The queue is paused, so nothing starts. $0.00 is spent today; " in text
    assert "expected to cost" not in text

    client.post("/queue/disarm")
    text = words(client.get("/queue").text)
    assert "starts the queue with Run now or cockpit drain . switched off by" in text


@pytest.mark.requirement("UI-04")
def test_a_policy_that_gave_up_says_so_in_a_sentence(client: TestClient, db: Database) -> None:
    """In the heading, the title and the strip alike: nobody goes to bed under the word armed."""
    terms = Policy(zone="UTC", expires_at=time.time() - 60)
    policy.arm(db, terms, actor="t", now=time.time() - 3600)

    page = client.get("/queue").text

    text = words(page)
    assert "0 queued · off" in text
    assert "No longer armed lane" in text
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
    assert "behind first (job 1)" in text
    assert "its start time has not come NOT_BEFORE not before" in text
    assert f"runs after job {first} WAITING_FOR" in text
    for number in (first, second, later, child):
        row = page.partition(f'id="q-{number}"')[2].partition("</li>")[0]
        assert "0.5 GB" in row
        assert "counted as 1 h" in row
    assert len(re.findall(r"<dt>starts</dt>", page)) == 4  # what waits for its own thing too
    assert "no time known" not in text


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

    assert "put off: 1.00 of today's 1.5 lane hours are used" in text
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

    assert (
        "A look at the queue every 30 minutes, at every hour of every day (UTC); open now" in text
    )
    assert "armed by cli:ada" in text
    assert "$0.00 of $5" in text
    assert "it needs <30 GB need 30.0 GB · free 20.5 GB" in text
    assert "OOM_ENVELOPE" in text


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
        assert f'id="q-{job}" class="card place" tabindex="-1"' in page  # there the focus goes

    press(three, "Up")
    assert order(client) == [one, three, two]
    press(one, "Down")
    assert order(client) == [three, one, two]
    press(two, "Top")
    assert order(client) == [two, three, one]
    assert jobs.audit(db, two)[-1].actor == "browser"


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


def test_a_paused_queue_foresees_no_start(client: TestClient, db: Database) -> None:
    """The page says so instead of a time."""
    queue(db)
    pausing.pause(db, actor="test")

    text = words(client.get("/queue").text)

    assert "The queue is paused, so nothing starts" in text
    assert "starts not by itself" in text


def test_what_runs_is_waited_for_in_the_preview(client: TestClient, db: Database) -> None:
    """The first queued job starts when the running one is expected to leave the lane."""
    queue(db)
    waiting = queue(db)
    with night(db) as lane:
        lane.start().step(4, 0.5)  # says 75 s are left
        page = client.get("/queue").text

    row = page.partition(f'id="q-{waiting}"')[2]
    found = re.search(r'<dt>starts</dt><dd>\s*<time datetime="([^"]+)"', row)
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

    card = pages[0].partition(f'id="q-{waiting}"')[2]
    starts = re.search(r'<dt>starts</dt><dd>\s*<time datetime="([^"]+)"', card)
    calm = re.search(
        r'the queue goes on after it.*?, not before\s*<time datetime="([^"]+)"', pages[1]
    )
    assert starts
    assert calm
    moments = [datetime.datetime.fromisoformat(found[1]).timestamp() for found in (starts, calm)]
    assert max(moments) - min(moments) <= 2  # read one after the other
    assert told["next_eligible_at"] == pytest.approx(moments[0], abs=3)
    assert "What the drain runs, in this order" in pages[0]
    assert "it asks no window and no cap" in pages[0]


# --- arming ---


@pytest.mark.requirement("UI-04")
def test_the_lane_is_armed_only_under_its_own_typed_name(client: TestClient, db: Database) -> None:
    """A wrong name changes nothing and loses nothing that was typed."""
    refused = client.post("/queue/arm", data=TERMS | {"lane": "cpu"}, headers=HTML)

    assert refused.status_code == 422
    assert "is not the lane&#39;s name (got cpu); type test to confirm" in refused.text
    assert 'value="22:00-07:00"' in refused.text
    assert policy.standing(db) is None

    armed = client.post("/queue/arm", data=TERMS, follow_redirects=False)

    found = policy.standing(db)
    assert (armed.status_code, armed.headers["location"]) == (303, "/queue#stand-h")
    assert '<h2 id="stand-h" tabindex="-1">Armed' in client.get("/queue").text
    assert found is not None
    assert (found.armed, found.changed_by, found.cap_usd) == (True, "browser", 5.0)
    assert found.expires_at == pytest.approx(time.time() + 7 * 86400, abs=60)
    assert decisions.newest(db, "test", 1)[0].what == "armed"
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
    """Together with a name that was not confirmed; nothing is armed."""
    answer = client.post("/queue/arm", data=TERMS | {field: value, "lane": ""}, headers=HTML)

    assert answer.status_code == 422
    shown = re.findall(r'<div class="field wrong">\s*<label for="arm-(\w+)"', answer.text)
    assert shown == sorted({field, "lane"}, key=[*TERMS].index)
    assert policy.standing(db) is None


@pytest.mark.requirement("UI-04")
def test_all_mistakes_of_an_arming_form_are_told_at_once(client: TestClient, db: Database) -> None:
    """The name, a cap and the window, each beside its field."""
    wrong = TERMS | {"lane": "cpu", "cap_usd": "-1", "window": "25:00-07:00"}

    answer = client.post("/queue/arm", data=wrong, headers=HTML)

    assert "3 problems; nothing was changed" in words(answer.text)
    shown = re.findall(r'<div class="field wrong">\s*<label for="arm-(\w+)"', answer.text)
    assert shown == ["window", "cap_usd", "lane"]


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
    assert "Autonomy is off" in client.get("/queue").text


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

    rows = part.partition('id="turn"')[2].partition("</section>")[0]
    assert rows
    assert re.sub(r"\d\d:\d\d:\d\d", "", rows.partition("<dt>starts")[0]) in page
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
