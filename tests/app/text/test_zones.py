"""Times are told and read in the zone of the lane's policy, wherever the machine's clock stands."""

from __future__ import annotations

import contextvars
import datetime
import re
import time
import zoneinfo
from collections.abc import Callable

import pytest
from sqlalchemy import update
from starlette.testclient import TestClient

from app.text import wording
from app.text.zones import Zones
from tests.app.conftest import Said
from tests.app.night import CONFIG, night, queue
from tests.app.pages.test_queue_page import HTML, words
from worker.db.connection import Database
from worker.db.tables import policy as policies
from worker.queue import control
from worker.queue.submission import submission
from worker.queue.sweeps import submit_sweep
from worker.read import jobs
from worker.schedule import policy
from worker.schedule.policy import Policy

KOLKATA = zoneinfo.ZoneInfo("Asia/Kolkata")
"""Half an hour off every zone of whole hours, the same in summer and in winter."""
LATE = "2027-01-15 22:00"
LATE_THERE = datetime.datetime(2027, 1, 15, 22, tzinfo=KOLKATA).timestamp()


@pytest.fixture
def in_kolkata(db: Database) -> policy.Standing:
    """A lane whose nights are those of Kolkata, and one that has run."""
    terms = Policy(zone="Asia/Kolkata", window="22:00-07:00")
    made = policy.arm(db, terms, actor="cli:ada", now=time.time())
    queue(db)
    with night(db) as lane:
        attempt = lane.start()
        attempt.gate(0, 0.5)
        attempt.step(4, 0.5)
        attempt.finish()
    queue(db)
    return made


def told(text: str) -> list[tuple[datetime.datetime, str]]:
    """Each moment of a page: what it is, and how it reads."""
    found = re.findall(r'<time datetime="([^"]+)">([^<]+)</time>', text)
    return [(datetime.datetime.fromisoformat(iso), words(shown)) for iso, shown in found]


PAGES = ("/", "/queue", "/jobs/1", "/jobs/1?tab=events", "/jobs/1/samples", "/report")
MORE = ("/machine", "/budget", "/audit", "/report?download=true")


@pytest.mark.requirement("UI-04", "UI-05")
@pytest.mark.usefixtures("in_kolkata")
@pytest.mark.parametrize("path", [*PAGES, *MORE])
def test_every_moment_of_a_page_is_told_in_the_lanes_zone(client: TestClient, path: str) -> None:
    """Also on a box in another zone, as a container in UTC is."""
    answer = client.get(path, headers=HTML)

    moments = told(answer.text)
    assert answer.status_code == 200
    assert moments
    for moment, shown in moments:
        assert shown.endswith(
            (f"{moment.astimezone(KOLKATA):%H:%M}", f"{moment.astimezone(KOLKATA):%H:%M:%S}")
        ), (moment, shown)
    named = r"as of [\d:]+ IST|it is [\d:]+, Asia/Kolkata|12:00 IST on lane|when \(IST\)"
    assert re.search(named, words(answer.text))


@pytest.mark.requirement("UI-04")
@pytest.mark.usefixtures("in_kolkata")
def test_a_window_opens_and_closes_at_the_hours_that_were_set(
    client: TestClient, cockpit: Callable[..., Said]
) -> None:
    """What the page says of now, and what stands in the window, are hours of one clock."""
    text = words(client.get("/queue").text)
    said = cockpit("autonomy", "preview")

    opens_or_closes = r"(opens at|closes at) (?:\w{3} \d+, )?(\d\d:\d\d)"
    found = re.search(opens_or_closes, text)
    assert found
    assert found.groups() in {("opens at", "22:00"), ("closes at", "07:00")}
    assert re.search(r"07:00(:00)?", said.out + said.err)


@pytest.mark.requirement("UI-01")
def test_a_new_zone_counts_from_the_next_page_on(
    client: TestClient, db: Database, in_kolkata: policy.Standing
) -> None:
    """Also in rows that were drawn before and kept."""
    before = client.get("/").text
    policy.arm(
        db, in_kolkata.terms().model_copy(update={"zone": "UTC"}), actor="t", now=time.time()
    )
    after = client.get("/").text

    ended = jobs.get_job(db, 1).finished_at
    for text, zone in ((before, KOLKATA), (after, datetime.UTC)):
        shown = f"{datetime.datetime.fromtimestamp(ended or 0, zone):%H:%M}"
        assert shown in [words for _, words in told(text)]
    assert 'data-zone="UTC"' in after


