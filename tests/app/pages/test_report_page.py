"""The morning report as a page, as one file, and what a person decides on its proposals."""

from __future__ import annotations

import datetime
import html
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import select, update
from starlette.testclient import TestClient

from tests.app.conftest import Said
from tests.app.night import night, queue
from tests.zones import zone_where_it_is
from worker.attempt.settlement import Verdict
from worker.budget import ledger
from worker.clock.night import night_at
from worker.clock.window import zone_named
from worker.db import decisions
from worker.db.connection import Database
from worker.db.tables import job, report_snapshot
from worker.db.zone import lane_zone
from worker.queue.states import State
from worker.read import jobs
from worker.report.snapshot import digest_of, latest_morning, report_of
from worker.schedule import policy
from worker.schedule.policy import Policy

HTML = {"accept": "text/html"}
LOG = "loading\nTraceback (most recent call last):\nValueError: <script>row 17</script>\n"


def words(text: str) -> str:
    """The page as it reads."""
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", text).split()))


@pytest.fixture
def day(db: Database) -> datetime.date:
    """A night with a gain, a loss and a crash, in which the lane was armed; its morning."""
    policy.arm(db, Policy(zone="UTC", cap_usd=5), actor="cli:ada", now=time.time() - 7200)
    for name in ("up", "down", "<b>crash</b>"):
        queue(db, name=name)
    with night(db) as lane:
        up = lane.start()
        for step, score in ((0, 0.55), (20, 0.7), (40, 0.81)):
            up.gate(step, score)
        up.finish()
        lane.start().finish(0.55, 0.47, "loss")
        crash = lane.start()
        crash.log(LOG)
        crash.settle(Verdict(State.FAILED, "it crashed", "CRASH", "the engine crashed (exit 1)"))
    ledger.spend_elsewhere(db, {"usd": 0.4, "note": "judge"}, actor="test", now=time.time())
    return night_at(time.time(), zone_named("UTC")).day


@pytest.mark.requirement("UI-05")
def test_a_night_without_a_run_says_what_to_do(client: TestClient) -> None:
    """An empty state with the next commands."""
    text = words(client.get("/report").text)

    assert "RAN 0" in text
    assert (
        "cockpit autonomy on --window 22:00-07:00 , and then one of two: keep cockpit serve" in text
    )
    assert "running, or put the line that it prints into your crontab" in text
    assert re.search(
        r"Night from (\d{4}-\d\d-\d\d) 12:00 to (?!\1)\d{4}-\d\d-\d\d 12:00 \S+ on", text
    )
    assert "No run of this night has a verdict" in text


@pytest.mark.parametrize(("hour", "goes_on"), [(20, True), (8, False)])
def test_an_empty_night_names_the_one_that_goes_on(
    hour: int, goes_on: bool, client: TestClient, db: Database
) -> None:
    """Who ran something in the afternoon finds it: the report of the day is of the night before."""
    policy.arm(db, Policy(zone=zone_where_it_is(hour)), actor="cli:ada", now=time.time())
    page = client.get("/report").text
    latest = latest_morning(db, time.time())

    assert ("stands in the report of the night that goes on" in words(page)) is goes_on
    assert (f'<a href="/report?date={latest}">the report of the night' in page) is goes_on


@pytest.mark.requirement("UI-05")
def test_the_report_says_what_happened_whether_to_believe_it_and_what_is_next(
    client: TestClient, day: datetime.date
) -> None:
    """Sentence, verdicts with interval and n, the failure's last lines, gaps, money, proposals."""
    page = client.get(f"/report?date={day}").text
    text = words(page)

    assert "RAN 3 · 1 FAILED · +25.8 ± 4.0 held-out, best of 2 ·" in text
    assert "gain +25.8 points (+21.8 to +29.8) 500" in text
    assert "loss −8.0 points (−12.0 to −4.0) 500" in text
    assert "1 gain, 1 loss. The smallest verdict stands on 500 rows. The gain stands when" in text
    assert "CRASH the engine crashed (exit 1)" in text
    assert "ValueError: <script>row 17</script>" in text
    assert "<script>row" not in page
    assert "<b>crash" not in page
    assert "nobody looked at the queue: no tick, no cron, no drain" in text
    assert "$0.40 of it was spent elsewhere" in text
    assert "job 2 made the model worse: a smaller lr WORSE" in text
    assert "lr 0.0003 → 0.00015" in text
    assert "55.0 % at step 0, 81.0 % at step 40; between 55.0 % and 81.0 %" in page
    assert "It is not over: the report may still change." in text