@pytest.mark.requirement("UI-01")
def test_without_a_policy_the_machines_zone_counts(client: TestClient, db: Database) -> None:
    """As before anybody armed the lane."""
    queue(db)

    here = datetime.datetime.now().astimezone()
    assert f"as of {here:%H}" in words(client.get("/").text)
    assert f" {here:%Z} " in words(client.get("/").text)


@pytest.mark.requirement("UI-01")
def test_a_zone_that_cannot_be_read_is_the_one_before_or_the_machines(db: Database) -> None:
    """The hour is said all the same."""
    policy.arm(db, Policy(zone="Asia/Kolkata"), actor="t", now=time.time())
    zones = Zones(db)
    assert zones.now() == KOLKATA
    with db.write_tx() as conn:
        conn.execute(update(policies).values(zone="Mars/One"))

    assert zones.now() == KOLKATA
    assert Zones(db).now() is None


@pytest.mark.requirement("JB-05")
@pytest.mark.usefixtures("in_kolkata")
def test_a_start_time_without_a_zone_is_one_of_the_lanes(
    client: TestClient, cockpit: Callable[..., Said], db: Database, tmp_path: object
) -> None:
    """Through every door by which one comes in."""
    body = {"kind": "rl_run", "config": CONFIG | {"seed": 5}, "not_before": LATE}
    assert client.post("/api/v1/jobs", json=body).status_code == 201
    assert client.patch("/api/v1/jobs/2", json={"not_before": LATE}).is_success
    wanted = submission({**body, "sweep": {"seed": [6, 7]}})
    sweep = submit_sweep(db, wanted, actor="t")
    assert cockpit("edit", "2", "--not-before", "none").code == 0
    assert jobs.get_job(db, 2).not_before is None
    assert cockpit("edit", "2", "--not-before", LATE).code == 0
    control.edit(db, sweep.job_ids[0], {"not_before": f"{LATE} UTC"}, actor="t")

    starts = [jobs.get_job(db, job_id).not_before for job_id in (2, 3, *sweep.job_ids)]
    assert starts == [LATE_THERE, LATE_THERE, LATE_THERE + 5.5 * 3600, LATE_THERE]


@pytest.mark.requirement("LN-01")
def test_an_expiry_is_one_of_the_zone_that_is_set_with_it() -> None:
    """Not of the zone that was in force before, nor of the machine's."""
    raw = {"zone": "Asia/Kolkata", "expires": LATE, "window": "22:00-07:00"}

    assert policy.parse(raw, time.time()).expires_at == LATE_THERE
    assert (
        policy.parse({**raw, "expires": f"{LATE} UTC"}, time.time()).expires_at
        == LATE_THERE + 5.5 * 3600
    )


@pytest.mark.requirement("JB-13")
@pytest.mark.usefixtures("in_kolkata")
def test_a_command_tells_its_times_there_too(cockpit: Callable[..., Said], db: Database) -> None:
    """And leaves the zone behind when it ends."""
    created = jobs.get_job(db, 1).created_at

    said = cockpit("show", "1")

    assert f"{datetime.datetime.fromtimestamp(created, KOLKATA):%H:%M:%S}" in said.out
    assert wording.told_in() is None


def test_the_zone_is_asked_for_when_the_first_time_is_told_and_only_then() -> None:
    """By the thread that makes a page: without times none is read, with many of them one."""
    asked: list[str] = []

    def zone() -> datetime.tzinfo:
        asked.append("zone")
        return KOLKATA

    def request() -> None:
        wording.tell_times_in(zone)
        assert asked == []
        assert wording.zone(LATE_THERE) == wording.zone(LATE_THERE + 60) == "IST"

    contextvars.copy_context().run(request)

    assert asked == ["zone"]