def test_a_gain_that_one_of_many_runs_may_have_by_chance_is_marked(
    client: TestClient, db: Database
) -> None:
    """In the sentence, beside its verdict, and where the night is weighed."""
    for seed in range(2):
        queue(db, seed=seed)
    with night(db) as lane:
        lane.start().finish(0.55, 0.58, p_better=0.03)
        lane.start().finish(0.55, 0.55, "no gain proven", p_better=0.4)
    text = words(client.get(f"/report?date={night_at(time.time(), zone_named('UTC')).day}").text)

    assert "held-out: 1 gain of 2 runs, which may be chance" in text
    assert "gain may be chance among 2 runs +3.0 points (−1.0 to +7.0)" in text
    assert "The gain does not stand when corrected for the 2 runs that were judged" in text
    assert "The interval of #1 includes 0: a gain is tested on all held-out rows" in text


def test_the_days_are_linked_and_what_has_not_begun_says_so(
    client: TestClient, day: datetime.date
) -> None:
    """From night to night, and no further than the one that runs."""
    one = datetime.timedelta(days=1)
    page = client.get(f"/report?date={day - one}").text

    assert f'href="/report?date={day - 2 * one}"' in page
    assert f'href="/report?date={day}"' in page
    assert 'rel="next"' not in client.get(f"/report?date={day}").text


@pytest.mark.parametrize("date", ["9999-12-31", "0001-01-01", "1999-01-01", "nope", "2026-02-30"])
def test_a_date_without_a_night_is_refused(client: TestClient, date: str) -> None:
    """One clear error at both doors, and nothing is kept of it."""
    assert client.get(f"/report?date={date}", headers=HTML).status_code == 422
    assert client.get(f"/api/v1/report?date={date}").status_code == 422


@pytest.mark.requirement("UI-05")
def test_the_file_needs_nothing_but_itself(
    client: TestClient, cockpit: Callable[..., Said], day: datetime.date, tmp_path: Path
) -> None:
    """No script, no link but anchors, no address; by download and by the command line alike."""
    answer = client.get(f"/report?date={day}&download=true")
    target = tmp_path / "report.html"
    said = cockpit("report", "--date", str(day), "--html", str(target))

    assert answer.headers["content-disposition"] == f'attachment; filename="nightlane-{day}.html"'
    assert said.code == 0
    for text in (answer.text, target.read_text()):
        assert "RAN 3 · 1 FAILED" in text
        assert not re.search(r"https?:|//[a-z]|@import|url\(|<script|<link|<form|\bsrc=", text)
        assert all(link.startswith("#") for link in re.findall(r'href="([^"]*)"', text))
        assert "<polyline" in text
        assert "@media print" in text
        assert "--surface:" in text  # the tokens travel too
        assert "&lt;script&gt;row 17" in text


def test_a_file_that_cannot_be_written_is_one_error(
    cockpit: Callable[..., Said], day: datetime.date, tmp_path: Path
) -> None:
    """Exit 2, no traceback, no half of a file."""
    said = cockpit("report", "--html", str(tmp_path / "absent" / "report.html"))

    assert said.code == 2
    assert "--html: cannot be written" in said.err
    for no_name in ("", "/"):
        said = cockpit("report", "--html", no_name)
        assert (said.code, "is no name of a file" in said.err) == (2, True)
    assert list(tmp_path.glob("*.part")) == []


@pytest.mark.requirement("UI-05")
def test_a_night_that_is_over_is_shown_from_its_record_with_its_hash(
    client: TestClient, db: Database
) -> None:
    """What is shown is what was kept."""
    yesterday = night_at(time.time(), zone_named("UTC")).day - datetime.timedelta(days=3)

    page = client.get(f"/report?date={yesterday}").text

    with db.read() as conn:
        kept = conn.execute(select(report_snapshot.c.sha256)).scalar_one()
    assert kept in page
    assert client.get(f"/api/v1/report?date={yesterday}").json()["over"] is True


@pytest.mark.requirement("UI-05")
def test_a_night_of_an_older_version_is_shown_with_the_hash_it_was_kept_under(
    client: TestClient, db: Database
) -> None:
    """It is read with what is told today filled in; its seal is still the one it got."""
    yesterday = night_at(time.time(), zone_named("UTC")).day - datetime.timedelta(days=3)
    body = report_of(db, yesterday, time.time()).model_dump(mode="json")
    del body["going"]
    with db.write_tx() as conn:
        conn.execute(update(report_snapshot).values(body=body, sha256=digest_of(body)))

    assert digest_of(body) in client.get(f"/report?date={yesterday}").text


@pytest.mark.requirement("UI-05")
def test_gates_are_drawn_as_on_the_board(client: TestClient, db: Database) -> None:
    """On the same scale, in which noise of half a point is no climb."""
    queue(db)
    with night(db) as lane:
        noise = lane.start()
        for step, score in ((0, 0.55), (20, 0.555)):
            noise.gate(step, score)
        noise.finish(0.55, 0.555, "no gain proven")

    night_now = f"/report?date={night_at(time.time(), lane_zone(db)).day}"

    pages = [client.get(path).text for path in ("/", night_now, f"{night_now}&download=true")]
    drawn = [re.findall(r'<polyline points="([^"]+)"', text) for text in pages]

    assert len(drawn[0]) == 1
    assert drawn[1:] == [drawn[0]] * 2
    heights = [float(place.split(",")[1]) for place in drawn[0][0].split()]
    assert max(heights) - min(heights) < 2


@pytest.mark.requirement("UI-05")
def test_what_runs_in_the_morning_stands_in_the_report(
    client: TestClient, cockpit: Callable[..., Said], db: Database
) -> None:
    """With its step and its gates so far; nobody is told that the lane idles, or to start it."""
    policy.arm(db, Policy(zone="UTC"), actor="cli:ada", now=time.time() - 7200)
    queue(db, name="goes on")
    with night(db) as lane:
        attempt = lane.start()
        for step, score in ((0, 0.55), (10, 0.6)):
            attempt.gate(step, score)
        attempt.step(12, 0.58)
        with db.write_tx() as conn:
            earlier = update(job).values(attempt_started_at=time.time() - 3600)
            conn.execute(earlier)
        day = night_at(time.time(), zone_named("UTC")).day

        text = words(client.get(f"/report?date={day}").text)
        said = cockpit("report", "--date", str(day))

    assert "RAN 0 · 1 RUNNING" in text
    assert "What has not ended" in text
    assert re.search(r"goes on rl_run #1 .* 12 55.0 % → 60.0 % \$0.00", text)
    assert "To let the queue run by itself" not in text
    assert re.search(
        r"job 1 goes on: [\d a-z]+ of this night, \$0.00, step 12, held-out 55.0", said.out
    )


# --- proposals ---


@pytest.mark.requirement("UI-05")
def test_an_approval_queues_exactly_what_the_proposal_shows_and_once(
    client: TestClient, db: Database, day: datetime.date
) -> None:
    """Pressed twice it is one job; who approved stands in the audit and on the page."""
    address = f"/report/{day}/proposals/WORSE-2/approve"
    before = report_of(db, day, time.time()).proposals

    first = client.post(address, follow_redirects=False)
    second = client.post(address, follow_redirects=False)

    assert (first.status_code, second.status_code) == (303, 303)
    [made] = jobs.next_jobs(db)
    [worse] = [found for found in before if found.rule == "WORSE"]
    assert made.config == worse.config
    assert made.config == jobs.get_job(db, 2).config | {"lr": 1.5e-4}
    assert (made.name, made.created_by) == ("down, lr 0.00015", "browser")
    found = [entry for entry in decisions.newest(db, "test", 20) if "proposal" in entry.what]
    assert [(entry.what, entry.rule, entry.job_id) for entry in found] == [
        ("proposal-approved", "WORSE-2", made.id)
    ]
    assert "✓ approved by browser" in words(client.get(f"/report?date={day}").text)


@pytest.mark.requirement("UI-05")
def test_a_dropped_proposal_stays_dropped(
    client: TestClient, db: Database, day: datetime.date
) -> None:
    """It is remembered beside the report, and nothing is queued."""
    client.post(f"/report/{day}/proposals/FAILED-3/drop")

    text = words(client.get(f"/report?date={day}").text)
    assert "✕ dropped by browser" in text
    assert jobs.next_jobs(db) == []


@pytest.mark.requirement("UI-05")
def test_an_edited_proposal_opens_filled_in_and_is_answered_by_its_job(
    client: TestClient, db: Database, day: datetime.date
) -> None:
    """The form holds the proposal's config; what is queued from it stands at the proposal."""
    page = client.get(f"/new?proposal=WORSE-2&date={day}&as=form").text

    assert 'name="set:lr" value="0.00015"' in page
    assert "<td>0.0003</td>" in page
    fields = dict(re.findall(r'name="((?:set:|with:)?[\w.:]+)" value="([^"]+)"', page))
    fields |= {"set:lr": "1e-4", "set:tuning": "full", "with:warmup": "on", "do": "queue"}
    fields.pop("told", None)
    answer = client.post("/new", data=fields, follow_redirects=False)

    assert answer.status_code == 303
    [made] = jobs.next_jobs(db)
    assert made.config["lr"] == 1e-4
    assert "✓ queued in another form by browser" in words(client.get(f"/report?date={day}").text)


def test_a_proposal_that_does_not_exist_is_refused(
    client: TestClient, db: Database, day: datetime.date
) -> None:
    """Neither approved nor dropped."""
    for verb in ("approve", "drop"):
        answer = client.post(f"/report/{day}/proposals/NOPE-9/{verb}", headers=HTML)
        assert answer.status_code == 409
    assert jobs.next_jobs(db) == []
